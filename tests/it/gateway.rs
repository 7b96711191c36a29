//! The loopback gateway between a worker and a backend.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use overhaul::backends::Worker;
use overhaul::backends::gateway::{
    Admission, Allowance, Evidence, Exhausted, Gateway, Lack, Open, Permit, Refused, Seen, Upstream,
};
use overhaul::backends::openai::{OpenAiWorker, Retry};
use overhaul::backends::scripted::{Answer, Reply, Request, Scripted, fixer};
use overhaul::model::Outcome;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::attempts::{Bench, settings};

const KEY: &str = "real-key-0123456789";

const ROOMY: Allowance =
    Allowance { requests: 100, tokens: 1_000_000, usd: None, time: Duration::from_secs(60) };

struct Rig {
    server: Scripted,
    gateway: Gateway,
    client: reqwest::Client,
}

impl Rig {
    async fn new(script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static) -> Self {
        Self::with(script, ROOMY, Arc::new(Open)).await
    }

    async fn with(
        script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
        allowance: Allowance,
        admission: Arc<dyn Admission>,
    ) -> Self {
        let server = Scripted::start(script).await.unwrap();
        let mut upstream =
            Upstream::new(server.base_url().unwrap(), Some(KEY.into()), "scripted").unwrap();
        upstream.idle_timeout = Duration::from_millis(200);
        let pool = Bench::new().attempt.pool;
        let gateway = Gateway::start(&upstream, &pool, allowance, admission).await.unwrap();
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { server, gateway, client }
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, BTreeMap<String, String>, String) {
        let token = self.gateway.token().expose_secret();
        let request = self.client.post(format!("{}{path}", self.gateway.root()));
        let response = request.bearer_auth(token).json(body).send().await.unwrap();
        let status = response.status().as_u16();
        let headers =
            response.headers().iter().map(|(n, v)| (n.to_string(), v.to_str().unwrap().to_owned()));
        (
            status,
            headers.collect(),
            response.text().await.unwrap_or_else(|e| format!("broken: {e}")),
        )
    }

    async fn chat(&self, stream: bool) -> (u16, BTreeMap<String, String>, String) {
        self.post(
            "/v1/chat/completions",
            &json!({"model": "m", "stream": stream, "messages": [], "odd": {"x": [1]}}),
        )
        .await
    }

    async fn end(self) -> Evidence {
        self.gateway.stop().await
    }
}

#[tokio::test]
async fn requests_pass_with_the_real_key_and_nothing_else_changed() {
    let rig = Rig::new(|_, _| Answer::text("hello there").into()).await;
    for stream in [false, true] {
        let (status, _, body) = rig.chat(stream).await;
        assert_eq!(status, 200);
        assert!(body.contains("hello") && body.ends_with("[DONE]\n\n") == stream, "{body}");
    }
    let seen = rig.server.requests();
    assert_eq!(seen[0].body["odd"], json!({"x": [1]}));
    assert_eq!(seen[0].headers["authorization"], format!("Bearer {KEY}"));
    assert_eq!(seen[0].headers["x-api-key"], KEY);
    assert!(!format!("{seen:?}").contains(rig.gateway.token().expose_secret()));
    let evidence = rig.end().await;
    assert_eq!((evidence.usage.requests, evidence.successes, evidence.failures), (2, 2, 0));
    assert_eq!((evidence.usage.input_tokens, evidence.usage.output_tokens), (200, 20));
    assert!((evidence.usage.cost_usd - 220.0 * 2.0 / 1e6).abs() < 1e-12);
    assert_eq!(evidence.model_seen.as_deref(), Some("m"));
}

#[tokio::test]
async fn only_its_own_attempt_and_only_known_paths() {
    let rig = Rig::new(|_, _| Answer::text("x").into()).await;
    let root = rig.gateway.root();
    let body = json!({});
    let stranger =
        rig.client.post(format!("{root}/v1/chat/completions")).bearer_auth("ovh-0").json(&body);
    assert_eq!(stranger.send().await.unwrap().status(), 401);
    let nobody = rig.client.post(format!("{root}/v1/chat/completions")).json(&body);
    assert_eq!(nobody.send().await.unwrap().status(), 401);
    for path in ["/v1/files", "/v1/fine_tuning/jobs", "/v1/../admin", "/"] {
        assert_eq!(rig.post(path, &body).await.0, 404, "{path}");
    }
    let token = rig.gateway.token().expose_secret();
    let models = rig.client.get(format!("{root}/v1/models")).header("x-api-key", token);
    assert!(models.send().await.unwrap().text().await.unwrap().contains("scripted/fixer"));
    assert!(rig.server.requests().is_empty());
    assert_eq!(rig.end().await.usage.requests, 0);
}

#[tokio::test]
async fn the_other_two_protocols_pass_and_are_counted() {
    let rig = Rig::new(|request, _| {
        let body = if request.path.ends_with("/responses") {
            "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"model\":\"m2\",\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}}\n\n"
        } else {
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m2\",\"usage\":{\"input_tokens\":5,\"output_tokens\":1}}}\n\n\
             event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
        };
        Reply::Raw { status: 200, headers: vec![], content_type: "text/event-stream".into(), body: body.into() }
    })
    .await;
    for path in ["/v1/responses", "/v1/messages?beta=true"] {
        let (status, _, body) = rig.post(path, &json!({"stream": true})).await;
        assert!(status == 200 && body.starts_with("event: "), "{body}");
    }
    let evidence = rig.end().await;
    assert_eq!((evidence.usage.input_tokens, evidence.usage.output_tokens), (10, 14));
    assert_eq!((evidence.successes, evidence.model_seen.as_deref()), (2, Some("m2")));
}

#[tokio::test]
async fn what_the_backend_said_is_kept_and_passed_on() {
    let rig = Rig::new(|_, n| match n {
        0 => Reply::error(429, "Rate limit reached for requests", "rate_limit_exceeded")
            .with_header("retry-after", "77")
            .with_header("x-ratelimit-remaining-requests", "0"),
        1 => Answer::text("fine").into(),
        _ => Reply::error(401, "Incorrect API key provided: real-key", "invalid_api_key"),
    })
    .await;
    let (status, headers, body) = rig.chat(true).await;
    assert_eq!((status, headers["retry-after"].as_str()), (429, "77"));
    assert!(body.contains("rate_limit_exceeded"));
    let evidence = rig.gateway.evidence();
    let failure = evidence.verdict().unwrap();
    assert_eq!((failure.outcome, failure.reset_seconds), (Outcome::RateLimited, Some(77.0)));
    assert_eq!(evidence.limit_headers["x-ratelimit-remaining-requests"], "0");
    // A later success takes the failure back.
    rig.chat(true).await;
    assert!(rig.gateway.evidence().verdict().is_none());
    rig.chat(true).await;
    let evidence = rig.end().await;
    assert_eq!(evidence.verdict().unwrap().outcome, Outcome::Auth);
    assert_eq!((evidence.failures, evidence.successes), (2, 1));
}

#[tokio::test]
async fn broken_answers_are_transient_evidence() {
    for (reply, rule) in [
        (Reply::Cut { answer: Answer::text("a b c d"), abrupt: false }, Some("stream-cut")),
        // The connection may break before the head of the answer is through.
        (Reply::Cut { answer: Answer::text("a b c d"), abrupt: true }, None),
        (Reply::Hang, Some("idle-timeout")),
    ] {
        let rig = Rig::new(move |_, _| reply.clone()).await;
        rig.chat(true).await;
        let evidence = rig.end().await;
        let failure = evidence.verdict().unwrap();
        assert_eq!(failure.outcome, Outcome::Transient);
        assert!(rule.is_none_or(|rule| rule == failure.rule), "{failure:?}");
    }
    let hidden = json!({"error": {"code": 429, "message": "Rate limit reached for requests"}});
    let rig = Rig::new(move |_, _| Reply::json(200, &hidden)).await;
    assert_eq!(rig.chat(false).await.0, 200);
    assert_eq!(rig.end().await.verdict().unwrap().outcome, Outcome::RateLimited);
}

#[tokio::test]
async fn a_backend_that_is_not_there() {
    let rig = Rig::new(fixer).await;
    let Rig { server, gateway, client } = rig;
    server.stop().await;
    let url = format!("{}/v1/responses", gateway.root());
    let response = client
        .post(url)
        .bearer_auth(gateway.token().expose_secret())
        .body("{}")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 502);
    assert_eq!(gateway.stop().await.verdict().unwrap().outcome, Outcome::Transient);
}

#[tokio::test]
async fn budgets_end_the_attempt() {
    let text = |_: &Request, _: usize| -> Reply { Answer::text("x").into() };
    for (allowance, passed, over) in [
        (Allowance { requests: 2, ..ROOMY }, 2, Exhausted::Requests),
        (Allowance { tokens: 150, ..ROOMY }, 2, Exhausted::Tokens),
        (Allowance { usd: Some(0.000_3), ..ROOMY }, 2, Exhausted::Money),
        (Allowance { time: Duration::ZERO, ..ROOMY }, 0, Exhausted::Time),
    ] {
        let rig = Rig::with(text, allowance, Arc::new(Open)).await;
        for _ in 0..passed {
            assert_eq!(rig.chat(false).await.0, 200);
        }
        let (status, headers, body) = rig.chat(false).await;
        assert_eq!((status, headers["x-should-retry"].as_str()), (403, "false"));
        assert!(body.contains(over.text()), "{body}");
        assert!(rig.gateway.exhausted().is_cancelled());
        let evidence = rig.end().await;
        assert_eq!((evidence.exhausted, evidence.usage.requests), (Some(over), passed));
        // No refused key, whatever the status looks like to the worker.
        let ending = if over == Exhausted::Time { Outcome::Timeout } else { Outcome::Error };
        assert_eq!(evidence.ending().unwrap(), (ending, over.text().to_owned()));
    }
}

/// Admits one request, then has no room; notes what is settled.
#[derive(Debug, Default)]
struct One {
    asked: Mutex<Vec<(u64, u64)>>,
    settled: Arc<Mutex<Vec<Seen>>>,
}

struct Slot(Arc<Mutex<Vec<Seen>>>);

impl Permit for Slot {
    fn settle(self: Box<Self>, seen: &Seen) {
        self.0.lock().unwrap().push(seen.clone());
    }
}

#[async_trait]
impl Admission for One {
    async fn admit(&self, input: u64, output: u64) -> Result<Box<dyn Permit>, Refused> {
        let mut asked = self.asked.lock().unwrap();
        asked.push((input, output));
        if asked.len() == 1 {
            return Ok(Box::new(Slot(Arc::clone(&self.settled))));
        }
        Err(Refused {
            lack: Lack::Room,
            retry_after: Some(Duration::from_secs(9)),
            reason: "the window is full".to_owned(),
        })
    }
}

#[tokio::test]
async fn every_request_is_admitted_and_settled() {
    let one = Arc::new(One::default());
    let script = |_: &Request, _: usize| Reply::from(Answer::text("x"));
    let rig = Rig::with(script, ROOMY, Arc::clone(&one) as Arc<dyn Admission>).await;
    let body = json!({"messages": ["x".repeat(400)], "max_tokens": 77});
    rig.post("/v1/chat/completions", &body).await;
    let (status, headers, text) = rig.post("/v1/chat/completions", &body).await;
    assert_eq!((status, headers["retry-after"].as_str()), (429, "9"));
    assert!(text.contains("the window is full"));
    assert_eq!(rig.server.requests().len(), 1);
    let evidence = rig.end().await;
    assert_eq!(evidence.refused.unwrap().reason, "the window is full");
    assert_eq!(evidence.usage.requests, 1);
    let (input, output) = one.asked.lock().unwrap()[0];
    assert!((100..130).contains(&input) && output == 77, "{input}");
    let settled = one.settled.lock().unwrap();
    assert_eq!((settled[0].status, settled[0].usage), (Some(200), Some((100, 10))));
}

#[tokio::test]
async fn the_tool_loop_goes_through_it() {
    let bench = Bench::new();
    let server = Scripted::start(fixer).await.unwrap();
    let loop_of = |retry| {
        let mut settings = settings(&server, Some(KEY), "scripted");
        settings.retry = retry;
        settings
    };
    let settings = loop_of(Retry::default());
    let report = OpenAiWorker::new(settings).unwrap().work(bench.attempt.clone()).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert_eq!(server.requests()[0].headers["authorization"], format!("Bearer {KEY}"));
    assert!(report.usage.requests > 1 && report.usage.input_tokens > 0);

    // No room: the outcome is a limit that time heals, with the time that the meters say.
    let settings = loop_of(Retry { tries: 1, pause: Duration::from_millis(1) });
    let mut attempt = bench.attempt.clone();
    attempt.admission = Arc::new(One::default());
    let report = OpenAiWorker::new(settings).unwrap().work(attempt).await;
    assert_eq!(report.outcome, Outcome::RateLimited, "{}", report.detail);
    assert_eq!(report.classification.unwrap().reset_seconds, Some(9.0));
    assert!(report.detail.contains("the window is full"), "{}", report.detail);
}

#[tokio::test]
async fn a_page_for_people_is_no_answer_that_another_try_would_mend() {
    let page = || Reply::Raw {
        status: 200,
        headers: Vec::new(),
        content_type: "text/html; charset=utf-8".to_owned(),
        body: "<!doctype html><title>Sign in</title>".to_owned(),
    };
    let rig = Rig::new(move |_, _| page()).await;
    let (status, _, body) = rig.chat(true).await;
    assert_eq!(status, 404, "{body}");
    let seen = rig.end().await;
    let failure = seen.failure.unwrap();
    assert_eq!(failure.outcome, Outcome::ModelUnavailable);
    assert!(failure.evidence.contains("text/html") && failure.evidence.contains("`base-url`"));
}

#[tokio::test]
async fn the_loop_asks_a_page_for_people_once() {
    let server = Scripted::start(|_, _| Reply::Raw {
        status: 200,
        headers: Vec::new(),
        content_type: "text/html".to_owned(),
        body: "<html>".to_owned(),
    });
    let server = server.await.unwrap();
    let bench = Bench::new();
    let worker = OpenAiWorker::new(settings(&server, None, "scripted")).unwrap();
    let report = worker.work(bench.attempt.clone()).await;
    assert_eq!(report.outcome, Outcome::ModelUnavailable, "{}", report.detail);
    assert!(report.detail.contains("is `base-url` right?"), "{}", report.detail);
    assert_eq!(server.requests().len(), 1);
}
