//! `doctor`: what a cycle would need, looked at without starting one. Each finding that is not
//! good has one reason and one remedy.

use std::path::Path;

use serde::Serialize;

use super::error::blocking;
use super::next_step::{counted, surroundings};
use super::pools::{self, Env, PoolSet, launcher};
use super::prove::prove;
use super::setup::{self, Options, Parts, Place};
use super::walls::{self, AllWalls};
use super::{CycleError, names, open};
use crate::config::{Config, PoolConfig, SandboxMode};
use crate::forge::ForgeError;
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
    /// What it is about: `git`, `configuration`, `pool`, `key`, `model`, `windows`, `verify`, `recheck`,
    /// `remote`, `rights`, `state`, `sandbox` ...
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

/// Whether there is a repository to work on.
#[must_use]
pub fn repository(repo: &Path) -> Check {
    match git::Repo::open(repo) {
        Ok(_) => Check::ok("repository", "", format!("{} is one", repo.display())),
        Err(error) => Check::failure(
            "repository",
            "",
            format!("{} is not a git repository: {error}", repo.display()),
            "run it in a checkout, or name one with --repo",
        ),
    }
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
            "{}, findings from {}, {}",
            counted(config.pools().len(), "pool"),
            counted(config.findings.len(), "source"),
            counted(config.verify.commands.len(), "verify command")
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
    checks.extend(verified(&parts).await);
    checks.extend(in_base(&config, &parts));
    checks.extend(reports(&config, &parts).await);
    let store = parts.store.clone();
    let name = store.name();
    let runs = tokio::task::spawn_blocking(move || store.runs().map_err(|e| e.to_string())).await;
    checks.push(match runs.map_err(|e| e.to_string()).and_then(|runs| runs) {
        Ok(runs) => Check::ok("state", name, counted(runs.len(), "run")),
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
        Err(error) => return Some(of_error("verify", error)),
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

/// Scripts of the repository that verify commands, re-checks and workers start: they work on the base
/// commit, and what is only in the checkout is not there.
fn in_base(config: &Config, parts: &Parts) -> Vec<Check> {
    let verify = config.verify.commands.iter().map(|c| ("verify", c.name.clone(), c.argv.first()));
    let rechecks = config
        .findings
        .iter()
        .filter_map(|source| Some(("findings", source.key()?, source.recheck.first())));
    let pools = config.pools().iter().map(|p| ("pool", p.pool_id().0, p.command.first()));
    let all = verify.chain(rechecks).chain(pools);
    let scripts = all.filter_map(|(area, subject, program)| {
        let program = program?;
        let plain = program.strip_prefix("./").unwrap_or(program);
        let inside = program.contains('/') && !program.contains(['{', '~']);
        (inside && !program.starts_with('/')).then(|| (area, subject, plain.to_owned()))
    });
    let missing = scripts.filter(|(_, _, path)| !parts.base_holds(path));
    missing
        .map(|(area, subject, path)| {
            Check::warning(
                area,
                subject,
                format!("{path} is not in the base commit, which is what is worked on"),
                "commit and push it, unless a node is to make it",
            )
        })
        .collect()
}

/// The files of findings: on the base branch, or in the checkout. An open run needs none.
async fn reports(config: &Config, parts: &Parts) -> Vec<Check> {
    let open = open::open_run(&parts.store).await.is_ok_and(|(open, ..)| open.is_some());
    let files = config.findings.iter().filter_map(|source| source.file.clone());
    let check = |file: String| {
        if parts.base_holds(&file) {
            return Check::ok("findings", file, "on the base branch");
        }
        if parts.options.repo.join(&file).is_file() {
            return Check::ok("findings", file, "in the checkout");
        }
        let detail = "it is neither on the base branch nor in the checkout";
        let remedy =
            "make the report before overhaul runs, in a step of the job, or correct `file`";
        if open {
            let detail = format!("{detail}; the open run needs it no more, the next one does");
            return Check::warning("findings", file, detail, remedy);
        }
        Check::failure("findings", file, detail, remedy)
    };
    files.map(check).collect()
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
