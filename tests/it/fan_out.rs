//! Nodes that are handed out to jobs of their own: separate processes on separate clones, with one
//! bare remote, a forge, and nothing else between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use overhaul::git::{Remote, Repo};
use overhaul::ledger::{Event, Run, fold};
use overhaul::store::{BranchStore, Store};
use serde_json::Value;

use crate::support::jobs::{clone, entries, on_clone, world};
use crate::support::{World, git};

mod at_scale;
mod crash;
mod host;
mod hostile;

/// Appends the node's name to its file.
pub const WORKER: &str = "echo \"$1\" >> \"$2\"\n";

/// What `merge-results` said.
#[derive(Debug)]
pub struct Landed {
    pub code: Option<i32>,
    pub report: Value,
    pub stderr: String,
}

impl Landed {
    /// What became of a node: `landed`, `failed`, `missing`.
    pub fn fate(&self, node: &str) -> &str {
        let results = self.report["results"].as_array();
        let found = results
            .into_iter()
            .flatten()
            .find(|r| r["node"] == node && (r["fate"] != "refused" || r["file"].is_null()));
        found.map_or("none", |r| r["fate"].as_str().unwrap())
    }

    /// Why files were refused, by file.
    pub fn refused(&self) -> BTreeMap<String, String> {
        let results = self.report["results"].as_array().cloned().unwrap_or_default();
        results
            .iter()
            .filter(|r| r["fate"] == "refused")
            .map(|r| {
                let file = r["file"].as_str().unwrap_or("").to_owned();
                (file, r["why"].as_str().unwrap().to_owned())
            })
            .collect()
    }

    pub fn nodes(&self, state: &str) -> u64 {
        self.report["nodes"][state.replace('_', "-")].as_u64().unwrap_or(0)
    }
}

/// Hands out; gives the grant, null when there is none.
pub fn grant(world: &World, more: &[&str]) -> Value {
    let (report, stderr) = grant_report(world, more);
    assert!(!report.is_null(), "{stderr}");
    report["grant"].clone()
}

pub fn grant_report(world: &World, more: &[&str]) -> (Value, String) {
    let mut args = vec!["grant", "--json"];
    args.extend(more);
    let output = world.run(&args);
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    (report, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A call of a command on a clone, with a hand-out.
pub fn call(world: &World, command: &str, on: &str, entry: &Value, more: &[&str]) -> Output {
    clone(world, on);
    on_clone(world, command, on, entry).args(more).output().unwrap()
}

/// Works on one entry and gives the file.
pub fn work(world: &World, on: &str, entry: &Value) -> PathBuf {
    let output = call(world, "work", on, entry, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let left: Value = serde_json::from_slice(&output.stdout).unwrap();
    PathBuf::from(left["bundle"].as_str().unwrap())
}

/// Takes a grant's results in.
pub fn land(world: &World, grant: &Value) -> Landed {
    std::fs::create_dir_all(world.path("bundles")).unwrap();
    let bundles = world.path("bundles").display().to_string();
    let id = grant["id"].as_str().unwrap();
    let output = world.run(&["merge-results", "--json", "--bundles", &bundles, "--grant", id]);
    Landed {
        code: output.status.code(),
        report: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Every event on the branch.
pub fn events(world: &World) -> Vec<Event> {
    let store = BranchStore::new(
        Repo::create(&world.path("reader.git"), None).unwrap(),
        Remote::new(&world.path("remote.git").display().to_string(), None).unwrap(),
        "overhaul/state",
    );
    let runs = store.runs().unwrap();
    assert_eq!(runs.len(), 1, "one set of findings is one run");
    store.load(&runs[0]).unwrap().events
}

pub fn run_of(world: &World) -> Run {
    fold(&events(world))
}

/// Nothing is held by a grant that has ended.
pub fn nothing_is_held(world: &World) {
    let run = run_of(world);
    for (id, grant) in run.grants.iter().filter(|(_, g)| g.ended) {
        assert_eq!(run.outstanding(grant).count(), 0, "{id} still holds nodes");
    }
}

/// Every ref of the remote.
fn refs(world: &World) -> String {
    git(&world.path("remote.git"), &["for-each-ref"])
}

fn file_of(folder: &Path, entry: &Value) -> PathBuf {
    folder.join(format!("{}.bundle", entry["bundle"].as_str().unwrap()))
}

#[test]
fn nodes_go_out_and_come_back_each_once() {
    let world = world(5, WORKER, "true", "");
    let handed_out = grant(&world, &["--max-nodes", "4"]);
    let all = entries(&handed_out);
    let nodes: Vec<&str> = all.iter().map(|e| e["node"].as_str().unwrap()).collect();
    assert_eq!(nodes, ["N-001", "N-002", "N-003", "N-004"]);
    assert_eq!(world.node("N-001")["state"], "claimed");
    // A second grant finds what is left, and a cycle does not touch what is handed out.
    let second = grant(&world, &[]);
    assert_eq!(entries(&second).len(), 1);
    assert_eq!(entries(&second)[0]["node"], "N-005");
    assert!(grant(&world, &[]).is_null(), "nothing is left to hand out");
    let cycle = world.next_step();
    assert_eq!((cycle.status(), &cycle.report["attempts"]), ("waiting", &0.into()));

    let prompt = PathBuf::from(handed_out["prompts"].as_str().unwrap());
    let prompt = std::fs::read_to_string(prompt.join(all[0]["prompt-file"].as_str().unwrap()));
    assert!(prompt.unwrap().contains("f001.txt"));

    let before = refs(&world);
    for (n, entry) in all.iter().enumerate() {
        let file = work(&world, &format!("clone-{}", n % 3), entry);
        assert_eq!(file, file_of(&world.path("bundles"), entry));
    }
    assert_eq!(refs(&world), before, "a worker writes nothing to the remote");
    assert!(world.pulls().is_empty() && !world.path("clone-0-forge/pulls/1.md").exists());

    let landed = land(&world, &handed_out);
    assert_eq!(landed.code, Some(0), "{}", landed.stderr);
    for node in nodes {
        assert_eq!(landed.fate(node), "landed", "{}", landed.report);
        assert_eq!(world.node(node)["state"], "in_review");
    }
    assert_eq!(world.node("N-005")["state"], "claimed", "of another grant");
    assert_eq!(world.pulls().len(), 4);
    let branch = world.branches().into_keys().find(|b| b.ends_with("/N-002")).unwrap();
    assert_eq!(world.show(&branch, "f002.txt"), "2\nN-002\n");
    nothing_is_held(&world);

    // The same results once more change nothing: their claims are gone.
    let again = land(&world, &handed_out);
    assert_eq!(again.code, Some(3));
    assert!(again.refused().values().all(|why| why.contains("late")), "{:?}", again.refused());
    assert_eq!(world.pulls().len(), 4);
}

#[test]
fn what_no_result_came_for_is_given_back_and_burns_nothing() {
    let world = world(3, WORKER, "true", "");
    let first = grant(&world, &[]);
    work(&world, "clone-a", &entries(&first)[1]);
    let unknown = land(&world, &serde_json::json!({"id": "g-0"}));
    assert_eq!(unknown.code, Some(2), "{}", unknown.stderr);
    assert_eq!(run_of(&world).grants.values().next().map(|g| g.ended), Some(false));
    let landed = land(&world, &first);
    assert_eq!(landed.code, Some(0), "{}", landed.stderr);
    let fates = ["N-001", "N-002", "N-003"].map(|n| landed.fate(n).to_owned());
    assert_eq!(fates, ["missing", "landed", "missing"], "{}", landed.report);
    assert_eq!(landed.nodes("ready"), 2);
    nothing_is_held(&world);
    // Only what was dispatched can fail.
    let run = run_of(&world);
    let record = &run.nodes[&"N-001".parse().unwrap()];
    assert_eq!((record.contract_burnt, record.infrastructure_burnt), (0, 0));
    let second = grant(&world, &[]);
    assert_eq!(entries(&second).len(), 2, "and can go out again");
    // Not even the folder is there: given back all the same.
    let id = second["id"].as_str().unwrap();
    let output =
        world.run(&["merge-results", "--json", "--bundles", "/nonexistent", "--grant", id]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(world.node("N-001")["state"], "ready");
    let output = world.run(&["merge-results", "--bundles", "/nonexistent"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_node_that_is_never_heard_of_again_does_not_go_out_for_ever() {
    let world = world(1, WORKER, "true", "");
    for round in 0..20 {
        let handed_out = grant(&world, &[]);
        if handed_out.is_null() {
            assert!(round > 5, "it went out {round} times only");
            assert_eq!(world.node("N-001")["state"], "failed");
            return;
        }
        land(&world, &handed_out);
    }
    panic!("it goes out for ever");
}

#[test]
fn one_process_does_several_and_a_lost_claim_among_them_harms_none() {
    let worker = "if [ \"$1\" = N-003 ]; then exit 1; fi\necho \"$1\" >> \"$2\"\n";
    let mut world = world(4, worker, "true", "");
    world.set("OVERHAUL_NOW", "2026-11-30T10:00:00Z");
    let first = grant(&world, &["--max-nodes", "1"]);
    // The first hand-out expires, and its node goes out again with the others.
    world.set("OVERHAUL_NOW", "2026-11-30T17:00:00Z");
    let second = grant(&world, &[]);
    let list: Value = [entries(&first), entries(&second)].concat().into();
    assert_eq!(list.as_array().unwrap().len(), 5);
    let output = call(&world, "work", "clone-a", &list, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("not held any more"), "{stderr}");
    let left: Value = serde_json::from_slice(&output.stdout).unwrap();
    let acceptable: Vec<(&str, bool)> = left
        .as_array()
        .unwrap()
        .iter()
        .map(|left| (left["node"].as_str().unwrap(), left["acceptable"].as_bool().unwrap()))
        .collect();
    let expected = [("N-001", true), ("N-002", true), ("N-003", false), ("N-004", true)];
    assert_eq!(acceptable, expected, "{stderr}");
    let landed = land(&world, &second);
    assert_eq!(landed.code, Some(0), "{}", landed.stderr);
    let fates = expected.map(|(node, _)| landed.fate(node).to_owned());
    assert_eq!(fates, ["landed", "landed", "failed", "landed"], "{}", landed.report);
}

#[test]
fn a_failed_attempt_is_booked_as_if_it_had_run_here() {
    let worker = "if ! grep -q 'previous attempt' \"$OVERHAUL_PROMPT_FILE\"; then exit 1; fi\n\
                  if [ \"$1\" = N-001 ]; then echo x > elsewhere.txt; fi\necho \"$1\" >> \"$2\"\n";
    let world = world(2, worker, "true", "");
    let first = grant(&world, &[]);
    for entry in entries(&first) {
        work(&world, "clone-a", &entry);
    }
    let landed = land(&world, &first);
    assert_eq!(landed.fate("N-001"), "failed", "{}", landed.report);
    std::fs::remove_dir_all(world.path("bundles")).unwrap();
    let second = grant(&world, &[]);
    assert_eq!(entries(&second)[0]["attempt"], 2);
    for entry in entries(&second) {
        work(&world, "clone-a", &entry);
    }
    let landed = land(&world, &second);
    assert_eq!((landed.fate("N-001"), landed.fate("N-002")), ("failed", "landed"));
    let run = run_of(&world);
    let record = &run.nodes[&"N-001".parse().unwrap()];
    assert!(record.failures.iter().any(|f| f.detail.contains("elsewhere.txt")), "{record:?}");
    assert_eq!(record.contract_burnt + record.infrastructure_burnt, 2);
}

#[test]
fn what_a_backend_said_in_a_job_pauses_its_pool_for_all() {
    let worker = "echo 'HTTP 429 Too Many Requests: rate limit exceeded, retry after 600 seconds' >&2\n\
                  exit 1\n";
    let world = world(2, worker, "true", "");
    let first = grant(&world, &["--max-nodes", "1"]);
    work(&world, "clone-a", &entries(&first)[0]);
    let landed = land(&world, &first);
    assert_eq!(landed.code, Some(0), "{}", landed.stderr);
    let run = run_of(&world);
    let pool = run.pools.values().next().expect("the pool is known");
    assert!(pool.paused.is_some(), "{pool:?}");
    let (report, _) = grant_report(&world, &[]);
    assert!(report["grant"].is_null(), "nothing goes out to a pool that waits: {report}");
    assert_eq!(report["status"], "paused");
}
#[test]
fn a_base_that_no_branch_holds_reaches_its_job() {
    // C needs A and B: it starts from their merge, which only the grant knows.
    let mut world = world(1, WORKER, "true", "");
    let finding = |id: &str, path: &str, depends: &[&str]| {
        serde_json::json!({
            "id": id, "title": format!("Fix {id}"), "severity": "medium",
            "category": "correctness", "summary": format!("Fix {id}"),
            "affected_files": [{"path": path, "line_start": 1}], "evidence": [],
            "depends_on": depends,
        })
    };
    let checkout = world.path("checkout");
    for name in ["a", "b", "c"] {
        std::fs::write(checkout.join(format!("{name}.txt")), name).unwrap();
    }
    git(&checkout, &["add", "a.txt", "b.txt", "c.txt"]);
    git(&checkout, &["commit", "-q", "-m", "more"]);
    git(&checkout, &["push", "-q", "origin", "HEAD:main"]);
    let list = [
        finding("A", "a.txt", &[]),
        finding("B", "b.txt", &[]),
        finding("C", "c.txt", &["A", "B"]),
    ];
    let audit =
        serde_json::json!({"contract_version": "audit-tools/audit-findings/v1", "findings": list});
    world.write("checkout/findings.json", &audit.to_string());
    world.set("TOKIO_WORKER_THREADS", "2");
    let first = grant(&world, &[]);
    assert_eq!(entries(&first).len(), 2);
    for entry in entries(&first) {
        work(&world, "clone-a", &entry);
    }
    assert_eq!(land(&world, &first).nodes("in_review"), 2);
    let second = grant(&world, &[]);
    let last = entries(&second);
    assert_eq!(last.len(), 1);
    work(&world, "clone-b", &last[0]);
    let landed = land(&world, &second);
    assert_eq!(landed.fate(last[0]["node"].as_str().unwrap()), "landed", "{}", landed.report);
}

#[test]
fn a_land_job_that_cannot_check_throws_no_work_away() {
    let mut world = world(1, WORKER, "true", "");
    let granted = grant(&world, &[]);
    work(&world, "one", &entries(&granted)[0]);
    // The machine of this job has git and nothing else.
    let git = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("git"))
        .find(|file| file.is_file());
    std::fs::create_dir_all(world.path("bin")).unwrap();
    std::os::unix::fs::symlink(git.unwrap(), world.path("bin/git")).unwrap();
    let bin = world.path("bin").display().to_string();
    world.set("PATH", &bin);
    let refused = land(&world, &granted);
    assert_eq!(refused.code, Some(2), "{}", refused.report);
    assert!(refused.stderr.contains("verify command `check` can't run"), "{}", refused.stderr);
    world.unset("PATH");
    let landed = land(&world, &granted);
    assert_eq!(landed.fate("N-001"), "landed", "{} {}", landed.report, landed.stderr);
}
