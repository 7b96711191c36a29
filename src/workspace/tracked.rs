//! What belongs into a worktree, and removing the rest.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::git::{GitError, Mode, Oid, Repo};

use super::WorkspaceError;
use super::fs::{ensure_writable, remove};

/// The paths of one tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Tracked {
    files: HashSet<Vec<u8>>,
    submodules: HashSet<Vec<u8>>,
    /// Each folder with the number of entries below it.
    folders: HashMap<Vec<u8>, usize>,
}

impl Tracked {
    pub(super) fn of(repo: &Repo, tree: Oid) -> Result<Self, GitError> {
        let mut tracked = Self::default();
        for entry in repo.list(tree, b"")? {
            tracked.add(entry.path, entry.mode);
        }
        Ok(tracked)
    }

    /// The paths of `new`, from those of `old`: the cost lies in what differs.
    pub(super) fn moved(&self, repo: &Repo, old: Oid, new: Oid) -> Result<Self, GitError> {
        let mut tracked = self.clone();
        for change in repo.diff(old, new)? {
            if change.old.is_some() {
                tracked.remove(&change.path);
            }
            if let Some((mode, _)) = change.new {
                tracked.add(change.path, mode);
            }
        }
        Ok(tracked)
    }

    fn add(&mut self, path: Vec<u8>, mode: Mode) {
        for folder in ancestors(&path) {
            match self.folders.get_mut(folder) {
                Some(count) => *count += 1,
                None => {
                    self.folders.insert(folder.to_vec(), 1);
                }
            }
        }
        match mode {
            Mode::Submodule => self.submodules.insert(path),
            _ => self.files.insert(path),
        };
    }

    fn remove(&mut self, path: &[u8]) {
        self.files.remove(path);
        self.submodules.remove(path);
        for folder in ancestors(path) {
            if let Some(count) = self.folders.get_mut(folder) {
                *count -= 1;
                if *count == 0 {
                    self.folders.remove(folder);
                }
            }
        }
    }

    pub(super) fn is_submodule(&self, path: &[u8]) -> bool {
        self.submodules.contains(path)
    }

    /// Removes everything below `root` that is not ours, in one walk: untracked and ignored files,
    /// nested repositories at any depth, links in place of folders, folders in place of files. The
    /// worktree's own top-level `.git` is the slot's business.
    pub(super) fn clean(&self, root: &Path) -> Result<(), WorkspaceError> {
        let mut stack: Vec<Vec<u8>> = vec![Vec::new()];
        while let Some(folder) = stack.pop() {
            let on_disk = root.join(OsStr::from_bytes(&folder));
            ensure_writable(&on_disk)?;
            let failed = |source| WorkspaceError::io(&on_disk, source);
            for entry in std::fs::read_dir(&on_disk).map_err(failed)? {
                let entry = entry.map_err(failed)?;
                let name = entry.file_name();
                if folder.is_empty() && name == ".git" {
                    continue;
                }
                let mut path = folder.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name.as_bytes());
                let is_folder = entry.file_type().map_err(failed)?.is_dir();
                if is_folder && self.folders.contains_key(&path) {
                    stack.push(path);
                } else if is_folder || !self.files.contains(&path) {
                    remove(&entry.path())?;
                }
            }
        }
        Ok(())
    }
}

/// The folders above a path, from the inside out.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().rev().filter(|(_, b)| **b == b'/').map(|(at, _)| &path[..at])
}
