//! What other cycles of the run are at work on, as the ledger shows it: their attempts have a place in
//! the meters that all share.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::context::Cycle;
use super::desk::Desk;
use crate::ledger::{DependsOn, NodeState, Run};
use crate::model::{NodeId, OwnerToken, PoolId};
use crate::scheduling::Scheduler;

/// What was seen of them when the ledger was last looked at.
#[derive(Debug, Default)]
pub(super) struct Others {
    /// The length of the ledger then.
    events: usize,
    /// Their attempts that the core knows of.
    at_work: BTreeMap<NodeId, OwnerToken>,
}

/// An attempt of another cycle.
struct Theirs {
    owner: OwnerToken,
    pool: PoolId,
    since: Timestamp,
}

/// Does another cycle hold a node at present, other than by a grant?
pub(super) fn are_at_work(cycle: &Cycle) -> bool {
    !theirs(&cycle.journal.state(), cycle).is_empty()
}

fn theirs(run: &Run, cycle: &Cycle) -> BTreeMap<NodeId, Theirs> {
    let at_work = run.nodes.iter().filter_map(|(node, record)| {
        let claim = record.claim.as_ref().filter(|claim| claim.holder != cycle.holder)?;
        // Grants have their places already.
        let pool = claim.started.clone().filter(|_| run.grant_of(&claim.owner).is_none())?;
        let since = record.started_at?;
        Some((node.clone(), Theirs { owner: claim.owner.clone(), pool, since }))
    });
    at_work.collect()
}

/// Tells the core what began and what ended elsewhere since the last look. Every append reads the
/// ledger, so that an attempt knows of all that were claimed before it.
pub(super) fn follow(cycle: &Cycle, desk: &Desk) {
    let (events, theirs) = {
        let run = cycle.journal.state();
        if run.events == desk.others().events {
            return;
        }
        (run.events, theirs(&run, cycle))
    };
    let mut known = desk.others();
    known.events = events;
    if known.at_work.is_empty() && theirs.is_empty() {
        return;
    }
    let states = cycle.states();
    desk.change(|core| {
        known.at_work.retain(|node, owner| {
            let goes_on = theirs.get(node).is_some_and(|it| it.owner == *owner);
            if !goes_on {
                ended(core, node, states.get(node).copied(), cycle.depends_on());
            }
            goes_on
        });
        for (node, it) in theirs {
            if !known.at_work.contains_key(&node)
                && core.adopt(&node, &it.pool, it.since.as_millisecond())
            {
                known.at_work.insert(node, it.owner);
            }
        }
    });
}

/// An attempt of another cycle is over; what it used stays in the windows as it was expected.
fn ended(core: &mut Scheduler, node: &NodeId, state: Option<NodeState>, depends_on: DependsOn) {
    match state {
        Some(NodeState::Waiting | NodeState::Ready) => core.cancelled(node),
        Some(NodeState::Accepted | NodeState::InReview) => {
            core.take_out(node, false);
            if depends_on == DependsOn::Accepted {
                core.landed(node);
            }
        }
        Some(NodeState::Landed | NodeState::Satisfied) => {
            core.take_out(node, false);
            core.landed(node);
        }
        // A new claim of somebody is followed by itself.
        Some(NodeState::Claimed | NodeState::Working) => {
            core.take_out(node, false);
        }
        _ => {
            core.take_out(node, true);
        }
    }
}
