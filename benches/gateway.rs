//! The gateway: what declared limits let through, and what it adds to a stream. Prints, asserts
//! nothing.
//!
//! `cargo bench --bench gateway` takes three minutes; with `-- 20` they pass in seconds, and what a
//! request takes on its way counts twenty times: more than the windows allow for.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    reason = "a benchmark"
)]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use overhaul::backends::gateway::{Admission, Allowance, Gateway, Open, Upstream};
use overhaul::backends::scripted::{Answer, Scripted};
use overhaul::cycle::{Clock, Desk};
use overhaul::model::{Limits, MeterKey, NodeId, Pool, PoolId, Provider};
use overhaul::scheduling::{Decision, NodeSpec, Options, PoolState, Scheduler};
use secrecy::ExposeSecret as _;

const MINUTE: i64 = 60_000;
const REQUESTS: usize = 1_000;
const A_MINUTE: usize = 300;
const ATTEMPTS: usize = 20;

const ROOMY: Allowance =
    Allowance { requests: u32::MAX, tokens: u64::MAX, usd: None, time: Duration::from_secs(3_600) };

fn pool(limits: Limits) -> Pool {
    Pool {
        id: PoolId::new("p"),
        provider: Provider::OpenaiCompatible,
        model: "m".to_owned(),
        meter: MeterKey { backend: "b".to_owned(), account: "a".to_owned() },
        tier: None,
        context_tokens: 32_000,
        output_tokens: 1_000,
        limits,
        cost_per_mtok: Some(0.0),
        input_scale: 1.0,
    }
}

async fn ask(
    client: &reqwest::Client,
    root: &str,
    token: &str,
    stream: bool,
) -> (Duration, Duration) {
    let body = format!("{{\"model\":\"m\",\"max_tokens\":10,\"stream\":{stream},\"messages\":[]}}");
    let start = Instant::now();
    let request = client.post(format!("{root}/chat/completions")).bearer_auth(token).body(body);
    let mut response = request.send().await.unwrap();
    assert!(response.status().is_success());
    let _ = response.chunk().await.unwrap();
    let first = start.elapsed();
    while response.chunk().await.unwrap().is_some() {}
    (first, start.elapsed())
}

fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

async fn limits(speed: u32) {
    let clock = Clock::starting_at(Timestamp::UNIX_EPOCH).faster(speed);
    let arrived: Arc<Mutex<Vec<i64>>> = Arc::default();
    let server = {
        let (arrived, clock) = (Arc::clone(&arrived), clock.clone());
        Scripted::start(move |_, _| {
            arrived.lock().unwrap().push(clock.now().as_millisecond());
            Answer::text("done").into()
        })
        .await
        .unwrap()
    };
    let declared = Limits { requests_per_minute: Some(A_MINUTE as u32), ..Limits::default() };
    let nodes = (0..ATTEMPTS).map(|n| NodeSpec::new(NodeId::new(format!("n-{n:02}")).unwrap()));
    let states = vec![PoolState::from(pool(declared))];
    let core = Scheduler::new(nodes.collect(), states, Options::default()).unwrap();
    let desk = Desk::new(core, clock.clone());
    let upstream = Upstream::new(server.base_url().unwrap(), None, "scripted").unwrap();
    let mut gateways = Vec::new();
    loop {
        let decision = desk.core().next(0);
        let Decision::Start { node, pool: id } = decision else { break };
        let meter = desk.core().meter(&id).unwrap();
        let seat: Arc<dyn Admission> = desk.seat(&node, meter);
        gateways.push(Gateway::start(&upstream, &pool(declared), ROOMY, seat).await.unwrap());
    }
    let client = client();
    let tasks: Vec<_> = (0..REQUESTS)
        .map(|n| {
            let gateway = &gateways[n % gateways.len()];
            let (client, root) = (client.clone(), gateway.base_url());
            let token = gateway.token().expose_secret().to_owned();
            tokio::spawn(async move { ask(&client, &root, &token, false).await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut arrived = arrived.lock().unwrap().clone();
    arrived.sort_unstable();
    let fullest = arrived
        .iter()
        .map(|at| arrived.iter().filter(|t| (*at..at + MINUTE).contains(t)).count())
        .max()
        .unwrap_or(0);
    let last = arrived.last().copied().unwrap_or(0);
    let permitted = ((REQUESTS - 1) / A_MINUTE) as i64 * MINUTE;
    println!(
        "{REQUESTS} requests at once, {A_MINUTE} a minute declared: the last arrived after {:.1} s, \
         {:.1} s are permitted: {:.1} % of the throughput; the endpoint's fullest minute saw {fullest} \
         (clock {speed}x)",
        last as f64 / 1e3,
        permitted as f64 / 1e3,
        permitted as f64 / last.max(1) as f64 * 100.0,
    );
}

fn median(mut all: Vec<Duration>) -> f64 {
    all.sort_unstable();
    all[all.len() / 2].as_secs_f64() * 1e3
}

async fn latency() {
    let text = "word ".repeat(200);
    let server = Scripted::start(move |_, _| Answer::text(text.clone()).into()).await.unwrap();
    let upstream = Upstream::new(server.base_url().unwrap(), None, "scripted").unwrap();
    let gateway =
        Gateway::start(&upstream, &pool(Limits::default()), ROOMY, Arc::new(Open)).await.unwrap();
    let client = client();
    let token = gateway.token().expose_secret().to_owned();
    let direct = server.base_url().unwrap().to_string();
    let (mut plain, mut gated) = (Vec::new(), Vec::new());
    for n in 0..320 {
        let one = ask(&client, &direct, "none", true).await;
        let two = ask(&client, &gateway.base_url(), &token, true).await;
        if n >= 20 {
            plain.push(one);
            gated.push(two);
        }
    }
    let of = |all: &[(Duration, Duration)]| {
        let first = median(all.iter().map(|t| t.0).collect());
        (first, median(all.iter().map(|t| t.1).collect()))
    };
    let ((first, whole), (first_gated, whole_gated)) = (of(&plain), of(&gated));
    println!(
        "a stream of 200 words: first byte {first:.2} ms direct, {first_gated:.2} ms through the \
         gateway; whole {whole:.2} ms direct, {whole_gated:.2} ms through it (medians of 300)"
    );
}

fn main() {
    let speed = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        latency().await;
        limits(speed).await;
    });
}
