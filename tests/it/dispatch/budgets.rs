//! Budgets, windows and prices that outlive a job.

use overhaul::backends::scripted::{Answer, Reply, Request, fixer};

use super::{
    NOON, SHORT, after_noon, cause, configure, friction, not_before, pool, pool_state, scripted,
    world,
};
use crate::support::git;

/// One attempt at a time; the fixer needs four requests for a node.
const ONE: &str = "limits: {concurrent: 1}";

fn reasons(cycle: &crate::support::Cycle) -> String {
    cycle.report["pause"]["nodes"].to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cycle_s_budget_is_a_pause_and_the_next_cycle_goes_on() {
    let endpoint = scripted(fixer).await;
    let world = world();
    let budget = "dispatch:\n  budget: {cycle-requests: 5}\n";
    configure(&world, &[pool("one", &endpoint, &[ONE])], budget);
    for done in 1..3 {
        let cycle = world.next_step_with(SHORT);
        assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
        assert_eq!((cycle.nodes("in_review"), cycle.nodes("failed")), (done, 0));
        assert_eq!(cause(&cycle, "N-003"), "budget_exhausted");
        let text = "the cycle's budget of requests is used up; the next cycle has a new one";
        assert!(reasons(&cycle).contains(text), "{}", cycle.report);
        assert!(endpoint.requests().len() <= 5 * usize::try_from(done).unwrap());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_s_budget_stops_that_node_without_failing_it() {
    let endpoint = scripted(fixer).await;
    let world = world();
    let budget = "dispatch:\n  budget: {node-requests: 2}\n";
    configure(&world, &[pool("one", &endpoint, &[ONE])], budget);
    let cycle = world.next_step_with(SHORT);
    assert_eq!((cycle.status(), cycle.nodes("failed")), ("paused", 0), "{}", cycle.stderr);
    assert_eq!(endpoint.requests().len(), 6);
    for node in ["N-001", "N-002", "N-003"] {
        assert_eq!(cause(&cycle, node), "budget_exhausted");
    }
    assert!(reasons(&cycle).contains("the node's budget of requests is used up"));
    assert!(!pool_state(&world, "one").contains("waits"), "nothing is learned of the pool");
    // It counts all attempts of all jobs.
    let again = world.next_step_with(SHORT);
    assert_eq!((again.status(), endpoint.requests().len()), ("paused", 6), "{}", again.stderr);
    let budget = "dispatch:\n  budget: {node-requests: 9}\n";
    configure(&world, &[pool("one", &endpoint, &[ONE])], budget);
    assert_eq!(world.next_step_with(SHORT).nodes("in_review"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_run_s_budget_starts_nothing_and_an_attempt_s_ends_it() {
    let endpoint = scripted(fixer).await;
    let world = world();
    configure(
        &world,
        &[pool("one", &endpoint, &[ONE])],
        "dispatch:\n  budget: {tokens: 1, attempt-requests: 2}\n",
    );
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cause(&cycle, "N-001"), "budget_exhausted", "{}", cycle.stderr);
    assert!(reasons(&cycle).contains("the run's budget of tokens is used up"));
    assert_eq!(endpoint.requests().len(), 0);
    configure(
        &world,
        &[pool("one", &endpoint, &[ONE])],
        "dispatch:\n  budget: {attempt-requests: 2}\n  max-attempts: {contract: 1}\n",
    );
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.nodes("failed"), 3, "{} {}", cycle.report, cycle.stderr);
    assert_eq!(endpoint.requests().len(), 6);
    let why = cycle.report["failed"].to_string();
    assert!(why.contains("request budget is used up") || why.contains("requests without"), "{why}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_s_requests_still_count_in_the_next_job() {
    let endpoint = scripted(fixer).await;
    let mut world = world();
    let limits = "limits: {requests-per-day: 4, concurrent: 1}";
    configure(&world, &[pool("one", &endpoint, &[limits])], "");
    let first = world.next_step_with(SHORT);
    assert_eq!((first.status(), first.nodes("in_review")), ("paused", 1), "{}", first.stderr);
    assert_eq!(cause(&first, "N-002"), "budget_exhausted");
    let until = not_before(&first);
    assert!(until >= after_noon(86_400) && until < after_noon(86_500), "{until}");
    // A person may insist, the allowance is used all the same; also on a fresh machine.
    world.set("OVERHAUL_NOW", &after_noon(3_600).to_string());
    for place in ["work", "home"] {
        let _ = std::fs::remove_dir_all(world.path(place));
    }
    let early = world.next_step_with(&["--resume", "--time-budget", "30s"]);
    assert_eq!(early.report["attempts"].as_u64(), Some(0), "{}", early.stderr);
    assert_eq!(endpoint.requests().len(), 4);
    world.set("OVERHAUL_NOW", &after_noon(86_600).to_string());
    let later = world.next_step_with(SHORT);
    assert_eq!(later.nodes("in_review"), 2, "{}", later.stderr);
    assert_eq!(endpoint.requests().len(), 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_free_pool_that_charges_is_told_once_and_is_dear_from_then_on() {
    let charging = scripted(|r, n| match fixer(r, n) {
        Reply::Answer(answer) => Reply::Answer(Answer { cost: Some(0.01), ..answer }),
        other => other,
    })
    .await;
    let cheap = scripted(fixer).await;
    let world = world();
    let free = ["cost-per-mtok: 0", "account: free", ONE];
    configure(
        &world,
        &[pool("a-free", &charging, &free)],
        "dispatch: {budget: {cycle-requests: 4}}\n",
    );
    let first = world.next_step_with(SHORT);
    assert_eq!(first.nodes("in_review"), 1, "{}", first.stderr);
    assert_eq!(friction(&world, "declared_cost_drift").len(), 1);
    // 0.01 dollars for 110 tokens are 91 a million: one dollar a million is cheaper.
    let asked = charging.requests().len();
    let priced = ["cost-per-mtok: 1", "account: priced", ONE];
    let pools = [pool("a-free", &charging, &free), pool("priced", &cheap, &priced)];
    configure(&world, &pools, "dispatch: {dial: 0, concurrent: 1}\n");
    let next = world.next_step_with(SHORT);
    assert_eq!(next.nodes("in_review"), 3, "{}", next.stderr);
    assert_eq!(charging.requests().len(), asked);
    assert_eq!(friction(&world, "declared_cost_drift").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn another_key_lifts_what_a_refused_one_settled() {
    let refuse = |r: &Request, n: usize| {
        if r.headers["authorization"].contains("0001") {
            Reply::error(401, "Incorrect API key: scripted-key-0001", "invalid_api_key")
        } else {
            fixer(r, n)
        }
    };
    let endpoint = scripted(refuse).await;
    let mut world = world();
    configure(&world, &[pool("one", &endpoint, &[ONE])], "");
    let first = world.next_step_with(SHORT);
    assert_eq!(cause(&first, "N-001"), "no_usable_pool", "{}", first.stderr);
    assert_eq!(world.next_step_with(SHORT).report["attempts"].as_u64(), Some(0));
    assert_eq!(endpoint.requests().len(), 1);
    // What the backend answered is kept with the attempt, and the key is nowhere.
    let ledger = git(&world.path("remote.git"), &["grep", "-h", "", "overhaul/state"]);
    let ended = ledger.lines().find(|line| line.contains("attempt_ended")).unwrap();
    assert!(ended.contains("\"status\":401"), "{ended}");
    assert!(!ledger.contains("scripted-key"), "the key is in the ledger");
    world.set("KEY_ONE", "scripted-key-0002");
    let next = world.next_step_with(SHORT);
    assert_eq!(next.nodes("in_review"), 3, "{}", next.stderr);
    assert_eq!(friction(&world, "pool_settled").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_degraded_model_is_asked_by_one_probe_first() {
    let endpoint = scripted(|r, n| {
        let degraded = "Function id 'f': DEGRADED function cannot be invoked";
        if n < 4 { Reply::error(400, degraded, "bad_request") } else { fixer(r, n) }
    })
    .await;
    let mut world = world();
    configure(&world, &[pool("one", &endpoint, &["backend: nim", "limits: {concurrent: 3}"])], "");
    let first = world.next_step_with(SHORT);
    assert_eq!((first.status(), endpoint.requests().len()), ("paused", 3), "{}", first.stderr);
    assert_eq!(first.nodes("failed"), 0);
    let mut until = not_before(&first);
    assert!(until >= after_noon(60), "{until}");
    // Still degraded: one request finds that out.
    world.set("OVERHAUL_NOW", &(until + jiff::SignedDuration::from_secs(1)).to_string());
    let second = world.next_step_with(SHORT);
    assert_eq!((second.status(), endpoint.requests().len()), ("paused", 4), "{}", second.stderr);
    until = not_before(&second);
    // Well again: the probe's node is done before anything else is asked.
    world.set("OVERHAUL_NOW", &(until + jiff::SignedDuration::from_secs(1)).to_string());
    let third = world.next_step_with(SHORT);
    assert_eq!(third.nodes("in_review"), 3, "{}", third.stderr);
    let about: Vec<String> = endpoint.requests()[4..]
        .iter()
        .map(|r| {
            let text = r.body["messages"].to_string();
            let at = text.find("place: ").unwrap() + 7;
            text[at..at + 1].to_owned()
        })
        .collect();
    let probe = about.iter().take_while(|file| **file == about[0]).count();
    assert_eq!(probe, about.iter().filter(|file| **file == about[0]).count(), "{about:?}");
    assert!(probe >= 2, "{NOON} {about:?}");
}
