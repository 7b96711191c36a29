//! Cycles that follow each other: at once where that is asked for, and not before a pause ends.

use jiff::{SignedDuration, Timestamp};
use overhaul::backends::scripted::{Reply, Scripted};

use super::{Hub, UPPER};
use crate::rigs::github::artifacts::runtime_token;

#[test]
fn a_cycle_out_of_time_starts_the_next_one() {
    let more = "pull-requests:\n  labels: []\n";
    let mut hub = Hub::new(&["a", "b", "c"], "sleep 600\n", more);
    let git = hub.rig.git();
    let config = git.run(&["show", "main:.github/overhaul.yml"]) + "\n";
    let config = config
        .replace("dispatch:\n", "dispatch:\n  concurrent: 1\n  continuation: workflow-dispatch\n");
    git.commit("main", ".github/overhaul.yml", &config, "Go on");
    hub.env.insert("INPUT_TIME-BUDGET", "8s".to_owned());
    let here = "octo/hello/.github/workflows/overhaul.yml@refs/heads/main";
    hub.env.insert("GITHUB_WORKFLOW_REF", here.to_owned());
    let first = hub.job(801);
    assert_eq!(first.output("status"), "paused", "{}", first.log);
    assert!(first.log.contains("the next cycle was started"), "{}", first.log);
    let dispatches = hub.rig.world().dispatches.clone();
    assert_eq!(dispatches.len(), 1, "{dispatches:?}");
    assert_eq!(
        (dispatches[0].0.as_str(), &dispatches[0].1["ref"]),
        ("overhaul.yml", &"main".into())
    );

    // Without the right to: the line to add is named, and nothing fails.
    hub.rig
        .world()
        .tokens
        .get_mut("ghs_workflow")
        .unwrap()
        .grants
        .retain(|g| *g != "actions: write");
    let second = hub.job(802);
    assert_eq!(second.output("status"), "paused", "{}", second.log);
    assert!(second.log.contains("actions: write"), "{}", second.log);
    assert_eq!(hub.rig.world().dispatches.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_wake_up_before_the_pause_ends_asks_next_to_nothing() {
    let endpoint = Scripted::start(|_, _| {
        Reply::error(429, "Too Many Requests", "too_many_requests")
            .with_header("retry-after", "7200")
    })
    .await
    .unwrap();
    let mut hub = Hub::new(&["a"], "exit 1\n", "");
    let pool = format!(
        "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n  - id: one\n    \
         provider: openai-compatible\n    model: m\n    base-url: {}\n    key-env: KEY_ONE\nverify:\n  \
         commands:\n    - name: check\n      argv: [\"true\"]\npull-requests:\n  labels: []\n",
        endpoint.base_url().unwrap()
    );
    hub.rig.git().commit("main", ".github/overhaul.yml", &pool, "A pool of its own");
    hub.env.insert("KEY_ONE", "scripted-key-0001".to_owned());
    hub.env.insert("INPUT_TIME-BUDGET", "30s".to_owned());
    let first = hub.job(811);
    assert_eq!(first.output("status"), "paused", "{}", first.log);
    let until: Timestamp = first.output("not-before").parse().unwrap();
    let now = Timestamp::now();
    assert!(until > now + SignedDuration::from_mins(100), "{until}");
    let asked = endpoint.requests().len();

    let early = hub.job(812);
    assert_eq!(early.output("status"), "paused", "{}", early.log);
    assert_eq!(early.output("not-before"), first.output("not-before"));
    assert!(early.calls.len() < 3, "{:#?}", early.calls);
    assert!(early.calls.iter().all(|call| call.starts_with("GET")), "{:#?}", early.calls);
    assert_eq!(endpoint.requests().len(), asked, "nor is a pool asked");
}

#[test]
fn a_run_lives_in_artifacts_where_that_is_asked_for() {
    let more = "pull-requests:\n  labels: []\nstate: artifact\n";
    let mut hub = Hub::new(&["a", "b"], UPPER, more);
    let token = |run: u64| runtime_token(&format!("run-{run}"));
    let refused = hub.end(hub.start(820, "schedule"));
    assert_eq!(refused.code, Some(2), "{}", refused.log);
    assert!(refused.log.contains("ACTIONS_RESULTS_URL"), "{}", refused.log);
    hub.env.insert("ACTIONS_RESULTS_URL", format!("{}/", hub.rig.server_url()));
    hub.env.insert("ACTIONS_RUNTIME_TOKEN", token(821));
    let first = hub.job(821);
    assert_eq!(first.nodes("in_review"), 2, "{}", first.log);
    assert!(hub.rig.git().head("overhaul/state").is_none());
    assert!(!hub.rig.world().artifacts.is_empty());
    let pull = hub.pull_of("N-001");
    hub.rig.world().merge(pull).unwrap();
    let pull = hub.pull_of("N-002");
    hub.rig.world().close(pull);
    hub.env.insert("ACTIONS_RUNTIME_TOKEN", token(822));
    let last = hub.job(822);
    assert_eq!(last.output("status"), "complete", "{}", last.log);
    assert_eq!((last.nodes("landed"), last.nodes("rejected")), (1, 1));
    hub.env.insert("ACTIONS_RUNTIME_TOKEN", token(823));
    assert_eq!(hub.job(823).output("status"), "idle");
}
