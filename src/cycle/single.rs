//! `pull-requests.mode: single`: one branch and one pull request for all accepted nodes, one commit
//! each, once nothing is left to be worked on. The tree that it shows is verified as a whole.

use std::sync::Arc;

use super::context::Cycle;
use super::error::blocking;
use super::land::{self, Pushed};
use super::{CycleError, accept, names, open, together, view};
use crate::config::{PullRequestMode, Rebuild};
use crate::forge::{NewPullRequest, PullRequestPatch};
use crate::git::{Merge, Oid, parse_oid};
use crate::ledger::{CheckRecord, EventKind, Landing, NodeRecord, NodeState, PrRecord, Receipt};
use crate::model::{AttemptNumber, Node, NodeId};
use crate::report::{self, marker};
use crate::workspace::{Integrated, Integration, WorkspaceError, integrate};

/// One of the nodes together.
struct Member {
    node: Node,
    record: NodeRecord,
    receipt: Receipt,
    at: jiff::Timestamp,
}

/// How the nodes go together on the base branch.
enum Stack {
    /// Each node's commit, in order.
    Tips(Vec<(NodeId, Oid)>),
    /// This one does not merge, in these paths.
    Conflict(NodeId, Vec<String>),
}

pub(super) fn is_on(cycle: &Cycle) -> bool {
    cycle.config.pull_requests.mode == PullRequestMode::Single
}

/// Brings the branch and its pull request to what is accepted.
///
/// # Errors
/// When git, the forge, the ledger or the machine fails.
pub(super) async fn finish(cycle: &Cycle) -> Result<(), CycleError> {
    use NodeState::{Claimed, Ready, Waiting, Working};
    if cycle.states().values().any(|s| matches!(s, Waiting | Ready | Claimed | Working)) {
        return Ok(());
    }
    let members = Arc::new(members(cycle));
    let Some(first) = members.first() else { return Ok(()) };
    let foreign = members.iter().any(|m| m.record.foreign_head().is_some());
    if foreign || members.iter().any(|m| m.record.asked.is_some()) {
        return Ok(());
    }
    let same = |m: &Member| {
        let pr = m.record.pr.as_ref().map(|pr| pr.number);
        m.record.pushed == first.record.pushed && pr == first.record.pr.as_ref().map(|pr| pr.number)
    };
    let current = first.record.pushed.clone().filter(|_| members.iter().all(same));
    if let (Some(current), Some(_)) = (&current, &first.record.pr)
        && !needs_rebuild(cycle, current).await?
    {
        return land::auto_merge(cycle, &first.node.id, true).await;
    }
    let tips = match stack(cycle, members.clone()).await? {
        Stack::Tips(tips) => tips,
        Stack::Conflict(node, paths) => {
            let why =
                format!("It conflicts with the other accepted work in: {}.", paths.join(", "));
            return again(cycle, node, why).await;
        }
    };
    let Some((_, tip)) = tips.last().cloned() else { return Ok(()) };
    let base = cycle.base.commit;
    if tip == base {
        return Ok(());
    }
    let commands = open::all_verify(&cycle.plan);
    let verified = cycle.verifier.verify(tip, base, &commands, &cycle.cancel).await?;
    if cycle.cancel.is_cancelled() {
        return Ok(());
    }
    if let Some(failed) = together::failure(&verified) {
        let blamed = together::first_red(cycle, base, &tips, &commands).await?;
        let (node, failed) = blamed.unwrap_or((first.node.id.clone(), failed));
        let why = format!("With the accepted work before it, the change fails. {failed}");
        return again(cycle, node, why).await;
    }
    let checks: Vec<CheckRecord> = verified.checks.iter().map(accept::check_record).collect();
    publish(cycle, &members, tip, &checks).await
}

/// Accepted nodes that nobody has merged or rejected, in order.
fn members(cycle: &Cycle) -> Vec<Member> {
    let run = cycle.journal.state();
    let accepted = run.accepted_in_order().into_iter();
    accepted
        .filter_map(|(id, receipt)| {
            let record = run.nodes.get(id)?;
            let Landing::Accepted { at, .. } = &record.landing else { return None };
            let node = cycle.plan.node(id)?.clone();
            let over = record.pr.as_ref().is_some_and(PrRecord::is_over);
            let (record, receipt, at) = (record.clone(), receipt.clone(), *at);
            (!over).then_some(Member { node, record, receipt, at })
        })
        .collect()
}

/// Whether the branch is to be made anew because the base moved.
async fn needs_rebuild(cycle: &Cycle, current: &str) -> Result<bool, CycleError> {
    let policy = cycle.config.pull_requests.rebuild;
    let (repo, tip, head) = (cycle.repo().clone(), parse_oid(current)?, cycle.base.commit);
    blocking(move || {
        if policy == Rebuild::Never || !repo.has(tip) {
            return Ok(false);
        }
        let Some(base) = repo.merge_base(tip, head)? else { return Ok(true) };
        if base == head || policy == Rebuild::Behind {
            return Ok(base != head);
        }
        let (base, ours, theirs) = (repo.tree_of(base)?, repo.tree_of(head)?, repo.tree_of(tip)?);
        Ok::<_, crate::git::GitError>(!matches!(
            repo.merge_trees(base, ours, theirs)?,
            Merge::Clean(_)
        ))
    })
    .await
}

/// One commit a node on the base branch. The same work on the same base gives the same commits.
async fn stack(cycle: &Cycle, members: Arc<Vec<Member>>) -> Result<Stack, CycleError> {
    let messages: Vec<String> = members
        .iter()
        .map(|m| {
            let (attempt, receipt) = (AttemptNumber(m.record.attempts), &m.receipt);
            accept::commit_message(cycle, &m.node, attempt, &receipt.resolved, &receipt.authors)
        })
        .collect();
    let (repo, mut tip) = (cycle.repo().clone(), cycle.base.commit);
    blocking(move || {
        let mut tips = Vec::new();
        for (member, message) in members.iter().zip(&messages) {
            let change = Integration {
                onto: tip,
                base: parse_oid(&member.receipt.base)?,
                tree: parse_oid(&member.receipt.tree)?,
                message,
                time: member.at,
            };
            match integrate(&repo, &change)? {
                Integrated::Merged { commit, .. } => tip = commit,
                Integrated::AlreadyThere => {}
                Integrated::Conflict(paths) => {
                    let paths = paths.iter().map(|p| String::from_utf8_lossy(p).into_owned());
                    return Ok(Stack::Conflict(member.node.id.clone(), paths.collect()));
                }
            }
            tips.push((member.node.id.clone(), tip));
        }
        Ok::<_, WorkspaceError>(Stack::Tips(tips))
    })
    .await
}

/// A node that does not go with the others is done again, as often as the world may fail it.
async fn again(cycle: &Cycle, node: NodeId, reason: String) -> Result<(), CycleError> {
    let times = cycle.journal.state().nodes.get(&node).map_or(0, |n| n.reopenings);
    if times >= cycle.attempt_budget().infrastructure {
        tracing::warn!(%node, reason, "it waits for a person");
        return Ok(());
    }
    cycle.journal.write(vec![EventKind::Reopened { node, reason }]).await?;
    Ok(())
}

/// Pushes the branch and opens the pull request, or brings it up to date.
async fn publish(
    cycle: &Cycle,
    members: &[Member],
    tip: Oid,
    checks: &[CheckRecord],
) -> Result<(), CycleError> {
    let Some(first) = members.first() else { return Ok(()) };
    let settings = &cycle.config.pull_requests;
    let branch = names::work_branch(settings, cycle.run_id(), &first.node.id);
    let commit = tip.to_string();
    let built = EventKind::BranchBuilt { branch: branch.clone(), commit: commit.clone() };
    cycle.journal.write(vec![built]).await?;
    let pushed = land::push_branch(cycle, &branch, tip, land::expected(&first.record)?).await?;
    let each = |event: &dyn Fn(NodeId) -> EventKind| -> Vec<EventKind> {
        members.iter().map(|m| event(m.node.id.clone())).collect()
    };
    if let Pushed::Foreign(there) = pushed {
        tracing::warn!(branch, %there, "a person pushed there: it is left alone");
        let commit = there.to_string();
        let seen = each(&|node| EventKind::HeadSeen { node, commit: commit.clone() });
        cycle.journal.write(seen).await?;
        return Ok(());
    }
    let pushed = each(&|node| {
        let (branch, commit) = (branch.clone(), commit.clone());
        EventKind::BranchPushed { node, branch, commit }
    });
    cycle.journal.write(pushed).await?;
    let run = cycle.journal.state().clone();
    let base = cycle.base.branch.clone();
    let views: Vec<_> = members
        .iter()
        .map(|m| view::pull_request(cycle, &run, &m.node, &m.receipt, &base, &[]))
        .collect();
    let title = report::combined_title(cycle.run_id(), views.len());
    let body = report::combined_body(&views, checks);
    let open = members.iter().find_map(|m| m.record.pr.as_ref());
    let shown = match open {
        Some(pr) => {
            let patch = PullRequestPatch {
                title: Some(title),
                body: Some(body),
                base: (pr.base != base).then(|| base.clone()),
                state: None,
            };
            cycle.forge.update_pull_request(pr.number, patch).await?
        }
        None if !land::has_room(cycle) => return Ok(()),
        None => {
            cycle
                .forge
                .open_pull_request(NewPullRequest {
                    title,
                    body,
                    marker: marker::combined(cycle.run_id()),
                    head: branch.clone(),
                    head_commit: commit.clone(),
                    base: base.clone(),
                    draft: settings.draft,
                    labels: settings.labels.clone(),
                    reviewers: settings.reviewers.clone(),
                })
                .await?
        }
    };
    let events = each(&|node| EventKind::PrOpened {
        node,
        number: shown.number,
        url: shown.url.clone(),
        branch: branch.clone(),
        base: base.clone(),
    });
    cycle.journal.write(events).await?;
    land::auto_merge(cycle, &first.node.id, true).await
}
