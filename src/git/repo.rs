//! A handle on one object store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gix::refs::transaction::{PreviousValue, RefEdit};
use gix::refs::{FullName, Target};
use jiff::Timestamp;

use super::{Expect, GitError, Oid, Program, base_config};

/// Who our commits are by.
pub const COMMITTER_NAME: &str = "overhaul[bot]";
/// GitHub's form of an address that belongs to nobody.
pub const COMMITTER_EMAIL: &str = "overhaul[bot]@users.noreply.github.com";

/// Memory for decoded objects per thread handle, bytes: trees of some thousand files fit.
const OBJECT_CACHE: usize = 16 << 20;

/// Name of the private global configuration inside a store of ours.
const GLOBAL_CONFIG: &str = "overhaul-gitconfig";

/// A git object store with its refs. Cheap to clone; shared between threads.
#[derive(Clone)]
pub struct Repo {
    shared: Arc<Shared>,
}

struct Shared {
    gix: gix::ThreadSafeRepository,
    dir: PathBuf,
    global: PathBuf,
}

impl std::fmt::Debug for Repo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Repo").field(&self.shared.dir).finish()
    }
}

impl Repo {
    /// Opens a bare store, a `.git` folder, or the folder that holds one.
    ///
    /// # Errors
    /// When there is no repository, or it uses another object format than SHA-1.
    pub fn open(path: &Path) -> Result<Self, GitError> {
        let options = gix::open::Options::isolated().config_overrides(base_config());
        let gix = options
            .open(path)
            .map_err(|error| GitError::gix(format!("opening {}", path.display()), error))?;
        let dir = absolute(gix.to_thread_local().git_dir())?;
        let own = dir.join(GLOBAL_CONFIG);
        let global = if own.is_file() { own } else { PathBuf::from("/dev/null") };
        Ok(Self { shared: Arc::new(Shared { gix, dir, global }) })
    }

    /// Creates a bare store of ours (or opens it, if it is there), which borrows the objects of
    /// `lender`, another repository's common git folder, without touching it.
    ///
    /// # Errors
    /// When the folder can't be written, or the lender is no repository.
    pub fn create(path: &Path, lender: Option<&Path>) -> Result<Self, GitError> {
        let write = |name: &str, text: &[u8]| {
            let file = path.join(name);
            if let Some(folder) = file.parent() {
                std::fs::create_dir_all(folder).map_err(|e| GitError::io(folder, e))?;
            }
            std::fs::write(&file, text).map_err(|e| GitError::io(file, e))
        };
        for folder in ["objects/info", "objects/pack", "refs/heads", "info"] {
            let folder = path.join(folder);
            std::fs::create_dir_all(&folder).map_err(|e| GitError::io(folder, e))?;
        }
        write(
            "config",
            b"[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
        )?;
        // The folder of a container job belongs to another user; only a global file reaches the
        // helper programs that git starts for a remote in a folder.
        write(GLOBAL_CONFIG, b"[safe]\n\tdirectory = *\n")?;
        write("info/attributes", NO_CONVERSION)?;
        if let Some(lender) = lender {
            let lender = common_dir(lender)?;
            let mut objects = lender.join("objects").into_os_string().into_encoded_bytes();
            objects.push(b'\n');
            write("objects/info/alternates", &objects)?;
            if let Ok(shallow) = std::fs::read(lender.join("shallow")) {
                write("shallow", &shallow)?;
            }
        }
        // HEAD last: it is what makes the folder a repository.
        write("HEAD", b"ref: refs/heads/none\n")?;
        Self::open(path)
    }

    /// Writes these refs and what they need into a bundle, without the history of a commit that
    /// every reader has.
    ///
    /// # Errors
    /// When git fails.
    pub fn bundle(&self, file: &Path, refs: &[&str], without: Oid) -> Result<(), GitError> {
        self.program("bundle")
            .args(["create", "--quiet"])
            .arg(file)
            .args(refs)
            .arg(format!("^{without}"))
            .run()
            .map(drop)
    }

    /// What changed between two trees or commits, as git shows it. Names and lines that are no
    /// UTF-8 are made readable.
    ///
    /// # Errors
    /// When git fails.
    pub fn patch(&self, old: Oid, new: Oid) -> Result<String, GitError> {
        let bytes = self
            .program("diff")
            .args(["--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"])
            .args([old.to_string(), new.to_string()])
            .run()?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The store's folder, absolute.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// A handle for this thread.
    pub(super) fn local(&self) -> gix::Repository {
        let mut repo = self.shared.gix.to_thread_local();
        repo.object_cache_size_if_unset(OBJECT_CACHE);
        repo
    }

    /// A call of the git program on this store.
    pub(crate) fn program(&self, subcommand: &str) -> Program {
        Program::new(&self.shared.dir, &self.shared.global, subcommand)
    }

    /// Writes a commit with our identity. The same inputs give the same id.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn commit(
        &self,
        tree: Oid,
        parents: &[Oid],
        message: &str,
        time: Timestamp,
    ) -> Result<Oid, GitError> {
        let who = gix::actor::Signature {
            name: COMMITTER_NAME.into(),
            email: COMMITTER_EMAIL.into(),
            time: gix::date::Time { seconds: time.as_second().max(0), offset: 0 },
        };
        let commit = gix::objs::Commit {
            tree,
            parents: parents.iter().copied().collect(),
            author: who.clone(),
            committer: who,
            encoding: None,
            message: message.into(),
            extra_headers: Vec::new(),
        };
        let id = self
            .local()
            .write_object(commit)
            .map_err(|e| GitError::gix("writing a commit", e))?
            .detach();
        Ok(id)
    }

    /// The tree of a commit.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn tree_of(&self, commit: Oid) -> Result<Oid, GitError> {
        let failed = |error| GitError::gix(format!("commit {commit}"), error);
        let repo = self.local();
        let commit = repo.find_commit(commit).map_err(failed)?;
        Ok(commit.tree_id().map_err(failed)?.detach())
    }

    /// The parents of a commit, in order.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn parents_of(&self, commit: Oid) -> Result<Vec<Oid>, GitError> {
        let repo = self.local();
        let found =
            repo.find_commit(commit).map_err(|e| GitError::gix(format!("commit {commit}"), e))?;
        Ok(found.parent_ids().map(gix::Id::detach).collect())
    }

    /// When a commit was made, seconds since 1970.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn time_of(&self, commit: Oid) -> Result<i64, GitError> {
        let failed = |error| GitError::gix(format!("commit {commit}"), error);
        let repo = self.local();
        let found = repo.find_commit(commit).map_err(failed)?;
        Ok(found.time().map_err(failed)?.seconds)
    }

    /// The whole message of a commit, bytes that are no UTF-8 replaced.
    ///
    /// # Errors
    /// When there is no such commit.
    pub fn message_of(&self, commit: Oid) -> Result<String, GitError> {
        let failed = |error| GitError::gix(format!("commit {commit}"), error);
        let repo = self.local();
        let found = repo.find_commit(commit).map_err(failed)?;
        Ok(found.message_raw().map_err(failed)?.to_string())
    }

    /// Authors other than ourselves of the commits in `head` and not in `base`, each once, as
    /// `Name <mail>` without control characters; at most of the newest thousand.
    ///
    /// # Errors
    /// When the history can't be read.
    pub fn authors(&self, base: Oid, head: Oid) -> Result<Vec<String>, GitError> {
        let range = format!("{base}..{head}");
        let log =
            self.program("log").args(["-n1000", "--no-mailmap", "--format=%an <%ae>", &range]);
        let mut found = BTreeSet::new();
        for line in String::from_utf8_lossy(&log.run()?).lines() {
            let who: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
            if !who.ends_with(&format!("<{COMMITTER_EMAIL}>")) && who.ends_with('>') {
                found.insert(who);
            }
        }
        Ok(found.into_iter().collect())
    }

    /// Whether the history ends where a shallow clone cut it.
    #[must_use]
    pub fn is_shallow(&self) -> bool {
        self.dir().join("shallow").exists()
    }

    /// The best common ancestor, if there is one.
    ///
    /// # Errors
    /// When the history can't be read.
    pub fn merge_base(&self, a: Oid, b: Oid) -> Result<Option<Oid>, GitError> {
        let repo = self.local();
        let found = repo
            .merge_base(a, b)
            .map_err(|e| GitError::gix(format!("merge base of {a} and {b}"), e))?;
        Ok(found.map(gix::Id::detach))
    }

    /// Is `ancestor` reachable from `commit` (or the same)?
    ///
    /// # Errors
    /// When the history can't be read.
    pub fn is_ancestor(&self, ancestor: Oid, commit: Oid) -> Result<bool, GitError> {
        Ok(ancestor == commit || self.merge_base(ancestor, commit)? == Some(ancestor))
    }

    /// Is the object there?
    #[must_use]
    pub fn has(&self, id: Oid) -> bool {
        self.local().has_object(id)
    }

    /// The content of a blob.
    ///
    /// # Errors
    /// When there is no such blob.
    pub fn blob(&self, id: Oid) -> Result<Vec<u8>, GitError> {
        let repo = self.local();
        let mut blob = repo.find_blob(id).map_err(|e| GitError::gix(format!("blob {id}"), e))?;
        Ok(blob.take_data())
    }

    /// The size of an object in bytes, without reading its content.
    ///
    /// # Errors
    /// When there is no such object.
    pub fn size(&self, id: Oid) -> Result<u64, GitError> {
        let repo = self.local();
        Ok(repo.find_header(id).map_err(|e| GitError::gix(format!("object {id}"), e))?.size())
    }

    /// Writes a blob.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write_blob(&self, bytes: &[u8]) -> Result<Oid, GitError> {
        let repo = self.local();
        let id = repo.write_blob(bytes).map_err(|e| GitError::gix("writing a blob", e))?;
        Ok(id.detach())
    }

    /// The object that a full ref name points to, symbolic refs followed.
    ///
    /// # Errors
    /// When the name is not valid or the ref can't be read.
    pub fn find_ref(&self, name: &str) -> Result<Option<Oid>, GitError> {
        let name = full_name(name)?;
        let failed = |error| GitError::gix("reading a ref", error);
        let repo = self.local();
        let found = repo.try_find_reference(&name).map_err(failed)?;
        found.map(|mut found| Ok(found.peel_to_id().map_err(failed)?.detach())).transpose()
    }

    /// Every ref below `prefix` (which ends with `/`), by full name.
    ///
    /// # Errors
    /// When the refs can't be read.
    pub fn refs(&self, prefix: &str) -> Result<BTreeMap<String, Oid>, GitError> {
        let failed = |error| GitError::gix(format!("listing {prefix}"), error);
        let repo = self.local();
        let platform = repo.references().map_err(failed)?;
        let mut found = BTreeMap::new();
        for reference in platform.prefixed(prefix).map_err(failed)?.flatten() {
            if let Some(id) = reference.try_id() {
                found.insert(reference.name().as_bstr().to_string(), id.detach());
            }
        }
        Ok(found)
    }

    /// Compare-and-swap of one local ref; `new: None` deletes it. `false` = somebody else was first.
    ///
    /// # Errors
    /// When the name is not valid or the disk refuses.
    pub fn update_ref(
        &self,
        name: &str,
        new: Option<Oid>,
        expected: Expect,
    ) -> Result<bool, GitError> {
        let full = full_name(name)?;
        let previous = match expected {
            Expect::Absent => PreviousValue::MustNotExist,
            Expect::At(id) => PreviousValue::MustExistAndMatch(Target::Object(id)),
            Expect::Any => PreviousValue::Any,
        };
        let edit = match new {
            Some(id) => RefEdit::update(full, id, previous, "overhaul"),
            None => RefEdit::delete(full, previous),
        };
        match self.local().edit_reference(edit) {
            Ok(_) => Ok(true),
            Err(error) => {
                let moved = match expected {
                    Expect::Any => false,
                    Expect::Absent => self.find_ref(name)?.is_some(),
                    Expect::At(id) => self.find_ref(name)? != Some(id),
                };
                if moved || error.classify().is_conflict() {
                    return Ok(false);
                }
                Err(GitError::gix(format!("writing {name}"), error))
            }
        }
    }
}

/// Everything that would make a file differ from its blob is off. `working-tree-encoding` knows no
/// "off" (`-` is an error), only "unset".
pub(crate) const NO_CONVERSION: &[u8] = b"* -text -crlf -ident -filter !working-tree-encoding\n";

/// The folder that holds the objects, for a repository, its `.git`, or a linked worktree.
fn common_dir(path: &Path) -> Result<PathBuf, GitError> {
    let options = gix::open::Options::isolated();
    let repo = options
        .open(path)
        .map_err(|error| GitError::gix(format!("opening {}", path.display()), error))?;
    absolute(repo.to_thread_local().common_dir())
}

fn absolute(path: &Path) -> Result<PathBuf, GitError> {
    std::fs::canonicalize(path).map_err(|e| GitError::io(path, e))
}

fn full_name(name: &str) -> Result<FullName, GitError> {
    let invalid = || GitError::Invalid { what: format!("ref name '{}'", name.escape_debug()) };
    if name != "HEAD" && !name.starts_with("refs/") {
        return Err(invalid());
    }
    FullName::try_from(name).map_err(|_| invalid())
}
