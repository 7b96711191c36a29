//! The store and the pool of slots.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::git::{self, Oid, Repo};
use crate::process::end_below;

use super::WorkspaceError;
use super::fs::{make_dir, remove};
use super::slot::{Place, Shown, Slot};
use super::take::{TakeLimits, Taken, Worktree, take};
use super::tracked::Tracked;

/// How many trees' path lists are kept; a cycle works on few bases at a time.
const TRACKED_KEPT: usize = 16;

/// A run's object store and its worktrees. Cheap to clone. Several processes may share a root.
#[derive(Debug, Clone)]
pub struct Workspace {
    shared: Arc<Shared>,
}

/// What slots need of their workspace.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Repo,
    root: PathBuf,
    lender: PathBuf,
    /// This process's folder of slots; removed with the last handle.
    own: PathBuf,
    /// Held as long as we live; the system lets go of it however we die.
    _lock: File,
    next: AtomicUsize,
    /// Does each slot belong to a user of its own?
    pub(super) separate: AtomicBool,
    free: Mutex<Vec<Place>>,
    /// The newest last.
    tracked: Mutex<VecDeque<(Oid, Arc<Tracked>)>>,
}

impl Workspace {
    /// Opens or creates the workspace at `root`, which must lie outside the repository, and removes
    /// the slots of processes that died. `repository` (its folder, or its `.git`) lends its objects
    /// and is never written.
    ///
    /// # Errors
    /// When git is missing or too old, the repository can't be read, or the root can't be written.
    pub fn open(root: &Path, repository: &Path) -> Result<Self, WorkspaceError> {
        git::version()?;
        make_dir(root)?;
        let root = std::fs::canonicalize(root).map_err(|e| WorkspaceError::io(root, e))?;
        let lender =
            std::fs::canonicalize(repository).map_err(|e| WorkspaceError::io(repository, e))?;
        // One process at a time creates the store, sweeps, and claims a folder.
        let gate = root.join("lock");
        let gate_file = File::create(&gate).map_err(|e| WorkspaceError::io(&gate, e))?;
        gate_file.lock().map_err(|e| WorkspaceError::io(&gate, e))?;

        let store = Repo::create(&root.join("store.git"), Some(&lender))?;
        let slots = root.join("slots");
        make_dir(&slots)?;
        sweep(&slots)?;
        let own = slots.join(format!("{}-{:08x}", std::process::id(), fastrand::u32(..)));
        make_dir(&own)?;
        let path = own.join("lock");
        let lock = File::create(&path).map_err(|e| WorkspaceError::io(&path, e))?;
        lock.try_lock().map_err(|e| WorkspaceError::io(&path, e.into()))?;
        Ok(Self {
            shared: Arc::new(Shared {
                store,
                root,
                lender,
                own,
                _lock: lock,
                next: AtomicUsize::new(0),
                separate: AtomicBool::new(false),
                free: Mutex::default(),
                tracked: Mutex::default(),
            }),
        })
    }

    /// The run's object store.
    #[must_use]
    pub fn store(&self) -> &Repo {
        &self.shared.store
    }

    /// The workspace's folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.shared.root
    }

    /// Folders besides its slot that a worker's git has to read: the objects, ours and lent.
    #[must_use]
    pub fn readable_by_workers(&self) -> Vec<PathBuf> {
        let lent = std::fs::read(self.shared.store.dir().join("objects/info/alternates"));
        let lent =
            lent.map(|text| PathBuf::from(String::from_utf8_lossy(&text).trim_end().to_owned()));
        [self.shared.store.dir().join("objects")].into_iter().chain(lent.ok()).collect()
    }

    /// The folder of this process's slots.
    #[must_use]
    pub fn slots(&self) -> &Path {
        &self.shared.own
    }

    /// From now on each slot is given to a user of its own when it is reset; see
    /// [`crate::process::can_separate`].
    pub fn separate_users(&self) {
        self.shared.separate.store(true, Ordering::Relaxed);
    }

    /// The repository that lends its objects.
    #[must_use]
    pub fn repository(&self) -> &Path {
        &self.shared.lender
    }

    /// A worktree: a free one of the pool (one that already shows `near`, if there is one), or a
    /// new one. Reset it before use.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn slot(&self, near: Option<Oid>) -> Result<Slot, WorkspaceError> {
        let free = {
            let mut free = guard(&self.shared.free);
            let same = near.and_then(|near| {
                free.iter().position(|p| p.shows.as_ref().is_some_and(|s| s.commit == near))
            });
            match same {
                Some(at) => Some(free.swap_remove(at)),
                None => free.pop(),
            }
        };
        let place = match free {
            Some(place) => place,
            None => self.shared.create()?,
        };
        Ok(Slot::new(Arc::clone(&self.shared), place))
    }
}

impl Workspace {
    /// Everything between `commit` and the files of a checkout as they are now, as one tree in the
    /// store. The checkout is only read: neither its index nor its configuration count.
    ///
    /// # Errors
    /// As [`Slot::take_tree`].
    pub fn take_checkout(
        &self,
        checkout: &Path,
        commit: Oid,
        limits: &TakeLimits,
    ) -> Result<Taken, WorkspaceError> {
        let root = std::fs::canonicalize(checkout).map_err(|e| WorkspaceError::io(checkout, e))?;
        let place = self.shared.create()?;
        let tree = self.shared.store.tree_of(commit)?;
        let index = place.index();
        let read = self.shared.store.program("read-tree").worktree(&root, &index);
        read.arg(tree.to_string()).run()?;
        let tracked = self.shared.tracked(tree)?;
        let worktree = Worktree { root, index, ours: false };
        let taken = take(&self.shared.store, &worktree, &Shown { commit, tree, tracked }, limits);
        remove(&place.dir)?;
        taken
    }
}

impl Shared {
    fn create(&self) -> Result<Place, WorkspaceError> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let dir = self.own.join(number.to_string());
        make_dir(&dir.join("tree"))?;
        Ok(Place { dir, number, shows: None })
    }

    /// A new place for one that can't be repaired; what is left of that is swept later.
    pub(super) fn replace(&self, broken: &Place) -> Result<Place, WorkspaceError> {
        if let Err(error) = remove(&broken.dir) {
            tracing::warn!(slot = %broken.dir.display(), %error, "a broken slot stays behind");
        }
        self.create()
    }

    pub(super) fn give_back(&self, place: Place) {
        guard(&self.free).push(place);
    }

    /// The paths of a tree: known, or made from the newest that is known, or listed.
    pub(super) fn tracked(&self, tree: Oid) -> Result<Arc<Tracked>, WorkspaceError> {
        let newest = {
            let known = guard(&self.tracked);
            if let Some((_, tracked)) = known.iter().find(|(id, _)| *id == tree) {
                return Ok(Arc::clone(tracked));
            }
            known.back().cloned()
        };
        let fresh = Arc::new(match newest {
            Some((old, tracked)) => tracked.moved(&self.store, old, tree)?,
            None => Tracked::of(&self.store, tree)?,
        });
        let mut known = guard(&self.tracked);
        if known.len() >= TRACKED_KEPT {
            known.pop_front();
        }
        known.push_back((tree, Arc::clone(&fresh)));
        Ok(fresh)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.own) {
            tracing::warn!(%error, "slots stay behind until the next start");
        }
    }
}

fn guard<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the folders whose owner holds their lock no more.
fn sweep(slots: &Path) -> Result<(), WorkspaceError> {
    let failed = |source| WorkspaceError::io(slots, source);
    for entry in std::fs::read_dir(slots).map_err(failed)? {
        let folder = entry.map_err(failed)?.path();
        let live = match File::open(folder.join("lock")) {
            Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
            Err(_) => false,
        };
        if live {
            continue;
        }
        // What outlived its owner works on, and would write into what is removed now.
        let ended = end_below(&folder);
        if ended > 0 {
            tracing::warn!(ended, slots = %folder.display(), "processes of a dead cycle were ended");
        }
        if let Err(error) = remove(&folder) {
            tracing::warn!(%error, "stale slots stay behind");
        }
    }
    Ok(())
}
