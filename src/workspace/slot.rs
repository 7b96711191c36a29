//! One reused worktree.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::git::{NO_CONVERSION, Oid};
use crate::process::hand_over;

use super::WorkspaceError;
use super::fs::{make_dir, remove, write};
use super::pool::Shared;
use super::take::{TakeLimits, Taken, Worktree, take};
use super::tracked::Tracked;

/// A worktree of the pool; dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    shared: Arc<Shared>,
    /// `None` only while being dropped.
    place: Option<Place>,
}

/// A slot's folder and what it shows.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) dir: PathBuf,
    /// Unlike that of any other slot of this process.
    pub(super) number: usize,
    pub(super) shows: Option<Shown>,
}

/// The commit that a slot was last reset to.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) commit: Oid,
    pub(super) tree: Oid,
    pub(super) tracked: Arc<Tracked>,
}

impl Place {
    pub(super) fn tree(&self) -> PathBuf {
        self.dir.join("tree")
    }

    pub(super) fn index(&self) -> PathBuf {
        self.dir.join("index")
    }
}

impl Slot {
    pub(super) fn new(shared: Arc<Shared>, place: Place) -> Self {
        Self { shared, place: Some(place) }
    }

    fn dir(&self) -> &Path {
        self.place.as_ref().map_or(Path::new(""), |place| &place.dir)
    }

    /// The worktree.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.dir().join("tree")
    }

    /// A private home directory beside it, emptied at each reset.
    #[must_use]
    pub fn home(&self) -> PathBuf {
        self.dir().join("home")
    }

    /// Makes the worktree show exactly `commit`: no file more, less or other, whatever was done to
    /// it before. The cost lies in what differs. A slot that can't be repaired is replaced.
    ///
    /// # Errors
    /// When the commit is not in the store, or the disk refuses twice.
    pub fn reset(&mut self, commit: Oid) -> Result<(), WorkspaceError> {
        let tree = self.shared.store.tree_of(commit)?;
        let tracked = self.shared.tracked(tree)?;
        let shown = Shown { commit, tree, tracked };
        let Some(place) = &mut self.place else { return Err(WorkspaceError::Empty) };
        place.shows = None;
        if let Err(first) = reset(&self.shared, place, &shown) {
            tracing::warn!(slot = %place.dir.display(), error = %first, "the slot is made anew");
            *place = self.shared.replace(place)?;
            reset(&self.shared, place, &shown)?;
        }
        place.shows = Some(shown);
        Ok(())
    }

    /// The commit that it was last reset to.
    #[must_use]
    pub fn base(&self) -> Option<Oid> {
        Some(self.place.as_ref()?.shows.as_ref()?.commit)
    }

    /// Everything between the base and the files as they are now, as one tree in the store,
    /// whatever the worker did with git. Ignored files are not taken.
    ///
    /// # Errors
    /// When the worker's changes are too many or too much, or the disk refuses.
    pub fn take_tree(&self, limits: &TakeLimits) -> Result<Taken, WorkspaceError> {
        let place = self.place.as_ref().ok_or(WorkspaceError::Empty)?;
        let shown = place.shows.as_ref().ok_or(WorkspaceError::Empty)?;
        let worktree = Worktree { root: place.tree(), index: place.index(), ours: true };
        take(&self.shared.store, &worktree, shown, limits)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.shared.give_back(place);
        }
    }
}

fn reset(shared: &Shared, place: &Place, shown: &Shown) -> Result<(), WorkspaceError> {
    let (tree, index) = (place.tree(), place.index());
    if std::fs::symlink_metadata(&tree).is_ok_and(|meta| !meta.is_dir()) {
        remove(&tree)?;
    }
    make_dir(&tree)?;
    shown.tracked.clean(&tree)?;
    remove(&index.with_extension("lock"))?;
    shared
        .store
        .program("read-tree")
        .worktree(&tree, &index)
        .args(["--reset", "-u"])
        .arg(shown.tree.to_string())
        .run()?;
    let home = place.dir.join("home");
    remove(&home)?;
    make_dir(&home.join("tmp"))?;
    disposable_git(shared, &tree.join(".git"), &index, shown.commit)?;
    if shared.separate.load(Ordering::Relaxed) {
        for folder in [&tree, &home] {
            hand_over(folder, place.number).map_err(|e| WorkspaceError::io(folder, e))?;
        }
    }
    Ok(())
}

/// The repository that the worker sees. Nothing in it is read back.
fn disposable_git(
    shared: &Shared,
    git: &Path,
    index: &Path,
    commit: Oid,
) -> Result<(), WorkspaceError> {
    remove(git)?;
    for folder in ["objects/info", "objects/pack", "refs/heads", "refs/tags", "info"] {
        make_dir(&git.join(folder))?;
    }
    write(&git.join("HEAD"), format!("{commit}\n").as_bytes())?;
    write(
        &git.join("config"),
        b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n[user]\n\tname = worker\n\temail = worker@localhost\n[commit]\n\tgpgSign = false\n[gc]\n\tauto = 0\n",
    )?;
    write(&git.join("info/attributes"), NO_CONVERSION)?;
    let mut objects = shared.store.dir().join("objects").into_os_string().into_encoded_bytes();
    objects.push(b'\n');
    write(&git.join("objects/info/alternates"), &objects)?;
    let shallow = shared.store.dir().join("shallow");
    for (from, to) in [(shallow.as_path(), "shallow"), (index, "index")] {
        match std::fs::copy(from, git.join(to)) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(WorkspaceError::io(from, error)),
        }
    }
    Ok(())
}
