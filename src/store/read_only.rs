//! A store for jobs that must not write.

use std::sync::Arc;

use crate::model::RunId;

use super::{Batch, Loaded, Store, StoreError, Version};

/// Reads what the store inside holds, and refuses every append.
pub struct ReadOnly(pub Arc<dyn Store>);

impl Store for ReadOnly {
    fn name(&self) -> String {
        self.0.name()
    }

    fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.0.runs()
    }

    fn load(&self, run: &RunId) -> Result<Loaded, StoreError> {
        self.0.load(run)
    }

    fn append(&self, _: &RunId, _: &Version, _: &Batch) -> Result<Version, StoreError> {
        Err(StoreError::Forbidden {
            place: self.name(),
            reason: "this job only reads the state".to_owned(),
        })
    }

    fn blob(&self, run: &RunId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.blob(run, name)
    }
}
