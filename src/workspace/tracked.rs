//! What belongs into a worktree, and removing the rest.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::git::{GitError, Mode, Oid, Repo};

use super::WorkspaceError;
use super::fs::{ensure_writable, remove};

/// The paths of one tree.
#[derive(Debug, Default)]
pub(super) struct Tracked {
    files: HashSet<Vec<u8>>,
    folders: HashSet<Vec<u8>>,
    submodules: HashSet<Vec<u8>>,
}

impl Tracked {
    pub(super) fn of(repo: &Repo, tree: Oid) -> Result<Self, GitError> {
        let mut tracked = Self::default();
        for entry in repo.list(tree, b"")? {
            let mut end = entry.path.len();
            while let Some(slash) = entry.path[..end].iter().rposition(|b| *b == b'/') {
                if !tracked.folders.insert(entry.path[..slash].to_vec()) {
                    break;
                }
                end = slash;
            }
            match entry.mode {
                Mode::Submodule => tracked.submodules.insert(entry.path),
                _ => tracked.files.insert(entry.path),
            };
        }
        Ok(tracked)
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
                if is_folder && self.folders.contains(&path) {
                    stack.push(path);
                } else if is_folder || !self.files.contains(&path) {
                    remove(&entry.path())?;
                }
            }
        }
        Ok(())
    }
}
