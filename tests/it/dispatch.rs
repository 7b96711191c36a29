//! Pools, quota, outcomes and pauses in whole cycles: the real binary against scripted endpoints.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU32, Ordering};

use jiff::{SignedDuration, Timestamp};
use overhaul::backends::scripted::{Reply, Request, Scripted, fixer};
use serde_json::{Value, json};

use crate::support::{Cycle, World, config, findings};

mod budgets;
mod limits;
mod memory;

/// Where the clock of a test starts.
const NOON: &str = "2030-01-01T12:00:00Z";

/// A budget of time that outlasts no pause.
const SHORT: &[&str] = &["--time-budget", "30s"];

/// Three files with a finding each.
fn world() -> World {
    let mut world = World::new(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\n")]);
    write_findings(&world, &["a", "b", "c"]);
    world.set("OVERHAUL_NOW", NOON);
    world.set("KEY_ONE", "scripted-key-0001");
    world
}

fn write_findings(world: &World, names: &[&str]) {
    let list: Vec<(String, String, String)> = names
        .iter()
        .map(|n| {
            let up = n.to_uppercase();
            (up.clone(), format!("{n}.txt"), format!("replace `{n}` with `{up}`"))
        })
        .collect();
    let list: Vec<(&str, &str, &str)> =
        list.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    world.write("checkout/findings.json", &findings(&list));
}

/// One pool: its id, its endpoint and further keys.
fn pool(id: &str, endpoint: &Scripted, more: &[&str]) -> String {
    let mut text = format!(
        "  - id: {id}\n    provider: openai-compatible\n    model: scripted/fixer\n    \
         base-url: {}\n    key-env: KEY_ONE\n    context-tokens: 64000\n    output-tokens: 2000\n",
        endpoint.base_url().unwrap()
    );
    for line in more {
        let _ = writeln!(text, "    {line}");
    }
    text
}

fn configure(world: &World, pools: &[String], more: &str) {
    world.write(
        "overhaul.yml",
        &format!(
            "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n{}verify:\n  \
             commands:\n    - name: check\n      argv: [\"true\"]\n      timeout: 20s\n{more}",
            pools.concat()
        ),
    );
}

async fn scripted(script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Scripted {
    Scripted::start(script).await.unwrap()
}

fn rate_limited() -> Reply {
    Reply::error(429, "Too Many Requests", "too_many_requests")
}

/// The instant, minutes and seconds after [`NOON`].
fn after_noon(seconds: i64) -> Timestamp {
    NOON.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

fn not_before(cycle: &Cycle) -> Timestamp {
    let text = cycle.report["not-before"].as_str();
    text.unwrap_or_else(|| panic!("no time: {} {}", cycle.report, cycle.stderr)).parse().unwrap()
}

fn cause(cycle: &Cycle, node: &str) -> String {
    let nodes = cycle.report["pause"]["nodes"].as_array().cloned().unwrap_or_default();
    let found = nodes.into_iter().find(|n| n["node"] == node);
    found.map_or_else(
        || panic!("{node} does not wait: {} {}", cycle.report, cycle.stderr),
        |n| n["cause"].as_str().unwrap().to_owned(),
    )
}

fn pool_state(world: &World, id: &str) -> String {
    let status = world.status();
    let pools = status["pools"].as_array().cloned().unwrap_or_default();
    let found = pools.into_iter().find(|p| p["id"] == id);
    found.map(|p| p["state"].as_str().unwrap().to_owned()).unwrap_or_default()
}

fn friction(world: &World, kind: &str) -> Vec<Value> {
    let status = world.status();
    let all = status["friction"].as_array().cloned().unwrap_or_default();
    all.into_iter().filter(|f| f["friction"] == kind).collect()
}

fn about(request: &Request, file: &str) -> bool {
    request.body["messages"].to_string().contains(&format!("place: {file}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_bare_429_pauses_and_the_run_goes_on_by_itself() {
    let endpoint = scripted(|r, n| if n == 0 { rate_limited() } else { fixer(r, n) }).await;
    let mut world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 1}"])], "");
    let first = world.next_step_with(SHORT);
    assert_eq!(first.status(), "paused", "{}", first.stderr);
    assert_eq!(first.nodes("failed"), 0);
    let until = not_before(&first);
    assert!(until >= after_noon(60) && until < after_noon(120), "{until}");
    assert_eq!(cause(&first, "N-001"), "budget_exhausted");

    // Machines read it; nothing is asked before.
    let shown = world.status();
    assert_eq!(shown["pause"]["not-before"].as_str(), Some(until.to_string().as_str()));
    let early = world.next_step_with(SHORT);
    assert_eq!((early.status(), early.report["attempts"].as_u64()), ("paused", Some(0)));
    assert!(early.report["message"].as_str().unwrap().contains(&until.to_string()));
    assert_eq!(endpoint.requests().len(), 1);
    assert_eq!(world.status()["pause"], shown["pause"], "a pause outlives every look at it");

    world.set("OVERHAUL_NOW", &(until + SignedDuration::from_secs(1)).to_string());
    let later = world.next_step_with(SHORT);
    assert_eq!((later.status(), later.nodes("in_review")), ("waiting", 3), "{}", later.stderr);
    assert!(pool_state(&world, "one").contains("usable"));
    assert_eq!(world.node("N-001")["attempts"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn three_concurrent_429s_are_one_step_and_the_next_window_is_the_second() {
    let endpoint = scripted(|_, _| rate_limited()).await;
    let mut world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 3}"])], "");
    let first = world.next_step_with(SHORT);
    assert_eq!(endpoint.requests().len(), 3, "{}", first.stderr);
    let until = not_before(&first);
    assert!(until >= after_noon(60) && until < after_noon(120), "{until}");
    // Memory outlives the job: the next pause is the second step.
    world.set("OVERHAUL_NOW", &(until + SignedDuration::from_secs(1)).to_string());
    let second = not_before(&world.next_step_with(SHORT));
    assert!(second >= until + SignedDuration::from_secs(121), "{second}");
    assert!(second < until + SignedDuration::from_secs(181), "{second}");
    assert_eq!(friction(&world, "quota_escalation").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_is_worth_saying_of_pools_is_said_once() {
    let endpoint = scripted(|_, _| rate_limited()).await;
    let mut world = world();
    let small = pool("one", &endpoint, &["tier: standard", "limits: {concurrent: 1}"]);
    let later = pool("two", &endpoint, &["account: other"]).replace("KEY_ONE", "KEY_TWO");
    configure(&world, &[small.clone(), later.clone()], "");
    let first = world.next_step_with(SHORT);
    assert!(first.report["pools-left-out"].to_string().contains("KEY_TWO"), "{}", first.report);
    for kind in ["unknown_tier", "newly_reachable_pool", "quota_escalation"] {
        assert!(friction(&world, kind).is_empty(), "{kind}");
    }
    world.set("KEY_TWO", "scripted-key-0002");
    for _ in 0..2 {
        world.next_step_with(&["--resume", "--time-budget", "30s"]);
        for kind in ["unknown_tier", "newly_reachable_pool"] {
            let told = friction(&world, kind);
            assert_eq!((told.len(), &told[0]["discriminator"]), (1, &"two".into()), "{kind}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_stated_reset_is_honoured_and_survives_a_fresh_machine() {
    let endpoint = scripted(|_, _| rate_limited().with_header("retry-after", "1800")).await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 1}"])], "");
    let first = world.next_step_with(SHORT);
    let until = not_before(&first);
    assert!(until >= after_noon(1_800) && until < after_noon(1_860), "{until}");
    for place in ["work", "home"] {
        let _ = std::fs::remove_dir_all(world.path(place));
    }
    let fresh = world.next_step_with(SHORT);
    assert_eq!((fresh.status(), fresh.report["attempts"].as_u64()), ("paused", Some(0)));
    assert_eq!(not_before(&fresh), until);
    assert_eq!(endpoint.requests().len(), 1);
    // A person may go on at once, whatever was stated.
    let resumed = world.next_step_with(&["--resume", "--time-budget", "30s"]);
    assert_eq!(resumed.report["attempts"].as_u64(), Some(1), "{}", resumed.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_reset_of_nothing_does_not_spin() {
    let endpoint = scripted(|_, _| rate_limited().with_header("retry-after", "0")).await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 1}"])], "");
    let cycle = world.next_step_with(&["--time-budget", "4s"]);
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    assert!(endpoint.requests().len() <= 16, "{} requests", endpoint.requests().len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_413_ends_nothing_else() {
    let endpoint = scripted(|r, n| {
        if about(r, "a.txt") {
            Reply::error(413, "too large", "request_too_large")
        } else {
            fixer(r, n)
        }
    })
    .await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 1}"])], "");
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.nodes("in_review"), 2, "{}", cycle.stderr);
    assert_eq!((cycle.status(), cycle.nodes("failed")), ("paused", 0));
    assert_eq!(cause(&cycle, "N-001"), "no_capable_pool");
    assert_eq!(friction(&world, "packet_too_large").len(), 1);
    assert!(!pool_state(&world, "one").contains("out"));
    // The ban is for good and for this pool only.
    let other = scripted(fixer).await;
    let asked = endpoint.requests().len();
    configure(&world, &[pool("one", &endpoint, &[]), pool("two", &other, &["account: other"])], "");
    let next = world.next_step();
    assert_eq!(next.nodes("in_review"), 3, "{}", next.stderr);
    assert_eq!(endpoint.requests().len(), asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_one_pool_refuses_is_not_asked_of_it_again_while_another_may_take_it() {
    let strict = scripted(|_, _| {
        Reply::error(400, "messages: roles must alternate", "invalid_request_error")
    })
    .await;
    let other = scripted(|r, n| match r.headers.get("authorization").map(String::as_str) {
        Some("Bearer scripted-key-0002") => fixer(r, n),
        _ => Reply::error(401, "Incorrect API key provided", "invalid_api_key"),
    })
    .await;
    let mut world = world();
    let dear = pool("two", &other, &["account: other", "cost-per-mtok: 1"]);
    let dear = dear.replace("KEY_ONE", "KEY_TWO");
    configure(&world, &[pool("one", &strict, &["cost-per-mtok: 0"]), dear], "");
    world.set("KEY_TWO", "scripted-key-0001");
    let first = world.next_step_with(SHORT);
    assert_eq!((first.status(), first.nodes("failed")), ("paused", 0), "{}", first.stderr);
    let asked = strict.requests().len();
    // The settled pool has another key: it is back, and nobody asks the other one.
    world.set("KEY_TWO", "scripted-key-0002");
    let second = world.next_step_with(SHORT);
    assert_eq!(second.nodes("in_review"), 3, "{} {}", second.report, second.stderr);
    assert_eq!(strict.requests().len(), asked);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn declared_requests_a_minute_hold_at_launch() {
    let endpoint = scripted(fixer).await;
    let world = world();
    configure(
        &world,
        &[pool("one", &endpoint, &["limits: {requests-per-minute: 4, concurrent: 1}"])],
        "",
    );
    let cycle = world.next_step_with(SHORT);
    // One attempt takes its four requests; the next has to wait for the window.
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    assert!(endpoint.requests().len() <= 4, "{}", endpoint.requests().len());
    assert_eq!(cycle.report["pause"]["cause"], "cap_reached");
    assert!(not_before(&cycle) <= after_noon(91), "{}", cycle.report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn one_pools_far_reset_stops_no_node_beside_an_idle_pool() {
    let (small, large) = (scripted(fixer).await, scripted(fixer).await);
    let world = world();
    let limits = "limits: {requests-per-day: 2}";
    let pools = [
        pool("one", &small, &["account: mine", "cost-per-mtok: 0", limits]),
        pool("two", &large, &["account: other", "cost-per-mtok: 1"]),
    ];
    configure(&world, &pools, "");
    let cycle = world.next_step_with(SHORT);
    // The third request of the first node has no room for a day: the other pool does it at once.
    assert_eq!(small.requests().len(), 2, "{}", cycle.stderr);
    assert_eq!((cycle.status(), cycle.nodes("in_review")), ("waiting", 3), "{}", cycle.report);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn two_transports_of_one_account_are_one_meter() {
    let endpoint = scripted(fixer).await;
    for (account, attempts) in [("mine", 1), ("other", 2)] {
        let world = world();
        let limits = "limits: {requests-per-day: 1}";
        configure(
            &world,
            &[
                pool("one", &endpoint, &["backend: shared", "account: mine", limits]),
                pool(
                    "two",
                    &endpoint,
                    &["backend: shared", &format!("account: {account}"), limits],
                ),
            ],
            "",
        );
        let cycle = world.next_step_with(SHORT);
        assert_eq!(cycle.report["attempts"].as_u64(), Some(attempts), "{}", cycle.stderr);
        assert_eq!(cycle.report["pause"]["cause"], "budget_exhausted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_dial_decides_between_free_and_dear_and_a_full_pool_never_makes_work_wait() {
    let free = scripted(fixer).await;
    let dear = scripted(fixer).await;
    let of = |limits: &'static str| {
        [
            pool("a-dear", &dear, &["cost-per-mtok: 75", "account: dear"]),
            pool("free", &free, &["cost-per-mtok: 0", limits]),
        ]
    };
    let cheap = world();
    configure(&cheap, &of("limits: {concurrent: 8}"), "dispatch:\n  dial: 0\n");
    let cycle = cheap.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
    assert!(dear.requests().is_empty(), "75 a million does not beat free");

    let full = world();
    configure(&full, &of("limits: {concurrent: 1}"), "dispatch:\n  dial: 0\n");
    let cycle = full.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
    assert!(!dear.requests().is_empty(), "work waited beside an idle pool");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refused_key_settles_once_and_is_reported_once() {
    let endpoint =
        scripted(|_, _| Reply::error(401, "Incorrect API key provided", "invalid_api_key")).await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 3}"])], "");
    let cycle = world.next_step_with(SHORT);
    assert_eq!((cycle.status(), cycle.nodes("failed")), ("paused", 0), "{}", cycle.stderr);
    assert_eq!(cause(&cycle, "N-002"), "no_usable_pool");
    assert!(pool_state(&world, "one").starts_with("out (auth)"));
    assert_eq!(friction(&world, "pool_settled").len(), 1);
    let asked = endpoint.requests().len();
    let again = world.next_step_with(SHORT);
    assert_eq!((again.status(), again.report["attempts"].as_u64()), ("paused", Some(0)));
    assert_eq!(endpoint.requests().len(), asked, "a settled pool is not asked");
    assert_eq!(friction(&world, "pool_settled").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn exhausted_credit_settles_and_unsettle_lifts_it() {
    static TOPPED_UP: AtomicU32 = AtomicU32::new(0);
    let endpoint = scripted(|r, n| {
        if TOPPED_UP.load(Ordering::SeqCst) == 0 {
            Reply::error(
                429,
                "You exceeded your current quota, please check your plan and billing details.",
                "insufficient_quota",
            )
        } else {
            fixer(r, n)
        }
    })
    .await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 1}"])], "");
    let cycle = world.next_step_with(SHORT);
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    assert_eq!(cause(&cycle, "N-001"), "no_usable_pool");
    assert_eq!(cycle.report["not-before"], Value::Null, "waiting does not help");
    assert_eq!(friction(&world, "credit_exhausted").len(), 1);
    TOPPED_UP.store(1, Ordering::SeqCst);
    assert_eq!(world.next_step_with(SHORT).report["attempts"].as_u64(), Some(0));
    assert!(world.run(&["unsettle", "one"]).status.success());
    let after = world.next_step();
    assert_eq!(after.nodes("in_review"), 3, "{}", after.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_impossible_node_hides_neither_work_nor_a_reset() {
    // The first node is larger than the window; the second meets a limit; the third is done.
    let mut world =
        World::new(&[("a.txt", &"a\n".repeat(200_000)), ("b.txt", "b\n"), ("c.txt", "c\n")]);
    world.set("OVERHAUL_NOW", NOON);
    world.set("KEY_ONE", "scripted-key-0001");
    write_findings(&world, &["a", "b", "c"]);
    let endpoint = scripted(|r, n| {
        if about(r, "c.txt") {
            rate_limited().with_header("retry-after", "600")
        } else {
            fixer(r, n)
        }
    })
    .await;
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 1}"])], "");
    let cycle = world.next_step_with(&["--time-budget", "60s"]);
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    assert_eq!(cycle.nodes("in_review"), 1, "{}", cycle.report);
    assert_eq!(cause(&cycle, "N-001"), "no_capable_pool");
    assert_eq!(cause(&cycle, "N-003"), "budget_exhausted");
    assert_eq!(cycle.report["pause"]["cause"], "budget_exhausted");
    assert!(not_before(&cycle) >= after_noon(600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_end_of_a_job_s_time_is_a_pause_that_the_next_cycle_ends() {
    let endpoint = scripted(|r, n| if n < 3 { Reply::Hang } else { fixer(r, n) }).await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 3}"])], "");
    let cycle = world.next_step_with(&["--time-budget", "3s"]);
    assert_eq!((cycle.status(), cycle.nodes("failed")), ("paused", 0), "{}", cycle.stderr);
    assert_eq!(endpoint.requests().len(), 3, "they were at work: {}", cycle.stderr);
    for node in ["N-001", "N-002", "N-003"] {
        assert_eq!(cause(&cycle, node), "job_deadline");
    }
    assert!(!pool_state(&world, "one").contains("waits"));
    let next = world.next_step_with(SHORT);
    assert_eq!(next.nodes("in_review"), 3, "{}", next.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn work_in_other_jobs_is_waited_for() {
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let endpoint = scripted(move |_, _| {
        let _ = tell.send(());
        Reply::Hang
    })
    .await;
    let world = world();
    configure(&world, &[pool("one", &endpoint, &["limits: {concurrent: 3}"])], "");
    let places = world.places();
    let mut args = vec!["next-step"];
    args.extend(places.iter().map(String::as_str));
    let silent = std::process::Stdio::null;
    let mut other = world.command(&args).stdout(silent()).stderr(silent()).spawn().unwrap();
    for _ in 0..3 {
        told.recv().await.unwrap();
    }
    // The other job lives: its claims stand, and nothing is left for this one.
    let mut own = world.places();
    *own.last_mut().unwrap() = world.path("other-work").display().to_string();
    let mut args = vec!["next-step", "--json"];
    args.extend(own.iter().map(String::as_str));
    let output = world.command(&args).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    other.kill().unwrap();
    other.wait().unwrap();
    let seen = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(report["status"], "waiting", "{report} {seen}");
    assert_eq!(report["attempts"], 0);
    assert!(report["message"].as_str().unwrap().contains("at work in other jobs"), "{report}");
    assert_eq!(endpoint.requests().len(), 3);
}

#[test]
fn a_result_wins_over_the_words_of_its_log() {
    let world = world();
    let script = world.write(
        "worker.sh",
        "echo 'HTTP 429: rate limit exceeded, retry after 60 s' >&2\nshift\n\
         for f in \"$@\"; do tr a-z A-Z < \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done\n",
    );
    world.write("overhaul.yml", &config(&script, "true", ""));
    let cycle = world.next_step();
    assert_eq!(cycle.nodes("in_review"), 3, "{}", cycle.stderr);
    assert!(!pool_state(&world, "worker").contains("waits"));
}

#[test]
fn without_a_usable_pool_the_run_pauses_and_says_what_to_do() {
    let mut world = world();
    let script = world.write("worker.sh", "exit 0\n");
    let text = config(&script, "true", "").replace("command: [sh,", "command: [no-such-program,");
    world.write("overhaul.yml", &text);
    let cycle = world.next_step();
    assert_eq!((cycle.code, cycle.status()), (Some(0), "paused"), "{}", cycle.stderr);
    assert_eq!(cause(&cycle, "N-001"), "no_usable_pool");
    assert!(cycle.report["pause"].to_string().contains("no-such-program"), "{}", cycle.report);
    // A key that is missing is a reason too, and it is named.
    world.unset("KEY_ONE");
    let keyless = "  - id: one\n    provider: openai-compatible\n    model: m\n    \
                   base-url: http://127.0.0.1:9/v1\n    key-env: KEY_ONE\n";
    configure(&world, &[keyless.to_owned()], "");
    let cycle = world.next_step();
    assert_eq!(cycle.status(), "paused", "{}", cycle.stderr);
    assert!(cycle.report["pools-left-out"].to_string().contains("KEY_ONE"), "{}", cycle.report);
}

/// Calls are numbered from 1; the first six fail as if the backend was down, the first three
/// together. Each writes down that it began and ended.
const DOWN_SIX_TIMES: &str = "shift
n=1
until mkdir \"$SEEN/call-$n\" 2>/dev/null; do n=$((n+1)); done
echo \"begin $n\" >> \"$SEEN/log\"
until [ -d \"$SEEN/call-3\" ]; do sleep 0.05; done
sleep 0.2
if [ $n -gt 6 ]; then for f in \"$@\"; do tr a-z A-Z < \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done; fi
echo \"end $n\" >> \"$SEEN/log\"
[ $n -gt 6 ] || { echo 'HTTP 503 Service Unavailable' >&2; exit 1; }
";

#[test]
fn a_pool_that_is_down_is_asked_by_one_probe_at_a_time_until_it_is_back() {
    let mut world = world();
    world.set("OVERHAUL_SPEED", "60");
    let seen = world.path("seen");
    std::fs::create_dir_all(&seen).unwrap();
    let script = DOWN_SIX_TIMES.replace("$SEEN", &seen.display().to_string());
    let script = world.write("worker.sh", &script);
    world.write("overhaul.yml", &config(&script, "true", ""));
    let cycle = world.next_step_with(&["--time-budget", "60m"]);
    assert_eq!((cycle.nodes("in_review"), cycle.nodes("failed")), (3, 0), "{}", cycle.stderr);
    assert_eq!(cycle.report["attempts"], 9, "{}", cycle.report);
    // Three failures open the breaker; up to two nodes were tried again before the third one ended.
    // From then on each goes alone: one that fails, and one that does not. The others follow it.
    let log = std::fs::read_to_string(seen.join("log")).unwrap();
    let order: Vec<&str> = log.lines().collect();
    let at = order.iter().position(|line| *line == "begin 6").unwrap();
    assert_eq!(order[at..at + 4], ["begin 6", "end 6", "begin 7", "end 7"], "{log}");
    assert!(order[..at].iter().filter(|line| line.starts_with("end")).count() == 5, "{log}");
    assert!(!pool_state(&world, "worker").contains("out"), "{log}");
}

#[test]
fn a_person_pauses_and_resumes() {
    let mut world = world();
    world.set("GITHUB_ACTOR", "alice");
    let script = world.write("worker.sh", "echo X > a.txt; exit 3\n");
    world.write(
        "overhaul.yml",
        &config(&script, "true", "").replace("command: [sh,", "command: [no-such-program,"),
    );
    world.next_step();
    assert!(world.run(&["pause"]).status.success());
    // By whom and when, wherever it is told; another one's word later changes neither.
    world.set("GITHUB_ACTOR", "bob");
    assert!(world.run(&["pause"]).status.success());
    let stopped = world.next_step().report;
    assert_eq!(
        (&stopped["status"], &stopped["pause"]["cause"]),
        (&json!("paused"), &json!("operator"))
    );
    assert_eq!(stopped["pause"]["by"], "alice", "{stopped}");
    let at = stopped["pause"]["first-seen"].as_str().unwrap();
    assert!(at.starts_with("2030-01-01T12:00"), "{at}");
    assert_eq!(stopped["message"], format!("paused by alice at {at}; `resume` goes on"));
    let shown = String::from_utf8_lossy(&world.run(&["status"]).stdout).into_owned();
    assert!(shown.contains(&format!("paused by alice at {at}")), "{shown}");
    assert!(world.run(&["resume"]).status.success());
    assert_eq!(cause(&world.next_step(), "N-001"), "no_usable_pool");
}
