//! Many worker processes at once, and workers that die.

use std::collections::BTreeMap;
use std::sync::Mutex;

use overhaul::ledger::EventKind;
use serde_json::Value;

use super::{WORKER, events, grant, land, nothing_is_held};
use crate::support::World;
use crate::support::jobs::{clone, entries, lists, world};

/// Works entries off, each process on a clone of its own.
fn work_off(
    world: &World,
    workers: usize,
    all: Vec<Value>,
    dies: &(dyn Fn() -> Option<u64> + Sync),
) {
    for worker in 0..workers {
        clone(world, &format!("clone-{worker}"));
    }
    crate::support::jobs::work_off(world, workers, all, dies);
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
    for (workers, in_lists) in [(1, true), (4, false), (8, true)] {
        let world = world(12, WORKER, "true", "");
        let handed_out = grant(&world, &[]);
        let all = entries(&handed_out);
        let hand_outs = if in_lists { lists(&all, workers) } else { all };
        work_off(&world, workers, hand_outs, &|| None);
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
