//! The ledger is kept: one contract for every store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use overhaul::git::{Expect, Oid, Remote, Repo};
use overhaul::ledger::{EVENT_VERSION, Event, EventKind};
use overhaul::model::{CycleId, RunId};
use overhaul::store::{
    Batch, BranchStore, DEFAULT_BRANCH, DirectoryStore, Store, StoreError, Version,
};

mod artifact;

fn run(name: &str) -> RunId {
    RunId::new(name).unwrap()
}

fn event(cycle: &str, by: &str) -> Event {
    Event {
        v: EVENT_VERSION,
        at: "2026-11-30T08:00:00Z".parse().unwrap(),
        cycle: CycleId::new(cycle).unwrap(),
        kind: EventKind::Resumed { by: by.to_owned() },
    }
}

fn batch(cycle: &str, by: &[&str]) -> Batch {
    Batch { events: by.iter().map(|b| event(cycle, b)).collect(), ..Batch::default() }
}

fn authors(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .map(|e| match &e.kind {
            EventKind::Resumed { by } => by.clone(),
            other => panic!("unexpected {other:?}"),
        })
        .collect()
}

/// What every store promises. `open` gives a new handle on the same place each time.
fn contract(open: &(dyn Fn() -> Box<dyn Store> + Sync), rounds: usize) {
    unknown_runs_are_empty(&*open());
    appends_are_read_back_in_order(open);
    a_stale_version_conflicts(open);
    blobs_are_written_once(open);
    hostile_blob_names_are_refused(&*open());
    unknown_kinds_are_not_written(&*open());
    racing_writers_have_one_winner(open, rounds);
    let names = ["r-conflict", "r-blobs", "r-order", "r-race"];
    let runs = open().runs().unwrap();
    assert!(names.iter().all(|n| runs.contains(&run(n))), "{runs:?}");
    assert!(runs.is_sorted());
}

fn unknown_runs_are_empty(store: &dyn Store) {
    assert_eq!(store.runs().unwrap(), []);
    let loaded = store.load(&run("r-nowhere")).unwrap();
    assert_eq!(loaded.version, Version::default());
    assert!(loaded.events.is_empty());
    assert_eq!(store.blob(&run("r-nowhere"), "plan.json").unwrap(), None);
    assert!(!store.name().is_empty());
}

fn appends_are_read_back_in_order(open: &dyn Fn() -> Box<dyn Store>) {
    let (run, store) = (run("r-order"), open());
    let first = store.append(&run, &Version::default(), &batch("c-1", &["a", "b"])).unwrap();
    assert_ne!(first, Version::default());
    let second = store.append(&run, &first, &batch("c-2", &["c"])).unwrap();
    assert_ne!(first, second);
    for reader in [store, open()] {
        let loaded = reader.load(&run).unwrap();
        assert_eq!(authors(&loaded.events), ["a", "b", "c"]);
        assert_eq!(loaded.version, second);
    }
}

fn a_stale_version_conflicts(open: &dyn Fn() -> Box<dyn Store>) {
    let (run, store, other) = (run("r-conflict"), open(), open());
    let first = store.append(&run, &Version::default(), &batch("c-1", &["a"])).unwrap();
    for stale in [Version::default(), Version("no-such".to_owned())] {
        let error = other.append(&run, &stale, &batch("c-2", &["x"])).unwrap_err();
        assert!(matches!(error, StoreError::Conflict), "{error}");
    }
    let second = other.append(&run, &first, &batch("c-2", &["b"])).unwrap();
    let error = store.append(&run, &first, &batch("c-1", &["x"])).unwrap_err();
    assert!(matches!(error, StoreError::Conflict), "{error}");
    // Another run's appends are no conflict.
    other.append(&self::run("r-conflict-2"), &Version::default(), &batch("c-2", &["z"])).unwrap();
    store.append(&run, &second, &batch("c-1", &["c"])).unwrap();
    assert_eq!(authors(&open().load(&run).unwrap().events), ["a", "b", "c"]);
}

fn blobs_are_written_once(open: &dyn Fn() -> Box<dyn Store>) {
    let (run, store) = (run("r-blobs"), open());
    let with = |bytes: &[u8], by: &[&str]| Batch {
        blobs: vec![("plan-1.json".to_owned(), bytes.to_vec())],
        ..batch("c-1", by)
    };
    let first = store.append(&run, &Version::default(), &with(b"\0\xff\n", &["a"])).unwrap();
    let second = store.append(&run, &first, &with(b"\0\xff\n", &[])).unwrap();
    assert_eq!(open().load(&run).unwrap().version, second);
    assert_eq!(open().blob(&run, "plan-1.json").unwrap().as_deref(), Some(&b"\0\xff\n"[..]));
    let error = store.append(&run, &second, &with(b"other", &["b"])).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert_eq!(authors(&open().load(&run).unwrap().events), ["a"]);
}

fn hostile_blob_names_are_refused(store: &dyn Store) {
    let run = run("r-names");
    for name in ["", "..", "../../etc/passwd", "a/b", "/abs", ".git", "a\nb", "-rf"] {
        let blobs = vec![(name.to_owned(), b"x".to_vec())];
        let hostile = Batch { blobs, ..batch("c-1", &["a"]) };
        assert!(store.append(&run, &Version::default(), &hostile).is_err(), "{name:?}");
        assert_eq!(store.blob(&run, name).unwrap(), None, "{name:?}");
    }
    assert!(store.load(&run).unwrap().events.is_empty());
}

fn unknown_kinds_are_not_written(store: &dyn Store) {
    let unknown = Event { kind: EventKind::Unknown, ..event("c-1", "a") };
    let batch = Batch { events: vec![unknown], ..Batch::default() };
    assert!(store.append(&run("r-unknown"), &Version::default(), &batch).is_err());
}

fn racing_writers_have_one_winner(open: &(dyn Fn() -> Box<dyn Store> + Sync), rounds: usize) {
    let run = run("r-race");
    let stores: Vec<Arc<Box<dyn Store>>> = (0..8).map(|_| Arc::new(open())).collect();
    let mut version = Version::default();
    for round in 0..rounds {
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|i| {
                    let (store, version, run) = (Arc::clone(&stores[i]), &version, &run);
                    scope.spawn(move || {
                        let cycle = format!("c-{round}-{i}");
                        store.append(run, version, &batch(&cycle, &[&cycle]))
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let mut winners = Vec::new();
        for result in results {
            match result {
                Ok(version) => winners.push(version),
                Err(StoreError::Conflict) => {}
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        version = winners.remove(0);
    }
    let loaded = open().load(&run).unwrap();
    assert_eq!((loaded.events.len(), loaded.version), (rounds, version));
}

#[test]
fn directory_keeps_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("state");
    contract(&|| Box::new(DirectoryStore::new(&root)), 50);
    let readme = std::fs::read_to_string(root.join("r-order/README.md")).unwrap();
    assert!(readme.contains("Run r-order") && readme.contains("segment 2"), "{readme}");
}

#[test]
fn directory_never_touches_what_is_not_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let store = DirectoryStore::new(folder.path());
    let run = run("r-1");
    let version = store.append(&run, &Version::default(), &batch("c-1", &["a"])).unwrap();
    let events = folder.path().join("r-1/events");

    // What a crash left behind is passed over.
    std::fs::write(events.join(".tmp-abc"), "{\"v\"").unwrap();
    assert_eq!(store.load(&run).unwrap().events.len(), 1);

    // A corrupt line is named and blocks writers too: nobody folds half a ledger.
    let segment = events.join("00000002-c-2.ndjson");
    std::fs::write(&segment, "{\"v\":1}\n").unwrap();
    let error = store.load(&run).unwrap_err();
    assert!(error.to_string().contains("00000002-c-2.ndjson"), "{error}");
    assert!(error.to_string().contains("line 1"), "{error}");
    let error = store.append(&run, &version, &batch("c-3", &["b"])).unwrap_err();
    assert!(matches!(error, StoreError::Conflict), "{error}");
    std::fs::remove_file(&segment).unwrap();

    // Strange files in our folder are reported, files beside our runs are not ours.
    std::fs::write(events.join("notes.txt"), "hello").unwrap();
    assert!(matches!(store.load(&run), Err(StoreError::Foreign { .. })));
    std::fs::create_dir(folder.path().join("photos")).unwrap();
    std::fs::write(folder.path().join("README.md"), "mine").unwrap();
    assert_eq!(store.runs().unwrap(), [run]);

    let file = folder.path().join("a-file");
    std::fs::write(&file, "").unwrap();
    let store = DirectoryStore::new(&file);
    let error = store.load(&self::run("r-1")).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

/// A bare remote and, per call of `open`, a clone's worth of local store, as jobs on different
/// machines have.
struct Remotes {
    folder: tempfile::TempDir,
    opened: AtomicUsize,
}

impl Remotes {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Repo::create(&folder.path().join("remote.git"), None).unwrap();
        Self { folder, opened: AtomicUsize::new(0) }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("remote.git")
    }

    fn repo(&self) -> Repo {
        Repo::open(&self.path()).unwrap()
    }

    fn local(&self) -> (Repo, Remote) {
        let count = self.opened.fetch_add(1, Ordering::Relaxed);
        let local = Repo::create(&self.folder.path().join(format!("local-{count}")), None).unwrap();
        (local, Remote::new(self.path().to_str().unwrap(), None).unwrap())
    }

    fn open(&self) -> BranchStore {
        let (local, remote) = self.local();
        BranchStore::new(local, remote, DEFAULT_BRANCH)
    }

    fn tip(&self) -> Option<Oid> {
        self.repo().find_ref(STATE).unwrap()
    }
}

const STATE: &str = "refs/heads/overhaul/state";

#[test]
fn branch_keeps_the_contract() {
    let remotes = Remotes::new();
    // Each round is some forty processes; more rounds show nothing new.
    contract(&|| Box::new(remotes.open()), 6);
    let (repo, tip) = (remotes.repo(), remotes.tip().unwrap());
    let tree = repo.tree_of(tip).unwrap();
    let page = repo.read_path(tree, b"r-order/README.md").unwrap().unwrap();
    assert!(String::from_utf8(page).unwrap().contains("Run r-order"));
    assert!(repo.read_path(tree, b"README.md").unwrap().is_some());
    assert!(repo.read_path(tree, b"r-order/events/00000002-c-2.ndjson").unwrap().is_some());
}

#[test]
fn branch_keeps_refs_in_the_same_push() {
    let remotes = Remotes::new();
    let (local, remote) = remotes.local();
    let tree = local.edit_files(None, [("a.txt", "a")]).unwrap();
    let at = "2026-11-30T08:00:00Z".parse().unwrap();
    let first = local.commit(tree, &[], "first", at).unwrap();
    let second = local.commit(tree, &[first], "second", at).unwrap();
    let store = BranchStore::new(local, remote, DEFAULT_BRANCH);
    let name = "refs/heads/overhaul/r-1/N-001".to_owned();
    let keep = |id: Oid, by: &[&str]| Batch {
        keep: vec![(name.clone(), id.to_string())],
        ..batch("c-1", by)
    };
    let run = run("r-1");
    let version = store.append(&run, &Version::default(), &keep(first, &["a"])).unwrap();
    assert_eq!(remotes.repo().find_ref(&name).unwrap(), Some(first));
    let version = store.append(&run, &version, &keep(second, &["b"])).unwrap();
    assert_eq!(remotes.repo().find_ref(&name).unwrap(), Some(second));

    // A lost race keeps nothing.
    let other = remotes.open();
    other.append(&run, &version, &batch("c-2", &["c"])).unwrap();
    let error = store.append(&run, &version, &keep(first, &["x"])).unwrap_err();
    assert!(matches!(error, StoreError::Conflict), "{error}");
    assert_eq!(remotes.repo().find_ref(&name).unwrap(), Some(second));

    // Only refs, no events: the log stays where it is.
    let version = store.load(&run).unwrap().version;
    let tip = remotes.tip();
    let extra = "refs/overhaul/r-1/quarantine/N-001/1".to_owned();
    let only = Batch { keep: vec![(extra.clone(), first.to_string())], ..Batch::default() };
    assert_eq!(store.append(&run, &version, &only).unwrap(), version);
    assert_eq!((remotes.tip(), remotes.repo().find_ref(&extra).unwrap()), (tip, Some(first)));
}

#[test]
fn a_remote_without_atomic_push_gets_the_kept_refs_first() {
    let remotes = Remotes::new();
    let config = remotes.path().join("config");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}[receive]\n\tadvertiseAtomic = false\n")).unwrap();
    let (local, remote) = remotes.local();
    let tree = local.edit_files(None, [("a.txt", "a")]).unwrap();
    let commit = local.commit(tree, &[], "x", "2026-11-30T08:00:00Z".parse().unwrap()).unwrap();
    let store = BranchStore::new(local, remote, DEFAULT_BRANCH);
    let name = "refs/heads/overhaul/r-1/N-001".to_owned();
    let keep = Batch { keep: vec![(name.clone(), commit.to_string())], ..batch("c-1", &["a"]) };
    store.append(&run("r-1"), &Version::default(), &keep).unwrap();
    assert_eq!(remotes.repo().find_ref(&name).unwrap(), Some(commit));
    assert_eq!(remotes.open().load(&run("r-1")).unwrap().events.len(), 1);
}

#[test]
fn a_branch_that_is_not_ours_is_never_written() {
    let remotes = Remotes::new();
    let repo = remotes.repo();
    let at = "2026-11-30T08:00:00Z".parse().unwrap();
    let set = |files: &[(&str, &str)]| {
        let tree = repo.edit_files(None, files.iter().copied()).unwrap();
        let commit = repo.commit(tree, &[], "x", at).unwrap();
        repo.update_ref(STATE, Some(commit), Expect::Any).unwrap();
        commit
    };
    let run = run("r-1");
    let ours = ("overhaul-state.json", "{\"format\":1}");
    let foreign: [&[(&str, &str)]; 5] = [
        &[("src/main.rs", "fn main() {}")],
        &[("overhaul-state.json", "{\"format\":2}")],
        &[("overhaul-state.json", "[")],
        &[ours, ("r-1/events/00000001-c.ndjson", "not json\n")],
        &[ours, ("r-1/events/00000002-c.ndjson", "{}\n")],
    ];
    for files in foreign {
        let commit = set(files);
        let store = remotes.open();
        let error = store.load(&run).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{files:?}: {error}");
        assert!(store.append(&run, &Version::default(), &batch("c", &["a"])).is_err());
        assert_eq!(remotes.tip(), Some(commit));
    }
}

#[test]
fn a_deleted_branch_is_empty_and_conflicts_with_what_was_read() {
    let remotes = Remotes::new();
    let (store, run) = (remotes.open(), run("r-1"));
    let version = store.append(&run, &Version::default(), &batch("c-1", &["a"])).unwrap();
    remotes.repo().update_ref(STATE, None, Expect::Any).unwrap();
    let error = store.append(&run, &version, &batch("c-1", &["b"])).unwrap_err();
    assert!(matches!(error, StoreError::Conflict), "{error}");
    let loaded = store.load(&run).unwrap();
    assert_eq!((loaded.version, loaded.events.len()), (Version::default(), 0));
}

#[test]
fn an_unreachable_remote_is_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let local = Repo::create(&folder.path().join("local"), None).unwrap();
    let nowhere = folder.path().join("nowhere.git");
    let remote = Remote::new(nowhere.to_str().unwrap(), None).unwrap();
    let store = BranchStore::new(local, remote, DEFAULT_BRANCH);
    let error = store.load(&run("r-1")).unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}
