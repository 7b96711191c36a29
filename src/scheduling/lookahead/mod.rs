//! Looks ahead on expected times before the first start, when the dial asks for speed.
//!
//! The pass of [`super::pass`] gives a first schedule; a bounded, seeded local search on a flat copy
//! of the problem moves nodes between pools and up and down the order. What comes out is a
//! [`Guide`]: a pool and a place in the order for every node. The scheduler follows it while the
//! world behaves as expected, and falls back to the pass when it does not.

mod evaluate;
mod search;

use std::sync::Arc;

use super::bound::{Instance, lower_bound};
use super::scheduler::Scheduler;
use super::simulate::{Attempt, World, run};
use super::{Finish, Millis, NodeState};
use crate::model::Outcome;

/// Larger plans are not searched: the pass is close to the bound there, and the search is not free.
const NODES_MAX: usize = 2_000;
/// Seed of the search: the same plan gives the same guide.
const SEED: u64 = 0x006f_7665_7268_6175;

/// A pool and a place in the order for every node, by index.
#[derive(Debug, Clone)]
pub(super) struct Guide {
    pub(super) pool: Vec<usize>,
    /// Ranks of the pass, for falling back.
    pub(super) ranks: Vec<Millis>,
}

/// Every attempt succeeds in its expected time.
struct Expected;

impl World for Expected {
    fn attempt(
        &mut self,
        scheduler: &Scheduler,
        node: usize,
        pool: usize,
        _attempt: u32,
        _now: Millis,
    ) -> Attempt {
        Attempt { ms: scheduler.expected(node, pool), finish: Finish::new(Outcome::Success) }
    }
}

/// Sets the guide, where a search is worth its cost.
pub(super) fn tune(scheduler: &mut Scheduler) {
    let n = scheduler.specs.len();
    let budget = scheduler.options.lookahead;
    if !(2..=NODES_MAX).contains(&n) || budget == 0 || !scheduler.pools_are_fresh() {
        return;
    }
    let mut best: Option<search::Plan> = None;
    let ranks: Vec<Millis> = scheduler.nodes.iter().map(|w| w.rank).collect();
    for patience in [0.0, 0.35] {
        let mut copy = scheduler.clone();
        copy.options.deadline = None;
        copy.patience = patience;
        let trace = run(&mut copy, &mut Expected);
        let done: Vec<bool> = copy.nodes.iter().map(|w| w.state == NodeState::Done).collect();
        let plan = search::Plan::of_trace(n, &trace, done);
        if best.as_ref().is_none_or(|b| plan.makespan < b.makespan) {
            best = Some(plan);
            scheduler.patience = patience;
        }
    }
    let Some(first) = best else { return };
    if first.makespan <= 0 {
        return;
    }
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "milliseconds"
    )]
    let floor = {
        let instance = Instance::of(
            scheduler,
            |node| first.done[node] && scheduler.nodes[node].state != NodeState::Done,
            |node, pool| scheduler.expected(node, pool) as f64,
            |_| None,
        );
        lower_bound(&instance, first.makespan as f64) as Millis
    };
    let model = evaluate::Model::new(scheduler, &first.done);
    let Some(found) = search::improve(&model, &first, floor, budget, SEED) else { return };
    let guide = Guide { pool: found.pool, ranks };
    scheduler.follow(Arc::new(guide), &found.order);
}
