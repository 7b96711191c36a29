//! The first act of every cycle: make the ledger agree with what git and the forge really show.
//! Claims of dead owners end, merged and closed pull requests are followed, and effects whose
//! confirmation was lost are found again.

use super::context::Cycle;
use super::{CycleError, holder, names};
use crate::forge::{Alive, Forge, State};
use crate::ledger::{Burn, Claim, EventKind, Holder, Landing, Run};
use crate::model::{GrantId, NodeId, Outcome, Usage};

/// Ends the claims of owners that are dead, or whose lease is over and that can't be asked. The
/// claims of `spared` stay: their results are being taken in.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn release_dead_claims(
    journal: &super::Journal,
    forge: &dyn Forge,
    now: jiff::Timestamp,
    spared: Option<&GrantId>,
) -> Result<usize, CycleError> {
    let claims: Vec<(NodeId, Claim)> = {
        let run = journal.state();
        let held = run.nodes.iter().filter_map(|(id, n)| Some((id.clone(), n.claim.clone()?)));
        held.filter(|(_, claim)| {
            spared.is_none() || run.grant_of(&claim.owner).map(|(id, _)| id) != spared
        })
        .collect()
    };
    let mut events = Vec::new();
    let mut asked: Vec<(Holder, Alive)> = Vec::new();
    for (node, claim) in claims {
        // One owner may hold many nodes, and is asked for once.
        let alive = match asked.iter().find(|(holder, _)| *holder == claim.holder) {
            Some((_, alive)) => *alive,
            None => holder::alive(&claim.holder, forge).await,
        };
        asked.push((claim.holder.clone(), alive));
        let why = match alive {
            Alive::Yes => continue,
            Alive::No => "its owner is dead",
            Alive::Unknown if claim.lease_until < now => "its lease is over",
            Alive::Unknown => continue,
        };
        tracing::info!(%node, attempt = %claim.attempt, "claim released: {why}");
        events.push(end_of_dead_claim(&journal.state(), &node, &claim, why));
    }
    let released = events.len();
    if released > 0 {
        journal.write(events).await?;
    }
    Ok(released)
}

/// How often in a row a node is handed out and never heard of again before that counts against it:
/// it may be the node that ends its jobs.
const UNHEARD_MAX: u32 = 5;

/// A claim that never started work is just given back; started work counts against the
/// infrastructure budget, so that a node which kills its process cannot do so for ever.
pub(super) fn end_of_dead_claim(run: &Run, node: &NodeId, claim: &Claim, why: &str) -> EventKind {
    let unheard = run.nodes.get(node).map_or(0, |n| n.unheard);
    let granted = run.grant_of(&claim.owner).filter(|_| unheard + 1 >= UNHEARD_MAX);
    let pool = claim.started.as_ref().or(granted.map(|(_, granted)| &granted.pool));
    match pool {
        None => EventKind::Released {
            node: node.clone(),
            owner: claim.owner.clone(),
            reason: why.to_owned(),
        },
        Some(pool) => EventKind::AttemptEnded {
            node: node.clone(),
            attempt: claim.attempt,
            owner: claim.owner.clone(),
            pool: pool.clone(),
            outcome: Outcome::Transient,
            burn: Burn::Infrastructure,
            detail: format!("The attempt was cut off: {why}."),
            usage: Usage::default(),
            evidence: None,
            quarantine: None,
            conflicts_with: Vec::new(),
        },
    }
}

/// Reads what became of our pull requests, and books what the ledger does not know yet.
///
/// # Errors
/// When the forge or the ledger fails.
pub(super) async fn follow_pull_requests(cycle: &Cycle) -> Result<(), CycleError> {
    if !has_open_business(&cycle.journal.state()) {
        return Ok(());
    }
    let prefix = names::run_prefix(&cycle.config.pull_requests.branch_prefix, cycle.run_id());
    let found = cycle.forge.pull_requests(&prefix).await?;
    let mut events = Vec::new();
    {
        let run = cycle.journal.state();
        for pr in &found {
            let Some(node) = pr
                .head
                .strip_prefix(&prefix)
                .and_then(|id| NodeId::new(id).ok())
                .filter(|id| cycle.plan.node(id).is_some())
            else {
                continue;
            };
            let known = run.nodes.get(&node).and_then(|n| n.pr.as_ref());
            // A closed one of other work than this was closed before a retry: it is no answer to
            // what is accepted now.
            let of_this_work = match run.nodes.get(&node).map(|n| &n.landing) {
                Some(Landing::Accepted { receipt, .. }) => {
                    pr.state != State::Closed || pr.head_commit == receipt.commit
                }
                _ => false,
            };
            if known.is_none() && of_this_work {
                events.push(EventKind::PrOpened {
                    node: node.clone(),
                    number: pr.number,
                    url: pr.url.clone(),
                    branch: pr.head.clone(),
                    base: pr.base.clone(),
                });
            } else if known.is_none_or(|k| k.number != pr.number || k.end.is_some()) {
                continue;
            }
            match pr.state {
                State::Open => {}
                State::Merged => events.push(EventKind::PrMerged {
                    node,
                    number: pr.number,
                    commit: pr.merge_commit.clone().unwrap_or_else(|| pr.head_commit.clone()),
                }),
                State::Closed => events.push(EventKind::PrClosed { node, number: pr.number }),
            }
        }
    }
    if !events.is_empty() {
        cycle.journal.write(events).await?;
    }
    Ok(())
}

/// Whether anything of the run can be on the forge without an end in the ledger.
fn has_open_business(run: &Run) -> bool {
    run.nodes.values().any(|n| {
        matches!(n.landing, Landing::Accepted { .. })
            && n.pr.as_ref().is_none_or(|pr| pr.end.is_none())
    })
}
