//! Two jobs that start together, again and again: nothing is done, opened or said twice.

use std::collections::BTreeMap;

use super::{Hub, UPPER};

/// Rounds here; `tests/real/race` asks for 50 by this variable.
const ROUNDS: &str = "OVERHAUL_RACE_ROUNDS";

/// Rounds at once: most of a round is waiting.
const AT_ONCE: usize = 3;

fn round(number: u64) {
    // N-003 fails, so that there is something to say; the pause about it would be a comment.
    let worker = format!("case \"$1\" in N-003) exit 3;; esac\n{UPPER}");
    let hub = Hub::new(&["a", "b", "c"], &worker, "pull-requests:\n  labels: []\n");
    let first = number * 10 + 10_001;
    let both = [hub.start(first, "schedule"), hub.start(first + 1, "workflow_dispatch")];
    for job in both {
        let done = hub.end(job);
        assert_eq!(done.code, Some(0), "round {number}: {}", done.log);
    }
    let dashboard = hub.issues()[0];
    hub.rig.world().add_comment("writer", dashboard, "/overhaul status");
    let both = [hub.start(first + 2, "issue_comment"), hub.start(first + 3, "schedule")];
    let logs = both.map(|job| hub.end(job)).map(|done| {
        assert_eq!(done.code, Some(0), "round {number}: {}", done.log);
        done.log
    });
    assert_eq!(hub.pulls().len(), 2, "round {number}: {:?} {logs:?}", hub.pulls());
    assert_eq!(hub.issues().len(), 1, "round {number}: {logs:?}");
    assert_eq!(hub.replies().len(), 1, "round {number}: {:?}", hub.replies());
    // Every accepted attempt once; N-003 by its budget of two.
    let events = hub.rig.git().run(&["grep", "-h", "\"kind\":\"accepted\"", "overhaul/state"]);
    let mut nodes: BTreeMap<String, u32> = BTreeMap::new();
    for line in events.lines() {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        *nodes.entry(event["node"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    let once: BTreeMap<String, u32> = [("N-001".to_owned(), 1), ("N-002".to_owned(), 1)].into();
    assert_eq!(nodes, once, "round {number}");
    let started = hub.rig.git().run(&["grep", "-ho", "\"attempt_started\"", "overhaul/state"]);
    assert_eq!(started.lines().count(), 4, "round {number}");
}

#[test]
fn jobs_that_start_together_do_everything_once() {
    let rounds = std::env::var(ROUNDS).ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let next = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if number >= rounds {
                        return;
                    }
                    round(number);
                }
            });
        }
    });
}
