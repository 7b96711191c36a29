//! Jobs one after the other, and jobs at once.

use std::collections::BTreeSet;

use super::{Hub, UPPER, commits};

#[test]
fn a_run_goes_from_the_schedule_to_its_close() {
    let hub = Hub::new(&["a", "b", "c"], UPPER, "");
    let first = hub.job(101);
    assert_eq!(first.output("status"), "waiting", "{}", first.log);
    assert_eq!(first.nodes("in_review"), 3);
    let urls: Vec<String> = serde_json::from_str(first.output("pull-requests")).unwrap();
    assert_eq!(urls.len(), 3);
    assert!(urls[0].starts_with(hub.rig.server_url()), "{urls:?}");
    assert!(first.summary.contains("N-001"), "{}", first.summary);
    assert!(first.summary.contains("| N-003 | attempt 1 on "), "{}", first.summary);
    assert_eq!(first.log.matches("ghs_workflow").count(), 1, "{}", first.log);
    assert!(first.log.contains("::add-mask::ghs_workflow\n"), "{}", first.log);
    assert!(first.calls.len() <= 10 + 4 * 3, "{:#?}", first.calls);
    let run = first.output("run-id").to_owned();
    let branch = format!("overhaul/{run}/N-001");
    assert_eq!(hub.show(&branch, "a.txt"), "A");
    assert_eq!(commits(&hub.rig.git().path, &format!("main..{branch}")), 1);
    let issues = hub.issues();
    assert_eq!(issues.len(), 1, "one dashboard");
    assert!(hub.rig.world().issue(issues[0]).body.contains("N-003"));

    // What was opened is looked at once for reviews.
    assert_eq!(hub.job(106).calls.len(), 4);

    // Nothing happened: nothing is written, and next to nothing asked.
    let edited = hub.rig.world().issue(issues[0]).updated;
    let state = hub.rig.git().head("overhaul/state");
    let idle = hub.job(102);
    assert_eq!(idle.output("status"), "waiting", "{}", idle.log);
    assert!(idle.calls.len() <= 3, "{:#?}", idle.calls);
    assert!(idle.calls.iter().all(|call| call.starts_with("GET")), "{:#?}", idle.calls);
    assert_eq!(hub.rig.world().issue(issues[0]).updated, edited);
    assert_eq!(hub.rig.git().head("overhaul/state"), state);

    // People merge one and close another: the next job follows.
    let pulls = ["N-001", "N-002", "N-003"].map(|node| hub.pull_of(node));
    hub.rig.world().merge(pulls[0]).unwrap();
    hub.rig.world().close(pulls[1]);
    let next = hub.job(103);
    assert_eq!(next.output("status"), "waiting", "{}", next.log);
    let counts = ["landed", "rejected", "in_review"].map(|state| next.nodes(state));
    assert_eq!(counts, [1, 1, 1], "{}", next.log);
    // Comments, the dashboard for ticks, pull requests; the dashboard again, and its update.
    assert!(next.calls.len() <= 5, "{:#?}", next.calls);
    assert_eq!(hub.issues(), issues, "edited in place");

    // The rest is merged: the run closes, and its dashboard with it.
    hub.rig.world().merge(pulls[2]).unwrap();
    let last = hub.job(104);
    assert_eq!(last.output("status"), "complete", "{}", last.log);
    assert_eq!((last.nodes("landed"), last.nodes("rejected")), (2, 1));
    assert!(!hub.rig.world().issue(issues[0]).open);
    assert_eq!(hub.show("main", "a.txt"), "A");
    assert_eq!(hub.show("main", "b.txt"), "b");

    let after = hub.job(105);
    assert_eq!(after.output("status"), "idle", "{}", after.log);
    assert_eq!(after.calls, Vec::<String>::new());
    assert_eq!((hub.pulls().len(), hub.issues()), (3, issues));
}

#[test]
fn two_jobs_that_start_together_share_the_work() {
    let worker = format!("echo x >> \"$0.calls\"\n{UPPER}");
    let hub = Hub::new(&["a", "b", "c", "d"], &worker, "pull-requests:\n  labels: []\n");
    let jobs = [hub.start(201, "schedule"), hub.start(202, "workflow_dispatch")];
    for job in jobs {
        let done = hub.end(job);
        assert_eq!(done.code, Some(0), "{}", done.log);
    }
    let last = hub.job(203);
    assert_eq!(last.nodes("in_review"), 4, "{}", last.log);
    let heads: BTreeSet<String> = hub.pulls().into_iter().map(|(_, head)| head).collect();
    assert_eq!((heads.len(), hub.pulls().len()), (4, 4));
    assert_eq!(hub.issues().len(), 1, "one dashboard");
    assert_eq!(hub.rig.world().comments.len(), 0);
    // Sandboxes may hide the script's folder from writes; where it is not, each node was worked once.
    let calls = std::fs::read_to_string(hub.dir.path().join("worker.sh.calls"));
    if let Ok(calls) = calls {
        assert_eq!(calls.lines().count(), 4);
    }
}
