//! The ledger in a folder on this machine, for the demo, for tests and for runs without a remote.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use crate::ledger::Event;
use crate::model::RunId;

use super::layout::{self, BLOBS, EVENTS, README, SegmentName, foreign};
use super::{Batch, Loaded, Store, StoreError, Version};

/// Temporary files start with this; a crash may leave some, readers pass over them.
const TEMPORARY: &str = ".tmp-";

/// A folder that holds one folder per run.
#[derive(Debug, Clone)]
pub struct DirectoryStore {
    root: PathBuf,
}

impl DirectoryStore {
    /// Keeps the ledger below `root`, which is created by the first append.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn run_folder(&self, run: &RunId) -> PathBuf {
        self.root.join(run.as_str())
    }

    /// The segments' names and paths in order.
    fn segments(&self, run: &RunId) -> Result<Vec<(SegmentName, PathBuf)>, StoreError> {
        let folder = self.run_folder(run).join(EVENTS);
        let mut found = Vec::new();
        for name in list(&folder)? {
            let path = folder.join(&name);
            let Some(segment) = name.to_str().and_then(SegmentName::parse) else {
                let reason = "not the name of a segment".to_owned();
                return Err(foreign(&path.display().to_string(), reason));
            };
            found.push((segment, path));
        }
        layout::in_order(&folder.display().to_string(), found)
    }

    /// Writes a blob, or finds that it is there already.
    fn write_blob(folder: &Path, name: &str, bytes: &[u8]) -> Result<(), StoreError> {
        let path = folder.join(name);
        match write_new(folder, &path, bytes) {
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {
                let there = fs::read(&path).map_err(|e| trouble(&path, &e))?;
                if there == bytes {
                    Ok(())
                } else {
                    Err(layout::changed_blob(&folder.display().to_string(), name))
                }
            }
            other => other.map_err(|e| trouble(&path, &e)),
        }
    }
}

impl Store for DirectoryStore {
    fn name(&self) -> String {
        format!("folder {}", self.root.display())
    }

    fn runs(&self) -> Result<Vec<RunId>, StoreError> {
        let mut runs = Vec::new();
        for name in list(&self.root)? {
            let Some(run) = name.to_str().and_then(|n| RunId::new(n).ok()) else { continue };
            // A folder without a segment is an opening that is just being written, or died.
            let events = self.run_folder(&run).join(EVENTS);
            if events.is_dir() && !list(&events)?.is_empty() {
                runs.push(run);
            }
        }
        runs.sort();
        Ok(runs)
    }

    fn load(&self, run: &RunId) -> Result<Loaded, StoreError> {
        let mut loaded = Loaded::default();
        for (segment, path) in self.segments(run)? {
            let bytes = fs::read(&path).map_err(|e| trouble(&path, &e))?;
            loaded.events.extend(layout::decode(&path.display().to_string(), &bytes)?);
            loaded.version = version(segment.sequence);
        }
        Ok(loaded)
    }

    fn append(
        &self,
        run: &RunId,
        expected: &Version,
        batch: &Batch,
    ) -> Result<Version, StoreError> {
        let folder = self.run_folder(run);
        let place = folder.display().to_string();
        layout::check_blobs(&place, &batch.blobs)?;
        let bytes = layout::encode(&place, &batch.events)?;
        for sub in [EVENTS, BLOBS] {
            let path = folder.join(sub);
            fs::create_dir_all(&path).map_err(|e| trouble(&path, &e))?;
        }
        // The lock ends with the process, so a crash never blocks the next writer.
        let lock = folder.join(".lock");
        let guard = File::create(&lock).map_err(|e| trouble(&lock, &e))?;
        guard.lock().map_err(|e| trouble(&lock, &e))?;

        let last = self.segments(run)?.last().map_or(0, |(s, _)| s.sequence);
        if version(last) != *expected {
            return Err(StoreError::Conflict);
        }
        // Blobs first: an event never names a blob that is not there.
        for (name, bytes) in &batch.blobs {
            Self::write_blob(&folder.join(BLOBS), name, bytes)?;
        }
        let Some(segment) = SegmentName::next(last, &batch.events) else {
            return Ok(expected.clone());
        };
        let events = folder.join(EVENTS);
        let path = events.join(segment.file());
        // Exclusive even without the lock (some network file systems ignore it).
        write_new(&events, &path, &bytes).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => StoreError::Conflict,
            _ => trouble(&path, &e),
        })?;
        write_readme(&folder, run, &segment, &batch.events);
        Ok(version(segment.sequence))
    }

    fn blob(&self, run: &RunId, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if !layout::is_blob_name(name) {
            return Ok(None);
        }
        let path = self.run_folder(run).join(BLOBS).join(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(trouble(&path, &e)),
        }
    }
}

fn version(sequence: u64) -> Version {
    Version(if sequence == 0 { String::new() } else { sequence.to_string() })
}

/// Names in a folder except temporary ones; a folder that is not there is empty.
fn list(folder: &Path) -> Result<Vec<std::ffi::OsString>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(trouble(folder, &e)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(|e| trouble(folder, &e))?.file_name();
        if !name.as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Writes a file that must not exist yet, whole or not at all, and on disk before it returns.
fn write_new(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path).map_err(|e| e.error)?;
    File::open(folder)?.sync_all()
}

/// Best effort: the page helps people and means nothing to the run.
fn write_readme(folder: &Path, run: &RunId, segment: &SegmentName, events: &[Event]) {
    let text = layout::readme(run, segment, events);
    let written =
        tempfile::Builder::new().prefix(TEMPORARY).tempfile_in(folder).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.persist(folder.join(README)).map_err(|e| e.error)
        });
    if let Err(error) = written {
        tracing::debug!(%error, "the run's README was not written");
    }
}

fn trouble(path: &Path, error: &io::Error) -> StoreError {
    let place = path.display().to_string();
    let reason = error.to_string();
    match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            StoreError::Forbidden { place, reason }
        }
        ErrorKind::NotADirectory | ErrorKind::IsADirectory => StoreError::Foreign { place, reason },
        _ => StoreError::Unavailable { place, reason },
    }
}
