//! Nodes in jobs of their own: separate processes on separate clones of one bare remote. Tests and the
//! benchmark work hand-outs off in the same way.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::Value;

use super::{World, config, findings, git};

/// A world with one file and one finding a number, for nodes `N-001` and up.
pub fn world(nodes: usize, worker: &str, verify: &str, more: &str) -> World {
    let files: Vec<(String, String)> =
        (1..=nodes).map(|n| (format!("f{n:03}.txt"), format!("{n}\n"))).collect();
    let listed: Vec<(&str, &str)> = files.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let mut world = World::new(&listed);
    let script = world.write("worker.sh", worker);
    world.write("overhaul.yml", &config(&script, verify, more).replace("concurrent: 4", ""));
    let ids: Vec<String> = (1..=nodes).map(|n| format!("F{n:03}")).collect();
    let list: Vec<(&str, &str, &str)> = ids
        .iter()
        .zip(&files)
        .map(|(id, (file, _))| (id.as_str(), file.as_str(), "fix it"))
        .collect();
    world.write("checkout/findings.json", &findings(&list));
    world.set("TOKIO_WORKER_THREADS", "2");
    world
}

/// The entries of a grant.
pub fn entries(grant: &Value) -> Vec<Value> {
    grant["nodes"].as_array().cloned().unwrap_or_default()
}

/// The entries as lists, one for each of so many processes.
pub fn lists(all: &[Value], processes: usize) -> Vec<Value> {
    all.chunks(all.len().div_ceil(processes)).map(|list| list.to_vec().into()).collect()
}

/// A clone of the remote, made at the first use.
pub fn clone(world: &World, name: &str) -> PathBuf {
    let path = world.path(name);
    if !path.exists() {
        git(world.dir.path(), &["clone", "-q", "remote.git", name]);
    }
    path
}

/// A call of a command on a clone, with a hand-out; results go to `bundles`.
pub fn on_clone(world: &World, command: &str, on: &str, entry: &Value) -> Command {
    let of = |name: String| world.path(&name).display().to_string();
    let mut call = world.command(&[command, "--json"]);
    for (option, place) in [
        ("--repo", on.to_owned()),
        ("--config", "overhaul.yml".to_owned()),
        ("--local", format!("{on}-forge")),
        ("--work-dir", format!("{on}-work")),
        ("--out", "bundles".to_owned()),
    ] {
        call.args([option.to_owned(), of(place)]);
    }
    call.env("OVERHAUL_GRANT", entry.to_string());
    call
}

/// Works hand-outs off with `workers` processes at a time, each on a clone of its own that is there; a
/// hand-out is an entry, or a list that one process does. `dies` says after how many milliseconds one is
/// killed.
pub fn work_off(
    world: &World,
    workers: usize,
    hand_outs: Vec<Value>,
    dies: &(dyn Fn() -> Option<u64> + Sync),
) {
    let left = Mutex::new(hand_outs);
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let left = &left;
            scope.spawn(move || {
                loop {
                    let Some(entry) = left.lock().unwrap().pop() else { return };
                    let mut call = on_clone(world, "work", &format!("clone-{worker}"), &entry);
                    let mut child =
                        call.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
                    if let Some(after) = dies() {
                        std::thread::sleep(Duration::from_millis(after));
                        let _ = child.kill();
                    }
                    let _ = child.wait();
                }
            });
        }
    });
}
