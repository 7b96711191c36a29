//! What a node costs besides its worker: ours beside bare git, in the same run on the same disk.
//!
//! One node is: a clean worktree at the tip, one changed and one new file, the tree taken and
//! checked, merged onto the tip, committed. Bare git does the same with its fastest commands and
//! without what ours adds (cleaning, a disposable repository for the worker, the scope check).
//! `cargo bench --bench node_overhead`; with `-- quick` fewer nodes.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    missing_docs,
    reason = "a measurement for people; it fails by panic"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use overhaul::git::{Oid, parse_oid};
use overhaul::model::ScopeEntry;
use overhaul::workspace::{
    Integrated, Integration, ScopePolicy, TakeLimits, Workspace, check, integrate,
};

fn main() {
    let quick = std::env::args().any(|arg| arg == "quick");
    let counts: &[usize] = if quick { &[10] } else { &[10, 50, 200] };
    println!("milliseconds a node, mean ({})", overhaul::git::version().unwrap());
    println!(
        "{:>6} {:>6} {:>9} {:>9}   {:>7} {:>7} {:>7} {:>9}",
        "files", "nodes", "bare git", "ours", "reset", "take", "check", "integrate"
    );
    for files in [200, 5_000] {
        for &nodes in counts {
            let dir = tempfile::tempdir().unwrap();
            let base = repository(dir.path(), files);
            let bare = bare_git(dir.path(), &base, nodes);
            let (ours, phases) = ours(dir.path(), &base, nodes);
            let each = |time: Duration| time.as_secs_f64() * 1e3 / nodes as f64;
            println!(
                "{files:>6} {nodes:>6} {:>9.1} {:>9.1}   {:>7.1} {:>7.1} {:>7.1} {:>9.1}",
                each(bare),
                each(ours),
                each(phases[0]),
                each(phases[1]),
                each(phases[2]),
                each(phases[3]),
            );
        }
    }
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

fn edit(tree: &Path, n: usize) {
    let file = tree.join(format!("d0/e{}/f{}.txt", n / 25 % 8, n % 200));
    let mut text = std::fs::read_to_string(&file).unwrap();
    text.push_str("changed\n");
    std::fs::write(file, text).unwrap();
    std::fs::write(tree.join(format!("d0/new{n}.txt")), "new\n").unwrap();
}

fn bare_git(root: &Path, base: &str, nodes: usize) -> Duration {
    let user = root.join("user");
    let tree = root.join("bare-tree");
    git(&user, &["worktree", "add", "-q", "--detach", tree.to_str().unwrap(), base]);
    let mut tip = base.to_owned();
    let start = Instant::now();
    for n in 0..nodes {
        git(&tree, &["read-tree", "--reset", "-u", &tip]);
        edit(&tree, n);
        git(&tree, &["add", "-A"]);
        let taken = git(&tree, &["write-tree"]);
        let node = git(&tree, &["commit-tree", "-p", &tip, "-m", "node", &taken]);
        let merged = git(&tree, &["merge-tree", "--write-tree", &tip, &node]);
        tip = git(&tree, &["commit-tree", "-p", &tip, "-m", "node", &merged]);
    }
    start.elapsed()
}

fn ours(root: &Path, base: &str, nodes: usize) -> (Duration, [Duration; 4]) {
    let workspace = Workspace::open(&root.join("work"), &root.join("user")).unwrap();
    let store = workspace.store();
    let mut tip: Oid = parse_oid(base).unwrap();
    // Bare git's worktree was there before its clock started too.
    workspace.slot(None).unwrap().reset(tip).unwrap();
    let policy =
        ScopePolicy { writes: vec![ScopeEntry::Glob("**".to_owned())], ..ScopePolicy::default() };
    let mut phases = [Duration::ZERO; 4];
    let start = Instant::now();
    for n in 0..nodes {
        let mut last = Instant::now();
        let mut lap = |phase: usize| {
            phases[phase] += last.elapsed();
            last = Instant::now();
        };
        let mut slot = workspace.slot(Some(tip)).unwrap();
        slot.reset(tip).unwrap();
        lap(0);
        edit(&slot.path(), n);
        let taken = slot.take_tree(&TakeLimits::default()).unwrap();
        lap(1);
        let violations = check(store, store.tree_of(tip).unwrap(), taken.tree, &policy).unwrap();
        assert_eq!(violations, []);
        lap(2);
        let time = jiff::Timestamp::from_second(1_800_000_000).unwrap();
        let it = Integration { onto: tip, base: tip, tree: taken.tree, message: "node\n", time };
        let Integrated::Merged { commit, .. } = integrate(store, &it).unwrap() else {
            unreachable!("every node changes something");
        };
        tip = commit;
        lap(3);
    }
    (start.elapsed(), phases)
}
