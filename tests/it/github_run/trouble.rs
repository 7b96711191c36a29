//! What can be wrong with tokens, settings and servers, each on a whole job: it ends as
//! `docs/github.md` says, nothing is lost, and once it is mended the next job goes on.

use super::{Done, Hub, UPPER};
use crate::github_forge::{KEY, tokens};
use crate::rigs::github::Fault;
use crate::rigs::github::world::Lag;

const QUIET: &str = "pull-requests:\n  labels: []\n";

fn hub(letters: &[&str]) -> Hub {
    Hub::new(letters, UPPER, QUIET)
}

/// A job that ends with this code.
fn job(hub: &Hub, run: u64, code: i32) -> Done {
    let done = hub.end(hub.start(run, "schedule"));
    assert_eq!(done.code, Some(code), "{}", done.log);
    done
}

fn revoke(hub: &Hub, area: &str) {
    let mut world = hub.rig.world();
    let token = world.tokens.get_mut("ghs_workflow").unwrap();
    token.grants.retain(|grant| !grant.starts_with(area));
}

fn grant(hub: &Hub, right: &'static str) {
    hub.rig.world().tokens.get_mut("ghs_workflow").unwrap().grants.push(right);
}

/// How often a worker was started, by the ledger.
fn attempts(hub: &Hub) -> usize {
    let grep = ["grep", "-ho", "\"kind\":\"attempt_started\"", "overhaul/state"];
    hub.rig.git().try_run(&grep, "").map_or(0, |list| list.lines().count())
}

#[test]
fn a_missing_permission_is_named_before_anything_is_paid() {
    for (area, line) in [
        ("contents", "contents: write"),
        ("pull-requests", "pull-requests: write"),
        ("issues", "issues: write"),
    ] {
        let hub = hub(&["a"]);
        revoke(&hub, area);
        let right: &'static str = match area {
            "contents" => "contents: read",
            _ => "metadata: read",
        };
        grant(&hub, right);
        let done = job(&hub, 901, 3);
        assert!(done.log.contains(line), "{area}: {}", done.log);
        assert_eq!((attempts(&hub), hub.pulls().len(), hub.issues().len()), (0, 0, 0), "{area}");
        grant(&hub, line);
        let mended = job(&hub, 902, 0);
        assert_eq!(mended.nodes("in_review"), 1, "{area}: {}", mended.log);
    }
}

#[test]
fn doctor_names_a_missing_permission_and_leaves_nothing_behind() {
    let doctor = |hub: &Hub, run: u64| {
        let token = [("INPUT_TOKEN", "ghs_workflow")];
        hub.end(hub.start_step(run, "schedule", &format!("doctor-{run}"), &["doctor"], &token))
    };
    for (area, line) in [
        ("contents", "contents: write"),
        ("pull-requests", "pull-requests: write"),
        ("issues", "issues: write"),
    ] {
        let hub = hub(&["a"]);
        let refs = hub.rig.git().run(&["for-each-ref"]);
        let good = doctor(&hub, 903);
        assert_eq!(good.code, Some(0), "{}", good.log);
        assert!(good.log.contains("rights push") && !good.log.contains("FAILED"), "{}", good.log);
        revoke(&hub, area);
        grant(&hub, if area == "contents" { "contents: read" } else { "metadata: read" });
        let done = doctor(&hub, 904);
        assert_eq!(done.code, Some(1), "{area}: {}", done.log);
        let failed: Vec<&str> = done.log.lines().filter(|l| l.starts_with("FAILED")).collect();
        assert!(failed.len() == 1 && failed[0].contains("rights"), "{area}: {}", done.log);
        assert!(done.log.contains(line), "{area}: {}", done.log);
        assert_eq!((hub.pulls().len(), hub.issues().len()), (0, 0), "{area}");
        assert_eq!(hub.rig.git().run(&["for-each-ref"]), refs, "{area}");
    }
}

#[test]
fn a_read_only_token_is_told_so() {
    let mut hub = hub(&["a"]);
    hub.token = "ghs_readonly";
    let done = job(&hub, 911, 3);
    assert!(done.log.contains("pull-requests: write"), "{}", done.log);
    assert_eq!(attempts(&hub), 0);
    assert!(hub.rig.git().head("overhaul/state").is_none());
}

#[test]
fn pull_requests_that_actions_may_not_open_wait_for_the_setting() {
    let hub = hub(&["a"]);
    hub.rig.world().actions_may_open = false;
    let done = job(&hub, 921, 0);
    assert!(done.log.contains("Allow GitHub Actions to create"), "{}", done.log);
    assert!(done.log.contains("/compare/main...overhaul/"), "{}", done.log);
    assert_eq!((done.nodes("accepted"), hub.pulls().len()), (1, 0), "{}", done.log);
    let branch = format!("overhaul/{}/N-001", done.output("run-id"));
    assert_eq!(hub.show(&branch, "a.txt"), "A");
    hub.rig.world().actions_may_open = true;
    let next = job(&hub, 922, 0);
    assert_eq!(next.nodes("in_review"), 1, "{}", next.log);
    assert_eq!((attempts(&hub), hub.pulls().len()), (1, 1));
}

#[test]
fn app_tokens_that_end_in_mid_cycle_are_minted_again_for_git_too() {
    let mut hub = hub(&["a", "b"]);
    let _credentials = tokens::with_app(&hub.rig);
    hub.rig.world().app.as_mut().unwrap().uses = Some(3);
    hub.token = "ghs_readonly";
    hub.env.insert("INPUT_APP-ID", "4711".to_owned());
    hub.env.insert("INPUT_APP-PRIVATE-KEY", KEY.to_owned());
    let done = job(&hub, 931, 0);
    assert_eq!(done.nodes("in_review"), 2, "{}", done.log);
    let minted = hub.rig.world().app.as_ref().unwrap().minted;
    assert!(minted > 3, "{minted}");
    // What is told to the runner as a secret to hide is no log: it never shows it.
    let shown = done.log.lines().filter(|line| !line.starts_with("::add-mask::"));
    let shown = shown.collect::<Vec<_>>().join("\n");
    assert!(!shown.contains("ghs_app") && !shown.contains("PRIVATE KEY"), "{shown}");
    let world = hub.rig.world();
    assert!(world.issues.values().all(|issue| issue.author == "overhaul-app[bot]"));
}

#[test]
fn a_secondary_limit_between_pull_requests_is_waited_for() {
    let hub = hub(&["a", "b", "c"]);
    let told = r#"{"message":"You have exceeded a secondary rate limit."}"#;
    // After the question about rights and the first pull request.
    let limit = Fault::status("POST", "pulls", 403).body(told).header("retry-after", "1").skip(2);
    hub.rig.fail(limit);
    let done = job(&hub, 941, 0);
    assert_eq!((done.nodes("in_review"), hub.pulls().len()), (3, 3), "{}", done.log);
    assert_eq!(hub.rig.faults_left(), 0);
}

/// For every call of a job that `prepared` is ready for: a server error at that one, before or after
/// it took effect, and then `after`.
fn at_every_call(prepared: impl Fn() -> Hub + Sync, after: impl Fn(&mut Hub, &str) + Sync) {
    let calls = u32::try_from(job(&prepared(), 951, 0).calls.len()).unwrap();
    std::thread::scope(|scope| {
        for call in 0..calls {
            let (prepared, after) = (&prepared, &after);
            scope.spawn(move || {
                let mut hub = prepared();
                let fault = Fault::status("", "", 502).skip(call);
                hub.rig.fail(if call % 2 == 0 { fault.after_effect() } else { fault });
                let done = hub.end(hub.start(951, "schedule"));
                assert_eq!(hub.rig.faults_left(), 0, "call {call}: {}", done.log);
                after(&mut hub, &format!("call {call} of {calls}"));
            });
        }
    });
}

#[test]
fn trouble_at_any_call_of_a_job_loses_and_repeats_nothing() {
    at_every_call(
        || hub(&["a"]),
        |hub, call| {
            let done = job(hub, 952, 0);
            assert_eq!(done.nodes("in_review"), 1, "{call}: {}", done.log);
            let made = (attempts(hub), hub.pulls().len(), hub.issues().len());
            assert_eq!(made, (1, 1, 1), "{call}");
        },
    );
}

#[test]
fn trouble_at_any_call_of_a_job_among_people_loses_and_repeats_nothing() {
    let among_people = || {
        let hub = hub(&["a", "b"]);
        job(&hub, 945, 0);
        let (first, second) = (hub.pull_of("N-001"), hub.pull_of("N-002"));
        let dashboard = hub.issues()[0];
        let mut world = hub.rig.world();
        world.merge(first).unwrap();
        world.review("writer", second, "CHANGES_REQUESTED", "Once more.");
        world.add_comment("writer", dashboard, "/overhaul status");
        drop(world);
        hub
    };
    at_every_call(among_people, |hub, call| {
        // An answer that is owed is given when whoever began it is surely dead.
        let later = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(10);
        hub.env.insert("OVERHAUL_NOW", later.to_string());
        let done = job(hub, 952, 0);
        assert_eq!((done.nodes("landed"), done.nodes("in_review")), (1, 1), "{call}: {}", done.log);
        let made = (attempts(hub), hub.pulls().len(), hub.issues().len(), hub.replies().len());
        assert_eq!(made, (3, 2, 1, 1), "{call}: {}", done.log);
        let told = |text: &str| {
            let world = hub.rig.world();
            world.comments.values().filter(|comment| comment.body.contains(text)).count()
        };
        assert_eq!(told("asked for changes"), 1, "{call}: {}", done.log);
    });
}

#[test]
fn new_objects_that_show_late_are_neither_lost_nor_made_twice() {
    let hub = Hub::new(&["a", "b"], UPPER, "");
    hub.rig.world().lag = Lag { lists: 1, follow_ups: 2 };
    let done = job(&hub, 961, 0);
    assert_eq!((done.nodes("in_review"), hub.pulls().len()), (2, 2), "{}", done.log);
    job(&hub, 962, 0);
    assert_eq!((hub.pulls().len(), hub.issues().len()), (2, 1));
    let world = hub.rig.world();
    assert!(world.issues.values().all(|issue| issue.labels == ["overhaul"]));
}

#[test]
fn a_state_branch_that_is_deleted_forgets_the_run_and_no_work_of_people() {
    let hub = hub(&["a"]);
    let first = job(&hub, 971, 0);
    let branch = format!("overhaul/{}/N-001", first.output("run-id"));
    let theirs = hub.rig.git().commit(&branch, "notes.txt", "mine\n", "A person's commit");
    hub.rig.git().run(&["update-ref", "-d", "refs/heads/overhaul/state"]);
    let again = hub.end(hub.start(972, "schedule"));
    assert_eq!(hub.rig.git().head(&branch), Some(theirs), "{}", again.log);
    assert_eq!(hub.pulls().len(), 1, "{}", again.log);
    assert_eq!(hub.issues().len(), 1, "the dashboard is found again: {}", again.log);
}

#[test]
fn a_branch_of_our_name_that_is_not_ours_is_left_alone() {
    let hub = hub(&["a"]);
    let theirs = hub.rig.git().commit("overhaul/state", "thesis.txt", "x\n", "Somebody's");
    let done = job(&hub, 981, 1);
    assert!(done.log.contains("it was not made by overhaul"), "{}", done.log);
    assert_eq!(hub.rig.git().head("overhaul/state"), Some(theirs));
    assert_eq!((hub.pulls().len(), hub.issues().len()), (0, 0));
}

#[test]
fn a_locked_dashboard_takes_orders_that_cannot_be_answered() {
    let hub = hub(&["a"]);
    job(&hub, 991, 0);
    let issue = hub.issues()[0];
    hub.rig.world().add_comment("writer", issue, "/overhaul pause");
    hub.rig.world().issue(issue).locked = true;
    let done = job(&hub, 992, 0);
    assert_eq!(done.output("status"), "paused", "{}", done.log);
    assert!(done.log.contains("locked"), "{}", done.log);
    let idle = job(&hub, 993, 0);
    assert!(idle.calls.iter().all(|call| call.starts_with("GET")), "{:#?}", idle.calls);
}

#[test]
fn without_issues_there_is_no_dashboard_and_work_goes_on() {
    let hub = hub(&["a"]);
    hub.rig.world().has_issues = false;
    let done = job(&hub, 1_001, 0);
    assert_eq!(done.nodes("in_review"), 1, "{}", done.log);
    assert!(done.log.to_lowercase().contains("disabled"), "{}", done.log);
    let pull = hub.pull_of("N-001");
    hub.rig.world().merge(pull).unwrap();
    assert_eq!(job(&hub, 1_002, 0).output("status"), "complete");
}

#[test]
fn long_texts_are_cut_to_what_github_takes() {
    let hub = hub(&["a"]);
    let long = "a long and `winding` <details> of @everyone\n".repeat(400);
    let list: Vec<(String, String)> =
        (0..6).map(|n| (format!("F{n}"), format!("{n} {long}"))).collect();
    let list: Vec<(&str, &str, &str)> =
        list.iter().map(|(id, what)| (id.as_str(), "a.txt", what.as_str())).collect();
    hub.rig.git().commit("main", "findings.json", &crate::support::findings(&list), "Long");
    let done = job(&hub, 1_011, 0);
    assert_eq!(done.nodes("in_review"), 1, "{}", done.log);
    let pull = hub.pull_of("N-001");
    let body = hub.rig.world().issue(pull).body.clone();
    assert!(body.chars().count() <= 65_536 && body.contains("<!-- overhaul:pull-request"));
    assert!(done.summary.len() <= 900 * 1024 && done.summary.contains("N-001"));
}

#[test]
fn a_rule_that_protects_our_branches_keeps_the_work_for_later() {
    use std::os::unix::fs::PermissionsExt as _;
    let hub = hub(&["a"]);
    let hook = hub.rig.git().path.join("hooks/update");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    let rule = "#!/bin/sh\ncase \"$1\" in refs/heads/overhaul/r-*)\n  \
                echo 'error: GH006: Protected branch update failed' >&2; exit 1;; esac\n";
    std::fs::write(&hook, rule).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    let done = job(&hub, 1_021, 0);
    assert_eq!((done.nodes("accepted"), hub.pulls().len()), (1, 0), "{}", done.log);
    assert!(done.log.contains("GH006") || done.log.contains("hook declined"), "{}", done.log);
    std::fs::remove_file(&hook).unwrap();
    let next = job(&hub, 1_022, 0);
    assert_eq!(next.nodes("in_review"), 1, "{}", next.log);
    assert_eq!((attempts(&hub), hub.pulls().len()), (1, 1), "nothing was done twice");
}
