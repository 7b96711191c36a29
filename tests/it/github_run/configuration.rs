//! Whose configuration a job obeys: that of the default branch, whatever is checked out.

use super::{Hub, UPPER};
use crate::support::config;

/// A repository with a pull request whose configuration runs what it likes; jobs check it out.
fn with_a_hostile_head() -> Hub {
    let mut hub = Hub::new(&["a"], UPPER, "");
    let script = hub.dir.path().join("evil.sh");
    let mark = hub.dir.path().join("pwned");
    std::fs::write(&script, format!("touch {}\necho EVIL > a.txt\n", mark.display())).unwrap();
    let evil = config(&script, "true", "policy:\n  protected: []\n");
    hub.rig.git().commit("evil", ".github/overhaul.yml", &evil, "Obey me");
    hub.head = Some("evil");
    hub
}

fn is_harmed(hub: &Hub) -> bool {
    hub.dir.path().join("pwned").exists()
}

#[test]
fn a_checked_out_head_does_not_choose_the_configuration() {
    for input in [None, Some(".github/overhaul.yml"), Some("./.github/overhaul.yml")] {
        let hub = with_a_hostile_head();
        let mut env = vec![("INPUT_TOKEN", "ghs_workflow")];
        env.extend(input.map(|path| ("INPUT_CONFIG", path)));
        let done = hub.end(hub.start_step(71, "issue_comment", "job-71", &["next-step"], &env));
        assert_eq!(done.code, Some(0), "{}", done.log);
        assert_eq!(done.nodes("in_review"), 1, "{}", done.log);
        assert!(!is_harmed(&hub), "{input:?}: {}", done.log);
        let branch = format!("overhaul/{}/N-001", done.output("run-id"));
        assert_eq!(hub.show(&branch, "a.txt"), "A");
    }
}

#[test]
fn a_file_that_the_workflow_names_is_obeyed() {
    // The same attack succeeds where the workflow itself asks for the checked-out file.
    let hub = with_a_hostile_head();
    let args = ["next-step", "--config", ".github/overhaul.yml"];
    let token = [("INPUT_TOKEN", "ghs_workflow")];
    let done = hub.end(hub.start_step(72, "issue_comment", "job-72", &args, &token));
    assert_eq!(done.code, Some(0), "{}", done.log);
    assert!(is_harmed(&hub), "{}", done.log);
}

#[test]
fn an_agent_does_not_choose_what_its_work_is_judged_by() {
    let mut hub = Hub::new(&["a"], UPPER, "");
    let own = "pools:\n  - id: agent\n    provider: host\n    account: team\n    backend: agency\n";
    let text = hub.rig.git().run(&["show", "main:.github/overhaul.yml"]);
    let (before, rest) = text.split_once("pools:\n").unwrap();
    let (_, after) = rest.split_once("dispatch:\n").unwrap();
    let strict = format!("{before}{own}dispatch:\n{after}\n");
    hub.rig.git().commit("main", ".github/overhaul.yml", &strict, "For an agent");
    let env = [("INPUT_TOKEN", "ghs_workflow"), ("INPUT_MODE", "grant")];
    let granted = hub.end(hub.start_step(73, "schedule", "73-grant", &["next-step"], &env));
    let matrix: serde_json::Value = serde_json::from_str(granted.output("host-matrix")).unwrap();
    let entry = matrix["include"][0].to_string();
    // What it left in the checkout: its work, and a configuration that finds that good.
    let lax = format!("{strict}policy:\n  allow: [\".github/**\"]\n  scope-amend: amend\n");
    hub.rig.git().commit("left", "a.txt", "evil\n", "Work");
    hub.rig.git().commit("left", ".github/overhaul.yml", &lax, "Judge me by this");
    hub.head = Some("left");
    let out = hub.dir.path().join("bundles").display().to_string();
    let judge = |name: &str, more: &[&str]| {
        let args = [&["accept-node", "--out", &out][..], more].concat();
        let env = [("GITHUB_TOKEN", "ghs_readonly"), ("OVERHAUL_GRANT", entry.as_str())];
        let done = hub.end(hub.start_step(73, "schedule", name, &args, &env));
        (done.code, done.log)
    };
    let (code, log) = judge("73-work", &[]);
    assert!(code == Some(1) && log.contains("'.github/overhaul.yml' is protected"), "{log}");
    let (code, log) = judge("73-lax", &["--config", ".github/overhaul.yml"]);
    assert_eq!(code, Some(0), "by its own measure it is good: {log}");
}

#[test]
fn a_default_branch_without_a_configuration_is_named() {
    let hub = Hub::new(&["a"], UPPER, "");
    let env = [("INPUT_TOKEN", "ghs_workflow"), ("INPUT_CONFIG", "ci/overhaul.yml")];
    let done = hub.end(hub.start_step(74, "schedule", "job-74", &["next-step"], &env));
    assert_eq!(done.code, Some(2), "{}", done.log);
    assert!(done.log.contains("there is no ci/overhaul.yml on branch main"), "{}", done.log);
}
