//! The pools of a configuration file.

use super::ServiceModel;
use super::input::InputError;
use crate::config::{Config, Exclusion};
use crate::scheduling::PoolState;
use crate::scheduling::pools::{Declared, Reach, eligible};

/// Is it a configuration? Only that has a `version`.
pub(super) fn is_configuration(text: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Top {
        version: Option<serde::de::IgnoredAny>,
    }
    serde_yaml::from_str::<Top>(text).is_ok_and(|top| top.version.is_some())
}

/// Its pools as a cycle chooses them that reaches them all. How they behave is not said there.
pub(super) fn read(text: &str) -> Result<Vec<(PoolState, ServiceModel)>, InputError> {
    let config = Config::load(text, "line").map_err(|errors| {
        let first = errors.errors.into_iter().next();
        InputError::Value(first.map_or_else(String::new, |e| {
            format!("line {}, column {}: {}; {}", e.line, e.column, e.message, e.remedy)
        }))
    })?;
    let exclusions: Vec<(&String, Exclusion)> =
        config.exclude.iter().zip(config.exclusions()).collect();
    let declared: Vec<Declared> = config
        .pools()
        .iter()
        .map(|pool| Declared {
            pool: pool.to_pool(),
            excluded: exclusions.iter().find(|(_, e)| e.matches(pool)).map(|(t, _)| (*t).clone()),
            account_known: pool.account.is_some() || pool.key_env.is_some(),
            reach: Reach::Reached,
            settled: None,
        })
        .collect();
    let set = eligible(&declared, config.dispatch.command_workers);
    if set.pools.is_empty() {
        let out: Vec<String> = set.dropped.iter().map(|(id, why)| format!("{id} {why}")).collect();
        let why = out.join("; ");
        return Err(InputError::Value(format!("no pool of this configuration is left: {why}")));
    }
    Ok(set.pools.into_iter().map(|p| (PoolState::from(p), ServiceModel::default())).collect())
}
