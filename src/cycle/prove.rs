//! What `doctor` proves of a pool that is reached: its key, its model, its windows. Lists of models
//! are asked for and nothing else: no question costs anything.

use super::doctor::Check;
use super::pools::Env;
use crate::backends::gateway::{Listed, ModelList, Upstream};
use crate::backends::upstream;
use crate::config::{HeaderValue, PoolConfig, WindowSource, Windows};

/// Hosts that list what can be deployed, while requests name a deployment.
const DEPLOYMENTS: &str = ".azure.com";

/// Looks at one pool.
pub(super) async fn prove(pool: &PoolConfig, env: &Env) -> Vec<Check> {
    let mut checks = Vec::new();
    let mut stated = None;
    // A pool whose settings can't be used has no worker: it is told elsewhere.
    if pool.address().is_some()
        && let Ok(upstream) = upstream(pool, env)
    {
        let list = upstream.models(false).await;
        checks.extend(key(pool, &upstream, &list).await);
        if !pool.model.is_empty() {
            checks.extend(model(pool, &list));
            stated = entry(&list, &pool.model).and_then(|listed| listed.context_tokens);
        }
    }
    checks.push(windows(pool, stated));
    checks
}

/// The variable that holds the key, also where a header carries it.
fn variable(pool: &PoolConfig) -> Option<&str> {
    let of_header = |value: &HeaderValue| matches!(value, HeaderValue::Env(_));
    let header = pool.headers.values().find(|value| of_header(value));
    pool.key_env.as_deref().or(match header {
        Some(HeaderValue::Env(name)) => Some(name),
        _ => None,
    })
}

async fn key(pool: &PoolConfig, upstream: &Upstream, list: &ModelList) -> Option<Check> {
    let id = pool.pool_id().to_string();
    let unproven = |why: String| {
        let remedy = "nothing where the key is good: the first request of a cycle is its proof";
        Check::warning("key", &id, format!("unproven: {why}"), remedy)
    };
    Some(match (list, variable(pool)) {
        (ModelList::Unreached(why), _) => Check::failure(
            "key",
            id,
            format!("the endpoint takes a connection and does not answer: {why}"),
            "correct `base-url` (http or https, its port), or exclude the pool",
        ),
        (ModelList::Refused(why), None) => Check::failure(
            "key",
            id,
            format!("the endpoint asks for one: {why}"),
            "name the variable that holds it as `key-env`",
        ),
        (ModelList::Refused(why), Some(variable)) => Check::failure(
            "key",
            id,
            format!("the one in {variable} is refused: {why}"),
            format!("put a good key into {variable}, or exclude the pool"),
        ),
        (_, None) => return None,
        (ModelList::NoList(why), _) => unproven(format!("no list of models to ask for ({why})")),
        (ModelList::Models { .. }, Some(variable)) => match upstream.models(true).await {
            ModelList::Models { .. } => {
                unproven("the list of models is given out without a key as well".to_owned())
            }
            _ => Check::ok("key", id, format!("the one in {variable} is taken")),
        },
    })
}

fn entry<'a>(list: &'a ModelList, model: &str) -> Option<&'a Listed> {
    match list {
        ModelList::Models { models, .. } => models.iter().find(|listed| listed.is(model)),
        _ => None,
    }
}

fn model(pool: &PoolConfig, list: &ModelList) -> Option<Check> {
    let (id, model) = (pool.pool_id().to_string(), &pool.model);
    let (models, whole) = match list {
        ModelList::Models { models, whole } => (models, *whole),
        ModelList::NoList(_) => {
            let remedy = "nothing where it is right: the first request of a cycle is its proof";
            let detail = format!("'{model}' is unproven: no list of models to ask for");
            return Some(Check::warning("model", id, detail, remedy));
        }
        // The key comes first.
        ModelList::Refused(_) | ModelList::Unreached(_) => return None,
    };
    if entry(list, model).is_some() {
        return Some(Check::ok("model", id, format!("'{model}' is on the backend's list")));
    }
    let likely = models.iter().min_by_key(|m| strsim::damerau_levenshtein(&m.id, model))?;
    let likely: String = likely.id.chars().take(100).flat_map(char::escape_debug).collect();
    let (count, plural) = (models.len(), if models.len() == 1 { "" } else { "s" });
    let detail = format!("'{model}' is not on the backend's list of {count} model{plural}");
    // A server of one model takes any name, and an agent may know names of its own.
    let other_names = pool.endpoint().is_some_and(|host| host.ends_with(DEPLOYMENTS));
    Some(if !whole || count == 1 || pool.provider.is_agent() || other_names {
        let remedy = format!("correct `model` ('{likely}'?), or leave it where the name is taken");
        Check::warning("model", id, detail, remedy)
    } else {
        let remedy = format!("correct `model` ('{likely}'?), or exclude the pool");
        Check::failure("model", id, detail, remedy)
    })
}

/// How much the pool takes and gives at once, who says so, and what the backend says of it.
fn windows(pool: &PoolConfig, stated: Option<u64>) -> Check {
    let id = pool.pool_id().to_string();
    let Windows { context_tokens, context_from, output_tokens, output_from } = pool.windows();
    let mut detail = format!(
        "{context_tokens} tokens of context ({context_from}), {output_tokens} of an answer \
         ({output_from})"
    );
    match stated {
        Some(stated) if stated < context_tokens || context_from == WindowSource::Unknown => {
            detail.push_str(&format!("; the backend states {stated}"));
            Check::warning("windows", id, detail, format!("set `context-tokens: {stated}`"))
        }
        None if context_from == WindowSource::Unknown && !pool.model.is_empty() => {
            let remedy = "declare `context-tokens` and `output-tokens` as its vendor gives them";
            Check::warning("windows", id, detail, remedy)
        }
        _ => Check::ok("windows", id, detail),
    }
}
