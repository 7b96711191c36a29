//! What people tell a run in comments.

use super::{Done, Hub, UPPER};

/// N-001 works; N-002 only when a file beside the worker says so.
fn half_broken() -> Hub {
    let worker = format!("case \"$1\" in N-002) test -e \"$0.fixed\" || exit 3;; esac\n{UPPER}");
    Hub::new(&["a", "b"], &worker, "pull-requests:\n  labels: []\n")
}

fn is_quiet(done: &Done) -> bool {
    done.calls.len() <= 3 && done.calls.iter().all(|call| call.starts_with("GET"))
}

#[test]
fn comments_steer_a_run_and_each_is_answered_once() {
    let hub = half_broken();
    let first = hub.job(301);
    assert_eq!((first.nodes("in_review"), first.nodes("failed")), (1, 1), "{}", first.log);
    let dashboard = hub.issues()[0];

    std::fs::write(hub.dir.path().join("worker.sh.fixed"), "").unwrap();
    let (order, stranger) = {
        let mut world = hub.rig.world();
        let pull = hub_pull(&world);
        let order =
            world.add_comment("writer", dashboard, "Fixed it.\r\n/overhaul retry N-002\r\n");
        let stranger = world.add_comment("stranger", dashboard, "/overhaul cancel");
        world.add_comment("reader", pull, "/overhaul status");
        world.add_comment("overhaul-app[bot]", dashboard, "/overhaul cancel");
        world.add_comment("maintainer", dashboard, "> /overhaul cancel\n\nPlease do not.");
        (order, stranger)
    };
    let second = hub.job(302);
    assert_eq!((second.nodes("in_review"), second.nodes("failed")), (2, 0), "{}", second.log);
    let replies = hub.replies();
    assert_eq!(replies.len(), 3, "{replies:#?}");
    assert!(replies.iter().any(|r| r.contains("N-002 will be tried again")), "{replies:#?}");
    assert!(replies.iter().any(|r| r.contains("need write permission")), "{replies:#?}");
    assert!(replies.iter().any(|r| r.contains("1 failed") || r.contains("ready")), "{replies:#?}");
    let reactions = hub.rig.world().reactions.clone();
    assert!(reactions.iter().any(|(c, _, r)| (*c, r.as_str()) == (order, "eyes")));
    assert!(reactions.iter().any(|(c, _, r)| (*c, r.as_str()) == (stranger, "confused")));

    // The same comments again change nothing; a stranger is told once.
    hub.rig.world().add_comment("stranger", dashboard, "/overhaul skip N-001");
    let third = hub.job(303);
    assert_eq!(hub.replies().len(), 3);
    assert_eq!(third.nodes("in_review"), 2);
    assert!(is_quiet(&hub.job(304)));

    // An edit says only what it adds.
    hub.rig.world().edit_comment(order, "/overhaul retry N-002\n/overhaul pause\n");
    let paused = hub.job(305);
    assert_eq!(paused.output("status"), "paused", "{}", paused.log);
    let replies = hub.replies();
    assert_eq!(replies.len(), 4, "{replies:#?}");
    assert!(replies[3].contains("paused until") && !replies[3].contains("N-002"), "{replies:#?}");
    assert!(hub.rig.world().issue(dashboard).body.contains("Paused"));
    let still = hub.job(306);
    assert_eq!(still.output("status"), "paused");
    assert!(is_quiet(&still), "{:#?}", still.calls);

    hub.rig.world().add_comment("writer", dashboard, "/overhaul resume\n/overhaul adopt N-001");
    hub.rig.world().add_comment("writer", dashboard, "/overhaul pausee");
    let resumed = hub.job(307);
    assert_eq!(resumed.output("status"), "waiting", "{}", resumed.log);
    let replies = hub.replies();
    assert_eq!(replies.len(), 6, "{replies:#?}");
    assert!(replies[4].contains("did you mean"), "{replies:#?}");
    // What becomes of a branch is known, and told, once it was looked at.
    assert!(replies[5].contains("resumed") && replies[5].contains("holds no commits of a person"));
    assert_eq!(hub.issues().len(), 1);
}

/// The open pull request.
fn hub_pull(world: &crate::rigs::github::World) -> u64 {
    *world.issues.iter().find(|(_, issue)| issue.pull.is_some()).unwrap().0
}

#[test]
fn two_jobs_at_once_act_once_on_a_comment() {
    let hub = half_broken();
    let first = hub.job(401);
    let run = first.output("run-id").to_owned();
    let dashboard = hub.issues()[0];
    hub.rig.world().add_comment("writer", dashboard, "/overhaul budget +5");
    let jobs = [402, 403, 404].map(|run| hub.start(run, "issue_comment"));
    for job in jobs {
        let done = hub.end(job);
        assert_eq!(done.code, Some(0), "{}", done.log);
    }
    assert_eq!(hub.replies().len(), 1, "{:#?}", hub.replies());
    let list = hub.rig.git().run(&["grep", "-h", "budget_raised", "overhaul/state", "--", &run]);
    assert_eq!(list.lines().count(), 1, "{list}");
}
