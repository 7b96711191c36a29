//! Looks ahead on expected times before the first start, when the dial asks for speed.
//!
//! The pass of [`super::pass`] gives a first schedule; a bounded, seeded local search on a flat copy
//! of the problem moves nodes between pools and up and down the order. What comes out is a
//! [`Guide`]: a pool and a place in the order for every node. The scheduler follows it while the
//! world behaves as expected, and falls back to the pass when it does not.

mod line;
mod model;
mod search;

use std::sync::Arc;

use super::bound::{self, Instance, quick_bound};
use super::scheduler::Scheduler;
use super::simulate::{Attempt, World, run};
use super::{Finish, Millis, NodeState};
use crate::model::Outcome;

/// Larger plans are not searched: the pass is close to the bound there, and the search is not free.
const NODES_MAX: usize = 2_000;
/// Nodes of a larger plan that the ways of the pass are tried on.
const PART: usize = 1_000;
/// Nodes times pools beyond which prices are not tried in the pass.
const PAIRS_MAX: usize = 100_000;
/// What the pass is tried with, beside the plain one: how much longer a node may take by not waiting
/// for a faster pool, and how much later a pool counts as ending for each millisecond that it costs
/// the whole.
const TRIES: [(f64, f64); 7] =
    [(0.35, 0.0), (0.0, 2.0), (0.0, 8.0), (0.0, 32.0), (0.35, 2.0), (0.35, 8.0), (0.35, 32.0)];
/// Seed of the search: the same plan gives the same guide.
const SEED: u64 = 0x006f_7665_7268_6175;

/// Searches one after the other at most.
const ROUNDS: u64 = if cfg!(debug_assertions) { 1 } else { 3 };
/// Up to so many nodes one search finds the best schedule, as far as an exact solver can tell.
const SMALL: usize = 30;
/// A schedule within this part of the bound is not searched for again.
const ROOM: Millis = 25;

/// A pool and a place in the order for every node, by index.
#[derive(Debug, Clone)]
pub(super) struct Guide {
    pub(super) pool: Vec<usize>,
    /// When each node is to start, if all goes as expected.
    pub(super) start: Vec<Millis>,
    /// The nodes of each meter, first to last.
    pub(super) line: Vec<Vec<u32>>,
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
        Attempt { ms: scheduler.declared(node, pool), finish: Finish::new(Outcome::Success) }
    }
}

/// Sets the way of the pass, and the guide where a search is worth its cost.
pub(super) fn tune(scheduler: &mut Scheduler) {
    let n = scheduler.specs.len();
    let budget = scheduler.options.lookahead;
    if n < 2 || budget == 0 || !scheduler.pools_are_fresh() {
        return;
    }
    let ranks: Vec<Millis> = scheduler.nodes.iter().map(|w| w.rank).collect();
    // A large plan shows by its beginning which way suits it.
    let part = (n > NODES_MAX).then(|| beginning(scheduler));
    let trial = part.as_ref().unwrap_or(scheduler);
    let plain = attempt(trial, 0.0);
    if plain.makespan <= 0 {
        return;
    }
    let parts = if part.is_some() { n.div_ceil(PART) } else { 1 };
    let whole = plain.makespan.saturating_mul(Millis::try_from(parts).unwrap_or(1));
    let surplus = Arc::new(surplus(scheduler, whole));
    let mut best = (plain, 0.0, None);
    for (patience, weight) in TRIES {
        if weight > 0.0 && trial.pools.len() * n.min(PART) > PAIRS_MAX {
            continue;
        }
        let mut copy = trial.clone();
        copy.handicap = (weight > 0.0).then(|| (Arc::clone(&surplus), weight));
        let plan = attempt(&copy, patience);
        if plan.makespan < best.0.makespan {
            best = (plan, patience, copy.handicap);
        }
    }
    let first;
    (first, scheduler.patience, scheduler.handicap) = best;
    if n > NODES_MAX {
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
        quick_bound(&instance, first.makespan as f64) as Millis
    };
    let cost = |node: usize, at: usize| surplus[node].get(at).copied().unwrap_or(0.0);
    let model = model::Model::new(scheduler, &first.done, cost);
    let Some(found) = searched(&model, first, floor, budget) else { return };
    let mut line = vec![Vec::new(); scheduler.meters.len()];
    for &node in &found.order {
        if let (Some(meter), Ok(ix)) =
            (scheduler.meter_of.get(found.pool[node]), u32::try_from(node))
        {
            line[meter.0].push(ix);
        }
    }
    let guide = Guide { pool: found.pool, start: found.start, line, ranks };
    scheduler.follow(Arc::new(guide), &found.order);
}

/// The best of a search, and of a few more from where it ended while the bound leaves much room.
fn searched(
    model: &model::Model,
    mut from: search::Plan,
    floor: Millis,
    budget: usize,
) -> Option<search::Found> {
    let mut best = None;
    for round in 0..ROUNDS {
        if let Some(found) = search::improve(model, &from, floor, budget, SEED + round) {
            from = found.plan(from.done);
            best = Some(found);
        }
        if from.makespan <= floor + floor / ROOM || from.done.len() <= SMALL {
            break;
        }
    }
    best
}

/// The first nodes of a plan, dependencies first, with nothing after them.
fn beginning(scheduler: &Scheduler) -> Scheduler {
    let mut part = scheduler.clone();
    let order = Arc::clone(&part.graph);
    for &ix in order.order.iter().skip(PART) {
        let id = part.specs[ix as usize].id.clone();
        part.take_out(&id, false);
    }
    part
}

/// One run of the pass on expected times.
fn attempt(scheduler: &Scheduler, patience: f64) -> search::Plan {
    let mut copy = scheduler.clone();
    copy.options.deadline = None;
    copy.patience = patience;
    let trace = run(&mut copy, &mut Expected);
    let done: Vec<bool> = copy.nodes.iter().map(|w| w.state == NodeState::Done).collect();
    search::Plan::of_trace(&trace, done, scheduler.options.start)
}

/// What each pool of a node's class costs the whole more than the best one for it.
fn surplus(scheduler: &Scheduler, makespan: Millis) -> Vec<Vec<f64>> {
    let n = scheduler.specs.len();
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let instance = Instance::of(
        scheduler,
        |node| scheduler.nodes[node].state != NodeState::Done,
        |node, pool| scheduler.expected(node, pool) as f64,
        |_| None,
    );
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let found = bound::surplus(&instance, makespan as f64);
    let mut out = vec![Vec::new(); n];
    let open = scheduler.graph.order.iter().map(|&ix| ix as usize);
    let open = open.filter(|&node| scheduler.nodes[node].state != NodeState::Done);
    for (node, list) in open.zip(found) {
        out[node] = list;
    }
    out
}
