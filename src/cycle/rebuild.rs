//! Accepted work whose base moved: the same change on the new base, by a three-way merge, verified
//! again there. What conflicts goes back to work with the conflict in its prompt. A branch that a
//! person pushed to is left alone.

use std::sync::Arc;

use super::bases::{self, Base};
use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, accept, names, single};
use crate::config::Rebuild;
use crate::git::{Merge, Oid, parse_oid};
use crate::ledger::{EventKind, Landing, NodeRecord, Receipt, Run};
use crate::model::{AttemptNumber, Node, Outcome};
use crate::workspace::WorkspaceError;

/// Rounds over all nodes: what is built on rebuilt work follows it. Plans are in topological order,
/// so one is the rule; conflicts found later may point the other way.
const ROUNDS: usize = 4;

/// What is to be done with a node's work.
enum Step {
    /// It is where it belongs.
    Stay,
    /// It does not fit on the new base, for this reason.
    Again(String),
    /// Nothing of it is left to do on the base branch.
    OnBase,
    /// This tree on the new base.
    Move { tree: Oid, base: Base },
}

/// Rebuilds what needs it. Trouble with one node is logged and left for the next cycle.
///
/// # Errors
/// When the ledger or the machine fails.
pub(super) async fn all(cycle: &Cycle) -> Result<(), CycleError> {
    let policy = cycle.config.pull_requests.rebuild;
    if policy == Rebuild::Never || cycle.journal.state().cancelled.is_some() {
        return Ok(());
    }
    for _ in 0..ROUNDS {
        let mut moved = false;
        let mut run = Arc::new(cycle.journal.state().clone());
        let waiting = bases::unsettled(&run, &cycle.plan, &cycle.states());
        for node in &cycle.plan.nodes {
            let Some(record) = run.nodes.get(&node.id).filter(|r| is_ours(r)) else { continue };
            let Landing::Accepted { receipt, .. } = &record.landing else { continue };
            if waiting.contains(&node.id) || cycle.cancel.is_cancelled() {
                continue;
            }
            let (receipt, again) = (receipt.clone(), record.reopenings);
            match one(cycle, &run, node, &receipt, again).await {
                Ok(false) => {}
                Ok(true) => {
                    moved = true;
                    run = Arc::new(cycle.journal.state().clone());
                }
                Err(error @ (CycleError::Journal(_) | CycleError::Internal(_))) => {
                    return Err(error);
                }
                Err(error) => tracing::warn!(node = %node.id, %error, "it was not rebuilt"),
            }
        }
        if !moved {
            break;
        }
    }
    Ok(())
}

/// Open work on a branch that holds nothing of a person's.
fn is_ours(record: &NodeRecord) -> bool {
    let open = record.pr.as_ref().is_none_or(|pr| pr.end.is_none());
    open && record.foreign_head().is_none() && record.asked.is_none()
}

/// `true` when the ledger has other work of the node now.
async fn one(
    cycle: &Cycle,
    run: &Arc<Run>,
    node: &Node,
    receipt: &Receipt,
    again: u32,
) -> Result<bool, CycleError> {
    let written = match step(cycle, run, node, receipt).await? {
        Step::Stay => return Ok(false),
        // The world's doing, as often as the world may fail an attempt.
        Step::Again(why) if again >= cycle.attempt_budget().infrastructure => {
            tracing::warn!(node = %node.id, why, "it waits for a person");
            return Ok(false);
        }
        Step::Again(reason) => {
            let reopened = EventKind::Reopened { node: node.id.clone(), reason };
            cycle.journal.write(vec![reopened]).await?
        }
        Step::OnBase => {
            let evidence = format!(
                "all that it changes is on {} at {} already",
                cycle.base.branch, cycle.base.commit
            );
            let from = receipt.commit.clone();
            let found = EventKind::FoundOnBase { node: node.id.clone(), from, evidence };
            cycle.journal.write(vec![found]).await?
        }
        Step::Move { tree, base } => match carry(cycle, node, receipt, tree, &base).await? {
            Some(written) => written,
            None => return Ok(false),
        },
    };
    Ok(written.all())
}

/// Looks where the work belongs now.
async fn step(
    cycle: &Cycle,
    run: &Arc<Run>,
    node: &Node,
    receipt: &Receipt,
) -> Result<Step, CycleError> {
    let (repo, run, node) = (cycle.repo().clone(), run.clone(), node.clone());
    let (head, receipt) = (cycle.base.commit, receipt.clone());
    // One branch of all nodes follows its base by itself.
    let behind = cycle.config.pull_requests.rebuild == Rebuild::Behind && !single::is_on(cycle);
    blocking(move || {
        let base = bases::base_for(&repo, &run, &node, head)?;
        let old = parse_oid(&receipt.base)?;
        if base.commit() == old {
            return Ok::<_, WorkspaceError>(Step::Stay);
        }
        let on_branch = matches!(base, Base::Branch(_));
        let stacked = !receipt.on.is_empty() || run.heads.contains(&receipt.base);
        let onto = repo.tree_of(base.commit())?;
        let merged = repo.merge_trees(repo.tree_of(old)?, onto, parse_oid(&receipt.tree)?)?;
        Ok(match merged {
            Merge::Conflict(paths) => {
                let paths: Vec<_> = paths.iter().map(|p| String::from_utf8_lossy(p)).collect();
                Step::Again(format!(
                    "The accepted change no longer merges with its base, which moved. Conflicts \
                     in: {}. Make the change anew on the base as it is now.",
                    paths.join(", ")
                ))
            }
            Merge::Clean(tree) if tree == onto && on_branch => Step::OnBase,
            Merge::Clean(tree) if tree == onto => Step::Again(
                "Nothing is left of the accepted change on what it builds on.".to_owned(),
            ),
            // On the base branch before and after, and it merges: people can merge it as it is.
            Merge::Clean(_) if on_branch && !stacked && !behind => Step::Stay,
            Merge::Clean(tree) => Step::Move { tree, base },
        })
    })
    .await
}

/// The same change on another base, verified there. `None`: nothing was decided.
async fn carry(
    cycle: &Cycle,
    node: &Node,
    old: &Receipt,
    tree: Oid,
    base: &Base,
) -> Result<Option<super::Written>, CycleError> {
    let attempts = cycle.journal.state().nodes.get(&node.id).map_or(1, |n| n.attempts);
    let message =
        accept::commit_message(cycle, node, AttemptNumber(attempts), &old.resolved, &old.authors);
    let (repo, onto, at) = (cycle.repo().clone(), base.commit(), cycle.clock.now());
    let (commit, touched) = blocking(move || {
        let changes = repo.diff(repo.tree_of(onto)?, tree)?;
        let touched: Vec<String> =
            changes.iter().map(|c| String::from_utf8_lossy(&c.path).into_owned()).collect();
        let commit = repo.commit(tree, &[onto], &message, at)?;
        Ok::<_, crate::git::GitError>((commit, touched))
    })
    .await?;
    let change = accept::Change { commit, base: onto, tree, touched: &touched };
    let (checks, friction) = match accept::proven(cycle, node, &old.resolved, &change).await? {
        Ok(proven) => proven,
        Err(refusal) if cycle.cancel.is_cancelled() || refusal.outcome == Outcome::Error => {
            tracing::warn!(node = %node.id, why = refusal.detail, "it could not be verified anew");
            return Ok(None);
        }
        Err(refusal) => {
            let reason = format!(
                "The accepted change was carried over to its base as it is now, and fails there. {}",
                refusal.detail
            );
            let reopened = EventKind::Reopened { node: node.id.clone(), reason };
            return Ok(Some(cycle.journal.write(vec![reopened]).await?));
        }
    };
    tracing::info!(node = %node.id, %commit, onto = %onto, "rebuilt");
    let receipt = Receipt {
        base: onto.to_string(),
        on: base.nodes(),
        commit: commit.to_string(),
        tree: tree.to_string(),
        touched,
        checks,
        ..old.clone()
    };
    let rebuilt = EventKind::Rebuilt {
        node: node.id.clone(),
        from: old.commit.clone(),
        receipt: receipt.clone(),
        reason: format!("its base is {onto} now"),
        adopted_by: None,
    };
    let blobs = vec![names::receipt_blob(&node.id, &receipt)?];
    let keep = vec![(names::keep_ref(cycle.run_id(), &node.id), receipt.commit)];
    let mut events = vec![rebuilt];
    events.extend(friction);
    Ok(Some(cycle.journal.write_led_batch(events, blobs, keep).await?))
}
