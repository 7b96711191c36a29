//! The Actions runtime: inputs, outputs, masks, groups, annotations, step summary, and the event
//! that woke us up. By hand, because the protocol is small and its escaping matters.
//!
//! Sources: GitHub's "Workflow commands for GitHub Actions", "Variables" and "Events that trigger
//! workflows" pages, and the runner's `ActionCommand` and `FileCommandManager`.

mod command;
mod event;
mod files;
mod results;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use secrecy::SecretString;

use crate::ledger::Holder;

pub use command::{Annotation, Level, Log};
pub use event::Wakeup;
pub use files::SUMMARY_LIMIT;
pub use results::{Results, ResultsError};

/// Inputs of `action.yml` whose values may be shown.
pub const INPUTS: &[&str] = &[
    "config",
    "findings",
    "intent",
    "run-id",
    "mode",
    "bundles",
    "grant",
    "prompts",
    "sarif",
    "time-budget",
    "dry-run",
    "log-level",
    "app-id",
    "ca-bundle",
];

/// Inputs of `action.yml` that are secret.
pub const SECRET_INPUTS: &[&str] = &["token", "app-private-key"];

/// Outputs of `action.yml`.
pub const OUTPUTS: &[&str] = &[
    "status",
    "not-before",
    "run-id",
    "pull-requests",
    "nodes",
    "matrix",
    "granted",
    "host-matrix",
    "host-granted",
    "grant",
    "prompts",
    "summary-path",
];

/// What can go wrong with the runner's files.
#[derive(Debug, thiserror::Error)]
pub enum ActionsError {
    /// A file of the runner can't be read or written.
    #[error("{what} at {path} can't be used: {source}")]
    File {
        /// Which file.
        what: &'static str,
        /// Where.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// An output that the runner would not take.
    #[error("output {name} can't be set: {reason}")]
    Output {
        /// Its name.
        name: String,
        /// What is wrong.
        reason: String,
    },
}

/// What the runner tells a step through its environment. Everything else in the program takes it
/// from here, so that tests need no environment.
#[derive(Clone, Default)]
pub struct Runtime {
    /// Whether this is a workflow job.
    pub on_actions: bool,
    inputs: BTreeMap<&'static str, String>,
    secrets: BTreeMap<&'static str, SecretString>,
    /// File that takes outputs.
    pub output_file: Option<PathBuf>,
    /// File that takes the step summary.
    pub summary_file: Option<PathBuf>,
    /// Name of the event.
    pub event_name: Option<String>,
    /// File with its payload.
    pub event_file: Option<PathBuf>,
    /// `owner/name`.
    pub repository: Option<String>,
    /// Base address of the API.
    pub api_url: Option<String>,
    /// Address of the server for people.
    pub server_url: Option<String>,
    /// The checkout.
    pub workspace: Option<PathBuf>,
    /// The runner's folder for temporary files.
    pub temp: Option<PathBuf>,
    /// The workflow run.
    pub run: Option<u64>,
    /// Its attempt.
    pub run_attempt: Option<u32>,
    /// The commit that the event is about.
    pub sha: Option<String>,
    /// The short name of the branch or tag.
    pub ref_name: Option<String>,
    /// The workflow's file and ref.
    pub workflow_ref: Option<String>,
    /// Login of who started it.
    pub actor: Option<String>,
    /// Whether the runner's debug log is on.
    pub debug: bool,
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("on_actions", &self.on_actions)
            .field("inputs", &self.inputs)
            .field("secrets", &self.secrets.keys().collect::<Vec<_>>())
            .field("event_name", &self.event_name)
            .field("repository", &self.repository)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Reads the environment through `env`; empty variables count as absent, as the runner sets
    /// inputs without a value to nothing.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let var = |name: &str| env(name).filter(|v| !v.is_empty());
        // The runner keeps hyphens (`INPUT_RUN-ID`); a shell can only set the second form.
        let input = |name: &str| {
            let upper = name.to_ascii_uppercase();
            var(&format!("INPUT_{upper}"))
                .or_else(|| var(&format!("INPUT_{}", upper.replace('-', "_"))))
                .map(|v| v.trim().to_owned())
                .filter(|v| !v.is_empty())
        };
        let path = |name: &str| var(name).map(PathBuf::from);
        Self {
            on_actions: var("GITHUB_ACTIONS").as_deref() == Some("true"),
            inputs: INPUTS.iter().filter_map(|n| Some((*n, input(n)?))).collect(),
            secrets: SECRET_INPUTS
                .iter()
                .filter_map(|n| Some((*n, SecretString::from(input(n)?))))
                .collect(),
            output_file: path("GITHUB_OUTPUT"),
            summary_file: path("GITHUB_STEP_SUMMARY"),
            event_name: var("GITHUB_EVENT_NAME"),
            event_file: path("GITHUB_EVENT_PATH"),
            repository: var("GITHUB_REPOSITORY"),
            api_url: var("GITHUB_API_URL"),
            server_url: var("GITHUB_SERVER_URL"),
            workspace: path("GITHUB_WORKSPACE"),
            temp: path("RUNNER_TEMP"),
            run: var("GITHUB_RUN_ID").and_then(|v| v.parse().ok()),
            run_attempt: var("GITHUB_RUN_ATTEMPT").and_then(|v| v.parse().ok()),
            sha: var("GITHUB_SHA"),
            ref_name: var("GITHUB_REF_NAME"),
            workflow_ref: var("GITHUB_WORKFLOW_REF"),
            actor: var("GITHUB_ACTOR"),
            debug: var("RUNNER_DEBUG").as_deref() == Some("1"),
        }
    }

    /// An input's value, trimmed; `None` when absent, empty, secret or not an input.
    #[must_use]
    pub fn input(&self, name: &str) -> Option<&str> {
        self.inputs.get(name).map(String::as_str)
    }

    /// A secret input.
    #[must_use]
    pub fn secret(&self, name: &str) -> Option<&SecretString> {
        self.secrets.get(name)
    }

    /// A boolean input by YAML 1.2's core schema, as the official toolkit reads them.
    ///
    /// # Errors
    /// The text, when it is neither true nor false.
    pub fn flag(&self, name: &str) -> Result<bool, String> {
        match self.input(name) {
            None | Some("false" | "False" | "FALSE") => Ok(false),
            Some("true" | "True" | "TRUE") => Ok(true),
            Some(other) => Err(other.to_owned()),
        }
    }

    /// Who holds the claims of this process.
    #[must_use]
    pub fn holder(&self) -> Holder {
        Holder {
            workflow_run: self.run,
            workflow_attempt: self.run_attempt.or(self.run.map(|_| 1)),
            process: None,
        }
    }

    /// The address of this workflow run.
    #[must_use]
    pub fn run_url(&self) -> Option<String> {
        let server = self.server_url.as_deref()?.trim_end_matches('/');
        Some(format!("{server}/{}/actions/runs/{}", self.repository.as_ref()?, self.run?))
    }

    /// The file of the workflow that runs and the branch that it runs on, for starting it again.
    #[must_use]
    pub fn workflow(&self) -> Option<(String, String)> {
        // `OWNER/NAME/.github/workflows/FILE@refs/heads/BRANCH`; a tag or a merge ref is no branch.
        let (path, branch) = self.workflow_ref.as_deref()?.split_once("@refs/heads/")?;
        let (_, file) = path.rsplit_once('/')?;
        Some((file.to_owned(), branch.to_owned()))
    }

    /// What woke us up; nothing in particular outside Actions.
    #[must_use]
    pub fn wakeup(&self) -> Wakeup {
        match (&self.event_name, &self.event_file) {
            (Some(name), Some(path)) => Wakeup::read(name, path),
            (Some(name), None) => Wakeup::parse(name, b"{}"),
            (None, _) => Wakeup::default(),
        }
    }
}

/// Unpredictable text for delimiters: the standard library seeds its hashers from the system's
/// random source. 32 hex digits.
fn random_token() -> String {
    use std::hash::{BuildHasher, RandomState};
    let part = || RandomState::new().hash_one(std::process::id());
    format!("{:016x}{:016x}", part(), part())
}

/// A token that is nowhere in `text`.
fn token_not_in(text: &str) -> String {
    loop {
        let token = format!("overhaul-{}", random_token());
        if !text.contains(&token) {
            return token;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Runtime, Wakeup, token_not_in};
    use secrecy::ExposeSecret as _;

    fn runtime(pairs: &[(&str, &str)]) -> Runtime {
        Runtime::from_env(&|name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn inputs_are_read_as_the_runner_sets_them() {
        let it = runtime(&[
            ("GITHUB_ACTIONS", "true"),
            ("INPUT_RUN-ID", " r-1 "),
            ("INPUT_TIME_BUDGET", "50m"),
            ("INPUT_INTENT", ""),
            ("INPUT_TOKEN", "ghs_secret"),
            ("INPUT_DRY-RUN", "TRUE"),
            ("GITHUB_SERVER_URL", "https://ghe.example/"),
            ("GITHUB_REPOSITORY", "o/r"),
            ("GITHUB_RUN_ID", "42"),
        ]);
        assert!(it.on_actions);
        assert_eq!(it.input("run-id"), Some("r-1"));
        assert_eq!(it.input("time-budget"), Some("50m"));
        assert_eq!(it.input("intent"), None);
        assert_eq!(it.input("token"), None);
        assert_eq!(it.secret("token").map(|s| s.expose_secret()), Some("ghs_secret"));
        assert!(!format!("{it:?}").contains("ghs_secret"));
        assert_eq!(it.flag("dry-run"), Ok(true));
        assert_eq!(it.run_url().as_deref(), Some("https://ghe.example/o/r/actions/runs/42"));
        assert_eq!(it.holder().workflow_attempt, Some(1));
        assert_eq!(runtime(&[("INPUT_DRY-RUN", "yes")]).flag("dry-run"), Err("yes".to_owned()));
    }

    #[test]
    fn elsewhere_nothing_is_assumed() {
        let it = runtime(&[]);
        assert!(!it.on_actions);
        assert_eq!(it.wakeup(), Wakeup::default());
        assert_eq!(it.run_url(), None);
    }

    #[test]
    fn tokens_differ() {
        assert_ne!(token_not_in(""), token_not_in(""));
    }
}
