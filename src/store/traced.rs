//! A store that reports its effects to the crash points.

use crate::failpoint;
use crate::model::RunId;

use super::{Batch, Loaded, Store, StoreError, Version};

/// Reports every append that took effect; otherwise the store inside.
pub struct Traced<S>(pub S);

impl<S: Store> Store for Traced<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.0.runs()
    }

    fn load(&self, run: &RunId) -> Result<Loaded, StoreError> {
        self.0.load(run)
    }

    fn append(
        &self,
        run: &RunId,
        expected: &Version,
        batch: &Batch,
    ) -> Result<Version, StoreError> {
        let version = self.0.append(run, expected, batch)?;
        failpoint::reached("ledger append");
        Ok(version)
    }

    fn blob(&self, run: &RunId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.0.blob(run, name)
    }
}
