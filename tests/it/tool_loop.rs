//! The tool loop against scripted endpoints: what it does well, and what it does when the other
//! side does not.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use overhaul::backends::openai::{
    Dialect, OpenAiSettings, OpenAiWorker, Retry, Verified, VerifyRunner,
};
use overhaul::backends::scripted::{Answer, Reply, Request, Scripted, fixer};
use overhaul::backends::{Attempt, WorkReport, Worker};
use overhaul::model::{Outcome, VerifyCommand};
use serde_json::{Value, json};

use crate::attempts::{Bench, SOURCE, settings};

const KEY: &str = "rig-key-0123456789";

struct Grep;

#[async_trait]
impl VerifyRunner for Grep {
    async fn verify(&self, _command: &VerifyCommand, attempt: &Attempt) -> Verified {
        let text = std::fs::read_to_string(attempt.workdir.join("src/a.py")).unwrap();
        Verified { passed: text.contains("is None"), output: format!("key {KEY}") }
    }
}

async fn work_with(
    bench: &Bench,
    server: &Scripted,
    change: impl FnOnce(&mut OpenAiSettings),
) -> WorkReport {
    let mut settings = settings(server, Some(KEY), "scripted");
    settings.retry = Retry { tries: 2, pause: Duration::from_millis(1) };
    settings.verify = Some(Arc::new(Grep));
    change(&mut settings);
    let report = OpenAiWorker::new(settings).unwrap().work(bench.attempt.clone()).await;
    // Whatever happens: the key is nowhere but in the header.
    let evidence = report.classification.as_ref().map_or("", |c| &c.evidence);
    for text in [report.detail.as_str(), report.log.as_str(), evidence] {
        assert!(!text.contains(KEY), "{text}");
    }
    for request in server.requests() {
        assert_eq!(request.headers["authorization"], format!("Bearer {KEY}"));
        if !request.body.to_string().contains("is None") {
            assert!(!request.body.to_string().contains(KEY));
        }
    }
    report
}

async fn work(
    bench: &Bench,
    script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
) -> WorkReport {
    let server = Scripted::start(script).await.unwrap();
    work_with(bench, &server, |_| {}).await
}

/// Plays the answers in order; the last one again and again.
fn play(replies: Vec<Reply>) -> impl Fn(&Request, usize) -> Reply + Send + Sync + 'static {
    move |_, number| replies[number.min(replies.len() - 1)].clone()
}

fn call(name: &str, args: Value) -> Reply {
    Answer::calls([(name, args)]).into()
}

fn finish() -> Reply {
    call("finish", json!({"resolved": ["F-1"], "summary": "done"}))
}

/// The results that the last request carried.
fn results(server: &Scripted) -> Vec<String> {
    let last = server.requests().pop().unwrap();
    let messages = last.body["messages"].as_array().unwrap().clone();
    let tools = messages.iter().filter(|m| m["role"] == "tool");
    tools.map(|m| m["content"].as_str().unwrap().to_owned()).collect()
}

fn hash_in(text: &str) -> &str {
    text.lines().find_map(|l| l.strip_prefix("hash: ")).unwrap()
}

#[tokio::test]
async fn the_scripted_fixer_fixes_for_real() {
    for stream in [true, false] {
        let bench = Bench::new();
        let server = Scripted::start(fixer).await.unwrap();
        let report = work_with(&bench, &server, |s| s.stream = stream).await;
        assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
        let result = report.result.unwrap();
        assert_eq!(result.resolved.len(), 2);
        assert!(result.summary.starts_with("scripted fixer: 2 edit(s) in 1 file(s)"));
        assert_eq!(
            bench.text("src/a.py"),
            "def f(x):\n    if x is None:\n        return 1\n    return x\n"
        );
        assert_eq!(report.usage.requests, 4);
        assert!(report.usage.input_tokens > 1_000 && report.usage.cost_usd > 0.0);
        assert_eq!(report.model_seen.as_deref(), Some("scripted/fixer"));
        assert!(report.log.contains("check passed"), "{}", report.log);
        server.stop().await;
    }
}

#[tokio::test]
async fn every_file_tool_works_and_is_confined() {
    let bench = Bench::new();
    std::os::unix::fs::symlink("/etc", bench.tree.path().join("src/link")).unwrap();
    let calls = [
        ("list_files", json!({"glob": "*.py"})),
        ("search", json!({"pattern": "return"})),
        ("search", json!({"pattern": "x( |$)", "regex": true, "path": "src"})),
        ("read_file", json!({"path": "src/a.py", "start_line": 2, "end_line": 3})),
        ("create_file", json!({"path": "src/new/b.py", "content": "b = 1\n"})),
        ("rename_file", json!({"from": "src/new/b.py", "to": "src/c.py"})),
        ("delete_file", json!({"path": "src/a.py"})),
        ("create_file", json!({"path": "README2.md", "content": ""})),
        ("create_file", json!({"path": "../out", "content": ""})),
        ("create_file", json!({"path": "/tmp/out", "content": ""})),
        ("create_file", json!({"path": "src/.git/hooks/x", "content": ""})),
        ("create_file", json!({"path": "src/link/x", "content": ""})),
        ("read_file", json!({"path": "src/link/passwd"})),
        ("read_file", json!({"path": "src/a.py"})),
    ];
    let server = Scripted::start(move |_, n| match n {
        0 => Answer::calls(calls.clone()).into(),
        _ => finish(),
    });
    let server = server.await.unwrap();
    let report = work_with(&bench, &server, |_| {}).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    let got = results(&server);
    assert_eq!(got[0], "src/a.py\n");
    assert_eq!(got[1], "src/a.py:3:         return 1\nsrc/a.py:4:     return x\n");
    assert_eq!(got[2].lines().count(), 2);
    assert!(
        got[3].ends_with("lines: 2-3 of 4\n---\n    if x == None:\n        return 1\n"),
        "{}",
        got[3]
    );
    assert!(got[7].contains("outside this task's write scope") && got[7].contains("\"src\""));
    for (at, why) in [
        (8, "without '..'"),
        (9, "absolute"),
        (10, ".git"),
        (11, "symbolic"),
        (12, "symbolic"),
        (13, "not exist"),
    ] {
        assert!(got[at].starts_with("error:") && got[at].contains(why), "{at}: {}", got[at]);
    }
    assert_eq!(bench.text("src/c.py"), "b = 1\n");
    assert!(!bench.exists("src/a.py") && !bench.exists("README2.md") && !bench.exists("src/.git"));
}

#[tokio::test]
async fn stale_hashes_and_unclear_edits_are_refused() {
    let bench = Bench::new();
    let edit = |hash: &str, search: &str| {
        call(
            "edit_file",
            json!({"path": "src/a.py", "hash": hash, "edits": [{"search": search, "replace": "z"}]}),
        )
    };
    let server = Scripted::start(move |request, n| {
        let hash = || hash_in(request.last_text()).to_owned();
        match n {
            0 => edit("0000000000000000", "x == None"),
            1 => call("read_file", json!({"path": "src/a.py"})),
            2 => edit(&hash(), "return"),
            3 => call("read_file", json!({"path": "src/a.py", "start_line": 1})),
            4 => edit(&hash(), "no such text"),
            5 => call("read_file", json!({"path": "src/a.py", "end_line": 9})),
            6 => edit(&hash(), "x == None"),
            // The edit's own result gives the next hash.
            7 => edit(&hash(), "return 1"),
            _ => finish(),
        }
    })
    .await
    .unwrap();
    let report = work_with(&bench, &server, |_| {}).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    let got = results(&server);
    assert!(got[0].contains("stale hash") && got[0].contains("    if x == None:"), "{}", got[0]);
    assert!(got[2].contains("more than once"));
    assert!(got[4].contains("does not occur"));
    assert!(got[6].starts_with("edited src/a.py\nhash: "));
    assert_eq!(bench.text("src/a.py"), SOURCE.replace("x == None", "z").replace("return 1", "z"));
}

#[tokio::test]
async fn malformed_calls_are_told_and_bounded() {
    let bench = Bench::new();
    let raw = |name: &str, args: &str| {
        Reply::from(Answer { calls: vec![(name.to_owned(), args.to_owned())], ..Answer::default() })
    };
    let server = Scripted::start(play(vec![
        raw("read_file", "{\"path\": \"src/"),
        raw("read_file", "[]"),
        raw("rm_rf", "{}"),
        raw("read_file", "{\"file\": \"src/a.py\"}"),
        raw("run_verify", "{\"name\": \"rm\"}"),
        call("read_file", json!({"path": "src/a.py"})),
        finish(),
    ]));
    let server = server.await.unwrap();
    let report = work_with(&bench, &server, |_| {}).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    let got = results(&server);
    for (at, why) in [
        (0, "no valid JSON"),
        (1, "no JSON object"),
        (2, "no tool 'rm_rf'"),
        (3, "bad arguments"),
        (4, "the checks are: check"),
    ] {
        assert!(got[at].contains(why), "{}", got[at]);
    }
    // What goes back as arguments is JSON, because servers parse it.
    let last = server.requests().pop().unwrap();
    assert_eq!(last.body["messages"][2]["tool_calls"][0]["function"]["arguments"], "{}");

    let report = work(&bench, move |_, n| raw("read_file", &format!("{{{n}"))).await;
    assert_eq!(report.outcome, Outcome::InvalidResult);
    assert!(report.detail.contains("malformed tool calls in a row"), "{}", report.detail);
    assert_eq!(report.usage.requests, 6);
}

#[tokio::test]
async fn results_are_checked_in_the_loop() {
    let bench = Bench::new();
    let wrong = || call("finish", json!({"resolved": ["F-9"], "summary": ""}));
    let report = work(&bench, play(vec![wrong(), finish()])).await;
    assert_eq!(report.outcome, Outcome::Success);
    let report = work(&bench, play(vec![wrong()])).await;
    assert_eq!(report.outcome, Outcome::InvalidResult);
    assert!(report.detail.contains("F-9"), "{}", report.detail);
    assert_eq!(report.usage.requests, 3);
}

#[tokio::test]
async fn a_success_stays_one_whatever_its_words() {
    let bench = Bench::new();
    let words = "429 Too Many Requests: rate limit exceeded, insufficient_quota";
    let report = work(
        &bench,
        play(vec![
            call("search", json!({ "pattern": words })),
            call("finish", json!({"resolved": ["F-1"], "summary": words})),
        ]),
    )
    .await;
    assert_eq!(report.outcome, Outcome::Success);
    assert!(report.classification.is_none());
}

#[tokio::test]
async fn backend_failures_are_outcomes() {
    let overflow =
        "This model's maximum context length is 8192 tokens. However, you requested 9001 tokens";
    for (reply, outcome, requests) in [
        (Reply::error(401, "Incorrect API key provided", "invalid_api_key"), Outcome::Auth, 1),
        (
            Reply::error(404, "The model `x` does not exist", "model_not_found"),
            Outcome::ModelUnavailable,
            1,
        ),
        (Reply::error(413, "Request too large", "request_too_large"), Outcome::PacketTooLarge, 1),
        (Reply::error(400, overflow, "context_length_exceeded"), Outcome::PacketTooLarge, 1),
        (Reply::error(500, "Internal server error", ""), Outcome::Transient, 3),
        (Reply::error(503, "Service unavailable", ""), Outcome::Transient, 3),
        (Reply::error(529, "Overloaded", "overloaded_error"), Outcome::Transient, 3),
        (
            Reply::error(429, "Rate limit reached", "rate_limit_exceeded")
                .with_header("retry-after", "120"),
            Outcome::RateLimited,
            1,
        ),
        // An error inside a 200.
        (
            Reply::json(
                200,
                &json!({"error": {"message": "Rate limit reached for requests", "code": 429}}),
            ),
            Outcome::RateLimited,
            1,
        ),
        (Reply::json(200, &json!({"choices": []})), Outcome::Transient, 3),
        (
            Reply::json(
                200,
                &json!({"choices": [{"index": 0, "message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}]}),
            ),
            Outcome::Transient,
            3,
        ),
        (
            Reply::Raw {
                status: 200,
                headers: vec![],
                content_type: "text/html".into(),
                body: "<html>oops</html>".into(),
            },
            Outcome::ModelUnavailable,
            1,
        ),
        (
            Reply::Raw {
                status: 200,
                headers: vec![],
                content_type: "text/event-stream".into(),
                body: "data: {oops\n\n".into(),
            },
            Outcome::Transient,
            3,
        ),
        (
            Reply::Cut { answer: Answer::text("I will now do this"), abrupt: false },
            Outcome::Transient,
            3,
        ),
        (
            Reply::Cut { answer: Answer::text("I will now do this"), abrupt: true },
            Outcome::Transient,
            3,
        ),
        (
            Answer { refusal: Some("I can't help with that".into()), ..Answer::default() }.into(),
            Outcome::ContentFiltered,
            1,
        ),
        (
            Answer {
                text: "no".into(),
                finish: Some("content_filter".into()),
                ..Answer::default()
            }
            .into(),
            Outcome::ContentFiltered,
            1,
        ),
    ] {
        let bench = Bench::new();
        let report = work(&bench, play(vec![reply.clone()])).await;
        assert_eq!(report.outcome, outcome, "{reply:?}: {}", report.detail);
        assert_eq!(report.usage.requests, requests, "{reply:?}");
        assert!(report.result.is_none());
        assert_eq!(report.classification.unwrap().outcome, outcome);
    }
}

#[tokio::test]
async fn passing_failures_are_survived() {
    let limited = Reply::error(429, "Rate limit reached", "rate_limit_exceeded");
    for replies in [
        vec![Reply::error(503, "Service unavailable", ""), finish()],
        vec![Reply::Cut { answer: Answer::text("x y z"), abrupt: true }, finish()],
        vec![limited.clone().with_header("retry-after", "0"), finish()],
        vec![Reply::json(200, &json!({"choices": []})), finish()],
    ] {
        let bench = Bench::new();
        let report = work(&bench, play(replies.clone())).await;
        assert_eq!(report.outcome, Outcome::Success, "{replies:?}: {}", report.detail);
        assert_eq!(report.usage.requests, 2);
    }
}

#[tokio::test]
async fn a_closed_port_is_transient() {
    let bench = Bench::new();
    let server = Scripted::start(fixer).await.unwrap();
    let mut settings = settings(&server, None, "scripted");
    settings.retry = Retry { tries: 1, pause: Duration::from_millis(1) };
    server.stop().await;
    let report = OpenAiWorker::new(settings).unwrap().work(bench.attempt.clone()).await;
    assert_eq!(report.outcome, Outcome::Transient, "{}", report.detail);
    assert_eq!(report.usage.requests, 2);
}

#[tokio::test]
async fn a_silent_stream_ends_by_the_idle_timeout() {
    let bench = Bench::new();
    let server = Scripted::start(play(vec![Reply::Hang])).await.unwrap();
    let report = work_with(&bench, &server, |s| {
        s.upstream.idle_timeout = Duration::from_millis(30);
        s.retry.tries = 1;
    })
    .await;
    assert_eq!(report.outcome, Outcome::Transient);
    assert_eq!(report.classification.unwrap().rule, "idle-timeout");
    server.stop().await;
}

#[tokio::test]
async fn the_deadline_and_the_cancel_end_it() {
    let mut bench = Bench::new();
    bench.attempt.deadline = Duration::from_millis(50);
    let report = work(&bench, play(vec![Reply::Hang])).await;
    assert_eq!(report.outcome, Outcome::Timeout);
    assert_eq!(report.usage.requests, 1);

    let bench = Bench::new();
    let cancel = bench.attempt.cancel.clone();
    let report = work(&bench, move |_, _| {
        cancel.cancel();
        Reply::Hang
    })
    .await;
    assert_eq!(report.outcome, Outcome::Timeout);
    assert!(report.detail.contains("cycle ends"));
}

#[tokio::test]
async fn budgets_end_it() {
    let read = |n: usize| call("read_file", json!({"path": "src/a.py", "start_line": n % 4 + 1}));
    let mut bench = Bench::new();
    bench.attempt.request_budget = 7;
    let report = work(&bench, move |_, n| read(n)).await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::Error, 7));
    assert!(report.detail.contains("7 requests"), "{}", report.detail);

    let mut bench = Bench::new();
    bench.attempt.token_budget = 9_000;
    let report = work(&bench, move |_, n| {
        Answer {
            usage: Some((2_000, 500)),
            ..Answer::calls([("read_file", json!({"path": "src/a.py", "start_line": n + 1}))])
        }
        .into()
    })
    .await;
    assert_eq!(report.outcome, Outcome::Error);
    assert!(report.detail.contains("token budget"), "{}", report.detail);
    assert!(report.usage.requests <= 4);
}

#[tokio::test]
async fn a_loop_for_ever_is_ended() {
    let bench = Bench::new();
    let report = work(&bench, |_, _| call("list_files", json!({}))).await;
    assert_eq!(report.outcome, Outcome::InvalidResult);
    assert!(report.detail.contains("repeats the same call"));
    assert_eq!(report.usage.requests, 6);
}

#[tokio::test]
async fn cut_answers_are_told_and_bounded() {
    let bench = Bench::new();
    let long = || -> Reply {
        Answer {
            text: "thinking ".repeat(50),
            finish: Some("length".into()),
            usage: Some((100, 4_096)),
            ..Answer::default()
        }
        .into()
    };
    let report = work(&bench, play(vec![long(), finish()])).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    let report = work(&bench, play(vec![long()])).await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::InvalidResult, 3));
    // Input and output always come to the same sum: the window is full, not a limit reached.
    let report = work(&bench, |request, _| {
        let input = request.body.to_string().len() as u64 / 4;
        let usage = Some((input, 3_000 - input));
        let finish = Some("length".into());
        Answer { text: "thinking ".into(), finish, usage, ..Answer::default() }.into()
    })
    .await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::PacketTooLarge, 2));
}

#[tokio::test]
async fn a_grown_conversation_is_shortened_once_it_overflows() {
    let bench = Bench::new();
    std::fs::write(bench.tree.path().join("src/big.py"), "x = 1  # padding\n".repeat(900)).unwrap();
    let server = Scripted::start(|request, n| match n {
        0 => call("read_file", json!({"path": "src/big.py"})),
        _ if request.body.to_string().len() > 14_000 => Reply::error(
            400,
            "This model's maximum context length is 2048 tokens. However, you requested more",
            "context_length_exceeded",
        ),
        _ => finish(),
    })
    .await
    .unwrap();
    let report = work_with(&bench, &server, |_| {}).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert_eq!(report.usage.requests, 3);
    assert!(results(&server)[0].contains("shortened to save room"));
}

#[tokio::test]
async fn a_task_that_cannot_fit_is_not_sent() {
    let mut bench = Bench::new();
    bench.attempt.pool.context_tokens = 1_000;
    let report = work(&bench, play(vec![finish()])).await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::PacketTooLarge, 0));
}

#[tokio::test]
async fn refused_options_are_left_out() {
    let bench = Bench::new();
    let server = Scripted::start(|request, _| {
        let has = |key: &str| request.body.get(key).is_some();
        if has("stream_options") {
            Reply::error(400, "Unknown parameter: stream_options", "")
        } else if has("max_tokens") {
            Reply::error(400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "unsupported_parameter")
        } else if request.wants_stream() {
            Reply::error(400, "streaming is not supported", "")
        } else {
            finish()
        }
    })
    .await
    .unwrap();
    let report = work_with(&bench, &server, |_| {}).await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::Success, 4), "{}", report.detail);
}

#[tokio::test]
async fn an_empty_stream_is_asked_again_without_one() {
    let bench = Bench::new();
    let report = work(&bench, |request, _| {
        if request.wants_stream() {
            Reply::Raw { status: 200, headers: vec![], content_type: "text/event-stream".into(), body: String::new() }
        } else {
            Reply::error(400, "This model's maximum context length is 512 tokens, however you requested 1001 tokens", "context_length_exceeded")
        }
    })
    .await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::PacketTooLarge, 2));
}

/// What a JSON-only model does: read, edit, finish.
fn json_script(request: &Request, _: usize) -> Reply {
    if request.body.get("tools").is_some() {
        return Reply::error(400, "this model does not support tools", "");
    }
    let last = request.last_text();
    if last.contains("edited src/a.py") {
        let text = "```json\n{\"tool\": \"finish\", \"args\": {\"resolved\": [\"F-1\"], \"summary\": \"ok\"}}\n```";
        Answer::text(text).into()
    } else if last.contains("hash: ") {
        let args = json!({"path": "src/a.py", "hash": hash_in(last), "edits": [{"search": "== None", "replace": "is None"}]});
        Answer::text(format!("<think>hm {{</think>{}", json!({"tool": "edit_file", "args": args})))
            .into()
    } else {
        Answer::text("{\"tool\": \"read_file\", \"args\": {\"path\": \"src/a.py\"}}").into()
    }
}

#[tokio::test]
async fn without_tool_calls_it_steps_down_to_json() {
    let bench = Bench::new();
    let report = work(&bench, json_script).await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert!(bench.text("src/a.py").contains("is None"));
    assert_eq!(report.usage.requests, 4);

    // The server takes the tools, but gives the calls as text.
    let bench = Bench::new();
    let report = work(&bench, |request, n| {
        let mut blind = request.clone();
        blind.body.as_object_mut().unwrap().remove("tools");
        json_script(&blind, n)
    })
    .await;
    assert_eq!(report.outcome, Outcome::Success, "{}", report.detail);
    assert!(bench.text("src/a.py").contains("is None"));
}

#[tokio::test]
async fn then_to_plain_blocks() {
    let plain = "Here:\n```overhaul:edit src/a.py\n<<<<<<< SEARCH\n    if x == None:\n=======\n    if x is None:\n>>>>>>> REPLACE\n```\n\
        ```overhaul:write src/b.py\nb = 1\n```\n```json\n{\"resolved\": [\"F-1\"], \"blocked\": [], \"summary\": \"ok\"}\n```\n";
    let bench = Bench::new();
    let report = work(&bench, move |request, _| {
        let body = request.body.to_string();
        if body.contains("overhaul:write") {
            // The files are in the task, because it cannot read them.
            assert!(body.contains("### src/a.py"));
            Answer::text(plain).into()
        } else {
            Answer::text("I think we should fix this.").into()
        }
    })
    .await;
    assert_eq!(report.outcome, Outcome::Success, "{}\n{}", report.detail, report.log);
    assert!(bench.text("src/a.py").contains("if x is None:"));
    assert_eq!(bench.text("src/b.py"), "b = 1\n");
    assert_eq!(report.usage.requests, 6);
}

#[tokio::test]
async fn plain_blocks_are_confined_too() {
    let bench = Bench::new();
    let bad = "```overhaul:write README.md\nx\n```\n```overhaul:write ../x\nx\n```\n```json\n{\"resolved\": [\"F-1\"]}\n```";
    let server = Scripted::start(move |_, n| {
        if n == 0 {
            Answer::text(bad).into()
        } else {
            Answer::text("```json\n{\"resolved\": [\"F-1\"]}\n```").into()
        }
    })
    .await
    .unwrap();
    let report = work_with(&bench, &server, |s| s.dialect = Some(Dialect::Plain)).await;
    assert_eq!((report.outcome, report.usage.requests), (Outcome::Success, 2));
    assert_eq!(bench.text("README.md"), "# sample\n");
    let told = server.requests()[1].last_text().to_owned();
    assert!(told.contains("write scope") && told.contains("without '..'"), "{told}");
}

#[tokio::test]
async fn mere_talk_ends_as_an_invalid_result() {
    let bench = Bench::new();
    let report = work(&bench, |_, _| Answer::text("All fixed!").into()).await;
    assert_eq!(report.outcome, Outcome::InvalidResult);
    assert_eq!(report.usage.requests, 7);
    let report =
        work(&bench, |_, _| Answer::text("```json\n{\"resolved\": [\"F-7\"]}\n```").into()).await;
    assert_eq!(report.outcome, Outcome::InvalidResult);
    assert!(report.detail.contains("F-7"), "{}", report.detail);
}

#[tokio::test]
async fn a_final_text_with_the_result_counts() {
    let bench = Bench::new();
    let text = "Done.\n```json\n{\"resolved\": [\"F-1\"], \"blocked\": [{\"finding\": \"F-2\", \"reason\": \"no\"}], \"summary\": \"s\"}\n```";
    let report = work(&bench, play(vec![Answer::text(text).into()])).await;
    assert_eq!(report.outcome, Outcome::Success);
    assert_eq!(report.result.unwrap().blocked.len(), 1);
}

#[tokio::test]
async fn a_model_that_only_talks_is_given_up_soon_and_not_asked_to_repair() {
    let server = Scripted::start(|_, _| Answer::text("I would look at the file first.").into());
    let server = server.await.unwrap();
    let report = work_with(&Bench::new(), &server, |_| {}).await;
    assert_eq!(report.outcome, Outcome::InvalidResult, "{}", report.detail);
    assert_eq!(server.requests().len(), 7, "three, then two for each form below");
    assert!(report.detail.contains("give the pool a `model`"), "{}", report.detail);
    assert!(!report.may_be_repaired());
}
