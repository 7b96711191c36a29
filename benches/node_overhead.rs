//! What a node costs besides its worker: ours beside bare git, in the same run on the same disk.
//!
//! One node is: a clean worktree at its base, one changed and one new file, the tree taken and
//! checked, merged onto the tip, committed. Bare git does the same with its fastest commands and
//! without what ours adds (cleaning, a disposable repository for the worker, the scope check).
//! Independent nodes all start from the base branch; in `5 x 20` each layer of twenty starts from
//! the layer before. The last table is the whole product: one `next-step` with a `sed` as worker, a
//! verify command that does nothing, ledger and branches pushed to a local repository, pull
//! requests written as files. `cargo bench --bench node_overhead`; with `-- quick` fewer nodes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a measurement for people; it fails by panic"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use overhaul::git::{Oid, parse_oid};
use overhaul::model::ScopeEntry;
use overhaul::workspace::{
    Integrated, Integration, ScopePolicy, TakeLimits, Workspace, check, integrate,
};

/// Layers, and nodes in each.
#[derive(Clone, Copy)]
struct Shape(usize, usize);

fn main() {
    let quick = std::env::args().any(|arg| arg == "quick");
    let shapes: &[Shape] = if quick {
        &[Shape(1, 10), Shape(2, 5)]
    } else {
        &[Shape(1, 10), Shape(1, 50), Shape(1, 200), Shape(5, 20)]
    };
    println!("milliseconds a node, mean ({})", overhaul::git::version().unwrap());
    println!(
        "{:>6} {:>7} {:>9} {:>9}   {:>7} {:>7} {:>7} {:>9} {:>9}",
        "files", "nodes", "bare git", "ours", "reset", "take", "check", "integrate", "peak MB"
    );
    for files in [200, 5_000] {
        for &shape in shapes {
            let nodes = shape.0 * shape.1;
            let dir = tempfile::tempdir().unwrap();
            let base = repository(dir.path(), files);
            let bare = bare_git(dir.path(), &base, shape);
            forget_peak();
            let (ours, phases) = ours(dir.path(), &base, shape);
            let each = |time: Duration| time.as_secs_f64() * 1e3 / nodes as f64;
            println!(
                "{files:>6} {:>7} {:>9.1} {:>9.1}   {:>7.1} {:>7.1} {:>7.1} {:>9.1} {:>9.0}",
                format!("{}x{}", shape.0, shape.1),
                each(bare),
                each(ours),
                each(phases[0]),
                each(phases[1]),
                each(phases[2]),
                each(phases[3]),
                peak_megabytes(),
            );
        }
    }
    println!("\na whole cycle, one worker at a time and four: milliseconds a node");
    println!("{:>6} {:>7} {:>9} {:>9} {:>9}", "files", "nodes", "1", "4", "peak MB");
    for files in [200, 5_000] {
        for nodes in if quick { [5, 10] } else { [10, 50] } {
            let each =
                |workers| whole_cycle(files, nodes, workers).as_secs_f64() * 1e3 / nodes as f64;
            let (one, four) = (each(1), each(4));
            // The largest child so far; git's are far smaller.
            let peak = getrusage(UsageWho::RUSAGE_CHILDREN).unwrap().max_rss() / 1024;
            println!("{files:>6} {nodes:>7} {one:>9.1} {four:>9.1} {peak:>9}");
        }
    }
}

/// Starts the count of [`peak_megabytes`] anew (proc(5), clear_refs).
fn forget_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

fn peak_megabytes() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// One `next-step` over `nodes` findings in as many files.
fn whole_cycle(files: usize, nodes: usize, workers: usize) -> Duration {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    repository(root, files);
    let findings: Vec<serde_json::Value> = (0..nodes)
        .map(|n| {
            serde_json::json!({
                "id": format!("F-{n}"), "title": "a line to change", "severity": "low",
                "category": "correctness", "summary": "It is wrong.", "evidence": ["line 1"],
                "affected_files": [{"path": file(n), "line_start": 1}],
            })
        })
        .collect();
    let report = serde_json::json!({
        "contract_version": "audit-tools/audit-findings/v1", "findings": findings,
    });
    std::fs::write(root.join("findings.json"), report.to_string()).unwrap();
    std::fs::write(
        root.join("overhaul.yml"),
        format!(
            "version: 1\n\
             planning: {{ max-findings-per-node: 1 }}\n\
             pools:\n\
             \x20 - id: sed\n\
             \x20   provider: worker-command\n\
             \x20   command: [sed, -i, 1s/.*/changed/, \"{{paths}}\"]\n\
             \x20   cost-per-mtok: 0\n\
             \x20   limits: {{ concurrent: {workers} }}\n\
             dispatch: {{ command-workers: true }}\n\
             pull-requests: {{ max-open: 1000 }}\n\
             report: {{ noise: {{ pull-requests-per-hour: 1000, pull-requests-per-day: 1000 }} }}\n\
             verify: {{ commands: [{{ name: nothing, argv: [\"true\"] }}] }}\n"
        ),
    )
    .unwrap();
    let start = Instant::now();
    let done = Command::new(env!("CARGO_BIN_EXE_overhaul"))
        .arg("next-step")
        .arg("--config")
        .arg(root.join("overhaul.yml"))
        .arg("--repo")
        .arg(root.join("user"))
        .arg("--local")
        .arg(root.join("forge"))
        .arg("--work-dir")
        .arg(root.join("work"))
        .arg("--findings")
        .arg(root.join("findings.json"))
        .output()
        .unwrap();
    let time = start.elapsed();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(std::fs::read_dir(root.join("forge/pulls")).unwrap().count(), nodes);
    time
}

fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=b", "-c", "user.email=b", "-c", "gc.auto=0"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A repository of `files` files of 2 kB in folders of 25.
fn repository(root: &Path, files: usize) -> String {
    let user = root.join("user");
    std::fs::create_dir_all(&user).unwrap();
    git(&user, &["init", "-q"]);
    for n in 0..files {
        let folder = user.join(format!("d{}/e{}", n / 250, n / 25 % 10));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("f{n}.txt")), format!("line {n}\n").repeat(200))
            .unwrap();
    }
    git(&user, &["add", "-A"]);
    git(&user, &["commit", "-qm", "base"]);
    git(&user, &["repack", "-adq"]);
    git(&user, &["rev-parse", "HEAD"])
}

fn file(n: usize) -> String {
    format!("d0/e{}/f{}.txt", n / 25 % 8, n % 200)
}

fn edit(tree: &Path, n: usize) {
    let file = tree.join(file(n));
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("changed\n");
    std::fs::write(file, text).unwrap();
    std::fs::write(tree.join(format!("d0/new{n}.txt")), "new\n").unwrap();
}

fn bare_git(root: &Path, base: &str, shape: Shape) -> Duration {
    let user = root.join("user");
    let tree = root.join("bare-tree");
    git(&user, &["worktree", "add", "-q", "--detach", tree.to_str().unwrap(), base]);
    let mut tip = base.to_owned();
    let start = Instant::now();
    for layer in 0..shape.0 {
        let base = tip.clone();
        for n in 0..shape.1 {
            git(&tree, &["read-tree", "--reset", "-u", &base]);
            edit(&tree, layer * shape.1 + n);
            git(&tree, &["add", "-A"]);
            let taken = git(&tree, &["write-tree"]);
            let node = git(&tree, &["commit-tree", "-p", &base, "-m", "node", &taken]);
            let merged = git(&tree, &["merge-tree", "--write-tree", &tip, &node]);
            tip = git(&tree, &["commit-tree", "-p", &tip, "-m", "node", &merged]);
        }
    }
    start.elapsed()
}

fn ours(root: &Path, base: &str, shape: Shape) -> (Duration, [Duration; 4]) {
    let workspace = Workspace::open(&root.join("work"), &root.join("user")).unwrap();
    let store = workspace.store();
    let mut tip: Oid = parse_oid(base).unwrap();
    // Bare git's worktree was there before its clock started too.
    workspace.slot(None).unwrap().reset(tip).unwrap();
    let policy =
        ScopePolicy { writes: vec![ScopeEntry::Glob("**".to_owned())], ..ScopePolicy::default() };
    let mut phases = [Duration::ZERO; 4];
    let start = Instant::now();
    for layer in 0..shape.0 {
        let base = tip;
        for n in 0..shape.1 {
            let mut last = Instant::now();
            let mut lap = |phase: usize| {
                phases[phase] += last.elapsed();
                last = Instant::now();
            };
            let mut slot = workspace.slot(Some(base)).unwrap();
            slot.reset(base).unwrap();
            lap(0);
            edit(&slot.path(), layer * shape.1 + n);
            let taken = slot.take_tree(&TakeLimits::default()).unwrap();
            lap(1);
            let before = store.tree_of(base).unwrap();
            assert_eq!(check(store, before, taken.tree, &policy).unwrap(), []);
            lap(2);
            let time = jiff::Timestamp::from_second(1_800_000_000).unwrap();
            let it = Integration { onto: tip, base, tree: taken.tree, message: "node\n", time };
            let Integrated::Merged { commit, .. } = integrate(store, &it).unwrap() else {
                unreachable!("every node changes something");
            };
            tip = commit;
            lap(3);
        }
    }
    (start.elapsed(), phases)
}
