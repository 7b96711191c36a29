//! `doctor`: what a cycle would need, looked at without starting one. Each finding that is not
//! good has one reason and one remedy.

use std::path::Path;

use serde::Serialize;

use super::error::blocking;
use super::next_step::surroundings;
use super::pools::{self, Env, PoolSet, launcher};
use super::setup::{self, Options, Parts};
use super::walls::{self, AllWalls};
use super::{CycleError, open};
use crate::config::{Config, PoolConfig, SandboxMode};
use crate::git;
use crate::model::Provider;
use crate::planning;
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
    /// What it is about: `git`, `configuration`, `pool`, `verify`, `recheck`, `remote`, `state`, `sandbox` ...
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
        Ok(set) => checks.extend(pool_checks(config, &set)),
        Err(error) => checks.push(of_error("pool", error)),
    }
    checks.extend(program_checks(config, repo, env));
    checks
}

/// The programs of verify commands and re-checks.
fn program_checks(config: &Config, repo: &Path, env: &Env) -> Vec<Check> {
    let verify = config.verify.commands.iter().map(|it| ("verify", it.name.clone(), &it.argv));
    let rechecks = config.findings.iter().filter(|source| !source.recheck.is_empty());
    let rechecks = rechecks.map(|it| ("recheck", it.key().unwrap_or_default(), &it.recheck));
    let check = |(area, name, argv): (&'static str, String, &Vec<String>)| {
        let program = argv.first()?;
        let there = if program.contains('/') {
            repo.join(program).is_file()
        } else {
            launcher(program, env) == Reach::Reached
        };
        Some(if there {
            Check::ok(area, name, format!("{program} is there"))
        } else {
            let why = format!("the program {program} is not there");
            let setting = if area == "verify" { "argv" } else { "recheck" };
            let remedy = format!("install it before overhaul runs, or correct `{setting}`");
            Check::failure(area, name, why, remedy)
        })
    };
    verify.chain(rechecks).filter_map(check).collect()
}

fn pool_checks(config: &Config, set: &PoolSet) -> Vec<Check> {
    let mut checks = Vec::new();
    for (id, ready) in &set.ready {
        let Some(settings) = config.pool(id) else { continue };
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
            _ if !set.ready.is_empty() => Check::warning("pool", id.to_string(), detail, remedy),
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
    checks.extend(sandbox(&config, &parts.walls.layers));
    checks.extend(verified(&parts).await);
    let store = parts.store.clone();
    let name = store.name();
    let runs = tokio::task::spawn_blocking(move || store.runs().map_err(|e| e.to_string())).await;
    checks.push(match runs.map_err(|e| e.to_string()).and_then(|runs| runs) {
        Ok(runs) => Check::ok("state", name, format!("{} runs", runs.len())),
        Err(why) => Check::failure("state", name, why, "make the place of `state` readable"),
    });
    checks
}

/// Whether a change would be verified by anything; configured commands are looked at one by one.
async fn verified(parts: &Parts) -> Option<Check> {
    let verify = &parts.config.verify;
    if !verify.commands.is_empty() {
        return None;
    }
    if let Some(why) = &verify.waive {
        return Some(Check::ok("verify", "", format!("no command is configured: {why}")));
    }
    let (repo, commit) = (parts.workspace.store().clone(), parts.base.commit);
    let there = blocking(move || open::what_is_there(&repo, commit)).await;
    let found = match there {
        Err(error) => return Some(of_error("verify", error.into())),
        Ok(there) => there.build_files.into_iter().find(planning::tells_commands),
    };
    Some(match found.filter(|_| verify.detect) {
        Some(build) => Check::ok(
            "verify",
            "",
            format!("no command is configured; what {} and its like tell is run", build.path),
        ),
        None => Check::warning(
            "verify",
            "",
            "no command is configured and none is detected: pull requests would open with nothing \
             verified, and say so",
            "declare `verify.commands`, or say in `verify.waive` why none is needed",
        ),
    })
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
