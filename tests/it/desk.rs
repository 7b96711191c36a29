//! Requests of running attempts before shared meters, on a clock that only moves when everybody
//! waits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use overhaul::backends::gateway::{Admission, Lack, Permit, Seen};
use overhaul::cycle::{Clock, Desk, Seat};
use overhaul::model::{
    Classification, Limits, MeterKey, NodeId, Outcome, Pool, PoolId, Provider, Usage,
};
use overhaul::scheduling::{Decision, Finish, NodeSpec, Options, PoolState, Scheduler};

const MINUTE: i64 = 60_000;

fn pool(id: &str, account: &str, limits: Limits) -> PoolState {
    PoolState::from(Pool {
        id: PoolId::new(id),
        provider: Provider::OpenaiCompatible,
        model: id.to_owned(),
        meter: MeterKey { backend: "b".to_owned(), account: account.to_owned() },
        tier: None,
        context_tokens: 100_000,
        output_tokens: 4_000,
        limits,
        cost_per_mtok: Some(0.0),
        input_scale: 1.0,
    })
}

/// The desk of a cycle with so many small nodes, on a clock that starts now.
fn desk(nodes: usize, pools: Vec<PoolState>) -> Arc<Desk> {
    let nodes = (0..nodes).map(|n| NodeSpec {
        input_tokens: 100,
        output_tokens: 50,
        ..NodeSpec::new(NodeId::new(format!("N-{n:04}")).unwrap())
    });
    let core = Scheduler::new(nodes.collect(), pools, Options::default()).unwrap();
    Desk::new(core, Clock::starting_at(Timestamp::UNIX_EPOCH))
}

fn now(start: tokio::time::Instant) -> i64 {
    i64::try_from(start.elapsed().as_millis()).unwrap()
}

/// Starts what can be started, each with its place before the meters.
fn launch(desk: &Arc<Desk>, now: i64) -> Vec<(NodeId, Arc<Seat>)> {
    let mut seats = Vec::new();
    loop {
        let decision = desk.core().next(now);
        let Decision::Start { node, pool } = decision else { return seats };
        let meter = desk.core().meter(&pool).unwrap();
        seats.push((node.clone(), desk.seat(&node, meter)));
    }
}

fn used(input: u64, output: u64) -> Seen {
    Seen { status: Some(200), usage: Some((input, output)), ..Seen::default() }
}

/// (time of arrival, input tokens) of everything that was sent.
type Sent = Arc<Mutex<Vec<(i64, u64)>>>;

/// Sends requests one after the other, of different sizes and lengths; each is a while on its way.
async fn send(seat: Arc<Seat>, seed: u64, count: usize, sent: Sent, start: tokio::time::Instant) {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..count {
        let input = random.u64(50..400);
        let permit = seat.admit(input + random.u64(0..100), 50).await.unwrap();
        tokio::time::sleep(Duration::from_millis(random.u64(0..1_500))).await;
        sent.lock().unwrap().push((now(start), input));
        permit.answered();
        tokio::time::sleep(Duration::from_millis(random.u64(20..3_000))).await;
        permit.settle(&used(input, 20));
    }
}

/// The most requests and input tokens that any minute saw.
fn fullest(sent: &[(i64, u64)]) -> (usize, u64) {
    let inside = |at: i64| sent.iter().filter(move |(t, _)| (at..at + MINUTE).contains(t));
    let of = |at: i64| (inside(at).count(), inside(at).map(|(_, tokens)| tokens).sum::<u64>());
    sent.iter().map(|(at, _)| of(*at)).fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

async fn thousand(limits: Limits, pools: usize) -> (Vec<(i64, u64)>, i64) {
    let start = tokio::time::Instant::now();
    let pools = (0..pools).map(|n| pool(&format!("p{n}"), "one", limits)).collect();
    let desk = desk(40, pools);
    let sent = Sent::default();
    let seats = launch(&desk, 0);
    assert_eq!(seats.len(), 40);
    let seats = seats.into_iter().enumerate();
    let work = seats.map(|(n, (_, seat))| send(seat, n as u64, 25, Arc::clone(&sent), start));
    let tasks: Vec<_> = work.map(tokio::spawn).collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut sent = sent.lock().unwrap().clone();
    sent.sort_unstable();
    assert_eq!(sent.len(), 1_000);
    (sent, now(start))
}

#[tokio::test(start_paused = true)]
async fn a_thousand_requests_are_never_above_a_window_and_use_it() {
    // 1 000 requests at 120 a minute: the last 40 go out after eight full windows.
    let limits = Limits { requests_per_minute: Some(120), ..Limits::default() };
    let (sent, took) = thousand(limits, 1).await;
    assert_eq!(fullest(&sent).0, 120);
    let last = sent.last().unwrap().0;
    assert!(last >= 8 * MINUTE && last * 95 <= 8 * MINUTE * 100, "{last} ms, {took} ms in all");

    let limits = Limits { input_tokens_per_minute: Some(30_000), ..Limits::default() };
    let (sent, _) = thousand(limits, 1).await;
    let (_, tokens) = fullest(&sent);
    let all: u64 = sent.iter().map(|(_, tokens)| tokens).sum();
    let last = sent.last().unwrap().0;
    assert!(tokens <= 30_000, "{tokens}");
    // Full windows of a minute, but for what one request did not fit into.
    let ideal = i64::try_from(all / 30_000).unwrap() * MINUTE;
    assert!(last * 90 <= ideal * 100, "{last} ms for {all} tokens");
}

#[tokio::test(start_paused = true)]
async fn two_transports_of_one_account_share_one_window() {
    let limits =
        Limits { requests_per_minute: Some(100), concurrent: Some(40), ..Limits::default() };
    let (sent, _) = thousand(limits, 2).await;
    assert_eq!(fullest(&sent).0, 100);
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_woken_in_order_and_when_there_is_room() {
    // How long the first answer takes, and how long its place is kept after the minute.
    for (answers, kept) in [(0, 0), (700, 700), (9_000, 2_000)] {
        woken(answers, kept).await;
    }
}

async fn woken(answers: u64, kept: i64) {
    let start = tokio::time::Instant::now();
    let limits = Limits { requests_per_minute: Some(1), ..Limits::default() };
    let desk = desk(3, vec![pool("p", "one", limits)]);
    let (_, seat) = launch(&desk, 0).remove(0);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for n in 0..4 {
        let (seat, order) = (Arc::clone(&seat), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            let permit = seat.admit(10, 10).await.unwrap();
            order.lock().unwrap().push((n, now(start)));
            tokio::time::sleep(Duration::from_millis(answers)).await;
            permit.settle(&used(10, 10));
        }));
        tokio::task::yield_now().await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    assert_eq!(order.iter().map(|o| o.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
    for (n, at) in order {
        // A window keeps a request until the backend has surely counted it.
        assert!((0..10).contains(&(at - n * (MINUTE + kept))), "{n} at {at}");
    }
    // New attempts come behind them, and the launch of the first was not booked beside its requests.
    assert!(launch(&desk, 60_000).is_empty());
}

#[tokio::test(start_paused = true)]
async fn requests_are_booked_once() {
    let limits = Limits { requests_per_minute: Some(4), ..Limits::default() };
    let desk = desk(4, vec![pool("p", "one", limits)]);
    let (node, seat) = {
        let Decision::Start { node, pool } = desk.core().next(0) else { panic!("no start") };
        let meter = desk.core().meter(&pool).unwrap();
        let seat = desk.seat(&node, meter);
        (node, seat)
    };
    for _ in 0..3 {
        seat.admit(10, 10).await.unwrap().settle(&used(10, 10));
    }
    let mut finish = Finish::new(Outcome::Success);
    finish.usage = Some(Usage { requests: 3, input_tokens: 30, output_tokens: 30, cost_usd: 0.0 });
    desk.change(|core| core.finished(&node, &finish, 10)).unwrap();
    assert_eq!(launch(&desk, 10).len(), 1, "one of four is left");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_sends_no_more_at_once_than_the_pool_takes() {
    let limits = Limits { concurrent: Some(2), ..Limits::default() };
    let desk = desk(1, vec![pool("p", "one", limits)]);
    let (_, seat) = launch(&desk, 0).remove(0);
    let first = seat.admit(10, 10).await.unwrap();
    let _second = seat.admit(10, 10).await.unwrap();
    let third = {
        let seat = Arc::clone(&seat);
        tokio::spawn(async move { seat.admit(10, 10).await.is_ok() })
    };
    tokio::task::yield_now().await;
    assert!(!third.is_finished());
    first.settle(&used(1, 1));
    assert!(third.await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn what_an_answer_says_corrects_the_windows_and_a_far_reset_is_not_waited_for() {
    let start = tokio::time::Instant::now();
    let desk = desk(2, vec![pool("p", "one", Limits::default())]);
    let (_, seat) = launch(&desk, 0).remove(0);
    let headers = [("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", "30s")];
    let headers: BTreeMap<_, _> =
        headers.into_iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
    let permit = seat.admit(10, 10).await.unwrap();
    permit.settle(&Seen { headers, ..used(10, 10) });
    let permit = seat.admit(10, 10).await.unwrap();
    assert!((30_000..30_010).contains(&now(start)), "{}", now(start));
    assert!(seat.held_back().is_none());

    let failure = Classification {
        temporary: false,
        outcome: Outcome::RateLimited,
        reset_seconds: Some(1_800.0),
        reset_at: None,
        rule: "r".to_owned(),
        evidence: String::new(),
    };
    permit.settle(&Seen { status: Some(429), failure: Some(failure), ..Seen::default() });
    let refused = seat.admit(10, 10).await.err().unwrap();
    assert_eq!(refused.lack, Lack::Room);
    assert!(refused.retry_after.is_some_and(|wait| wait.as_secs().abs_diff(1_800) < 2));
    assert_eq!(seat.held_back().unwrap().0, refused);
    assert!(now(start) < 31_000, "it was said at once");

    // What can never fit is said as it is.
    let limits = Limits { input_tokens_per_minute: Some(1_000), ..Limits::default() };
    let desk = self::desk(1, vec![pool("p", "two", limits)]);
    let (_, seat) = launch(&desk, 0).remove(0);
    assert_eq!(seat.admit(1_001, 1).await.err().unwrap().lack, Lack::Fit);
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_is_lost_counts_as_estimated_and_frees_its_place() {
    let limits =
        Limits { output_tokens_per_minute: Some(100), concurrent: Some(1), ..Limits::default() };
    let start = tokio::time::Instant::now();
    let desk = desk(1, vec![pool("p", "one", limits)]);
    let (_, seat) = launch(&desk, 0).remove(0);
    let permit: Box<dyn Permit> = seat.admit(10, 60).await.unwrap();
    drop(permit);
    drop(seat.admit(10, 40).await.unwrap());
    assert_eq!(now(start), 0);
    drop(seat.admit(10, 40).await.unwrap());
    assert!(now(start) >= MINUTE);
}
