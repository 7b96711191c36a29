//! Predictions: the real scheduler under a virtual clock, and its bound.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use overhaul::model::{
    Limits, MeterKey, NodeId, Outcome, Pool, PoolId, Provider, Severity, Tier, Usage,
};
use overhaul::scheduling::select::{self, estimate};
use overhaul::scheduling::simulate::{ServiceModel, Simulation, simulate};
use overhaul::scheduling::{
    Decision, Estimate, Finish, NodeSpec, Options, PoolState, Scheduler, ServiceEstimate,
};

use crate::seeded::{Rng, name};

/// Random graphs of the shapes that plans have: independent, layered, chains, trees, sparse.
fn nodes(rng: &mut Rng, count: u64) -> Vec<NodeSpec> {
    let shape = rng.below(5);
    let width = 3 + rng.below(6);
    (0..count)
        .map(|n| {
            let mut depends_on = match shape {
                1 if n >= width => {
                    let layer = n / width * width;
                    vec![name(layer - 1 - rng.below(width))]
                }
                2 if n >= width => vec![name(n - width)],
                3 if n > 0 => vec![name((n - 1) / 3)],
                4 if n > 0 && rng.below(3) == 0 => vec![name(rng.below(n))],
                _ => Vec::new(),
            };
            let after =
                if rng.below(2) == 0 { std::mem::take(&mut depends_on) } else { Vec::new() };
            NodeSpec {
                depends_on,
                after,
                tier: rng.pick(&[Tier::Small, Tier::Standard, Tier::Standard, Tier::Deep]),
                severity: rng.pick(&[Severity::Low, Severity::High]),
                input_tokens: 2_000 + rng.below(20_000),
                output_tokens: 500 + rng.below(4_000),
                ..NodeSpec::new(name(n))
            }
        })
        .collect()
}

fn pools(rng: &mut Rng) -> Vec<(PoolState, ServiceModel)> {
    (0..1 + rng.below(4))
        .map(|p| {
            let id = format!("p{p}");
            let speed = rng.pick(&[1.0, 1.0, 1.5, 2.0, 3.0]);
            let pool = Pool {
                id: PoolId::new(&id),
                provider: Provider::OpenaiCompatible,
                model: id.clone(),
                meter: MeterKey { backend: id, account: String::new() },
                tier: Some(rng.pick(&[Tier::Small, Tier::Standard, Tier::Deep])),
                context_tokens: rng.pick(&[16_000, 32_000, 128_000]),
                output_tokens: 8_192,
                limits: Limits {
                    concurrent: Some(rng.pick(&[1, 2, 4])),
                    requests_per_minute: rng.pick(&[None, None, Some(6), Some(20)]),
                    input_tokens_per_minute: rng.pick(&[None, None, None, Some(100_000)]),
                    ..Limits::default()
                },
                cost_per_mtok: Some(rng.pick(&[0.0, 0.5, 3.0])),
                input_scale: 1.0,
            };
            let service = ServiceEstimate { speed, ..ServiceEstimate::default() };
            (PoolState { service, ..PoolState::from(pool) }, ServiceModel::default())
        })
        .collect()
}

/// Nobody starts before its dependencies, no limit is exceeded, the bound is a bound.
fn check(nodes: &[NodeSpec], pools: &[(PoolState, ServiceModel)], s: &Simulation) {
    assert!(s.makespan_s >= s.lower_bound_s, "{} < {}", s.makespan_s, s.lower_bound_s);
    let ends: BTreeMap<_, _> = s
        .timeline
        .iter()
        .filter(|e| e.outcome == Outcome::Success)
        .map(|e| (e.node.clone(), e.end_s))
        .collect();
    for e in &s.timeline {
        let node = nodes.iter().find(|n| n.id == e.node).unwrap();
        for d in node.depends_on.iter().chain(&node.after) {
            assert!(ends[d] <= e.start_s, "{} before {d}", e.node);
        }
    }
    for (state, _) in pools {
        let limits = state.pool.limits;
        let mine: Vec<_> = s.timeline.iter().filter(|e| e.pool == state.pool.id).collect();
        for e in &mine {
            let at_once =
                mine.iter().filter(|o| o.start_s <= e.start_s && o.end_s > e.start_s).count();
            assert!(limits.concurrent.is_none_or(|l| at_once <= l as usize));
            let minute: Vec<_> = mine
                .iter()
                .filter(|o| o.start_s <= e.start_s && o.start_s + 60.0 > e.start_s + 1e-9)
                .collect();
            assert!(limits.requests_per_minute.is_none_or(|l| minute.len() <= l as usize));
            let tokens: u64 = minute
                .iter()
                .map(|o| nodes.iter().find(|n| n.id == o.node).unwrap().input_tokens)
                .sum();
            assert!(limits.input_tokens_per_minute.is_none_or(|l| tokens <= l));
        }
    }
}

fn traces(seeds: std::ops::Range<u64>, dial: f64) -> Vec<(f64, u64)> {
    let mut ratios: Vec<(f64, u64)> = seeds
        .map(|seed| {
            let mut rng = Rng(seed);
            let count = 10 + rng.below(50);
            let (nodes, pools) = (nodes(&mut rng, count), pools(&mut rng));
            let options = Options { dial, lookahead: 150_000, ..Options::default() };
            let s = simulate(nodes.clone(), pools.clone(), options, seed).unwrap();
            check(&nodes, &pools, &s);
            (if s.lower_bound_s > 0.0 { s.makespan_s / s.lower_bound_s } else { 1.0 }, seed)
        })
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    ratios
}

/// One or two requests a minute, windows that hold two requests, pools thirty times as fast as
/// others, and joins that everything waits for.
fn harsh(rng: &mut Rng) -> (Vec<NodeSpec>, Vec<(PoolState, ServiceModel)>) {
    let count = 8 + rng.below(60);
    let width = 2 + rng.below(6);
    let mut list = nodes(rng, count);
    if rng.below(2) == 0 {
        for n in 0..count {
            let (block, place) = (n / (width + 1) * (width + 1), n % (width + 1));
            let node = &mut list[usize::try_from(n).unwrap()];
            node.after.clear();
            node.depends_on = match place {
                0 => (block.saturating_sub(width)..block).map(name).collect(),
                _ => vec![name(block)],
            };
        }
    }
    let mut set = pools(rng);
    for (state, _) in &mut set {
        state.service.speed = rng.pick(&[0.25, 0.5, 1.0, 2.0, 8.0]);
        state.pool.limits = Limits {
            concurrent: rng.pick(&[Some(1), Some(2), Some(4), None]),
            requests_per_minute: rng.pick(&[None, Some(1), Some(2), Some(6)]),
            input_tokens_per_minute: rng.pick(&[None, Some(30_000), Some(60_000)]),
            ..Limits::default()
        };
    }
    (list, set)
}

#[test]
fn harsh_limits_stay_near_the_bound_too() {
    let mut ratios: Vec<(f64, u64)> = (0..60)
        .map(|seed| {
            let mut rng = Rng(1_000 + seed);
            let (nodes, pools) = harsh(&mut rng);
            let options = Options { dial: 1.0, lookahead: 150_000, ..Options::default() };
            let s = simulate(nodes.clone(), pools.clone(), options, seed).unwrap();
            check(&nodes, &pools, &s);
            (if s.lower_bound_s > 0.0 { s.makespan_s / s.lower_bound_s } else { 1.0 }, seed)
        })
        .collect();
    ratios.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (median, ninth) = (ratios[30].0, ratios[54].0);
    assert!(median <= 1.05, "median {median}, {:?}", &ratios[50..]);
    assert!(ninth <= 1.20, "{:?}", &ratios[50..]);
}

fn near_the_bound(seeds: std::ops::Range<u64>) {
    let ratios = traces(seeds, 1.0);
    let median = ratios[ratios.len() / 2].0;
    let worst = &ratios[ratios.len() - 6..];
    assert!(median <= 1.05, "median {median}, worst {worst:?}");
    assert!(worst[3].0 <= 1.15, "{worst:?}");
    assert!(worst[5].0 <= 1.25, "{worst:?}");
}

// Two halves, so that they run side by side.
#[test]
fn speed_is_near_the_lower_bound_on_seeded_traces_first_half() {
    near_the_bound(0..100);
}

#[test]
fn speed_is_near_the_lower_bound_on_seeded_traces_second_half() {
    near_the_bound(100..200);
}

#[test]
fn at_cost_nothing_waits_beside_an_idle_pool_and_the_limits_hold() {
    traces(300..340, 0.0);
    traces(340..360, 0.4);
}

/// Attempts of a whole run at one dial in the order of the decisions: node, pool, start, end.
fn driven(nodes: &[NodeSpec], pools: &[PoolState], dial: f64) -> Vec<(usize, usize, i64, i64)> {
    let options = Options { dial, ..Options::default() };
    let mut s = Scheduler::new(nodes.to_vec(), pools.to_vec(), options).unwrap();
    let (mut now, mut out) = (0, Vec::new());
    let mut ends: BTreeSet<(i64, usize)> = BTreeSet::new();
    loop {
        match s.next(now) {
            Decision::Start { node, pool } => {
                let n = nodes.iter().position(|n| n.id == node).unwrap();
                let p = pools.iter().position(|p| p.pool.id == pool).unwrap();
                let need = estimate(&nodes[n], &pools[p].pool);
                let ms = pools[p].service.expect(need.input_tokens, need.output_tokens, None);
                out.push((n, p, now, now + ms));
                ends.insert((now + ms, n));
            }
            Decision::Wait { until } => {
                now = until.into_iter().chain(ends.first().map(|e| e.0)).min().unwrap();
            }
            Decision::Wall(_) | Decision::Done => return out,
        }
        while let Some(&(end, n)) = ends.first().filter(|e| e.0 <= now) {
            ends.remove(&(end, n));
            let used = Usage {
                requests: 1,
                input_tokens: nodes[n].input_tokens,
                output_tokens: nodes[n].output_tokens.min(8_192),
                cost_usd: 0.0,
            };
            s.finished(
                &nodes[n].id,
                &Finish { usage: Some(used), ..Finish::new(Outcome::Success) },
                end,
            );
            s.landed(&nodes[n].id);
        }
    }
}

/// What a node may use, with the price of it there.
fn fitting(node: &NodeSpec, pools: &[PoolState]) -> Vec<(usize, f64)> {
    let fits = |p: &&PoolState| select::fits(node, &p.pool).is_ok();
    let floor = select::floor_for(node.tier, pools.iter().filter(fits).map(|p| &p.pool));
    let price = |p: &PoolState| select::cost(p, estimate(node, &p.pool)).unwrap();
    let usable = pools.iter().enumerate();
    let usable = usable.filter(|(_, p)| fits(p) && select::meets(&p.pool, floor));
    usable.map(|(at, p)| (at, price(p))).collect()
}

/// Does the pool take the node at `now`, beside those attempts?
fn room(
    nodes: &[NodeSpec],
    (node, pool): (usize, &PoolState),
    (at, now): (usize, i64),
    before: &[(usize, usize, i64, i64)],
) -> bool {
    let limits = pool.pool.limits;
    let mine = || before.iter().filter(|a| a.1 == at && a.2 <= now);
    let recent =
        || mine().filter(|a| a.2 + 60_000 > now).map(|a| estimate(&nodes[a.0], &pool.pool));
    let need = estimate(&nodes[node], &pool.pool);
    let sum = |of: fn(&Estimate) -> u64| recent().map(|e| of(&e)).sum::<u64>() + of(&need);
    limits.concurrent.is_none_or(|l| mine().filter(|a| a.3 > now).count() < l as usize)
        && limits.requests_per_minute.is_none_or(|l| recent().count() < l as usize)
        && limits.input_tokens_per_minute.is_none_or(|l| sum(|e| e.input_tokens) <= l)
        && limits.output_tokens_per_minute.is_none_or(|l| sum(|e| e.output_tokens) <= l)
}

#[test]
fn at_cost_the_cheapest_pool_with_room_is_taken_and_none_with_room_stands_beside_waiting_work() {
    let mut spilled = 0;
    for seed in 0..200 {
        let mut rng = Rng(5_000 + seed);
        let count = 5 + rng.below(if seed % 20 == 0 { 105 } else { 35 });
        let list = nodes(&mut rng, count);
        let mut set: Vec<PoolState> = pools(&mut rng).into_iter().map(|p| p.0).collect();
        for state in &mut set {
            state.pool.limits.output_tokens_per_minute = rng.pick(&[None, None, Some(12_000)]);
            state.pool.limits.concurrent = rng.pick(&[Some(1), Some(2), Some(4), None]);
        }
        let run = driven(&list, &set, 0.0);
        let choices: Vec<Vec<(usize, f64)>> = list.iter().map(|n| fitting(n, &set)).collect();
        let price = |n: usize, p: usize| choices[n].iter().find(|c| c.0 == p).unwrap().1;
        for (at, &(n, p, start, _)) in run.iter().enumerate() {
            for &(other, cost) in choices[n].iter().filter(|c| c.1 < price(n, p) - 1e-15) {
                spilled += 1;
                let there = room(&list, (n, &set[other]), (other, start), &run[..at]);
                assert!(!there, "seed {seed}: {} at {start} pays {cost} more", list[n].id);
            }
        }
        // At every moment at which anything changes, once all decisions have been made.
        let ends: BTreeMap<&NodeId, i64> = run.iter().map(|a| (&list[a.0].id, a.3)).collect();
        let ready = |n: usize| {
            list[n].depends_on.iter().chain(&list[n].after).map(|d| ends[d]).max().unwrap_or(0)
        };
        let waits: Vec<(usize, i64, i64)> = run.iter().map(|a| (a.0, ready(a.0), a.2)).collect();
        let times: BTreeSet<i64> = run.iter().flat_map(|a| [a.2, a.3, a.2 + 60_000]).collect();
        for now in times {
            for &(n, ..) in waits.iter().filter(|(_, ready, start)| (*ready..*start).contains(&now))
            {
                for &(other, _) in &choices[n] {
                    let there = room(&list, (n, &set[other]), (other, now), &run);
                    assert!(!there, "seed {seed}: {} waits beside {other} at {now}", list[n].id);
                }
            }
        }
    }
    assert!(spilled > 100, "the traces never fill a pool");
}

#[test]
fn at_cost_where_no_limit_binds_the_sum_is_that_of_the_cheapest_pools() {
    for seed in 0..200 {
        let mut rng = Rng(6_000 + seed);
        let count = 5 + rng.below(40);
        let list = nodes(&mut rng, count);
        let mut set: Vec<PoolState> = pools(&mut rng).into_iter().map(|p| p.0).collect();
        set.iter_mut().for_each(|s| s.pool.limits = Limits::default());
        let run = driven(&list, &set, 0.0);
        let choices: Vec<Vec<(usize, f64)>> = list.iter().map(|n| fitting(n, &set)).collect();
        for &(n, p, ..) in &run {
            let paid = choices[n].iter().find(|c| c.0 == p).unwrap().1;
            let least = choices[n].iter().map(|c| c.1).fold(f64::INFINITY, f64::min);
            assert!(
                (paid - least).abs() < 1e-15,
                "seed {seed}: {} pays {paid}, not {least}",
                list[n].id
            );
        }
    }
}

fn two_pools() -> Vec<(PoolState, ServiceModel)> {
    let mut rng = Rng(7);
    let mut list = Vec::new();
    for (id, cost, speed) in [("cheap", 0.0, 1.0), ("dear", 10.0, 3.0)] {
        let (mut state, model) = pools(&mut rng).remove(0);
        state.pool.id = PoolId::new(id);
        state.pool.meter.backend = id.to_owned();
        state.pool.tier = Some(Tier::Deep);
        state.pool.context_tokens = 64_000;
        state.pool.limits = Limits { concurrent: Some(2), ..Limits::default() };
        state.pool.cost_per_mtok = Some(cost);
        state.service.speed = speed;
        list.push((state, model));
    }
    list
}

#[test]
fn the_dial_at_cost_never_pays_for_what_is_free_and_idle() {
    let mut pools = two_pools();
    pools[0].0.pool.limits.concurrent = None;
    let list = nodes(&mut Rng(1), 30);
    let cheap = simulate(list.clone(), pools.clone(), Options::default(), 0).unwrap();
    assert!(cheap.cost.abs() < 1e-12);
    let options = Options { dial: 1.0, lookahead: 20_000, ..Options::default() };
    let fast = simulate(list, pools, options, 0).unwrap();
    assert!(fast.cost > 0.0 && fast.makespan_s < cheap.makespan_s);
}

#[test]
fn a_seed_gives_the_same_prediction_and_another_seed_another() {
    let mut pools = two_pools();
    pools[0].1.jitter = 0.3;
    pools[1].1.outcomes = BTreeMap::from([(Outcome::Transient, 0.2), (Outcome::RateLimited, 0.1)]);
    pools[1].1.reset = Some(20_000);
    let run = |seed| {
        let list = nodes(&mut Rng(3), 40);
        let options = Options { dial: 1.0, lookahead: 20_000, ..Options::default() };
        let s = simulate(list, pools.clone(), options, seed);
        serde_json::to_string(&s.unwrap()).unwrap()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn impossible_nodes_do_not_stop_the_rest() {
    let mut list = nodes(&mut Rng(5), 10);
    list[4].input_tokens = 500_000;
    for n in &mut list {
        n.depends_on.clear();
        n.after.clear();
    }
    let s = simulate(list, two_pools(), Options::default(), 0).unwrap();
    assert_eq!((s.nodes["done"], s.nodes["unfinished"]), (9, 1));
    let json = serde_json::to_value(&s).unwrap();
    assert_eq!(json["pauses"][0]["cause"], "no_capable_pool");
    assert_eq!(json["pauses"][0]["nodes"][0]["node"], "N00004");
}

#[test]
fn limits_and_outages_end_and_every_attempt_is_in_the_timeline() {
    let mut pools = two_pools();
    for (_, model) in &mut pools {
        model.outages = vec![overhaul::scheduling::simulate::Outage { from: 30_000, to: 200_000 }];
    }
    let s = simulate(nodes(&mut Rng(9), 30), pools, Options::default(), 0).unwrap();
    assert_eq!(s.nodes.get("done"), Some(&30), "{:?}", s.nodes);
    assert!(s.timeline.iter().any(|e| e.outcome == Outcome::Transient));
    assert!(s.makespan_s >= s.lower_bound_s);
    let mut pools = two_pools();
    for (_, model) in &mut pools {
        model.outcomes = BTreeMap::from([(Outcome::CreditExhausted, 1.0)]);
    }
    let s = simulate(nodes(&mut Rng(9), 5), pools, Options::default(), 0).unwrap();
    let json = serde_json::to_value(&s).unwrap();
    assert_eq!(json["pauses"][0]["cause"], "no_usable_pool");
}

#[test]
fn ten_thousand_nodes_are_scheduled() {
    let mut rng = Rng(11);
    let list = nodes(&mut rng, 10_000);
    for dial in [0.0, 1.0] {
        let options = Options { dial, ..Options::default() };
        let s = simulate(list.clone(), two_pools(), options, 0).unwrap();
        assert_eq!(s.nodes["done"], 10_000);
        assert!(s.makespan_s >= s.lower_bound_s);
    }
}

fn overhaul(args: &[&str]) -> (i32, String, String) {
    let out = Command::new(env!("CARGO_BIN_EXE_overhaul")).args(args).output().unwrap();
    let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
    (out.status.code().unwrap(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_command_reads_json_and_yaml_and_names_the_nearest_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plan = file("plan.json", r#"{"nodes":[{"id":"A"},{"id":"B","depends-on":["A"]}]}"#);
    let pools = file(
        "pools.yml",
        "pools:\n  - id: nim\n    model: llama\n    limits: {concurrent: 1}\n    service: {base-seconds: 5}\n",
    );
    let (code, out, err) =
        overhaul(&["simulate", "--plan", &plan, "--pools", &pools, "--dial", "1", "--json"]);
    assert_eq!(code, 0, "{err}");
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&json["makespan_s"], &json["lower_bound_s"]), (&10.0.into(), &10.0.into()));
    assert_eq!(json["timeline"][1]["start_s"], 5.0);
    assert_eq!(json["utilisation"]["nim"], 1.0);

    let bare = file("bare.yml", "- {id: nim, modle: llama}\n");
    let (code, _, err) = overhaul(&["simulate", "--plan", &plan, "--pools", &bare]);
    assert_eq!(code, 2);
    assert!(err.contains("modle") && err.contains("did you mean `model`"), "{err}");

    let circle = file(
        "circle.json",
        r#"{"nodes":[{"id":"A","depends-on":["B"]},{"id":"B","depends-on":["A"]}]}"#,
    );
    let (code, _, err) = overhaul(&["simulate", "--plan", &circle, "--pools", &pools]);
    assert_eq!(code, 2);
    assert!(err.contains("circle"), "{err}");
    let (code, out, _) = overhaul(&["simulate", "--plan", &plan, "--pools", &pools]);
    assert_eq!(code, 0);
    assert!(out.contains("makespan") && out.contains("lower bound"), "{out}");
}

#[test]
fn the_input_formats_have_schemas() {
    use overhaul::scheduling::simulate::input::{plan_schema, pools_schema};
    for schema in [plan_schema(), pools_schema()] {
        let value = serde_json::to_value(schema).unwrap();
        assert!(jsonschema::meta::is_valid(&value));
        assert!(value["properties"].as_object().is_some_and(|p| !p.is_empty()));
    }
}

#[test]
fn bad_input_is_one_clear_error_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plan = r#"{"nodes":[{"id":"A"}]}"#;
    let pools = r#"{"pools":[{"id":"p","model":"m"}]}"#;
    let bad_plans = [
        (r#"{"nodes":[{"id":"A"},{"id":"A"}]}"#, "node 'A' appears twice"),
        (r#"{"nodes":[{"id":"A","depends-on":["B"]}]}"#, "'B', which is not in the plan"),
        (
            r#"{"nodes":[{"id":"Z","depends-on":["A"]},{"id":"A","depends-on":["B"]},{"id":"B","after":["A"]}]}"#,
            "circle: A needs B needs A",
        ),
        (r#"{"nodes":[{"id":"A","depends-on":["A"]}]}"#, "circle: A needs A"),
        (r#"{"nodes":[{"id":"A\u001b[31m"}]}"#, r"A\u{1b}[31m"),
        (r#"{"nodes":[{"id":7}]}"#, "line 1"),
        (r#"{"nodes":{"id":"A"}}"#, "line 1"),
        (r#"{"nodes":[{"id":"A","tier":0}]}"#, "a rank from 1"),
        (r#"{"nodes":[{"id":"A","tier":"huge"}]}"#, "huge"),
        (r#"{"nodes":[{"id":"A","input-tokens":-5}]}"#, "-5"),
        (r#"{"nodes":[{"id":"A","input-tokens":18446744073709551615}]}"#, "node 'A': input-tokens"),
        (r#"{"nodes":[{"id":"A","service-seconds":1e300}]}"#, "node 'A': service-seconds"),
        (r#"{"nodes":[{"id":"A","service-seconds":-1}]}"#, "node 'A': service-seconds"),
        ("", "EOF"),
        ("nonsense", "line 1"),
    ];
    let bad_pools = [
        ("pools: []", "`pools` is empty"),
        ("[]", "`pools` is empty"),
        ("pools: [{id: p, cost-per-mtok: 1.0e308}]", "pool 'p': cost-per-mtok"),
        ("pools: [{id: p, cost-per-mtok: .nan}]", "pool 'p': cost-per-mtok"),
        ("pools: [{id: p, cost-per-mtok: -1}]", "pool 'p': cost-per-mtok"),
        ("pools: [{id: \"p\\e[31m\"}]", "control characters"),
        ("pools: [{id: \"\"}]", "pool 1: the id"),
        ("pools: [{id: p}, {id: p}]", "pool 'p' appears twice"),
        ("pools: [{id: p, limits: {concurrent: -1}}]", "concurrent"),
        ("pools: [{id: p, limits: {concurrent: 99999999999}}]", "concurrent"),
        ("pools: [{id: p, tier: .nan}]", "a rank from 1"),
        ("pools: [{id: p, service: {speed: 0}}]", "service.speed"),
        ("pools: [{id: p, service: {speed: .inf}}]", "service.speed"),
        ("pools: [{id: p, service: {jitter: .nan}}]", "service.jitter"),
        ("pools: [{id: p, service: {outcomes: {transient: 1.5}}}]", "service.outcomes"),
        ("pools: 7", "invalid type"),
    ];
    let (good_plan, good_pools) = (file("plan.json", plan), file("pools.yml", pools));
    let check = |plan: &str, pools: &str, named: &str, needle: &str| {
        let (code, out, err) = overhaul(&["simulate", "--plan", plan, "--pools", pools, "--json"]);
        assert_eq!((code, out.as_str()), (2, ""), "{needle}: {err}");
        assert!(err.contains(needle) && err.contains(named), "{needle}: {err}");
        assert!(!err.chars().any(|c| c.is_control() && c != '\n'), "{err:?}");
    };
    for (text, needle) in bad_plans {
        check(&file("bad-plan.json", text), &good_pools, "bad-plan.json", needle);
    }
    for (text, needle) in bad_pools {
        check(&good_plan, &file("bad-pools.yml", text), "bad-pools.yml", needle);
    }
}

#[test]
fn odd_but_possible_numbers_give_finite_results() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let plan = file(
        "plan.json",
        r#"{"nodes":[{"id":"A","tier":3,"input-tokens":0,"output-tokens":0},
            {"id":"B","tier":1,"service-seconds":0,"depends-on":["A"]},{"id":"C","tier":"deep"}]}"#,
    );
    for pools in [
        "pools: [{id: p, tier: 7, cost-per-mtok: 1.0e9, service: {speed: 1.0e300}}]",
        "pools: [{id: p, tier: 2, service: {speed: 1.0e-300}}]",
        "pools: [{id: p, tier: 1.5, limits: {concurrent: 0}}]",
        "pools: [{id: p, limits: {input-tokens-per-minute: 0, requests-per-day: 1}}]",
        "pools: [{id: p, context-tokens: 0, output-tokens: 0}]",
    ] {
        for dial in ["cost", "speed"] {
            let set = file("pools.yml", pools);
            let args = ["simulate", "--plan", &plan, "--pools", &set, "--dial", dial, "--json"];
            let (code, out, err) = overhaul(&args);
            assert_eq!(code, 0, "{pools}: {err}");
            let json: serde_json::Value = serde_json::from_str(&out).unwrap();
            for key in ["makespan_s", "lower_bound_s", "critical_path_s", "cost"] {
                assert!(json[key].as_f64().is_some_and(f64::is_finite), "{pools}: {key} {out}");
            }
        }
    }
}
