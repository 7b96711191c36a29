//! `overhaul.yml`: typed configuration with positions, validation and JSON Schema. Pure.
//!
//! [`Config::load`] takes the text and gives the configuration or every error it found, each with
//! line, column and a remedy. Reading the file is the caller's business.

mod check;
mod error;
mod exclude;
mod load;
mod locate;
mod models;
mod placeholder;
mod pool;
mod sandbox;
mod scalar;
mod schema;
mod secret;
mod sections;
mod state;

#[cfg(test)]
mod tests;

pub use error::{ConfigError, ConfigErrors};
pub use exclude::{Exclusion, ExclusionError};
pub use load::MAX_CONFIG_BYTES;
pub(crate) use load::meant;
pub use models::{KnownModel, WindowSource, Windows, known_model, windows};
pub use placeholder::fill;
pub use pool::{HeaderValue, PoolConfig, ToolMode};
pub use sandbox::{PoolNetwork, Sandbox, SandboxMode, UnixSockets};
pub use scalar::{Dial, HumanDuration};
pub use schema::{DRAFT, config_schema};
pub use sections::{
    Budget, CodeScanning, Commands, Continuation, Dependencies, Dispatch, FindingsFormat,
    FindingsSource, Fuse, Issues, MaxAttempts, NewFindings, Noise, Origin, Pauses, Permission,
    Planning, Policy, PullRequestMode, PullRequests, Rebuild, Report, ScopeAmend, Verify,
    VerifyRule,
};
pub use state::{State, StateStore};

use serde::{Deserialize, Serialize};

/// Where the configuration lives in a repository, unless the caller says otherwise.
pub const DEFAULT_PATH: &str = ".github/overhaul.yml";

/// The whole of `overhaul.yml`. Everything but `version` and `pools` has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Config {
    /// Format version; 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// The branch that pull requests are for; the repository's default branch where absent.
    #[serde(default)]
    pub base: Option<String>,
    /// Where findings come from.
    #[serde(default)]
    pub findings: Vec<FindingsSource>,
    /// How findings become nodes.
    #[serde(default)]
    pub planning: Planning,
    /// Who does the work.
    pub pools: Vec<PoolConfig>,
    /// Pools not to use: `provider`, `provider:model`, or an endpoint `host[:port]`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// How nodes meet pools.
    #[serde(default)]
    pub dispatch: Dispatch,
    /// What must pass before a change is accepted.
    #[serde(default)]
    pub verify: Verify,
    /// What a change may touch.
    #[serde(default)]
    pub policy: Policy,
    /// What workers and checks may reach.
    #[serde(default)]
    pub sandbox: Sandbox,
    /// How accepted nodes become pull requests.
    #[serde(default)]
    pub pull_requests: PullRequests,
    /// Where a pause is announced.
    #[serde(default)]
    pub pauses: Pauses,
    /// Comment commands.
    #[serde(default)]
    pub commands: Commands,
    /// Where the run's ledger is kept.
    #[serde(default)]
    pub state: State,
    /// What people see.
    #[serde(default)]
    pub report: Report,
}

impl Config {
    /// Reads the text of a configuration; `file` is its name for people.
    ///
    /// # Errors
    /// Every structural or semantic error that was found, in the order of their positions.
    pub fn load(text: &str, file: &str) -> Result<Self, ConfigErrors> {
        load::load(text, file)
    }

    /// The defaults, with no pools: for commands that need no file.
    #[must_use]
    pub fn minimal() -> Self {
        Self {
            version: 1,
            base: None,
            findings: Vec::new(),
            planning: Planning::default(),
            pools: Vec::new(),
            exclude: Vec::new(),
            dispatch: Dispatch::default(),
            verify: Verify::default(),
            policy: Policy::default(),
            sandbox: Sandbox::default(),
            pull_requests: PullRequests::default(),
            pauses: Pauses::default(),
            commands: Commands::default(),
            state: State::default(),
            report: Report::default(),
        }
    }

    /// The declared pools, excluded ones too.
    #[must_use]
    pub fn pools(&self) -> &[PoolConfig] {
        &self.pools
    }

    /// The pool with this declared or derived id.
    #[must_use]
    pub fn pool(&self, id: &crate::model::PoolId) -> Option<&PoolConfig> {
        self.pools.iter().find(|p| &p.pool_id() == id)
    }

    /// The exclusions; a malformed one is an error of [`Config::load`], so none is lost here.
    #[must_use]
    pub fn exclusions(&self) -> Vec<Exclusion> {
        self.exclude.iter().filter_map(|text| Exclusion::parse(text).ok()).collect()
    }

    /// Things that are allowed and probably not meant, one line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for exclusion in self.exclusions() {
            if !self.pools.iter().any(|pool| exclusion.matches(pool)) {
                warnings.push(format!("exclude: '{exclusion}' matches no declared pool"));
            }
        }
        if self.verify.commands.is_empty() && !self.verify.detect && self.verify.waive.is_none() {
            warnings.push(
                "verify: no command, no detection and no waiver; every node will need its own"
                    .to_owned(),
            );
        }
        warnings
    }
}

impl Default for Config {
    fn default() -> Self {
        Self::minimal()
    }
}
