//! NIM's own dialect, as it was reported: through the tool loop and the gateway before it.

use std::time::Duration;

use overhaul::backends::gateway::Upstream;
use overhaul::backends::openai::{OpenAiSettings, OpenAiWorker, Retry};
use overhaul::backends::scripted::{Reply, Scripted};
use overhaul::backends::{WorkReport, Worker};
use overhaul::model::Outcome;
use serde_json::json;

use crate::attempts::Bench;

fn problem(status: u16, title: &str, detail: &str) -> Reply {
    Reply::json(status, &json!({"status": status, "title": title, "detail": detail}))
}

fn raw(status: u16, content_type: &str, body: &str) -> Reply {
    Reply::Raw {
        status,
        headers: vec![("nvcf-reqid".into(), "00000000-0000-0000-0000-000000000009".into())],
        content_type: content_type.into(),
        body: body.into(),
    }
}

/// What it answers, what that is, and the rule that must say so.
fn dialect() -> Vec<(&'static str, Reply, Outcome, &'static str)> {
    let full = "ResourceExhausted: Worker local total request limit reached (16/16)";
    let event = json!({"error": {"message": full, "type": "Service Unavailable", "code": 503}});
    let chunk = json!({"id": "c", "object": "chat.completion.chunk", "choices": [
        {"index": 0, "delta": {"role": "assistant", "content": "I will"}, "finish_reason": null}]});
    vec![
        (
            "402: credits",
            problem(402, "Cloud Credits Expired", "Your NVIDIA credits have expired."),
            Outcome::CreditExhausted,
            "",
        ),
        ("403: key", problem(403, "Forbidden", "Authorization failed"), Outcome::Auth, ""),
        (
            "404: function",
            problem(404, "Not Found", "Function 'f-1': Not found for account 'a-1'"),
            Outcome::ModelUnavailable,
            "nvcf-function-missing",
        ),
        (
            "400: degraded",
            problem(400, "Bad Request", "Function id 'f-1': DEGRADED function cannot be invoked"),
            Outcome::ModelUnavailable,
            "nvcf-degraded",
        ),
        (
            "429: bare",
            Reply::json(429, &json!({"status": 429, "title": "Too Many Requests"})),
            Outcome::RateLimited,
            "",
        ),
        ("202: pending", raw(202, "application/json", ""), Outcome::Transient, ""),
        ("503: worker full", Reply::json(503, &event), Outcome::Transient, "nvcf-worker-full"),
        (
            "200: worker full inside the stream",
            raw(
                200,
                "text/event-stream",
                &format!("data: {chunk}\n\ndata: {event}\n\ndata: [DONE]\n\n"),
            ),
            Outcome::Transient,
            "nvcf-worker-full",
        ),
        (
            "200: worker full at the start of the stream",
            raw(200, "text/event-stream", &format!("data: {event}\n\n")),
            Outcome::Transient,
            "nvcf-worker-full",
        ),
    ]
}

async fn work(reply: Reply) -> (WorkReport, usize) {
    let server = Scripted::start(move |_, _| reply.clone()).await.unwrap();
    let key = Some("nvapi-not-a-key".into());
    let address = server.base_url().unwrap();
    let upstream = Upstream::new(address, key, "integrate.api.nvidia.com").unwrap();
    let mut settings = OpenAiSettings::new(upstream);
    settings.retry = Retry { tries: 2, pause: Duration::from_millis(1) };
    let worker = OpenAiWorker::new(settings).unwrap();
    let report = worker.work(Bench::new().attempt.clone()).await;
    (report, server.requests().len())
}

#[tokio::test]
async fn every_answer_is_what_it_means() {
    for (what, reply, outcome, rule) in dialect() {
        let (report, requests) = work(reply).await;
        assert_eq!(report.outcome, outcome, "{what}: {}", report.detail);
        let reading = report.classification.unwrap();
        assert!(reading.rule.starts_with(rule), "{what}: {reading:?}");
        // What time or a person must heal is asked once; what a moment heals, a few times more.
        // An empty answer is asked for once more without a stream.
        let tries = match outcome {
            Outcome::Transient if what.starts_with("202") => 4,
            Outcome::Transient => 3,
            _ => 1,
        };
        assert_eq!(requests, tries, "{what}");
    }
}
