//! The checks of `pools`.

use std::collections::HashMap;

use url::Url;

use super::Checker;
use crate::config::locate::{Path, at};
use crate::config::pool::provider_name;
use crate::config::{Config, HeaderValue, PoolConfig, PoolNetwork, ToolMode, Windows, secret};
use crate::model::{PoolId, Provider};

/// Placeholders of pool commands.
const PLACEHOLDERS: &[&str] =
    &["prompt-file", "result-file", "paths", "node", "workdir", "base-url"];

/// Tokens of the job itself: no worker may see them.
const RUNNER_SECRETS: &[&str] = &[
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "ACTIONS_RUNTIME_TOKEN",
    "ACTIONS_RESULTS_URL",
    "ACTIONS_ID_TOKEN_REQUEST_TOKEN",
    "ACTIONS_ID_TOKEN_REQUEST_URL",
];

pub(super) fn check(c: &mut Checker<'_>, config: &Config) {
    if config.pools.is_empty() {
        c.error(
            &at!["pools"],
            "no pool is declared",
            "add at least one; `overhaul schema` shows every setting",
        );
    }
    let mut ids: HashMap<PoolId, usize> = HashMap::new();
    for (nth, pool) in config.pools.iter().enumerate() {
        let at = at!["pools", nth];
        one(c, &at, pool, config);
        let id = pool.pool_id();
        if let Some(first) = ids.get(&id) {
            let declared = if pool.id.is_some() { "id" } else { "derived id" };
            c.error(
                &if pool.id.is_some() { at.key("id") } else { at.clone() },
                format!("pools[{nth}] has the {declared} `{id}`, as pools[{first}] has"),
                "give one of them an `id` or an `account` of its own",
            );
        } else {
            ids.insert(id, nth);
        }
    }
}

fn one(c: &mut Checker<'_>, at: &Path, pool: &PoolConfig, config: &Config) {
    let name = provider_name(pool.provider);
    let is_command =
        matches!(pool.provider, Provider::SubprocessTemplate | Provider::WorkerCommand);
    for (key, text) in [("id", &pool.id), ("account", &pool.account), ("backend", &pool.backend)] {
        if let Some(text) = text {
            c.filled(&at.key(key), text, "give it a name, or leave it out");
        }
    }
    if pool.model.trim().is_empty() && !is_command && pool.provider != Provider::Host {
        c.error(
            &at.key("model"),
            format!("a pool of `{name}` needs a `model`"),
            "name the model as the backend knows it",
        );
    }
    command(c, at, pool, config, is_command);
    reach(c, at, pool, config);
    numbers(c, at, pool);
}

fn command(c: &mut Checker<'_>, at: &Path, pool: &PoolConfig, config: &Config, is_command: bool) {
    let name = provider_name(pool.provider);
    if is_command {
        if pool.command.is_empty() {
            c.error(
                &at.key("command"),
                format!("a pool of `{name}` needs a `command`"),
                "write the program and its arguments: `[fix-tool, \"{prompt-file}\"]`",
            );
        }
        if !config.dispatch.command_workers {
            c.error(
                &at.key("provider"),
                format!("a pool of `{name}` runs a command, and command workers are off"),
                "set `dispatch.command-workers: true` to allow it, or remove the pool",
            );
        }
    } else if pool.provider == Provider::Host && !pool.command.is_empty() {
        c.error(
            &at.key("command"),
            "a host pool has no `command`",
            "remove it; the job with the matrix runs the worker",
        );
    } else if pool.provider == Provider::OpenaiCompatible && !pool.command.is_empty() {
        c.error(
            &at.key("command"),
            format!("a pool of `{name}` runs no `command`"),
            "remove it, or choose the provider that runs it",
        );
    }
    let no_program = matches!(pool.provider, Provider::OpenaiCompatible | Provider::Host);
    if no_program && pool.network != PoolNetwork::Any {
        c.error(
            &at.key("network"),
            format!("a pool of `{name}` runs no program here whose network could be closed"),
            "remove it; checks have no network unless `verify.network` says so",
        );
    }
    if pool.provider.is_agent() {
        agent(c, at, pool);
    } else {
        only_agents(c, at, pool);
    }
    let placeholders = if pool.provider.is_agent() { &[] } else { PLACEHOLDERS };
    c.argv(&at.key("command"), &pool.command, placeholders);
    for (nth, variable) in pool.env.iter().enumerate() {
        let at = at.key("env").index(nth);
        if !env_name(c, &at, variable) {
            continue;
        }
        let other_key = config
            .pools
            .iter()
            .any(|p| p.key_env.as_deref() == Some(variable.as_str()) && p.key_env != pool.key_env);
        if RUNNER_SECRETS.contains(&variable.as_str()) || variable.starts_with("INPUT_") {
            c.error(
                &at,
                format!("`{variable}` belongs to the job; no worker may see it"),
                "remove it, or give the worker a variable of its own",
            );
        } else if other_key {
            c.error(
                &at,
                format!("`{variable}` is another pool's key"),
                "remove it; a worker sees only its own key",
            );
        }
    }
}

/// What an agent takes, and what would be ignored.
fn agent(c: &mut Checker<'_>, at: &Path, pool: &PoolConfig) {
    let name = provider_name(pool.provider);
    for (nth, argument) in pool.args.iter().enumerate() {
        if argument.contains('\0') {
            c.error(&at.key("args").index(nth), "args holds a NUL character", "remove it");
        }
    }
    if let Some(version) = &pool.version {
        c.filled(&at.key("version"), version, "write the version, or leave it out");
    }
    if pool.tools != ToolMode::Auto {
        c.error(
            &at.key("tools"),
            format!("`{name}` brings its own tools"),
            "remove it; only `openai-compatible` is asked for edits by us",
        );
    }
    let gated = pool.address().is_some();
    if pool.provider == Provider::Agy {
        for (key, used) in
            [("base-url", pool.base_url.is_some()), ("key-env", pool.key_env.is_some())]
        {
            if used {
                c.error(
                    &at.key(key),
                    format!("`agy` signs in by itself and takes no `{key}`"),
                    "remove it; name the variables that it signs in with under `env`",
                );
            }
        }
    } else if pool.key_env.is_some() && !gated {
        c.error(
            &at.key("base-url"),
            format!("a pool of `{name}` with a key needs a `base-url`"),
            "write the endpoint that takes the key; without a key it signs in by itself",
        );
    }
    if !gated && !pool.headers.is_empty() {
        c.error(
            &at.key("headers"),
            format!("`{name}` signs in by itself here, so nothing can add headers"),
            "remove them, or name an endpoint as `base-url`",
        );
    }
}

/// Settings of agents at other pools would be ignored.
fn only_agents(c: &mut Checker<'_>, at: &Path, pool: &PoolConfig) {
    let name = provider_name(pool.provider);
    for (key, used) in [("args", !pool.args.is_empty()), ("version", pool.version.is_some())] {
        if used {
            c.error(
                &at.key(key),
                format!("`{key}` is for agents (`codex`, `opencode`, `claude-worker`, `agy`), not for `{name}`"),
                "remove it; arguments of a command belong into `command`",
            );
        }
    }
}

fn reach(c: &mut Checker<'_>, at: &Path, pool: &PoolConfig, config: &Config) {
    if pool.provider == Provider::OpenaiCompatible && pool.base_url.is_none() {
        c.error(
            &at.key("base-url"),
            "a pool of `openai-compatible` needs a `base-url`",
            "write the endpoint up to its version, for example `https://integrate.api.nvidia.com/v1`",
        );
    }
    if let Some(text) = &pool.base_url {
        base_url(c, &at.key("base-url"), text);
    }
    if let Some(name) = &pool.key_env {
        env_name(c, &at.key("key-env"), name);
    }
    if let Some(timeout) = pool.timeout {
        c.duration(&at.key("timeout"), timeout);
        if timeout > config.dispatch.lease {
            c.error(
                &at.key("timeout"),
                format!("an attempt of {timeout} outlives the lease of {}", config.dispatch.lease),
                "shorten it, or lengthen `dispatch.lease`",
            );
        }
    }
    for (header, value) in &pool.headers {
        let at = at.key("headers").key(header.as_str());
        // RFC 9110 §5.6.2: a field name is a token.
        if header.is_empty()
            || !header.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
        {
            c.error(
                &at,
                format!("`{}` is no header name", header.escape_debug()),
                "use letters, digits and dashes",
            );
        }
        match value {
            HeaderValue::Env(name) => {
                env_name(c, &at.key("env"), name);
            }
            HeaderValue::Text(text) if text.chars().any(|ch| ch.is_control() && ch != '\t') => {
                c.error(
                    &at,
                    format!("the value of `{header}` holds a control character"),
                    "write it on one line",
                );
            }
            HeaderValue::Text(_) => {}
        }
    }
}

fn base_url(c: &mut Checker<'_>, at: &Path, text: &str) {
    let remedy = "write the endpoint up to its version, for example `http://localhost:8000/v1`";
    match Url::parse(text) {
        Err(error) => c.error(at, format!("{at} is no URL: {error}"), remedy),
        Ok(url) if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() => {
            c.error(at, format!("{at} must begin with http:// or https://"), remedy);
        }
        Ok(_) if secret::looks_secret(text) => {} // reported where secrets are looked for
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            c.error(
                at,
                format!("{at} holds a user name or a password"),
                "name the variable of the key in `key-env` instead",
            );
        }
        Ok(url) if url.query().is_some() || url.fragment().is_some() => {
            c.error(
                at,
                format!("{at} has a query or a fragment"),
                "paths are appended to it; write it without `?` and `#`, and keys in `key-env`",
            );
        }
        Ok(url) if url.path().trim_end_matches('/').ends_with("/chat/completions") => {
            c.error(
                at,
                format!("{at} names an operation, not the endpoint"),
                "drop `/chat/completions`",
            );
        }
        Ok(_) => {}
    }
}

/// Never echoes the text: it may be a key.
fn env_name(c: &mut Checker<'_>, at: &Path, name: &str) -> bool {
    let valid = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if secret::looks_generated(name) {
        // A recognised form is already reported where secrets are looked for.
        if !secret::looks_secret(name) {
            c.hidden(at, format!("{at} looks like a key, not like the name of a variable"), "put the key into an environment variable (a repository secret) and write its name here; then revoke this key");
        }
        return false;
    }
    if !valid {
        c.hidden(
            at,
            format!("{at} is no name of an environment variable"),
            "use letters, digits and `_`, for example `NVIDIA_API_KEY`; no `$`, never the value",
        );
    }
    valid
}

fn numbers(c: &mut Checker<'_>, at: &Path, pool: &PoolConfig) {
    let limits = at.key("limits");
    let l = &pool.limits;
    for (key, value) in [
        ("requests-per-minute", l.requests_per_minute.map(u64::from)),
        ("requests-per-day", l.requests_per_day.map(u64::from)),
        ("input-tokens-per-minute", l.input_tokens_per_minute),
        ("output-tokens-per-minute", l.output_tokens_per_minute),
        ("tokens-per-day", l.tokens_per_day),
        ("concurrent", l.concurrent.map(u64::from)),
    ] {
        c.positive(
            &limits.key(key),
            value.unwrap_or(1),
            "leave it out when the limit is unknown; use `exclude` to turn the pool off",
        );
    }
    c.money(&at.key("cost-per-mtok"), pool.cost_per_mtok, true);
    c.positive(
        &at.key("context-tokens"),
        pool.context_tokens.unwrap_or(1),
        "leave it out when it is unknown",
    );
    c.positive(
        &at.key("output-tokens"),
        pool.output_tokens.unwrap_or(1),
        "leave it out when it is unknown",
    );
    let Windows { context_tokens: context, output_tokens: output, .. } = pool.windows();
    if output >= context && context > 0 && pool.output_tokens.is_some() {
        c.error(
            &at.key("output-tokens"),
            format!("{output} output tokens leave no room in a context of {context} tokens"),
            "the context window holds input and output; raise `context-tokens` or lower `output-tokens`",
        );
    }
}
