//! The cycle itself: observe, work, land, report. Exactly one per call.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::context::Cycle;
use super::grant::{Grant, GrantOptions};
use super::open::Chosen;
use super::pools::{self, PoolSet};
use super::setup::{Options, Parts};
use super::take_in::TakenIn;
use super::walls::AllWalls;
use super::{
    CycleError, answers, branch, close, drive, grant, inbox, keys, land, open, pause, proceed,
    rebuild, reconcile, setup, show, view,
};
use crate::backends::Surroundings;
use crate::backends::openai::ProcessVerify;
use crate::config::Config;
use crate::ledger::{EventKind, NodeState, PauseCause, PauseRecord, Run};
use crate::model::{GrantId, NodeId, RunId};

/// How the run stands after the cycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Work was done and more is left.
    Progress,
    /// It cannot go on now; the pause says why.
    Paused,
    /// For reviews, or for other jobs' claims.
    Waiting,
    /// The run is over.
    Complete,
    /// There is nothing to do.
    Idle,
}

/// What one cycle came to: the outputs of the action.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct CycleReport {
    /// How the run stands.
    pub status: Status,
    /// One sentence.
    pub message: String,
    /// The run, if there is one.
    pub run_id: Option<RunId>,
    /// The earliest time at which going on makes sense.
    pub not_before: Option<Timestamp>,
    /// Addresses of open pull requests, by number.
    pub pull_requests: Vec<String>,
    /// Nodes by state.
    pub nodes: BTreeMap<String, usize>,
    /// Attempts started in this cycle.
    pub attempts: usize,
    /// Whether the next cycle was started.
    pub continued: bool,
    /// Why pools were left out, one line each.
    pub pools_left_out: Vec<String>,
    /// What the configuration allows and probably does not mean, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Program and version of the agents among the pools.
    pub agents: BTreeMap<crate::model::PoolId, String>,
    /// Why the run is paused, node by node.
    pub pause: Option<PauseRecord>,
    /// Nodes that failed, with why.
    pub failed: Vec<FailedNode>,
    /// What became of the results that were taken in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<TakenIn>,
    /// What was handed out to jobs of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The step summary, Markdown.
    #[serde(skip)]
    pub summary: String,
    /// The findings that the base branch still has, SARIF; empty where nothing was looked at.
    #[serde(skip)]
    pub remaining: Vec<u8>,
}

/// A node that failed.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct FailedNode {
    /// Which.
    pub node: NodeId,
    /// Attempts so far.
    pub attempts: u32,
    /// Why the last one was refused.
    pub why: String,
}

impl CycleReport {
    /// A report of a cycle that looked at no run.
    pub fn without_run(status: Status, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            run_id: None,
            not_before: None,
            pull_requests: Vec::new(),
            nodes: BTreeMap::new(),
            attempts: 0,
            continued: false,
            pools_left_out: Vec::new(),
            warnings: Vec::new(),
            agents: BTreeMap::new(),
            pause: None,
            failed: Vec::new(),
            results: Vec::new(),
            grant: None,
            summary: String::new(),
            remaining: Vec::new(),
        }
    }
}

/// Runs one cycle.
///
/// # Errors
/// When the configuration, the findings, the ledger, git, the forge or the machine fails. A run
/// that pauses is no error.
pub async fn next_step(
    options: Options,
    cancel: CancellationToken,
) -> Result<CycleReport, CycleError> {
    match begin(options, Job::Whole, cancel).await? {
        Begun::Over(report) => Ok(*report),
        Begun::Ready(cycle, set) => {
            let outcome = observe_and_work(&cycle, &set).await;
            report(&cycle, &set, outcome?).await
        }
    }
}

/// What a job is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Job {
    /// Everything, with the pools that this process proves to reach.
    Whole,
    /// Hands out; other jobs reach the pools.
    HandOut,
    /// Takes results in (of this grant): work that was done counts, pause or not, and a new run is
    /// never opened for it.
    TakeIn(Option<GrantId>),
}

/// How a cycle began.
pub(super) enum Begun {
    /// There is nothing to do in it.
    Over(Box<CycleReport>),
    /// A run with its pools.
    Ready(Arc<Cycle>, PoolSet),
}

/// The beginning of every job that writes: chooses or opens the run, ends dead claims, does what
/// people said, and respects a pause.
pub(super) async fn begin(
    options: Options,
    job: Job,
    cancel: CancellationToken,
) -> Result<Begun, CycleError> {
    let over = |report| Ok(Begun::Over(Box::new(report)));
    let parts = setup::prepare(options).await?;
    let chosen = open::choose(&parts).await?;
    if parts.options.dry_run {
        return over(dry_run(&parts, chosen).await?);
    }
    let mut inbox_open = false;
    let journal = match chosen {
        Chosen::NoFindings => {
            return over(CycleReport::without_run(Status::Idle, "there are no findings"));
        }
        Chosen::AlreadyDone(id) => {
            let mut report = CycleReport::without_run(
                Status::Idle,
                format!("run {id} has dealt with these findings"),
            );
            report.run_id = Some(id);
            return over(report);
        }
        Chosen::Open(id) => {
            inbox_open = true;
            parts.journal(id).await?
        }
        Chosen::New(_) if matches!(job, Job::TakeIn(_)) => {
            return over(CycleReport::without_run(Status::Idle, "there is no open run"));
        }
        Chosen::New(new) => {
            parts.check_rights().await?;
            open::write_opening(
                parts.store.clone(),
                &new,
                &parts.base,
                parts.cycle_id.clone(),
                parts.clock.clone(),
            )
            .await?
        }
    };
    let plan = open::load_plan(&journal).await?;
    let now = parts.clock.now();
    let ours = match &job {
        Job::TakeIn(grant) => grant.as_ref(),
        Job::Whole | Job::HandOut => None,
    };
    reconcile::release_dead_claims(&journal, &*parts.forge, now, ours).await?;
    // A run that begins now has no comments to it yet.
    let steered = inbox_open && inbox::read(&parts, &journal, &plan).await?;
    if parts.options.resume && journal.state().is_stopped() {
        journal.write(vec![EventKind::Resumed { by: "--resume".to_owned() }]).await?;
    }
    let lifted = keys::lift(&parts.config, &journal.state(), &*parts.options.env);
    let new_key = !lifted.is_empty();
    if new_key {
        journal.write(lifted).await?;
    }
    let early = match job {
        Job::TakeIn(_) => None,
        Job::Whole | Job::HandOut => {
            too_early(&parts, &journal, new_key).or_else(|| proceed::fuse(&parts, &journal))
        }
    };
    let asked = journal.state().nodes.values().any(|n| n.asked.is_some());
    if let Some(report) = early.clone()
        && !steered
        && !asked
    {
        return over(report);
    }
    if parts.options.resume {
        let lifted = pause::lift(&journal.state(), "`--resume`");
        if !lifted.is_empty() {
            journal.write(lifted).await?;
        }
    }
    let run_state = journal.state().clone();
    let set = match job {
        Job::HandOut | Job::TakeIn(_) => pools::declared(&parts.config, Some(&run_state), now)?,
        Job::Whole => {
            let around = surroundings(&parts.config, &parts.walls);
            pools::build(&parts.config, Some(&run_state), now, &*parts.options.env, &around).await?
        }
    };
    let cycle = Arc::new(parts.cycle(journal, plan, set.ready.clone(), cancel).await?);
    if let Some(report) = early {
        // People see what their words did.
        if asked {
            look(&cycle).await?;
            land::finish_pending(&cycle).await?;
        }
        show::dashboard(&cycle, &set, report.status).await?;
        return over(report);
    }
    Ok(Begun::Ready(cycle, set))
}

/// What a cycle would begin with; nothing is written.
async fn dry_run(parts: &Parts, chosen: Chosen) -> Result<CycleReport, CycleError> {
    let mut report = CycleReport::without_run(Status::Idle, "dry run: there are no findings");
    match chosen {
        Chosen::NoFindings => {}
        Chosen::AlreadyDone(id) => {
            report.message = format!("dry run: run {id} has dealt with these findings");
            report.run_id = Some(id);
        }
        Chosen::New(new) => {
            report.status = Status::Progress;
            let (nodes, findings) = (new.plan.nodes.len(), new.plan.coverage.total);
            report.message = format!(
                "dry run: would open run {} with {} for {}",
                new.id,
                self::nodes(nodes),
                counted(findings, "finding")
            );
            report.nodes.insert("planned".to_owned(), nodes);
        }
        Chosen::Open(id) => {
            let journal = parts.journal(id.clone()).await?;
            let plan = open::load_plan(&journal).await?;
            let states = crate::ledger::node_states(
                &journal.state(),
                &plan,
                crate::ledger::AttemptBudget::default(),
                crate::ledger::DependsOn::default(),
            );
            report.status = Status::Progress;
            report.nodes = close::counts(&states);
            report.message = format!("dry run: would go on with run {id}");
            report.run_id = Some(id);
        }
    }
    Ok(report)
}

/// A scheduled wake-up before the pause's end does nothing: the pause stands.
fn too_early(parts: &Parts, journal: &super::Journal, new_key: bool) -> Option<CycleReport> {
    let run = journal.state();
    // What was called off waits for nothing.
    let pause = run.pause.as_ref().filter(|_| run.cancelled.is_none())?;
    let operator = pause.cause == PauseCause::Operator;
    let early = pause.not_before.is_some_and(|at| at > parts.clock.now()) && !new_key;
    if !(operator || early) || parts.options.resume {
        return None;
    }
    let mut report = CycleReport::without_run(
        Status::Paused,
        match pause.not_before {
            Some(at) if !operator => format!("paused until {at}"),
            _ => stopped(pause),
        },
    );
    report.run_id = Some(journal.run_id().clone());
    report.not_before = pause.not_before;
    report.pause = Some(pause.clone());
    Some(report)
}

/// A person's pause in one line: who and when.
fn stopped(pause: &PauseRecord) -> String {
    let by = pause.by.as_deref().unwrap_or("a person");
    format!("paused by {by} at {}; `resume` goes on", pause.first_seen)
}

/// The walls of workers and of the checks that they ask for.
pub(super) fn surroundings(config: &Config, walls: &AllWalls) -> Surroundings {
    let checks = ProcessVerify { walls: walls.checks.clone(), ..ProcessVerify::default() };
    Surroundings {
        verify: Some(Arc::new(checks)),
        walls: walls.workers.clone(),
        disk_growth: Some(config.policy.max_worker_disk_bytes),
    }
}

/// What the working part of a cycle came to.
#[derive(Debug, Default)]
pub(super) struct Worked {
    pub(super) attempts: usize,
    pub(super) closed: bool,
    pub(super) paused: Option<PauseCause>,
    pub(super) granted: Option<Grant>,
}

/// Looks at branches and pull requests, and does what people want of them.
async fn look(cycle: &Cycle) -> Result<(), CycleError> {
    setup::restore_commits(cycle).await?;
    reconcile::follow_pull_requests(cycle).await?;
    setup::deepen(cycle).await?;
    let answered = branch::carry_out(cycle).await?;
    answers::late(cycle, &answered).await
}

/// Makes the ledger and the world agree before anything new is done.
pub(super) async fn observe(cycle: &Cycle) -> Result<(), CycleError> {
    look(cycle).await?;
    rebuild::all(cycle).await?;
    land::finish_pending(cycle).await?;
    *cycle.integration.lock().await = close::integrated_tip(cycle).await?;
    Ok(())
}

async fn observe_and_work(cycle: &Arc<Cycle>, set: &PoolSet) -> Result<Worked, CycleError> {
    observe(cycle).await?;
    let mut worked = Worked::default();
    if cycle.journal.state().cancelled.is_none() && has_open_nodes(cycle) {
        setup::check_verify_programs(&open::all_verify(&cycle.plan), &*cycle.env)?;
        let started = EventKind::CycleStarted {
            holder: cycle.holder.clone(),
            by_comment: cycle.woken.by_comment,
        };
        cycle.journal.write(vec![started]).await?;
        worked.granted = grant::host_share(cycle, &GrantOptions::default()).await?;
        let driven = drive::drive(cycle).await?;
        worked.attempts = driven.started;
        // What is built on work that was done again follows it at once.
        rebuild::all(cycle).await?;
        land::finish_pending(cycle).await?;
        worked.paused = pause::record(cycle, &driven, set).await?;
    }
    wind_up(cycle, set, &mut worked).await?;
    Ok(worked)
}

/// After the work: a pause that is over ends, and a run whose nodes are all final is closed.
pub(super) async fn wind_up(
    cycle: &Arc<Cycle>,
    set: &PoolSet,
    worked: &mut Worked,
) -> Result<(), CycleError> {
    // A person's word, maybe while this cycle worked.
    let (stopped, cancelled) = {
        let run = cycle.journal.state();
        (run.is_stopped(), run.cancelled.is_some())
    };
    if stopped && !cancelled {
        worked.paused = Some(PauseCause::Operator);
    }
    if worked.paused.is_none() {
        resume(cycle).await?;
        worked.closed = close::close_if_final(cycle, set).await?;
    }
    Ok(())
}

/// Work goes on: the run's pause is over.
pub(super) async fn resume(cycle: &Cycle) -> Result<(), CycleError> {
    if cycle.journal.state().pause.is_some() {
        let by = "the next cycle".to_owned();
        cycle.journal.write(vec![EventKind::Resumed { by }]).await?;
    }
    Ok(())
}

pub(super) fn has_open_nodes(cycle: &Cycle) -> bool {
    cycle.states().values().any(|s| matches!(s, NodeState::Ready | NodeState::Waiting))
}

pub(super) async fn report(
    cycle: &Arc<Cycle>,
    set: &PoolSet,
    worked: Worked,
) -> Result<CycleReport, CycleError> {
    let states = cycle.states();
    let continued = proceed::start_next(cycle, worked.paused, worked.attempts).await;
    let (status, mut message) = status(&states, &worked, &cycle.journal.state());
    show::dashboard(cycle, set, status).await?;
    if continued {
        message.push_str("; the next cycle was started");
    }
    let run = cycle.journal.state().clone();
    let open = run.nodes.values().filter_map(|n| n.pr.as_ref()).filter(|pr| !pr.is_over());
    let open: BTreeMap<u64, &String> = open.map(|pr| (pr.number, &pr.url)).collect();
    let pull_requests = open.into_values().cloned().collect();
    let remaining = close::remaining(cycle, &run, &states)?;
    let pause = if status == Status::Paused { run.pause.clone() } else { None };
    let summary = crate::report::step_summary(&view::run(cycle, set, status));
    Ok(CycleReport {
        status,
        message,
        run_id: run.id.clone(),
        not_before: pause.as_ref().and_then(|p| p.not_before),
        pull_requests,
        nodes: close::counts(&states),
        attempts: worked.attempts,
        continued,
        pools_left_out: set.dropped.iter().map(|(id, why)| format!("{id}: {why}")).collect(),
        warnings: cycle.config.warnings(),
        agents: set.agents().collect(),
        pause,
        failed: failed(&run, &states),
        results: Vec::new(),
        grant: worked.granted,
        summary,
        remaining,
    })
}

fn failed(run: &Run, states: &BTreeMap<NodeId, NodeState>) -> Vec<FailedNode> {
    let failed = states.iter().filter(|(_, state)| **state == NodeState::Failed);
    failed
        .filter_map(|(node, _)| {
            let record = run.nodes.get(node)?;
            Some(FailedNode {
                node: node.clone(),
                attempts: record.attempts,
                why: record.failures.last().map(|f| f.detail.clone()).unwrap_or_default(),
            })
        })
        .collect()
}

fn status(states: &BTreeMap<NodeId, NodeState>, worked: &Worked, run: &Run) -> (Status, String) {
    let count = |wanted: &[NodeState]| states.values().filter(|s| wanted.contains(s)).count();
    if worked.closed {
        let failed = count(&[NodeState::Failed]);
        let message = if failed == 0 {
            "every node is final; the run is closed".to_owned()
        } else {
            format!("the run is closed; {failed} of {} failed", nodes(states.len()))
        };
        return (Status::Complete, message);
    }
    if run.cancelled.is_some() {
        return (Status::Complete, "the run was cancelled".to_owned());
    }
    if let Some(pause) = run.pause.as_ref().filter(|_| worked.paused == Some(PauseCause::Operator))
    {
        return (Status::Paused, stopped(pause));
    }
    if let Some(cause) = worked.paused {
        let word = serde_json::to_value(cause).ok();
        let word = word.as_ref().and_then(|v| v.as_str()).unwrap_or("paused");
        return (Status::Paused, word.replace('_', " "));
    }
    let claimed = count(&[NodeState::Claimed, NodeState::Working]);
    if claimed > 0 {
        return (Status::Waiting, format!("{} at work in other jobs", are(claimed, "node")));
    }
    let open = count(&[NodeState::Ready, NodeState::Waiting]);
    if open > 0 {
        return (Status::Progress, format!("{} left", are(open, "node")));
    }
    let review = count(&[NodeState::InReview]);
    let accepted = count(&[NodeState::Accepted]);
    if accepted > 0 {
        let message = format!(
            "{}; {} for theirs to be opened",
            reviews(review),
            verb(accepted, "accepted node", "waits", "wait")
        );
        return (Status::Progress, message);
    }
    (Status::Waiting, reviews(review))
}

fn reviews(count: usize) -> String {
    format!("{} for people", verb(count, "pull request", "waits", "wait"))
}

fn nodes(count: usize) -> String {
    counted(count, "node")
}

fn are(count: usize, what: &str) -> String {
    verb(count, what, "is", "are")
}

/// `1 node waits`, `2 nodes wait`.
fn verb(count: usize, what: &str, one: &str, many: &str) -> String {
    format!("{} {}", counted(count, what), if count == 1 { one } else { many })
}

/// `1 node`, `2 nodes`.
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}
