//! Comments, people, runs, alerts, and the contract itself.

use super::*;
use crate::rigs::github::git::BareGit;

#[tokio::test]
async fn comments_are_an_inbox_oldest_first() {
    let rig = Rig::start();
    let github = rig.client();
    let (first, second);
    {
        let mut world = rig.world();
        world.add_issue("reader", "One", "");
        world.add_comment("reader", 1, "old");
        world.pass(Duration::from_secs(60));
        first = world.add_comment("writer", 1, "/overhaul status");
        world.pass(Duration::from_secs(60));
        second = world.add_comment("github-actions[bot]", 1, "<!-- ours -->");
        world.pass(Duration::from_secs(60));
        world.edit_comment(first, "/overhaul pause");
    }
    let since: Timestamp = "2026-11-30T10:01:00.9Z".parse().unwrap();
    let comments = github.comments_since(since).await.unwrap();
    let seen: Vec<_> = comments.iter().map(|c| (c.id, c.on, c.by_bot, c.body.as_str())).collect();
    assert_eq!(seen, [(second, 1, true, "<!-- ours -->"), (first, 1, false, "/overhaul pause")]);
    for _ in 0..130 {
        rig.world().add_comment("reader", 1, "chat");
    }
    assert_eq!(github.comments_since(since).await.unwrap().len(), 132);

    let comment = github.comment(1, "hello", "<!-- c -->").await.unwrap();
    assert_eq!(github.comment(1, "hello", "<!-- c -->").await.unwrap().id, comment.id);
    github.react(first, "rocket").await.unwrap();
    github.react(first, "rocket").await.unwrap();
    assert_eq!(rig.world().reactions.len(), 1);
    assert!(matches!(github.react(first, "fire").await, Err(ForgeError::Invalid(_))));
}

#[tokio::test]
async fn a_permission_is_asked_for_and_never_guessed() {
    let rig = Rig::start();
    let github = rig.client();
    for (login, expected) in [
        ("octo", Permission::Admin),
        ("maintainer", Permission::Maintain),
        ("writer", Permission::Write),
        ("reader", Permission::Read),
        ("stranger", Permission::None),
        ("nobody-at-all", Permission::None),
        ("", Permission::None),
        ("../../user", Permission::None),
    ] {
        assert_eq!(github.permission(login).await.unwrap(), expected, "{login}");
    }
    // A custom role: the base it is built on counts.
    rig.world().users.get_mut("reader").unwrap().role = "release-captain";
    let custom = r#"{"permission":"write","role_name":"release-captain","user":null}"#;
    rig.fail(Fault::status("GET", "permission", 200).body(custom));
    assert_eq!(github.permission("reader").await.unwrap(), Permission::Write);
    rig.fail(Fault::status("GET", "permission", 500).times(9));
    assert!(github.permission("writer").await.is_err());
}

#[tokio::test]
async fn a_run_is_dead_only_when_seen_to_be() {
    let rig = Rig::start();
    let github = rig.client();
    for (id, status, attempt) in
        [(1, "in_progress", 1), (2, "completed", 1), (3, "queued", 2), (4, "hibernating", 1)]
    {
        rig.world().runs.insert(id, Run { status, attempt });
    }
    for (id, attempt, expected) in [
        (1, 1, Alive::Yes),
        (2, 1, Alive::No),
        (3, 1, Alive::No),
        (3, 2, Alive::Yes),
        (1, 2, Alive::Unknown),
        (4, 1, Alive::Unknown),
        (99, 1, Alive::Unknown),
    ] {
        assert_eq!(github.workflow_run_alive(id, attempt).await, expected, "{id}.{attempt}");
    }
    rig.fail(Fault::status("GET", "actions/runs/*", 500).times(9));
    assert_eq!(github.workflow_run_alive(2, 1).await, Alive::Unknown);
    rig.forgive();
}

#[tokio::test]
async fn alerts_come_as_sarif_and_issues_by_label() {
    let rig = Rig::start();
    let github = rig.client();
    let none = github.code_scanning_alerts("main").await.unwrap();
    assert_eq!(none["runs"], serde_json::json!([]));
    let alert = |number: u64, rule: &str, tool: &str| {
        serde_json::json!({
            "number": number, "state": "open",
            "rule": {"id": rule, "severity": "error", "security_severity_level": "high", "description": "Bad"},
            "tool": {"name": tool},
            "most_recent_instance": {
                "message": {"text": "here"},
                "location": {"path": "src/a.rs", "start_line": 3, "end_line": 4},
            },
        })
    };
    rig.world().alerts =
        vec![alert(1, "a", "CodeQL"), alert(2, "a", "CodeQL"), alert(3, "b", "zizmor")];
    let sarif = github.code_scanning_alerts("main").await.unwrap();
    assert_eq!(sarif["runs"].as_array().unwrap().len(), 2);
    let run = &sarif["runs"][0];
    assert_eq!(run["tool"]["driver"]["rules"].as_array().unwrap().len(), 1);
    assert_eq!(run["tool"]["driver"]["rules"][0]["properties"]["security-severity"], "7.0");
    let result = &run["results"][1];
    assert_eq!(result["ruleId"], "a");
    assert_eq!(result["level"], "error");
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], "src/a.rs");
    assert_eq!(place["region"]["endLine"], 4);
    assert_eq!(result["partialFingerprints"]["githubAlertNumber"], "2");

    for (title, labels) in [("Both", vec!["fix", "easy"]), ("One", vec!["fix"])] {
        let number = rig.world().add_issue("reader", title, "");
        rig.world().issue(number).labels = labels.into_iter().map(str::to_owned).collect();
    }
    let labelled = github.labelled_issues("easy").await.unwrap();
    assert_eq!(labelled.iter().map(|i| i.title.as_str()).collect::<Vec<_>>(), ["Both"]);
    assert_eq!(
        (labelled[0].author.as_str(), labelled[0].association.as_str()),
        ("reader", "CONTRIBUTOR")
    );

    let inputs = [("run-id".to_owned(), "r1".to_owned())];
    github.dispatch_workflow("overhaul.yml", "main", &inputs).await.unwrap();
    assert_eq!(rig.world().dispatches[0].1["inputs"]["run-id"], "r1");
    // Unknown whether it started: not started again.
    rig.fail(Fault::status("POST", "dispatches", 502).after_effect());
    assert!(github.dispatch_workflow("overhaul.yml", "main", &inputs).await.is_err());
    assert_eq!(rig.world().dispatches.len(), 2);
}

#[tokio::test]
async fn an_enterprise_server_is_reached_below_its_prefix() {
    let rig = Rig::start_with(RigOptions { prefix: "/api/v3", ..Default::default() });
    rig.git().commit("big-branch/ü", "a", "b", "c");
    let github = rig.client();
    let standing = github.standing().await.unwrap();
    assert_eq!(standing.default_branch, "main");
    assert!(standing.has_issues && standing.public && !standing.archived);
    for n in 0..101 {
        rig.world().add_issue("reader", &n.to_string(), "");
    }
    // The second page is below the prefix, too.
    assert_eq!(github.find_issue("<!-- m -->").await.unwrap(), None);
    let base = github.compare_link("main", "big-branch/ü");
    assert!(base.ends_with("/octo/hello/compare/main...big-branch/%C3%BC?expand=1"), "{base}");
}

#[tokio::test]
async fn the_contract_catches_what_github_would_refuse() {
    let rig = Rig::start();
    let client = reqwest_client();
    let url = format!("{}/repos/octo/hello/issues", rig.api_url());
    for (path, body) in [
        ("", r#"{"titel":"x"}"#),
        ("", r#"{"title":["x"],"labels":7}"#),
        ("?page_size=3", r#"{"title":"x"}"#),
        ("/1/nothing", r#"{}"#),
    ] {
        let request = client.post(format!("{url}{path}")).bearer_auth("ghs_workflow");
        request.body(body).send().await.unwrap();
        assert!(!rig.forgive().is_empty(), "{path} {body}");
    }
    let request = client.post(url).bearer_auth("ghs_workflow").body(r#"{"title":"x"}"#);
    assert_eq!(request.send().await.unwrap().status(), 201);
}

fn reqwest_client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

/// What the state branch and node branches travel by: real git, with tokens as GitHub checks them.
#[tokio::test]
async fn git_is_served_for_real_and_pull_requests_follow_their_branches() {
    let (rig, new) = pushed();
    let github = rig.client();
    github.open_pull_request(new).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let here = BareGit { path: folder.path().to_owned() };
    let url = |token: &str| rig.git_url().replace("://", &format!("://x:{token}@"));
    here.run(&["clone", "--quiet", &url("ghs_workflow"), "."]);
    here.run(&["checkout", "--quiet", BRANCH]);
    here.run(&["commit", "--quiet", "--allow-empty", "-m", "More"]);
    let push = |token: &str| here.try_run(&["push", "--quiet", &url(token), "HEAD"], "");
    assert!(push("ghs_readonly").unwrap_err().contains("403"));
    assert!(push("ghs_nobody").is_err());
    push("ghs_workflow").unwrap();
    let head = here.run(&["rev-parse", "HEAD"]);
    assert_eq!(github.pull_request(1).await.unwrap().head_commit, head);
    // Merged by pushing it to the base, as people do.
    here.run(&["push", "--quiet", &url("ghs_workflow"), "HEAD:main"]);
    assert_eq!(github.pull_request(1).await.unwrap().state, State::Merged);
}
