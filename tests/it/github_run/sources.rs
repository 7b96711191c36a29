//! Findings that live on GitHub: code-scanning alerts and labelled issues.

use serde_json::{Value, json};

use super::{Done, Hub, UPPER};

fn alert(number: u64, rule: &str, level: &str, path: &str) -> Value {
    json!({
        "number": number, "state": "open",
        "rule": {"id": rule, "severity": "error", "security_severity_level": level, "description": "Bad"},
        "tool": {"name": "Scanner"},
        "most_recent_instance": {
            "message": {"text": format!("{path} is bad")},
            "location": {"path": path, "start_line": 1, "end_line": 1},
        },
    })
}

/// Files a to d; alerts about a and b, an issue about c, a SARIF file about a.
fn hub(worker: &str) -> Hub {
    let mut hub = Hub::new(&["a", "b", "c", "d"], worker, "");
    let sarif = json!({"version": "2.1.0", "runs": [{
        "tool": {"driver": {"name": "Scanner"}},
        "results": [{
            "ruleId": "R1", "level": "warning", "message": {"text": "the same, said otherwise"},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": "a.txt"},
                "region": {"startLine": 1, "snippet": {"text": "a"}},
            }}],
        }],
    }]});
    let git = hub.rig.git();
    git.commit("main", "scan.sarif", &sarif.to_string(), "Scan");
    let config = git.run(&["show", "main:.github/overhaul.yml"]);
    let sources =
        "  - file: scan.sarif\n  - code-scanning: {min-severity: high}\n  - issues: {label: fix}\n";
    let config = config.replacen("  - file: findings.json\n", sources, 1);
    git.commit("main", ".github/overhaul.yml", &(config + "\n"), "Sources");
    {
        let mut world = hub.rig.world();
        world.alerts = vec![alert(1, "R1", "critical", "a.txt"), alert(2, "R2", "low", "b.txt")];
        let number = world.add_issue("reader", "Make it loud", "See `c.txt`, line 1.\n@everyone");
        world.issue(number).labels = vec!["fix".to_owned()];
        world.add_issue("reader", "Not for the bot", "See `d.txt`.");
    }
    hub.env.insert("INPUT_SARIF", "remaining.sarif".to_owned());
    hub
}

/// What the job wrote for an upload: (rule, path, outcome) each.
fn remaining(hub: &Hub, run: u64) -> Vec<(String, String, String)> {
    let path = hub.dir.path().join(format!("job-{run}/checkout/remaining.sarif"));
    let sarif: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let runs = sarif["runs"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    runs.flat_map(|run| run["results"].as_array().unwrap())
        .map(|result| {
            let place = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
            (text(&result["ruleId"]), text(place), text(&result["properties"]["outcome"]))
        })
        .collect()
}

fn plan(hub: &Hub, done: &Done) -> Value {
    let tree = format!("overhaul/state:{}/blobs", done.output("run-id"));
    let list = hub.rig.git().run(&["ls-tree", "--name-only", &tree]);
    let name = list.lines().find(|name| name.starts_with("plan-")).unwrap();
    serde_json::from_str(&hub.rig.git().run(&["show", &format!("{tree}/{name}")])).unwrap()
}

#[test]
fn alerts_and_issues_become_pull_requests_and_the_rest_is_ready_for_upload() {
    let hub = hub(UPPER);
    let first = hub.job(501);
    assert_eq!(first.nodes("in_review"), 2, "{}", first.log);
    let plan = plan(&hub, &first);
    let findings = plan["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 4, "{findings:#?}");
    // The same from file and alert: one, with the worse severity of both.
    assert_eq!(findings[0]["severity"], "critical");
    assert_eq!(findings[1]["dropped"], json!({"duplicate-of": "F-0001"}));
    assert_eq!(findings[2]["dropped"], "filtered");
    assert_eq!(findings[3]["extra"]["author-association"], "CONTRIBUTOR");
    assert_eq!(findings[3]["places"][0]["path"], "c.txt");
    let said = |rule: &str, path: &str, outcome: &str| {
        (rule.to_owned(), path.to_owned(), outcome.to_owned())
    };
    assert_eq!(
        remaining(&hub, 501),
        [
            said("R1", "a.txt", "in-review"),
            said("R2", "b.txt", "dropped"),
            said("finding", "c.txt", "in-review"),
        ]
    );

    let pulls = ["N-001", "N-002"].map(|node| hub.pull_of(node));
    hub.rig.world().merge(pulls[0]).unwrap();
    hub.rig.world().close(pulls[1]);
    let last = hub.job(502);
    assert_eq!(last.output("status"), "complete", "{}", last.log);
    let kept = format!("{}/blobs/remaining.sarif", last.output("run-id"));
    let kept: Value = serde_json::from_str(&hub.show("overhaul/state", &kept)).unwrap();
    assert_eq!(kept["properties"]["remaining"], 2);
    assert_eq!(remaining(&hub, 502).len(), 2);
    assert!(!remaining(&hub, 502).iter().any(|(_, path, _)| path == "a.txt"));
    let sources = |done: &Done| {
        let asks = |call: &&String| call.contains("alerts") || call.contains("labels=");
        done.calls.iter().filter(asks).count()
    };
    assert_eq!((sources(&first), sources(&last)), (2, 0), "asked while no run is open");
}

#[test]
fn a_missing_permission_for_alerts_is_named_before_anything_is_spent() {
    let hub = hub("exit 1\n");
    {
        let mut world = hub.rig.world();
        let token = world.tokens.get_mut("ghs_workflow").unwrap();
        token.grants.retain(|grant| !grant.starts_with("security-events"));
    }
    let done = hub.end(hub.start(511, "schedule"));
    assert_eq!(done.code, Some(3), "{}", done.log);
    assert!(done.log.contains("security-events: read"), "{}", done.log);
    assert!(hub.rig.git().head("overhaul/state").is_none());
    assert!(done.calls.iter().all(|call| call.starts_with("GET")), "{:#?}", done.calls);
}
