//! A crash after any effect is finished by the next cycle and repeated by none: killed right after
//! each effect in turn, a run comes to the same end as one that was never interrupted.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use overhaul::git::{Remote, Repo};
use overhaul::ledger::{Applied, Event, EventKind, Landing, Run};
use overhaul::model::RunId;
use overhaul::store::{BranchStore, DirectoryStore, Store};
use serde_json::{Value, json};

use crate::support::{World, config, findings, git};

/// Cycles that a run may take to settle after a crash.
const CYCLES: usize = 6;

/// Worlds at once.
const THREADS: usize = 3;

/// Six nodes: A; B depends on A; C breaks its scope in its first attempt; D; E depends on D and
/// comes after A, whose file it shares; F is gone already, as its re-check shows.
fn world(state: &str) -> World {
    let mut world = World::new(&[
        ("a.txt", "a\n"),
        ("b.txt", "b\n"),
        ("c.txt", "c\n"),
        ("d.txt", "d\n"),
        ("f.txt", "f\n"),
    ]);
    let worker = world.write(
        "worker.sh",
        "if [ \"$2\" = c.txt ] && ! grep -q 'previous attempt' \"$OVERHAUL_PROMPT_FILE\"; then\n  \
         echo x > elsewhere.txt\nfi\necho \"$1\" >> \"$2\"\n",
    );
    let gone = json!({"contract_version": "audit-tools/audit-findings/v1", "findings": []});
    let recheck = world.write("recheck.sh", &format!("echo '{gone}'\n"));
    let state = match state {
        "directory" => "{store: directory, path: state}",
        other => other,
    };
    world.write(
        "overhaul.yml",
        &format!(
            "version: 1\nbase: main\nstate: {state}\nfindings:\n  - file: findings.json\n  - file: \
             gone.json\n    recheck: [sh, {recheck}]\npools:\n  - id: worker\n    provider: \
             worker-command\n    command: [sh, {worker}, \"{{node}}\", \"{{paths}}\"]\n    \
             cost-per-mtok: 0\n    limits:\n      concurrent: 3\ndispatch:\n  command-workers: \
             true\nverify:\n  commands:\n    - name: check\n      argv: [\"true\"]\n",
            worker = worker.display(),
            recheck = recheck.display(),
        ),
    );
    let finding = |id: &str, path: &str, depends: &[&str]| {
        json!({
            "id": id, "title": format!("Fix {id}"), "severity": "medium",
            "category": "correctness", "summary": format!("Fix {id}"),
            "affected_files": [{"path": path, "line_start": 1}], "evidence": [],
            "depends_on": depends,
        })
    };
    let audit = |list: Vec<Value>| {
        json!({"contract_version": "audit-tools/audit-findings/v1", "findings": list}).to_string()
    };
    world.write(
        "checkout/findings.json",
        &audit(vec![
            finding("A", "a.txt", &[]),
            finding("B", "b.txt", &["A"]),
            finding("C", "c.txt", &[]),
            finding("D", "d.txt", &[]),
            finding("E", "a.txt", &["D"]),
        ]),
    );
    world.write("checkout/gone.json", &audit(vec![finding("F", "f.txt", &[])]));
    // Attempts race for nothing here: fewer threads, more worlds.
    world.set("TOKIO_WORKER_THREADS", "2");
    world
}

/// What must be the same in the end, however it came to it.
#[derive(Debug, PartialEq, Eq)]
struct End {
    status: String,
    states: BTreeMap<String, String>,
    /// Branch -> tree.
    branches: BTreeMap<String, String>,
    /// Head branch, base branch and state of every pull request.
    pulls: BTreeSet<(String, String, String)>,
    pull_count: usize,
}

fn end(world: &World, status: &str) -> End {
    let status_json = world.status();
    let states = status_json["nodes"].as_array().unwrap().iter();
    let remote = world.path("remote.git");
    let pulls = world.pulls();
    End {
        status: status.to_owned(),
        states: states
            .map(|n| (n["id"].as_str().unwrap().into(), n["state"].as_str().unwrap().into()))
            .collect(),
        branches: git(&remote, &["for-each-ref", "--format=%(refname) %(tree)", "refs/heads"])
            .lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(branch, _)| *branch != "refs/heads/overhaul/state")
            .map(|(branch, tree)| (branch.to_owned(), tree.to_owned()))
            .collect(),
        pulls: pulls
            .values()
            .map(|text| (field(text, "head"), field(text, "base"), field(text, "state")))
            .collect(),
        pull_count: pulls.len(),
    }
}

/// A field of a pull request file's head.
fn field(text: &str, name: &str) -> String {
    let start = format!("{name}: ");
    let line = text.lines().find_map(|l| l.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("no {name}: {text}")).to_owned()
}

/// Runs cycles until the run stands still, and gives the last status.
fn settle(world: &World) -> String {
    let mut seen = Vec::new();
    for _ in 0..CYCLES {
        let cycle = world.next_step();
        assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
        if cycle.status() == "waiting" || cycle.status() == "complete" {
            return cycle.status().to_owned();
        }
        seen.push(format!("{}\n{}", cycle.report, cycle.stderr));
    }
    panic!("not settled after {CYCLES} cycles: {}", seen.join("\n"));
}

fn events(world: &World, state: &str) -> Vec<Event> {
    let store: Box<dyn Store> = match state {
        "directory" => Box::new(DirectoryStore::new(world.path("checkout/state"))),
        "branch" => Box::new(BranchStore::new(
            Repo::create(&world.path("reader.git"), None).unwrap(),
            Remote::new(&world.path("remote.git").display().to_string(), None).unwrap(),
            "overhaul/state",
        )),
        other => panic!("no store for {other}"),
    };
    let runs: Vec<RunId> = store.runs().unwrap();
    assert_eq!(runs.len(), 1, "one set of findings is one run");
    store.load(&runs[0]).unwrap().events
}

/// What every ledger promises, however many processes wrote to it and died.
fn check_ledger(events: &[Event]) {
    let mut run = Run::default();
    let mut accepted: BTreeMap<String, usize> = BTreeMap::new();
    let mut opened: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
    for event in events {
        assert_eq!(run.apply(event), Applied::Yes, "only what counts is written: {event:?}");
        match &event.kind {
            EventKind::Accepted { node, .. } => {
                *accepted.entry(node.to_string()).or_default() += 1;
            }
            EventKind::PrOpened { node, number, .. } => {
                opened.entry(node.to_string()).or_default().insert(*number);
            }
            EventKind::Reopened { node, .. } => {
                *accepted.entry(node.to_string()).or_default() -= 1;
            }
            _ => {}
        }
        let landed =
            run.nodes.iter().filter(|(_, n)| matches!(n.landing, Landing::Accepted { .. }));
        for (id, _) in landed {
            assert_eq!(accepted.get(id.as_str()), Some(&1), "{id} is accepted once");
        }
    }
    assert!(accepted.values().all(|n| *n == 1), "{accepted:?}");
    assert!(opened.values().all(|numbers| numbers.len() == 1), "{opened:?}");
    assert!(run.nodes.values().all(|n| n.claim.is_none()), "no claim is left");
}

fn matrix(state: &str) {
    let mut calm = world(state);
    let log = calm.path("effects.log");
    calm.set("OVERHAUL_EFFECTS_LOG", &log.display().to_string());
    let first = calm.next_step();
    assert_eq!(first.status(), "waiting", "{} {}", first.report, first.stderr);
    calm.unset("OVERHAUL_EFFECTS_LOG");
    let effects: Vec<String> =
        std::fs::read_to_string(&log).unwrap().lines().map(str::to_owned).collect();
    let expected = end(&calm, first.status());
    check_ledger(&events(&calm, state));
    let count = |wanted: &str| expected.states.values().filter(|s| *s == wanted).count();
    assert_eq!((count("in_review"), count("satisfied")), (5, 1), "{expected:?}");
    assert_eq!((expected.pull_count, expected.pulls.len()), (5, 5));
    for kind in ["ledger append", "push", "open pull request", "quarantine ref"] {
        assert!(effects.iter().any(|e| e.ends_with(kind)), "{kind} is traced: {effects:?}");
    }

    // On a branch an append is a push: nothing lies between the two.
    let is = |n: usize, what: &str| effects.get(n - 1).is_some_and(|e| e.ends_with(what));
    let cells = (1..=effects.len()).rev().filter(|n| {
        !(state == "branch" && is(*n, "ledger append") && *n > 1 && is(*n - 1, "push"))
    });
    let left: Mutex<Vec<usize>> = Mutex::new(cells.collect());
    let failures: Mutex<Vec<String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some(n) = left.lock().unwrap().pop() else { return };
                    let cell = || {
                        let mut world = world(state);
                        world.set("OVERHAUL_CRASH_AFTER", &n.to_string());
                        let crashed = world.next_step();
                        world.unset("OVERHAUL_CRASH_AFTER");
                        // Groups of appends vary: the last effects may not come to be.
                        if n * 10 < effects.len() * 8 {
                            assert_eq!(crashed.code, None, "it died: {}", crashed.stderr);
                        }
                        let status = settle(&world);
                        assert_eq!(end(&world, &status), expected);
                        check_ledger(&events(&world, state));
                        // That the end stays the end is the same everywhere: some cells show it.
                        if n % 6 == 0 {
                            assert_eq!(world.next_step().report["attempts"], 0);
                            assert_eq!(end(&world, &status), expected, "and stays there");
                        }
                    };
                    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(cell));
                    if let Err(panic) = caught {
                        let why = panic
                            .downcast_ref::<String>()
                            .cloned()
                            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
                            .unwrap_or_default();
                        let effect = &effects[n - 1];
                        failures.lock().unwrap().push(format!("killed after {effect}: {why}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(
        failures.is_empty(),
        "{} of {}\n{}",
        failures.len(),
        effects.len(),
        failures.join("\n")
    );
}

#[test]
fn no_node_is_ever_resolved_without_its_recorded_landing() {
    matrix("directory");
}

#[test]
fn nor_with_the_ledger_on_a_branch() {
    matrix("branch");
}

/// A run of one node whose pull request people have merged: the next cycle closes it.
fn merged() -> World {
    let world = World::new(&[("a.txt", "a\n")]);
    let worker = world.write("worker.sh", "echo \"$1\" >> \"$2\"\n");
    let state = "state: {store: directory, path: state}\n";
    world.write("overhaul.yml", &config(&worker, "true", state));
    world.write("checkout/findings.json", &findings(&[("A", "a.txt", "fix a")]));
    let first = world.next_step();
    assert_eq!(first.nodes("in_review"), 1, "{}", first.stderr);
    let remote = world.path("remote.git");
    let branch = world.branches().into_keys().find(|b| b.contains("/N-001")).unwrap();
    git(&remote, &["update-ref", "refs/heads/main", &branch]);
    for (name, text) in world.pulls() {
        let path = world.path("forge/pulls").join(name);
        std::fs::write(path, text.replacen("state: open", "state: merged", 1)).unwrap();
    }
    world
}

/// Counts of closing events, and the states of all issues.
fn closed(world: &World) -> (usize, usize, Vec<String>) {
    let events = events(world, "directory");
    let gates = events.iter().filter(|e| matches!(e.kind, EventKind::GatePassed { .. })).count();
    let ends = events.iter().filter(|e| matches!(e.kind, EventKind::Closed { .. })).count();
    let issues = std::fs::read_dir(world.path("forge/issues")).unwrap().flatten();
    let states = issues.map(|i| field(&std::fs::read_to_string(i.path()).unwrap(), "state"));
    (gates, ends, states.collect())
}

#[test]
fn a_close_that_is_cut_off_is_finished() {
    let mut calm = merged();
    let log = calm.path("effects.log");
    calm.set("OVERHAUL_EFFECTS_LOG", &log.display().to_string());
    assert_eq!(calm.next_step().status(), "complete");
    let effects = std::fs::read_to_string(&log).unwrap().lines().count();
    let expected = closed(&calm);
    assert_eq!(expected, (1, 1, vec!["closed".to_owned()]));
    for n in 1..=effects {
        let mut world = merged();
        world.set("OVERHAUL_CRASH_AFTER", &n.to_string());
        assert_eq!(world.next_step().code, None);
        world.unset("OVERHAUL_CRASH_AFTER");
        let next = world.next_step();
        assert!(["complete", "idle"].contains(&next.status()), "{n}: {}", next.report);
        assert_eq!(closed(&world), expected, "killed after {n}: {}", next.stderr);
    }
}

/// The demo in a folder of its own.
struct Demo {
    dir: tempfile::TempDir,
}

impl Demo {
    fn new() -> Self {
        Self { dir: tempfile::Builder::new().prefix("overhaul-test-").tempdir().unwrap() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overhaul"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.dir.path())
            .env("TOKIO_WORKER_THREADS", "2")
            .args(["demo", "--json", "--dir"])
            .arg(self.dir.path().join("demo"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn run(&self) -> Value {
        let output = self.command().output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"))
    }

    fn settle(&self) -> (Value, usize) {
        for _ in 0..CYCLES {
            let report = self.run();
            if report["status"] != "progress" {
                return (report["nodes"].clone(), self.check());
            }
        }
        panic!("the demo does not settle");
    }

    /// Nothing is doubled; gives the number of pull requests.
    fn check(&self) -> usize {
        let pulls = std::fs::read_dir(self.dir.path().join("demo/forge/pulls")).unwrap();
        let heads: Vec<String> = pulls
            .map(|e| e.unwrap().path())
            .filter(|p| p.extension().is_some_and(|e| e == "md"))
            .map(|p| field(&std::fs::read_to_string(p).unwrap(), "head"))
            .collect();
        let once: BTreeSet<&String> = heads.iter().collect();
        assert_eq!(once.len(), heads.len(), "a pull request twice: {heads:?}");
        let repo = self.dir.path().join("demo/repository.git");
        for head in &heads {
            git(&repo, &["rev-parse", "--verify", "-q", &format!("refs/heads/{head}")]);
        }
        heads.len()
    }
}

#[test]
fn a_demo_killed_at_any_moment_ends_the_same() {
    let calm = Demo::new();
    let start = Instant::now();
    let expected = calm.settle();
    let whole = u64::try_from(start.elapsed().as_millis()).unwrap();
    assert!(expected.1 > 0, "{expected:?}");
    let mut random = fastrand::Rng::with_seed(20_261_130);
    for _ in 0..5 {
        let demo = Demo::new();
        let mut killed = Vec::new();
        for _ in 0..2 {
            let after = random.u64(0..whole);
            let mut child =
                demo.command().stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(after));
            let _ = child.kill();
            let _ = child.wait();
            killed.push(after);
        }
        assert_eq!(demo.settle(), expected, "killed after {killed:?} of {whole} ms");
    }
}

#[test]
fn two_cycles_at_once_do_nothing_twice() {
    for _ in 0..2 {
        let world = world("directory");
        let mut args = vec!["next-step".to_owned(), "--json".to_owned()];
        args.extend(world.places());
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let start = || -> Child {
            world.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        };
        let both = [start(), start()].map(|child| child.wait_with_output().unwrap());
        for output in both {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        settle(&world);
        let events = events(&world, "directory");
        check_ledger(&events);
        let status = world.status();
        let states = status["nodes"].as_array().unwrap().iter();
        assert_eq!(states.filter(|n| n["state"] == "in_review").count(), 5, "{status}");
        assert_eq!(world.pulls().len(), 5);
        let started = events.iter().filter(|e| matches!(e.kind, EventKind::AttemptStarted { .. }));
        assert_eq!(started.count(), 7, "six nodes, one of which needs a second attempt");
    }
}
