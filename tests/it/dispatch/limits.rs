//! Our own limits and budgets: what does not fit is cut, waited for or said, and bans nothing.

use std::sync::atomic::{AtomicBool, Ordering};

use overhaul::backends::scripted::{Answer, Reply, fixer};
use serde_json::Value;

use super::{
    SHORT, about, cause, configure, friction, pool, pool_state, scripted, world, write_findings,
};
use crate::support::{World, config};

const ONE: &str = "limits: {concurrent: 1}";

fn reasons(cycle: &crate::support::Cycle) -> String {
    cycle.report["pause"]["nodes"].to_string()
}

fn attempts(cycle: &crate::support::Cycle) -> Option<u64> {
    cycle.report["attempts"].as_u64()
}

/// One file with one finding.
fn small_world() -> World {
    let world = world();
    write_findings(&world, &["a"]);
    world
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_limit_below_the_usual_output_cuts_the_request_and_bans_nothing() {
    for limits in ["output-tokens-per-minute: 1900", "tokens-per-day: 7000"] {
        let endpoint = scripted(fixer).await;
        let world = small_world();
        let limits = format!("limits: {{{limits}, concurrent: 1}}");
        configure(&world, &[pool("one", &endpoint, &[&limits])], "");
        let cycle = world.next_step_with(SHORT);
        assert_eq!(cycle.nodes("in_review"), 1, "{limits} {} {}", cycle.report, cycle.stderr);
        let most = endpoint.requests().iter().filter_map(|r| r.body["max_tokens"].as_u64()).max();
        let most = most.unwrap();
        assert!(most > 256 && (most <= 1_900 || limits.contains("day")), "{limits} {most}");
        assert!(friction(&world, "packet_too_large").is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_no_limit_lets_through_is_not_asked_again_and_goes_on_when_the_limit_does() {
    let endpoint = scripted(fixer).await;
    let world = small_world();
    let limited = ["limits: {input-tokens-per-minute: 1100, concurrent: 1}"];
    configure(&world, &[pool("one", &endpoint, &limited)], "");
    let first = world.next_step_with(SHORT);
    assert_eq!(cause(&first, "N-001"), "no_capable_pool", "{}", first.stderr);
    assert!(reasons(&first).contains("its limit is 1100 a minute"), "{}", first.report);
    assert!(friction(&world, "packet_too_large").is_empty(), "no backend refused it");
    let again = world.next_step_with(SHORT);
    assert_eq!((attempts(&again), endpoint.requests().len()), (Some(0), 0), "{}", again.stderr);
    configure(&world, &[pool("one", &endpoint, &[ONE])], "");
    assert_eq!(world.next_step_with(SHORT).nodes("in_review"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_size_is_asked_again_for_a_person_and_for_a_larger_window() {
    static SMALL: AtomicBool = AtomicBool::new(true);
    for lifted_by in ["retry N-001", "unsettle one", "a larger window"] {
        SMALL.store(true, Ordering::SeqCst);
        let endpoint = scripted(|r, n| match SMALL.load(Ordering::SeqCst) {
            true => Reply::error(413, "too large", "request_too_large"),
            false => fixer(r, n),
        })
        .await;
        let world = small_world();
        let declared = pool("one", &endpoint, &[ONE]);
        configure(&world, std::slice::from_ref(&declared), "");
        let first = world.next_step_with(SHORT);
        assert_eq!(cause(&first, "N-001"), "no_capable_pool", "{}", first.stderr);
        SMALL.store(false, Ordering::SeqCst);
        assert_eq!(attempts(&world.next_step_with(SHORT)), Some(0), "the ban holds");
        if lifted_by == "a larger window" {
            let larger = declared.replace("context-tokens: 64000", "context-tokens: 128000");
            configure(&world, &[larger], "");
        } else {
            let words: Vec<&str> = lifted_by.split(' ').collect();
            assert!(world.run(&words).status.success());
        }
        let next = world.next_step_with(SHORT);
        assert_eq!(next.nodes("in_review"), 1, "{lifted_by}: {} {}", next.report, next.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_budget_that_no_attempt_fits_is_said_with_its_figures_and_never_tried_for_ever() {
    let endpoint = scripted(fixer).await;
    for (budget, name) in [
        // Less than is planned, less than is really asked, less than the attempt needs in all.
        ("{cycle-tokens: 1500}", "cycle-tokens"),
        ("{cycle-tokens: 2600}", "cycle-tokens"),
        ("{cycle-requests: 2}", "cycle-requests"),
    ] {
        let world = small_world();
        let more = format!("dispatch:\n  budget: {budget}\n");
        configure(&world, &[pool("one", &endpoint, &[ONE])], &more);
        let first = world.next_step_with(SHORT);
        assert_eq!(cause(&first, "N-001"), "budget_exhausted", "{}", first.stderr);
        let sent = endpoint.requests().len();
        let second = world.next_step_with(SHORT);
        assert_eq!(attempts(&second), Some(0), "{budget}: {}", second.report);
        assert_eq!(endpoint.requests().len(), sent, "{budget}");
        let why = reasons(&second);
        assert!(why.contains("waiting will not help") && why.contains(name), "{budget}: {why}");
        configure(&world, &[pool("one", &endpoint, &[ONE])], "");
        assert_eq!(world.next_step_with(SHORT).nodes("in_review"), 1, "{budget}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn who_reports_no_usage_passes_no_budget() {
    let silent = |r: &_, n| match fixer(r, n) {
        Reply::Answer(answer) => Reply::Answer(Answer { usage: None, ..answer }),
        other => other,
    };
    let endpoint = scripted(silent).await;
    let world = small_world();
    // A request is expected to use about 3 000 tokens.
    let budget = "dispatch:\n  budget: {usd: 0.7}\n";
    let declared = pool("one", &endpoint, &[ONE, "cost-per-mtok: 100"]);
    configure(&world, &[declared], budget);
    for _ in 0..3 {
        world.next_step_with(&["--resume", "--time-budget", "30s"]);
    }
    let sent = endpoint.requests().len();
    assert!((1..=3).contains(&sent), "{sent}");
    let cost = world.status()["usage"]["cost-usd"].as_f64();
    assert!(cost.is_none_or(|usd| usd > 0.1), "{}", world.status());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_answer_that_is_no_model_s_is_the_pool_s_fault() {
    let odd = |status: u16, place: Option<&str>| Reply::Raw {
        status,
        headers: place.map(|to| ("location".to_owned(), to.to_owned())).into_iter().collect(),
        content_type: "text/html".to_owned(),
        body: String::new(),
    };
    for (status, place) in [(301, Some("https://example.org/v1")), (307, None), (418, None)] {
        let moved = scripted(move |_, _| odd(status, place)).await;
        let good = scripted(fixer).await;
        let world = world();
        let pools = [
            pool("moved", &moved, &["cost-per-mtok: 0", ONE]),
            pool("good", &good, &["account: other", "cost-per-mtok: 1"]),
        ];
        configure(&world, &pools, "");
        let cycle = world.next_step_with(SHORT);
        assert_eq!((cycle.nodes("in_review"), cycle.nodes("failed")), (3, 0), "{}", cycle.stderr);
        let told = friction(&world, "model_unavailable");
        assert_eq!(told.len(), 1, "{told:?}");
        if place.is_some() {
            let told = told[0].to_string();
            assert!(told.contains("redirects to https://example.org/v1"), "{told}");
            assert!(told.contains("correct `base-url`"), "{told}");
        }
        assert!(pool_state(&world, "moved").starts_with("out"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_attempt_whose_job_died_counts() {
    let endpoint = scripted(fixer).await;
    let mut world = world();
    configure(&world, &[pool("one", &endpoint, &[ONE])], "dispatch:\n  budget: {requests: 1}\n");
    world.set("OVERHAUL_PANIC_NODE", "N-001");
    world.next_step_with(SHORT);
    world.unset("OVERHAUL_PANIC_NODE");
    let sent = endpoint.requests().len();
    let next = world.next_step_with(&["--resume", "--time-budget", "30s"]);
    assert_eq!(endpoint.requests().len(), sent, "{} {}", next.report, next.stderr);
    assert!(reasons(&next).contains("the run's budget of requests is used up"), "{}", next.report);
}

#[test]
fn an_attempt_that_no_gateway_counts_is_one_request() {
    let world = world();
    let script = world.write(
        "worker.sh",
        "shift\nfor f in \"$@\"; do tr a-z A-Z < \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done\n",
    );
    let text = config(&script, "true", "").replace(
        "limits:\n      concurrent: 4",
        "limits:\n      requests-per-day: 2\n      concurrent: 4",
    );
    world.write("overhaul.yml", &text);
    for _ in 0..2 {
        let cycle = world.next_step_with(&["--resume", "--time-budget", "30s"]);
        assert_eq!(cycle.nodes("in_review"), 2, "{} {}", cycle.report, cycle.stderr);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_cycles_at_once_share_the_limits() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let endpoint = scripted(move |r, n| {
        let _ = tell.send(());
        if about(r, "a.txt") { Reply::Hang } else { fixer(r, n) }
    })
    .await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &[ONE])], "");
    let places = world.places();
    let mut args = vec!["next-step"];
    args.extend(places.iter().map(String::as_str));
    let silent = std::process::Stdio::null;
    let mut other = world.command(&args).stdout(silent()).stderr(silent()).spawn().unwrap();
    told.recv().await.unwrap();
    let mut own = world.places();
    *own.last_mut().unwrap() = world.path("other-work").display().to_string();
    let mut args = vec!["next-step", "--json", "--time-budget", "5s"];
    args.extend(own.iter().map(String::as_str));
    let output = world.command(&args).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let seen = String::from_utf8_lossy(&output.stderr).into_owned();
    let sent = endpoint.requests().len();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(sent, 1, "one at a time: {report} {seen}");
    assert_eq!(
        (report["status"].as_str(), report["attempts"].as_u64()),
        (Some("waiting"), Some(0))
    );
}
