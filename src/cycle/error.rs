//! Why a cycle could not go on. What a node or a pool does wrong is never one of these.

use super::JournalError;
use crate::forge::ForgeError;
use crate::git::GitError;

/// Why a cycle could not go on.
#[derive(Debug, thiserror::Error)]
pub enum CycleError {
    /// Findings or configuration are wrong.
    #[error("{what}")]
    Input {
        /// What is wrong, with its place.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// The ledger.
    #[error("the ledger: {0}")]
    Journal(#[from] JournalError),
    /// Git.
    #[error("git: {0}")]
    Git(#[from] GitError),
    /// Worktrees.
    #[error("the workspace: {0}")]
    Workspace(#[from] crate::workspace::WorkspaceError),
    /// The forge.
    #[error("the forge: {0}")]
    Forge(#[from] ForgeError),
    /// The machine.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A claim is lost, or was never as somebody says.
    #[error("{0}")]
    Refused(String),
    /// A part of ours ended unexpectedly.
    #[error("internal: {0}")]
    Internal(String),
}

impl CycleError {
    /// An input error.
    pub fn input(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Input { what: what.into(), remedy: remedy.into() }
    }

    /// An error of the machine.
    pub fn io(what: impl Into<String>, source: std::io::Error) -> Self {
        Self::Io { what: what.into(), source }
    }
}

/// Runs blocking work off the runtime; a panic there is an error here, not a dead run.
///
/// # Errors
/// What the work says, or [`CycleError::Internal`] when it panicked.
pub(super) async fn blocking<T, E>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, CycleError>
where
    T: Send + 'static,
    E: Send + 'static,
    CycleError: From<E>,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => Ok(result?),
        Err(error) => Err(CycleError::Internal(error.to_string())),
    }
}
