//! `cargo bench --bench makespan`: makespan over the lower bound, dial at speed, on seeded plans
//! and pool sets of several kinds; a table, nothing is asserted.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a bench prints a table"
)]

use std::time::Instant;

use overhaul::model::{Limits, MeterKey, Outcome, Pool, PoolId, Provider, Tier};
use overhaul::scheduling::simulate::{ServiceModel, simulate};
use overhaul::scheduling::{NodeSpec, Options, PoolState, ServiceEstimate};

#[path = "../tests/support/seeded.rs"]
mod seeded;
use seeded::{Rng, name};

/// Independent, layers, chains, an out-tree, sparse, fork and join, near dependencies, an in-tree,
/// almost one chain.
fn dependencies(rng: &mut Rng, shape: u64, width: u64, n: u64, count: u64) -> Vec<u64> {
    let near = |rng: &mut Rng, reach: u64| n - 1 - rng.below(reach.min(n));
    match shape {
        1 if n >= width => {
            let below = (n / width - 1) * width;
            (0..=rng.below(2)).map(|_| below + rng.below(width)).collect()
        }
        2 if n >= width => vec![n - width],
        3 if n > 0 => vec![(n - 1) / (1 + width / 2)],
        4 if n > 0 && rng.below(3) == 0 => vec![rng.below(n)],
        5 => match n % (width + 1) {
            0 => (n.saturating_sub(width)..n).collect(),
            place => vec![n - place],
        },
        6 if n > 0 => {
            let count = (0..3).filter(|_| rng.below(3) == 0).count();
            (0..count).map(|_| near(rng, 15)).collect()
        }
        7 => [2 * (count - n), 2 * (count - n) - 1]
            .into_iter()
            .filter_map(|child| (count - 1).checked_sub(child))
            .collect(),
        8 if n > 0 && rng.below(5) != 0 => vec![near(rng, 3)],
        _ => Vec::new(),
    }
}

fn plan(rng: &mut Rng, kind: &str) -> Vec<NodeSpec> {
    let count = match kind {
        "tiny" => 2 + rng.below(10),
        "large" => 300 + rng.below(700),
        "many pools" => 100 + rng.below(200),
        _ => 8 + rng.below(140),
    };
    let (shape, width, given) = (rng.below(9), 2 + rng.below(8), rng.below(3) == 0);
    (0..count)
        .map(|n| NodeSpec {
            depends_on: dependencies(rng, shape, width, n, count).into_iter().map(name).collect(),
            tier: rng.pick(&[Tier::Small, Tier::Standard, Tier::Standard, Tier::Deep]),
            input_tokens: 1_000 + rng.below(24_000),
            output_tokens: 300 + rng.below(4_000),
            service: given.then(|| 10_000 + i64::try_from(rng.below(300_000)).unwrap()),
            ..NodeSpec::new(name(n))
        })
        .collect()
}

fn pools(rng: &mut Rng, kind: &str) -> Vec<(PoolState, ServiceModel)> {
    let count = if kind == "many pools" { 50 + rng.below(250) } else { 1 + rng.below(7) };
    let shared = rng.below(4) == 0;
    (0..count)
        .map(|p| {
            let id = format!("p{p}");
            let limits = if kind == "harsh" {
                Limits {
                    concurrent: rng.pick(&[Some(1), Some(1), Some(2), Some(3), None]),
                    requests_per_minute: rng.pick(&[Some(1), Some(2), Some(3), None]),
                    input_tokens_per_minute: rng.pick(&[None, Some(30_000), Some(60_000)]),
                    output_tokens_per_minute: rng.pick(&[None, None, Some(9_000)]),
                    ..Limits::default()
                }
            } else {
                Limits {
                    concurrent: rng.pick(&[Some(1), Some(2), Some(4), Some(8), None]),
                    requests_per_minute: rng.pick(&[None, None, Some(6), Some(20), Some(60)]),
                    input_tokens_per_minute: rng.pick(&[None, None, Some(40_000), Some(100_000)]),
                    ..Limits::default()
                }
            };
            let speed = match kind {
                "mixed speeds" => rng.pick(&[0.25, 0.5, 1.0, 2.0, 4.0, 8.0]),
                _ => rng.pick(&[0.5, 1.0, 1.0, 1.5, 2.0, 3.0]),
            };
            let backend = if shared { format!("b{}", p / 2) } else { id.clone() };
            let pool = Pool {
                id: PoolId::new(&id),
                provider: Provider::OpenaiCompatible,
                model: id,
                meter: MeterKey { backend, account: String::new() },
                tier: rng.pick(&[Some(Tier::Small), Some(Tier::Standard), Some(Tier::Deep), None]),
                context_tokens: rng.pick(&[16_000, 32_000, 128_000]),
                output_tokens: 8_192,
                limits,
                cost_per_mtok: Some(rng.pick(&[0.0, 0.5, 3.0])),
                input_scale: 1.0,
            };
            let service = ServiceEstimate { speed, ..ServiceEstimate::default() };
            let mut model = ServiceModel::default();
            if matches!(kind, "jitter" | "failures") {
                model.jitter = 0.2;
            }
            if kind == "failures" {
                model.outcomes = [
                    (Outcome::Transient, 0.05),
                    (Outcome::RateLimited, 0.03),
                    (Outcome::InvalidResult, 0.05),
                ]
                .into();
                model.reset = Some(20_000);
            }
            (PoolState { service, ..PoolState::from(pool) }, model)
        })
        .collect()
}

fn main() {
    println!(
        "{:<14} {:>7} {:>8} {:>8} {:>8} {:>11} {:>9}",
        "200 traces", "median", "9 of 10", "worst", "> 1.15", "ms a trace", "slowest"
    );
    for kind in
        ["plain", "tiny", "harsh", "mixed speeds", "many pools", "large", "jitter", "failures"]
    {
        let (mut ratios, mut slowest, begin) = (Vec::new(), 0.0f64, Instant::now());
        for seed in 0..200 {
            let mut rng = Rng(seed);
            let (plan, pools) = (plan(&mut rng, kind), pools(&mut rng, kind));
            let options = Options { dial: 1.0, ..Options::default() };
            let start = Instant::now();
            let s = simulate(plan, pools, options, seed).unwrap();
            slowest = slowest.max(start.elapsed().as_secs_f64() * 1e3);
            // The anchor is the bound: no schedule lies below 1.
            ratios.push(if s.lower_bound_s > 0.0 { s.makespan_s / s.lower_bound_s } else { 1.0 });
        }
        let each = begin.elapsed().as_secs_f64() * 1e3 / 200.0;
        ratios.sort_by(f64::total_cmp);
        let above = ratios.iter().filter(|r| **r > 1.15).count() as f64 / 2.0;
        println!(
            "{kind:<14} {:>7.3} {:>8.3} {:>8.3} {above:>6.1} % {each:>11.0} {slowest:>9.0}",
            ratios[100], ratios[180], ratios[199]
        );
    }
}
