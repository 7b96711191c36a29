//! What every part of one cycle shares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::walls::AllWalls;
use super::{Clock, Journal};
use crate::backends::Worker;
use crate::config::Config;
use crate::forge::Forge;
use crate::git::{Oid, Remote, Repo};
use crate::ledger::{AttemptBudget, DependsOn, Holder, NodeState, node_states};
use crate::model::{NodeId, Plan, Pool, PoolId, RunId};
use crate::workspace::{Verifier, Workspace};

/// One pool of this cycle, ready to work.
#[derive(Clone)]
pub struct ReadyPool {
    /// What scheduling knows of it.
    pub pool: Pool,
    /// Who does its attempts; `None` for a host, which works elsewhere.
    pub worker: Option<Arc<dyn Worker>>,
    /// Program and version of its agent, where it is one.
    pub agent: Option<String>,
    /// Wall clock of one attempt.
    pub attempt_timeout: std::time::Duration,
}

/// A check that proves findings gone: prints findings of one tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recheck {
    /// Source name of the findings that it proves (the tool).
    pub source: String,
    /// Program and arguments, with `{paths}`.
    pub argv: Vec<String>,
}

/// The base branch as observed at the start of the cycle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaseHead {
    /// Short name.
    pub branch: String,
    /// Its head.
    pub commit: Oid,
}

/// Everything one cycle works with.
pub struct Cycle {
    /// The configuration.
    pub config: Config,
    /// The time.
    pub clock: Clock,
    /// This process, as claims name it.
    pub holder: Holder,
    /// The ledger.
    pub journal: Journal,
    /// The plan of the run.
    pub plan: Arc<Plan>,
    /// The base branch now.
    pub base: BaseHead,
    /// Where node branches go.
    pub remote: Remote,
    /// Worktrees and the object store.
    pub workspace: Workspace,
    /// Runs verify commands.
    pub verifier: Verifier,
    /// Pull requests, issues, comments.
    pub forge: Arc<dyn Forge>,
    /// The eligible pools.
    pub pools: BTreeMap<PoolId, ReadyPool>,
    /// Around everything that is started.
    pub(super) walls: AllWalls,
    /// Proofs by tool.
    pub rechecks: Vec<Recheck>,
    /// Where homes and scratch files go.
    pub scratch: PathBuf,
    /// Reads environment variables.
    pub env: Arc<super::Env>,
    /// When new work must no longer be started.
    pub deadline: Timestamp,
    /// The longest wait with nothing at work; any up to the deadline where absent.
    pub patience: Option<std::time::Duration>,
    /// What woke this cycle up.
    pub woken: super::Woken,
    /// Fires when everything must stop.
    pub cancel: CancellationToken,
    /// Tip of the integration: every accepted node merged onto the base, in order.
    pub integration: tokio::sync::Mutex<Oid>,
}

impl Cycle {
    /// Which run.
    #[must_use]
    pub fn run_id(&self) -> &RunId {
        self.journal.run_id()
    }

    /// The object store.
    #[must_use]
    pub fn repo(&self) -> &Repo {
        self.workspace.store()
    }

    /// Attempt budgets by configuration.
    #[must_use]
    pub fn attempt_budget(&self) -> AttemptBudget {
        let max = &self.config.dispatch.max_attempts;
        AttemptBudget { contract: max.contract, infrastructure: max.infrastructure }
    }

    /// When dependents may start, by configuration.
    #[must_use]
    pub fn depends_on(&self) -> DependsOn {
        depends_on(&self.config)
    }

    /// Every node's state now.
    #[must_use]
    pub fn states(&self) -> BTreeMap<NodeId, NodeState> {
        node_states(&self.journal.state(), &self.plan, self.attempt_budget(), self.depends_on())
    }
}

/// When dependents may start, by configuration.
pub(super) fn depends_on(config: &Config) -> DependsOn {
    match config.policy.dependencies {
        crate::config::Dependencies::Accepted => DependsOn::Accepted,
        crate::config::Dependencies::Landed => DependsOn::Landed,
    }
}
