//! A person and `overhaul` work together through the files of a local forge.

use std::path::Path;

use jiff::Timestamp;
use overhaul::forge::{
    Forge, ForgeError, LocalForge, NewPullRequest, Permission, PullRequestPatch, State,
};

const MARKER: &str = "<!-- overhaul:node r-1 N-001 -->";

fn new(head: &str, commit: &str) -> NewPullRequest {
    NewPullRequest {
        title: "Fix: it".to_owned(),
        body: format!("What and why\n\n{MARKER}\n"),
        marker: MARKER.to_owned(),
        head: head.to_owned(),
        head_commit: commit.to_owned(),
        base: "main".to_owned(),
        draft: false,
        labels: vec!["overhaul".to_owned()],
        reviewers: vec![],
    }
}

fn edit(root: &Path, file: &str, from: &str, to: &str) {
    let path = root.join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{text}");
    std::fs::write(path, text.replace(from, to)).unwrap();
}

#[tokio::test]
async fn a_pull_request_is_opened_once_and_merged_by_a_person() {
    let folder = tempfile::tempdir().unwrap();
    let forge = LocalForge::new(folder.path());
    assert_eq!(forge.pull_requests("overhaul/").await.unwrap(), []);
    let first = forge.open_pull_request(new("overhaul/r-1/N-001", "aaa")).await.unwrap();
    assert_eq!((first.number, first.state), (1, State::Open));
    assert!(folder.path().join("README.md").is_file());

    let again = forge.open_pull_request(new("overhaul/r-1/N-001", "bbb")).await.unwrap();
    assert_eq!((again.number, again.head_commit.as_str()), (1, "bbb"));
    let other = forge.open_pull_request(new("overhaul/r-1/N-002", "ccc")).await.unwrap();
    assert_eq!(other.number, 2);
    assert_eq!(forge.pull_requests("overhaul/r-1/").await.unwrap().len(), 2);
    assert_eq!(forge.pull_requests("elsewhere/").await.unwrap(), []);

    let patch = PullRequestPatch {
        title: Some("T".to_owned()),
        body: Some("new body".to_owned()),
        base: Some("next".to_owned()),
        state: None,
    };
    let patched = forge.update_pull_request(1, patch).await.unwrap();
    assert_eq!((patched.title.as_str(), patched.base.as_str()), ("T", "next"));
    assert!(patched.body.contains(MARKER), "the marker is never lost");

    edit(folder.path(), "pulls/0001.md", "state: open", "state: merged\nmerge-commit: ddd");
    let merged = forge.pull_requests("overhaul/r-1/N-001").await.unwrap().remove(0);
    assert_eq!((merged.state, merged.merge_commit.as_deref()), (State::Merged, Some("ddd")));
    // A repeated call whose answer was lost finds the merged one; a new attempt opens another.
    let repeated = forge.open_pull_request(new("overhaul/r-1/N-001", "bbb")).await.unwrap();
    assert_eq!((repeated.number, repeated.state), (1, State::Merged));
    let next = forge.open_pull_request(new("overhaul/r-1/N-001", "eee")).await.unwrap();
    assert_eq!(next.number, 3);

    let reopen = PullRequestPatch { state: Some(State::Open), ..PullRequestPatch::default() };
    let error = forge.update_pull_request(1, reopen).await.unwrap_err();
    assert!(matches!(error, ForgeError::Invalid(_)), "{error}");
    let error = forge.update_pull_request(99, PullRequestPatch::default()).await.unwrap_err();
    assert!(matches!(error, ForgeError::NotFound(_)), "{error}");
    edit(folder.path(), "pulls/0002.md", "state: open", "state: gone");
    let error = forge.pull_requests("").await.unwrap_err().to_string();
    assert!(error.contains("pulls/0002.md") && error.contains("gone"), "{error}");
}

#[tokio::test]
async fn issues_and_comments_are_found_by_marker() {
    let folder = tempfile::tempdir().unwrap();
    let forge = LocalForge::new(folder.path());
    let marker = "<!-- overhaul:dashboard r-1 -->";
    assert_eq!(forge.find_issue(marker).await.unwrap(), None);
    let issue = forge.open_issue("Dashboard", "hello", marker, &[]).await.unwrap();
    assert_eq!(forge.open_issue("Dashboard", "again", marker, &[]).await.unwrap(), issue);
    let updated = forge.update_issue(issue.number, Some("new"), Some(State::Closed)).await.unwrap();
    assert!(updated.body.starts_with("new") && updated.state == State::Closed);
    assert_eq!(forge.find_issue(marker).await.unwrap(), Some(updated));
    forge.open_issue("Other", &format!("quoting `{marker}`"), "<!-- b -->", &[]).await.unwrap();
    assert_eq!(forge.find_issue(marker).await.unwrap().unwrap().number, issue.number);

    let pause = "<!-- overhaul:pause 1 -->";
    let comment = forge.comment(issue.number, "paused", pause).await.unwrap();
    assert!(comment.by_bot);
    assert_eq!(forge.comment(issue.number, "paused, again", pause).await.unwrap(), comment);
    let error = forge.comment(77, "x", "<!-- x -->").await.unwrap_err();
    assert!(matches!(error, ForgeError::NotFound(_)), "{error}");
    let error = forge.comment(1, &"x".repeat(70_000), "<!-- y -->").await.unwrap_err();
    assert!(matches!(error, ForgeError::Invalid(_)), "{error}");
}

#[tokio::test]
async fn a_person_comments_by_adding_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let forge = LocalForge::new(folder.path());
    let issue = forge.open_issue("Dashboard", "hello", "<!-- m -->", &[]).await.unwrap();
    std::fs::create_dir_all(folder.path().join("comments")).unwrap();
    std::fs::write(folder.path().join("comments/please.md"), "/overhaul resume\n").unwrap();
    std::fs::write(folder.path().join("comments/.please.md.swp"), "\0").unwrap();
    let comments = forge.comments_since(Timestamp::UNIX_EPOCH).await.unwrap();
    let [comment] = &comments[..] else { panic!("{comments:?}") };
    assert_eq!((comment.on, comment.body.as_str()), (issue.number, "/overhaul resume\n"));
    assert!(!comment.by_bot);

    forge.react(comment.id, "eyes").await.unwrap();
    forge.react(comment.id, "eyes").await.unwrap();
    let text = std::fs::read_to_string(folder.path().join("comments/please.md")).unwrap();
    assert_eq!(text.matches("eyes").count(), 1);
    // Reacting is no edit: nothing looks new.
    assert_eq!(forge.comments_since(Timestamp::UNIX_EPOCH).await.unwrap(), comments);
    let later = comment.updated_at + jiff::SignedDuration::from_nanos(1);
    assert_eq!(forge.comments_since(later).await.unwrap(), []);
    assert!(forge.react(12345, "eyes").await.is_err());

    assert_eq!(forge.permission("anyone").await.unwrap(), Permission::Admin);
    std::fs::write(folder.path().join("people.yml"), "Alice: write\n").unwrap();
    assert_eq!(forge.permission("alice").await.unwrap(), Permission::Write);
    assert_eq!(forge.permission("mallory").await.unwrap(), Permission::None);
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_writers_get_different_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..16 {
        let forge = LocalForge::new(folder.path());
        tasks.spawn(async move {
            let marker = format!("<!-- overhaul:{} -->", i % 8);
            forge.open_issue("T", "b", &marker, &[]).await.unwrap().number
        });
    }
    let mut numbers = tasks.join_all().await;
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (1..=8).collect::<Vec<_>>());
}
