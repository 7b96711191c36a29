//! Text to [`Config`]: bounds, secrets, structure, then meaning. All YAML parsing is here and in
//! `locate`.

mod explain;
mod survey;

use serde::Deserialize;

use super::locate::{Part, Path, Step, at, parse_at, position};
use super::{
    Commands, Config, ConfigError, ConfigErrors, Dispatch, FindingsSource, Pauses, Planning,
    Policy, PoolConfig, PullRequests, Report, Sandbox, State, Verify, check, secret,
};
use explain::explain;
pub(crate) use explain::meant;
use survey::survey;

/// Largest file that is read. A configuration is a page or two; more is a mistake or an attack.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// Most opening brackets: the YAML scanner's work grows with the square of their nesting.
const MAX_BRACKETS: usize = 20_000;

pub(super) fn load(text: &str, file: &str) -> Result<Config, ConfigErrors> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let fatal = |at, message: String, remedy: &str| {
        Err(ConfigErrors::from(vec![ConfigError::new(file, text, at, message, remedy)]))
    };
    if text.len() > MAX_CONFIG_BYTES {
        return fatal(
            (1, 1),
            format!("the file has {} bytes; at most {MAX_CONFIG_BYTES} are read", text.len()),
            "keep findings and prompts in files of their own and name them here",
        );
    }
    if text.bytes().filter(|b| matches!(b, b'[' | b'{')).count() > MAX_BRACKETS {
        return fatal(
            (1, 1),
            format!("more than {MAX_BRACKETS} opening brackets"),
            "flatten the lists; no setting needs deep nesting",
        );
    }
    let seen = match survey(text) {
        Ok(seen) => seen,
        Err(error) => {
            let errors = ConfigErrors::from(vec![explain(file, text, &error)]);
            return Err(ConfigErrors { more_may_follow: true, ..errors });
        }
    };
    let mut errors: Vec<ConfigError> = seen
        .secrets
        .iter()
        .map(|path| {
            ConfigError::new(
                file,
                text,
                position(text, path, Part::Value),
                format!("{path} holds what looks like a secret"),
                "put the value into an environment variable (a repository secret) and name the \
                 variable here; then revoke this key, since it was written to a file",
            )
        })
        .collect();
    match serde_yaml::from_str::<Config>(text) {
        Ok(config) => {
            errors.extend(check::check(&config, file, text));
            if errors.is_empty() { Ok(config) } else { Err(errors.into()) }
        }
        Err(error) => {
            errors.push(explain(file, text, &error));
            errors.extend(section_errors(file, text, &seen.top));
            errors.sort_by_key(|e| (e.line, e.column));
            errors.dedup_by_key(|e| (e.line, e.column));
            Err(ConfigErrors { more_may_follow: true, ..errors.into() })
        }
    }
}

/// The first structural error of each section, and of each element of the long lists, so that one
/// round of editing can mend them all.
fn section_errors(file: &str, text: &str, top: &[(String, usize)]) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    let mut take = |result: Result<(), serde_yaml::Error>| {
        errors.extend(result.err().map(|error| explain(file, text, &error)));
    };
    for (key, length) in top {
        let at = at![key.as_str()];
        match key.as_str() {
            "version" => take(probe::<u32>(text, &at)),
            "base" => take(probe::<Option<String>>(text, &at)),
            "planning" => take(probe::<Planning>(text, &at)),
            "exclude" => take(probe::<Vec<String>>(text, &at)),
            "dispatch" => take(probe::<Dispatch>(text, &at)),
            "verify" => take(probe::<Verify>(text, &at)),
            "policy" => take(probe::<Policy>(text, &at)),
            "sandbox" => take(probe::<Sandbox>(text, &at)),
            "pull-requests" => take(probe::<PullRequests>(text, &at)),
            "pauses" => take(probe::<Pauses>(text, &at)),
            "commands" => take(probe::<Commands>(text, &at)),
            "state" => take(probe::<State>(text, &at)),
            "report" => take(probe::<Report>(text, &at)),
            "findings" => {
                take(probe::<Vec<FindingsSource>>(text, &at));
                (0..*length).for_each(|i| take(probe::<FindingsSource>(text, &at.index(i))));
            }
            "pools" => {
                take(probe::<Vec<PoolConfig>>(text, &at));
                (0..*length).for_each(|i| take(probe::<PoolConfig>(text, &at.index(i))));
            }
            // An unknown key: the whole file's parse names the first, this the others.
            _ => take(Err(survey::refuse_key(text, key))),
        }
    }
    errors
}

fn probe<'de, T: Deserialize<'de>>(text: &'de str, path: &Path) -> Result<(), serde_yaml::Error> {
    parse_at::<T>(text, path).map(drop)
}

/// Does the value at this path promise to be a secret by its key's name?
fn secret_by_name(path: &Path, value: &str) -> bool {
    let in_headers = path.0.iter().any(|s| matches!(s, Step::Key(k) if k == "headers"));
    match path.0.last() {
        Some(Step::Key(key)) if in_headers => secret::names_secret(key) && !value.is_empty(),
        _ => false,
    }
}
