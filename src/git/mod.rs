//! Git: gix for everything local, the git program for everything remote and for the index.
//!
//! [`Repo`] is a handle on one object store that threads share. It never reads the user's, the
//! system's or a worktree's configuration, never runs a hook, a filter or an editor, and always
//! signs with our own identity. [`Remote`] names a place to fetch from and push to; its credential
//! travels in the environment of the child process, never on a command line.

mod error;
mod merge;
mod program;
mod remote;
mod repo;
mod tree;

pub use error::GitError;
pub use gix::ObjectId as Oid;
pub use merge::Merge;
pub use program::{MIN_VERSION, version};
pub(crate) use program::{Program, base_config};
pub use remote::{Expect, PushResult, RefUpdate, Rejection, Remote, Tokens};
pub(crate) use repo::NO_CONVERSION;
pub use repo::{COMMITTER_EMAIL, COMMITTER_NAME, Repo};
pub use tree::{Change, ChangeKind, Edit, Entry, Mode};

/// Reads a full object id from 40 hex digits.
///
/// # Errors
/// [`GitError::Invalid`] when the text is none.
pub fn parse_oid(text: &str) -> Result<Oid, GitError> {
    Oid::from_hex(text.trim().as_bytes())
        .map_err(|_| GitError::Invalid { what: format!("object id '{}'", text.escape_debug()) })
}
