//! Every event is only a wake-up: whatever it says, the same is looked at and the same is done.
//! Payloads have the shape of GitHub's published examples, with people and places of this rig.

use serde_json::{Value, json};

use super::{Hub, UPPER};

fn user(login: &str) -> Value {
    json!({"login": login, "id": 2, "node_id": "U_2", "type": "User", "site_admin": false})
}

fn payload(own: Value) -> Value {
    let mut payload = json!({
        "repository": {
            "id": 1, "name": "hello", "full_name": "octo/hello", "private": false,
            "owner": user("octo"), "fork": false, "default_branch": "main",
        },
        "sender": user("writer"),
    });
    for (name, value) in own.as_object().unwrap() {
        payload[name] = value.clone();
    }
    payload
}

fn comment(action: &str, on_pull_request: bool, author: &str, body: &str) -> Value {
    let mut issue = json!({
        "id": 3, "number": 1, "title": "Run", "state": "open", "locked": false,
        "user": user("octo"), "author_association": "OWNER", "body": "x",
    });
    if on_pull_request {
        issue["pull_request"] =
            json!({"url": "u", "html_url": "h", "diff_url": "d", "patch_url": "p"});
    }
    payload(json!({
        "action": action, "issue": issue,
        "comment": {
            "id": 99, "node_id": "C_99", "user": user(author), "body": body,
            "author_association": "CONTRIBUTOR",
        },
    }))
}

fn pull(action: &str, head_repository: &str) -> Value {
    payload(json!({
        "action": action, "number": 7,
        "pull_request": {
            "id": 5, "number": 7, "state": "closed", "merged": action == "closed", "draft": false,
            "user": user("writer"), "body": null,
            "head": {"label": "x:patch", "ref": "patch", "sha": "0".repeat(40),
                "repo": {"full_name": head_repository, "fork": head_repository != "octo/hello"}},
            "base": {"label": "octo:main", "ref": "main", "sha": "0".repeat(40),
                "repo": {"full_name": "octo/hello", "fork": false}},
        },
    }))
}

#[test]
fn every_event_ends_in_the_same_observation() {
    let mut hub = Hub::new(&["a"], UPPER, "pull-requests:\n  labels: []\n");
    let first = hub.job(601);
    assert_eq!(first.nodes("in_review"), 1, "{}", first.log);
    let mut review = pull("submitted", "octo/hello");
    review["review"] = json!({
        "id": 8, "user": user("writer"), "state": "changes_requested", "body": "/overhaul cancel",
    });
    let run = json!({
        "id": 11, "name": "CI", "head_branch": "main", "event": "push", "status": "completed",
        "conclusion": "failure", "workflow_id": 4, "run_attempt": 1,
    });
    let events: Vec<(&str, Value)> = vec![
        ("schedule", payload(json!({"schedule": "17 3 * * *"}))),
        (
            "workflow_dispatch",
            payload(json!({"inputs": null, "ref": "refs/heads/main", "workflow": "x"})),
        ),
        (
            "repository_dispatch",
            payload(json!({"action": "go", "branch": "main", "client_payload": {}})),
        ),
        // What an event carries is not obeyed: only what the API says was written.
        ("issue_comment", comment("created", false, "writer", "/overhaul cancel")),
        ("issue_comment", comment("edited", true, "writer", "/overhaul cancel")),
        ("issue_comment", comment("deleted", false, "writer", "/overhaul cancel")),
        ("pull_request", pull("closed", "octo/hello")),
        ("pull_request", pull("synchronize", "octo/hello")),
        ("pull_request_review", review),
        ("workflow_run", payload(json!({"action": "completed", "workflow_run": run}))),
        ("issues", payload(json!({"action": "edited", "issue": {"number": 1}}))),
        ("something_new", payload(json!({}))),
        // Damaged: it still only wakes.
        ("issue_comment", json!({"comment": []})),
    ];
    let mut seen: Option<Vec<String>> = None;
    for ((event, payload), run) in events.into_iter().zip(610..) {
        let path = hub.dir.path().join("event.json");
        std::fs::write(&path, payload.to_string()).unwrap();
        hub.env.insert("GITHUB_EVENT_PATH", path.display().to_string());
        let done = hub.end(hub.start(run, event));
        assert_eq!(done.code, Some(0), "{event}: {}", done.log);
        assert_eq!(done.output("status"), "waiting", "{event}: {}", done.log);
        assert_eq!(done.nodes("in_review"), 1, "{event}");
        // Since when comments are read follows the clock.
        let calls = done.calls.iter().map(|c| c.split("since=").next().unwrap().to_owned());
        let calls: Vec<String> = calls.collect();
        assert!(
            calls.len() <= 3 && calls.iter().all(|c| c.starts_with("GET")),
            "{event}: {calls:?}"
        );
        assert_eq!(&calls, seen.get_or_insert_with(|| calls.clone()), "{event}");
    }
}

#[test]
fn pull_requests_of_forks_are_told_so_and_nothing_is_touched() {
    let mut hub = Hub::new(&["a"], "exit 1\n", "");
    let path = hub.dir.path().join("event.json");
    hub.env.insert("GITHUB_EVENT_PATH", path.display().to_string());
    for (event, run) in [("pull_request", 651), ("pull_request_target", 652)] {
        std::fs::write(&path, pull("opened", "stranger/hello").to_string()).unwrap();
        let done = hub.end(hub.start(run, event));
        assert_eq!(done.code, Some(0), "{}", done.log);
        assert_eq!(done.output("status"), "idle");
        assert!(done.summary.contains("from a fork"), "{}", done.summary);
        assert_eq!(done.calls, Vec::<String>::new());
    }
    assert!(hub.rig.git().head("overhaul/state").is_none());
}

#[test]
fn comments_start_so_many_cycles_an_hour_and_no_more() {
    let fuse = "pull-requests:\n  labels: []\ncommands:\n  fuse:\n    cycles-per-hour: 1\n";
    let worker = format!("case \"$1\" in N-002) exit 3;; esac\n{UPPER}");
    let mut hub = Hub::new(&["a", "b"], &worker, fuse);
    let path = hub.dir.path().join("event.json");
    let event = comment("created", false, "writer", "hello").to_string();
    std::fs::write(&path, event).unwrap();
    hub.env.insert("GITHUB_EVENT_PATH", path.display().to_string());
    let first = hub.end(hub.start(661, "issue_comment"));
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
