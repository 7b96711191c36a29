//! One coordinator splits the frontier between this process and the host, by the one rule.

use super::{Decision, Finish, Millis, Scheduler};
use crate::model::{NodeId, Outcome, PoolId};

/// Who gets which node. A node that no pool takes is in neither list; an empty share is just empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// Driven here, now.
    pub in_process: Vec<NodeId>,
    /// Granted to the host, as a matrix.
    pub host: Vec<NodeId>,
}

/// Splits what is ready at `start`. A scheduler over the pools of both sides is run ahead, every
/// attempt taking what is expected of it: a node belongs to the side on which it starts. Nothing
/// lands on the way, so that only what is ready now is split.
#[must_use]
pub fn partition(
    mut scheduler: Scheduler,
    is_host: impl Fn(&PoolId) -> bool,
    start: Millis,
) -> Shares {
    let mut shares = Shares::default();
    let mut now = start;
    loop {
        match scheduler.next(now) {
            Decision::Start { node, pool } if is_host(&pool) => shares.host.push(node),
            Decision::Start { node, .. } => shares.in_process.push(node),
            Decision::Wait { until } => match pass(&mut scheduler, until, now) {
                Some(later) => now = later,
                None => break,
            },
            Decision::Wall(_) | Decision::Done => break,
        }
    }
    shares.in_process.sort();
    shares.host.sort();
    shares
}

/// Lets time pass until the next attempt is expected to end, or until `until`, whichever is first.
fn pass(scheduler: &mut Scheduler, until: Option<Millis>, now: Millis) -> Option<Millis> {
    let first = scheduler.ends.iter().filter_map(|ends| ends.first().copied()).min();
    match first {
        Some((end, ix)) if until.is_none_or(|until| end <= until) => {
            let (node, end) = (scheduler.specs[ix as usize].id.clone(), end.max(now));
            scheduler.finished(&node, &Finish::new(Outcome::Success), end);
            Some(end)
        }
        _ => until.filter(|&until| until > now),
    }
}
