//! Many worker processes at once, and workers that die.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use overhaul::ledger::EventKind;
use serde_json::Value;

use super::{WORKER, clone, entries, events, grant, land, nothing_is_held, world};
use crate::support::World;

/// A call of `work` on a clone of its own.
fn command(world: &World, on: &str, entry: &Value) -> Command {
    let of = |name: String| world.path(&name).display().to_string();
    let mut command = world.command(&["work"]);
    command
        .args(["--repo", &of(on.to_owned()), "--config", &of("overhaul.yml".into())])
        .args(["--local", &of(format!("{on}-forge")), "--work-dir", &of(format!("{on}-work"))])
        .args(["--out", &of("bundles".into())])
        .env("OVERHAUL_GRANT", entry.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Works entries off with `workers` processes at a time, each on a clone of its own; `dies` says
/// after how many milliseconds one is killed.
fn work_off(
    world: &World,
    workers: usize,
    all: Vec<Value>,
    dies: &(dyn Fn() -> Option<u64> + Sync),
) {
    let left = Mutex::new(all);
    for worker in 0..workers {
        clone(world, &format!("clone-{worker}"));
    }
    std::thread::scope(|scope| {
        for worker in 0..workers {
            let left = &left;
            scope.spawn(move || {
                loop {
                    let Some(entry) = left.lock().unwrap().pop() else { return };
                    let mut child =
                        command(world, &format!("clone-{worker}"), &entry).spawn().unwrap();
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

/// Starts and acceptances by node.
fn counts(world: &World) -> BTreeMap<String, (usize, usize)> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for event in events(world) {
        match event.kind {
            EventKind::AttemptStarted { node, .. } => {
                counts.entry(node.to_string()).or_default().0 += 1;
            }
            EventKind::Accepted { node, .. } => counts.entry(node.to_string()).or_default().1 += 1,
            _ => {}
        }
    }
    counts
}

#[test]
fn each_node_is_done_exactly_once_however_many_workers() {
    for workers in [1, 4, 8] {
        let world = world(12, WORKER, "true", "");
        let handed_out = grant(&world, &[]);
        work_off(&world, workers, entries(&handed_out), &|| None);
        let landed = land(&world, &handed_out);
        assert_eq!(landed.code, Some(0), "{}", landed.stderr);
        let counts = counts(&world);
        assert_eq!(counts.len(), 12);
        assert!(counts.values().all(|c| *c == (1, 1)), "{workers} workers: {counts:?}");
        assert_eq!(landed.nodes("in_review") + landed.nodes("accepted"), 12, "{}", landed.report);
    }
}

#[test]
fn killed_workers_cost_their_own_attempt_only() {
    let world = world(12, WORKER, "true", "");
    let random = Mutex::new(fastrand::Rng::with_seed(20_261_130));
    let mut rounds = 0;
    loop {
        rounds += 1;
        assert!(rounds < 10, "it does not come to its end");
        let handed_out = grant(&world, &[]);
        if handed_out.is_null() {
            break;
        }
        // In the first rounds two of three die, at any moment.
        let dies = || {
            let mut random = random.lock().unwrap();
            (rounds < 3 && random.u8(0..3) > 0).then(|| random.u64(0..400))
        };
        work_off(&world, 4, entries(&handed_out), &dies);
        let landed = land(&world, &handed_out);
        assert_eq!(
            landed.code,
            Some(0),
            "a killed worker leaves no torn result: {}",
            landed.stderr
        );
        nothing_is_held(&world);
        std::fs::remove_dir_all(world.path("bundles")).unwrap();
    }
    let counts = counts(&world);
    assert!(counts.values().all(|c| c.1 == 1) && counts.len() == 12, "{counts:?}");
}
