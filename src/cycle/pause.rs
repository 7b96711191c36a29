//! Pauses: durable records with each node's own cause, written by one place.

use jiff::Timestamp;

use super::CycleError;
use super::context::Cycle;
use super::drive::Drive;
use super::pools::PoolSet;
use crate::ledger::{EventKind, NodeState, PauseCause, PausedNode, Run};
use crate::scheduling::{timestamp, wall};

/// Records why the run cannot go on, if it cannot. `None` when nothing waits.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn record(
    cycle: &Cycle,
    drive: &Drive,
    pools: &PoolSet,
) -> Result<Option<PauseCause>, CycleError> {
    // What jobs elsewhere are at work on goes on: the run as a whole does not wait.
    if handed_out(&cycle.journal.state()) {
        return Ok(None);
    }
    let (cause, nodes, not_before) = if drive.out_of_time {
        let why = if cycle.clock.now() < cycle.deadline {
            "this job was told to stop"
        } else {
            "the time budget of this job is over"
        };
        let nodes = waiting(cycle, PauseCause::JobDeadline, why);
        (PauseCause::JobDeadline, nodes, None)
    } else if !drive.walls.is_empty() {
        from_walls(drive, pools)
    } else if has_frontier(cycle) && cycle.pools.values().all(|p| p.worker.is_none()) {
        let nodes = waiting(cycle, PauseCause::NoUsablePool, &dropped(pools));
        (PauseCause::NoUsablePool, nodes, None)
    } else {
        return Ok(None);
    };
    // The same pause again writes nothing: a repeated limit is no news.
    let same = cycle
        .journal
        .state()
        .pause
        .as_ref()
        .is_some_and(|p| p.cause == cause && p.nodes == nodes && p.not_before == not_before);
    if !same {
        cycle.journal.write(vec![EventKind::Paused { cause, nodes, not_before, by: None }]).await?;
    }
    Ok(Some(cause))
}

/// Whether any job elsewhere holds a node by a grant.
pub(super) fn handed_out(run: &Run) -> bool {
    run.grants.values().any(|grant| run.outstanding(grant).next().is_some())
}

/// A person goes on at once: what pools wait for is asked again, not waited for. A settled pool
/// stays out.
pub(super) fn lift(run: &Run, by: &str) -> Vec<EventKind> {
    let paused = run.pools.iter().filter(|(_, p)| p.paused.is_some() && p.settled.is_none());
    paused
        .map(|(pool, _)| EventKind::PoolRestored { pool: pool.clone(), by: by.to_owned() })
        .collect()
}

fn from_walls(drive: &Drive, pools: &PoolSet) -> (PauseCause, Vec<PausedNode>, Option<Timestamp>) {
    let (cause, not_before) =
        wall::summary(&drive.walls).unwrap_or((PauseCause::NoUsablePool, None));
    let nodes = drive
        .walls
        .iter()
        .map(|w| PausedNode {
            node: w.node.clone(),
            cause: w.cause,
            reason: if w.cause == PauseCause::NoUsablePool && !pools.dropped.is_empty() {
                format!("{}; {}", w.reason(), dropped(pools))
            } else {
                w.reason()
            },
            not_before: w.not_before.map(timestamp),
        })
        .collect();
    (cause, nodes, not_before.map(timestamp))
}

fn has_frontier(cycle: &Cycle) -> bool {
    cycle.states().values().any(|s| matches!(s, NodeState::Ready | NodeState::Waiting))
}

fn waiting(cycle: &Cycle, cause: PauseCause, reason: &str) -> Vec<PausedNode> {
    cycle
        .states()
        .into_iter()
        .filter(|(_, s)| *s == NodeState::Ready)
        .map(|(node, _)| PausedNode { node, cause, reason: reason.to_owned(), not_before: None })
        .collect()
}

fn dropped(pools: &PoolSet) -> String {
    if pools.dropped.is_empty() {
        return "no pool is declared".to_owned();
    }
    let list: Vec<String> = pools.dropped.iter().map(|(id, why)| format!("{id}: {why}")).collect();
    list.join("; ")
}
