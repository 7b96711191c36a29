//! A flat copy of the problem: which nodes may run where, for how long, and what each pool's meter
//! lets through.

use super::super::meter::MeterIx;
use super::super::scheduler::Scheduler;
use super::super::select::estimate;
use super::super::{Estimate, Millis, NodeState};

/// One pool for one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) pool: usize,
    pub(super) meter: usize,
    pub(super) ms: Millis,
    pub(super) need: Estimate,
}

pub(super) struct MeterLimits {
    pub(super) slots: Option<u32>,
    pub(super) requests: Option<u32>,
    pub(super) requests_a_day: Option<u32>,
    pub(super) tokens_a_day: Option<u64>,
    pub(super) input: Option<u64>,
    pub(super) output: Option<u64>,
}

/// The problem. Nodes outside of it (final, or fitting nowhere) have no option.
pub(super) struct Model {
    pub(super) options: Vec<Vec<Place>>,
    pub(super) dependents: Vec<Vec<u32>>,
    pub(super) dependencies: Vec<Vec<u32>>,
    pub(super) meters: Vec<MeterLimits>,
    /// Longest path after each node, on the fastest pools.
    pub(super) tail: Vec<Millis>,
}

impl Model {
    /// `surplus(node, at)`: what the `at`-th pool of its class costs the whole more than its best;
    /// options come in this order.
    pub(super) fn new(
        scheduler: &Scheduler,
        done: &[bool],
        surplus: impl Fn(usize, usize) -> f64,
    ) -> Self {
        let n = scheduler.specs.len();
        let inside = |i: usize| done[i] && scheduler.nodes[i].state != NodeState::Done;
        let mut options = Vec::with_capacity(n);
        let mut dependents = vec![Vec::new(); n];
        let mut dependencies = vec![Vec::new(); n];
        for (node, ix) in (0u32..).enumerate().take(n) {
            let class = &scheduler.classes[scheduler.nodes[node].class];
            let list = class.eligible.iter().filter(|_| inside(node)).map(|&pool| Place {
                pool,
                meter: scheduler.meter_of[pool].0,
                ms: scheduler.expected(node, pool),
                need: estimate(&scheduler.specs[node], &scheduler.pools[pool].pool),
            });
            let mut list: Vec<(f64, Place)> =
                list.enumerate().map(|(at, place)| (surplus(node, at), place)).collect();
            list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.ms.cmp(&b.1.ms)));
            options.push(list.into_iter().map(|(_, place)| place).collect::<Vec<Place>>());
            for edge in &scheduler.graph.dependents[node] {
                if inside(node) && inside(edge.to as usize) {
                    dependents[node].push(edge.to);
                    dependencies[edge.to as usize].push(ix);
                }
            }
        }
        let meters = (0..scheduler.meters.len())
            .map(|m| {
                let limits = scheduler.meters.limits(MeterIx(m));
                MeterLimits {
                    slots: limits.concurrent,
                    requests: limits.requests_per_minute,
                    requests_a_day: limits.requests_per_day,
                    tokens_a_day: limits.tokens_per_day,
                    input: limits.input_tokens_per_minute,
                    output: limits.output_tokens_per_minute,
                }
            })
            .collect();
        let mut tail = vec![0; n];
        for &ix in scheduler.graph.order.iter().rev() {
            let node = ix as usize;
            tail[node] = dependents[node]
                .iter()
                .map(|&to: &u32| {
                    let fastest = options[to as usize].iter().map(|o| o.ms).min().unwrap_or(0);
                    tail[to as usize] + fastest
                })
                .max()
                .unwrap_or(0);
        }
        Self { options, dependents, dependencies, meters, tail }
    }
}
