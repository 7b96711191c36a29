//! The pools of this cycle: which declared ones this process can prove it reaches, and their
//! workers. Each one that is left out has its reason.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::http::Uri;
use futures_util::future::join_all;
use hyper_util::client::proxy::matcher::Matcher;

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
    let reaches = join_all(config.pools().iter().map(|pool| reach(pool, env))).await;
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
            // The name of a key's variable is one of ours, and may be of any account.
            account_known: pool.account.is_some(),
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
        let program = launcher.first().map(Path::new);
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
    if let Some(variable) = &pool.key_env
        && env(variable).is_none_or(|k| k.trim().is_empty())
    {
        return Reach::Unreached(format!("the environment variable {variable} is empty"));
    }
    match pool.provider {
        Provider::Host => Reach::Reached,
        Provider::OpenaiCompatible => match &pool.base_url {
            None => Reach::Unreached("it has no base-url".to_owned()),
            Some(url) => endpoint_answers(url, env).await,
        },
        Provider::Codex | Provider::Opencode | Provider::ClaudeWorker | Provider::Agy => {
            match pool.launcher().first().map_or(Reach::Reached, |program| launcher(program, env)) {
                Reach::Reached => match pool.address() {
                    Some(url) => endpoint_answers(url, env).await,
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
    let folders = env("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = if program.contains('/') {
        vec![program.into()]
    } else {
        folders.split(':').map(|folder| Path::new(folder).join(program)).collect()
    };
    if places.iter().any(|place| is_program(place)) {
        return Reach::Reached;
    }
    Reach::Unreached(match places.iter().find(|place| place.is_file()) {
        Some(place) => format!("the file {} may not be executed", place.display()),
        None => format!("the program {program} is not on PATH"),
    })
}

fn is_program(path: &Path) -> bool {
    let executable = |found: std::fs::Metadata| found.permissions().mode() & 0o111 != 0;
    path.is_file() && path.metadata().is_ok_and(executable)
}

/// A connection is proof enough: endpoints differ in which paths they answer without work. Behind
/// a proxy the endpoint itself can't be asked; then the first attempt is the proof.
async fn endpoint_answers(url: &str, env: &Env) -> Reach {
    let Ok(url) = url::Url::parse(url) else {
        return Reach::Unreached("its base-url is not valid".to_owned());
    };
    let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
        return Reach::Unreached("its base-url names no host".to_owned());
    };
    if behind_proxy(&url, env) {
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

/// Whether our HTTP client asks a proxy for this address. It never does for loopback.
fn behind_proxy(url: &url::Url, env: &Env) -> bool {
    let loopback = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    let set = |name: &str| env(name).or_else(|| env(&name.to_ascii_lowercase()));
    let set = |name: &str| set(name).unwrap_or_default();
    let proxies = Matcher::builder()
        .all(set("ALL_PROXY"))
        .http(set("HTTP_PROXY"))
        .https(set("HTTPS_PROXY"))
        .no(set("NO_PROXY"))
        .build();
    let address = url.as_str().parse::<Uri>();
    !loopback && address.is_ok_and(|address| proxies.intercept(&address).is_some())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::{Env, Reach, behind_proxy, choose, launcher};
    use crate::config::{Config, PoolConfig};
    use crate::model::Provider;

    fn env(set: &[(&str, &str)]) -> Box<Env> {
        let set: BTreeMap<String, String> =
            set.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Box::new(move |name| set.get(name).cloned())
    }

    #[test]
    fn an_account_is_known_where_it_is_declared() {
        let pool = |provider, id: &str, account: Option<&str>| {
            let mut pool = PoolConfig::new(provider, "m");
            pool.id = Some(id.to_owned());
            pool.backend = Some("x".to_owned());
            pool.account = account.map(str::to_owned);
            pool
        };
        let host_stays = |host, own| {
            let mut worker = pool(Provider::OpenaiCompatible, "w", own);
            worker.key_env = Some("KEY".to_owned());
            let pools = vec![pool(Provider::Host, "h", host), worker];
            let config = Config { pools, ..Config::default() };
            let reached = vec![Reach::Reached, Reach::Reached];
            let (kept, _) = choose(&config, None, jiff::Timestamp::UNIX_EPOCH, reached).unwrap();
            assert!(kept.iter().any(|kept| kept.id.0 == "w"));
            kept.len() == 2
        };
        assert!(!host_stays(Some("team"), None), "an undeclared account may be the host's");
        assert!(!host_stays(Some("team"), Some("team")));
        assert!(host_stays(Some("team"), Some("other")));
        assert!(host_stays(None, None), "an unknown account of a host is nobody's");
    }

    #[test]
    fn a_proxy_stands_before_its_addresses_and_no_others() {
        let set = env(&[
            ("HTTPS_PROXY", "http://proxy.example:3128"),
            ("no_proxy", ".corp.example,10.0.0.0/8"),
        ]);
        let behind = |url: &str, env: &Env| behind_proxy(&url.parse().unwrap(), env);
        assert!(behind("https://api.vendor.example/v1", &*set));
        for direct in [
            "http://api.vendor.example/v1",
            "https://models.corp.example/v1",
            "https://10.1.2.3:8000/v1",
            "https://127.0.0.1:8000/v1",
            "https://[::1]:8000/v1",
            "https://localhost/v1",
        ] {
            assert!(!behind(direct, &*set), "{direct}");
        }
        let all = env(&[("all_proxy", "http://proxy.example:3128")]);
        assert!(behind("http://api.vendor.example/v1", &*all));
        assert!(!behind("https://api.vendor.example/v1", &*env(&[])));
    }

    #[test]
    fn a_launcher_may_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("agent");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        let set = env(&[("PATH", &format!("/nowhere:{}", dir.path().display()))]);
        let found = |program: &str| launcher(program, &*set);
        for program in ["agent", file.to_str().unwrap()] {
            assert!(matches!(found(program), Reach::Unreached(why) if why.contains("executed")));
        }
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(found("agent"), Reach::Reached);
        assert_eq!(found(file.to_str().unwrap()), Reach::Reached);
        assert!(matches!(found("other"), Reach::Unreached(why) if why.contains("not on PATH")));
    }
}
