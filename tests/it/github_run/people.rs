//! What people do on the dashboard, and how much they hear from a run.

use super::{Done, Hub, UPPER};

const QUIET: &str = "pull-requests:\n  labels: []\n";

/// N-001 works; N-002 only when a file beside the worker says so.
fn broken(more: &str) -> Hub {
    let worker = format!("case \"$1\" in N-002) test -e \"$0.fixed\" || exit 3;; esac\n{UPPER}");
    Hub::new(&["a", "b"], &worker, &format!("{QUIET}{more}"))
}

fn fix(hub: &Hub) {
    std::fs::write(hub.dir.path().join("worker.sh.fixed"), "").unwrap();
}

fn writes(done: &Done) -> Vec<&String> {
    done.calls.iter().filter(|call| !call.starts_with("GET")).collect()
}

#[test]
fn a_tick_acts_as_its_command_and_what_people_wrote_stays() {
    let hub = broken("");
    let first = hub.job(701);
    assert_eq!(first.nodes("failed"), 1, "{}", first.log);
    let dashboard = hub.issues()[0];
    let body = hub.rig.world().issue(dashboard).body.clone();
    let retry = "- [ ] <!-- overhaul:tick retry N-002 -->";
    assert!(body.contains(retry), "{body}");
    let ticked = body.replace(retry, &retry.replace("[ ]", "[x]"));
    let ticked =
        format!("Ann: I mend the worker.\n{ticked}\n- [x] <!-- overhaul:tick cancel --> mine\n");

    // A box does what its ticker may do.
    hub.rig.world().edit_issue("reader", dashboard, &ticked);
    let denied = hub.job(702);
    assert_eq!(denied.nodes("failed"), 1, "{}", denied.log);
    assert!(hub.replies()[0].contains("need write permission"), "{:#?}", hub.replies());
    let cleared = hub.rig.world().issue(dashboard).body.clone();
    assert!(cleared.contains(retry) && cleared.contains("Ann: I mend"), "{cleared}");

    fix(&hub);
    let ticked = cleared.replace(retry, &retry.replace("[ ]", "[x]"));
    hub.rig.world().edit_issue("writer", dashboard, &ticked);
    let done = hub.job(703);
    assert_eq!(done.nodes("in_review"), 2, "{}", done.log);
    assert_eq!(hub.replies().len(), 2, "{:#?}", hub.replies());
    assert!(hub.replies()[1].contains("N-002 will be tried again"), "{:#?}", hub.replies());
    let after = hub.rig.world().issue(dashboard).body.clone();
    assert_eq!(after.matches("Ann: I mend the worker.").count(), 1, "{after}");
    assert!(after.contains("mine") && !after.contains("[x] <!-- overhaul:tick retry"), "{after}");

    hub.job(706);
    // Nothing more is said, and an edit without a tick asks for nothing.
    hub.rig.world().edit_issue("reader", dashboard, &format!("{after}\nBob: fine.\n"));
    let idle = hub.job(704);
    assert_eq!(writes(&idle), Vec::<&String>::new(), "{:#?}", idle.calls);
    assert!(idle.calls.len() <= 3, "{:#?}", idle.calls);
    for node in ["N-001", "N-002"] {
        let pull = hub.pull_of(node);
        hub.rig.world().merge(pull).unwrap();
    }
    let last = hub.job(705);
    assert_eq!(last.output("status"), "complete", "{}", last.log);
    let body = hub.rig.world().issue(dashboard).body.clone();
    assert!(body.contains("Bob: fine.") && body.contains("Ann: I mend"), "{body}");
}

#[test]
fn a_pause_has_an_issue_of_its_own_as_long_as_it_lasts() {
    let hub = Hub::new(&["a", "b"], UPPER, &format!("{QUIET}pauses: issue\n"));
    let git = hub.rig.git();
    let good = git.run(&["show", "main:.github/overhaul.yml"]) + "\n";
    let bad = good.replace("command: [sh,", "command: [no-such-program-here,");
    git.commit("main", ".github/overhaul.yml", &bad, "Broken pool");
    let first = hub.job(711);
    assert_eq!(first.output("status"), "paused", "{}", first.log);
    let issues = hub.issues();
    assert_eq!(issues.len(), 2, "dashboard and pause");
    let pause = issues[1];
    {
        let mut world = hub.rig.world();
        let issue = world.issue(pause);
        assert!(issue.title.contains("no usable pool"), "{}", issue.title);
        assert!(issue.body.contains("N-002") && issue.open, "{}", issue.body);
        assert_eq!(world.comments.len(), 0);
    }
    let again = hub.job(712);
    assert_eq!(again.output("status"), "paused", "{}", again.log);
    assert_eq!(writes(&again), Vec::<&String>::new(), "{:#?}", again.calls);

    git.commit("main", ".github/overhaul.yml", &good, "Mended");
    let mended = hub.job(713);
    assert_eq!(mended.nodes("in_review"), 2, "{}", mended.log);
    assert_eq!(hub.issues(), issues);
    assert!(!hub.rig.world().issue(pause).open);
    let idle = hub.job(714);
    assert_eq!(writes(&idle), Vec::<&String>::new(), "{:#?}", idle.calls);
}

#[test]
fn a_day_has_so_many_comments_and_issues_and_no_more() {
    let noise = "report:\n  noise:\n    comments-per-day: 1\n    issues-per-day: 1\n";
    let mut hub = broken(noise);
    hub.job(721);
    let dashboard = hub.issues()[0];
    hub.rig.world().add_comment("writer", dashboard, "/overhaul status");
    hub.rig.world().add_comment("writer", dashboard, "/overhaul pause");
    let second = hub.job(722);
    assert_eq!(second.output("status"), "paused", "orders are taken: {}", second.log);
    assert_eq!(hub.replies().len(), 1, "{:#?}", hub.replies());
    let body = hub.rig.world().issue(dashboard).body.clone();
    assert!(body.contains("comments in a day | 1 of 1"), "{body}");
    assert_eq!(hub.rig.world().comments.len(), 3, "nor a comment about the pause");
    // What is owed is given when there is room.
    let later = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(25);
    hub.env.insert("OVERHAUL_NOW", later.to_string());
    hub.job(723);
    assert_eq!(hub.replies().len(), 2, "{:#?}", hub.replies());
    // A dashboard that is gone is made again, within the ceiling of issues.
    let pull = hub.pull_of("N-001");
    {
        let mut world = hub.rig.world();
        world.issues.remove(&dashboard);
        world.comments.clear();
        world.add_comment("writer", pull, "/overhaul resume");
    }
    hub.job(724);
    assert_eq!(hub.issues().len(), 1);
}

#[test]
fn an_edited_comment_speaks_for_its_editor() {
    let mut hub = broken("commands:\n  permission: maintain\n");
    hub.job(731);
    fix(&hub);
    let issue = hub.issues()[0];
    let comment = hub.rig.world().add_comment("maintainer", issue, "Looks good.");
    let path = hub.dir.path().join("event.json");
    let event = |sender: &str| {
        serde_json::json!({
            "action": "edited", "issue": {"number": issue},
            "comment": {"id": comment, "body": "x", "user": {"login": "maintainer"}},
            "sender": {"login": sender, "type": "User"},
        })
    };
    {
        let mut world = hub.rig.world();
        let written = world.now() - jiff::SignedDuration::from_mins(1);
        world.comments.get_mut(&comment).unwrap().created = written;
    }
    hub.rig.world().edit_comment(comment, "Looks good.\n/overhaul retry N-002");
    // Who edited it is not known to a schedule.
    let unknown = hub.job(732);
    assert_eq!(unknown.nodes("failed"), 1, "{}", unknown.log);
    assert!(hub.replies()[0].contains("somebody edited"), "{:#?}", hub.replies());
    // A writer edited a maintainer's words.
    hub.rig.world().edit_comment(comment, "/overhaul retry N-002\n\nplease");
    std::fs::write(&path, event("writer").to_string()).unwrap();
    hub.env.insert("GITHUB_EVENT_PATH", path.display().to_string());
    let theirs = hub.end(hub.start(733, "issue_comment"));
    assert_eq!(theirs.nodes("failed"), 1, "{}", theirs.log);
    // The maintainer did.
    hub.rig.world().edit_comment(comment, "/overhaul retry N-002\n\nnow");
    std::fs::write(&path, event("maintainer").to_string()).unwrap();
    let own = hub.end(hub.start(734, "issue_comment"));
    assert_eq!(own.nodes("in_review"), 2, "{}", own.log);
}
