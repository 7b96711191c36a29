//! What a run knows of quota from the run before.

use overhaul::backends::scripted::{Answer, Reply, Request, fixer};
use serde_json::Value;

use super::{
    NOON, SHORT, after_noon, cause, configure, not_before, pool, pool_state, scripted, world,
    write_findings,
};
use crate::support::{Cycle, World, git};

/// People close what is open, and the run ends.
fn close(world: &World) {
    for (name, text) in world.pulls() {
        let path = world.path("forge/pulls").join(name);
        std::fs::write(path, text.replacen("state: open", "state: closed", 1)).unwrap();
    }
    let last = world.next_step_with(SHORT);
    assert_eq!(last.status(), "complete", "{} {}", last.report, last.stderr);
}

/// The first cycle of a new run, on a machine that knows nothing, so many seconds after noon.
fn next_run(world: &mut World, seconds: i64, findings: &[&str]) -> Cycle {
    write_findings(world, findings);
    world.set("OVERHAUL_NOW", &after_noon(seconds).to_string());
    for place in ["work", "home"] {
        let _ = std::fs::remove_dir_all(world.path(place));
    }
    let cycle = world.next_step_with(SHORT);
    assert!(cycle.report["run-id"].as_str().unwrap().starts_with("r-0002"), "{}", cycle.report);
    cycle
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_s_requests_still_count_in_the_next_run() {
    for (account, attempts) in [("mine", 0), ("other", 2)] {
        let endpoint = scripted(fixer).await;
        let mut world = world();
        let limits = "limits: {requests-per-day: 12, concurrent: 1}";
        let pools =
            |account: &str| [pool("one", &endpoint, &[limits, &format!("account: {account}")])];
        configure(&world, &pools("mine"), "");
        let first = world.next_step_with(SHORT);
        assert_eq!(first.nodes("in_review"), 3, "{}", first.stderr);
        assert_eq!(endpoint.requests().len(), 12);
        close(&world);
        configure(&world, &pools(account), "");
        let next = next_run(&mut world, 3_600, &["a", "b"]);
        assert_eq!(next.report["attempts"].as_u64(), Some(attempts), "{account}: {}", next.stderr);
        if attempts > 0 {
            continue;
        }
        assert_eq!(cause(&next, "N-001"), "budget_exhausted");
        let until = not_before(&next);
        assert!(until >= after_noon(86_400) && until < after_noon(86_500), "{until}");
        assert_eq!(endpoint.requests().len(), 12);
        world.set("OVERHAUL_NOW", &after_noon(86_600).to_string());
        assert_eq!(world.next_step_with(SHORT).nodes("in_review"), 2);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_day_s_tokens_hold_in_a_cycle_a_job_and_the_next_run() {
    let endpoint = scripted(|r, n| match fixer(r, n) {
        Reply::Answer(answer) => Reply::Answer(Answer { usage: Some((4_000, 1_000)), ..answer }),
        other => other,
    })
    .await;
    let mut world = world();
    // Four requests of 5 000 tokens are one node; the second has no room for its last ones.
    let limits = "limits: {tokens-per-day: 30000, concurrent: 1}";
    configure(&world, &[pool("one", &endpoint, &[limits])], "");
    let first = world.next_step_with(SHORT);
    assert_eq!((first.status(), first.nodes("in_review")), ("paused", 1), "{}", first.stderr);
    assert_eq!(cause(&first, "N-002"), "budget_exhausted", "{}", first.report);
    let until = not_before(&first);
    assert!(until >= after_noon(86_400) && until < after_noon(86_500), "{until}");
    let asked = endpoint.requests().len();
    assert!(asked <= 6, "{asked} requests of 5 000 tokens");
    world.set("OVERHAUL_NOW", &after_noon(3_600).to_string());
    let early = world.next_step_with(&["--resume", "--time-budget", "30s"]);
    assert_eq!(early.report["attempts"].as_u64(), Some(0), "{}", early.stderr);
    // A person gives up on it; the allowance is used all the same.
    assert!(world.run(&["cancel"]).status.success());
    close(&world);
    let next = next_run(&mut world, 7_200, &["a", "b"]);
    assert_eq!(next.report["attempts"].as_u64(), Some(0), "{}", next.stderr);
    assert_eq!(endpoint.requests().len(), asked);
    world.set("OVERHAUL_NOW", &after_noon(86_600).to_string());
    assert_eq!(world.next_step_with(SHORT).nodes("in_review"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_learned_of_pools_is_known_to_the_next_run() {
    let key = |r: &Request| r.headers["authorization"].contains("0001");
    let refused = scripted(move |r, n| match key(r) {
        true => Reply::error(401, "Incorrect API key", "invalid_api_key"),
        false => fixer(r, n),
    })
    .await;
    let limited = scripted(|r, n| match n {
        0 => Reply::Raw {
            status: 429,
            headers: vec![("retry-after".into(), "7200".into())],
            content_type: "application/json".into(),
            body: r#"{"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}"#
                .into(),
        },
        _ => fixer(r, n),
    })
    .await;
    // Its tokens are half as long as we take them to be.
    let well = scripted(|r, n| match fixer(r, n) {
        Reply::Answer(answer) => {
            let usage = answer.usage.map(|(input, output)| (2 * input, output));
            Reply::Answer(Answer { usage, ..answer })
        }
        other => other,
    })
    .await;
    let mut world = world();
    let pools = [
        pool("a-refused", &refused, &["cost-per-mtok: 0", "account: a"]),
        pool("b-limited", &limited, &["cost-per-mtok: 1", "account: b"]),
        pool("c-well", &well, &["cost-per-mtok: 2", "account: c"]),
    ];
    let cheapest = "dispatch: {dial: 0, concurrent: 1}\n";
    configure(&world, &pools, cheapest);
    let first = world.next_step_with(SHORT);
    assert_eq!(first.nodes("in_review"), 3, "{}", first.stderr);
    let asked = || (refused.requests().len(), limited.requests().len());
    assert_eq!(asked(), (1, 1));
    close(&world);

    let next = next_run(&mut world, 60, &["a", "b"]);
    assert_eq!(next.nodes("in_review"), 2, "{}", next.stderr);
    assert_eq!(asked(), (1, 1), "both are known to be of no use now");
    assert!(pool_state(&world, "a-refused").contains("out"), "{}", world.status());
    let ledger = git(&world.path("remote.git"), &["grep", "-h", "", "overhaul/state"]);
    let told: Vec<Value> =
        ledger.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |kind: &str, pool: &str| {
        told.iter().filter(|e| e["kind"] == kind && e["pool"] == pool).collect::<Vec<_>>()
    };
    let learned = of("limit_learned", "b-limited");
    assert_eq!(learned.len(), 2, "learned once, and told to the next run: {NOON}");
    let scales = of("tokens_observed", "c-well");
    let scales: Vec<f64> =
        scales.iter().map(|e| e["per-estimate"].as_f64().unwrap_or(0.0)).collect();
    assert!(scales.len() >= 2 && scales.iter().all(|s| (1.05..2.5).contains(s)), "{scales:?}");
    close(&world);

    // Another key, and the end of the pause.
    world.set("KEY_ONE", "scripted-key-0002");
    write_findings(&world, &["c"]);
    world.set("OVERHAUL_NOW", &after_noon(120).to_string());
    assert_eq!(world.next_step_with(SHORT).nodes("in_review"), 1);
    assert!(asked().0 > 1, "a new key is a new try");
    assert_eq!(asked().1, 1);
}
