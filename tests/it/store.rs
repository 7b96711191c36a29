//! The ledger is kept: one contract for every store.

use std::sync::Arc;

use overhaul::ledger::{EVENT_VERSION, Event, EventKind};
use overhaul::model::{CycleId, RunId};
use overhaul::store::{Batch, DirectoryStore, Store, StoreError, Version};

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
