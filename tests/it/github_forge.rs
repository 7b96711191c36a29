//! The forge on GitHub, against a stateful GitHub on loopback.

use std::time::Duration;

use jiff::Timestamp;
use overhaul::forge::github::{Calls, Credentials, GitHub};
use overhaul::forge::{
    Alive, Forge as _, ForgeError, NewPullRequest, Permission, PullRequestPatch, State,
};

use crate::rigs::github::world::{Lag, Run};
use crate::rigs::github::{Fault, Rig, RigOptions};

mod limits;
mod repository;
pub(crate) mod tokens;

const BRANCH: &str = "overhaul/r1/n1";
const MARKER: &str = "<!-- overhaul:run=r1 node=n1 -->";
pub(crate) const KEY: &str = include_str!("../data/github/app-key-pkcs1.pem");

/// A rig with a pushed branch, and what to open from it.
fn pushed() -> (Rig, NewPullRequest) {
    let rig = Rig::start();
    let head_commit = rig.git().commit(BRANCH, "src/a.rs", "fixed\n", "Fix a");
    let new = NewPullRequest {
        title: "Fix a".to_owned(),
        body: format!("What and why.\n\n{MARKER}\n"),
        marker: MARKER.to_owned(),
        head: BRANCH.to_owned(),
        head_commit,
        base: "main".to_owned(),
        draft: false,
        labels: vec!["overhaul".to_owned()],
        reviewers: vec!["writer".to_owned()],
    };
    (rig, new)
}

fn open_pulls(rig: &Rig) -> usize {
    rig.world().issues.values().filter(|issue| issue.open && issue.pull.is_some()).count()
}

#[tokio::test]
async fn a_pull_request_is_opened_once_and_then_brought_up_to_date() {
    let (rig, mut new) = pushed();
    let github = rig.client();
    let opened = github.open_pull_request(new.clone()).await.unwrap();
    assert_eq!(
        (opened.number, opened.state, opened.merge_commit.as_deref()),
        (1, State::Open, None)
    );
    assert_eq!(opened.head_commit, new.head_commit);
    {
        let world = rig.world();
        assert_eq!(world.issues[&1].labels, ["overhaul"]);
        assert_eq!(world.issues[&1].pull.as_ref().unwrap().reviewers, ["writer"]);
    }
    assert_eq!(github.calls(), Calls { reads: 1, writes: 3 });

    // The same again: found, nothing to write.
    assert_eq!(github.open_pull_request(new.clone()).await.unwrap().number, 1);
    assert_eq!(github.calls(), Calls { reads: 2, writes: 3 });

    // Saved in a browser since, so with CRLF: still the same.
    let crlf = rig.world().issue(1).body.replace('\n', "\r\n");
    rig.world().issue(1).body = crlf;
    new.title = "Fix a and b".to_owned();
    let updated = rig.client().open_pull_request(new.clone()).await.unwrap();
    assert_eq!((updated.number, updated.title.as_str()), (1, "Fix a and b"));
    assert_eq!(open_pulls(&rig), 1);
    let last = rig.world().log.last().unwrap().body.clone().unwrap();
    assert_eq!(last, serde_json::json!({"title": "Fix a and b"}));
}

#[tokio::test]
async fn a_finished_pull_request_counts_for_its_commit_only() {
    let (rig, mut new) = pushed();
    let github = rig.client();
    github.open_pull_request(new.clone()).await.unwrap();
    rig.world().close(1);
    // Somebody said no: it is neither reopened nor opened again.
    let found = github.open_pull_request(new.clone()).await.unwrap();
    assert_eq!((found.number, found.state), (1, State::Closed));
    // New work under the same name is another matter.
    new.head_commit = rig.git().commit(BRANCH, "src/a.rs", "fixed better\n", "Fix a");
    assert_eq!(github.open_pull_request(new.clone()).await.unwrap().number, 2);
    let commit = rig.world().merge(2).unwrap();
    let merged = github.open_pull_request(new).await.unwrap();
    assert_eq!((merged.state, merged.merge_commit), (State::Merged, Some(commit)));
}

#[tokio::test]
async fn one_opened_by_hand_is_adopted_and_given_the_marker() {
    let (rig, new) = pushed();
    rig.world().add_pull("writer", BRANCH, "main", "");
    let adopted = rig.client().open_pull_request(new).await.unwrap();
    assert_eq!(adopted.number, 1);
    assert!(adopted.body.contains(MARKER));
    assert_eq!(open_pulls(&rig), 1);
}

#[tokio::test]
async fn a_fork_with_our_branch_name_is_not_ours() {
    let (rig, new) = pushed();
    {
        let mut world = rig.world();
        let number = world.add_pull("stranger", BRANCH, "main", MARKER);
        world.pull(number).fork = Some("stranger/hello".to_owned());
    }
    let github = rig.client();
    assert!(github.pull_requests("overhaul/").await.unwrap().is_empty());
    assert_eq!(github.open_pull_request(new).await.unwrap().number, 2);
    let ours = github.pull_requests("overhaul/r1/").await.unwrap();
    assert_eq!(ours.iter().map(|pull| pull.number).collect::<Vec<_>>(), [2]);
    assert!(github.pull_requests("overhaul/r2/").await.unwrap().is_empty());
}

/// Each request of each operation fails in turn, once before and once after it took effect; the
/// outcome is one object all the same.
#[tokio::test]
async fn trouble_at_any_request_duplicates_nothing() {
    for after_effect in [false, true] {
        for status in [502, 0] {
            for call in 0..10 {
                let (rig, new) = pushed();
                let mut fault = match status {
                    0 => Fault::cut("", ""),
                    status => Fault::status("", "", status),
                };
                fault.after_effect = after_effect;
                rig.fail(fault.skip(call));
                let github = rig.client();
                let pull = github.open_pull_request(new).await.unwrap();
                let issue = github.open_issue("Run r1", "text", "<!-- m -->", &[]).await.unwrap();
                let comment = github.comment(pull.number, "hi", "<!-- c -->").await.unwrap();
                github.react(comment.id, "eyes").await.unwrap();
                github.update_issue(issue.number, Some("new"), Some(State::Closed)).await.unwrap();
                let world = rig.world();
                let case = format!("{status} at {call}, after effect: {after_effect}");
                assert_eq!(rig.faults_left(), 0, "{case}");
                assert_eq!(world.issues.len(), 2, "{case}");
                assert_eq!(world.comments.len(), 1, "{case}");
                assert_eq!(world.reactions.len(), 1, "{case}");
                assert_eq!(world.issues[&2].body, "new", "{case}");
            }
        }
    }
}

#[tokio::test]
async fn an_object_that_shows_late_is_not_made_twice() {
    let (rig, new) = pushed();
    rig.world().lag = Lag { lists: 1, follow_ups: 2 };
    rig.fail(Fault::status("POST", "pulls", 502).after_effect());
    rig.fail(Fault::cut("POST", "issues").after_effect());
    rig.fail(Fault::status("POST", "comments", 504).after_effect());
    let github = rig.client();
    let pull = github.open_pull_request(new).await.unwrap();
    let labels = ["overhaul".to_owned()];
    github.open_issue("Run r1", "text", "<!-- m -->", &labels).await.unwrap();
    github.comment(pull.number, "hi", "<!-- c -->").await.unwrap();
    let world = rig.world();
    assert_eq!((world.issues.len(), world.comments.len()), (2, 1));
    // The labels came through the 422 of the first moments.
    assert!(world.issues.values().all(|issue| issue.labels == labels));
}

#[tokio::test]
async fn a_server_that_stays_down_is_reported_after_a_bounded_number_of_tries() {
    let (rig, new) = pushed();
    rig.fail(Fault::status("", "", 503).times(1000));
    let github = rig.client();
    let error = github.open_pull_request(new).await.unwrap_err();
    assert!(matches!(error, ForgeError::Unavailable(_)), "{error}");
    assert!(matches!(github.find_issue("<!-- m -->").await, Err(ForgeError::Unavailable(_))));
    assert_eq!(github.calls().writes, 0);
    assert!(github.calls().reads <= 8, "{:?}", github.calls());
}

#[tokio::test]
async fn a_branch_that_is_not_seen_yet_and_labels_that_are_refused_fail_nothing() {
    let (rig, new) = pushed();
    let unseen = r#"{"message":"Validation Failed","errors":[{"resource":"PullRequest","field":"head","code":"invalid"}]}"#;
    rig.fail(Fault::status("POST", "pulls", 422).body(unseen).times(2));
    rig.fail(Fault::status("POST", "labels", 403).times(9));
    rig.fail(Fault::status("POST", "requested_reviewers", 422).times(9));
    let pull = rig.client().open_pull_request(new).await.unwrap();
    assert_eq!((pull.number, open_pulls(&rig)), (1, 1));
}

#[tokio::test]
async fn a_creation_that_cannot_work_keeps_the_branch_and_names_the_link() {
    let (rig, new) = pushed();
    let github = rig.client();
    let link = format!("{}/octo/hello/compare/main...{BRANCH}?expand=1", rig.server_url());
    let mut nothing_new = new.clone();
    nothing_new.head = "same".to_owned();
    rig.git().run(&["branch", "same", "main"]);
    let error = github.open_pull_request(nothing_new).await.unwrap_err();
    assert!(error.to_string().contains("No commits between main and same"), "{error}");

    rig.world().actions_may_open = false;
    let Err(ForgeError::Forbidden { message, remedy, .. }) =
        github.open_pull_request(new.clone()).await
    else {
        panic!("not refused")
    };
    assert!(message.contains("not permitted to create or approve"), "{message}");
    assert!(remedy.contains("\"Allow GitHub Actions to create and approve pull requests\""));
    assert!(remedy.contains(&link), "{remedy}");

    // An app is not Actions, and drafts are not everywhere.
    rig.world().drafts = false;
    let draft = NewPullRequest { draft: true, ..new };
    let person = rig.client_with(Credentials::Token("ghp_writer".into()));
    assert!(!person.open_pull_request(draft).await.unwrap().draft);
}

#[tokio::test]
async fn words_that_are_new_make_nothing_unreadable() {
    let (rig, new) = pushed();
    let github = rig.client();
    github.open_pull_request(new).await.unwrap();
    rig.world().pull(1).mergeable_state = "brand_new".to_owned();
    assert_eq!(github.pull_request(1).await.unwrap().state, State::Open);
    // One broken item does not hide the others.
    let body = r#"[{"number":"x"},{"number":5,"head":{"ref":"overhaul/r1/n5","repo":{"full_name":"o/r"}},"base":{"ref":"main","repo":{"full_name":"O/R"}}}]"#;
    rig.fail(Fault::status("GET", "pulls", 200).body(body));
    assert_eq!(github.pull_requests("overhaul/").await.unwrap()[0].number, 5);
    rig.fail(Fault::status("GET", "pulls", 200).body("<html>maintenance</html>"));
    assert!(matches!(github.pull_requests("overhaul/").await, Err(ForgeError::Unavailable(_))));
}

#[tokio::test]
async fn pull_requests_change_and_their_children_survive_a_deleted_branch() {
    let (rig, new) = pushed();
    let github = rig.client();
    github.open_pull_request(new).await.unwrap();
    rig.git().run(&["branch", "overhaul/r1/n2", BRANCH]);
    rig.git().commit("overhaul/r1/n2", "src/b.rs", "fixed\n", "Fix b");
    rig.world().add_pull("github-actions[bot]", "overhaul/r1/n2", BRANCH, "child");
    rig.world().merge(1).unwrap();

    // What is open onto a branch of ours is known, whoever opened it, and moved before that goes.
    let onto = github.pull_requests_onto("overhaul/r1/").await.unwrap();
    assert_eq!(onto.iter().map(|pull| pull.number).collect::<Vec<_>>(), [2]);
    let main = PullRequestPatch { base: Some("main".to_owned()), ..Default::default() };
    github.update_pull_request(2, main).await.unwrap();
    assert!(github.pull_requests_onto("overhaul/r1/").await.unwrap().is_empty());
    rig.git().run(&["update-ref", "-d", &format!("refs/heads/{BRANCH}")]);
    let child = github.pull_request(2).await.unwrap();
    assert_eq!((child.state, child.base.as_str()), (State::Open, "main"));

    let close = PullRequestPatch { state: Some(State::Closed), ..Default::default() };
    assert_eq!(github.update_pull_request(2, close).await.unwrap().state, State::Closed);
    let merge = PullRequestPatch { state: Some(State::Merged), ..Default::default() };
    assert!(matches!(github.update_pull_request(2, merge).await, Err(ForgeError::Invalid(_))));
    assert!(matches!(github.pull_request(99).await, Err(ForgeError::NotFound(_))));
}

#[tokio::test]
async fn auto_merge_is_for_one_head_and_a_refusal_says_why() {
    let (rig, new) = pushed();
    let github = rig.client();
    let head = new.head_commit.clone();
    github.open_pull_request(new).await.unwrap();
    let Err(ForgeError::Forbidden { remedy, .. }) = github.enable_auto_merge(1, &head).await else {
        panic!("not refused")
    };
    assert!(remedy.contains("Allow auto-merge"), "{remedy}");
    rig.world().allow_auto_merge = true;
    let error = github.enable_auto_merge(1, &head).await.unwrap_err();
    assert!(error.to_string().contains("clean status"), "{error}");
    rig.world().required_checks = true;
    assert!(github.enable_auto_merge(1, &"0".repeat(40)).await.is_err());
    github.enable_auto_merge(1, &head).await.unwrap();
    assert_eq!(rig.world().pull(1).auto_merge, Some(head));
}

#[tokio::test]
async fn an_issue_is_found_by_its_marker_and_only_if_it_can_be_ours() {
    let rig = Rig::start();
    let github = rig.client();
    rig.world().add_issue("stranger", "Planted", "<!-- m -->");
    assert_eq!(github.find_issue("<!-- m -->").await.unwrap(), None);
    let opened = github.open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap();
    assert_eq!(opened.number, 2);
    let again = rig.client().open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap();
    assert_eq!(again.number, 2);
    for n in 0..120 {
        rig.world().add_issue("reader", &format!("Noise {n}"), "noise");
        rig.world().pass(Duration::from_secs(1));
    }
    let before = github.calls();
    // Ours was changed last, as every cycle does: one request.
    github.update_issue(2, Some("edited <!-- x -->\n<!-- m -->"), None).await.unwrap();
    assert_eq!(github.find_issue("<!-- m -->").await.unwrap().unwrap().number, 2);
    assert_eq!(github.calls(), Calls { reads: before.reads + 1, writes: before.writes + 1 });
    // With a person's token it is a person who made ours.
    rig.world().add_issue("writer", "Run", "<!-- p -->");
    let person = rig.client_with(Credentials::Token("ghp_writer".into()));
    assert_eq!(person.find_issue("<!-- p -->").await.unwrap().unwrap().number, 123);
}

#[tokio::test]
async fn an_unknown_look_up_is_not_absence() {
    let rig = Rig::start();
    let github = rig.client();
    rig.fail(Fault::status("GET", "issues", 500).times(100));
    let error = github.open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap_err();
    assert!(matches!(error, ForgeError::Unavailable(_)), "{error}");
    assert!(rig.world().issues.is_empty());
}

#[tokio::test]
async fn bodies_that_are_too_long_are_cut_and_stay_ours() {
    let (rig, mut new) = pushed();
    let github = rig.client();
    new.body = format!("{}\n{MARKER}\n", "ä report line\n".repeat(10_000));
    let pull = github.open_pull_request(new).await.unwrap();
    assert!(pull.body.chars().count() <= 65_536);
    assert!(pull.body.lines().any(|line| line == MARKER));
    github.comment(1, &"x".repeat(100_000), "<!-- c -->").await.unwrap();
    github.update_issue(1, Some(&"y".repeat(100_000)), None).await.unwrap();
}

#[tokio::test]
async fn locked_and_disabled_conversations_are_told_with_what_to_do() {
    let rig = Rig::start();
    let github = rig.client();
    rig.world().add_issue("reader", "Locked", "");
    rig.world().issue(1).locked = true;
    let Err(ForgeError::Forbidden { message, remedy, .. }) =
        github.comment(1, "hi", "<!-- c -->").await
    else {
        panic!("not refused")
    };
    assert!(message.contains("locked") && remedy.contains("unlock"), "{message} {remedy}");

    rig.world().has_issues = false;
    let Err(ForgeError::Forbidden { remedy, .. }) =
        github.open_issue("Run", "text", "<!-- m -->", &[]).await
    else {
        panic!("not refused")
    };
    assert!(remedy.contains("turn on Issues"), "{remedy}");

    rig.world().archived = true;
    let Err(ForgeError::Forbidden { remedy, .. }) = github.update_issue(1, Some("x"), None).await
    else {
        panic!("not refused")
    };
    assert!(remedy.contains("unarchive"), "{remedy}");
}

#[tokio::test]
async fn a_missing_permission_is_named_as_the_line_to_add() {
    let (rig, new) = pushed();
    let github = rig.client_with(Credentials::Workflow("ghs_readonly".into()));
    let remedy = |error: ForgeError| match error {
        ForgeError::Forbidden { remedy, .. } => remedy,
        other => panic!("{other}"),
    };
    let opened = remedy(github.open_pull_request(new).await.unwrap_err());
    assert!(opened.contains("`pull-requests: write`") && opened.contains("/compare/"), "{opened}");
    let issue = github.open_issue("Run", "text", "<!-- m -->", &[]).await.unwrap_err();
    assert!(remedy(issue).contains("`issues: write`"));
    let alerts = github.code_scanning_alerts("main").await.unwrap_err();
    assert!(remedy(alerts).contains("`security-events: read`"));
    let dispatch = github.dispatch_workflow("overhaul.yml", "main", &[]).await.unwrap_err();
    assert!(remedy(dispatch).contains("`actions: write`"));
    let bad = rig.client_with(Credentials::Workflow("ghs_revoked".into()));
    assert!(remedy(bad.standing().await.unwrap_err()).contains("valid token"));
}
