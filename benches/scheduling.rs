//! `cargo bench --bench scheduling`: a table; nothing is asserted.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench prints a table"
)]

use std::time::{Duration, Instant};

use overhaul::model::{Limits, MeterKey, NodeId, Outcome, Pool, PoolId, Provider, Tier};
use overhaul::scheduling::{Decision, Finish, NodeSpec, Options, PoolState, Scheduler};

fn nodes(count: usize) -> Vec<NodeSpec> {
    (0..count)
        .map(|n| {
            let id = |n: usize| NodeId::new(format!("N{n:06}")).unwrap();
            NodeSpec {
                depends_on: if n >= 50 && n % 3 == 0 { vec![id(n - 50)] } else { Vec::new() },
                input_tokens: 2_000 + (n as u64 * 7_919) % 24_000,
                tier: if n % 11 == 0 { Tier::Deep } else { Tier::Standard },
                ..NodeSpec::new(id(n))
            }
        })
        .collect()
}

fn pools() -> Vec<PoolState> {
    (0..4u32)
        .map(|n| {
            let id = format!("p{n}");
            let mut state = PoolState::from(Pool {
                id: PoolId::new(&id),
                provider: Provider::OpenaiCompatible,
                model: id.clone(),
                meter: MeterKey { backend: id, account: String::new() },
                tier: Some(if n == 3 { Tier::Deep } else { Tier::Standard }),
                context_tokens: 16_000 + 8_000 * u64::from(n),
                output_tokens: 8_192,
                limits: Limits {
                    concurrent: Some(8),
                    requests_per_minute: Some(40),
                    ..Limits::default()
                },
                cost_per_mtok: Some(f64::from(n)),
                input_scale: 1.0,
            });
            state.service.speed = 1.0 + f64::from(n) * 0.5;
            state
        })
        .collect()
}

/// Schedules everything under a virtual clock; decisions made.
fn drive(count: usize, dial: f64) -> (Duration, usize) {
    let (nodes, pools) = (nodes(count), pools());
    let begin = Instant::now();
    let mut s = Scheduler::new(nodes, pools, Options { dial, ..Options::default() }).unwrap();
    let mut ends = std::collections::BinaryHeap::new();
    let (mut now, mut decisions) = (0i64, 0usize);
    loop {
        decisions += 1;
        match s.next(now) {
            Decision::Start { node, .. } => {
                ends.push(std::cmp::Reverse((
                    now + 30_000 + (decisions as i64 % 17) * 1_000,
                    node,
                )));
            }
            Decision::Wait { until } => {
                let end = ends.peek().map(|e| e.0.0);
                now = end.into_iter().chain(until).min().unwrap_or(now);
                while ends.peek().is_some_and(|e| e.0.0 <= now) {
                    if let Some(std::cmp::Reverse((at, node))) = ends.pop() {
                        s.finished(&node, &Finish::new(Outcome::Success), at);
                        s.landed(&node);
                    }
                }
            }
            Decision::Wall(_) | Decision::Done => break,
        }
    }
    (begin.elapsed(), decisions)
}

fn main() {
    println!(
        "{:>8} {:>6} {:>12} {:>12} {:>14}",
        "nodes", "dial", "decisions", "total ms", "us / decision"
    );
    for dial in [0.0, 1.0] {
        for count in [1_000, 2_500, 5_000, 10_000, 20_000] {
            // The anchor is linear growth: the last column should stay level.
            let (time, decisions) = drive(count, dial);
            println!(
                "{count:>8} {dial:>6} {decisions:>12} {:>12.1} {:>14.2}",
                time.as_secs_f64() * 1e3,
                time.as_secs_f64() * 1e6 / decisions as f64
            );
        }
    }
}
