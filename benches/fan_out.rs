//! Handed-out nodes on 1, 4 and 8 worker processes, each with a clone of its own of one bare remote;
//! a node takes its worker one second. `cargo bench --bench fan_out` prints a table: the ideal is
//! nodes / workers seconds; nothing is asserted but that each node is done exactly once.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Seconds of work for each worker process.
const EACH: usize = 25;

fn main() {
    println!(
        "{:>7} {:>6} {:>10} {:>10} {:>10} {:>11} {:>10}",
        "workers", "nodes", "grant", "work", "ideal", "efficiency", "land"
    );
    for workers in [1, 4, 8] {
        fan_out(workers, workers * EACH);
    }
}

fn git(dir: &Path, args: &[&str]) {
    let done = Command::new("git")
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .args(["-c", "user.name=b", "-c", "user.email=b@example.invalid"])
        .args(args)
        .output()
        .unwrap();
    assert!(done.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// A call on a clone of this name.
fn overhaul(dir: &Path, command: &str, on: &str) -> Command {
    let mut call = Command::new(env!("CARGO_BIN_EXE_overhaul"));
    call.args(["--log-level", "error", command, "--json", "--repo"])
        .arg(dir.join(on))
        .arg("--config")
        .arg(dir.join("overhaul.yml"))
        .arg("--local")
        .arg(dir.join("forge"))
        .arg("--work-dir")
        .arg(dir.join(format!("{on}-work")));
    call
}

fn json_of(mut call: Command) -> Value {
    let done = call.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn fan_out(workers: usize, nodes: usize) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    prepare(dir, nodes);
    for worker in 0..workers {
        git(dir, &["clone", "-q", "remote.git", &format!("clone-{worker}")]);
    }
    let start = Instant::now();
    let report = json_of(overhaul(dir, "grant", "checkout"));
    let granting = start.elapsed();
    let grant = &report["grant"];
    let all = grant["nodes"].as_array().unwrap().clone();
    assert_eq!(all.len(), nodes);

    let left = Mutex::new(all);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let left = &left;
            scope.spawn(move || {
                loop {
                    let Some(entry) = left.lock().unwrap().pop() else { return };
                    let mut call = overhaul(dir, "work", &format!("clone-{worker}"));
                    call.arg("--out").arg(dir.join("bundles"));
                    call.env("OVERHAUL_GRANT", entry.to_string());
                    let status = call.stdout(Stdio::null()).status().unwrap();
                    assert!(status.success());
                }
            });
        }
    });
    let working = start.elapsed();

    let start = Instant::now();
    let mut call = overhaul(dir, "merge-results", "checkout");
    call.arg("--bundles").arg(dir.join("bundles"));
    call.args(["--grant", grant["id"].as_str().unwrap()]);
    let report = json_of(call);
    let landing = start.elapsed();
    let landed = report["results"].as_array().unwrap();
    assert!(landed.len() == nodes && landed.iter().all(|r| r["fate"] == "landed"), "{report}");

    let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
    let ideal = Duration::from_secs((nodes / workers) as u64);
    println!(
        "{workers:>7} {nodes:>6} {:>10} {:>10} {:>10} {:>9.1} % {:>10}",
        seconds(granting),
        seconds(working),
        seconds(ideal),
        100.0 * ideal.as_secs_f64() / working.as_secs_f64(),
        seconds(landing),
    );
}

/// A repository of one file a node, its bare remote, findings and a configuration.
fn prepare(dir: &Path, nodes: usize) {
    let checkout = dir.join("checkout");
    std::fs::create_dir_all(&checkout).unwrap();
    git(&checkout, &["init", "-q", "-b", "main"]);
    let mut list = Vec::new();
    for n in 0..nodes {
        let path = format!("f{n:03}.txt");
        std::fs::write(checkout.join(&path), format!("{n}\n")).unwrap();
        list.push(json!({
            "id": format!("F{n:03}"), "title": "fix it", "severity": "medium",
            "category": "correctness", "summary": "fix it",
            "affected_files": [{"path": path, "line_start": 1}], "evidence": [],
        }));
    }
    let audit =
        json!({"contract_version": "audit-tools/audit-findings/v1", "findings": list}).to_string();
    std::fs::write(checkout.join("findings.json"), audit).unwrap();
    git(&checkout, &["add", "-A"]);
    git(&checkout, &["commit", "-q", "-m", "start"]);
    git(dir, &["clone", "-q", "--bare", "checkout", "remote.git"]);
    git(&checkout, &["remote", "add", "origin", &dir.join("remote.git").display().to_string()]);
    let worker = dir.join("worker.sh");
    std::fs::write(&worker, "sleep 1\necho \"$1\" >> \"$2\"\n").unwrap();
    let config = format!(
        "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n  - id: worker\n    \
         provider: worker-command\n    command: [sh, {}, \"{{node}}\", \"{{paths}}\"]\n    \
         cost-per-mtok: 0\ndispatch:\n  command-workers: true\nverify:\n  commands:\n    - name: \
         check\n      argv: [\"true\"]\n",
        worker.display()
    );
    std::fs::write(dir.join("overhaul.yml"), config).unwrap();
}
