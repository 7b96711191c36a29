//! Promises about a run's state that only whole cycles can break. `docs/defects.md` lists them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{World, config, findings, git};

/// Three files with a finding each; the ledger is kept in files of the checkout.
fn world(worker: &str, verify: &str, more: &str) -> World {
    let world = World::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\n")]);
    let worker = worker.replace("{world}", &world.dir.path().display().to_string());
    let script = world.write("worker.sh", &worker);
    let state = "state: {store: directory, path: state}\n";
    world.write("overhaul.yml", &(config(&script, verify, more) + state));
    world.write(
        "checkout/findings.json",
        &findings(&[("A", "a.txt", "fix a"), ("B", "b.txt", "fix b"), ("C", "c.txt", "fix c")]),
    );
    world
}

const FIX: &str = "echo \"$1\" >> \"$2\"\n";

/// Every file of the ledger with its bytes.
fn files(world: &World) -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                walk(&path, found);
            } else if matches!(
                path.extension().and_then(|e| e.to_str()),
                Some("ndjson" | "json" | "html")
            ) {
                found.insert(path.display().to_string(), std::fs::read(&path).unwrap());
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(&world.path("checkout/state"), &mut found);
    found
}

/// The events, in order.
fn events(world: &World) -> Vec<Value> {
    let files = files(world);
    let segments = files.iter().filter(|(name, _)| name.ends_with(".ndjson"));
    segments
        .flat_map(|(_, bytes)| {
            String::from_utf8(bytes.clone()).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        })
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect()
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|e| e["kind"] == kind).count()
}

/// Merges a node's branch, for real and in its pull request; gives the new head of `main`.
fn merge(world: &World, nodes: &[&str]) -> String {
    let run = world.status()["run-id"].as_str().unwrap().to_owned();
    let people = world.path("people");
    if !people.exists() {
        git(world.dir.path(), &["clone", "-q", "remote.git", "people"]);
    }
    git(&people, &["fetch", "-q", "origin"]);
    for node in nodes {
        let branch = format!("overhaul/{run}/{node}");
        git(&people, &["merge", "-q", "--no-ff", "-m", "merge", &format!("origin/{branch}")]);
        for (name, text) in world.pulls() {
            if text.contains(&format!("head: {branch}\n")) {
                let text = text.replacen("state: open", "state: merged", 1);
                std::fs::write(world.path("forge/pulls").join(name), text).unwrap();
            }
        }
    }
    git(&people, &["push", "-q", "origin", "main"]);
    git(&people, &["rev-parse", "main"]).trim().to_owned()
}

const ALL: &[&str] = &["N-001", "N-002", "N-003"];

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < Duration::from_secs(60), "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_pause_outlives_any_crash_and_is_read_by_machines() {
    // The wait outlasts the job, so the cycle ends and the pause stands.
    const JOB: &[&str] = &["--time-budget", "10m"];
    let limited = "if [ \"$2\" = a.txt ]; then echo A > a.txt; exit 0; fi\n\
        echo 'Error: 429 Too Many Requests, retry-after: 7200' >&2; exit 1\n";
    let mut calm = world(limited, "true", "");
    let log = calm.path("effects.log");
    calm.set("OVERHAUL_EFFECTS_LOG", &log.display().to_string());
    let cycle = calm.next_step_with(JOB);
    assert_eq!(cycle.status(), "paused", "{} {}", cycle.report, cycle.stderr);
    assert!(cycle.report["not-before"].is_string(), "{}", cycle.report);
    let effects = std::fs::read_to_string(&log).unwrap().lines().count();
    for n in (1..=effects).rev().step_by(2).take(6) {
        let mut world = world(limited, "true", "");
        world.set("OVERHAUL_CRASH_AFTER", &n.to_string());
        world.next_step_with(JOB);
        world.unset("OVERHAUL_CRASH_AFTER");
        let next = world.next_step_with(JOB);
        assert_eq!(next.status(), "paused", "killed after {n}: {} {}", next.report, next.stderr);
        let status = world.status();
        assert_eq!(status["state"], "paused", "{status}");
        let at: jiff::Timestamp = status["pause"]["not-before"]
            .as_str()
            .unwrap_or_else(|| panic!("{status}"))
            .parse()
            .unwrap();
        assert!(at > jiff::Timestamp::now(), "{status}");
        let waiting = status["pause"]["nodes"].as_array().unwrap();
        assert!(!waiting.is_empty() && waiting.iter().all(|n| n["cause"].is_string()), "{status}");
        assert_eq!(
            world.next_step_with(JOB).report["attempts"],
            0,
            "an early wake-up does nothing"
        );
        // Cut off at work, it waits for the pool with the others; it is never lost or failed.
        let first = world.node("N-001")["state"].clone();
        assert!(["in_review", "accepted", "ready"].contains(&first.as_str().unwrap()), "{first}");
        assert_eq!(world.node("N-002")["state"], "ready", "a limit burns nothing");
    }
}

#[test]
fn inputs_are_read_only_addressed_by_digest() {
    let world = world(FIX, "true", "");
    let findings_file = world.path("checkout/findings.json");
    let before = std::fs::read(&findings_file).unwrap();
    let config_before = std::fs::read(world.path("overhaul.yml")).unwrap();
    assert_eq!(world.next_step().nodes("in_review"), 3);
    assert_eq!(std::fs::read(&findings_file).unwrap(), before);
    assert_eq!(std::fs::read(world.path("overhaul.yml")).unwrap(), config_before);
    assert_eq!(git(&world.path("checkout"), &["status", "--porcelain", "-uno"]), "");
    // Other findings do not change the run that is open.
    world.write("checkout/findings.json", &findings(&[("Z", "a.txt", "something else")]));
    let next = world.next_step();
    assert_eq!((next.nodes("in_review"), next.report["attempts"].as_u64()), (3, Some(0)));
    // A plan that was changed behind our back is not believed.
    let plan = files(&world).into_keys().find(|f| f.contains("/plan-")).unwrap();
    let text = std::fs::read_to_string(&plan).unwrap();
    std::fs::write(&plan, text.replace("a.txt", "b.txt")).unwrap();
    let refused = world.next_step();
    assert_eq!(refused.code, Some(2), "{}", refused.report);
    assert!(refused.stderr.contains("its content was changed"), "{}", refused.stderr);
}

#[test]
fn close_needs_positive_evidence_for_the_exact_commit() {
    let world = world(FIX, "test -e a.txt", "");
    world.next_step();
    let head = merge(&world, ALL);
    let last = world.next_step();
    assert_eq!(last.status(), "complete", "{} {}", last.report, last.stderr);
    let events = events(&world);
    let passed: Vec<&Value> = events.iter().filter(|e| e["kind"] == "gate_passed").collect();
    assert_eq!(passed.len(), 1);
    assert_eq!(passed[0]["commit"], *head, "the commit that people have");
    assert_eq!(passed[0]["checks"][0]["verdict"], "passed");
    assert!(count(&events, "closed") == 1 && count(&events, "gate_failed") == 0);
}

#[test]
fn a_red_gate_ends_after_two_rounds() {
    let world = world(FIX, "test ! -e broken", "");
    world.next_step();
    merge(&world, ALL);
    let people = world.path("people");
    std::fs::write(people.join("broken"), "").unwrap();
    git(&people, &["add", "-A"]);
    git(&people, &["commit", "-q", "-m", "break it"]);
    git(&people, &["push", "-q", "origin", "main"]);
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let cycle = world.next_step();
        assert_eq!(cycle.code, Some(0), "{}", cycle.stderr);
        statuses.push(cycle.status().to_owned());
        if cycle.status() == "complete" {
            break;
        }
    }
    let events = events(&world);
    assert_eq!(
        (count(&events, "gate_failed"), count(&events, "gate_passed")),
        (2, 0),
        "{statuses:?}"
    );
    let closed: Vec<&Value> = events.iter().filter(|e| e["kind"] == "closed").collect();
    assert_eq!(closed.len(), 1, "{statuses:?}");
    assert_eq!(closed[0]["counts"]["gate-red"], 1, "and it says so");
}

#[test]
fn a_red_gate_takes_back_the_node_that_turns_it_red() {
    // Each passes alone; the one that was accepted last is mended by a worker that is told so.
    let worker = "if grep -q 'fails together' \"$OVERHAUL_PROMPT_FILE\"; then \
        echo 'mended' > \"$2\"; else echo \"$1\" >> \"$2\"; fi\n";
    let verify = "! { grep -q N-001 a.txt && grep -q N-002 b.txt; }";
    let world = world(worker, verify, "");
    let first = world.next_step();
    assert_eq!(first.nodes("in_review"), 3, "{}", first.stderr);
    merge(&world, ALL);
    world.next_step();
    let next = world.next_step();
    assert_eq!((next.nodes("landed"), next.nodes("in_review")), (2, 1), "{}", next.stderr);
    let failed: Vec<Value> =
        events(&world).into_iter().filter(|e| e["kind"] == "gate_failed").collect();
    assert_eq!(failed.len(), 1);
    let blamed = failed[0]["nodes"][0].as_str().unwrap();
    assert!(["N-001", "N-002"].contains(&blamed), "{blamed}");
    assert_eq!(world.pulls().len(), 4, "new work has a pull request of its own");
    merge(&world, &[blamed]);
    let last = world.next_step();
    assert_eq!((last.status(), last.nodes("landed")), ("complete", 3), "{}", last.stderr);
    assert_eq!(count(&events(&world), "gate_passed"), 1);
}

#[test]
fn what_was_not_answered_stays_open() {
    let world = world(FIX, "true", "");
    world.next_step();
    merge(&world, &["N-002"]);
    let next = world.next_step();
    assert_eq!(next.status(), "waiting", "{} {}", next.report, next.stderr);
    assert_eq!((next.nodes("landed"), next.nodes("in_review")), (1, 2));
    assert_eq!(count(&events(&world), "closed"), 0);
}

#[test]
fn nothing_of_the_ledger_is_deleted() {
    let world = world(FIX, "true", "");
    world.next_step();
    let open = files(&world);
    merge(&world, ALL);
    assert_eq!(world.next_step().status(), "complete");
    world.next_step();
    let closed = files(&world);
    for (name, bytes) in &open {
        assert_eq!(closed.get(name), Some(bytes), "{name} is as it was");
    }
    let outcomes = closed.iter().find(|(name, _)| name.ends_with("remediation-outcomes.json"));
    let outcomes: Value = serde_json::from_slice(outcomes.unwrap().1).unwrap();
    assert_eq!(outcomes["findings"].as_array().unwrap().len(), 3);
    assert!(outcomes["findings"].as_array().unwrap().iter().all(|f| f["outcome"] == "landed"));
}

#[test]
fn the_report_is_asked_for_or_left_at_the_close() {
    let world = world(FIX, "true", "report:\n  html: true\n");
    std::fs::create_dir_all(world.path("forge")).unwrap();
    let none = world.run(&["report"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&none.stderr).contains("there is no run yet"));
    world.next_step();
    let run = world.status()["run-id"].as_str().unwrap().to_owned();
    let file = world.path("report.html").display().to_string();
    let told = world.run(&["report", "--json", "--output", &file]);
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    assert_eq!(told["run-id"], run.as_str());
    let page = std::fs::read_to_string(&file).unwrap();
    assert!(page.contains(&run) && page.contains("N-003") && page.contains("in review"));
    assert_eq!(told["bytes"], page.len());
    let both = world.run(&["report", "--json", "--output", "-"]);
    assert_eq!(both.status.code(), Some(2));

    merge(&world, &["N-001", "N-002"]);
    let rejected = world.pulls().into_iter().find(|(_, text)| text.contains("(N-003)")).unwrap();
    let file = world.path("forge/pulls").join(rejected.0);
    std::fs::write(file, rejected.1.replace("state: open", "state: closed")).unwrap();
    let closed = world.next_step();
    assert_eq!(closed.status(), "complete", "{}", closed.stderr);
    let reports = |world: &World| -> Vec<String> {
        let files = files(world).into_iter().filter(|(name, _)| name.ends_with(".html"));
        files.map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect()
    };
    let left = reports(&world);
    assert_eq!(left.len(), 1);
    assert!(left[0].contains(">rejected<") && left[0].contains(" merged</tr>"));
    let printed = world.run(&["report", "--output", "-"]);
    assert!(String::from_utf8_lossy(&printed.stdout).contains("run closed"));

    // A retry opens the run again; its second close leaves a report of its own.
    assert!(world.run(&["retry", "N-003"]).status.success());
    assert_eq!(world.next_step().status(), "waiting");
    merge(&world, &["N-003"]);
    let again = world.next_step();
    assert_eq!(again.status(), "complete", "{}", again.stderr);
    assert_eq!(reports(&world).len(), 2);
}

#[test]
fn ownership_is_fenced_at_the_effect() {
    let world = world(
        "if [ \"$2\" = b.txt ]; then touch {world}/at-work; \
         while [ ! -e {world}/go ]; do sleep 0.05; done; fi\necho X > \"$2\"\n",
        "true",
        "",
    );
    let places = world.places();
    let mut args = vec!["next-step", "--json"];
    args.extend(places.iter().map(String::as_str));
    let child = world.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the worker starts", || world.path("at-work").exists());
    let skipped = world.run(&["skip", "N-002"]);
    assert!(skipped.status.success(), "{}", String::from_utf8_lossy(&skipped.stderr));
    world.write("go", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let states = [world.node("N-001"), world.node("N-002"), world.node("N-003")];
    let states = states.map(|n| n["state"].as_str().unwrap().to_owned());
    assert_eq!(states, ["in_review", "skipped", "in_review"]);
    assert!(world.branches().keys().all(|b| !b.ends_with("N-002")), "{:?}", world.branches());
    assert_eq!(world.pulls().len(), 2);
}

#[test]
fn leases_outlive_workers_and_are_renewed() {
    let world = world(
        "if [ \"$2\" = b.txt ]; then touch {world}/at-work; \
         while [ ! -e {world}/go ]; do sleep 0.05; done; fi\necho X > \"$2\"\n",
        "true",
        "",
    );
    let path = world.path("overhaul.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(
        &path,
        text.replace("dispatch:\n", "dispatch:\n  attempt-timeout: 24s\n  lease: 24s\n"),
    )
    .unwrap();
    let places = world.places();
    let mut args = vec!["next-step", "--json"];
    args.extend(places.iter().map(String::as_str));
    let child = world.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the worker starts", || world.path("at-work").exists());
    let renewed = || {
        events(&world)
            .iter()
            .filter(|e| e["kind"] == "lease_renewed" && e["node"] == "N-002")
            .count()
    };
    until("the lease is renewed", || renewed() >= 1);
    let second = world.next_step();
    assert_eq!(second.report["attempts"], 0, "a live owner is left alone: {}", second.report);
    assert_eq!(second.status(), "waiting");
    world.write("go", "");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(world.node("N-002")["state"], "in_review");
    assert_eq!(world.node("N-002")["attempts"], 1);
}

#[test]
fn the_previous_failure_reaches_the_retrys_prompt() {
    let world = world(
        "if [ \"$2\" = b.txt ] && ! grep -q 'the word is plinth' \"$OVERHAUL_PROMPT_FILE\"; then \
         echo bad > b.txt; else echo good > \"$2\"; fi\n",
        "if grep -q bad b.txt; then printf 'the word is %s' plinth; exit 1; fi",
        "",
    );
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{} {}", cycle.report, cycle.stderr);
    assert_eq!(world.node("N-002")["attempts"], 2);
    assert_eq!(world.node("N-001")["attempts"], 1);
}

/// Every test that `docs/defects.md` and the table of one cycle name is there, and no row is without
/// one unless it says so.
#[test]
fn every_named_test_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rows = |doc: &str, head: &str| -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(root.join(doc)).unwrap();
        let tables = text.split("\n\n").filter(|part| part.starts_with(head));
        let rows = tables
            .flat_map(|table| table.lines().skip(2))
            .map(|row| row.trim_matches('|').split(" | ").map(str::to_owned).collect());
        rows.collect()
    };
    let (defects, cycle) =
        (rows("docs/defects.md", "| defect |"), rows("docs/scheduling.md", "| host in the set |"));
    assert!(defects.len() > 40 && cycle.len() == 7, "{} {}", defects.len(), cycle.len());
    assert!(defects.iter().all(|row| row.len() == 3) && cycle.iter().all(|row| row.len() == 5));
    for row in defects.iter().chain(&cycle) {
        let tests = row.last().unwrap();
        let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty() || tests.contains("**open**"), "no test: {row:?}");
        for name in named {
            let (module, function) = name.rsplit_once("::").unwrap_or_else(|| panic!("{name}"));
            let file = root.join("tests/it").join(module.replace("::", "/")).with_extension("rs");
            let source = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert!(source.contains(&format!("fn {function}(")), "{name} does not exist");
        }
    }
}
