//! Handing out and taking in, killed right after each of their effects: what comes after brings the
//! run to the end that it would have come to.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{WORKER, clone, entries, events, grant, land, work, world};
use crate::support::{World, git};

/// Rounds of hand-out, work and take-in that a run may take to settle.
const ROUNDS: usize = 5;

fn start() -> World {
    let mut world = world(3, WORKER, "true", "");
    // Claims of a process that nobody can ask for expire at once: the next job takes over.
    world.set("OVERHAUL_NOW", "2026-11-30T10:00:00Z");
    world
}

/// Branches with their trees, and the pull requests' heads.
fn end(world: &World) -> (BTreeMap<String, String>, Vec<String>) {
    let refs = git(
        &world.path("remote.git"),
        &["for-each-ref", "--format=%(refname) %(tree)", "refs/heads"],
    );
    let branches = refs
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(branch, _)| *branch != "refs/heads/overhaul/state")
        .map(|(a, b)| (a.to_owned(), b.to_owned()))
        .collect();
    let head =
        |text: &String| text.lines().find_map(|l| l.strip_prefix("head: ")).unwrap().to_owned();
    let mut heads: Vec<String> = world.pulls().values().map(head).collect();
    heads.sort();
    (branches, heads)
}

/// One round; each a day later, so that whatever a dead job held has expired.
fn round(world: &mut World, day: usize) -> bool {
    world.set("OVERHAUL_NOW", &format!("2026-12-{:02}T10:00:00Z", day + 1));
    let handed_out = grant(world, &[]);
    if handed_out.is_null() {
        // Whatever was accepted and not shown yet is finished by any job.
        return world.next_step().status() == "waiting";
    }
    for entry in entries(&handed_out) {
        work(world, "clone-a", &entry);
    }
    let landed = land(world, &handed_out);
    assert!(landed.code.is_some(), "{}", landed.stderr);
    false
}

fn settle(world: &mut World) {
    for day in 0..ROUNDS {
        if round(world, day) {
            return;
        }
    }
    panic!("not settled: {}", world.status());
}

/// Logs the effects of one call.
fn effects(world: &mut World, call: impl FnOnce(&World)) -> usize {
    let log = world.path("effects.log");
    world.set("OVERHAUL_EFFECTS_LOG", &log.display().to_string());
    call(world);
    world.unset("OVERHAUL_EFFECTS_LOG");
    std::fs::read_to_string(&log).unwrap().lines().count()
}

fn check(world: &World, expected: &(BTreeMap<String, String>, Vec<String>), what: &str) {
    assert_eq!(&end(world), expected, "{what}");
    let mut run = overhaul::ledger::Run::default();
    for event in events(world) {
        assert_eq!(run.apply(&event), overhaul::ledger::Applied::Yes, "{what}: {event:?}");
    }
}

#[test]
fn a_hand_out_that_is_cut_off_hands_out_nothing_twice() {
    let mut calm = start();
    let count = effects(&mut calm, |world| assert!(!grant(world, &[]).is_null()));
    settle(&mut calm);
    let expected = end(&calm);
    assert_eq!(expected.1.len(), 3);
    assert!(count >= 3, "opening, start and claims are effects: {count}");
    for n in 1..=count {
        let mut world = start();
        world.set("OVERHAUL_CRASH_AFTER", &n.to_string());
        let output = world.run(&["grant", "--json"]);
        assert_eq!(output.status.code(), None, "it died at {n}");
        world.unset("OVERHAUL_CRASH_AFTER");
        settle(&mut world);
        check(&world, &expected, &format!("killed after effect {n} of {count}"));
    }
}

#[test]
fn a_take_in_that_is_cut_off_is_finished() {
    let handed_out = |world: &World| -> Value {
        let handed_out = grant(world, &[]);
        clone(world, "clone-a");
        for entry in entries(&handed_out) {
            work(world, "clone-a", &entry);
        }
        handed_out
    };
    let mut calm = start();
    let first = handed_out(&calm);
    let count = effects(&mut calm, |world| assert_eq!(land(world, &first).code, Some(0)));
    settle(&mut calm);
    let expected = end(&calm);
    assert_eq!(expected.1.len(), 3);
    // The same job once more finds the results that it had not booked; without it, the nodes are
    // done anew.
    for again in [true, false] {
        let cells = (1..=count).filter(|n| n % 2 == usize::from(again));
        for n in cells {
            let mut world = start();
            let first = handed_out(&world);
            world.set("OVERHAUL_CRASH_AFTER", &n.to_string());
            let crashed = land(&world, &first);
            if n * 10 < count * 8 {
                assert_eq!(crashed.code, None, "it died at {n}: {}", crashed.stderr);
            }
            world.unset("OVERHAUL_CRASH_AFTER");
            if again {
                let landed = land(&world, &first);
                assert!(matches!(landed.code, Some(0 | 3)), "{}", landed.stderr);
            }
            settle(&mut world);
            check(
                &world,
                &expected,
                &format!("killed after effect {n} of {count} (again: {again})"),
            );
        }
    }
}
