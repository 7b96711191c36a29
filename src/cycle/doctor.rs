//! `doctor`: what a cycle would need, looked at without starting one. Each finding that is not
//! good has one reason and one remedy.

use std::path::Path;

use serde::Serialize;

use super::error::blocking;
use super::next_step::surroundings;
use super::pools::{self, Env, PoolSet, launcher};
use super::prove::prove;
use super::setup::{self, Options, Parts, Place};
use super::walls::{self, AllWalls};
use super::{CycleError, names};
use crate::config::{Config, PoolConfig, SandboxMode};
use crate::forge::ForgeError;
use crate::git;
use crate::model::Provider;
use crate::process::Layer;
use crate::scheduling::pools::{Dropped, Reach};

/// How one thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Health {
    /// Good.
    Ok,
    /// A cycle works, but not as it could.
    Warning,
    /// A cycle would not work.
    Failure,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Check {
    /// What it is about: `git`, `configuration`, `pool`, `key`, `model`, `windows`, `verify`, `remote`,
    /// `rights`, `state`, `sandbox` ...
    pub area: &'static str,
    /// Which one, where there are several.
    pub subject: String,
    /// How it is.
    pub health: Health,
    /// What was seen.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

impl Check {
    fn new(
        area: &'static str,
        subject: impl Into<String>,
        health: Health,
        detail: impl Into<String>,
    ) -> Self {
        Self { area, subject: subject.into(), health, detail: detail.into(), remedy: None }
    }

    /// Good.
    pub fn ok(area: &'static str, subject: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(area, subject, Health::Ok, detail)
    }

    /// Bad, with what to do.
    pub fn failure(
        area: &'static str,
        subject: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let check = Self::new(area, subject, Health::Failure, detail);
        Self { remedy: Some(remedy.into()), ..check }
    }

    /// Not as good as it could be, with what to do.
    pub fn warning(
        area: &'static str,
        subject: impl Into<String>,
        detail: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { health: Health::Warning, ..Self::failure(area, subject, detail, remedy) }
    }
}

/// What does not depend on a configuration: git and what the kernel offers.
#[must_use]
pub fn machine() -> Vec<Check> {
    let (major, minor) = git::MIN_VERSION;
    let git = match git::version() {
        Ok(version) => Check::ok("git", "", version),
        Err(error) => Check::failure(
            "git",
            "",
            error.to_string(),
            format!("install git {major}.{minor} or newer and put it on PATH"),
        ),
    };
    vec![git, limits()]
}

/// The sandbox as the kernel alone decides it.
#[must_use]
pub fn kernel(config: &Config) -> Vec<Check> {
    sandbox(config, &walls::kernel(config))
}

/// What keeps workers and checks in their place here; `layers` as a cycle found them, else what the
/// kernel says.
fn sandbox(config: &Config, layers: &[Layer]) -> Vec<Check> {
    if config.sandbox.mode == SandboxMode::Off {
        return vec![Check::warning(
            "sandbox",
            "",
            "it is off: workers and checks can do what the user can",
            "set `sandbox: {mode: best-effort}`, unless the machine is a sandbox itself",
        )];
    }
    let required = config.sandbox.mode == SandboxMode::Required;
    let check = |layer: &Layer| {
        if layer.held || !walls::wanted(layer, config) {
            return Check::ok("sandbox", layer.name, &layer.detail);
        }
        let remedy = match layer.name {
            "users" => "open what is named for other users, or leave it: the other layers hold",
            _ => "run on a newer kernel; docs/sandbox.md says what each layer is for",
        };
        if required && walls::is_needed(layer) {
            Check::failure("sandbox", layer.name, &layer.detail, remedy)
        } else {
            Check::warning("sandbox", layer.name, &layer.detail, remedy)
        }
    };
    layers.iter().map(check).collect()
}

fn limits() -> Check {
    match std::env::current_exe() {
        Ok(_) => Check::ok(
            "sandbox",
            "limits",
            "programs of workers and checks are limited in files, memory, processes and disk, and end \
             with this program however it ends",
        ),
        Err(error) => Check::warning(
            "sandbox",
            "limits",
            format!("this program cannot find itself, so workers run without limits: {error}"),
            "start overhaul from a file that stays in place",
        ),
    }
}

/// What the configuration asks of this machine: pools and verify commands.
pub async fn configured(config: &Config, repo: &Path, env: &Env) -> Vec<Check> {
    let mut checks = vec![Check::ok(
        "configuration",
        "",
        format!(
            "{} pools, {} sources of findings, {} verify commands",
            config.pools().len(),
            config.findings.len(),
            config.verify.commands.len()
        ),
    )];
    checks.extend(config.warnings().iter().map(|warning| {
        Check::warning("configuration", "", warning.to_string(), "see `overhaul validate`")
    }));
    match pools::build(
        config,
        None,
        jiff::Timestamp::UNIX_EPOCH,
        env,
        &surroundings(config, &AllWalls::default()),
    )
    .await
    {
        Ok(set) => {
            let reached = set.ready.keys().filter_map(|id| config.pool(id));
            let proofs = reached.map(|pool| prove(pool, env));
            let proofs = futures_util::future::join_all(proofs).await;
            checks.extend(pool_checks(config, &set, proofs));
        }
        Err(error) => checks.push(of_error("pool", error)),
    }
    for command in &config.verify.commands {
        let Some(program) = command.argv.first() else { continue };
        let there = if program.contains('/') {
            repo.join(program).is_file()
        } else {
            launcher(program, env) == Reach::Reached
        };
        checks.push(if there {
            Check::ok("verify", &command.name, format!("{program} is there"))
        } else {
            Check::failure(
                "verify",
                &command.name,
                format!("the program {program} is not there"),
                "install it before overhaul runs, or correct `argv`",
            )
        });
    }
    checks
}

/// What was seen of each pool; `proofs` are those of the reached ones, in their order.
fn pool_checks(config: &Config, set: &PoolSet, proofs: Vec<Vec<Check>>) -> Vec<Check> {
    let failed = |proof: &Vec<Check>| proof.iter().any(|c| c.health == Health::Failure);
    let good = proofs.iter().filter(|proof| !failed(proof)).count();
    let mut checks = Vec::new();
    let ready = set.ready.iter().filter_map(|(id, ready)| Some((id, ready, config.pool(id)?)));
    for ((id, ready, settings), proof) in ready.zip(proofs) {
        let how = match &ready.agent {
            _ if ready.worker.is_none() => "driven by a job of its own".to_owned(),
            Some(agent) => format!("{agent} is there"),
            None => "reached".to_owned(),
        };
        let detail = format!("{how}{}", means(settings));
        checks.push(if ready.agent.is_some() && settings.version.is_none() {
            let detail = format!("{detail}; no `version` is pinned, so a new one changes the work");
            Check::warning(
                "pool",
                id.to_string(),
                detail,
                "write the version that is there as `version`",
            )
        } else {
            Check::ok("pool", id.to_string(), detail)
        });
        checks.extend(proof.into_iter().map(|check| match check.health {
            // Others do its work.
            Health::Failure if good > 0 => Check { health: Health::Warning, ..check },
            _ => check,
        }));
    }
    for (id, why) in &set.dropped {
        let remedy = remedy(why, config.pool(id));
        let detail = why.to_string();
        checks.push(match why {
            // As it was asked for.
            Dropped::Excluded(_) | Dropped::SameAccount(_) => {
                Check::ok("pool", id.to_string(), detail)
            }
            // Others do its work.
            _ if good > 0 => Check::warning("pool", id.to_string(), detail, remedy),
            _ => Check::failure("pool", id.to_string(), detail, remedy),
        });
    }
    if config.pools().is_empty() {
        checks.push(Check::failure(
            "pool",
            "",
            "no pool is declared",
            "declare one under `pools` (docs/configuration.md)",
        ));
    }
    checks
}

/// Where it goes and which variable holds its key; never the key.
fn means(settings: &PoolConfig) -> String {
    let at = settings.endpoint().map(|e| format!(" at {e}")).unwrap_or_default();
    let key = settings.key_env.as_ref().map(|k| format!(", key in {k}")).unwrap_or_default();
    let program = match settings.provider {
        Provider::SubprocessTemplate | Provider::WorkerCommand => {
            settings.command.first().map(|c| format!(", runs {c}")).unwrap_or_default()
        }
        _ if settings.provider.is_agent() && settings.address().is_none() => {
            ", signs in by itself: its limits are only seen when they are hit".to_owned()
        }
        _ => String::new(),
    };
    format!("{at}{program}{key}")
}

fn remedy(why: &Dropped, settings: Option<&PoolConfig>) -> String {
    match (why, settings) {
        (Dropped::CommandWorkersOff, _) => {
            "set `dispatch: command-workers: true`, if its programs are trusted".to_owned()
        }
        (Dropped::Unreached(text), Some(pool)) if text.contains("environment variable") => format!(
            "set {}, in a workflow as a secret under `env`, or exclude the pool",
            pool.key_env.as_deref().unwrap_or("the variable that is named")
        ),
        (Dropped::Unreached(text), Some(pool))
            if pool.provider.is_agent() && !text.contains("answer") =>
        {
            let version = pool.version.as_deref().unwrap_or("a version that is proven to work");
            format!(
                "install {version} of the agent, correct `command` or `version`, or exclude the pool"
            )
        }
        (Dropped::Unreached(_), Some(pool)) if pool.address().is_some() => {
            "start the endpoint, correct `base-url`, or exclude the pool".to_owned()
        }
        (Dropped::Unreached(_), _) => {
            "install the program, correct `command`, or exclude the pool".to_owned()
        }
        _ => "exclude the pool, or mend what is named".to_owned(),
    }
}

/// Where the work goes: remote, base branch, state store, forge.
pub async fn places(options: Options) -> Vec<Check> {
    let config = options.config.clone();
    let parts = match setup::prepare(options).await {
        Ok(parts) => parts,
        Err(error) => {
            let mut checks = kernel(&config);
            checks.push(of_error("remote", error));
            return checks;
        }
    };
    let commit = parts.base.commit.to_string();
    let mut checks = vec![Check::ok(
        "remote",
        parts.base.branch.clone(),
        format!(
            "{} answers; the base is at {}",
            parts.remote.url(),
            commit.get(..12).unwrap_or("")
        ),
    )];
    checks.extend(rights(&parts).await);
    checks.extend(sandbox(&config, &parts.walls.layers));
    let store = parts.store.clone();
    let name = store.name();
    let runs = tokio::task::spawn_blocking(move || store.runs().map_err(|e| e.to_string())).await;
    checks.push(match runs.map_err(|e| e.to_string()).and_then(|runs| runs) {
        Ok(runs) => Check::ok("state", name, format!("{} runs", runs.len())),
        Err(why) => Check::failure("state", name, why, "make the place of `state` readable"),
    });
    checks
}

/// What the token may do, asked so that nothing comes of it.
async fn rights(parts: &Parts) -> Vec<Check> {
    let (repo, remote, commit) =
        (parts.workspace.store().clone(), parts.remote.clone(), parts.base.commit);
    let branch = names::full(&format!("{}/doctor", parts.config.pull_requests.branch_prefix));
    let pushed =
        blocking(move || remote.may_push(&repo, commit, &branch).map_err(CycleError::from));
    let mut checks = vec![match pushed.await {
        Ok(()) => Check::ok("rights", "push", "branches may be pushed"),
        Err(error @ CycleError::Git(git::GitError::Auth { .. })) => Check::failure(
            "rights",
            "push",
            error.to_string(),
            "add `contents: write` to `permissions:` of the job, or grant it to the app or token",
        ),
        Err(error) => of_error("rights", error),
    }];
    if !matches!(parts.options.place, Place::Forge(_)) {
        return checks;
    }
    checks.push(match parts.check_rights().await {
        Ok(()) => Check::ok("rights", parts.forge.name(), "what a run opens may be opened"),
        Err(ForgeError::Forbidden { action, message, remedy }) => {
            let detail = format!("not permitted to {action}: {message}");
            Check::failure("rights", parts.forge.name(), detail, remedy)
        }
        Err(error) => Check::failure(
            "rights",
            parts.forge.name(),
            error.to_string(),
            "mend what is named, and ask again",
        ),
    });
    checks
}

fn of_error(area: &'static str, error: CycleError) -> Check {
    match error {
        CycleError::Input { what, remedy } => Check::failure(area, "", what, remedy),
        CycleError::Git(_) => Check::failure(
            area,
            "",
            error.to_string(),
            "check the address of `origin` (or --remote) and that the token may read it",
        ),
        other => Check::failure(area, "", other.to_string(), "mend what is named, and ask again"),
    }
}
