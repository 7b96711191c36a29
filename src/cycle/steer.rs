//! What people tell a run: the same for comment commands and for the shell.

use serde::Serialize;

use super::setup::{self, Options};
use super::{CycleError, open, pause};
use crate::config::Config;
use crate::ledger::{Applied, EventKind, PauseCause};
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
    pub(super) fn event(&self, by: &str) -> EventKind {
        let by = by.to_owned();
        match self {
            Self::Resume => EventKind::Resumed { by },
            Self::Pause => EventKind::Paused {
                cause: PauseCause::Operator,
                nodes: Vec::new(),
                not_before: None,
            },
            Self::Retry(node) => EventKind::Retried { node: node.clone(), by },
            Self::Skip(node) => EventKind::Skipped { node: node.clone(), by },
            Self::Cancel => EventKind::Cancelled { by },
            Self::Unsettle(pool) => EventKind::Unsettled { pool: pool.clone(), by },
            Self::Budget(usd) => EventKind::BudgetRaised { usd: *usd, by },
        }
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
        }
    }
}

/// Writes an instruction into the open run's ledger.
///
/// # Errors
/// When there is no open run, the node or pool is not known, or the store fails.
pub async fn steer(options: Options, what: Steer, by: &str) -> Result<Steered, CycleError> {
    let parts = setup::prepare(options).await?;
    let wanted = match parts.options.run_id.clone() {
        Some(id) => Some(id),
        None => {
            let (open, runs, _) = open::open_run(&parts.store).await?;
            // A node of the run that closed last can be tried again, and that opens it.
            let last = if matches!(what, Steer::Retry(_)) { runs.last().cloned() } else { None };
            open.or(last)
        }
    };
    let Some(id) = wanted else {
        return Err(CycleError::input("there is no open run", "start one with `next-step`"));
    };
    let journal = parts.journal(id.clone()).await?;
    if let Steer::Retry(node) | Steer::Skip(node) = &what {
        check_node(&open::load_plan(&journal).await?, node)?;
    }
    if let Steer::Unsettle(pool) = &what {
        check_pool(&parts.config, pool)?;
    }
    let mut events = vec![what.event(by)];
    if what == Steer::Resume {
        events.extend(pause::lift(&journal.state(), by));
    }
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
