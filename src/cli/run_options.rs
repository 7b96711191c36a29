//! Options that every command which touches a run shares, and how they become a cycle's options.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Failure, validate};
use crate::actions::Runtime;
use crate::config::HumanDuration;
use crate::cycle::{Clock, Env, Given, Options, Place, default_work_root};
use crate::git::Remote;
use crate::ledger::Holder;
use crate::model::RunId;

/// Where a run lives.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunArgs {
    /// The checkout.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repo: PathBuf,
    /// The configuration [default: .github/overhaul.yml in the checkout].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Keep pull requests, issues and comments as files in this folder instead of on GitHub.
    #[arg(long, value_name = "DIR", env = "OVERHAUL_LOCAL")]
    pub local: Option<PathBuf>,
    /// Where to push branches [default: the checkout's `origin`, else the checkout itself].
    #[arg(long, value_name = "URL")]
    pub remote: Option<String>,
    /// Folder for worktrees, outside the checkout [default: a cache folder].
    #[arg(long, value_name = "DIR", env = "OVERHAUL_WORK_DIR")]
    pub work_dir: Option<PathBuf>,
    /// Go on with this run.
    #[arg(long, value_name = "ID")]
    pub run_id: Option<RunId>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Reads the process environment.
pub(super) fn env() -> Arc<Env> {
    Arc::new(|name: &str| std::env::var(name).ok())
}

impl RunArgs {
    /// Options for a cycle.
    pub(super) fn options(
        &self,
        given: Given,
        time_budget: Option<Duration>,
        resume: bool,
    ) -> Result<Options, Failure> {
        let env = env();
        let file =
            self.config.clone().unwrap_or_else(|| self.repo.join(crate::config::DEFAULT_PATH));
        let config = validate::load(Some(&file))?;
        let runtime = Runtime::from_env(&|name| env(name));
        let work_root =
            self.work_dir.clone().unwrap_or_else(|| default_work_root(&self.repo, &*env));
        let place = match &self.local {
            Some(folder) => Place::Local(folder.clone()),
            None => Place::Local(work_root.join("forge")),
        };
        let remote = match &self.remote {
            None => None,
            Some(url) => Some(
                Remote::new(url, None)
                    .map_err(|e| Failure::usage("the remote can't be used").because(e))?,
            ),
        };
        let holder = if runtime.on_actions { runtime.holder() } else { Holder::default() };
        Ok(Options {
            repo: self.repo.clone(),
            config,
            remote,
            place,
            work_root,
            given,
            run_id: self.run_id.clone(),
            time_budget,
            resume,
            holder,
            env,
            clock: Clock::system(),
        })
    }
}

/// A duration as people write it: `90s`, `15m`, `6h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    HumanDuration::parse(text)
        .map(HumanDuration::get)
        .ok_or_else(|| format!("'{text}' is no duration; write for example 90s, 15m or 6h"))
}
