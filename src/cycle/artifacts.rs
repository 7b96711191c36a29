//! Workflow artifacts as a place for the ledger: written through the job's results service, read
//! through the API.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::actions::{Results, ResultsError};
use crate::forge::ForgeError;
use crate::forge::github::GitHub;
use crate::store::{Artifacts, StoreError};

/// The artifacts of a repository, from inside a job.
pub struct JobArtifacts {
    results: Results,
    github: Arc<GitHub>,
    runtime: Handle,
}

impl JobArtifacts {
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn new(results: Results, github: Arc<GitHub>) -> Self {
        Self { results, github, runtime: Handle::current() }
    }

    /// Waits for a call. Stores block, on threads of any kind.
    fn wait<T: Send>(&self, call: impl Future<Output = T> + Send) -> Result<T, StoreError> {
        std::thread::scope(|scope| scope.spawn(|| self.runtime.block_on(call)).join())
            .map_err(|_| self.trouble("the call ended unexpectedly".to_owned()))
    }

    fn trouble(&self, reason: String) -> StoreError {
        StoreError::Unavailable { place: self.place(), reason }
    }

    fn of_forge(&self, error: ForgeError) -> StoreError {
        match error {
            ForgeError::Forbidden { message, remedy, .. } => {
                let reason = format!("{message}; {remedy}");
                StoreError::Forbidden { place: self.place(), reason }
            }
            other => self.trouble(other.to_string()),
        }
    }
}

impl Artifacts for JobArtifacts {
    fn place(&self) -> String {
        format!("artifacts of {}", self.github.slug())
    }

    fn list(&self, name: Option<&str>) -> Result<Vec<(u64, String)>, StoreError> {
        self.wait(self.github.artifacts(name))?.map_err(|error| self.of_forge(error))
    }

    fn read(&self, id: u64) -> Result<Vec<u8>, StoreError> {
        self.wait(self.github.artifact(id))?.map_err(|error| self.of_forge(error))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<u64, StoreError> {
        self.wait(self.results.upload(name, bytes))?.map_err(|error| match error {
            ResultsError::Taken => StoreError::Conflict,
            ResultsError::Forbidden(reason) => {
                StoreError::Forbidden { place: self.place(), reason }
            }
            ResultsError::Refused(reason) | ResultsError::Failed(reason) => self.trouble(reason),
        })
    }

    fn remove(&self, name: &str) {
        if let Ok(Err(error)) = self.wait(self.results.remove(name)) {
            tracing::debug!(%error, "artifact {name} was not removed");
        }
    }
}
