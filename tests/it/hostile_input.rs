//! Odd and hostile input: each is refused or told with what, why, and what to do.

use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use serde_json::{Value, json};

use crate::support::{World, config, findings, git};

const WORKER: &str = "echo X > \"$2\"\n";

/// One finding about `a`.
fn world(worker: &str) -> World {
    let world = World::new(&[("a", "start\n")]);
    let script = world.write("worker.sh", worker);
    let text = config(&script, "true", "").replace(
        "  command-workers: true\n",
        "  command-workers: true\n  max-attempts: {contract: 1, infrastructure: 1}\n",
    );
    world.write("overhaul.yml", &text);
    world.write("checkout/findings.json", &findings(&[("A", "a", "Fix a")]));
    world
}

fn overhaul(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overhaul"));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", dir)
        .current_dir(dir)
        .args(args);
    command
}

/// Ends by itself, or the test fails.
fn in_time(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it waits for ever");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_no_regular_file_is_no_findings_file() {
    let world = world(WORKER);
    let pipe = world.path("checkout/pipe");
    nix::unistd::mkfifo(&pipe, Mode::S_IRWXU).unwrap();
    let socket = world.path("checkout/socket");
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    for file in [pipe.as_path(), socket.as_path(), Path::new("/dev/zero"), Path::new("/dev")] {
        let name = file.to_str().unwrap();
        for command in ["plan", "next-step"] {
            let mut args = vec![command, "--findings", name];
            let places = world.places();
            if command == "next-step" {
                args.extend(places.iter().map(String::as_str));
            }
            let out = in_time(world.command(&args));
            assert_eq!(out.status.code(), Some(2), "{command} {name}: {}", said(&out));
            assert!(said(&out).contains("  do:  "), "{command} {name}: {}", said(&out));
        }
    }
}

fn dropped(plan: &Value) -> Vec<(String, Value)> {
    let findings = plan["findings"].as_array().unwrap().iter();
    findings.map(|f| (f["title"].as_str().unwrap().to_owned(), f["dropped"].clone())).collect()
}

#[test]
fn a_link_that_leads_out_is_no_node_and_an_untracked_file_is_not_missing() {
    let world = World::new(&[("a", "1\n"), ("dir/b", "1\n")]);
    let checkout = world.path("checkout");
    symlink("/etc/passwd", checkout.join("absolute")).unwrap();
    symlink("../../elsewhere", checkout.join("dir/out")).unwrap();
    symlink(".git/config", checkout.join("git")).unwrap();
    symlink("dir/b", checkout.join("inside")).unwrap();
    git(&checkout, &["add", "-A"]);
    git(&checkout, &["commit", "-q", "-m", "links"]);
    git(&checkout, &["push", "-q", "origin", "main"]);
    world.write("checkout/new", "untracked\n");
    let names = ["a", "absolute", "dir/out", "git", "inside", "new", "gone"];
    let list: Vec<(&str, &str, &str)> = names.iter().map(|n| (*n, *n, *n)).collect();
    let report = world.write("findings.json", &findings(&list));
    let expected = json!([
        null,
        "outside-checkout",
        "outside-checkout",
        "outside-checkout",
        null,
        "untracked",
        "missing"
    ]);
    let out = overhaul(&checkout, &["plan", "--json", "--findings", report.to_str().unwrap()])
        .output()
        .unwrap();
    let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
    let why: Vec<Value> = dropped(&plan).into_iter().map(|(_, why)| why).collect();
    assert_eq!(json!(why), expected);
    // A cycle reads the base commit, and says the same.
    let script = world.write("worker.sh", WORKER);
    world.write("overhaul.yml", &config(&script, "true", ""));
    std::fs::rename(&report, world.path("checkout/findings.json")).unwrap();
    let cycle = world.next_step();
    let nodes = world.status()["nodes"].as_array().unwrap().clone();
    let mut titles: Vec<&str> = nodes.iter().map(|n| n["title"].as_str().unwrap()).collect();
    titles.sort_unstable();
    assert_eq!(titles, ["a", "inside"], "{}", cycle.stderr);
}

#[test]
fn no_time_is_no_budget() {
    let world = world(WORKER);
    for none in ["0s", "0", "0h0m", "-1s"] {
        let out = world.run(&["next-step", &format!("--time-budget={none}")]);
        assert_eq!(out.status.code(), Some(2), "{none}: {}", said(&out));
    }
    let mut on_actions = world;
    on_actions.set("GITHUB_ACTIONS", "true");
    on_actions.set("INPUT_TIME-BUDGET", "0s");
    let out = on_actions.run(&["next-step"]);
    assert_eq!(out.status.code(), Some(2), "{}", said(&out));
}

#[test]
fn one_is_one() {
    let world = world(WORKER);
    let dry = world.next_step_with(&["--dry-run"]);
    let message = dry.report["message"].as_str().unwrap();
    assert!(message.contains("with 1 node for 1 finding"), "{message}");
    let cycle = world.next_step();
    assert_eq!(cycle.report["message"], "1 pull request waits for people");
}

#[test]
fn status_says_the_whole_cause() {
    let world = world("echo first; echo the second line says why >&2; exit 7\n");
    let cycle = world.next_step();
    assert_eq!(cycle.status(), "complete", "{}", cycle.stderr);
    let status = String::from_utf8(world.run(&["status"]).stdout).unwrap();
    assert!(status.contains("says why"), "{status}");
    let all = status.lines().filter(|l| l.contains("attempt 1")).count();
    assert_eq!(all, 1, "in one line: {status}");
}

#[test]
fn a_run_of_failures_is_a_failure_and_a_mended_configuration_is_new_work() {
    let world = world("exit 7\n");
    let failed = world.next_step();
    assert_eq!((failed.code, failed.status()), (Some(1), "complete"), "{}", failed.stderr);
    assert!(failed.stderr.contains("every node failed") && failed.stderr.contains("do:  "));
    let again = world.next_step();
    assert_eq!((again.code, again.status()), (Some(0), "idle"), "{}", again.stderr);
    // Another command in the configuration: another try.
    let path = world.path("overhaul.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    let mended = world.write("mended.sh", WORKER);
    let broken = world.path("worker.sh").display().to_string();
    std::fs::write(&path, text.replace(&broken, mended.to_str().unwrap())).unwrap();
    let next = world.next_step();
    assert_eq!(next.nodes("in_review"), 1, "{} {}", next.report, next.stderr);
}

#[test]
fn a_base_that_failed_in_another_environment_excuses_nothing() {
    let world = world("exit 7\n");
    let path = world.path("overhaul.yml");
    let text = std::fs::read_to_string(&path).unwrap();
    // Fails on base and tree alike, until a variable is there.
    let text = text
        .replace("\"true\"]", "'test -n \"$SOURCE_DATE_EPOCH\" && ! grep -q X a']")
        .replace("infrastructure: 1", "infrastructure: 3")
        .replace("contract: 1", "contract: 3");
    std::fs::write(&path, text).unwrap();
    world.write("worker.sh", WORKER);
    let mut world = world;
    let first = world.next_step();
    assert_eq!(first.nodes("in_review"), 1, "the base fails too: {}", first.stderr);
    // The same base and command, and now the base passes: the change is to blame.
    world.set("SOURCE_DATE_EPOCH", "1");
    for place in ["forge", "checkout/.git/refs/remotes"] {
        let _ = std::fs::remove_dir_all(world.path(place));
    }
    for branch in world.branches().into_keys().filter(|b| b.contains("overhaul")) {
        git(
            &world.path("remote.git"),
            &[
                "update-ref",
                "-d",
                &format!("refs/heads/{}", branch.trim_start_matches("refs/heads/")),
            ],
        );
    }
    let second = world.next_step();
    assert_eq!(second.nodes("in_review"), 0, "{} {}", second.report, second.stderr);
}

#[test]
fn machine_errors_say_what_to_do() {
    // A vanished remote.
    let gone = world(WORKER);
    std::fs::rename(gone.path("remote.git"), gone.path("elsewhere.git")).unwrap();
    // A damaged file of the forge.
    let damaged = world(WORKER);
    damaged.next_step();
    for entry in std::fs::read_dir(damaged.path("forge/pulls")).unwrap().flatten() {
        std::fs::write(entry.path(), "---\nnot: [a pull request\n---\n").unwrap();
    }
    // A branch of our name that is not ours.
    let foreign = world(WORKER);
    let checkout = foreign.path("checkout");
    git(&checkout, &["push", "-q", "origin", "main:refs/heads/overhaul/state"]);
    // No git.
    let mut bare = world(WORKER);
    bare.set("PATH", "/nonexistent");
    for (world, what) in [(gone, "remote"), (damaged, "forge"), (foreign, "state"), (bare, "git")] {
        let out = world.run(&["next-step"]);
        let said = said(&out);
        assert!(matches!(out.status.code(), Some(1..=3)), "{what}: {said}");
        assert!(said.contains("\n  do:  "), "{what}: {said}");
    }
}

#[test]
fn the_demo_takes_no_folder_that_holds_something_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("thesis.tex"), "mine").unwrap();
    let out = overhaul(dir.path(), &["demo", "--dir", "."]).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("do:  "), "{}", said(&out));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "nothing was put there");
    for odd in [b"new\nline".as_slice(), b"latin-\xe9"] {
        let name = std::ffi::OsStr::from_bytes(odd);
        let out = overhaul(dir.path(), &["demo", "--dir"]).arg(name).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{}", said(&out));
        assert!(said(&out).contains("odd name"), "{}", said(&out));
    }
}

#[test]
fn plan_and_bare_repositories_follow_the_committed_configuration() {
    let world = world(WORKER);
    let text = std::fs::read_to_string(world.path("overhaul.yml")).unwrap();
    let text = text.replace("pools:\n", "planning: {min-severity: high}\npools:\n");
    world.write("checkout/.github/overhaul.yml", &text);
    let checkout = world.path("checkout");
    git(&checkout, &["add", "-A"]);
    git(&checkout, &["commit", "-q", "-m", "configuration"]);
    git(&checkout, &["push", "-q", "origin", "main"]);
    let out = overhaul(&checkout, &["plan", "--json", "--findings", "findings.json"]);
    let out = in_time(out);
    let plan: Value =
        serde_json::from_slice(&out.stdout).unwrap_or_else(|_| panic!("{}", said(&out)));
    assert_eq!(dropped(&plan)[0].1, "filtered");
    let forge = world.path("forge").display().to_string();
    let work = world.path("work").display().to_string();
    let args =
        ["next-step", "--json", "--repo", "remote.git", "--local", &forge, "--work-dir", &work];
    let out = in_time(world.command(&args));
    assert_eq!(out.status.code(), Some(0), "{}", said(&out));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_ne!(report["status"], "progress", "{report}");
}

#[test]
fn blocks_of_an_audit_wait_for_each_other() {
    let world = world(WORKER);
    let mut report: Value = serde_json::from_str(&findings(&[
        ("A", "a", "Fix a"),
        ("B", "b", "Fix b"),
        ("C", "c", "Fix c"),
    ]))
    .unwrap();
    report["work_blocks"] = json!([
        {"id": "one", "finding_ids": ["B", "pruned"], "depends_on": ["two"]},
        {"id": "two", "finding_ids": ["C", "A"], "depends_on": []},
    ]);
    let file = world.write("report.json", &report.to_string());
    let plan = |file: &Path| {
        let args = ["plan", "--json", "--findings", file.to_str().unwrap()];
        overhaul(world.dir.path(), &args).output().unwrap()
    };
    let out: Value = serde_json::from_slice(&plan(&file).stdout).unwrap();
    let nodes = out["nodes"].as_array().unwrap();
    let waits = |title: &str| {
        let node = nodes.iter().find(|n| n["title"] == title).unwrap();
        node["depends-on"].as_array().map_or(0, Vec::len)
    };
    assert_eq!(["Fix a", "Fix b", "Fix c"].map(waits), [0, 2, 0], "{out:#}");
    report["work_blocks"][0]["depends_on"] = json!(["three"]);
    std::fs::write(&file, report.to_string()).unwrap();
    let refused = plan(&file);
    assert_eq!(refused.status.code(), Some(2));
    assert!(said(&refused).contains("'three'"), "{}", said(&refused));
}
