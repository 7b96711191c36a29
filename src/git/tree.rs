//! Trees: reading, editing, comparing. Paths are bytes; file names need not be UTF-8.

use std::collections::BTreeMap;

use gix::bstr::{BString, ByteSlice};
use gix::objs::tree::{EntryKind, EntryMode};

use super::{GitError, Oid, Repo};

/// The six kinds of tree entry that git knows, without trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// `100644`.
    File,
    /// `100755`.
    Executable,
    /// `120000`.
    Symlink,
    /// `160000`, a submodule.
    Submodule,
}

impl Mode {
    fn kind(self) -> EntryKind {
        match self {
            Self::File => EntryKind::Blob,
            Self::Executable => EntryKind::BlobExecutable,
            Self::Symlink => EntryKind::Link,
            Self::Submodule => EntryKind::Commit,
        }
    }

    fn of(mode: EntryMode) -> Option<Self> {
        match mode.kind() {
            EntryKind::Blob => Some(Self::File),
            EntryKind::BlobExecutable => Some(Self::Executable),
            EntryKind::Link => Some(Self::Symlink),
            EntryKind::Commit => Some(Self::Submodule),
            EntryKind::Tree => None,
        }
    }
}

/// A file of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From the root, `/`-separated.
    pub path: Vec<u8>,
    /// What it is.
    pub mode: Mode,
    /// Its content, or the submodule's commit.
    pub id: Oid,
}

/// What happened to a path between two trees. A rename is a deletion and an addition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// Only in the new tree.
    Added,
    /// Only in the old tree.
    Deleted,
    /// Content or executable bit differ.
    Modified,
    /// File, symlink or submodule became another of these.
    TypeChanged,
}

/// One path that differs between two trees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// From the root, `/`-separated.
    pub path: Vec<u8>,
    /// What happened.
    pub kind: ChangeKind,
    /// Mode and content before, unless added.
    pub old: Option<(Mode, Oid)>,
    /// Mode and content after, unless deleted.
    pub new: Option<(Mode, Oid)>,
}

/// One edit of a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// Puts an entry there, over whatever is there (a folder too).
    Put(Vec<u8>, Mode, Oid),
    /// Removes what is there; nothing there is fine.
    Remove(Vec<u8>),
}

impl Repo {
    /// Applies edits in order to `base` (or to nothing) and writes the tree.
    ///
    /// # Errors
    /// When a name is no valid tree entry (`.git`, `..`, empty) or the disk refuses.
    pub fn edit_tree(&self, base: Option<Oid>, edits: &[Edit]) -> Result<Oid, GitError> {
        let repo = self.local();
        let start = base.unwrap_or_else(|| repo.empty_tree().id);
        let failed = |error| GitError::gix("writing a tree", error);
        let mut editor = repo.edit_tree(start).map_err(failed)?;
        for edit in edits {
            match edit {
                Edit::Put(path, mode, id) => {
                    editor.upsert(path.as_bstr(), mode.kind(), *id).map_err(failed)?;
                }
                Edit::Remove(path) => {
                    editor.remove(path.as_bstr()).map_err(failed)?;
                }
            }
        }
        Ok(editor.write().map_err(failed)?.detach())
    }

    /// Writes plain files over `base` (or over nothing) and gives the tree.
    ///
    /// # Errors
    /// As [`Repo::edit_tree`].
    pub fn edit_files<P: AsRef<[u8]>, B: AsRef<[u8]>>(
        &self,
        base: Option<Oid>,
        files: impl IntoIterator<Item = (P, B)>,
    ) -> Result<Oid, GitError> {
        let edits = files
            .into_iter()
            .map(|(path, bytes)| {
                let id = self.write_blob(bytes.as_ref())?;
                Ok(Edit::Put(path.as_ref().to_vec(), Mode::File, id))
            })
            .collect::<Result<Vec<_>, GitError>>()?;
        self.edit_tree(base, &edits)
    }

    /// The entry at `path`, `None` where there is none or a folder.
    ///
    /// # Errors
    /// When the tree can't be read.
    pub fn entry(&self, tree: Oid, path: &[u8]) -> Result<Option<Entry>, GitError> {
        let repo = self.local();
        let failed = |error| GitError::gix(format!("reading tree {tree}"), error);
        let tree = repo.find_tree(tree).map_err(failed)?;
        let found = tree.lookup_entry(path.split(|b| *b == b'/')).map_err(failed)?;
        Ok(found.and_then(|found| {
            let mode = Mode::of(found.mode())?;
            Some(Entry { path: path.to_vec(), mode, id: found.object_id() })
        }))
    }

    /// The content of the file (or the target of the symlink) at `path`.
    ///
    /// # Errors
    /// When the tree or the blob can't be read.
    pub fn read_path(&self, tree: Oid, path: &[u8]) -> Result<Option<Vec<u8>>, GitError> {
        match self.entry(tree, path)? {
            Some(found) if found.mode != Mode::Submodule => Ok(Some(self.blob(found.id)?)),
            _ => Ok(None),
        }
    }

    /// Every file below the folder `prefix` (`""` = all of them), in path order.
    ///
    /// # Errors
    /// When the tree can't be read.
    pub fn list(&self, tree: Oid, prefix: &[u8]) -> Result<Vec<Entry>, GitError> {
        let repo = self.local();
        let failed = |error| GitError::gix(format!("listing tree {tree}"), error);
        let mut root = repo.find_tree(tree).map_err(failed)?;
        let prefix: &[u8] = prefix.strip_suffix(b"/").unwrap_or(prefix);
        if !prefix.is_empty() {
            let found = root.lookup_entry(prefix.split(|b| *b == b'/')).map_err(failed)?;
            match found {
                Some(folder) if folder.mode().is_tree() => {
                    root = repo.find_tree(folder.object_id()).map_err(failed)?;
                }
                _ => return Ok(Vec::new()),
            }
        }
        let records = root.traverse().breadthfirst.files().map_err(failed)?;
        let mut entries: Vec<Entry> = records
            .into_iter()
            .filter_map(|record| {
                let mut path: Vec<u8> =
                    Vec::with_capacity(prefix.len() + record.filepath.len() + 1);
                if !prefix.is_empty() {
                    path.extend_from_slice(prefix);
                    path.push(b'/');
                }
                path.extend_from_slice(&record.filepath);
                Some(Entry { path, mode: Mode::of(record.mode)?, id: record.oid })
            })
            .collect();
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }

    /// Every path that differs, in path order.
    ///
    /// # Errors
    /// When a tree can't be read.
    pub fn diff(&self, old: Oid, new: Oid) -> Result<Vec<Change>, GitError> {
        use gix::diff::tree::recorder::Change as Raw;
        if old == new {
            return Ok(Vec::new());
        }
        let repo = self.local();
        let failed = |error| GitError::gix(format!("comparing {old} and {new}"), error);
        let old_tree = repo.find_tree(old).map_err(failed)?;
        let new_tree = repo.find_tree(new).map_err(failed)?;
        let kind = repo.object_hash();
        let mut recorder = gix::diff::tree::Recorder::default();
        gix::diff::tree(
            gix::objs::TreeRefIter::from_bytes(&old_tree.data, kind),
            gix::objs::TreeRefIter::from_bytes(&new_tree.data, kind),
            gix::diff::tree::State::default(),
            &repo.objects,
            &mut recorder,
        )
        .map_err(|error| failed(gix::Error::from_error(error)))?;
        // By path, because a file that becomes a folder is reported as two changes.
        type Sides = (Option<(Mode, Oid)>, Option<(Mode, Oid)>);
        let known = |mode: EntryMode, id: Oid| Mode::of(mode).map(|mode| (mode, id));
        let mut sides: BTreeMap<BString, Sides> = BTreeMap::new();
        for change in recorder.records {
            let (path, old, new) = match change {
                Raw::Addition { path, entry_mode, oid, .. } => (path, None, known(entry_mode, oid)),
                Raw::Deletion { path, entry_mode, oid, .. } => (path, known(entry_mode, oid), None),
                Raw::Modification { path, previous_entry_mode, previous_oid, entry_mode, oid } => {
                    (path, known(previous_entry_mode, previous_oid), known(entry_mode, oid))
                }
            };
            if old.is_some() || new.is_some() {
                let slot = sides.entry(path).or_default();
                slot.0 = slot.0.or(old);
                slot.1 = slot.1.or(new);
            }
        }
        Ok(sides
            .into_iter()
            .map(|(path, (old, new))| {
                let kind = match (old, new) {
                    (None, _) => ChangeKind::Added,
                    (_, None) => ChangeKind::Deleted,
                    (Some((a, _)), Some((b, _)))
                        if is_file(a) == is_file(b) && (is_file(a) || a == b) =>
                    {
                        ChangeKind::Modified
                    }
                    _ => ChangeKind::TypeChanged,
                };
                Change { path: path.into(), kind, old, new }
            })
            .collect())
    }
}

fn is_file(mode: Mode) -> bool {
    matches!(mode, Mode::File | Mode::Executable)
}
