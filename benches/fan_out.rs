//! Handed-out nodes on 1, 4 and 8 worker processes, each with a clone of its own of one bare remote;
//! a node takes its worker one second. `cargo bench --bench fan_out` prints a table: the ideal is
//! nodes / workers seconds; nothing is asserted but that each node is done exactly once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a program for people")]

use std::process::Output;
use std::time::{Duration, Instant};

use serde_json::Value;

#[allow(dead_code, reason = "the tests use more of it")]
#[path = "../tests/it/support/mod.rs"]
mod support;

use support::jobs::{clone, entries, lists, work_off, world};

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

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let made = work();
    (made, start.elapsed())
}

fn json_of(done: &Output) -> Value {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

fn fan_out(workers: usize, nodes: usize) {
    let world = world(nodes, "sleep 1\necho \"$1\" >> \"$2\"\n", "true", "");
    for worker in 0..workers {
        clone(&world, &format!("clone-{worker}"));
    }
    let (report, granting) = timed(|| json_of(&world.run(&["grant", "--json"])));
    let grant = &report["grant"];
    let all = entries(grant);
    assert_eq!(all.len(), nodes);
    let lists = lists(&all, workers);
    let ((), working) = timed(|| work_off(&world, workers, lists, &|| None));
    let (bundles, id) =
        (world.path("bundles").display().to_string(), grant["id"].as_str().unwrap());
    let args = ["merge-results", "--json", "--bundles", &bundles, "--grant", id];
    let (report, landing) = timed(|| json_of(&world.run(&args)));
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
