//! Judging an attempt, in an order in which each step can end it: result, tree, scope, verify,
//! proof. Nothing the worker says is believed; everything is looked up in the tree or run by us.

use super::attempt::Ticket;
use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, proof};
use crate::backends::{WorkReport, WorkerResult};
use crate::config::ScopeAmend;
use crate::git::Oid;
use crate::ledger::{CheckRecord, EventKind, FrictionType};
use crate::model::{AttemptNumber, Finding, FindingId, Node, Outcome};
use crate::process::Status;
use crate::report::text;
use crate::workspace::{
    self, CheckResult, ScopePolicy, Slot, TakeLimits, Taken, Violation, WorkspaceError,
};

/// What an attempt is worth.
pub(super) enum Verdict {
    /// Verified on this very tree.
    Good(Good),
    /// Nothing to change: our own check passes on the base.
    Satisfied { evidence: String },
    /// Not acceptable.
    Refused(Refusal),
}

/// An acceptable attempt.
pub(super) struct Good {
    pub commit: Oid,
    pub tree: Oid,
    pub resolved: Vec<FindingId>,
    pub touched: Vec<String>,
    pub checks: Vec<CheckRecord>,
    pub summary: String,
    pub friction: Vec<EventKind>,
}

/// Why an attempt was refused.
pub(super) struct Refusal {
    pub outcome: Outcome,
    pub detail: String,
    /// The tree that is kept for people.
    pub tree: Option<Oid>,
    /// Whether asking the worker to correct its result may help.
    pub repairable: bool,
    pub friction: Vec<EventKind>,
}

impl Refusal {
    pub(super) fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into(), tree: None, repairable: false, friction: Vec::new() }
    }
}

fn refused(refusal: Refusal) -> Verdict {
    Verdict::Refused(refusal)
}

/// The judgement was cut off: nobody's fault, and no evidence either way.
fn stopped() -> Refusal {
    Refusal::new(Outcome::Timeout, "The cycle was stopped.")
}

/// What our own re-checks say of a node's findings before anything is spent.
pub(super) enum OnBase {
    /// Something is left to do, as far as they can tell.
    There,
    /// Every finding is checkable, and none is there.
    Gone { evidence: String },
    /// One of them gives no report: whatever a worker does, nothing could be proven.
    Blind { why: String },
}

/// The proof before money is spent.
pub(super) async fn on_base(
    cycle: &Cycle,
    ticket: &Ticket,
    slot: &Slot,
) -> Result<OnBase, CycleError> {
    let checkable = proof::checkable(cycle, &ticket.findings);
    let Some(rechecks) = proof::for_all(cycle, &checkable) else { return Ok(OnBase::There) };
    let named = proof::paths_of(&checkable);
    let paths = proof::existing(slot, &named);
    if paths.is_empty() && !named.is_empty() {
        return Ok(OnBase::There);
    }
    let seen = proof::observe(cycle, &rechecks, &paths, slot).await?;
    tracing::debug!(?seen, node = %ticket.node.id, "re-check on the base");
    let all = checkable.len() == ticket.findings.len();
    Ok(match seen {
        Err(why) => OnBase::Blind { why },
        Ok(seen) if all && proof::still_there(&checkable, &seen.findings).is_empty() => {
            let names: Vec<String> = rechecks.iter().map(|r| r.argv.join(" ")).collect();
            let (names, base) = (names.join("`, `"), ticket.base.commit());
            OnBase::Gone { evidence: format!("`{names}` no longer reports it on {base}") }
        }
        Ok(_) => OnBase::There,
    })
}

/// Why a node's findings are not there any more, if they are not.
pub(super) async fn already_gone(
    cycle: &Cycle,
    ticket: &Ticket,
    slot: &Slot,
) -> Result<Option<String>, CycleError> {
    Ok(match on_base(cycle, ticket, slot).await? {
        OnBase::Gone { evidence } => Some(evidence),
        OnBase::There | OnBase::Blind { .. } => None,
    })
}

/// No worker is started for what could not be accepted.
pub(super) fn blind(cycle: &Cycle, ticket: &Ticket, why: &str) -> Refusal {
    if cycle.cancel.is_cancelled() {
        return stopped();
    }
    let detail = format!(
        "No worker was started: the re-check on the base gave no report, so no change could be \
         proven. {why}"
    );
    let mut refusal = Refusal::new(Outcome::Error, detail);
    refusal.friction.push(EventKind::Friction {
        friction: FrictionType::BaseBroken,
        discriminator: format!("recheck:{}", ticket.node.id),
        text: format!("the re-check of {} gives no report on the base: {why}", ticket.node.id),
        remedy: "mend or drop the `recheck` of these findings, then `overhaul retry` the node"
            .to_owned(),
    });
    refusal
}

/// A worktree that shows a commit.
pub(super) async fn slot_at(cycle: &Cycle, commit: Oid) -> Result<Slot, CycleError> {
    let workspace = cycle.workspace.clone();
    blocking(move || {
        let mut slot = workspace.slot(Some(commit))?;
        slot.reset(commit)?;
        Ok::<_, WorkspaceError>(slot)
    })
    .await
}

/// What the worker claims, as far as it may claim anything.
pub(super) fn claims<'a>(
    ticket: &Ticket,
    report: &'a WorkReport,
) -> Result<&'a WorkerResult, Refusal> {
    let result = match (&report.result, report.outcome) {
        (Some(result), Outcome::Success) => result,
        (_, Outcome::Success) => {
            return Err(Refusal {
                repairable: true,
                ..Refusal::new(Outcome::InvalidResult, "The worker left no result.")
            });
        }
        (_, outcome) => {
            let mut refusal = Refusal::new(outcome, report.detail.clone());
            refusal.repairable = report.may_be_repaired();
            return Err(refusal);
        }
    };
    let foreign: Vec<&str> = result
        .resolved
        .iter()
        .chain(result.blocked.iter().map(|b| &b.finding))
        .filter(|id| !ticket.node.findings.contains(id))
        .map(FindingId::as_str)
        .collect();
    if !foreign.is_empty() {
        let detail = format!(
            "The result names findings that are not this node's: {}. Its findings are: {}.",
            foreign.join(", "),
            ticket.node.findings.iter().map(FindingId::as_str).collect::<Vec<_>>().join(", ")
        );
        return Err(Refusal { repairable: true, ..Refusal::new(Outcome::InvalidResult, detail) });
    }
    if result.resolved.is_empty() {
        let reasons: Vec<String> =
            result.blocked.iter().map(|b| format!("{}: {}", b.finding, b.reason)).collect();
        let detail = format!("The worker resolved nothing. {}", reasons.join("; "));
        return Err(Refusal::new(Outcome::InvalidResult, detail));
    }
    Ok(result)
}

/// A tree as far as it may be taken: too much of it is the worker's doing.
pub(super) fn taken(
    taken: Result<Taken, WorkspaceError>,
) -> Result<Result<Taken, Verdict>, CycleError> {
    match taken {
        Ok(taken) => Ok(Ok(taken)),
        Err(error @ (WorkspaceError::TooManyFiles { .. } | WorkspaceError::TooMuchData { .. })) => {
            Ok(Err(refused(Refusal::new(Outcome::InvalidResult, format!("{error}.")))))
        }
        Err(error) => Err(error.into()),
    }
}

/// Judges what the worker left in the slot.
pub(super) async fn judge(
    cycle: &Cycle,
    ticket: &Ticket,
    slot: &Slot,
    report: &WorkReport,
) -> Result<Verdict, CycleError> {
    // 1. The result.
    let result = match claims(ticket, report) {
        Ok(result) => result,
        Err(mut refusal) => {
            if report.outcome != Outcome::Success {
                refusal.tree = changed_tree(cycle, ticket, slot);
            }
            return Ok(refused(refusal));
        }
    };
    // 2. The final tree, whatever the worker committed.
    match taken(slot.take_tree(&take_limits(cycle)))? {
        Ok(taken) => judge_tree(cycle, ticket, taken.tree, taken.refused, result).await,
        Err(verdict) => Ok(verdict),
    }
}

/// Judges a tree, wherever it was made; `untaken` are files that it should hold and does not.
pub(super) async fn judge_tree(
    cycle: &Cycle,
    ticket: &Ticket,
    tree: Oid,
    untaken: Vec<Violation>,
    result: &WorkerResult,
) -> Result<Verdict, CycleError> {
    let base = ticket.base.commit();
    let repo = cycle.repo().clone();
    let base_tree = blocking(move || repo.tree_of(base)).await?;
    if tree == base_tree && untaken.is_empty() {
        return unchanged(cycle, ticket).await;
    }

    // 3. Write scope.
    let amends = cycle.config.policy.scope_amend == ScopeAmend::Amend;
    let scoped = in_scope(cycle, &ticket.node, (base_tree, tree), untaken, amends).await?;
    let scoped = match scoped {
        Ok(scoped) => scoped,
        Err(refusal) => return Ok(refused(refusal)),
    };

    // 4 and 5. Verify that very tree, and prove the findings gone.
    let message = commit_message(cycle, &ticket.node, ticket.number, &result.resolved, &[]);
    let (repo, at) = (cycle.repo().clone(), cycle.clock.now());
    let commit = blocking(move || repo.commit(tree, &[base], &message, at)).await?;
    let change = Change { commit, base, tree, touched: &scoped.touched };
    let proven = proven(cycle, &ticket.node, &result.resolved, &change).await?;
    let (checks, friction) = match proven {
        Ok(proven) => proven,
        Err(mut refusal) => {
            refusal.friction.splice(0..0, scoped.friction);
            return Ok(refused(refusal));
        }
    };
    Ok(Verdict::Good(Good {
        commit,
        tree,
        resolved: result.resolved.clone(),
        touched: scoped.touched,
        checks,
        summary: result.summary.clone(),
        friction: scoped.friction.into_iter().chain(friction).collect(),
    }))
}

/// What a change inside its scope touches.
pub(super) struct Scoped {
    pub touched: Vec<String>,
    pub friction: Vec<EventKind>,
}

/// Checks the difference of two trees (before, after) against the node's write scope. With `amends`
/// the scope grows over what no other unfinished node may write.
pub(super) async fn in_scope(
    cycle: &Cycle,
    node: &Node,
    trees: (Oid, Oid),
    seen: Vec<Violation>,
    amends: bool,
) -> Result<Result<Scoped, Refusal>, CycleError> {
    let policy = scope_policy(cycle, node);
    let repo = cycle.repo().clone();
    let (before, after) = trees;
    let (changes, found) = blocking(move || {
        let found = workspace::check(&repo, before, after, &policy)?;
        Ok::<_, WorkspaceError>((repo.diff(before, after)?, found))
    })
    .await?;
    let violations: Vec<Violation> = seen.into_iter().chain(found).collect();
    let mut friction = Vec::new();
    if !violations.is_empty() {
        let text = describe_violations(&violations);
        let it = |text: String, remedy: &str| EventKind::Friction {
            friction: FrictionType::ScopeViolation,
            discriminator: node.id.to_string(),
            text,
            remedy: remedy.to_owned(),
        };
        if !amends || !are_free(cycle, node, &violations) {
            let mut refusal = Refusal::new(Outcome::InvalidResult, text.clone());
            refusal.tree = Some(after);
            refusal.friction =
                vec![it(text, "widen the node's scope by policy, or leave it to a person")];
            return Ok(Err(refusal));
        }
        friction
            .push(it(format!("scope amended: {text}"), "look at the pull request's extra files"));
    }
    let touched = changes.iter().map(|c| String::from_utf8_lossy(&c.path).into_owned()).collect();
    Ok(Ok(Scoped { touched, friction }))
}

/// A change as a commit on its base.
pub(super) struct Change<'a> {
    pub commit: Oid,
    pub base: Oid,
    pub tree: Oid,
    pub touched: &'a [String],
}

/// Runs the node's commands on the very commit, and the re-checks of what it resolves.
pub(super) async fn proven(
    cycle: &Cycle,
    node: &Node,
    resolved: &[FindingId],
    change: &Change<'_>,
) -> Result<Result<(Vec<CheckRecord>, Vec<EventKind>), Refusal>, CycleError> {
    let mut friction = Vec::new();
    let refuse_tree = |outcome: Outcome, detail: String, friction: Vec<EventKind>| {
        let tree = Some(change.tree);
        Ok(Err(Refusal { outcome, detail, tree, repairable: false, friction }))
    };
    let verified = cycle.verifier.verify(change.commit, change.base, &node.verify, &cycle.cancel);
    let verified = match verified.await {
        Ok(verified) => verified,
        Err(WorkspaceError::Cancelled) => workspace::Verified::default(),
        // A program that is not there is the repository's business, and everybody's.
        Err(WorkspaceError::Process(error)) => {
            let detail = format!("A verify command can't be run: {error}.");
            return refuse_tree(Outcome::Error, detail, friction);
        }
        Err(error) => return Err(error.into()),
    };
    let results = verified.checks;
    let mut checks: Vec<CheckRecord> = results.iter().map(check_record).collect();
    if cycle.cancel.is_cancelled() {
        return Ok(Err(stopped()));
    }
    for result in &results {
        match result.verdict {
            workspace::Verdict::Failed => {
                let detail = format!(
                    "Verify command `{}` failed ({}). {}",
                    result.name,
                    how(result.status),
                    said(&result.output)
                );
                return refuse_tree(Outcome::InvalidResult, detail, friction);
            }
            workspace::Verdict::Flaky => friction.push(EventKind::Friction {
                friction: FrictionType::VerifyFlaky,
                discriminator: result.name.clone(),
                text: format!("`{}` failed and then passed on one tree", result.name),
                remedy: "make the command deterministic, or drop it from `verify`".to_owned(),
            }),
            workspace::Verdict::BaseFailsToo => friction.push(EventKind::Friction {
                friction: FrictionType::BaseBroken,
                discriminator: result.name.clone(),
                text: format!("`{}` fails on the base commit too", result.name),
                remedy: "repair the base branch, or drop the command from `verify`".to_owned(),
            }),
            workspace::Verdict::Passed => {}
        }
    }
    let findings: Vec<Finding> =
        resolved.iter().filter_map(|id| cycle.plan.finding(id)).cloned().collect();
    match proof::after(cycle, change.base, &findings, change.touched, change.commit).await? {
        proof::Proof::Holds(runs) => {
            checks.extend(runs);
            Ok(Ok((checks, friction)))
        }
        proof::Proof::Fails(_) if cycle.cancel.is_cancelled() => Ok(Err(stopped())),
        proof::Proof::Fails(detail) => refuse_tree(Outcome::InvalidResult, detail, friction),
    }
}

/// A worker that claims success and changed nothing has failed, unless our own check passes.
async fn unchanged(cycle: &Cycle, ticket: &Ticket) -> Result<Verdict, CycleError> {
    let slot = slot_at(cycle, ticket.base.commit()).await?;
    if let Some(evidence) = already_gone(cycle, ticket, &slot).await? {
        return Ok(Verdict::Satisfied { evidence });
    }
    if cycle.cancel.is_cancelled() {
        return Ok(refused(stopped()));
    }
    Ok(refused(Refusal::new(
        Outcome::InvalidResult,
        "The worker reported success and changed nothing; no check of ours says that there was \
         nothing to do.",
    )))
}

/// Whether every violation is only "outside the scope", and no other unfinished node may write there.
fn are_free(cycle: &Cycle, node: &Node, violations: &[Violation]) -> bool {
    let states = cycle.states();
    let owned_elsewhere = |path: &[u8]| {
        cycle.plan.nodes.iter().filter(|n| n.id != node.id).any(|node| {
            let open = states.get(&node.id).is_some_and(|s| !s.is_final());
            open && crate::planning::scope::matches(&node.writes, path)
        })
    };
    violations.iter().all(|v| v.is_amendable() && !owned_elsewhere(&v.path))
}

fn describe_violations(violations: &[Violation]) -> String {
    let mut lines: Vec<String> = violations.iter().take(20).map(ToString::to_string).collect();
    if violations.len() > 20 {
        lines.push(format!("and {} more", violations.len() - 20));
    }
    format!("The change is refused:\n- {}", lines.join("\n- "))
}

/// Title, findings, and the trailers by which the commit is known as ours.
pub(super) fn commit_message(
    cycle: &Cycle,
    node: &Node,
    attempt: AttemptNumber,
    resolved: &[FindingId],
    authors: &[String],
) -> String {
    let title = text::title(&node.title, 100);
    let ids: Vec<&str> = resolved.iter().map(FindingId::as_str).collect();
    let also: String = authors.iter().map(|who| format!("Co-authored-by: {who}\n")).collect();
    format!(
        "{title}\n\nOverhaul-Run: {}\nOverhaul-Node: {}\nOverhaul-Attempt: {attempt}\nOverhaul-Findings: {}\n{also}",
        cycle.run_id(),
        node.id,
        ids.join(", ")
    )
}

/// Most that one attempt may change.
pub(super) fn take_limits(cycle: &Cycle) -> TakeLimits {
    TakeLimits { file_bytes: cycle.config.policy.max_file_bytes, ..TakeLimits::default() }
}

/// The tree of a failed attempt, if there is anything in it worth keeping.
fn changed_tree(cycle: &Cycle, ticket: &Ticket, slot: &Slot) -> Option<Oid> {
    let taken = slot.take_tree(&take_limits(cycle)).ok()?;
    let base = cycle.repo().tree_of(ticket.base.commit()).ok()?;
    (taken.tree != base).then_some(taken.tree)
}

fn scope_policy(cycle: &Cycle, node: &Node) -> ScopePolicy {
    let policy = &cycle.config.policy;
    ScopePolicy {
        writes: node.writes.clone(),
        protected: policy.protected.clone(),
        allow_lockfiles: cycle.config.planning.allow_lockfiles,
        allow: policy.allow.iter().cloned().map(crate::model::ScopeEntry::Glob).collect(),
        max_file_bytes: policy.max_file_bytes,
    }
}

/// A check as the receipt records it.
pub(super) fn check_record(check: &CheckResult) -> CheckRecord {
    let verdict = match check.verdict {
        workspace::Verdict::Passed => "passed",
        workspace::Verdict::Flaky => "flaky",
        workspace::Verdict::BaseFailsToo => "base-fails-too",
        workspace::Verdict::Failed => "failed",
    };
    CheckRecord {
        name: check.name.clone(),
        exit_code: match check.status {
            Status::Exited(code) => Some(code),
            _ => None,
        },
        millis: check.millis,
        verdict: verdict.to_owned(),
    }
}

fn how(status: Status) -> String {
    match status {
        Status::Exited(code) => format!("exit code {code}"),
        Status::Signalled(signal) => format!("signal {signal}"),
        Status::TimedOut => "stopped at its deadline".to_owned(),
        Status::Cancelled => "cancelled".to_owned(),
        Status::OverDisk => "stopped because it filled the disk".to_owned(),
        Status::OverMemory => "stopped because it used too much memory".to_owned(),
        Status::OverTasks => "stopped because it started too many processes".to_owned(),
    }
}

/// What a failed command printed.
pub(super) fn said(output: &str) -> String {
    if output.trim().is_empty() {
        return "It printed nothing.".to_owned();
    }
    format!("Its output:\n{}", tail(output))
}

/// The end of an output, where the reason usually is; the prompt of the next attempt holds it.
fn tail(output: &str) -> String {
    const KEPT: usize = 4_000;
    let start = output.len().saturating_sub(KEPT);
    let start = (start..output.len()).find(|i| output.is_char_boundary(*i)).unwrap_or(start);
    crate::model::scrub(output.get(start..).unwrap_or_default()).into_owned()
}
