//! The ledger in workflow artifacts, for repositories that take no branch of ours.
//!
//! Artifacts are immutable and have names, so the state is a chain of them: `overhaul-state-N`
//! holds the whole state as a git bundle of the branch that [`BranchStore`] would have pushed,
//! with the kept commits. The newest one counts. Within a workflow run a name is used once, which
//! is a compare-and-swap; between workflow runs the first of one name counts, and whoever finds
//! itself second takes its own back. That is as good as the list of artifacts is fresh: two
//! workflow runs at once want a concurrency group.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::branch::BranchStore;
use super::layout::foreign;
use super::{Artifacts, Batch, Loaded, Store, StoreError, Version};
use crate::git::{Expect, GitError, Oid, Remote, Repo};
use crate::ledger::EventKind;
use crate::model::RunId;

/// First part of an artifact's name; the number follows, padded so that names sort.
const PREFIX: &str = "overhaul-state-";
/// Kept commits.
const KEEP: &str = "refs/overhaul/keep/";
/// Older states that stay for people to go back to.
const OLD_STATES: u64 = 5;

/// See the module's text.
pub struct ArtifactStore {
    artifacts: Arc<dyn Artifacts>,
    /// Where work happens; its objects are borrowed, and it gets the kept commits.
    repo: Repo,
    /// The state as a repository of its own, as of the newest artifact.
    mirror: Repo,
    mirrored: Remote,
    folder: PathBuf,
    branch: String,
    /// What every reader has anyway: the history of the code is not carried around.
    without: Oid,
    inner: BranchStore,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Whether the mirror is what was last read.
    read: bool,
    /// Number and id of the artifact that it shows.
    at: Option<(u64, u64)>,
}

impl ArtifactStore {
    /// Keeps a mirror of the state in `folder`, which is ours. `without` is a commit that every
    /// later reader has: the base.
    ///
    /// # Errors
    /// When the folder can't be written.
    pub fn new(
        artifacts: Arc<dyn Artifacts>,
        repo: Repo,
        folder: &Path,
        branch: &str,
        without: Oid,
    ) -> Result<Self, StoreError> {
        let place = artifacts.place();
        let trouble =
            |e: GitError| StoreError::Unavailable { place: place.clone(), reason: e.to_string() };
        let path = folder.join("state.git");
        let mirror = match Repo::open(&path) {
            Ok(mirror) => mirror,
            Err(_) => Repo::create(&path, Some(repo.dir())).map_err(trouble)?,
        };
        let mirrored = Remote::new(&path.to_string_lossy(), None).map_err(trouble)?;
        let inner = BranchStore::new(repo.clone(), mirrored.clone(), branch);
        Ok(Self {
            artifacts,
            repo,
            mirror,
            mirrored,
            folder: folder.to_owned(),
            branch: format!("refs/heads/{branch}"),
            without,
            inner,
            known: Mutex::default(),
        })
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self, error: &GitError) -> StoreError {
        StoreError::Unavailable { place: self.artifacts.place(), reason: error.to_string() }
    }

    fn io(&self, error: &std::io::Error) -> StoreError {
        StoreError::Unavailable {
            place: self.folder.display().to_string(),
            reason: error.to_string(),
        }
    }

    fn newest_now(&self) -> Result<Option<(u64, u64)>, StoreError> {
        Ok(newest(&self.artifacts.list(None)?))
    }

    /// Makes the mirror the newest artifact.
    fn sync(&self, known: &mut Known) -> Result<(), StoreError> {
        let newest = self.newest_now()?;
        if known.read && newest == known.at {
            return Ok(());
        }
        known.read = false;
        for name in self.mirror.refs("refs/").map_err(|e| self.trouble(&e))?.into_keys() {
            self.mirror.update_ref(&name, None, Expect::Any).map_err(|e| self.trouble(&e))?;
        }
        if let Some((number, id)) = newest {
            let bytes = match self.artifacts.read(id) {
                Ok(bytes) => bytes,
                // The artifact of a writer that lost is taken away again: then there is another.
                Err(_) if self.newest_now()? != newest => return self.sync(known),
                Err(error) => return Err(error),
            };
            if !bytes.starts_with(b"# v2 git bundle\n") && !bytes.starts_with(b"# v3 git bundle\n")
            {
                let place = format!("{PREFIX}{number:08} of {}", self.artifacts.place());
                return Err(foreign(&place, "it is no state of overhaul".to_owned()));
            }
            let file = tempfile::NamedTempFile::new_in(&self.folder).map_err(|e| self.io(&e))?;
            std::fs::write(file.path(), &bytes).map_err(|e| self.io(&e))?;
            Remote::new(&file.path().to_string_lossy(), None)
                .and_then(|bundle| bundle.fetch(&self.mirror, &["+refs/*:refs/*"]))
                .map_err(|e| self.trouble(&e))?;
            let kept = format!("+{KEEP}*:{KEEP}*");
            self.mirrored.fetch(&self.repo, &[&kept]).map_err(|e| self.trouble(&e))?;
        }
        known.at = newest;
        known.read = true;
        Ok(())
    }

    /// The state as the mirror has it now.
    fn bundle(&self) -> Result<Vec<u8>, StoreError> {
        let file = tempfile::NamedTempFile::new_in(&self.folder).map_err(|e| self.io(&e))?;
        let refs = self.mirror.refs("refs/").map_err(|e| self.trouble(&e))?;
        let names: Vec<&str> = refs
            .keys()
            .map(String::as_str)
            .filter(|name| *name == self.branch || name.starts_with(KEEP))
            .collect();
        self.mirror.bundle(file.path(), &names, self.without).map_err(|e| self.trouble(&e))?;
        std::fs::read(file.path()).map_err(|e| self.io(&e))
    }

    /// Uploads the mirror as the next state. `None`: another writer was first.
    ///
    /// An upload is finished by its name, not by its content: of two that cross, either can be told
    /// that it failed or worked when it was the other. So what counts is what is there afterwards.
    fn publish(&self, number: u64) -> Result<Option<u64>, StoreError> {
        let name = format!("{PREFIX}{number:08}");
        let bytes = self.bundle()?;
        let written = match self.artifacts.write(&name, &bytes) {
            Err(error @ StoreError::Forbidden { .. }) => return Err(error),
            other => other,
        };
        let same = self.artifacts.list(Some(&name))?;
        let listed = same.into_iter().filter(|(_, there)| *there == name).map(|(id, _)| id);
        let Some(id) = listed.chain(written.as_ref().ok().copied()).min() else {
            return match written {
                Err(StoreError::Conflict) => Ok(None),
                other => other.map(Some),
            };
        };
        if written.as_ref().is_ok_and(|ours| *ours != id) {
            self.artifacts.remove(&name);
            return Ok(None);
        }
        if self.artifacts.read(id)? != bytes {
            return Ok(None);
        }
        if let Some(old) = number.checked_sub(OLD_STATES).filter(|old| *old > 0) {
            self.artifacts.remove(&format!("{PREFIX}{old:08}"));
        }
        Ok(Some(id))
    }
}

/// The highest number and, of that, the first that was made.
fn newest(artifacts: &[(u64, String)]) -> Option<(u64, u64)> {
    let numbered = artifacts.iter().filter_map(|(id, name)| {
        let digits = name.strip_prefix(PREFIX)?;
        let plain = digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse().ok().map(|number: u64| (number, *id)))?
    });
    numbered.max_by_key(|(number, id)| (*number, std::cmp::Reverse(*id)))
}

impl Store for ArtifactStore {
    fn name(&self) -> String {
        self.artifacts.place()
    }

    fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        self.sync(&mut self.known())?;
        self.inner.runs()
    }

    fn load(&self, run: &RunId) -> Result<Loaded, StoreError> {
        self.sync(&mut self.known())?;
        self.inner.load(run)
    }

    fn append(
        &self,
        run: &RunId,
        expected: &Version,
        batch: &Batch,
    ) -> Result<Version, StoreError> {
        let mut known = self.known();
        self.sync(&mut known)?;
        let before = self.mirror.find_ref(&self.branch).map_err(|e| self.trouble(&e))?;
        let version = self.inner.append(run, expected, batch)?;
        if batch.events.iter().any(|event| matches!(event.kind, EventKind::Closed { .. })) {
            let kept = self.mirror.refs(&format!("{KEEP}{run}/")).map_err(|e| self.trouble(&e))?;
            for name in kept.into_keys() {
                self.mirror.update_ref(&name, None, Expect::Any).map_err(|e| self.trouble(&e))?;
            }
        }
        let after = self.mirror.find_ref(&self.branch).map_err(|e| self.trouble(&e))?;
        if before == after && batch.keep.is_empty() {
            return Ok(version);
        }
        // Until the answer is in, the mirror is only what we wish for.
        known.read = false;
        let number = known.at.map_or(1, |(number, _)| number + 1);
        match self.publish(number)? {
            Some(id) => {
                *known = Known { read: true, at: Some((number, id)) };
                Ok(version)
            }
            None => Err(StoreError::Conflict),
        }
    }

    fn blob(&self, run: &RunId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.sync(&mut self.known())?;
        self.inner.blob(run, name)
    }
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_state_is_the_first_of_the_highest_number() {
        let list = |names: &[(u64, &str)]| -> Vec<(u64, String)> {
            names.iter().map(|(id, name)| (*id, (*name).to_owned())).collect()
        };
        assert_eq!(newest(&list(&[(9, "other"), (8, "overhaul-state-x")])), None);
        let states = [
            (12, "overhaul-state-00000002"),
            (10, "overhaul-state-00000001"),
            (11, "overhaul-state-00000002"),
            (13, "overhaul-state-99"),
        ];
        assert_eq!(newest(&list(&states)), Some((2, 11)));
    }
}
