//! Close: when every node is final, the integrated tree is verified on its exact commit, and only
//! then the run ends. A red gate re-opens the nodes that it can attribute, at most twice.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::context::Cycle;
use super::error::blocking;
use super::next_step::Status;
use super::pools::PoolSet;
use super::{CycleError, bases, land, names, open, show, together, view};
use crate::forge::PullRequestPatch;
use crate::git::{Expect, GitError, PushResult, RefUpdate};
use crate::ledger::{CheckRecord, EventKind, NodeState, Run};
use crate::model::{CoveragePlace, DropReason, Finding, FindingId, NodeId, Plan};
use crate::report::{self, Remaining};

/// Rounds of the gate; the falling measure of its loop.
const GATE_ROUNDS: u32 = 2;

/// Name of the blob that says what became of every finding.
pub const OUTCOMES_BLOB: &str = "remediation-outcomes.json";

/// Name of the blob that holds the findings that remain, as SARIF.
pub const REMAINING_BLOB: &str = "remaining.sarif";

/// Name of the blob with the HTML report, where the configuration asks for it.
pub const REPORT_BLOB: &str = "report.html";

/// What became of one finding.
#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct FindingOutcome<'a> {
    finding: &'a FindingId,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<&'a str>,
    title: &'a str,
    /// `landed`, `in-review`, `satisfied`, `failed`, `rejected`, `skipped`, `blocked`, `dropped`,
    /// `unresolved` (its node landed without it), or the node's state while the run goes on.
    outcome: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a NodeId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pull_request: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Counts nodes by state, as outputs name them.
#[must_use]
pub fn counts(states: &BTreeMap<NodeId, NodeState>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for state in states.values() {
        *counts.entry(state_word(*state).replace('_', "-")).or_insert(0) += 1;
    }
    counts
}

/// The state's name as written in JSON.
#[must_use]
pub fn state_word(state: NodeState) -> String {
    serde_json::to_value(state).ok().and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Closes the run if everything is final. `true` when it is closed now.
///
/// # Errors
/// When the ledger, git or the machine fails.
pub(super) async fn close_if_final(cycle: &Cycle, set: &PoolSet) -> Result<bool, CycleError> {
    let states = cycle.states();
    if cycle.journal.state().closed.is_some() {
        return Ok(true);
    }
    if !states.values().all(|s| s.is_final()) || states.len() != cycle.plan.nodes.len() {
        return Ok(false);
    }
    let mut counts = counts(&states);
    let mut events = Vec::new();
    match gate(cycle, &states).await? {
        Gate::Nothing => {}
        Gate::Green(checks) => {
            events.push(EventKind::GatePassed { commit: cycle.base.commit.to_string(), checks });
        }
        Gate::Red => {
            counts.insert("gate-red".to_owned(), 1);
        }
        Gate::Again => return Ok(false),
    }
    // Shown before it is so: once the run is closed no cycle looks at it again.
    show::dashboard(cycle, set, Status::Complete).await?;
    let outcomes = outcomes(cycle, &cycle.journal.state(), &states)?;
    let remaining = remaining(cycle, &cycle.journal.state(), &states)?;
    events.push(EventKind::Closed { commit: cycle.base.commit.to_string(), counts });
    let mut blobs = vec![
        (free_name(cycle, OUTCOMES_BLOB).await?, outcomes),
        (free_name(cycle, REMAINING_BLOB).await?, remaining),
    ];
    if cycle.config.report.html {
        blobs.push((free_name(cycle, REPORT_BLOB).await?, html(cycle, set).await?));
    }
    let closed = cycle.journal.write_batch(events, blobs, Vec::new()).await?.all();
    if closed && cycle.config.pull_requests.delete_branches {
        delete_branches(cycle).await;
    }
    Ok(closed)
}

/// A name for what a close leaves. Blobs are written once, and a run that was opened again by a retry
/// closes again.
async fn free_name(cycle: &Cycle, name: &str) -> Result<String, CycleError> {
    if cycle.journal.blob(name).await?.is_none() {
        return Ok(name.to_owned());
    }
    let events = cycle.journal.state().events;
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "txt"));
    Ok(format!("{stem}-{events}.{ending}"))
}

/// The HTML report of a run that is about to close.
async fn html(cycle: &Cycle, set: &PoolSet) -> Result<Vec<u8>, CycleError> {
    let events = cycle.journal.events().await?;
    let run = cycle.journal.state().clone();
    let facts = view::Facts::of(cycle, &run, set);
    Ok(report::html_report(&facts.report(&cycle.states(), "closed".to_owned(), events))
        .into_bytes())
}

/// Removes the run's branches and kept refs from the remote. Best effort: what stays is only
/// untidy.
async fn delete_branches(cycle: &Cycle) {
    if let Err(error) = try_delete_branches(cycle).await {
        tracing::warn!(%error, "branches were not deleted");
    }
}

/// Others may have pull requests open onto our branches, and deleting its base closes a pull request
/// for good: they are moved first. Of a node that went back to work and failed the pull request is
/// still open, with what was accepted before: people decide, and its branch stays. A branch that a
/// person pushed to goes only when all of it is in the base branch.
async fn try_delete_branches(cycle: &Cycle) -> Result<(), CycleError> {
    let short = names::run_prefix(&cycle.config.pull_requests.branch_prefix, cycle.run_id());
    let (prefix, kept) = (names::full(&short), names::keep_prefix(cycle.run_id()));
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let (heads, main) = (cycle.journal.state().heads.clone(), cycle.base.commit);
    let ours = prefix.clone();
    let (go, stay): (Vec<_>, Vec<_>) = blocking(move || {
        let there = remote.ls_remote(&repo, &[&format!("{prefix}*"), &format!("{kept}*")])?;
        let mut all = Vec::new();
        for (name, at) in there {
            let is_ours = name.starts_with(&kept) || heads.contains(&at.to_string());
            all.push((is_ours || repo.has(at) && repo.is_ancestor(at, main)?, name, at));
        }
        Ok::<_, GitError>(all)
    })
    .await?
    .into_iter()
    .partition(|(goes, ..)| *goes);
    for (_, name, at) in stay {
        tracing::warn!(name, %at, "kept: a person's commits are on it and nowhere else");
    }
    let mut kept: BTreeSet<String> = {
        let run = cycle.journal.state();
        let open = run.nodes.values().filter_map(|n| n.pr.as_ref()).filter(|pr| !pr.is_over());
        open.flat_map(|pr| [names::full(&pr.branch), names::full(&pr.base)]).collect()
    };
    for child in cycle.forge.pull_requests_onto(&short).await? {
        let base = Some(cycle.base.branch.clone());
        let patch = PullRequestPatch { base, ..PullRequestPatch::default() };
        if let Err(error) = cycle.forge.update_pull_request(child.number, patch).await {
            tracing::warn!(number = child.number, %error, "kept: a pull request is open onto it");
            kept.insert(names::full(&child.base));
        }
    }
    let updates: Vec<RefUpdate> = go
        .into_iter()
        .filter(|(_, name, _)| !name.starts_with(&ours) || !kept.contains(name))
        .map(|(_, name, at)| RefUpdate { name, new: None, expected: Expect::At(at) })
        .collect();
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    if let PushResult::Rejected(some) =
        blocking(move || remote.push(&repo, &updates, false)).await?
    {
        tracing::warn!(?some, "some branches were not deleted");
    }
    Ok(())
}

/// What the close gate says.
enum Gate {
    /// Nothing landed: there is nothing to have evidence for.
    Nothing,
    /// Positive evidence for the base commit that holds everything that landed.
    Green(Vec<CheckRecord>),
    /// Red, now or interrupted; a later cycle looks again.
    Again,
    /// Red for the last time: the run closes, and says so.
    Red,
}

/// Verifies the commit that holds everything that landed; a rejected node's work is not in it.
async fn gate(cycle: &Cycle, states: &BTreeMap<NodeId, NodeState>) -> Result<Gate, CycleError> {
    let commit = cycle.base.commit;
    let landed: Vec<NodeId> =
        states.iter().filter(|(_, s)| **s == NodeState::Landed).map(|(id, _)| id.clone()).collect();
    if landed.is_empty() {
        return Ok(Gate::Nothing);
    }
    let rounds = cycle.journal.state().gate.failed_rounds;
    if rounds >= GATE_ROUNDS {
        return Ok(Gate::Red);
    }
    let (repo, planned_on) = (cycle.repo().clone(), cycle.journal.state().base_commit.clone());
    let before = blocking(move || {
        let planned_on = crate::git::parse_oid(&planned_on)?;
        Ok::<_, GitError>(if repo.has(planned_on) { planned_on } else { commit })
    })
    .await?;
    let verified = cycle
        .verifier
        .verify(commit, before, &open::all_verify(&cycle.plan), &cycle.cancel)
        .await?;
    if cycle.cancel.is_cancelled() {
        return Ok(Gate::Again);
    }
    if verified.accepted() {
        return Ok(Gate::Green(verified.checks.iter().map(super::accept::check_record).collect()));
    }
    let culprit = together::culprit(cycle, &landed, before).await?;
    let nodes = culprit.iter().map(|(node, _)| node.clone()).collect();
    let detail = together::failure(&verified).unwrap_or_default();
    let failed =
        EventKind::GateFailed { commit: commit.to_string(), round: rounds + 1, nodes, detail };
    let again = culprit.map(|(node, failed)| EventKind::Reopened {
        node,
        reason: format!(
            "The change landed, and with it everything that landed fails together. {failed}"
        ),
    });
    cycle.journal.write([failed].into_iter().chain(again).collect()).await?;
    Ok(Gate::Again)
}

/// What became of every finding, as JSON.
pub(super) fn outcomes(
    cycle: &Cycle,
    run: &Run,
    states: &BTreeMap<NodeId, NodeState>,
) -> Result<Vec<u8>, CycleError> {
    let list = outcomes_of(&cycle.plan, run, states);
    let document = serde_json::json!({
        "version": 1,
        "run": run.id,
        "base-commit": cycle.base.commit.to_string(),
        "findings": list,
    });
    serde_json::to_vec_pretty(&document)
        .map_err(|e| CycleError::Internal(format!("the outcomes can't be written: {e}")))
}

/// The findings that the base branch still has, as SARIF for an upload to code scanning.
///
/// # Errors
/// Never in practice: the document is plain data.
pub(super) fn remaining(
    cycle: &Cycle,
    run: &Run,
    states: &BTreeMap<NodeId, NodeState>,
) -> Result<Vec<u8>, CycleError> {
    let outcomes = outcomes_of(&cycle.plan, run, states);
    let no_finding = |finding: &Finding| {
        matches!(
            finding.dropped,
            Some(DropReason::DuplicateOf(_) | DropReason::Suppressed | DropReason::NotAProblem)
        )
    };
    let remaining: Vec<Remaining<'_>> = cycle
        .plan
        .findings
        .iter()
        .zip(&outcomes)
        .filter(|(finding, it)| {
            !no_finding(finding) && !matches!(it.outcome.as_str(), "landed" | "satisfied")
        })
        .map(|(finding, it)| Remaining {
            finding,
            outcome: &it.outcome,
            pull_request: it.pull_request,
        })
        .collect();
    serde_json::to_vec_pretty(&report::remaining_sarif(&remaining))
        .map_err(|e| CycleError::Internal(format!("the SARIF can't be written: {e}")))
}

fn outcomes_of<'a>(
    plan: &'a Plan,
    run: &'a Run,
    states: &BTreeMap<NodeId, NodeState>,
) -> Vec<FindingOutcome<'a>> {
    let resolved = run.resolved();
    plan.findings
        .iter()
        .map(|finding| {
            let mut outcome = FindingOutcome {
                finding: &finding.id,
                source_id: finding.source_id.as_deref(),
                rule: finding.rule.as_deref(),
                title: &finding.title,
                outcome: "dropped".to_owned(),
                node: None,
                pull_request: None,
                reason: None,
            };
            match plan.coverage.places.get(&finding.id) {
                Some(CoveragePlace::Node(node)) => {
                    let state = states.get(node).copied().unwrap_or(NodeState::Waiting);
                    let done = state.is_done() && state != NodeState::Satisfied;
                    outcome.outcome = if done && !resolved.contains(&finding.id) {
                        "unresolved".to_owned()
                    } else {
                        state_word(state).replace('_', "-")
                    };
                    outcome.node = Some(node);
                    let record = run.nodes.get(node);
                    outcome.pull_request =
                        record.and_then(|r| r.pr.as_ref()).map(|pr| pr.url.as_str());
                    outcome.reason =
                        record.and_then(|r| r.failures.last()).map(|f| f.detail.clone());
                }
                Some(CoveragePlace::Dropped(reason)) => {
                    outcome.reason = serde_json::to_string(reason).ok();
                }
                None => outcome.outcome = "unknown".to_owned(),
            }
            outcome
        })
        .collect()
}

/// Merges accepted work and verifies the integrated tree when more than one node is in it, so that
/// two good changes that break each other are seen before people merge them.
///
/// # Errors
/// When git or the machine fails.
pub(super) async fn integrated_tip(cycle: &Cycle) -> Result<crate::git::Oid, CycleError> {
    let (repo, run) = (cycle.repo().clone(), cycle.journal.state().clone());
    let (head, at) = (cycle.base.commit, cycle.clock.now());
    let waiting = bases::unsettled(&run, &cycle.plan, &cycle.states());
    blocking(move || land::integrate_all(&repo, &run, &waiting, head, at)).await
}
