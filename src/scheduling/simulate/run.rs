//! The loop: ask, start, wait for the next end, report it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::scheduler::Scheduler;
use super::super::{Decision, Finish, Millis, NodeWall};
use crate::model::Outcome;

/// Attempts of one node after which it is left undone: a world that never answers must end too.
const ATTEMPTS_MAX: u32 = 1_000;

/// What one attempt turns out to be.
pub(in super::super) struct Attempt {
    pub(in super::super) ms: Millis,
    pub(in super::super) finish: Finish,
}

/// Decides what happens to an attempt.
pub(in super::super) trait World {
    fn attempt(
        &mut self,
        scheduler: &Scheduler,
        node: usize,
        pool: usize,
        attempt: u32,
        now: Millis,
    ) -> Attempt;
}

/// One attempt as it happened, by index.
#[derive(Debug, Clone)]
pub(in super::super) struct Entry {
    pub(in super::super) node: usize,
    pub(in super::super) pool: usize,
    pub(in super::super) attempt: u32,
    pub(in super::super) start: Millis,
    pub(in super::super) end: Millis,
    pub(in super::super) outcome: Outcome,
}

/// Everything that happened.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Trace {
    pub(in super::super) entries: Vec<Entry>,
    /// Time, end where the run went on, and the waiting nodes.
    pub(in super::super) pauses: Vec<(Millis, Option<Millis>, Vec<NodeWall>)>,
    /// Nodes that were left undone because nothing ever answered them, as they stood then.
    pub(in super::super) given_up: Vec<NodeWall>,
    /// From the beginning to the last end.
    pub(in super::super) makespan: Millis,
}

impl Trace {
    /// Nothing goes on from here: what was left undone belongs to the last pause.
    fn end(&mut self, now: Millis) {
        if self.given_up.is_empty() {
            return;
        }
        if self.pauses.last().is_none_or(|(_, until, _)| until.is_some()) {
            self.pauses.push((now, None, Vec::new()));
        }
        if let Some((_, _, walls)) = self.pauses.last_mut() {
            walls.append(&mut self.given_up);
        }
    }
}

/// Runs to the end, from the scheduler's own beginning.
pub(in super::super) fn run(scheduler: &mut Scheduler, world: &mut dyn World) -> Trace {
    let begin = scheduler.options.start;
    let mut now = begin;
    let mut trace = Trace::default();
    let mut attempts = vec![0u32; scheduler.specs.len()];
    let mut ends: BinaryHeap<Reverse<(Millis, usize)>> = BinaryHeap::new();
    let mut finishes: Vec<Option<Finish>> = Vec::new();
    loop {
        match scheduler.next(now) {
            Decision::Start { node, pool, .. } => {
                let (Some(n), Some(p)) = (scheduler.node_ix(&node), scheduler.pool_ix(&pool))
                else {
                    break;
                };
                let n = n as usize;
                attempts[n] += 1;
                let attempt = world.attempt(scheduler, n, p, attempts[n], now);
                let end = now + attempt.ms.max(0);
                ends.push(Reverse((end, trace.entries.len())));
                trace.entries.push(Entry {
                    node: n,
                    pool: p,
                    attempt: attempts[n],
                    start: now,
                    end,
                    outcome: attempt.finish.outcome,
                });
                finishes.push(Some(attempt.finish));
                continue;
            }
            Decision::Wait { until } => {
                let end = ends.peek().map(|e| e.0.0);
                if end.is_none() {
                    trace.pauses.push((now, until, scheduler.walls(now)));
                }
                match (end, until) {
                    (Some(a), Some(b)) => now = a.min(b),
                    (Some(a), None) => now = a,
                    (None, Some(b)) => now = b,
                    (None, None) => break,
                }
            }
            Decision::Wall(walls) => {
                trace.pauses.push((now, None, walls));
                break;
            }
            Decision::Done => break,
        }
        while let Some(&Reverse((end, at))) = ends.peek() {
            if end > now {
                break;
            }
            ends.pop();
            let (node, outcome) = (trace.entries[at].node, trace.entries[at].outcome);
            let id = scheduler.specs[node].id.clone();
            trace.makespan = trace.makespan.max(end - begin);
            if let Some(finish) = finishes[at].take() {
                scheduler.finished(&id, &finish, end);
            }
            if outcome == Outcome::Success {
                scheduler.landed(&id);
            } else if attempts[node] >= ATTEMPTS_MAX {
                let wall = scheduler.wall_of(node, end);
                trace.given_up.push(wall);
                scheduler.take_out(&id, false);
            }
        }
    }
    trace.end(now);
    trace
}
