//! The run as people and machines look at it: computed from the ledger, stored nowhere.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::context::depends_on;
use super::setup::{self, Options};
use super::unproven::{self, Warning};
use super::{CycleError, Journal, close, open, view};
use crate::config::Config;
use crate::ledger::{
    AttemptBudget, FrictionRecord, NodeState, PauseRecord, PrEnd, Run, node_states,
};
use crate::model::{NodeId, Plan, PoolId, RunId, Usage};
use crate::report::html_report;

/// One node for people.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct NodeStatus {
    /// Its id.
    pub id: NodeId,
    /// Its title.
    pub title: String,
    /// Its state, in the words of the ledger.
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// Address of its pull request.
    pub pull_request: Option<String>,
    /// Why the last attempt that failed did, while the node is not done.
    pub last_failure: Option<String>,
    /// Which attempt that was.
    pub failed_attempt: Option<u32>,
    /// What people should know of its branch: a person's commits, an approval.
    pub branch: Option<String>,
}

/// One pool for people.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct PoolStatus {
    /// Its id.
    pub id: PoolId,
    /// One phrase.
    pub state: String,
    /// Consumption in this run.
    pub usage: Usage,
}

/// A run for people and machines.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct RunStatus {
    /// `None`: there is no run yet.
    pub run_id: Option<RunId>,
    /// `open`, `paused`, `cancelled` or `closed`.
    pub state: String,
    /// Nodes by state.
    pub counts: BTreeMap<String, usize>,
    /// Every node, in plan order.
    pub nodes: Vec<NodeStatus>,
    /// Pools that the ledger knows something of.
    pub pools: Vec<PoolStatus>,
    /// The pause.
    pub pause: Option<PauseRecord>,
    /// What people should know although nothing failed.
    pub warnings: Vec<Warning>,
    /// What went wrong and how to mend it.
    pub friction: Vec<FrictionRecord>,
    /// Consumption of the run.
    pub usage: Usage,
    /// The last sign of life of a cycle.
    pub heartbeat: Option<Timestamp>,
    /// Events in the ledger.
    pub events: usize,
}

/// The newest run, or the one that was asked for, with its ledger.
async fn wanted(parts: &setup::Parts) -> Result<Option<(RunId, Journal)>, CycleError> {
    let (open, runs, _) = open::open_run(&parts.store).await?;
    if let Some(id) = &parts.options.run_id {
        open::known_run(&runs, id)?;
    }
    let wanted = parts.options.run_id.clone().or(open).or_else(|| runs.last().cloned());
    let Some(id) = wanted else { return Ok(None) };
    let journal = parts.journal(id.clone()).await?;
    Ok(Some((id, journal)))
}

pub(super) fn states_of(config: &Config, run: &Run, plan: &Plan) -> BTreeMap<NodeId, NodeState> {
    let max = &config.dispatch.max_attempts;
    let budget = AttemptBudget { contract: max.contract, infrastructure: max.infrastructure };
    node_states(run, plan, budget, depends_on(config))
}

/// The newest run, or the one that was asked for, as one HTML file; `None` without any.
///
/// # Errors
/// When the configuration, the store or git fails.
pub async fn run_report(options: Options) -> Result<Option<(RunId, String)>, CycleError> {
    let parts = setup::prepare(options).await?;
    let Some((id, journal)) = wanted(&parts).await? else { return Ok(None) };
    let plan = open::load_plan(&journal).await?;
    let events = journal.events().await?;
    let run = journal.state().clone();
    let states = states_of(&parts.config, &run, &plan);
    let facts = view::Facts {
        id: &id,
        run: &run,
        plan: &plan,
        config: &parts.config,
        base_branch: &run.base_branch,
        now: parts.clock.now(),
        dropped: &[],
        ready: None,
    };
    let page = html_report(&facts.report(&states, run_state(&run).to_owned(), events));
    Ok(Some((id, page)))
}

/// Reads the newest run, or the one that was asked for.
///
/// # Errors
/// When the configuration, the store or git fails.
pub async fn run_status(options: Options) -> Result<RunStatus, CycleError> {
    let parts = setup::prepare(options).await?;
    let Some((_, journal)) = wanted(&parts).await? else { return Ok(RunStatus::default()) };
    let plan = open::load_plan(&journal).await?;
    let run = journal.state().clone();
    let states = states_of(&parts.config, &run, &plan);
    let nodes = plan
        .nodes
        .iter()
        .map(|node| {
            let record = run.nodes.get(&node.id).cloned().unwrap_or_default();
            let done = states.get(&node.id).is_some_and(|state| state.is_done());
            let failure = record.failures.last().filter(|_| !done);
            NodeStatus {
                id: node.id.clone(),
                title: node.title.clone(),
                state: states.get(&node.id).map(|s| close::state_word(*s)).unwrap_or_default(),
                attempts: record.attempts,
                branch: view::branch_note(&run, &record),
                pull_request: record.pr.map(|pr| match pr.end {
                    None => pr.url,
                    Some(PrEnd::Merged(_)) => format!("{} (merged)", pr.url),
                    Some(PrEnd::Closed) => format!("{} (closed)", pr.url),
                }),
                last_failure: failure.map(|f| f.detail.clone()),
                failed_attempt: failure.map(|f| f.attempt.0),
            }
        })
        .collect();
    Ok(RunStatus {
        run_id: run.id.clone(),
        state: run_state(&run).to_owned(),
        counts: close::counts(&states),
        nodes,
        pools: pools(&run, parts.clock.now()),
        pause: run.pause.clone(),
        warnings: unproven::warnings(&parts.config, &plan, &run, &states),
        friction: run.friction.clone(),
        usage: run.usage,
        heartbeat: run.heartbeat,
        events: run.events,
    })
}

fn run_state(run: &Run) -> &'static str {
    if run.closed.is_some() {
        "closed"
    } else if run.cancelled.is_some() {
        "cancelled"
    } else if run.pause.is_some() {
        "paused"
    } else {
        "open"
    }
}

fn pools(run: &Run, now: Timestamp) -> Vec<PoolStatus> {
    run.pools
        .iter()
        .map(|(id, record)| {
            let outcome = |o| {
                let word = serde_json::to_value::<crate::model::Outcome>(o).ok();
                word.and_then(|v| v.as_str().map(|s| s.replace('_', " "))).unwrap_or_default()
            };
            let state = match (&record.settled, &record.paused) {
                (Some(s), _) if s.until.is_none_or(|u| u > now) => match s.until {
                    Some(until) => format!("out ({}) until {until}", outcome(s.outcome)),
                    None => format!("out ({}) until `unsettle {id}`", outcome(s.outcome)),
                },
                (_, Some(p)) if p.until > now => {
                    format!("waits ({}) until {}", outcome(p.outcome), p.until)
                }
                _ => "usable".to_owned(),
            };
            PoolStatus { id: id.clone(), state, usage: record.usage }
        })
        .collect()
}
