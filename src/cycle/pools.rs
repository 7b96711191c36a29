//! The pools of this cycle: which declared ones this process can prove it reaches, and their
//! workers. Each one that is left out has its reason.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::CycleError;
use super::context::ReadyPool;
use crate::backends::agents::installed;
use crate::backends::{Surroundings, Worker, worker_for};
use crate::config::{Config, Exclusion, PoolConfig};
use crate::ledger::Run;
use crate::model::{Pool, PoolId, Provider};
use crate::scheduling::Settled;
use crate::scheduling::pools::{Declared, Dropped, Reach, eligible};

/// How long a look at an endpoint or a launcher may take.
const REACH_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads one environment variable; the only way that the environment gets in here.
pub type Env = dyn Fn(&str) -> Option<String> + Send + Sync;

/// The eligible pools and the others.
#[derive(Default)]
pub struct PoolSet {
    /// Ready to work, by id.
    pub ready: BTreeMap<PoolId, ReadyPool>,
    /// Left out, with the reason.
    pub dropped: Vec<(PoolId, Dropped)>,
    /// Worth saying, one line each.
    pub warnings: Vec<String>,
}

impl PoolSet {
    /// Program and version of the agents that are ready.
    pub fn agents(&self) -> impl Iterator<Item = (PoolId, String)> + '_ {
        self.ready.iter().filter_map(|(id, ready)| Some((id.clone(), ready.agent.clone()?)))
    }
}

/// Builds the set, once per cycle.
///
/// # Errors
/// When an exclusion can't be read: exclusions fail closed.
pub async fn build(
    config: &Config,
    run: Option<&Run>,
    now: jiff::Timestamp,
    env: &Env,
    around: &Surroundings,
) -> Result<PoolSet, CycleError> {
    let mut reaches = Vec::new();
    for pool in config.pools() {
        reaches.push(reach(pool, env).await);
    }
    let (pools, mut out) = choose(config, run, now, reaches)?;
    let mut versions = Versions::default();
    for pool in pools {
        let Some(settings) = config.pool(&pool.id) else { continue };
        let agent = match versions.of(settings).await {
            Ok(agent) => agent,
            Err(why) => {
                out.dropped.push((pool.id.clone(), Dropped::Unreached(why)));
                continue;
            }
        };
        let worker = if pool.provider == Provider::Host {
            None
        } else {
            match worker_for(settings, env, around) {
                Ok(worker) => Some(worker),
                Err(why) => {
                    out.dropped.push((pool.id.clone(), Dropped::Unreached(why.to_string())));
                    continue;
                }
            }
        };
        if let Some(agent) = &agent {
            tracing::info!(pool = %pool.id, %agent, "an agent is ready");
        }
        out.ready.insert(pool.id.clone(), ready(config, pool, worker, agent));
    }
    Ok(out)
}

/// The set for jobs that hand work out and take it in: the pools are reached from the jobs
/// between, which hold the keys. So nothing is asked here, and no pool has a worker.
///
/// # Errors
/// As [`build`].
pub fn declared(
    config: &Config,
    run: Option<&Run>,
    now: jiff::Timestamp,
) -> Result<PoolSet, CycleError> {
    let reaches = config.pools().iter().map(|_| Reach::Reached).collect();
    let (pools, mut out) = choose(config, run, now, reaches)?;
    out.ready =
        pools.into_iter().map(|pool| (pool.id.clone(), ready(config, pool, None, None))).collect();
    Ok(out)
}

/// One pool, if this process reaches it and may drive it.
pub(super) async fn one(
    config: &Config,
    id: &PoolId,
    env: &Env,
    around: &Surroundings,
) -> Option<ReadyPool> {
    let settings = config.pool(id)?;
    let pool = settings.to_pool();
    if !pool.provider.is_in_process(config.dispatch.command_workers)
        || reach(settings, env).await != Reach::Reached
    {
        return None;
    }
    let agent = Versions::default().of(settings).await.ok()?;
    let worker = worker_for(settings, env, around).ok()?;
    Some(ready(config, pool, Some(worker), agent))
}

/// Why [`one`] gives nothing.
pub(super) async fn why_not(pool: &PoolConfig, env: &Env) -> String {
    match reach(pool, env).await {
        Reach::Unreached(why) => why,
        Reach::Reached => match Versions::default().of(pool).await {
            Err(why) => why,
            Ok(_) => "it is not driven by this command".to_owned(),
        },
    }
}

fn ready(
    config: &Config,
    pool: Pool,
    worker: Option<Arc<dyn Worker>>,
    agent: Option<String>,
) -> ReadyPool {
    let timeout = config.pool(&pool.id).and_then(|settings| settings.timeout);
    let attempt_timeout = timeout.unwrap_or(config.dispatch.attempt_timeout).get();
    ReadyPool { pool, worker, agent, attempt_timeout }
}

/// The eligible pools, by what is known of each in the order of the configuration.
fn choose(
    config: &Config,
    run: Option<&Run>,
    now: jiff::Timestamp,
    reaches: Vec<Reach>,
) -> Result<(Vec<Pool>, PoolSet), CycleError> {
    let exclusions = exclusions(config)?;
    let mut declared = Vec::new();
    for (pool, reach) in config.pools().iter().zip(reaches) {
        let id = pool.pool_id();
        let settled = run
            .and_then(|r| r.pools.get(&id))
            .and_then(|p| p.settled.as_ref())
            .filter(|s| s.until.is_none_or(|u| u > now))
            .map(|s| Settled { outcome: s.outcome, until: s.until.map(|u| u.as_millisecond()) });
        declared.push(Declared {
            pool: pool.to_pool(),
            excluded: exclusions
                .iter()
                .find(|(_, exclusion)| exclusion.matches(pool))
                .map(|(text, _)| (*text).to_owned()),
            account_known: pool.account.is_some() || pool.key_env.is_some(),
            reach,
            settled,
        });
    }
    let set = eligible(&declared, config.dispatch.command_workers);
    let idle = exclusions.iter().filter(|(_, e)| !config.pools().iter().any(|p| e.matches(p)));
    let warnings =
        idle.map(|(pattern, _)| format!("exclude: '{pattern}' matches no declared pool")).collect();
    let out = PoolSet { dropped: set.dropped, warnings, ..PoolSet::default() };
    Ok((set.pools, out))
}

/// # Errors
/// When one can't be read: exclusions fail closed.
fn exclusions(config: &Config) -> Result<Vec<(&str, Exclusion)>, CycleError> {
    let read = |text: &String| Exclusion::parse(text);
    let parsed: Result<Vec<_>, _> = config.exclude.iter().map(read).collect();
    let parsed = parsed.map_err(|e| {
        let remedy = "in `exclude`, name a provider, provider:model, or an endpoint host[:port]";
        CycleError::input(e.to_string(), remedy)
    })?;
    Ok(config.exclude.iter().map(String::as_str).zip(parsed).collect())
}

/// Versions of installed agents, each asked for once.
#[derive(Default)]
struct Versions(BTreeMap<Vec<String>, Result<String, String>>);

impl Versions {
    /// Program and version of an agent; `None` for other pools.
    async fn of(&mut self, pool: &PoolConfig) -> Result<Option<String>, String> {
        if !pool.provider.is_agent() {
            return Ok(None);
        }
        let launcher = pool.launcher();
        if !self.0.contains_key(&launcher) {
            let asked = installed(&launcher).await.map_err(|e| e.to_string());
            self.0.insert(launcher.clone(), asked);
        }
        let found = self.0.get(&launcher).cloned().unwrap_or_else(|| Err(String::new()))?;
        let program = launcher.first().map(std::path::Path::new);
        let program = program.and_then(|p| p.file_name()).unwrap_or_default().to_string_lossy();
        match &pool.version {
            Some(pinned) if *pinned != found => {
                Err(format!("{program} is {found}, and version {pinned} is asked for"))
            }
            _ => Ok(Some(format!("{program} {found}"))),
        }
    }
}

/// Whether this process can reach the pool.
async fn reach(pool: &PoolConfig, env: &Env) -> Reach {
    if let Some(variable) = &pool.key_env {
        let value = env(variable);
        if value.as_ref().is_none_or(|key| key.trim().is_empty()) {
            let how = if value.is_some() { "empty" } else { "not set" };
            return Reach::Unreached(format!("the environment variable {variable} is {how}"));
        }
    }
    match pool.provider {
        Provider::Host => Reach::Reached,
        Provider::OpenaiCompatible => match &pool.base_url {
            None => Reach::Unreached("it has no base-url".to_owned()),
            Some(url) => endpoint_answers(url).await,
        },
        Provider::Codex | Provider::Opencode | Provider::ClaudeWorker | Provider::Agy => {
            match pool.launcher().first().map_or(Reach::Reached, |program| launcher(program, env)) {
                Reach::Reached => match pool.address() {
                    Some(url) => endpoint_answers(url).await,
                    None => Reach::Reached,
                },
                missing => missing,
            }
        }
        Provider::SubprocessTemplate | Provider::WorkerCommand => {
            match pool.command.first() {
                None => Reach::Unreached("it has no command".to_owned()),
                // Placeholders and paths inside the worktree are resolved at work.
                Some(program) if program.contains('{') || program.starts_with('.') => {
                    Reach::Reached
                }
                Some(program) => launcher(program, env),
            }
        }
    }
}

pub(super) fn launcher(program: &str, env: &Env) -> Reach {
    let found = if program.contains('/') {
        std::path::Path::new(program).is_file()
    } else {
        env("PATH")
            .unwrap_or_default()
            .split(':')
            .any(|dir| std::path::Path::new(dir).join(program).is_file())
    };
    if found {
        Reach::Reached
    } else {
        Reach::Unreached(format!("the program {program} is not on PATH"))
    }
}

/// A connection is proof enough: endpoints differ in which paths they answer without work. Behind
/// a proxy the endpoint itself can't be asked; then the first attempt is the proof.
async fn endpoint_answers(url: &str) -> Reach {
    let Ok(url) = url::Url::parse(url) else {
        return Reach::Unreached("its base-url is not valid".to_owned());
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Reach::Unreached("its base-url names no host".to_owned());
    };
    if reqwest_uses_proxy() {
        return Reach::Reached;
    }
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let connect = tokio::net::TcpStream::connect((host.as_str(), port));
    match tokio::time::timeout(REACH_TIMEOUT, connect).await {
        Ok(Ok(_)) => Reach::Reached,
        Ok(Err(error)) => Reach::Unreached(format!("{host}:{port} does not answer: {error}")),
        Err(_) => Reach::Unreached(format!("{host}:{port} does not answer in 5 s")),
    }
}

fn reqwest_uses_proxy() -> bool {
    ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]
        .iter()
        .any(|name| std::env::var_os(name).is_some_and(|v| !v.is_empty()))
}
