//! What can go wrong with a workspace itself; what is wrong with a worker's tree is a
//! [`super::Violation`], and what is wrong with its code is a [`super::CheckResult`].

use std::path::PathBuf;

use crate::git::GitError;
use crate::planning::scope::GlobError;
use crate::process::ProcessError;

/// A failed workspace operation.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A git operation failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A command could not be started.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// The file system refused.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The worker changed more files than we are willing to look at.
    #[error("the worker changed {found} files; {limit} are allowed")]
    TooManyFiles {
        /// At least so many.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// The worker wrote more than we are willing to keep.
    #[error("the worker's changed files hold more than {limit} bytes")]
    TooMuchData {
        /// The limit, bytes.
        limit: u64,
    },
    /// [`super::Slot::take_tree`] on a slot that was never reset.
    #[error("the slot shows no commit yet")]
    Empty,
    /// A glob of the policy or the scope can't be read.
    #[error(transparent)]
    Glob(#[from] GlobError),
    /// The cycle was cancelled meanwhile.
    #[error("cancelled")]
    Cancelled,
    /// A background task was lost.
    #[error("a background task ended early: {0}")]
    Lost(String),
}

impl WorkspaceError {
    pub(super) fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }
}
