//! What a simulation says.

use std::collections::BTreeMap;

use serde::Serialize;

use super::super::bound::{Instance, critical_path, lower_bound};
use super::super::scheduler::Scheduler;
use super::super::select::{cost, estimate};
use super::super::wall::NodeWall;
use super::super::{Millis, NodeState};
use super::run::Trace;
use super::world::Model;
use crate::ledger::PauseCause;
use crate::model::{NodeId, Outcome, PoolId};

/// One attempt; times in seconds from the start.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TimelineEntry {
    /// The node.
    pub node: NodeId,
    /// Where it ran.
    pub pool: PoolId,
    /// Counted from 1.
    pub attempt: u32,
    /// When it started.
    pub start_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// How it ended.
    pub outcome: Outcome,
}

/// A node of a pause.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PausedNodeRecord {
    /// The node.
    pub node: NodeId,
    /// Why it waits, with the figures.
    pub reason: String,
    /// When it may go on.
    pub not_before_s: Option<f64>,
}

/// Nothing ran: since when, until when, which nodes, one record per cause.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PauseRecord {
    /// Why.
    pub cause: PauseCause,
    /// Since when.
    pub at_s: f64,
    /// When the run went on; `null` = not within the simulation.
    pub until_s: Option<f64>,
    /// The nodes with this cause.
    pub nodes: Vec<PausedNodeRecord>,
}

/// What `overhaul simulate --json` prints. Times are seconds from the start, exact to a millisecond.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
#[schemars(title = "overhaul simulate --json")]
pub struct Simulation {
    /// End of the last attempt.
    pub makespan_s: f64,
    /// No schedule of the nodes that were done ends earlier.
    pub lower_bound_s: f64,
    /// Longest path of dependencies on the fastest pools.
    pub critical_path_s: f64,
    /// US dollars of the attempts on pools that declare a price.
    pub cost: f64,
    /// Attempts that were charged on pools that declare none: they are not in `cost`.
    pub unpriced: usize,
    /// Nodes by final state: `done`, `failed`, `blocked`, `unfinished`.
    pub nodes: BTreeMap<&'static str, usize>,
    /// Every attempt, by start.
    pub timeline: Vec<TimelineEntry>,
    /// Every time nothing ran, and what fits nowhere.
    pub pauses: Vec<PauseRecord>,
    /// Share of the slots of its account that each pool used over the makespan; where no concurrency
    /// is declared, of the most that the pool used at once.
    pub utilisation: BTreeMap<PoolId, f64>,
}

/// JSON Schema of the prediction.
#[must_use]
pub fn prediction_schema() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .for_serialize()
        .into_generator()
        .into_root_schema_for::<Simulation>()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds of a month fit 53 bits")]
fn seconds(ms: Millis) -> f64 {
    ms as f64 / 1_000.0
}

/// `start` is the scheduler before its first decision, `end` after its last.
pub(super) fn report(
    start: &Scheduler,
    end: &Scheduler,
    world: &Model,
    trace: &Trace,
) -> Simulation {
    let done: Vec<bool> = end.nodes.iter().map(|w| w.state == NodeState::Done).collect();
    let mut ran_on = vec![None; done.len()];
    let (mut spent, mut unpriced) = (0.0, 0);
    for entry in &trace.entries {
        if entry.outcome == Outcome::Success {
            ran_on[entry.node] = Some(entry.pool);
        }
        if entry.outcome == Outcome::Success || entry.end - entry.start > 1_000 {
            let pool = &start.pools[entry.pool];
            let need = estimate(&start.specs[entry.node], &pool.pool);
            match cost(pool, need) {
                Some(cost) => spent += cost,
                None => unpriced += 1,
            }
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let instance = Instance::of(
        start,
        |node| done[node] && ran_on[node].is_some(),
        |node, pool| world.service(start, node, pool) as f64,
        |node| ran_on[node],
    );
    #[expect(clippy::cast_precision_loss, reason = "milliseconds")]
    let makespan = trace.makespan as f64;
    Simulation {
        makespan_s: makespan / 1_000.0,
        lower_bound_s: lower_bound(&instance, makespan) / 1_000.0,
        critical_path_s: critical_path(&instance) / 1_000.0,
        cost: (spent * 1.0e9).round() / 1.0e9,
        unpriced,
        nodes: super::counts(end),
        timeline: trace
            .entries
            .iter()
            .map(|e| TimelineEntry {
                node: start.specs[e.node].id.clone(),
                pool: start.pools[e.pool].pool.id.clone(),
                attempt: e.attempt,
                start_s: seconds(e.start),
                end_s: seconds(e.end),
                outcome: e.outcome,
            })
            .collect(),
        pauses: behind(end, pauses(trace)),
        utilisation: utilisation(start, trace),
    }
}

fn pauses(trace: &Trace) -> Vec<PauseRecord> {
    let mut out = Vec::new();
    for (at, until, walls) in &trace.pauses {
        let mut by_cause: BTreeMap<PauseCause, Vec<&NodeWall>> = BTreeMap::new();
        for wall in walls {
            by_cause.entry(wall.cause).or_default().push(wall);
        }
        for (cause, walls) in by_cause {
            // What fits nowhere is said once, at the end.
            if until.is_some()
                && matches!(cause, PauseCause::NoCapablePool | PauseCause::NoUsablePool)
            {
                continue;
            }
            out.push(PauseRecord {
                cause,
                at_s: seconds(*at),
                until_s: until.map(seconds),
                nodes: walls
                    .into_iter()
                    .map(|w| PausedNodeRecord {
                        node: w.node.clone(),
                        reason: w.reason_with(|at| format!("{} s", seconds(at))),
                        not_before_s: w.not_before.map(seconds),
                    })
                    .collect(),
            });
        }
    }
    out
}

/// With the nodes that wait for one that the last pause names: they have its cause.
fn behind(end: &Scheduler, mut records: Vec<PauseRecord>) -> Vec<PauseRecord> {
    let mut causes: BTreeMap<usize, PauseCause> = BTreeMap::new();
    for record in records.iter().filter(|record| record.until_s.is_none()) {
        let named = record.nodes.iter().filter_map(|paused| end.node_ix(&paused.node));
        causes.extend(named.map(|ix| (ix as usize, record.cause)));
    }
    for node in end.graph.order.iter().map(|ix| *ix as usize) {
        let waits = end.nodes[node].state == NodeState::Waiting;
        let mut before = end.graph.dependencies[node].iter().map(|d| *d as usize);
        let found = before.find_map(|d| causes.get(&d).map(|cause| (d, *cause)));
        let Some((first, cause)) = found.filter(|_| waits) else { continue };
        causes.insert(node, cause);
        let last = records.iter_mut().find(|r| r.until_s.is_none() && r.cause == cause);
        if let Some(record) = last {
            record.nodes.push(PausedNodeRecord {
                node: end.specs[node].id.clone(),
                reason: format!("waits for '{}'", end.specs[first].id),
                not_before_s: None,
            });
        }
    }
    records
}

fn utilisation(start: &Scheduler, trace: &Trace) -> BTreeMap<PoolId, f64> {
    let mut out = BTreeMap::new();
    for (ix, state) in start.pools.iter().enumerate() {
        let mine = || trace.entries.iter().filter(|e| e.pool == ix);
        let mut moves: Vec<(Millis, i64)> =
            mine().flat_map(|e| [(e.start, 1), (e.end, -1)]).collect();
        moves.sort_unstable();
        let (mut now, mut most) = (0i64, 0i64);
        for (_, step) in moves {
            now += step;
            most = most.max(now);
        }
        let slots = state.pool.limits.concurrent.map_or(most, i64::from).max(1);
        let busy: Millis = mine().map(|e| e.end - e.start).sum();
        let room = slots.saturating_mul(trace.makespan).max(1);
        #[expect(clippy::cast_precision_loss, reason = "a fraction")]
        let fraction = busy as f64 / room as f64;
        out.insert(state.pool.id.clone(), (fraction * 1.0e4).round() / 1.0e4);
    }
    out
}
