//! Options that every command which touches a run shares, and how they become a cycle's options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::{Failure, validate};
use crate::actions::{Log, Results, Runtime, SECRET_INPUTS};
use crate::config::{Config, DEFAULT_PATH, HeaderValue, HumanDuration, StateStore};
use crate::cycle::{
    Clock, Env, Given, JobArtifacts, Options, Place, Woken, default_work_root, on_default_branch,
};
use crate::forge::github::{Credentials, GitHub, GitHubSettings};
use crate::git::{Remote, Repo};
use crate::ledger::Holder;
use crate::model::RunId;
use crate::store::Artifacts;

/// Where a run lives.
#[derive(Debug, Clone, clap::Args)]
pub(super) struct RunArgs {
    /// The checkout.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub repo: PathBuf,
    /// The configuration [default: .github/overhaul.yml; in a job on Actions that of the default
    /// branch, whatever is checked out, else that of the checkout].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Path of the configuration in the repository, by the action's input.
    #[arg(skip)]
    pub committed: Option<String>,
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

/// The system's clock. Builds for tests can start at another time and go faster, so that waits are
/// tested without waiting.
fn clock() -> Clock {
    if cfg!(debug_assertions)
        && let Ok(text) = std::env::var("OVERHAUL_NOW")
        && let Ok(start) = text.parse()
    {
        let speed = std::env::var("OVERHAUL_SPEED").ok().and_then(|text| text.parse().ok());
        return Clock::starting_at(start).faster(speed.unwrap_or(1));
    }
    Clock::system()
}

impl RunArgs {
    /// The configuration, for commands that can do without a run.
    pub(super) async fn configuration(&self) -> Result<Config, Failure> {
        let env = env();
        let runtime = Runtime::from_env(&|name| env(name));
        if !self.is_of_default_branch(&runtime) {
            return self.checked_out();
        }
        let around = self.around(&runtime, &*env).await?;
        self.of_default_branch(&around, &*env).await
    }

    /// In a job anybody may have chosen what is checked out (the head of a pull request, what an
    /// agent left): only a named file is taken from there.
    fn is_of_default_branch(&self, runtime: &Runtime) -> bool {
        runtime.on_actions && self.config.is_none()
    }

    async fn of_default_branch(&self, around: &Around, env: &Env) -> Result<Config, Failure> {
        let path = self.committed.as_deref().unwrap_or(DEFAULT_PATH);
        let (place, remote) = (&around.place, around.remote.clone());
        let root = self.work_root(env);
        let found = on_default_branch(&self.repo, place, remote, &root, path).await;
        let (branch, bytes) = found.map_err(super::next_step::failure)?;
        let name = format!("{path} on branch {branch}");
        match bytes {
            Some(bytes) => validate::parse(&validate::text_of(bytes, &name)?, &name),
            None => Err(Failure::usage(format!("there is no {name}"))
                .because("a job's configuration is that of the default branch")
                .remedy(validate::how_to_get_one())),
        }
    }

    fn work_root(&self, env: &Env) -> PathBuf {
        self.work_dir.clone().unwrap_or_else(|| default_work_root(&self.repo, env))
    }

    /// The named configuration, else the checkout's; that of a bare repository is on its default
    /// branch.
    fn checked_out(&self) -> Result<Config, Failure> {
        let file = self.config.clone().unwrap_or_else(|| self.repo.join(DEFAULT_PATH));
        if self.config.is_some() || file.exists() || self.repo.join(".git").exists() {
            return validate::load(Some(&file));
        }
        match committed(&self.repo) {
            Some(text) => validate::parse(&text, DEFAULT_PATH),
            None => validate::load(Some(&file)),
        }
    }

    /// Options for a cycle.
    pub(super) async fn options(
        &self,
        given: Given,
        time_budget: Option<Duration>,
        resume: bool,
    ) -> Result<Options, Failure> {
        let env = env();
        let runtime = Runtime::from_env(&|name| env(name));
        let here =
            if self.is_of_default_branch(&runtime) { None } else { Some(self.checked_out()?) };
        let around = self.around(&runtime, &*env).await?;
        let config = match here {
            Some(config) => config,
            None => self.of_default_branch(&around, &*env).await?,
        };
        // On standard error: what a command prints for machines stays whole.
        mask(&runtime, &config, &*env, &mut Log::new(std::io::stderr().lock(), runtime.on_actions))
            .map_err(|e| Failure::failed("cannot write to standard error").because(e))?;
        let work_root = self.work_root(&*env);
        let Around { place, remote, github } = around;
        let mut artifacts: Option<Arc<dyn Artifacts>> = None;
        if let Some(github) = github.filter(|_| config.state.store == StateStore::Artifact) {
            let results = Results::from_env(&|name| env(name)).map_err(|why| {
                Failure::usage("`state: artifact` needs the results service of a job")
                    .because(why)
                    .remedy("run as an action (`uses:`), or use `state: branch`")
            })?;
            artifacts = Some(Arc::new(JobArtifacts::new(results, github)));
        }
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
            dry_run: false,
            holder,
            woken: woken(&runtime),
            artifacts,
            env,
            clock: clock(),
        })
    }
}

/// Where pull requests go, and where branches are pushed to.
struct Around {
    place: Place,
    remote: Option<Remote>,
    github: Option<Arc<GitHub>>,
}

impl RunArgs {
    async fn around(&self, runtime: &Runtime, env: &Env) -> Result<Around, Failure> {
        let given = self.remote.as_ref().map(|url| Remote::new(url, None)).transpose();
        let given = given.map_err(|e| Failure::usage("the remote can't be used").because(e))?;
        if let Some(folder) = &self.local {
            return Ok(Around { place: Place::Local(folder.clone()), remote: given, github: None });
        }
        let github = connect(runtime, env)?.ok_or_else(|| {
            Failure::usage("where do pull requests go?")
                .because("there is no token and repository of GitHub, and no --local")
                .remedy("name a folder with --local, or set GITHUB_TOKEN and GITHUB_REPOSITORY")
        })?;
        let remote = match given {
            Some(remote) => remote,
            None => github
                .git_remote()
                .await
                .map_err(|e| Failure::refused("no token to push with").because(e))?,
        };
        let github = Arc::new(github);
        Ok(Around {
            place: Place::Forge(github.clone()),
            remote: Some(remote),
            github: Some(github),
        })
    }
}

/// What of the event matters. One that can't be read only wakes, as any does.
fn woken(runtime: &Runtime) -> Woken {
    if !runtime.on_actions {
        return Woken::default();
    }
    let event = runtime.wakeup();
    if let Some(why) = event.trouble {
        let event = event.event;
        tracing::warn!(
            event,
            why,
            "the event's payload can't be read; it is a wake-up all the same"
        );
    }
    Woken {
        by_comment: event.by_comment,
        editor: event.edit,
        workflow: runtime.workflow(),
        url: runtime.run_url(),
    }
}

/// The configuration on the branch that `HEAD` of a bare repository names.
fn committed(repo: &Path) -> Option<String> {
    let repo = Repo::open(repo).ok()?;
    let tree = repo.tree_of(repo.find_ref("HEAD").ok()??).ok()?;
    let bytes = repo.read_path(tree, DEFAULT_PATH.as_bytes()).ok()??;
    String::from_utf8(bytes).ok()
}

/// Has the runner hide every secret that this process was given, whoever prints it later.
fn mask(
    runtime: &Runtime,
    config: &Config,
    env: &Env,
    log: &mut Log<impl std::io::Write>,
) -> std::io::Result<()> {
    let inputs = SECRET_INPUTS.iter().filter_map(|name| runtime.secret(name));
    let inputs = inputs.map(|secret| secret.expose_secret().to_owned());
    let pools = config.pools().iter().flat_map(|pool| {
        let headers = pool.headers.values().filter_map(|value| match value {
            HeaderValue::Env(name) => Some(name),
            HeaderValue::Text(_) => None,
        });
        pool.key_env.iter().chain(headers)
    });
    for secret in inputs.chain(pools.filter_map(|name| env(name))) {
        log.mask(&secret)?;
    }
    Ok(())
}

/// A duration as people write it: `90s`, `15m`, `6h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let span = HumanDuration::parse(text).map(HumanDuration::get);
    match span.filter(|span| !span.is_zero()) {
        Some(span) => Ok(span),
        None => Err(format!(
            "'{text}' is no duration longer than nothing; write for example 90s, 15m or 6h"
        )),
    }
}

/// The repository on GitHub, when there is a token and a name for it.
fn connect(runtime: &Runtime, env: &Env) -> Result<Option<GitHub>, Failure> {
    let Some(slug) = runtime.repository.as_deref() else { return Ok(None) };
    let app = runtime.input("app-id").zip(runtime.secret("app-private-key"));
    let token = runtime
        .secret("token")
        .cloned()
        .or_else(|| env("GITHUB_TOKEN").filter(|t| !t.trim().is_empty()).map(SecretString::from));
    let credentials = match (app, token) {
        (Some((id, key)), _) => {
            Credentials::App { app_id: id.to_owned(), private_key: key.clone(), installation: None }
        }
        // Tokens of people and of apps begin otherwise than the job's own.
        (None, Some(token)) if token.expose_secret().starts_with("gh") && !runtime.on_actions => {
            Credentials::Token(token)
        }
        (None, Some(token))
            if token.expose_secret().starts_with("ghp_")
                || token.expose_secret().starts_with("github_pat_") =>
        {
            Credentials::Token(token)
        }
        (None, Some(token)) => Credentials::Workflow(token),
        (None, None) => return Ok(None),
    };
    let settings = GitHubSettings::new(slug, credentials)
        .and_then(|settings| settings.addresses(env))
        .map_err(|e| Failure::usage("the repository on GitHub can't be used").because(e))?;
    GitHub::connect(settings)
        .map(Some)
        .map_err(|e| Failure::usage("GitHub can't be reached").because(e))
}
