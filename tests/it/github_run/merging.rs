//! A run among people: they merge some, close one, push to one, comment on others; the base moves;
//! the next jobs follow, and the run closes.

use super::{Done, Hub, UPPER, commits};
use crate::rigs::github::World;

/// A job's requests are within the budget: about ten, four a new pull request, and three a command:
/// its author's permission, the reaction and the answer.
fn within_budget(done: &Done, new: usize, commands: usize) {
    let most = 10 + 4 * new + 3 * commands;
    assert!(done.calls.len() <= most, "{}: {:#?}", done.calls.len(), done.calls);
}

/// A person's comment, two seconds after whatever was there: times on GitHub are whole seconds.
fn say(hub: &Hub, on: u64, text: &str) {
    let mut world = hub.rig.world();
    let id = world.add_comment("writer", on, text);
    let comment = world.comments.get_mut(&id).unwrap();
    comment.updated += jiff::SignedDuration::from_secs(2);
}

#[test]
fn people_merge_close_push_and_comment_while_the_base_moves() {
    let hub = Hub::new(&["a", "b", "c", "d", "e"], UPPER, "pull-requests:\n  labels: []\n");
    let git = hub.rig.git().clone();
    let first = hub.job(501);
    assert_eq!(first.nodes("in_review"), 5, "{}", first.log);
    within_budget(&first, 5, 0);
    let run = first.output("run-id").to_owned();
    let branch = |node: &str| format!("overhaul/{run}/{node}");
    let pulls = ["N-001", "N-002", "N-003", "N-004", "N-005"].map(|node| hub.pull_of(node));
    let dashboard = hub.issues()[0];
    let head = |node: &str| hub.rig.git().head(&branch(node)).unwrap();

    // One is merged, one closed, one pushed to, one commented on; the base moves against the last.
    hub.rig.world().merge(pulls[0]).unwrap();
    hub.rig.world().close(pulls[1]);
    let theirs = git.commit(&branch("N-003"), "c.txt", "C by hand\n", "By hand");
    let fourth = head("N-004");
    say(&hub, pulls[3], "/overhaul approve");
    git.commit("main", "e.txt", "another\n", "Meanwhile");
    hub.rig.world().settle();
    let second = hub.job(502);
    let counts = ["landed", "rejected", "in_review"].map(|state| second.nodes(state));
    assert_eq!(counts, [1, 1, 3], "{}", second.log);
    within_budget(&second, 1, 1);
    // What a person pushed to is left alone, and that is said; what merges is left as it is; what
    // conflicts was done again on the same pull request.
    assert_eq!((head("N-003"), head("N-004")), (theirs.clone(), fourth));
    assert_eq!(hub.show(&branch("N-005"), "e.txt"), "ANOTHER");
    assert_eq!(commits(&git.path, &format!("main..{}", branch("N-005"))), 1);
    assert_eq!((hub.pulls().len(), hub.pull_of("N-005")), (5, pulls[4]));
    let on = |number: u64, text: &str| {
        let world = hub.rig.world();
        world.comments.values().filter(|c| c.on == number && c.body.contains(text)).count()
    };
    assert_eq!(on(pulls[2], "overhaul:left-alone"), 1);
    assert_eq!(on(pulls[3], "is approved at"), 1, "{:#?}", hub.replies());
    let board = || hub.rig.world().issue(dashboard).body.clone();
    assert!(board().contains("a person pushed") && board().contains("by writer"), "{}", board());
    assert!(board().contains("| open pull requests | 3 of 10 |"), "{}", board());

    // The commits are taken in as they are; a push makes the approval void.
    say(&hub, pulls[2], "/overhaul adopt");
    git.commit(&branch("N-004"), "d.txt", "D by hand\n", "By hand");
    hub.rig.world().settle();
    let third = hub.job(503);
    assert_eq!(third.nodes("in_review"), 3, "{}", third.log);
    within_budget(&third, 0, 1);
    assert_eq!(head("N-003"), theirs);
    assert_eq!(on(pulls[2], "are the node's work now"), 1, "{:#?}", hub.replies());
    assert!(!board().contains("by writer"), "{}", board());

    // Thrown away, and kept under another name.
    let thrown = head("N-004");
    say(&hub, dashboard, "/overhaul reset N-004");
    let fourth_job = hub.job(504);
    within_budget(&fourth_job, 0, 1);
    assert_eq!(hub.show(&branch("N-004"), "d.txt"), "D");
    let kept = git.run(&["for-each-ref", "refs/overhaul/quarantine"]);
    assert!(kept.contains(&thrown), "{kept}");
    hub.job(507);
    let idle = hub.job(505);
    assert!(
        idle.calls.len() <= 3 && idle.calls.iter().all(|c| c.starts_with("GET")),
        "{:#?}",
        idle.calls
    );

    // The rest is merged, one with a person's commits on top; somebody builds on a branch of ours.
    let top = git.commit(&branch("N-004"), "more.txt", "more\n", "On top");
    git.run(&["branch", "feature", &branch("N-005")]);
    git.commit("feature", "f.txt", "feature\n", "Mine");
    for pull in &pulls[2..] {
        hub.rig.world().merge(*pull).unwrap();
    }
    // Pushed after it was merged: nowhere else.
    let late = git.commit(&branch("N-003"), "late.txt", "late\n", "Late");
    git.commit("main", "z.txt", "z\n", "Meanwhile");
    let child = hub.rig.world().add_pull("writer", "feature", &branch("N-005"), "child");
    let last = hub.job(506);
    assert_eq!(last.output("status"), "complete", "{}", last.log);
    assert_eq!((last.nodes("landed"), last.nodes("rejected")), (4, 1));
    within_budget(&last, 0, 0);
    let mut world = hub.rig.world();
    assert!(!world.issue(dashboard).open);
    assert!(world.issue(child).open, "it was moved before its base went");
    assert_eq!(world.pull(child).base, "main");
    drop(world);
    let branches =
        git.run(&["for-each-ref", "--format=%(refname:short)", "refs/heads/overhaul/r*/*"]);
    assert_eq!(branches, branch("N-003"), "only what is nowhere else stays");
    assert_eq!(head("N-003"), late);
    assert_eq!(commits(&git.path, &format!("main..{top}")), 0);
    let receipts = git.run(&["ls-tree", "-r", "--name-only", "overhaul/state"]);
    assert!(receipts.contains("receipt-N-003-"), "{receipts}");
}

#[test]
fn all_nodes_go_in_one_pull_request() {
    let more = "pull-requests:\n  mode: single\n  labels: []\n  auto-merge: true\n";
    let hub = Hub::new(&["a", "b", "c"], UPPER, more);
    {
        let mut world = hub.rig.world();
        (world.allow_auto_merge, world.required_checks) = (true, true);
    }
    let git = hub.rig.git().clone();
    let first = hub.job(601);
    assert_eq!(first.nodes("in_review"), 3, "{}", first.log);
    within_budget(&first, 1, 0);
    let pulls = hub.pulls();
    assert_eq!(pulls.len(), 1);
    let (number, branch) = pulls[0].clone();
    assert_eq!(commits(&git.path, &format!("main..{branch}")), 3, "a commit a node");
    assert_eq!((hub.show(&branch, "a.txt"), hub.show(&branch, "c.txt")), ("A".into(), "C".into()));
    let body = hub.rig.world().issue(number).body.clone();
    assert!(body.contains("N-001") && body.contains("N-003"), "{body}");
    let head = git.head(&branch);
    assert_eq!(hub.rig.world().pull(number).auto_merge, head);
    let urls: Vec<String> = serde_json::from_str(first.output("pull-requests")).unwrap();
    assert_eq!(urls.len(), 1);
    assert!(hub.job(602).calls.len() <= 3);

    // The base moves against one of them: that one is done again, and the branch made anew.
    git.commit("main", "b.txt", "another\n", "Meanwhile");
    hub.rig.world().settle();
    let next = hub.job(603);
    assert_eq!(next.nodes("in_review"), 3, "{}", next.log);
    assert_eq!(hub.show(&branch, "b.txt"), "ANOTHER");
    assert_eq!(commits(&git.path, &format!("main..{branch}")), 3);
    assert_eq!(hub.pulls().len(), 1);

    // A person pushes: left alone, said once.
    let theirs = git.commit(&branch, "a.txt", "A by hand\n", "By hand");
    git.commit("main", "a.txt", "another\n", "Meanwhile");
    hub.rig.world().settle();
    hub.job(604);
    assert_eq!(git.head(&branch), Some(theirs));
    let left_alone = |world: &World| {
        world.comments.values().filter(|c| c.body.contains("overhaul:left-alone")).count()
    };
    assert_eq!(left_alone(&hub.rig.world()), 1);
    hub.rig.world().close(number);
    let last = hub.job(605);
    assert_eq!((last.output("status"), last.nodes("rejected")), ("complete", 3), "{}", last.log);
}
