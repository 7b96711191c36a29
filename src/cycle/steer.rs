//! What people tell a run: the same for comment commands and for the shell.

use jiff::Timestamp;
use serde::Serialize;

use super::setup::{self, Options};
use super::{CycleError, open, pause};
use crate::config::Config;
use crate::ledger::{Applied, BranchAsk, EventKind, Landing, PauseCause, Run};
use crate::model::{NodeId, Plan, PoolId, RunId};

/// One instruction to a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Steer {
    /// Go on now, whatever the pause says.
    Resume,
    /// Stop until resumed.
    Pause,
    /// A failed or rejected node gets a new attempt budget.
    Retry(NodeId),
    /// A node is left out.
    Skip(NodeId),
    /// Nothing more is started.
    Cancel,
    /// A settled pool is used again.
    Unsettle(PoolId),
    /// More money for the run, US dollars.
    Budget(f64),
    /// What is on a node's branch is taken in, taken off or approved, by the next cycle.
    Branch(BranchAsk, NodeId),
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Steered {
    /// The run.
    pub run_id: RunId,
    /// Whether anything changed.
    pub changed: bool,
    /// One sentence.
    pub message: String,
}

impl Steer {
    pub(super) fn event(&self, by: &str, now: Timestamp) -> EventKind {
        let by = by.to_owned();
        match self {
            Self::Resume => EventKind::Resumed { by },
            Self::Pause => EventKind::Paused {
                cause: PauseCause::Operator,
                nodes: Vec::new(),
                not_before: None,
                by: Some(by),
            },
            Self::Retry(node) => EventKind::Retried { node: node.clone(), by },
            Self::Skip(node) => EventKind::Skipped { node: node.clone(), by },
            Self::Cancel => EventKind::Cancelled { by },
            Self::Unsettle(pool) => EventKind::Unsettled { pool: pool.clone(), by },
            Self::Budget(usd) => EventKind::BudgetRaised { usd: *usd, by },
            Self::Branch(ask, node) => EventKind::BranchAsked {
                node: node.clone(),
                ask: *ask,
                by,
                comment: 0,
                line: 0,
                said: now,
            },
        }
    }

    /// Everything that the instruction writes: whoever resumes also goes on past pools' pauses.
    pub(super) fn events(&self, run: &Run, by: &str, now: Timestamp) -> Vec<EventKind> {
        let mut events = vec![self.event(by, now)];
        if *self == Self::Resume {
            events.extend(pause::lift(run, by));
        }
        events
    }

    pub(super) fn done(&self) -> String {
        match self {
            Self::Resume => "resumed; the next cycle goes on at once".to_owned(),
            Self::Pause => "paused until `resume`".to_owned(),
            Self::Retry(node) => format!("{node} will be tried again"),
            Self::Skip(node) => format!("{node} is skipped"),
            Self::Cancel => "cancelled; nothing more is started".to_owned(),
            Self::Unsettle(pool) => format!("{pool} is used again"),
            Self::Budget(usd) => format!("{usd} US dollars more"),
            Self::Branch(_, node) => format!("the next cycle looks at the branch of {node}"),
        }
    }
}

/// Why an instruction would come to nothing, if it would.
fn pointless(run: &Run, what: &Steer) -> Option<String> {
    if let Some(by) = &run.cancelled {
        return Some(format!("the run was cancelled by {by}"));
    }
    match what {
        Steer::Resume if run.pause.is_none() && pause::lift(run, "").is_empty() => {
            Some("the run is not paused".to_owned())
        }
        Steer::Retry(node) | Steer::Skip(node) => {
            let record = run.nodes.get(node)?;
            let open = record.pr.as_ref().is_some_and(|pr| pr.end.is_none());
            (record.landing != Landing::None && open)
                .then(|| format!("{node} waits for a review; close its pull request first"))
        }
        _ => None,
    }
}

/// Writes an instruction into the open run's ledger.
///
/// # Errors
/// When there is no open run, the node or pool is not known, or the store fails.
pub async fn steer(options: Options, what: Steer, by: &str) -> Result<Steered, CycleError> {
    let parts = setup::prepare(options).await?;
    let (open, runs, _) = open::open_run(&parts.store).await?;
    if let Some(id) = &parts.options.run_id {
        open::known_run(&runs, id)?;
    }
    // A node of the run that closed last can be tried again, and that opens it.
    let last = if matches!(what, Steer::Retry(_)) { runs.last().cloned() } else { None };
    let wanted = parts.options.run_id.clone().or(open).or(last);
    let Some(id) = wanted else {
        return Err(match runs.last() {
            None => CycleError::input("there is no run yet", "start one with `next-step`"),
            Some(closed) => CycleError::input(
                format!("there is no open run; {closed} is closed"),
                "`retry NODE` opens it again; new findings open a new run",
            ),
        });
    };
    let journal = parts.journal(id.clone()).await?;
    if let Steer::Retry(node) | Steer::Skip(node) | Steer::Branch(_, node) = &what {
        check_node(&open::load_plan(&journal).await?, node)?;
    }
    if let Steer::Unsettle(pool) = &what {
        check_pool(&parts.config, pool)?;
    }
    if let Some(why) = pointless(&journal.state(), &what) {
        return Ok(Steered {
            run_id: id,
            changed: false,
            message: format!("nothing changed: {why}"),
        });
    }
    let events = what.events(&journal.state(), by, parts.clock.now());
    let written = journal.write(events).await?;
    let message = match written.applied.first() {
        Some(Applied::No(why)) => format!("nothing changed: {why}"),
        _ => what.done(),
    };
    Ok(Steered { run_id: id, changed: written.all(), message })
}

/// # Errors
/// When the plan has no such node.
pub(super) fn check_node(plan: &Plan, node: &NodeId) -> Result<(), CycleError> {
    if plan.node(node).is_some() {
        return Ok(());
    }
    let known: Vec<&str> = plan.nodes.iter().map(|n| n.id.as_str()).collect();
    let near = crate::model::nearest(node.as_str(), &known);
    Err(CycleError::input(
        format!("the run has no node {node}"),
        match near {
            Some(near) => format!("did you mean {near}?"),
            None => "see `status` for the nodes".to_owned(),
        },
    ))
}

/// # Errors
/// When the configuration has no such pool.
pub(super) fn check_pool(config: &Config, pool: &PoolId) -> Result<(), CycleError> {
    if config.pool(pool).is_some() {
        return Ok(());
    }
    let known: Vec<String> = config.pools().iter().map(|p| p.pool_id().to_string()).collect();
    Err(CycleError::input(
        format!("the configuration has no pool {pool}"),
        format!("the pools are: {}", known.join(", ")),
    ))
}
