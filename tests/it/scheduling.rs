//! The scheduling core as a driver uses it: outcomes, pauses, selection, walls, partition.

use overhaul::ledger::{Burn, PauseCause};
use overhaul::model::{Limits, MeterKey, NodeId, Outcome, Pool, PoolId, Provider, Tier, Usage};
use overhaul::scheduling::decide::{CyclePlan, FrontierView, decide};
use overhaul::scheduling::partition::partition;
use overhaul::scheduling::pools::{Declared, Dropped, Reach, eligible};
use overhaul::scheduling::{
    Admission, Asked, Budgets, Ceiling, Decision, Dimension, Effect, Estimate, Finish, LimitHint,
    Meters, NodeSpec, NodeState, NodeWall, Options, PoolState, Scheduler, Settled, Used,
};

fn id(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

fn node(text: &str) -> NodeSpec {
    NodeSpec { service: Some(10_000), ..NodeSpec::new(id(text)) }
}

fn pool(name: &str) -> PoolState {
    PoolState::from(Pool {
        id: PoolId::new(name),
        provider: Provider::OpenaiCompatible,
        model: name.to_owned(),
        meter: MeterKey { backend: name.to_owned(), account: "a".to_owned() },
        tier: Some(Tier::Standard),
        context_tokens: 100_000,
        output_tokens: 8_000,
        limits: Limits::default(),
        cost_per_mtok: Some(1.0),
        input_scale: 1.0,
    })
}

fn limited(name: &str, concurrent: u32) -> PoolState {
    let mut p = pool(name);
    p.pool.limits.concurrent = Some(concurrent);
    p
}

fn scheduler(nodes: Vec<NodeSpec>, pools: Vec<PoolState>) -> Scheduler {
    Scheduler::new(nodes, pools, Options::default()).unwrap()
}

fn start(s: &mut Scheduler, now: i64) -> (String, String) {
    match s.next(now) {
        Decision::Start { node, pool, .. } => (node.to_string(), pool.0),
        other => panic!("expected a start, got {other:?}"),
    }
}

fn starts(s: &mut Scheduler, now: i64) -> Vec<(String, String)> {
    let mut out = Vec::new();
    while let Decision::Start { node, pool, .. } = s.next(now) {
        out.push((node.to_string(), pool.0));
    }
    out
}

fn wall(s: &mut Scheduler, now: i64) -> Vec<NodeWall> {
    match s.next(now) {
        Decision::Wall(walls) => walls,
        other => panic!("expected a wall, got {other:?}"),
    }
}

fn succeed(s: &mut Scheduler, node: &str, now: i64) {
    s.finished(&id(node), &Finish::new(Outcome::Success), now).unwrap();
    s.landed(&id(node));
}

#[test]
fn a_free_pool_that_charges_is_noticed_without_a_gateway() {
    let mut free = pool("free");
    free.pool.cost_per_mtok = Some(0.0);
    let mut s = scheduler(vec![node("A"), node("B")], vec![free]);
    let mut end = |name: &str, cost_usd: f64| {
        start(&mut s, 0);
        let mut finish = Finish::new(Outcome::Success);
        finish.usage =
            Some(Usage { requests: 3, input_tokens: 900_000, output_tokens: 100_000, cost_usd });
        s.finished(&id(name), &finish, 1).unwrap();
        s.drifts()
    };
    assert!(end("A", 0.0).is_empty());
    assert_eq!(end("B", 4.5), [(PoolId::new("free"), 4.5)]);
}

#[test]
fn a_probe_whose_node_is_taken_out_leaves_the_pool_to_the_next() {
    let mut s = scheduler(vec![node("A"), node("B"), node("C")], vec![pool("p")]);
    for (name, _) in starts(&mut s, 0) {
        s.finished(&id(&name), &Finish::new(Outcome::Transient), 1).unwrap();
    }
    let Decision::Wait { until: Some(at) } = s.next(2) else { panic!("the breaker is open") };
    let probe = start(&mut s, at).0;
    assert!(starts(&mut s, at).is_empty(), "one probe at a time");
    s.take_out(&id(&probe), false);
    assert_ne!(start(&mut s, at).0, probe);
}

#[test]
fn an_attempt_without_an_end_gives_its_budget_back_and_one_in_vain_has_used_it() {
    let budget = |tokens| {
        let run = Ceiling { tokens: Some(tokens), ..Ceiling::default() };
        let options =
            Options { budgets: Budgets { run, ..Budgets::default() }, ..Options::default() };
        Scheduler::new(vec![node("A"), node("B")], vec![pool("p")], options).unwrap()
    };
    // An attempt is expected to need 10 000 tokens.
    let mut s = budget(15_000);
    assert_eq!(starts(&mut s, 0).len(), 1);
    s.take_out(&id("A"), false);
    assert_eq!(start(&mut s, 1).0, "B");

    let mut s = budget(25_000);
    s.take_out(&id("B"), false);
    start(&mut s, 0);
    s.in_vain(&id("A"), Usage { input_tokens: 20_000, ..Usage::default() });
    assert_eq!(wall(&mut s, 1).len(), 1);
}

#[test]
fn estimates_follow_what_the_backend_reports() {
    let mut p = pool("p");
    p.pool.limits.input_tokens_per_minute = Some(150_000);
    let mut s = scheduler(vec![node("A"), node("B")], vec![p]);
    let of = |input_tokens| Estimate { input_tokens, output_tokens: 0 };
    let mut now = 0;
    start(&mut s, now);
    for _ in 0..10 {
        now += 61_000;
        let Asked::Granted(request) = s.admit(&id("A"), now, now, of(20_000)) else { panic!() };
        let tokens = Some(of(30_000));
        s.settle_request(request, Used { tokens, ..Used::default() }, &[], now);
    }
    let scale = s.input_scale(&PoolId::new("p")).unwrap();
    assert!((1.4..1.5).contains(&scale), "{scale}");
    // 80 000 at four bytes are more than half of the window, as this backend counts.
    now += 61_000;
    let Asked::Granted(_) = s.admit(&id("A"), now, now, of(80_000)) else { panic!() };
    assert!(matches!(s.admit(&id("A"), now, now, of(40_000)), Asked::WaitUntil(_)));
    // What reports less than it can for each request counts in something else.
    for _ in 0..100 {
        now += 61_000;
        let Asked::Granted(request) = s.admit(&id("A"), now, now, of(20_000)) else { panic!() };
        let tokens = Some(of(1));
        s.settle_request(request, Used { tokens, ..Used::default() }, &[], now);
    }
    assert_eq!(s.input_scale(&PoolId::new("p")), Some(0.5));
}

#[test]
fn a_node_is_measured_as_the_pool_counts() {
    let mut big = node("A");
    big.input_tokens = 60_000;
    let mut p = pool("p");
    assert_eq!(starts(&mut scheduler(vec![big.clone()], vec![p.clone()]), 0).len(), 1);
    p.pool.input_scale = 2.0;
    assert_eq!(wall(&mut scheduler(vec![big], vec![p]), 0).len(), 1);
}

#[test]
fn a_node_starts_the_moment_its_dependencies_are_done() {
    let mut c = node("C");
    c.depends_on = vec![id("A")];
    let mut d = node("D");
    d.after = vec![id("B")];
    let mut s = scheduler(vec![node("A"), node("B"), c, d], vec![pool("p")]);
    let first: Vec<_> = starts(&mut s, 0).into_iter().map(|x| x.0).collect();
    assert_eq!(first, ["A", "B"]);
    assert_eq!(s.next(0), Decision::Wait { until: None });
    succeed(&mut s, "A", 5_000);
    assert_eq!(starts(&mut s, 5_000), [("C".to_owned(), "p".to_owned())]);
    // An `after` edge waits for the end, whatever it is; a hard edge is blocked by a failure.
    for t in 1..=2 {
        s.finished(&id("B"), &Finish::new(Outcome::Error), 5_000 + t).unwrap();
        if t == 1 {
            assert_eq!(start(&mut s, 5_000 + t).0, "B");
        }
    }
    assert_eq!(s.state(&id("B")), Some(NodeState::Failed));
    assert_eq!(start(&mut s, 6_000).0, "D");
    succeed(&mut s, "C", 7_000);
    succeed(&mut s, "D", 7_000);
    assert_eq!(s.next(7_000), Decision::Done);
}

#[test]
fn a_failed_dependency_blocks_the_dependents_of_dependents() {
    let mut b = node("B");
    b.depends_on = vec![id("A")];
    let mut c = node("C");
    c.depends_on = vec![id("B")];
    let mut s = scheduler(vec![node("A"), b, c, node("Z")], vec![pool("p")]);
    starts(&mut s, 0);
    let mut last = None;
    for t in 1..=2 {
        last = s.finished(&id("A"), &Finish::new(Outcome::InvalidResult), t);
        starts(&mut s, t);
    }
    let last = last.unwrap();
    assert_eq!((last.state, last.burn), (NodeState::Failed, Burn::Contract));
    assert_eq!(last.effects.len(), 2);
    assert_eq!(s.state(&id("C")), Some(NodeState::Blocked));
    succeed(&mut s, "Z", 9);
    assert_eq!(s.next(9), Decision::Done);
}

#[test]
fn dependencies_fail_closed() {
    let mut a = node("A");
    a.depends_on = vec![id("ghost")];
    let error = Scheduler::new(vec![a], vec![pool("p")], Options::default()).unwrap_err();
    assert!(error.to_string().contains("ghost"), "{error}");
    let (mut a, mut b) = (node("A"), node("B"));
    a.after = vec![id("B")];
    b.depends_on = vec![id("A")];
    let error = Scheduler::new(vec![a, b], vec![pool("p")], Options::default()).unwrap_err();
    assert!(error.to_string().contains("circle"), "{error}");
}

#[test]
fn causes_are_per_node() {
    let mut big = node("big");
    big.input_tokens = 96_000;
    let mut small = pool("small");
    small.pool.context_tokens = 32_000;
    let mut s = scheduler(vec![big, node("ok")], vec![small.clone()]);
    assert_eq!(start(&mut s, 0).0, "ok");
    let reset = 3_600_000;
    let finish = Finish { reset_at: Some(reset), ..Finish::new(Outcome::RateLimited) };
    s.finished(&id("ok"), &finish, 1_000).unwrap();
    // The impossible node does not hide the reset.
    assert_eq!(s.next(1_000), Decision::Wait { until: Some(reset) });
    let walls = s.walls(1_000);
    assert_eq!(walls[0].cause, PauseCause::NoCapablePool);
    assert!(walls[0].reason().contains("98000") && walls[0].reason().contains("32000"));
    assert_eq!((walls[1].cause, walls[1].not_before), (PauseCause::BudgetExhausted, Some(reset)));
    assert_eq!(start(&mut s, reset).0, "ok");
    succeed(&mut s, "ok", reset + 1);
    let walls = wall(&mut s, reset + 1);
    assert_eq!(walls.len(), 1);
    assert_eq!(walls[0].node, id("big"));
}

#[test]
fn it_pauses_and_resumes_by_itself() {
    let mut s = scheduler(vec![node("A")], vec![pool("p")]);
    start(&mut s, 0);
    let end = s.finished(&id("A"), &Finish::new(Outcome::RateLimited), 500).unwrap();
    assert_eq!((end.state, end.burn), (NodeState::Ready, Burn::None));
    assert_eq!(s.next(500), Decision::Wait { until: Some(60_500) });
    assert_eq!(start(&mut s, 60_500).0, "A");
}

#[test]
fn only_dispatched_nodes_can_fail() {
    let mut s = scheduler(vec![node("A"), node("B")], vec![limited("p", 1)]);
    start(&mut s, 0);
    assert_eq!(s.finished(&id("B"), &Finish::new(Outcome::Error), 1), None);
    assert_eq!(s.finished(&id("ghost"), &Finish::new(Outcome::Error), 1), None);
    assert_eq!(s.state(&id("B")), Some(NodeState::Ready));
}

#[test]
fn what_is_handed_out_takes_its_place_in_the_meter() {
    let nodes = || vec![node("A"), node("B"), node("C")];
    let mut s = scheduler(nodes(), vec![limited("p", 2)]);
    assert!(s.adopt(&id("A"), &PoolId::new("p"), 0));
    assert!(!s.adopt(&id("A"), &PoolId::new("p"), 0), "once");
    assert!(!s.adopt(&id("B"), &PoolId::new("gone"), 0));
    assert_eq!(starts(&mut s, 1), [("B".to_owned(), "p".to_owned())], "one slot is taken");
    // Its end is like any other: the pool learns of it, and the slot is free.
    let finished = s.finished(&id("A"), &Finish::new(Outcome::Success), 2).unwrap();
    assert_eq!(finished.state, NodeState::Landing);
    assert_eq!(starts(&mut s, 2), [("C".to_owned(), "p".to_owned())]);
    // Nothing here waits for what is at work elsewhere.
    let mut s = scheduler(nodes(), vec![limited("p", 1)]);
    s.adopt(&id("A"), &PoolId::new("p"), 0);
    let walls = wall(&mut s, 1);
    assert!(walls.iter().all(|w| w.cause == PauseCause::CapReached), "{walls:?}");
}

#[test]
fn windows_hold_at_launch() {
    let mut p = pool("p");
    p.pool.limits.requests_per_minute = Some(1);
    let nodes = (0..8).map(|n| node(&format!("N{n}"))).collect();
    let mut s = scheduler(nodes, vec![p]);
    assert_eq!(starts(&mut s, 0).len(), 1);
    assert_eq!(s.next(0), Decision::Wait { until: Some(60_000) });
    assert_eq!(starts(&mut s, 59_999).len(), 0);
    assert_eq!(starts(&mut s, 60_000).len(), 1);
}

#[test]
fn two_pools_of_one_account_are_one_meter() {
    let (mut a, mut b) = (limited("a", 2), pool("b"));
    b.pool.meter = a.pool.meter.clone();
    a.pool.limits.requests_per_minute = Some(3);
    let nodes = (0..8).map(|n| node(&format!("N{n}"))).collect();
    let mut s = scheduler(nodes, vec![a, b]);
    assert_eq!(starts(&mut s, 0).len(), 2);
}

#[test]
fn the_dial_decides() {
    let run = |dial: f64| {
        let (mut free, mut dear) = (pool("free"), pool("dear"));
        free.pool.cost_per_mtok = Some(0.0);
        free.service.speed = 0.5;
        dear.pool.cost_per_mtok = Some(75.0);
        let mut unknown = pool("another");
        unknown.pool.cost_per_mtok = None;
        unknown.service.speed = 0.9;
        let options = Options { dial, ..Options::default() };
        let mut s = Scheduler::new(vec![node("A")], vec![free, dear, unknown], options).unwrap();
        start(&mut s, 0).1
    };
    assert_eq!(run(0.0), "free");
    assert_eq!(run(1.0), "dear");
}

#[test]
fn the_next_fitting_pool_is_taken() {
    let mut cheap = limited("cheap", 1);
    cheap.pool.cost_per_mtok = Some(0.0);
    let mut s = scheduler(vec![node("A"), node("B")], vec![cheap, limited("next", 1)]);
    let pools: Vec<_> = starts(&mut s, 0).into_iter().map(|x| x.1).collect();
    assert_eq!(pools, ["cheap", "next"]);
}

#[test]
fn the_floor_is_relative_and_unknown_passes() {
    let mut deep = node("A");
    deep.tier = Tier::Deep;
    let mut s = scheduler(vec![deep.clone()], vec![pool("standard")]);
    assert_eq!(start(&mut s, 0).1, "standard");
    let mut best = pool("z-deep");
    best.pool.tier = Some(Tier::Deep);
    let mut s = scheduler(vec![deep.clone()], vec![pool("standard"), best]);
    assert_eq!(start(&mut s, 0).1, "z-deep");
    let mut unknown = pool("unknown");
    unknown.pool.tier = None;
    let mut s = scheduler(vec![deep], vec![pool("standard"), unknown]);
    assert_eq!(start(&mut s, 0).1, "unknown");
    assert_eq!(s.unknown_tier().count(), 1);
}

#[test]
fn the_tier_closest_above_the_floor_then_continuity_then_load() {
    let mut deep = pool("a-deep");
    deep.pool.tier = Some(Tier::Deep);
    let mut b = node("B");
    b.depends_on = vec![id("A")];
    let mut s = scheduler(vec![node("A"), b], vec![deep, pool("m"), pool("n")]);
    assert_eq!(start(&mut s, 0).1, "m");
    succeed(&mut s, "A", 1);
    assert_eq!(start(&mut s, 1).1, "m");
    let mut s =
        scheduler(vec![node("A"), node("B"), node("C")], vec![limited("m", 3), limited("n", 3)]);
    let pools: Vec<_> = starts(&mut s, 0).into_iter().map(|x| x.1).collect();
    assert_eq!(pools, ["m", "n", "m"]);
}

#[test]
fn scarce_pools_are_kept_for_nodes_that_only_they_fit() {
    let mut wide = limited("a-wide", 1);
    wide.pool.context_tokens = 200_000;
    let mut big = node("Z-big");
    big.input_tokens = 150_000;
    let mut s = scheduler(vec![node("A"), big], vec![wide, limited("b", 1)]);
    let mut got = starts(&mut s, 0);
    got.sort();
    let want = [("A", "b"), ("Z-big", "a-wide")];
    assert_eq!(got, want.map(|(n, p)| (n.to_owned(), p.to_owned())));
}

#[test]
fn longest_remaining_path_first_then_severity_then_id() {
    let mut tail = node("T");
    tail.depends_on = vec![id("Y")];
    let mut x = node("X");
    x.severity = overhaul::model::Severity::Critical;
    let mut s = scheduler(vec![node("A"), x, node("Y"), tail], vec![limited("p", 1)]);
    let mut order = Vec::new();
    for t in 0..4 {
        let (n, _) = start(&mut s, t);
        succeed(&mut s, &n, t);
        order.push(n);
    }
    assert_eq!(order, ["Y", "X", "A", "T"]);
}

#[test]
fn headers_correct_the_meters() {
    let mut s = scheduler((0..4).map(|n| node(&format!("N{n}"))).collect(), vec![pool("p")]);
    let hint = LimitHint { dimension: Dimension::Requests, remaining: 1, reset_at: 9_000 };
    s.update_limits(&PoolId::new("p"), hint, 0);
    assert_eq!(starts(&mut s, 0).len(), 1);
    assert_eq!(s.next(0), Decision::Wait { until: Some(9_000) });
    assert_eq!(starts(&mut s, 9_000).len(), 3);
}

#[test]
fn one_step_per_pause_window() {
    let mut s = scheduler((0..4).map(|n| node(&format!("N{n}"))).collect(), vec![pool("p")]);
    assert_eq!(starts(&mut s, 0).len(), 4);
    let mut steps = Vec::new();
    for n in 0..3 {
        let end = s.finished(&id(&format!("N{n}")), &Finish::new(Outcome::RateLimited), 1_000 + n);
        steps.extend(end.unwrap().effects);
    }
    let paused = steps.iter().filter(|e| matches!(e, Effect::Paused { .. })).count();
    let learned: Vec<_> = steps
        .iter()
        .filter_map(|e| match e {
            Effect::Learned { limits, .. } => limits.concurrent,
            _ => None,
        })
        .collect();
    assert_eq!(paused, 1);
    assert_eq!(learned.len(), 1);
    assert_eq!(s.next(1_100), Decision::Wait { until: Some(61_000) });
}

#[test]
fn learning_never_ratchets_down_on_success() {
    let mut m = Meters::new();
    let key = MeterKey { backend: "b".to_owned(), account: "a".to_owned() };
    let ix = m.declare(&key, Limits::default());
    for t in 0..100 {
        m.succeeded(ix, t, t + 1);
        assert_eq!(m.free_slots(ix), None, "no limit is learned from success");
    }
    for _ in 0..8 {
        assert!(matches!(m.launch(ix, 100, Estimate::default()), Admission::Granted(_)));
    }
    assert_eq!(m.limit_hit(ix, 100, 200, true).unwrap().concurrent, Some(4));
    assert_eq!(m.limit_hit(ix, 150, 201, true), None);
    let mut before = 4;
    for t in 300..400 {
        m.succeeded(ix, t, t + 1);
        let now = m.limits(ix).concurrent.unwrap();
        assert!(now >= before);
        before = now;
    }
    assert!(before > 10, "{before}");
}

#[test]
fn settled_until_then() {
    let mut s = scheduler(vec![node("A"), node("B")], vec![limited("p", 1)]);
    start(&mut s, 0);
    let finish = Finish {
        temporary: true,
        reset_at: Some(50_000),
        ..Finish::new(Outcome::ModelUnavailable)
    };
    let end = s.finished(&id("A"), &finish, 1_000).unwrap();
    let settled = Settled { outcome: Outcome::ModelUnavailable, until: Some(50_000) };
    assert_eq!(end.effects, [Effect::Settled { pool: PoolId::new("p"), settled }]);
    assert_eq!(s.next(1_000), Decision::Wait { until: Some(50_000) });
    start(&mut s, 50_000);
    let end = s.finished(&id("A"), &Finish::new(Outcome::Success), 51_000).unwrap();
    assert_eq!(end.effects, [Effect::Restored { pool: PoolId::new("p") }]);
}

#[test]
fn it_persists_and_exits_when_the_wait_outlasts_the_job() {
    let options = Options { deadline: Some(600_000), ..Options::default() };
    let mut s = Scheduler::new(vec![node("A")], vec![pool("p")], options).unwrap();
    start(&mut s, 0);
    let reset = 3 * 3_600_000;
    let finish = Finish { reset_at: Some(reset), ..Finish::new(Outcome::RateLimited) };
    s.finished(&id("A"), &finish, 1).unwrap();
    let walls = wall(&mut s, 1);
    assert_eq!((walls[0].cause, walls[0].not_before), (PauseCause::BudgetExhausted, Some(reset)));
}

#[test]
fn estimates_are_corrected_by_usage() {
    let mut p = pool("p");
    p.pool.limits.input_tokens_per_minute = Some(10_000);
    let mut s = scheduler(vec![node("A"), node("B")], vec![p]);
    assert_eq!(starts(&mut s, 0).len(), 1);
    let usage = Usage { requests: 1, input_tokens: 1_000, output_tokens: 10, cost_usd: 0.0 };
    let finish = Finish { usage: Some(usage), ..Finish::new(Outcome::Success) };
    s.finished(&id("A"), &finish, 5_000).unwrap();
    assert_eq!(start(&mut s, 5_000).0, "B");
}

#[test]
fn exclusions_persist_and_settled_pools_are_never_offered_again() {
    let nodes = (0..6).map(|n| node(&format!("N{n}"))).collect();
    let mut s = scheduler(nodes, vec![limited("a", 1), limited("b", 1)]);
    let first = starts(&mut s, 0);
    s.finished(&id(&first[0].0), &Finish::new(Outcome::CreditExhausted), 1).unwrap();
    let mut now = 2;
    let mut open = vec![first[1].0.clone()];
    while let Some(n) = open.pop() {
        succeed(&mut s, &n, now);
        for (n, p) in starts(&mut s, now) {
            assert_eq!(p, "b");
            open.push(n);
        }
        now += 1;
    }
    assert_eq!(s.next(now), Decision::Done);
}

#[test]
fn a_timeout_is_a_first_class_outcome() {
    let mut s = scheduler(vec![node("A")], vec![limited("a", 1), limited("b", 1)]);
    let mut now = 0;
    let mut burns = 0;
    loop {
        match s.next(now) {
            Decision::Start { .. } => {
                let end = s.finished(&id("A"), &Finish::new(Outcome::Timeout), now + 1).unwrap();
                burns += u32::from(end.burn == Burn::Infrastructure);
                now += 1;
            }
            Decision::Wait { until: Some(at) } => now = at,
            Decision::Done => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(burns, 5);
    assert_eq!(s.state(&id("A")), Some(NodeState::Failed));
}

#[test]
fn a_size_ban_is_for_this_node_and_pool_only() {
    let mut s = scheduler(vec![node("A"), node("B")], vec![limited("a", 1), limited("b", 1)]);
    assert_eq!(starts(&mut s, 0).len(), 2);
    let end = s.finished(&id("A"), &Finish::new(Outcome::PacketTooLarge), 1).unwrap();
    assert_eq!((end.state, end.burn), (NodeState::Ready, Burn::None));
    assert!(matches!(&end.effects[..], [Effect::Banned { tokens: 8_000, .. }]));
    succeed(&mut s, "B", 2);
    assert_eq!(start(&mut s, 2), ("A".to_owned(), "b".to_owned()));
    s.finished(&id("A"), &Finish::new(Outcome::PacketTooLarge), 3).unwrap();
    assert_eq!(wall(&mut s, 3)[0].cause, PauseCause::NoCapablePool);
}

#[test]
fn a_refusal_here_lets_another_pool_try() {
    let mut s = scheduler(vec![node("A")], vec![limited("a", 1), limited("b", 1)]);
    assert_eq!(start(&mut s, 0).1, "a");
    let end = s.finished(&id("A"), &Finish::new(Outcome::ContentFiltered), 1).unwrap();
    assert_eq!((end.state, end.burn), (NodeState::Ready, Burn::Contract));
    assert_eq!(start(&mut s, 1).1, "b");
}

fn of_money(usd: f64) -> Options {
    let run = Ceiling { usd: Some(usd), ..Ceiling::default() };
    Options { budgets: Budgets { run, ..Budgets::default() }, ..Options::default() }
}

#[test]
fn a_budget_is_a_pause_and_free_pools_go_on() {
    let options = of_money(0.015);
    let nodes = vec![node("A"), node("B")];
    let mut s = Scheduler::new(nodes.clone(), vec![limited("p", 1)], options).unwrap();
    start(&mut s, 0);
    succeed(&mut s, "A", 1);
    assert_eq!(wall(&mut s, 1)[0].cause, PauseCause::BudgetExhausted);
    let mut free = limited("q", 1);
    free.pool.cost_per_mtok = Some(0.0);
    let options = of_money(0.0);
    let mut s = Scheduler::new(nodes, vec![limited("p", 1), free], options).unwrap();
    assert_eq!(starts(&mut s, 0).len(), 1);
}

#[test]
fn requests_of_an_attempt_are_taken_from_the_budgets_one_by_one() {
    let run = Ceiling { requests: Some(3), ..Ceiling::default() };
    let options = Options { budgets: Budgets { run, ..Budgets::default() }, ..Options::default() };
    let nodes = vec![node("A"), node("B")];
    let mut s = Scheduler::new(nodes, vec![limited("p", 1)], options).unwrap();
    start(&mut s, 0);
    let need = Estimate { input_tokens: 10, output_tokens: 10 };
    for _ in 0..3 {
        let Asked::Granted(request) = s.admit(&id("A"), 1, 1, need) else { panic!("refused") };
        s.settle_request(request, Used::default(), &[], 2);
    }
    let Asked::OverBudget(over) = s.admit(&id("A"), 3, 3, need) else { panic!("let through") };
    assert_eq!(over.text(), "the run's budget of requests is used up");
    s.held_back(&id("A"), 3);
    let walls = wall(&mut s, 3);
    assert_eq!(walls.len(), 2);
    assert!(walls.iter().all(|w| w.cause == PauseCause::BudgetExhausted));
    assert!(walls[0].reason().contains("the run's budget of requests"), "{}", walls[0].reason());
    assert!(matches!(s.admit(&id("A"), 4, 4, need), Asked::NotRunning));
}

#[test]
fn shares_follow_real_capacity() {
    let mut host = pool("host");
    host.pool.provider = Provider::Host;
    let nodes: Vec<_> = (0..30).map(|n| node(&format!("N{n:02}"))).collect();
    let shares =
        partition(&nodes, &[limited("a", 6), limited("b", 4)], &[host.clone()], 5).unwrap();
    assert_eq!((shares.in_process.len(), shares.host.len()), (20, 10));
    assert!(shares.in_process.iter().all(|n| !shares.host.contains(n)));
    let mut wide = node("wide");
    wide.input_tokens = 150_000;
    let mut giant = node("giant");
    giant.input_tokens = 900_000;
    host.pool.context_tokens = 200_000;
    let shares = partition(&[wide, giant], &[limited("a", 6)], &[host], 1).unwrap();
    assert_eq!(
        (shares.in_process.len(), shares.host, shares.unplaced),
        (0, vec![id("wide")], vec![id("giant")])
    );
}

#[test]
fn the_decision_table_of_one_cycle() {
    let none = FrontierView::default();
    let some = FrontierView { ready: 3, ..none };
    assert_eq!(decide(false, true, some), CyclePlan::DriveAll);
    assert_eq!(decide(false, false, some), CyclePlan::Pause);
    assert_eq!(decide(true, true, some), CyclePlan::Partition);
    assert_eq!(decide(true, false, some), CyclePlan::GrantHost);
    for (host, usable) in [(false, false), (false, true), (true, false), (true, true)] {
        let claims = FrontierView { claims: 1, open_pull_requests: 2, ..none };
        assert_eq!(decide(host, usable, claims), CyclePlan::WaitForClaims);
        let reviews = FrontierView { open_pull_requests: 2, ..none };
        assert_eq!(decide(host, usable, reviews), CyclePlan::WaitForReviews);
        let closed = FrontierView { all_final: true, ..none };
        assert_eq!(decide(host, usable, closed), CyclePlan::Close);
        assert_eq!(decide(host, usable, none), CyclePlan::WaitForNext);
    }
}

fn declared(name: &str, provider: Provider) -> Declared {
    let mut p = pool(name).pool;
    p.provider = provider;
    p.meter = MeterKey { backend: format!("{name}.example"), account: "a".to_owned() };
    Declared { pool: p, excluded: None, account_known: true, reach: Reach::Reached, settled: None }
}

#[test]
fn each_pool_left_out_has_its_reason() {
    let nim = declared("nim", Provider::OpenaiCompatible);
    let mut other = declared("other", Provider::OpenaiCompatible);
    other.excluded = Some("other.example".to_owned());
    let mut dark = declared("dark", Provider::Codex);
    dark.reach = Reach::Unreached("CODEX_KEY is empty".to_owned());
    let mut broke = declared("broke", Provider::Opencode);
    broke.settled = Some(Settled { outcome: Outcome::CreditExhausted, until: None });
    let command = declared("command", Provider::WorkerCommand);
    let all = [nim, other, dark, broke, command];
    let reasons = |policy: bool| {
        let set = eligible(&all, policy);
        (set.pools.iter().map(|p| p.id.0.clone()).collect::<Vec<_>>(), set.dropped)
    };
    let (names, dropped) = reasons(true);
    assert_eq!(names, ["command", "nim"]);
    assert_eq!(dropped.len(), 3);
    assert!(dropped.contains(&(PoolId::new("other"), Dropped::Excluded("other.example".into()))));
    assert_eq!(reasons(false).0, ["nim"]);
}

#[test]
fn one_account_is_never_booked_twice() {
    let host = declared("host", Provider::Host);
    let mut worker = declared("worker", Provider::ClaudeWorker);
    worker.pool.meter = host.pool.meter.clone();
    let set = |a: &Declared, b: &Declared| {
        let set = eligible(&[a.clone(), b.clone()], false);
        (set.attended(), set.pools.len())
    };
    assert_eq!(set(&host, &worker), (false, 1));
    // An undeclared account on the declared side counts as the same.
    worker.pool.meter.account = "b".to_owned();
    assert_eq!(set(&host, &worker), (true, 2));
    worker.account_known = false;
    assert_eq!(set(&host, &worker), (false, 1));
    // An unknown account on the host side does not.
    let mut stranger = host.clone();
    stranger.account_known = false;
    assert_eq!(set(&stranger, &worker), (true, 2));
}

#[test]
fn a_pool_that_turns_out_slow_gets_less_of_the_work() {
    let (mut later, mut last) = (node("N02"), node("N03"));
    later.after = vec![id("N01")];
    last.after = vec![id("N00")];
    let nodes = vec![node("N00"), node("N01"), later, last];
    let options = Options { dial: 1.0, lookahead: 0, ..Options::default() };
    let mut s = Scheduler::new(nodes, vec![limited("a", 1), limited("b", 1)], options).unwrap();
    let pair = |node: &str, pool: &str| (node.to_owned(), pool.to_owned());
    assert_eq!(starts(&mut s, 0), [pair("N00", "a"), pair("N01", "b")]);
    s.finished(&id("N01"), &Finish::new(Outcome::Success), 10_000).unwrap();
    s.landed(&id("N01"));
    assert_eq!(start(&mut s, 195_000), pair("N02", "b"));
    // It was expected to take 10 s, as on the other pool.
    succeed(&mut s, "N00", 200_000);
    assert_eq!(s.next(200_000), Decision::Wait { until: None }, "the busy one is faster");
    succeed(&mut s, "N02", 205_000);
    assert_eq!(start(&mut s, 205_000), pair("N03", "b"));
    let slow = overhaul::ledger::Served {
        attempts: 5.0,
        millis: 1_500_000.0,
        input_tokens: 40_000.0,
        output_tokens: 10_000.0,
    };
    let before = overhaul::scheduling::ServiceEstimate::default();
    let after = before.corrected(&slow);
    let (was, is) = (before.expect(8_000, 2_000, None), after.expect(8_000, 2_000, None));
    assert!((200_000..300_000).contains(&is) && was == 64_000, "{was} {is}");
    assert_eq!(before.corrected(&overhaul::ledger::Served::default()), before);
}
