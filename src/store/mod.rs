//! Where the ledger is kept: on a git branch, in a directory, in workflow artifacts.
//!
//! A store keeps, per run, append-only segments of events and named blobs (plan by digest,
//! findings, receipts). Every append is a compare-and-swap on the version that was read.

mod artifact;
mod branch;
mod directory;
mod layout;
mod read_only;
mod traced;

pub use artifact::ArtifactStore;
pub use branch::{BranchStore, DEFAULT_BRANCH};
pub use directory::DirectoryStore;
pub use read_only::ReadOnly;
pub use traced::Traced;

use serde::{Deserialize, Serialize};

use crate::ledger::Event;
use crate::model::RunId;

/// The state of a run's log at the moment of reading; opaque. Empty = the run is not there yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Version(pub String);

/// A run's log as read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Loaded {
    /// What to name in the next append.
    pub version: Version,
    /// Every event in order.
    pub events: Vec<Event>,
}

/// What one append writes, all or nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Events in order; may be empty when only blobs are written.
    pub events: Vec<Event>,
    /// Blobs by name (`plan-<digest>.json`, ...): written once, never changed.
    pub blobs: Vec<(String, Vec<u8>)>,
    /// Branches whose commits must not be lost with this machine: full ref name and commit id. A
    /// store on a remote pushes them in the same atomic step; others need not do anything.
    pub keep: Vec<(String, String)>,
}

impl Batch {
    /// Adds what another one writes.
    pub fn extend(&mut self, other: Self) {
        self.events.extend(other.events);
        self.blobs.extend(other.blobs);
        self.keep.extend(other.keep);
    }
}

/// Why a store call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote first: read again, fold, keep what is still valid, try again.
    #[error("another writer was first")]
    Conflict,
    /// The content is there but is not ours or can't be read; it is never overwritten.
    #[error("the state at {place} can't be read: {reason}")]
    Foreign {
        /// Ref, file or artifact.
        place: String,
        /// What is wrong there.
        reason: String,
    },
    /// The token or file mode forbids it.
    #[error("not permitted to write the state at {place}: {reason}")]
    Forbidden {
        /// Ref, file or artifact.
        place: String,
        /// What was answered.
        reason: String,
    },
    /// Network, disk or git trouble.
    #[error("the state at {place} can't be reached: {reason}")]
    Unavailable {
        /// Ref, file or artifact.
        place: String,
        /// What was answered.
        reason: String,
    },
}

/// Workflow artifacts of a repository: named files that are written once. Calls block.
pub trait Artifacts: Send + Sync {
    /// A short name for people.
    fn place(&self) -> String;

    /// Id and name of every artifact of every workflow run, of one name or of all.
    ///
    /// # Errors
    /// When not all can be listed: a part is no answer.
    fn list(&self, name: Option<&str>) -> Result<Vec<(u64, String)>, StoreError>;

    /// Reads one.
    ///
    /// # Errors
    /// When it is gone or can't be read.
    fn read(&self, id: u64) -> Result<Vec<u8>, StoreError>;

    /// Writes one, in this workflow run; its id. Later ones have higher ids.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when this workflow run has the name already.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<u64, StoreError>;

    /// Removes one that this workflow run wrote. Best effort.
    fn remove(&self, name: &str);
}

/// A place for the ledger. Calls block; callers on the runtime use `spawn_blocking`.
pub trait Store: Send + Sync {
    /// A short name for people.
    fn name(&self) -> String;

    /// The runs that are there, oldest first by name.
    ///
    /// # Errors
    /// When the place can't be read.
    fn runs(&self) -> Result<Vec<RunId>, StoreError>;

    /// Reads a run, fresh from the place. A run that is not there is empty, not an error.
    ///
    /// # Errors
    /// When the place can't be read.
    fn load(&self, run: &RunId) -> Result<Loaded, StoreError>;

    /// Appends if the run still is at `expected`.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] when it is not.
    fn append(&self, run: &RunId, expected: &Version, batch: &Batch)
    -> Result<Version, StoreError>;

    /// Reads a blob.
    ///
    /// # Errors
    /// When the place can't be read.
    fn blob(&self, run: &RunId, name: &str) -> Result<Option<Vec<u8>>, StoreError>;
}
