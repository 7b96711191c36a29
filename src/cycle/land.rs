//! Landing: integrate in memory, record `Accepted`, push the node's branch, open its pull request.
//! In that order, so that a crash after any step is finished by the next cycle and repeated by
//! none: [`finish_pending`] does for every accepted node whatever is still missing.

use std::collections::{BTreeMap, BTreeSet};

use super::attempt::Ticket;
use super::bases::{self, Base};
use super::context::Cycle;
use super::error::blocking;
use super::together::{self, Clash};
use super::{CycleError, names, single, view};
use crate::forge::{ForgeError, NewPullRequest, PullRequestPatch, State};
use crate::git::{Expect, Oid, PushResult, RefUpdate, Repo, parse_oid};
use crate::ledger::{EventKind, Landing, NodeRecord, PrRecord, Receipt, Run};
use crate::model::{Node, NodeId};
use crate::report::{self, marker};
use crate::workspace::{Integrated, Integration, WorkspaceError, integrate};

/// Branches in one push at most, so that its command line stays far below the system's limit.
const PUSHED_TOGETHER: usize = 100;

/// What became of a verified tree.
pub(super) enum Acceptance {
    /// In the ledger.
    Accepted,
    /// The claim is gone; nothing was written.
    Lost,
    /// It does not go with accepted work; a new attempt builds on those nodes.
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
    let clash = together::clash(cycle, &ticket.node.id, &receipt, *tip, new_tip).await?;
    if let Some(Clash { detail, with }) = clash {
        return Ok(Acceptance::Conflict { detail, with });
    }
    let blobs = vec![names::receipt_blob(&ticket.node.id, &receipt)?];
    let mut events = vec![EventKind::Accepted {
        node: ticket.node.id.clone(),
        attempt: ticket.number,
        owner: ticket.owner.clone(),
        receipt,
    }];
    events.extend(friction);
    let keep = vec![(names::keep_ref(cycle.run_id(), &ticket.node.id), commit.to_string())];
    let written = cycle.journal.write_batch(events, blobs, keep).await?;
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

/// The accepted nodes that touched one of these paths. What builds on the node itself follows it
/// later, and is no ground for it.
fn conflicting(cycle: &Cycle, node: &NodeId, paths: &[String]) -> Vec<NodeId> {
    let run = cycle.journal.state();
    let above = bases::built_on(&cycle.plan, node);
    let accepted: Vec<_> = run
        .accepted_in_order()
        .into_iter()
        .filter(|(id, _)| *id != node && !above.contains(*id))
        .collect();
    let touching: Vec<NodeId> = accepted
        .iter()
        .filter(|(_, r)| r.touched.iter().any(|t| paths.contains(t)))
        .map(|(id, _)| (*id).clone())
        .collect();
    if touching.is_empty() {
        accepted.into_iter().map(|(id, _)| id.clone()).collect()
    } else {
        touching
    }
}

/// Merges every accepted, unmerged node onto the base head, in the order of acceptance. A node that
/// no longer merges is left out, because its pull request has the conflict; so are the ones in
/// `without`, which wait for what they build on.
pub(super) fn integrate_all(
    repo: &Repo,
    run: &Run,
    without: &BTreeSet<NodeId>,
    head: Oid,
    at: jiff::Timestamp,
) -> Result<Oid, WorkspaceError> {
    let mut tip = head;
    for (node, receipt) in run.accepted_in_order() {
        let landed = run.nodes.get(node).and_then(|n| n.pr.as_ref()).is_some_and(PrRecord::is_over);
        if landed || without.contains(node) {
            continue;
        }
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
    if single::is_on(cycle) {
        return match single::finish(cycle).await {
            Err(error @ (CycleError::Journal(_) | CycleError::Internal(_))) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "landing waits for the next cycle");
                Ok(())
            }
            Ok(()) => Ok(()),
        };
    }
    let nodes: Vec<NodeId> = {
        let run = cycle.journal.state();
        let needless = run
            .nodes
            .iter()
            .filter(|(_, n)| matches!(n.landing, Landing::Satisfied { .. }) && n.pr.is_some());
        let accepted = run.accepted_in_order().into_iter().map(|(id, _)| id);
        accepted.chain(needless.map(|(id, _)| id)).cloned().collect()
    };
    finish_nodes(cycle, &nodes).await
}

/// Does for accepted nodes whatever is missing, in this order: a stacked pull request finds its base
/// branch there. Trouble with one node is logged and left for the next cycle.
///
/// # Errors
/// When the ledger or the machine fails.
pub(super) async fn finish_nodes(cycle: &Cycle, nodes: &[NodeId]) -> Result<(), CycleError> {
    push_together(cycle, nodes).await?;
    for node in nodes {
        match finish_node(cycle, node).await {
            Ok(()) => {}
            Err(error @ (CycleError::Journal(_) | CycleError::Internal(_))) => return Err(error),
            Err(error) => tracing::warn!(%node, %error, "landing waits for the next cycle"),
        }
    }
    Ok(())
}

/// A branch that is not yet where its node's work is.
struct Unpushed {
    branch: String,
    commit: Oid,
    /// Where it should be now.
    expected: Expect,
}

impl Unpushed {
    /// What of this node has to be pushed; nothing to a branch that a person pushed to.
    fn of(cycle: &Cycle, node: &NodeId) -> Result<Option<Self>, CycleError> {
        let record = cycle.journal.state().nodes.get(node).cloned().unwrap_or_default();
        let Landing::Accepted { receipt, .. } = &record.landing else { return Ok(None) };
        if record.foreign_head().is_some()
            || record.pushed.as_deref() == Some(receipt.commit.as_str())
            || record.pr.as_ref().is_some_and(PrRecord::is_over)
            || is_unsettled(cycle, node)
        {
            return Ok(None);
        }
        let prefix = &cycle.config.pull_requests.branch_prefix;
        Ok(Some(Self {
            branch: names::node_branch(prefix, cycle.run_id(), node),
            commit: parse_oid(&receipt.commit)?,
            expected: expected(&record)?,
        }))
    }

    fn confirmed(&self, node: &NodeId) -> EventKind {
        let (branch, commit) = (self.branch.clone(), self.commit.to_string());
        EventKind::BranchPushed { node: node.clone(), branch, commit }
    }
}

/// Where a node's branch is as far as we know.
pub(super) fn expected(record: &NodeRecord) -> Result<Expect, CycleError> {
    let head = record.head.as_ref().map(|head| parse_oid(&head.commit)).transpose()?;
    Ok(head.map_or(Expect::Absent, Expect::At))
}

/// Pushes the branches of several nodes at once. What is refused here, [`finish_node`] looks at on
/// its own.
async fn push_together(cycle: &Cycle, nodes: &[NodeId]) -> Result<(), CycleError> {
    let mut all = Vec::new();
    for node in nodes {
        all.extend(Unpushed::of(cycle, node)?.map(|unpushed| (node, unpushed)));
    }
    if single::is_on(cycle) || all.len() < 2 {
        return Ok(());
    }
    for some in all.chunks(PUSHED_TOGETHER) {
        let updates: Vec<RefUpdate> = some
            .iter()
            .map(|(_, it)| RefUpdate {
                name: names::full(&it.branch),
                new: Some(it.commit),
                expected: it.expected,
            })
            .collect();
        let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
        let refused = match blocking(move || remote.push(&repo, &updates, false)).await {
            Ok(PushResult::Done) => Vec::new(),
            Ok(PushResult::Rejected(refused)) => refused,
            Err(error) => {
                tracing::debug!(%error, "the branches are pushed one by one");
                return Ok(());
            }
        };
        let pushed = some
            .iter()
            .filter(|(_, it)| refused.iter().all(|refused| refused.name != names::full(&it.branch)))
            .map(|(node, it)| it.confirmed(node))
            .collect();
        cycle.journal.confirm(pushed).await?;
    }
    Ok(())
}

/// Does for one accepted node whatever is missing.
///
/// # Errors
/// When a step fails; what was done stays done.
pub(super) async fn finish_node(cycle: &Cycle, node: &NodeId) -> Result<(), CycleError> {
    if single::is_on(cycle) {
        return Ok(());
    }
    let record = cycle.journal.state().nodes.get(node).cloned().unwrap_or_default();
    let pr = match &record.pr {
        Some(pr) if pr.is_over() => return Ok(()),
        pr => pr.as_ref(),
    };
    let receipt = match &record.landing {
        Landing::Accepted { receipt, .. } => receipt,
        Landing::Satisfied { evidence } => return close_needless(cycle, node, pr, evidence).await,
        Landing::None => return Ok(()),
    };
    if is_unsettled(cycle, node) {
        return Ok(());
    }
    let mut done = Vec::new();
    let mut pushed = record.foreign_head().is_none();
    if let Some(it) = Unpushed::of(cycle, node)? {
        done.push(match push_branch(cycle, &it.branch, it.commit, it.expected).await? {
            Pushed::Done => it.confirmed(node),
            Pushed::Foreign(there) => {
                let branch = it.branch;
                tracing::warn!(%node, branch, %there, "a person pushed there: it is left alone");
                pushed = false;
                EventKind::HeadSeen { node: node.clone(), commit: there.to_string() }
            }
        });
    }
    let branch =
        names::node_branch(&cycle.config.pull_requests.branch_prefix, cycle.run_id(), node);
    let shown = match pr {
        None if pushed && has_room(cycle) => open_pull_request(cycle, node, &branch, receipt).await,
        Some(pr) => keep_up(cycle, node, pr, receipt, pushed).await,
        None => Ok(None),
    };
    let trouble = shown.map(|event| done.extend(event));
    // Both confirmations in one step: each effect is found again by its name if this is not reached.
    if !done.is_empty() {
        cycle.journal.confirm(done).await?;
    }
    trouble?;
    auto_merge(cycle, node, pushed).await
}

/// Whether what the node builds on is being done again.
fn is_unsettled(cycle: &Cycle, node: &NodeId) -> bool {
    let again = |record: &NodeRecord| record.landing == Landing::None && record.reopened.is_some();
    if !cycle.journal.state().nodes.values().any(again) {
        return false;
    }
    // Before the ledger is looked at again: two looks at once could wait for a writer between them.
    let states = cycle.states();
    bases::unsettled(&cycle.journal.state(), &cycle.plan, &states).contains(node)
}

/// Turns on auto-merge where it is configured: for what goes to the base branch itself, at the
/// commit that was verified, once for each pull request. It never fails the work.
pub(super) async fn auto_merge(
    cycle: &Cycle,
    node: &NodeId,
    pushed: bool,
) -> Result<(), CycleError> {
    let record = cycle.journal.state().nodes.get(node).cloned().unwrap_or_default();
    let (Some(pr), Landing::Accepted { receipt, .. }) = (&record.pr, &record.landing) else {
        return Ok(());
    };
    let what = names::auto_merge(pr.number);
    let wanted = cycle.config.pull_requests.auto_merge && pushed && pr.base == cycle.base.branch;
    if !wanted || pr.is_over() || cycle.journal.state().shown.contains_key(&what) {
        return Ok(());
    }
    let head = record.pushed.as_ref().unwrap_or(&receipt.commit);
    let digest = match cycle.forge.enable_auto_merge(pr.number, head).await {
        Ok(()) => "on".to_owned(),
        Err(ForgeError::Unavailable(_) | ForgeError::Limited { .. }) => return Ok(()),
        Err(error) => {
            tracing::warn!(%node, %error, "auto-merge was not turned on");
            format!("off: {error}")
        }
    };
    let id = pr.number.to_string();
    cycle.journal.write(vec![EventKind::Shown { what, id, digest }]).await?;
    Ok(())
}

/// Brings an open pull request up to date with its node's work: text, and the branch that it goes
/// to. Where a person pushed, only the latter.
async fn keep_up(
    cycle: &Cycle,
    node: &NodeId,
    pr: &PrRecord,
    receipt: &Receipt,
    pushed: bool,
) -> Result<Option<EventKind>, CycleError> {
    let Some(planned) = cycle.plan.node(node).cloned() else { return Ok(None) };
    let stale = pushed && pr.commit != receipt.commit;
    let run = cycle.journal.state().clone();
    let target = target(cycle, &run, &planned).await?;
    if !stale && pr.base == target.base {
        return Ok(None);
    }
    if pushed {
        push_generated(cycle, &target, receipt).await?;
    }
    let Target { base, on, .. } = target;
    let mut patch = PullRequestPatch {
        base: (pr.base != base).then(|| base.clone()),
        ..PullRequestPatch::default()
    };
    if stale {
        let view = view::pull_request(cycle, &run, &planned, receipt, &base, &on);
        patch.title = Some(report::pull_request_title(&view));
        patch.body = Some(report::pull_request_body(&view));
    }
    cycle.forge.update_pull_request(pr.number, patch).await?;
    let commit = if stale { receipt.commit.clone() } else { pr.commit.clone() };
    let (node, number) = (node.clone(), pr.number);
    Ok(Some(EventKind::PrUpdated { node, number, commit, base }))
}

/// A pull request whose change is on the base branch by other hands is closed, with why.
async fn close_needless(
    cycle: &Cycle,
    node: &NodeId,
    pr: Option<&PrRecord>,
    evidence: &str,
) -> Result<(), CycleError> {
    let Some(pr) = pr else { return Ok(()) };
    let marker = marker::needless(cycle.run_id(), node);
    let text = report::needless_comment(&marker, node, evidence);
    cycle.forge.comment(pr.number, &text, &marker).await?;
    let patch = PullRequestPatch { state: Some(State::Closed), ..PullRequestPatch::default() };
    cycle.forge.update_pull_request(pr.number, patch).await?;
    let closed = EventKind::PrClosed { node: node.clone(), number: pr.number };
    cycle.journal.write(vec![closed]).await?;
    Ok(())
}

/// Pull requests that count against a ceiling.
pub(super) struct Used {
    pub open: u32,
    pub hour: u32,
    pub day: u32,
}

impl Used {
    pub(super) fn of(run: &Run, now: jiff::Timestamp) -> Self {
        let within = |at: jiff::Timestamp, hours: i64| {
            now.duration_since(at) < jiff::SignedDuration::from_hours(hours)
        };
        // One pull request may hold several nodes.
        let prs: BTreeMap<u64, &PrRecord> =
            run.nodes.values().filter_map(|n| n.pr.as_ref()).map(|pr| (pr.number, pr)).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self {
            open: count(prs.values().filter(|pr| !pr.is_over()).count()),
            hour: count(prs.values().filter(|pr| within(pr.opened_at, 1)).count()),
            day: count(prs.values().filter(|pr| within(pr.opened_at, 24)).count()),
        }
    }
}

/// Whether the ceilings of open, hourly and daily pull requests leave room for one more.
pub(super) fn has_room(cycle: &Cycle) -> bool {
    let used = Used::of(&cycle.journal.state(), cycle.clock.now());
    let noise = &cycle.config.report.noise;
    used.open < cycle.config.pull_requests.max_open
        && used.hour < noise.pull_requests_per_hour
        && used.day < noise.pull_requests_per_day
}

/// What became of a push.
pub(super) enum Pushed {
    Done,
    /// The branch is at this commit, which is none of ours.
    Foreign(Oid),
}

/// Puts the commit on the remote branch. A branch that somebody else moved is left alone: every
/// head of ours is in the ledger before it is pushed. `expected` is where it should be; the remote
/// is asked only when that is wrong.
pub(super) async fn push_branch(
    cycle: &Cycle,
    branch: &str,
    new: Oid,
    expected: Expect,
) -> Result<Pushed, CycleError> {
    let name = names::full(branch);
    let update = RefUpdate { name: name.clone(), new: Some(new), expected };
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    if blocking(move || remote.push(&repo, &[update], false)).await? == PushResult::Done {
        return Ok(Pushed::Done);
    }
    let (repo, remote, asked) = (cycle.repo().clone(), cycle.remote.clone(), name.clone());
    let there = blocking(move || remote.ls_remote(&repo, &[&asked])).await?.get(&name).copied();
    let expected = match there {
        Some(there) if there == new => return Ok(Pushed::Done),
        None => Expect::Absent,
        Some(there) if cycle.journal.state().heads.contains(&there.to_string()) => {
            Expect::At(there)
        }
        Some(there) => return Ok(Pushed::Foreign(there)),
    };
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let update = RefUpdate { name, new: Some(new), expected };
    match blocking(move || remote.push(&repo, &[update], false)).await? {
        PushResult::Done => Ok(Pushed::Done),
        PushResult::Rejected(refused) => {
            let reasons: Vec<String> = refused.into_iter().map(|r| r.reason).collect();
            Err(CycleError::Forge(ForgeError::Invalid(format!(
                "the remote refused branch {branch}: {}",
                reasons.join("; ")
            ))))
        }
    }
}

/// Where a node's pull request goes.
struct Target {
    /// The branch.
    base: String,
    /// It is a generated one.
    generated: bool,
    /// The nodes that it is stacked on.
    on: Vec<NodeId>,
}

async fn target(cycle: &Cycle, run: &Run, node: &Node) -> Result<Target, CycleError> {
    let (repo, head) = (cycle.repo().clone(), cycle.base.commit);
    let (for_base, of_node) = (run.clone(), node.clone());
    let base = blocking(move || bases::base_for(&repo, &for_base, &of_node, head)).await?;
    let prefix = &cycle.config.pull_requests.branch_prefix;
    let (name, generated) = match &base {
        Base::Branch(_) => (cycle.base.branch.clone(), false),
        Base::Stacked { on, .. } => (names::node_branch(prefix, cycle.run_id(), on), false),
        Base::Generated { .. } => (names::base_branch(prefix, cycle.run_id(), &node.id), true),
    };
    Ok(Target { base: name, generated, on: base.nodes() })
}

/// A generated branch shows what the node's work was made on. It is in the ledger before it is
/// pushed, as every head of ours is.
async fn push_generated(
    cycle: &Cycle,
    target: &Target,
    receipt: &Receipt,
) -> Result<(), CycleError> {
    if !target.generated {
        return Ok(());
    }
    let (branch, commit) = (target.base.clone(), receipt.base.clone());
    let built = EventKind::BranchBuilt { branch, commit: commit.clone() };
    cycle.journal.write(vec![built]).await?;
    match push_branch(cycle, &target.base, parse_oid(&commit)?, Expect::Absent).await? {
        Pushed::Done => Ok(()),
        Pushed::Foreign(there) => Err(CycleError::Forge(ForgeError::Invalid(format!(
            "branch {} is at {there}, which is not ours: a person pushed there; delete it, and it \
             is made anew",
            target.base
        )))),
    }
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
    let target = target(cycle, &run, &planned).await?;
    push_generated(cycle, &target, receipt).await?;
    let base_branch = target.base;
    let view = view::pull_request(cycle, &run, &planned, receipt, &base_branch, &target.on);
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
