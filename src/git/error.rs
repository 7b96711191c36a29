//! What can go wrong with git, by what a caller may do about it.

use std::path::PathBuf;
use std::time::Duration;

/// A failed git operation. Texts of the git program are scrubbed of credentials and cut.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no git program on the path.
    #[error("the git program was not found on the path")]
    Missing,
    /// The git program is older than [`super::MIN_VERSION`].
    #[error("git {found} is too old: {needed} or newer is needed")]
    TooOld {
        /// What is installed.
        found: String,
        /// What we need.
        needed: String,
    },
    /// The git program ended with an error.
    #[error("git {what} failed (exit {code}): {stderr}")]
    Failed {
        /// The subcommand.
        what: String,
        /// Its exit code; -1 when it was killed by a signal.
        code: i32,
        /// What it said.
        stderr: String,
    },
    /// The remote refused the credential or the permission.
    #[error("git {what} was refused by {url}: {stderr}")]
    Auth {
        /// The subcommand.
        what: String,
        /// The remote, without credentials.
        url: String,
        /// What was said.
        stderr: String,
    },
    /// The remote could not be reached; later it may.
    #[error("git {what} could not reach {url}: {stderr}")]
    Network {
        /// The subcommand.
        what: String,
        /// The remote, without credentials.
        url: String,
        /// What was said.
        stderr: String,
    },
    /// A remote operation took longer than its deadline and was killed.
    #[error("git {what} was stopped after {} s", after.as_secs())]
    TimedOut {
        /// The subcommand.
        what: String,
        /// The deadline.
        after: Duration,
    },
    /// An object, ref or path is not there.
    #[error("{what} was not found")]
    NotFound {
        /// What was looked for.
        what: String,
    },
    /// A text from outside is no id, ref name or address.
    #[error("{what} is not valid")]
    Invalid {
        /// What it was.
        what: String,
    },
    /// An object or ref could not be read or written.
    #[error("{what}: {reason}")]
    Object {
        /// What was tried.
        what: String,
        /// The chain of causes.
        reason: String,
    },
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

impl GitError {
    /// Wraps a failure of gix with its whole chain (its `Display` shows the outermost frame only).
    pub(super) fn gix(what: impl Into<String>, error: impl Into<gix::Error>) -> Self {
        let error: gix::Error = error.into();
        let what = what.into();
        let reason =
            error.iter_errors().map(|cause| cause.to_string()).collect::<Vec<_>>().join(": ");
        if error.classify().is_not_found() {
            return Self::NotFound { what: format!("{what}: {reason}") };
        }
        Self::Object { what, reason }
    }

    /// Wraps a failure of the file system.
    pub(crate) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// May the same call succeed later without anybody doing anything?
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Network { .. } | Self::TimedOut { .. })
    }
}
