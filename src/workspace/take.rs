//! Taking a worker's files as one tree.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::git::{Edit, Mode, Oid, Repo};

use super::WorkspaceError;
use super::fs::{open_up, remove};
use super::scope::{Reason, Violation};
use super::slot::Shown;

/// How often nested repositories are taken apart: one inside another shows only in the next round.
const NESTED_ROUNDS: usize = 16;

/// How much of a worker's output is looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakeLimits {
    /// Largest file, bytes; a larger one is refused without being read.
    pub file_bytes: u64,
    /// Most files that may differ from the base.
    pub files: usize,
    /// Most bytes in them together.
    pub total_bytes: u64,
}

impl Default for TakeLimits {
    /// 5 MiB a file, 20 000 files, 256 MiB together: far beyond any node, far below a disk.
    fn default() -> Self {
        Self { file_bytes: 5 << 20, files: 20_000, total_bytes: 256 << 20 }
    }
}

/// A worker's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// The whole tree, in the store. Refused files are as they were in the base.
    pub tree: Oid,
    /// Files that were not even read.
    pub refused: Vec<Violation>,
}

/// Files on disk, and the index of the base that they are compared with.
pub(super) struct Worktree {
    pub(super) root: PathBuf,
    pub(super) index: PathBuf,
    /// Ours to change: repositories inside it are taken apart; elsewhere they are refused.
    pub(super) ours: bool,
}

/// Builds the tree: the base, edited by what differs on disk. The index stays at the base.
pub(super) fn take(
    store: &Repo,
    worktree: &Worktree,
    shown: &Shown,
    limits: &TakeLimits,
) -> Result<Taken, WorkspaceError> {
    let root = &worktree.root;
    let (paths, mut refused) = differing(store, worktree, limits.files)?;
    let mut folders = HashMap::new();
    let mut removed = Vec::new();
    let mut put = Vec::new();
    let mut total = 0_u64;
    for path in paths {
        let on_disk = root.join(OsStr::from_bytes(&path));
        let found = if real_folder(root, parent(&path), &mut folders) {
            std::fs::symlink_metadata(&on_disk).ok()
        } else {
            None
        };
        match found {
            Some(meta) if meta.file_type().is_symlink() => {
                let target = std::fs::read_link(&on_disk)
                    .map_err(|source| WorkspaceError::io(&on_disk, source))?;
                let id = store.write_blob(target.as_os_str().as_bytes())?;
                put.push(Edit::Put(path, Mode::Symlink, id));
            }
            Some(meta) if meta.is_file() => {
                if meta.len() > limits.file_bytes {
                    refused
                        .push(Violation { path, reason: Reason::TooLarge { bytes: meta.len() } });
                    continue;
                }
                let bytes = read_file(&on_disk, limits.file_bytes)?;
                total += bytes.len() as u64;
                if total > limits.total_bytes {
                    return Err(WorkspaceError::TooMuchData { limit: limits.total_bytes });
                }
                let mode = if meta.mode() & 0o100 == 0 { Mode::File } else { Mode::Executable };
                put.push(Edit::Put(path, mode, store.write_blob(&bytes)?));
            }
            // The empty folder of a submodule means nothing, so neither does its absence.
            None if shown.tracked.is_submodule(&path) => {}
            _ => removed.push(Edit::Remove(path)),
        }
    }
    // Removals first: what was a file may be a folder now, and the reverse.
    removed.extend(put);
    let tree = if removed.is_empty() {
        shown.tree
    } else {
        store.edit_tree(Some(shown.tree), &removed)?
    };
    Ok(Taken { tree, refused })
}

/// Every path that may differ from the base: changed, gone, or new and not ignored; and what is
/// refused as a repository in the repository.
fn differing(
    store: &Repo,
    worktree: &Worktree,
    limit: usize,
) -> Result<(BTreeSet<Vec<u8>>, Vec<Violation>), WorkspaceError> {
    let root = &worktree.root;
    for _ in 0..NESTED_ROUNDS {
        let mut refused = Vec::new();
        let list = || {
            store
                .program("ls-files")
                .worktree(root, &worktree.index)
                .args(["-z", "--modified", "--deleted", "--others", "--exclude-standard"])
                .run_noisily()
        };
        let (mut out, complaint) = list()?;
        if !complaint.is_empty() {
            // A folder that git can't look into would count as deleted.
            if worktree.ours {
                open_up(root);
            }
            out = list()?.0;
        }
        let mut paths = BTreeSet::new();
        let mut nested = Vec::new();
        for path in out.split(|b| *b == 0).filter(|path| !path.is_empty()) {
            match path.strip_suffix(b"/") {
                // A repository in the repository: its files are the worker's, its history is not.
                Some(folder) if !worktree.ours => {
                    refused.push(Violation { path: folder.to_vec(), reason: Reason::Submodule });
                }
                Some(folder) => nested.push(root.join(OsStr::from_bytes(folder)).join(".git")),
                None => {
                    paths.insert(path.to_vec());
                }
            }
        }
        if paths.len() > limit {
            return Err(WorkspaceError::TooManyFiles { found: paths.len(), limit });
        }
        if nested.is_empty() {
            return Ok((paths, refused));
        }
        for git in nested {
            remove(&git)?;
        }
    }
    Err(WorkspaceError::TooManyFiles { found: NESTED_ROUNDS, limit: NESTED_ROUNDS })
}

fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|b| *b == b'/').map_or(&[], |slash| &path[..slash])
}

/// Is every component of `folder` a folder, none of them a link?
fn real_folder(root: &Path, folder: &[u8], known: &mut HashMap<Vec<u8>, bool>) -> bool {
    if folder.is_empty() {
        return true;
    }
    if let Some(known) = known.get(folder) {
        return *known;
    }
    let real = real_folder(root, parent(folder), known)
        && std::fs::symlink_metadata(root.join(OsStr::from_bytes(folder)))
            .is_ok_and(|meta| meta.is_dir());
    known.insert(folder.to_vec(), real);
    real
}

fn read_file(path: &PathBuf, limit: u64) -> Result<Vec<u8>, WorkspaceError> {
    let failed = |source| WorkspaceError::io(path, source);
    let open = || {
        std::fs::OpenOptions::new()
            .read(true)
            .custom_flags((nix::fcntl::OFlag::O_NOFOLLOW | nix::fcntl::OFlag::O_NONBLOCK).bits())
            .open(path)
    };
    let file = match open() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            // The worker's file, whatever rights it left on it.
            let rights = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(path, rights).map_err(failed)?;
            open()
        }
        other => other,
    }
    .map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(limit).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
