//! Limits, spacing, conditional requests and counts.

use super::*;

fn limited_until(error: ForgeError) -> Timestamp {
    match error {
        ForgeError::Limited { until, .. } => until,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_short_limit_in_the_middle_is_waited_out() {
    let (rig, new) = pushed();
    let told = r#"{"message":"You have exceeded a secondary rate limit."}"#;
    rig.fail(Fault::status("POST", "pulls", 403).body(told).header("retry-after", "30"));
    rig.fail(Fault::status("POST", "labels", 429));
    let start = rig.world().clock.read();
    rig.client().open_pull_request(new).await.unwrap();
    assert_eq!(open_pulls(&rig), 1);
    assert_eq!(rig.world().issues[&1].labels, ["overhaul"]);
    // 30 s as told, then the minute of a limit without an end.
    assert!(rig.world().clock.read().duration_since(start).as_secs() >= 90);
}

#[tokio::test]
async fn a_long_limit_is_told_and_no_request_is_sent_before_its_end() {
    let rig = Rig::start();
    rig.world().limits.primary = 2;
    let github = rig.client();
    let reset = rig.world().used.0 + jiff::SignedDuration::from_hours(1);
    assert!(github.find_issue("<!-- m -->").await.unwrap().is_none());
    assert!(github.find_issue("<!-- m -->").await.unwrap().is_none());
    assert_eq!(limited_until(github.find_issue("<!-- m -->").await.unwrap_err()), reset);
    let sent = github.calls();
    assert_eq!(limited_until(github.permission("writer").await.unwrap_err()), reset);
    assert_eq!(github.calls(), sent);
    rig.world().pass(Duration::from_secs(3600));
    assert!(github.find_issue("<!-- m -->").await.unwrap().is_none());
}

#[tokio::test]
async fn limits_without_an_end_grow_and_are_given_up() {
    let rig = Rig::start();
    rig.fail(Fault::status("GET", "issues", 429).times(100));
    let github = rig.client();
    let start = rig.world().clock.read();
    let until = limited_until(github.find_issue("<!-- m -->").await.unwrap_err());
    // One minute was waited; two are longer than a call may wait.
    assert_eq!(until.duration_since(start).as_secs(), 60 + 120);
    assert_eq!(github.calls().reads, 2);
}

#[tokio::test]
async fn a_burst_of_writes_keeps_below_the_limit_of_creations() {
    let rig = Rig::start();
    rig.world().limits.creations = 59;
    rig.world().add_issue("reader", "One", "");
    let github = rig.client();
    for n in 0..100 {
        github.comment(1, "hi", &format!("<!-- {n} -->")).await.unwrap();
    }
    let world = rig.world();
    let writes: Vec<_> = world.log.iter().filter(|logged| logged.method == "POST").collect();
    // Spaced by a second they are 60 a minute at most: only the artificially low limit is met.
    let gaps = writes.windows(2).map(|pair| pair[1].at.duration_since(pair[0].at));
    assert!(gaps.min().unwrap().as_secs() >= 1);
    assert_eq!(world.comments.len(), 100);
}

#[tokio::test]
async fn writes_of_many_tasks_go_one_after_the_other() {
    let rig = Rig::start();
    let github = std::sync::Arc::new(rig.client());
    let tasks = (1..=10).map(|n| {
        rig.world().add_issue("reader", &n.to_string(), "");
        let github = std::sync::Arc::clone(&github);
        tokio::spawn(async move {
            github.update_issue(n, Some("body"), None).await.unwrap();
            github.open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap();
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let world = rig.world();
    assert_eq!(world.issues.len(), 11);
    let writes: Vec<_> = world.log.iter().filter(|logged| logged.method != "GET").collect();
    assert!(writes.windows(2).all(|w| w[1].at.duration_since(w[0].at).as_secs() >= 1));
}

#[tokio::test]
async fn a_poll_that_finds_nothing_new_costs_nothing_of_the_limit() {
    let (rig, new) = pushed();
    let github = rig.client();
    github.open_pull_request(new).await.unwrap();
    let first = github.pull_requests("overhaul/").await.unwrap();
    let used = rig.requests().len();
    let again = github.pull_requests("overhaul/").await.unwrap();
    assert_eq!(first, again);
    assert_eq!(rig.world().log.last().unwrap().status, 304);
    rig.world().close(1);
    assert_eq!(github.pull_requests("overhaul/").await.unwrap()[0].state, State::Closed);
    assert_eq!(rig.requests().len(), used + 2);
    // A 304 that nobody asked for is trouble, not a crash.
    rig.fail(Fault::status("GET", "actions/runs/*", 304));
    assert_eq!(github.workflow_run_alive(1, 1).await, Alive::Unknown);
}

/// The budget of a cycle: what it looks at when nothing happens, and what a new pull request adds.
#[tokio::test]
async fn a_cycle_stays_within_its_budget() {
    let (rig, new) = pushed();
    let github = rig.client();
    github.open_issue("Run r1", "text", "<!-- m -->", &[]).await.unwrap();
    let idle = github.calls();
    github.find_issue("<!-- m -->").await.unwrap();
    github.pull_requests("overhaul/r1/").await.unwrap();
    github.comments_since(Timestamp::UNIX_EPOCH).await.unwrap();
    assert_eq!(github.calls(), Calls { reads: idle.reads + 3, writes: idle.writes });
    let before = github.calls();
    github.open_pull_request(new).await.unwrap();
    let after = github.calls();
    assert!(after.reads + after.writes - before.reads - before.writes <= 4);
}

#[tokio::test]
async fn a_moved_repository_is_followed_and_another_server_never() {
    let rig = Rig::start();
    let github = rig.client();
    let moved = format!("{}/repos/octo/hello/issues", rig.api_url());
    rig.fail(Fault::status("POST", "issues", 307).header("location", &moved));
    github.open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap();
    assert_eq!(rig.world().issues.len(), 1);
    let foreign = format!("{}.evil.test/repos/octo/hello/issues", rig.api_url());
    rig.fail(Fault::status("GET", "issues", 301).header("location", &foreign));
    assert!(github.find_issue("<!-- m -->").await.is_err());
}
