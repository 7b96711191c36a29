//! From a pool's configuration to its worker.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::SecretString;
use url::Url;

use super::agents::{AgentKind, AgentSettings, AgentWorker};
use super::command::{CommandKind, CommandSettings, CommandWorker};
use super::gateway::Upstream;
use super::openai::{Dialect, EndpointError, OpenAiSettings, OpenAiWorker, VerifyRunner};
use super::{Confinement, Worker};
use crate::config::{HeaderValue, PoolConfig, PoolNetwork, ToolMode};
use crate::model::{PoolId, Provider};
use crate::process::Walls;

/// What a worker needs besides its pool's configuration.
#[derive(Clone, Default)]
pub struct Surroundings {
    /// Runs the node's checks for the tool loop; without it, the tool is not offered.
    pub verify: Option<Arc<dyn VerifyRunner>>,
    /// Kernel limits for programs.
    pub walls: Walls,
    /// Bytes that worktree and home of a program may grow.
    pub disk_growth: Option<u64>,
}

/// Why a pool has no worker in this process.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// A host, or a provider without a worker here.
    #[error("pool {0} is not driven in this process")]
    NotInProcess(PoolId),
    /// No address.
    #[error("pool {0} has no base-url")]
    NoAddress(PoolId),
    /// A variable that must be set is not.
    #[error("pool {0} needs the environment variable {1}, which is not set or empty")]
    NoVariable(PoolId, String),
    /// The endpoint's settings are unusable.
    #[error("pool {0}: {1}")]
    Endpoint(PoolId, #[source] EndpointError),
}

/// Builds the worker of a pool. `env` looks up environment variables; no other is read.
///
/// # Errors
/// When the pool is not driven in-process, or what it needs is missing.
pub fn worker_for(
    pool: &PoolConfig,
    env: &dyn Fn(&str) -> Option<String>,
    around: &Surroundings,
) -> Result<Arc<dyn Worker>, WorkerError> {
    match pool.provider {
        Provider::OpenaiCompatible => openai(pool, env, around),
        Provider::SubprocessTemplate => command(CommandKind::Template, pool, env, around),
        Provider::WorkerCommand => command(CommandKind::Plain, pool, env, around),
        Provider::Codex | Provider::Opencode | Provider::ClaudeWorker | Provider::Agy => {
            agent(pool, env, around)
        }
        Provider::Host => Err(WorkerError::NotInProcess(pool.pool_id())),
    }
}

fn agent(
    pool: &PoolConfig,
    env: &dyn Fn(&str) -> Option<String>,
    around: &Surroundings,
) -> Result<Arc<dyn Worker>, WorkerError> {
    let id = || pool.pool_id();
    let kind = AgentKind::of(pool.provider).ok_or_else(|| WorkerError::NotInProcess(id()))?;
    let backend = pool.meter().backend;
    let upstream = pool.address().map(|_| upstream(pool, env)).transpose()?;
    Ok(Arc::new(AgentWorker::new(AgentSettings {
        kind,
        launcher: pool.launcher(),
        args: pool.args.clone(),
        // Behind a gateway the key stays there.
        env: named(pool.env.iter().filter(|name| Some(*name) != pool.key_env.as_ref()), env),
        upstream,
        backend,
        confinement: confinement(pool, &pool.launcher(), around),
    })))
}

fn confinement(pool: &PoolConfig, argv: &[String], around: &Surroundings) -> Confinement {
    Confinement {
        walls: around.walls.naming(argv),
        closed_network: pool.network == PoolNetwork::None,
        disk_growth: around.disk_growth,
    }
}

/// The variables of these names that are set.
fn named<'a>(
    names: impl Iterator<Item = &'a String>,
    env: &dyn Fn(&str) -> Option<String>,
) -> BTreeMap<String, SecretString> {
    names.filter_map(|name| Some((name.clone(), SecretString::from(env(name)?)))).collect()
}

fn openai(
    pool: &PoolConfig,
    env: &dyn Fn(&str) -> Option<String>,
    around: &Surroundings,
) -> Result<Arc<dyn Worker>, WorkerError> {
    let mut settings = OpenAiSettings::new(upstream(pool, env)?);
    settings.dialect = match pool.tools {
        ToolMode::Auto => None,
        ToolMode::Json => Some(Dialect::Json),
        ToolMode::Plain => Some(Dialect::Plain),
    };
    settings.verify.clone_from(&around.verify);
    let worker =
        OpenAiWorker::new(settings).map_err(|e| WorkerError::Endpoint(pool.pool_id(), e))?;
    Ok(Arc::new(worker))
}

/// The backend of a pool with an address, and the key that only a gateway holds.
///
/// # Errors
/// When a variable is missing or the settings are unusable.
pub fn upstream(
    pool: &PoolConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Upstream, WorkerError> {
    let id = || pool.pool_id();
    let unusable = |error| WorkerError::Endpoint(id(), error);
    let address = pool.address().ok_or_else(|| WorkerError::NoAddress(id()))?;
    let address =
        Url::parse(address).map_err(|_| unusable(EndpointError::Address(address.to_owned())))?;
    let look = |name: &str| {
        let value = env(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        value.ok_or_else(|| WorkerError::NoVariable(id(), name.to_owned()))
    };
    let key = pool.key_env.as_deref().map(look).transpose()?.map(SecretString::from);
    let mut upstream = Upstream::new(address, key, pool.meter().backend).map_err(unusable)?;
    for (name, value) in &pool.headers {
        let value = match value {
            HeaderValue::Text(text) => text.clone(),
            HeaderValue::Env(variable) => look(variable)?,
        };
        upstream.headers.insert(name.clone(), value.into());
    }
    upstream.check().map_err(unusable)?;
    Ok(upstream)
}

fn command(
    kind: CommandKind,
    pool: &PoolConfig,
    env: &dyn Fn(&str) -> Option<String>,
    around: &Surroundings,
) -> Result<Arc<dyn Worker>, WorkerError> {
    let mut settings = CommandSettings::new(kind, pool.command.clone());
    if pool.base_url.is_some() {
        settings.upstream = Some(upstream(pool, env)?);
        settings.key_variable.clone_from(&pool.key_env);
    }
    // Behind a gateway the key stays there.
    let gated = settings.upstream.is_some();
    let names = pool.env.iter().filter(|name| !(gated && Some(*name) == pool.key_env.as_ref()));
    settings.env = named(names.chain(pool.key_env.iter().filter(|_| !gated)), env);
    if let Some(backend) = &pool.backend {
        settings.backend.clone_from(backend);
    }
    settings.confinement = confinement(pool, &pool.command, around);
    Ok(Arc::new(CommandWorker::new(settings)))
}
