//! Landing: integrate in memory, record `Accepted`, push the node's branch, open its pull request.
//! In that order, so that a crash after any step is finished by the next cycle and repeated by
//! none: [`finish_pending`] does for every accepted node whatever is still missing.

use super::attempt::Ticket;
use super::bases::{self, Base};
use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, names, view};
use crate::forge::{ForgeError, NewPullRequest};
use crate::git::{Expect, GitError, Oid, PushResult, RefUpdate, Repo, parse_oid};
use crate::ledger::{EventKind, Landing, NodeRecord, Receipt, Run};
use crate::model::NodeId;
use crate::report::{self, marker};
use crate::workspace::{Integrated, Integration, WorkspaceError, integrate};

/// What became of a verified tree.
pub(super) enum Acceptance {
    /// In the ledger.
    Accepted,
    /// The claim is gone; nothing was written.
    Lost,
    /// It does not merge with accepted work; a new attempt builds on those nodes.
    Conflict { detail: String, with: Vec<NodeId> },
}

/// Integrates and records an accepted node.
pub(super) async fn accept(
    cycle: &Cycle,
    ticket: &Ticket,
    receipt: Receipt,
    friction: Vec<EventKind>,
) -> Result<Acceptance, CycleError> {
    let commit = parse_oid(&receipt.commit)?;
    let base = ticket.base.commit();
    let mut tip = cycle.integration.lock().await;
    let (repo, onto, at) = (cycle.repo().clone(), *tip, cycle.clock.now());
    let merged = blocking(move || merge_onto(&repo, onto, base, commit, at)).await?;
    let new_tip = match merged {
        Ok(new_tip) => new_tip,
        Err(paths) => {
            let with = conflicting(cycle, &ticket.node.id, &paths);
            let detail = format!(
                "The change conflicts with accepted work in: {}. The next attempt starts from that \
                 work.",
                paths.join(", ")
            );
            return Ok(Acceptance::Conflict { detail, with });
        }
    };
    let mut events = vec![EventKind::Accepted {
        node: ticket.node.id.clone(),
        attempt: ticket.number,
        owner: ticket.owner.clone(),
        receipt,
    }];
    events.extend(friction);
    let keep = vec![(names::keep_ref(cycle.run_id(), &ticket.node.id), commit.to_string())];
    let written = cycle.journal.write_batch(events, Vec::new(), keep).await?;
    if written.applied.first() != Some(&crate::ledger::Applied::Yes) {
        return Ok(Acceptance::Lost);
    }
    *tip = new_tip;
    Ok(Acceptance::Accepted)
}

/// Merges a node's change onto a tip. `Err` holds the conflicting paths.
pub(super) fn merge_onto(
    repo: &Repo,
    tip: Oid,
    base: Oid,
    commit: Oid,
    at: jiff::Timestamp,
) -> Result<Result<Oid, Vec<String>>, WorkspaceError> {
    let change = Integration {
        onto: tip,
        base,
        tree: repo.tree_of(commit)?,
        message: "Integrate accepted work\n",
        time: at,
    };
    Ok(match integrate(repo, &change)? {
        Integrated::Merged { commit, .. } => Ok(commit),
        Integrated::AlreadyThere => Ok(tip),
        Integrated::Conflict(paths) => {
            Err(paths.into_iter().map(|p| String::from_utf8_lossy(&p).into_owned()).collect())
        }
    })
}

/// The accepted nodes that touched one of these paths.
fn conflicting(cycle: &Cycle, node: &NodeId, paths: &[String]) -> Vec<NodeId> {
    let run = cycle.journal.state();
    let accepted = run.accepted_in_order();
    let touching: Vec<NodeId> = accepted
        .iter()
        .filter(|(id, r)| *id != node && r.touched.iter().any(|t| paths.contains(t)))
        .map(|(id, _)| (*id).clone())
        .collect();
    if touching.is_empty() {
        accepted.iter().filter(|(id, _)| *id != node).map(|(id, _)| (*id).clone()).collect()
    } else {
        touching
    }
}

/// Merges every accepted, unmerged node onto the base head, in the order of acceptance. A node that
/// no longer merges is left out: its pull request has the conflict, and people or a rebuild solve it.
pub(super) fn integrate_all(
    repo: &Repo,
    run: &Run,
    head: Oid,
    at: jiff::Timestamp,
) -> Result<Oid, WorkspaceError> {
    let mut tip = head;
    for (_, receipt) in run.accepted_in_order() {
        let (base, commit) = (parse_oid(&receipt.base)?, parse_oid(&receipt.commit)?);
        if let Ok(merged) = merge_onto(repo, tip, base, commit, at)? {
            tip = merged;
        }
    }
    Ok(tip)
}

/// Pushes branches and opens pull requests of accepted nodes that lack them. Trouble with one node
/// is logged and left for the next cycle; it never touches another node.
///
/// # Errors
/// When the ledger or the machine fails.
pub(super) async fn finish_pending(cycle: &Cycle) -> Result<(), CycleError> {
    let nodes: Vec<NodeId> = {
        let run = cycle.journal.state();
        run.accepted_in_order().into_iter().map(|(id, _)| id.clone()).collect()
    };
    for node in nodes {
        match finish_node(cycle, &node).await {
            Ok(()) => {}
            Err(error @ (CycleError::Journal(_) | CycleError::Internal(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(%node, %error, "landing waits for the next cycle");
            }
        }
    }
    Ok(())
}

/// Does for one accepted node whatever is missing.
///
/// # Errors
/// When a step fails; what was done stays done.
pub(super) async fn finish_node(cycle: &Cycle, node: &NodeId) -> Result<(), CycleError> {
    let record = cycle.journal.state().nodes.get(node).cloned().unwrap_or_default();
    let Landing::Accepted { receipt, .. } = &record.landing else { return Ok(()) };
    if record.pr.as_ref().is_some_and(|pr| pr.end.is_some()) {
        return Ok(());
    }
    let branch =
        names::node_branch(&cycle.config.pull_requests.branch_prefix, cycle.run_id(), node);
    let mut done = Vec::new();
    if record.pushed.as_deref() != Some(receipt.commit.as_str()) {
        push_branch(cycle, &record, &branch, &receipt.commit).await?;
        done.push(EventKind::BranchPushed {
            node: node.clone(),
            branch: branch.clone(),
            commit: receipt.commit.clone(),
        });
    }
    let mut trouble = Ok(());
    if record.pr.is_none() && has_room(cycle) {
        match open_pull_request(cycle, node, &branch, receipt).await {
            Ok(opened) => done.extend(opened),
            Err(error) => trouble = Err(error),
        }
    }
    // Both confirmations in one step: each effect is found again by its name if this is not reached.
    if !done.is_empty() {
        cycle.journal.write(done).await?;
    }
    trouble
}

/// Whether the ceilings of open, hourly and daily pull requests leave room for one more.
fn has_room(cycle: &Cycle) -> bool {
    let run = cycle.journal.state();
    let now = cycle.clock.now();
    let within = |at: jiff::Timestamp, hours: i64| {
        now.duration_since(at) < jiff::SignedDuration::from_hours(hours)
    };
    let prs = || run.nodes.values().filter_map(|n| n.pr.as_ref());
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let noise = &cycle.config.report.noise;
    count(prs().filter(|pr| pr.end.is_none()).count()) < cycle.config.pull_requests.max_open
        && count(prs().filter(|pr| within(pr.opened_at, 1)).count()) < noise.pull_requests_per_hour
        && count(prs().filter(|pr| within(pr.opened_at, 24)).count()) < noise.pull_requests_per_day
}

/// Puts the commit on the remote branch. A branch that somebody else moved is left alone.
async fn push_branch(
    cycle: &Cycle,
    record: &NodeRecord,
    branch: &str,
    commit: &str,
) -> Result<(), CycleError> {
    let name = names::full(branch);
    let new = parse_oid(commit)?;
    let ours = record.pushed.as_deref().map(parse_oid).transpose()?;
    // Where the ledger says that it is; the remote is asked only when that is wrong.
    let expected = ours.map_or(Expect::Absent, Expect::At);
    let update = RefUpdate { name: name.clone(), new: Some(new), expected };
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    if blocking(move || remote.push(&repo, &[update], false)).await? == PushResult::Done {
        return Ok(());
    }
    let (repo, remote, asked) = (cycle.repo().clone(), cycle.remote.clone(), name.clone());
    let there = blocking(move || remote.ls_remote(&repo, &[&asked])).await?.get(&name).copied();
    let expected = match there {
        Some(there) if there == new => return Ok(()),
        None => Expect::Absent,
        Some(there) if ours == Some(there) || is_ours(cycle, there).await? => Expect::At(there),
        Some(there) => {
            return Err(CycleError::Forge(ForgeError::Invalid(format!(
                "branch {branch} is at {there}, which is not ours: a person pushed there; it is left \
                 alone until `adopt` or `reset`"
            ))));
        }
    };
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let update = RefUpdate { name, new: Some(new), expected };
    let pushed = blocking(move || remote.push(&repo, &[update], false)).await?;
    match pushed {
        PushResult::Done => Ok(()),
        PushResult::Rejected(refused) => {
            let reasons: Vec<String> = refused.into_iter().map(|r| r.reason).collect();
            Err(CycleError::Forge(ForgeError::Invalid(format!(
                "the remote refused branch {branch}: {}",
                reasons.join("; ")
            ))))
        }
    }
}

/// Whether a commit on one of our branches is of our making: it carries our run's trailer.
async fn is_ours(cycle: &Cycle, commit: Oid) -> Result<bool, CycleError> {
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let trailer = format!("Overhaul-Run: {}", cycle.run_id());
    blocking(move || {
        if !repo.has(commit) {
            remote.fetch(&repo, &[&commit.to_string()])?;
        }
        let message = repo.message_of(commit)?;
        Ok::<_, GitError>(message.lines().any(|line| line == trailer))
    })
    .await
}

/// Opens a node's pull request; its confirmation is the caller's to write.
async fn open_pull_request(
    cycle: &Cycle,
    node: &NodeId,
    branch: &str,
    receipt: &Receipt,
) -> Result<Option<EventKind>, CycleError> {
    let Some(planned) = cycle.plan.node(node).cloned() else { return Ok(None) };
    let run = cycle.journal.state().clone();
    let (repo, head, at) = (cycle.repo().clone(), cycle.base.commit, cycle.clock.now());
    let (for_base, of_node) = (run.clone(), planned.clone());
    let base = blocking(move || bases::base_for(&repo, &for_base, &of_node, head, at)).await?;
    let prefix = &cycle.config.pull_requests.branch_prefix;
    let (base_branch, stacked_on) = match base {
        Base::Branch(_) => (cycle.base.branch.clone(), Vec::new()),
        Base::Stacked { on, .. } => (names::node_branch(prefix, cycle.run_id(), &on), vec![on]),
        Base::Generated { of, .. } => {
            let generated = names::base_branch(prefix, cycle.run_id(), node);
            push_generated(cycle, &generated, parse_oid(&receipt.base)?).await?;
            (generated, of)
        }
    };
    let view = view::pull_request(cycle, &run, &planned, receipt, &base_branch, &stacked_on);
    let settings = &cycle.config.pull_requests;
    let opened = cycle
        .forge
        .open_pull_request(NewPullRequest {
            title: report::pull_request_title(&view),
            body: report::pull_request_body(&view),
            marker: marker::pull_request(cycle.run_id(), node),
            head: branch.to_owned(),
            head_commit: receipt.commit.clone(),
            base: base_branch.clone(),
            draft: settings.draft,
            labels: settings.labels.clone(),
            reviewers: settings.reviewers.clone(),
        })
        .await?;
    Ok(Some(EventKind::PrOpened {
        node: node.clone(),
        number: opened.number,
        url: opened.url,
        branch: branch.to_owned(),
        base: base_branch,
    }))
}

/// Generated base branches are ours alone and may be written whatever they are.
async fn push_generated(cycle: &Cycle, branch: &str, commit: Oid) -> Result<(), CycleError> {
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let update = RefUpdate { name: names::full(branch), new: Some(commit), expected: Expect::Any };
    blocking(move || remote.push(&repo, &[update], false)).await?;
    Ok(())
}
