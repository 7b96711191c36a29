//! The ledger in workflow artifacts: written through the results service, read through the API.

use std::sync::Mutex;
use std::time::Duration;

use overhaul::actions::Results;
use overhaul::cycle::JobArtifacts;
use overhaul::store::{ArtifactStore, Artifacts};

use super::*;
use crate::rigs::github::artifacts::runtime_token;
use crate::rigs::github::{Fault, Rig};

/// A GitHub, and jobs of workflow runs that come to it.
struct Jobs {
    rig: Rig,
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
    opened: AtomicUsize,
}

impl Jobs {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        Self { rig: Rig::start(), folder, runtime, opened: AtomicUsize::new(0) }
    }

    fn artifacts(&self, run: &str) -> Arc<JobArtifacts> {
        let _inside = self.runtime.enter();
        let (url, token) = (self.rig.server_url().to_owned(), runtime_token(run));
        let results = Results::from_env(&|name| match name {
            "ACTIONS_RESULTS_URL" => Some(format!("{url}/")),
            "ACTIONS_RUNTIME_TOKEN" => Some(token.clone()),
            _ => None,
        });
        let results = results.unwrap().with_first_wait(Duration::from_millis(1));
        Arc::new(JobArtifacts::new(results, Arc::new(self.rig.client())))
    }

    /// A job's store, with a clone of its own.
    fn store(&self, artifacts: Arc<dyn Artifacts>) -> (ArtifactStore, Repo) {
        let count = self.opened.fetch_add(1, Ordering::Relaxed);
        let folder = self.folder.path().join(format!("job-{count}"));
        std::fs::create_dir_all(&folder).unwrap();
        let repo = Repo::create(&folder.join("clone.git"), None).unwrap();
        let remote = Remote::new(self.rig.git().path.to_str().unwrap(), None).unwrap();
        remote.fetch(&repo, &["+refs/heads/main:refs/overhaul/base/main"]).unwrap();
        let base = repo.find_ref("refs/overhaul/base/main").unwrap().unwrap();
        (ArtifactStore::new(artifacts, repo.clone(), &folder, DEFAULT_BRANCH, base).unwrap(), repo)
    }

    fn open(&self, run: &str) -> ArtifactStore {
        self.store(self.artifacts(run)).0
    }

    fn names(&self) -> Vec<String> {
        self.rig.world().artifacts.iter().map(|artifact| artifact.name.clone()).collect()
    }
}

#[test]
fn artifacts_keep_the_contract() {
    let jobs = Jobs::new();
    contract(&|| Box::new(jobs.open("run-1")), 2);
    let names = jobs.names();
    assert!(names.len() <= 6, "old states go: {names:?}");
}

#[test]
fn another_workflow_run_goes_on_and_kept_commits_travel() {
    let jobs = Jobs::new();
    let (store, repo) = jobs.store(jobs.artifacts("run-1"));
    let base = repo.find_ref("refs/overhaul/base/main").unwrap().unwrap();
    let tree = repo.edit_files(None, [("a.txt", "a")]).unwrap();
    let at = "2026-11-30T08:00:00Z".parse().unwrap();
    let commit = repo.commit(tree, &[base], "work\n", at).unwrap();
    let keep = vec![("refs/overhaul/keep/r-1/N-001".to_owned(), commit.to_string())];
    let run = run("r-1");
    let first = Batch { keep, ..batch("c-1", &["a"]) };
    let version = store.append(&run, &Version::default(), &first).unwrap();

    let (next, other) = jobs.store(jobs.artifacts("run-2"));
    assert!(!other.has(commit));
    let loaded = next.load(&run).unwrap();
    assert_eq!((authors(&loaded.events), &loaded.version), (vec!["a".to_owned()], &version));
    assert!(other.has(commit), "it travelled with the state");
    next.append(&run, &version, &batch("c-2", &["b"])).unwrap();
    assert_eq!(authors(&store.load(&run).unwrap().events), ["a", "b"]);
}

/// Artifacts whose list is late, as a busy service's can be.
struct Late {
    inner: Arc<JobArtifacts>,
    list: Mutex<Option<Vec<(u64, String)>>>,
}

impl Artifacts for Late {
    fn place(&self) -> String {
        self.inner.place()
    }
    fn list(&self, name: Option<&str>) -> Result<Vec<(u64, String)>, StoreError> {
        let late = self.list.lock().unwrap().clone().filter(|_| name.is_none());
        late.map_or_else(|| self.inner.list(name), Ok)
    }
    fn read(&self, id: u64) -> Result<Vec<u8>, StoreError> {
        self.inner.read(id)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<u64, StoreError> {
        self.inner.write(name, bytes)
    }
    fn remove(&self, name: &str) {
        self.inner.remove(name);
    }
}

/// Two uploads of one name that cross: what the writer is told is true of the other one.
struct Crossed {
    inner: Arc<JobArtifacts>,
    /// Whether ours is what is there, and the writer is told that it failed.
    ours: bool,
}

impl Artifacts for Crossed {
    fn place(&self) -> String {
        self.inner.place()
    }
    fn list(&self, name: Option<&str>) -> Result<Vec<(u64, String)>, StoreError> {
        self.inner.list(name)
    }
    fn read(&self, id: u64) -> Result<Vec<u8>, StoreError> {
        self.inner.read(id)
    }
    fn write(&self, name: &str, bytes: &[u8]) -> Result<u64, StoreError> {
        if self.ours {
            self.inner.write(name, bytes).and(Err(StoreError::Conflict))
        } else {
            self.inner.write(name, b"somebody else's")
        }
    }
    fn remove(&self, name: &str) {
        self.inner.remove(name);
    }
}

#[test]
fn what_is_there_counts_and_not_what_a_writer_was_told() {
    for ours in [true, false] {
        let jobs = Jobs::new();
        let inner = jobs.artifacts("run-1");
        let (store, _) = jobs.store(Arc::new(Crossed { inner, ours }));
        let told = store.append(&run("r-1"), &Version::default(), &batch("c-1", &["a"]));
        match told {
            Ok(_) => assert!(ours),
            Err(StoreError::Conflict) => assert!(!ours),
            Err(other) => panic!("{other}"),
        }
        assert_eq!(jobs.names(), ["overhaul-state-00000001"], "nothing of another is removed");
    }
}

#[test]
fn the_second_of_two_workflow_runs_takes_its_state_back() {
    let jobs = Jobs::new();
    let run = run("r-1");
    let first = jobs.open("run-1");
    let version = first.append(&run, &Version::default(), &batch("c-1", &["a"])).unwrap();
    let inner = jobs.artifacts("run-2");
    let list = Mutex::new(Some(inner.list(None).unwrap()));
    let late = Arc::new(Late { inner, list });
    let (second, _) = jobs.store(late.clone());
    first.append(&run, &version, &batch("c-1", &["b"])).unwrap();
    let lost = second.append(&run, &version, &batch("c-2", &["x"])).unwrap_err();
    assert!(matches!(lost, StoreError::Conflict), "{lost}");
    assert_eq!(jobs.names(), ["overhaul-state-00000001", "overhaul-state-00000002"]);
    *late.list.lock().unwrap() = None;
    let loaded = second.load(&run).unwrap();
    assert_eq!(authors(&loaded.events), ["a", "b"]);
    second.append(&run, &loaded.version, &batch("c-2", &["c"])).unwrap();
    assert_eq!(authors(&first.load(&run).unwrap().events), ["a", "b", "c"]);
}

#[test]
fn passing_trouble_is_waited_for_and_what_is_not_ours_is_left() {
    let jobs = Jobs::new();
    let run = run("r-1");
    let store = jobs.open("run-1");
    jobs.rig.fail(Fault::status("POST", "CreateArtifact", 503).times(2));
    jobs.rig.fail(Fault::status("POST", "FinalizeArtifact", 429));
    let version = store.append(&run, &Version::default(), &batch("c-1", &["a"])).unwrap();
    assert_eq!(jobs.rig.faults_left(), 0);
    jobs.rig.fail(Fault::status("POST", "CreateArtifact", 403));
    let error = store.append(&run, &version, &batch("c-1", &["b"])).unwrap_err();
    assert!(matches!(error, StoreError::Forbidden { .. }), "{error}");
    assert_eq!(authors(&jobs.open("run-1").load(&run).unwrap().events), ["a"]);

    jobs.artifacts("run-9").write("overhaul-state-00000007", b"a poem").unwrap();
    let error = store.load(&run).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    let error = store.append(&run, &version, &batch("c-1", &["c"])).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}
