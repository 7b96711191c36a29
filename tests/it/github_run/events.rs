//! Every event is only a wake-up: whatever it says, the same is looked at and the same is done.

use std::path::Path;

use serde_json::{Value, json};

use super::{Done, Hub, UPPER};

/// GitHub's own examples, pruned (tests/data/webhooks/README.md): the event and its payload.
fn examples() -> Vec<(String, Value)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/webhooks");
    let mut found: Vec<(String, Value)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            let payload = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            (name.split('.').next().unwrap().to_owned(), payload)
        })
        .collect();
    found.sort_by_key(|(event, payload)| (event.clone(), payload["action"].to_string()));
    assert!(found.len() > 20, "{}", found.len());
    found
}

/// An example of an event.
fn example(event: &str, action: &str) -> Value {
    let mut all = examples().into_iter();
    all.find(|(name, payload)| name == event && payload["action"] == action).unwrap().1
}

/// The job of an event with this payload.
fn wake(hub: &mut Hub, run: u64, event: &str, payload: &[u8]) -> Done {
    let path = hub.dir.path().join("event.json");
    std::fs::write(&path, payload).unwrap();
    hub.env.insert("GITHUB_EVENT_PATH", path.display().to_string());
    hub.end(hub.start(run, event))
}

/// The job did what a job does to which nothing happened: it looked, and that was all.
fn only_looked(done: &Done, what: &str) {
    assert_eq!(done.code, Some(0), "{what}: {}", done.log);
    assert_eq!(done.output("status"), "waiting", "{what}: {}", done.log);
    assert_eq!(done.nodes("in_review"), 1, "{what}");
    let calls: Vec<&str> = done.calls.iter().filter_map(|c| c.split(['?', ' ']).nth(1)).collect();
    assert_eq!(calls, ["/issues/comments", "/issues/2", "/pulls"], "{what}: {:?}", done.calls);
    assert!(done.calls.iter().all(|call| call.starts_with("GET")), "{what}: {:?}", done.calls);
}

/// A hub whose one pull request waits for people.
fn waiting() -> Hub {
    let hub = Hub::new(&["a"], UPPER, "pull-requests:\n  labels: []\n");
    let first = hub.job(601);
    assert_eq!(first.nodes("in_review"), 1, "{}", first.log);
    hub.job(602);
    hub
}

#[test]
fn every_event_ends_in_the_same_observation() {
    let mut hub = waiting();
    let none = json!({"action": "brand_new"});
    let more = ["schedule", "something_new"].map(|event| (event.to_owned(), none.clone()));
    for ((event, mut payload), run) in examples().into_iter().chain(more).zip(610..) {
        // What an event carries is not obeyed: only what the API says was written.
        for said in ["/comment/body", "/review/body", "/issue/body", "/client_payload/command"] {
            if let Some(text) = payload.pointer_mut(said) {
                *text = "/overhaul cancel".into();
            }
        }
        let what = format!("{event} {}", payload["action"]);
        let done = wake(&mut hub, run, &event, payload.to_string().as_bytes());
        only_looked(&done, &what);
        assert!(!done.log.contains("can't be read"), "{what}: {}", done.log);
    }
}

#[test]
fn a_damaged_payload_is_told_and_still_only_wakes() {
    let mut hub = waiting();
    let whole = example("issue_comment", "edited").to_string();
    let deep = "[".repeat(100_000);
    let huge = format!("{{\"pad\":\"{}\"}}", "x".repeat(27 << 20));
    let damaged = [&whole[..whole.len() / 2], "", "null", "[1]", "\u{0}", &deep, &huge];
    for (payload, run) in damaged.into_iter().zip(670..) {
        let what: String = payload.chars().take(20).collect();
        let done = wake(&mut hub, run, "issue_comment", payload.as_bytes());
        only_looked(&done, &what);
        assert!(done.log.contains("the event's payload can't be read"), "{what}: {}", done.log);
    }
    // Fields of other kinds are fields that are not there.
    let wrong = json!({"action": ["edited"], "comment": {"id": "1", "user": 7}, "sender": []});
    only_looked(&wake(&mut hub, 680, "issue_comment", wrong.to_string().as_bytes()), "wrong");
    hub.env.insert("GITHUB_EVENT_PATH", hub.dir.path().join("nowhere.json").display().to_string());
    only_looked(&hub.end(hub.start(681, "workflow_run")), "no file");
}

#[test]
fn pull_requests_of_forks_are_told_so_and_nothing_is_touched() {
    let mut hub = Hub::new(&["a"], "exit 1\n", "");
    let fork = |event: &str, action: &str| {
        let mut payload = example(event, action);
        payload["pull_request"]["head"]["repo"]["full_name"] = "stranger/hello".into();
        payload.to_string()
    };
    let opened = fork("pull_request", "opened");
    let events = [
        ("pull_request", opened.clone(), "from a fork"),
        ("pull_request_target", opened, "from a fork"),
        ("pull_request_review", fork("pull_request_review", "submitted"), "from a fork"),
        // Whose it is can't be told: it is not taken for ours.
        ("pull_request_target", "{\"pull_request\":".to_owned(), "can't be told"),
        ("pull_request", json!({"pull_request": {"head": 1}}).to_string(), "can't be told"),
    ];
    for ((event, payload, told), run) in events.into_iter().zip(651..) {
        let done = wake(&mut hub, run, event, payload.as_bytes());
        assert_eq!(done.code, Some(0), "{}", done.log);
        assert_eq!(done.output("status"), "idle");
        assert!(done.summary.contains(told), "{event}: {}", done.summary);
        assert_eq!(done.calls, Vec::<String>::new());
    }
    assert!(hub.rig.git().head("overhaul/state").is_none());
}

#[test]
fn comments_start_so_many_cycles_an_hour_and_no_more() {
    let fuse = "pull-requests:\n  labels: []\ncommands:\n  fuse:\n    cycles-per-hour: 1\n";
    let worker = format!("case \"$1\" in N-002) exit 3;; esac\n{UPPER}");
    let mut hub = Hub::new(&["a", "b"], &worker, fuse);
    let event = example("issue_comment", "created").to_string();
    let first = wake(&mut hub, 661, "issue_comment", event.as_bytes());
    assert_eq!(first.nodes("failed"), 1, "{}", first.log);
    let issue = hub.issues()[0];
    hub.rig.world().add_comment("writer", issue, "/overhaul retry N-002");
    let second = hub.end(hub.start(662, "issue_comment"));
    assert_eq!(second.output("status"), "waiting", "{}", second.log);
    assert!(second.log.contains("commands.fuse"), "{}", second.log);
    assert_eq!(hub.replies().len(), 1, "the order is taken: {:#?}", hub.replies());
    // The schedule goes on with it.
    let third = hub.job(663);
    assert_eq!(third.nodes("failed"), 1, "{}", third.log);
    let state = hub.rig.git().run(&["grep", "-ho", "attempt_started", "overhaul/state"]);
    assert_eq!(state.lines().count(), 5, "N-001 once, N-002 twice each time");
}
