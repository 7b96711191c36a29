//! Handing out, working and taking in as jobs of workflow runs, each with the token that it needs.

use serde_json::Value;

use super::{Done, Hub, UPPER};
use crate::rigs::github::world::Run;

/// A job of a workflow run that goes on after it.
fn step(hub: &Hub, run: u64, name: &str, args: &[&str], env: &[(&str, &str)]) -> Done {
    let done = hub.end(hub.start_step(run, "schedule", &format!("{run}-{name}"), args, env));
    hub.rig.world().runs.insert(run, Run { status: "in_progress", attempt: 1 });
    done
}

fn grant(hub: &Hub, run: u64) -> (Done, Vec<Value>) {
    let env = [("INPUT_TOKEN", "ghs_workflow"), ("INPUT_MODE", "grant")];
    let done = step(hub, run, "grant", &["next-step"], &env);
    assert_eq!(done.code, Some(0), "{}", done.log);
    let matrix: Value = serde_json::from_str(done.output("matrix")).unwrap();
    let entries = matrix["include"].as_array().unwrap().clone();
    assert_eq!(done.output("granted"), entries.len().to_string());
    assert_eq!(
        (done.output("host-granted"), done.output("host-matrix")),
        ("0", "{\"include\":[]}")
    );
    (done, entries)
}

fn work(hub: &Hub, run: u64, entry: &Value, out: &str) -> Done {
    let text = entry.to_string();
    let env = [("GITHUB_TOKEN", "ghs_readonly"), ("OVERHAUL_GRANT", text.as_str())];
    step(hub, run, entry["node"].as_str().unwrap(), &["work", "--out", out], &env)
}

fn land(hub: &Hub, run: u64, grant: &Done, bundles: &str) -> Done {
    let env = [
        ("INPUT_TOKEN", "ghs_workflow"),
        ("INPUT_MODE", "land"),
        ("INPUT_BUNDLES", bundles),
        ("INPUT_GRANT", grant.output("grant")),
        ("INPUT_RUN-ID", grant.output("run-id")),
    ];
    step(hub, run, "land", &["next-step"], &env)
}

#[test]
fn a_run_goes_through_jobs_with_the_least_rights() {
    let hub = Hub::new(&["a", "b", "c"], UPPER, "");
    let (granted, entries) = grant(&hub, 201);
    assert_eq!(entries.len(), 3);
    for entry in &entries {
        assert!(!granted.log.contains(entry["key"].as_str().unwrap()), "no key in the log");
    }
    let folder = hub.dir.path().join("bundles");
    let bundles = folder.display().to_string();
    let before = hub.rig.git().head("overhaul/state");
    for entry in &entries {
        // Each in a folder of its own, as artifacts are downloaded.
        let out = folder.join(entry["bundle"].as_str().unwrap()).display().to_string();
        let done = work(&hub, 201, entry, &out);
        assert_eq!(done.code, Some(0), "{}", done.log);
        assert!(done.calls.iter().all(|call| call.starts_with("GET")), "{:#?}", done.calls);
    }
    assert_eq!(hub.rig.git().head("overhaul/state"), before);
    assert!(hub.pulls().is_empty());
    let landed = land(&hub, 201, &granted, &bundles);
    assert_eq!(landed.code, Some(0), "{}", landed.log);
    assert_eq!(landed.nodes("in_review"), 3, "{}", landed.log);
    assert_eq!(hub.pulls().len(), 3);
}

#[test]
fn claims_of_a_workflow_run_that_is_dead_are_free_at_once() {
    let hub = Hub::new(&["a", "b"], UPPER, "");
    let (first, entries) = grant(&hub, 301);
    assert_eq!(entries.len(), 2);
    let bundles = hub.dir.path().join("bundles").display().to_string();
    assert_eq!(work(&hub, 301, &entries[0], &bundles).code, Some(0));

    // As long as its run lives, nobody takes its nodes.
    assert!(grant(&hub, 302).1.is_empty());
    hub.rig.world().runs.insert(301, Run { status: "completed", attempt: 1 });
    let (second, again) = grant(&hub, 303);
    assert_eq!(again.len(), 2, "{}", second.log);
    assert!(again.iter().all(|entry| entry["attempt"] == 2));

    // What the dead run's jobs still hand in is late.
    assert_eq!(work(&hub, 301, &entries[1], &bundles).code, Some(3));
    let late = land(&hub, 301, &first, &bundles);
    assert_eq!(late.code, Some(3), "{}", late.log);
    assert!(late.log.contains("late"), "{}", late.log);
    assert!(hub.pulls().is_empty());
    for entry in &again {
        assert_eq!(work(&hub, 303, entry, &bundles).code, Some(0));
    }
    let landed = land(&hub, 303, &second, &bundles);
    assert_eq!(landed.nodes("in_review"), 2, "{}", landed.log);
}
