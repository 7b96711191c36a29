//! Reads what a command-line worker printed: its events where it prints JSON, else its error
//! lines. The worker's answer is never evidence.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::model::Outcome;

/// What the events of a worker say.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    /// Decided by structure: outcome, rule, what was seen.
    Final(Outcome, &'static str, String),
    /// It reported an error: status and text go to the rules.
    Failed(Option<u16>, String),
    /// Events without an end.
    Unfinished,
    /// It prints no events that are known.
    NotEvents,
}

/// Most events that are read; the last ones of a longer transcript.
const MOST_EVENTS: usize = 20_000;

/// The events of standard output: one JSON value, or JSON lines with anything between them.
pub(in crate::backends) fn events(stdout: &str) -> Vec<Value> {
    let trimmed = stdout.trim();
    match lenient(trimmed) {
        Some(Value::Array(items)) => return items,
        Some(value @ Value::Object(_)) => return vec![value],
        _ => {}
    }
    let lines: Vec<&str> =
        trimmed.lines().filter(|line| line.trim_start().starts_with('{')).collect();
    let from = lines.len().saturating_sub(MOST_EVENTS);
    let mut events: Vec<Value> =
        lines[from..].iter().filter_map(|line| serde_json::from_str(line.trim()).ok()).collect();
    if events.is_empty() {
        // Log lines before one pretty-printed object.
        let start = trimmed.find("\n{").map(|at| at + 1);
        events.extend(start.and_then(|at| serde_json::from_str(trimmed.get(at..)?).ok()));
    }
    events
}

/// Reads standard output.
pub(super) fn read(stdout: &str) -> Said {
    let events = events(stdout);
    let mut last = Said::NotEvents;
    let mut refused_until = None;
    for event in &events {
        let begins = matches!(text(event, "/type"), "step_start" | "turn.started");
        refused_until = refusal(event).or(refused_until);
        last = match (last, one(event)) {
            (Said::Final(Outcome::Success, ..), _) if begins => Said::Unfinished,
            // Events in between do not undo an end or an error; only the next end does.
            (last, None) => last,
            (Said::NotEvents, Some(said)) => said,
            (last, Some(Said::Unfinished)) => last,
            (_, Some(said)) => said,
        };
    }
    match (last, events.last(), refused_until) {
        (Said::Unfinished, Some(event), _) if text(event, "/subtype") == "api_retry" => {
            Said::Failed(status(event, "/error_status"), text(event, "/error").to_owned())
        }
        (Said::Unfinished, Some(event), Some(until)) if refusal(event).is_some() => {
            Said::Failed(Some(429), format!("usage limit reached {until}"))
        }
        (Said::Failed(status, words), _, Some(until)) => {
            Said::Failed(status, format!("{words} {until}"))
        }
        (last, ..) => last,
    }
}

/// Claude Code's `rate_limit_event` of a limit that refuses, as a field with its reset.
fn refusal(event: &Value) -> Option<String> {
    let info = event.get("rate_limit_info").filter(|_| text(event, "/type") == "rate_limit_event");
    let info = info.filter(|info| text(info, "/status") == "rejected")?;
    Some(format!("\"resets_at\": {}", info.get("resetsAt").unwrap_or(&Value::Null)))
}

/// JSON whose strings may hold raw control characters, as terminals and pastes leave them.
pub(super) fn lenient(text: &str) -> Option<Value> {
    serde_json::from_str(text)
        .or_else(|_| serde_json::from_str(&text.replace(|c: char| c.is_ascii_control(), " ")))
        .ok()
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn status(value: &Value, path: &str) -> Option<u16> {
    let found = value.pointer(path)?;
    let number = found.as_u64().or_else(|| found.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (100..600).contains(status))
}

fn finished(rule: &'static str) -> Said {
    Said::Final(Outcome::Success, rule, String::new())
}

/// One event of Claude Code, Cursor, Codex, opencode or Gemini CLI.
fn one(event: &Value) -> Option<Said> {
    // Codex before 0.30 wraps its events.
    if let Some(inner) = event.get("msg").filter(|inner| inner.get("type").is_some()) {
        return match text(inner, "/type") {
            "error" => Some(Said::Failed(None, text(inner, "/message").to_owned())),
            "task_complete" => Some(finished("codex-task-complete")),
            _ => Some(Said::Unfinished),
        };
    }
    if let Some(result) = event.get("result").filter(|_| text(event, "/event") == "result") {
        return Some(agy(result));
    }
    match text(event, "/type") {
        "result" => Some(result(event)),
        "assistant" => Some(assistant(event)),
        "turn.completed" => Some(finished("codex-turn-completed")),
        "turn.failed" => Some(Said::Failed(None, text(event, "/error/message").to_owned())),
        "error" => Some(error(event)),
        // Copilot CLI
        "session.error" => Some(Said::Failed(
            status(event, "/data/statusCode"),
            event.get("data").map_or_else(String::new, Value::to_string),
        )),
        "step_finish" | "step-finish" => Some(step(event)),
        "message_end" | "auto_retry_end" => pi(event),
        "" => gemini_json(event),
        kind => is_known(kind, event).then_some(Said::Unfinished),
    }
}

/// Whether an event without an end is one of a CLI that is known to print an end. What a command
/// of the user's prints is an answer, also where it is JSON with a `type`.
fn is_known(kind: &str, event: &Value) -> bool {
    let has = |names: &[&str]| names.iter().any(|name| event.get(*name).is_some());
    match kind {
        // Claude Code and Cursor; Gemini CLI
        "system" | "user" | "stream_event" | "rate_limit_event" | "init" => true,
        // Codex; Copilot CLI
        kind if ["thread.", "turn.", "item.", "session.", "assistant."]
            .iter()
            .any(|family| kind.starts_with(family)) =>
        {
            true
        }
        // opencode
        kind if has(&["part", "sessionID"]) => {
            matches!(kind, "text" | "reasoning" | "tool_use" | "step_start" | "step-start")
        }
        // Gemini CLI; Cursor
        "message" | "tool_use" | "tool_result" | "tool_call" | "thinking" => {
            has(&["role", "tool_id", "timestamp", "call_id", "session_id"])
        }
        _ => false,
    }
}

/// pi's events: a message's end has a stop reason, and the last retry its error.
fn pi(event: &Value) -> Option<Said> {
    let failed = |words: &str| Some(Said::Failed(None, words.to_owned()));
    if text(event, "/type") == "auto_retry_end" {
        return (event.get("success") == Some(&Value::Bool(false)))
            .then(|| failed(text(event, "/finalError")))?;
    }
    match text(event, "/message/stopReason") {
        "error" | "aborted" => failed(text(event, "/message/errorMessage")),
        "length" => Some(Said::Final(
            Outcome::PacketTooLarge,
            "answer-cut-at-cap",
            "stop reason: length".to_owned(),
        )),
        "stop" => Some(finished("pi-stop")),
        _ => None,
    }
}

/// The result of Claude Code and Cursor (`is_error`), or of Gemini CLI's stream (`status`).
fn result(event: &Value) -> Said {
    let words = [text(event, "/result"), text(event, "/error/message"), text(event, "/error")];
    let mut said = words.iter().find(|words| !words.is_empty()).copied().unwrap_or("").to_owned();
    if let Some(errors) = event.get("errors").and_then(Value::as_array) {
        for error in errors.iter().filter_map(Value::as_str).take(8) {
            said.push(' ');
            said.push_str(error);
        }
    }
    let failed = event.get("is_error").and_then(Value::as_bool).unwrap_or(false)
        || text(event, "/status") == "error"
        || event.get("error").is_some_and(|error| !error.is_null());
    let subtype = text(event, "/subtype");
    if subtype.starts_with("error") && said.trim().is_empty() {
        return Said::Final(Outcome::Error, "worker-gave-up", subtype.to_owned());
    }
    if !failed && !subtype.starts_with("error") {
        let empty = event.get("result").is_some_and(|result| result == "")
            && event.get("structured_output").is_none()
            && event.pointer("/usage/output_tokens") == Some(&Value::from(0));
        return if empty {
            Said::Final(Outcome::Transient, "empty-answer", "the result is empty".to_owned())
        } else {
            finished("worker-result")
        };
    }
    let code = status(event, "/api_error_status").or_else(|| status(event, "/error/code"));
    if said.trim().is_empty() && code.is_none() {
        return Said::Final(
            Outcome::QuotaUnclassified,
            "worker-error-without-text",
            "is_error without a word".to_owned(),
        );
    }
    if subtype.starts_with("error_max") {
        return Said::Final(Outcome::Error, "worker-gave-up", subtype.to_owned());
    }
    Said::Failed(code, said)
}

/// The end of agy's stream.
fn agy(result: &Value) -> Said {
    let error = result.get("error").filter(|e| !e.is_null() && *e != "");
    match (error, text(result, "/status")) {
        (None, "SUCCESS") => finished("worker-result"),
        (None, "") => Said::Unfinished,
        (None, state) => Said::Final(Outcome::Error, "worker-gave-up", state.to_owned()),
        (Some(error), _) => {
            let words = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
            Said::Failed(status(error, "/code"), words)
        }
    }
}

/// Claude Code reports API errors as a message of the model `<synthetic>`.
fn assistant(event: &Value) -> Said {
    let synthetic = text(event, "/message/model") == "<synthetic>"
        || event.get("is_api_error_message") == Some(&Value::Bool(true))
        || event.get("isApiErrorMessage") == Some(&Value::Bool(true))
        || !text(event, "/error").is_empty();
    if !synthetic {
        return Said::Unfinished;
    }
    let mut words = format!("\"error\":\"{}\" ", text(event, "/error"));
    if let Some(parts) = event.pointer("/message/content").and_then(Value::as_array) {
        parts.iter().for_each(|part| words.push_str(text(part, "/text")));
    }
    Said::Failed(None, words.trim_start_matches("\"error\":\"\" ").to_owned())
}

/// An `error` event of Codex (`message`) or opencode (`error.data`).
fn error(event: &Value) -> Said {
    if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
        let code = status(error, "/data/statusCode")
            .or_else(|| status(error, "/statusCode"))
            .or_else(|| status(error, "/code"));
        let words = error.as_str().map_or_else(|| error.to_string(), str::to_owned);
        return Said::Failed(code, words);
    }
    let words = text(event, "/message");
    if words.is_empty() {
        Said::Failed(None, event.to_string())
    } else {
        Said::Failed(None, words.to_owned())
    }
}

/// opencode's end of a model turn.
fn step(event: &Value) -> Said {
    let reason = text(event, "/part/reason");
    let seen = format!("finish reason: {reason}");
    match reason {
        "stop" => finished("opencode-stop"),
        "length" => Said::Final(Outcome::PacketTooLarge, "answer-cut-at-cap", seen),
        "content-filter" => Said::Final(Outcome::ContentFiltered, "answer-filtered", seen),
        "unknown" | "other" | "error" => Said::Final(Outcome::Transient, "answer-aborted", seen),
        _ => Said::Unfinished,
    }
}

/// Gemini CLI's `--output-format json`, or a bare error object.
fn gemini_json(event: &Value) -> Option<Said> {
    if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
        return Some(Said::Failed(status(error, "/code"), event.to_string()));
    }
    match event.get("response").and_then(Value::as_str) {
        Some("") => Some(Said::Final(
            Outcome::Transient,
            "empty-answer",
            "the response is empty".to_owned(),
        )),
        Some(_) => Some(finished("worker-result")),
        None => None,
    }
}

/// Texts up to these sizes are taken whole; longer ones by their error lines.
const SHORT_LINES: usize = 12;
const SHORT_BYTES: usize = 1500;
/// Most lines that are taken after an error line, because terminals wrap and JSON spreads.
const FOLLOWING_LINES: usize = 14;

static ERROR_LINE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r"(?i)^[^\p{L}\p{N}\[{]*(?:\[?\d{4}-\d\d-\d\d[t ][0-9:.z+-]*\]?\s*)?(?:\[)?(?:(?:[a-z]+ )?error\b|ran into this error\b|[a-z]{0,20} ?\[error\]: |[a-z_.]*(?:error|exception)\b|fatal\b|api error|failed\b|failure\b|panic|",
        r"you(?:'|\x{2019}|\x{fffd})?(?:ve| have| are|re) |your (?:credit|account|organi[sz]ation|access)|credit balance|prompt is too long|(?:claude|session|weekly|usage|rate|[0-9]+-hour) .{0,30}limit(?:ed)?(?:$|\s*[|·∙:.,!(]| (?:has |have |was |is )?(?:been )?(?:reached|exceeded|hit|exhausted|error|for ))|limit reached|",
        r"stream (?:disconnected|error)|unexpected status|exceeded retry|request (?:rejected|too large)|quota exceeded|resource exhausted|invalid api key|free usage|execution (?:error|failed)|model call failed|",
        r"selected model|codex ran out|please run|not logged in|sorry, you|there's an issue|too many requests|internal server|connection (?:error|refused|reset)|insufficient)",
    ))
    .ok()
});

/// The lines that report an error. Short texts are taken whole.
pub(super) fn error_lines(text: &str) -> String {
    if text.lines().count() <= SHORT_LINES && text.len() <= SHORT_BYTES {
        return text.to_owned();
    }
    marked_lines(text)
}

/// The lines that report an error, whatever the length of the text.
pub(super) fn marked_lines(text: &str) -> String {
    let Some(pattern) = ERROR_LINE.as_ref() else { return String::new() };
    let mut kept = Vec::new();
    let mut left = 0;
    for line in text.lines() {
        if pattern.is_match(line) {
            left = FOLLOWING_LINES;
        } else if line.trim().is_empty() {
            left = 0;
        }
        if left > 0 {
            kept.push(line);
            left -= 1;
        }
    }
    kept.join("\n")
}

/// Whether a text that should be an answer starts like a CLI's error sentence and is no longer
/// than such sentences are.
pub(super) fn looks_like_error(text: &str) -> bool {
    let text = text.trim();
    text.len() <= 800
        && text.lines().count() <= 10
        && text
            .lines()
            .next()
            .is_some_and(|line| ERROR_LINE.as_ref().is_some_and(|pattern| pattern.is_match(line)))
}

/// A proxy's own page: its title is the status.
static ERROR_PAGE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?is)^(?:<!doctype html[^>]*>\s*)?<html[^>]*>\s*<head[^>]*>.{0,400}?<title>[^<]{0,80}\b[45]\d\d\b").ok()
});

/// aider's own lines about a request that failed.
static AIDER_FAILED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?m)^(?:litellm\.[A-Za-z]+Error: |Model \S{1,120} has hit a token limit!)").ok()
});

/// aider's own lines behind an answer.
static AIDER_ANSWERED: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?m)^(?:Tokens: |Applied edit to |Commit [0-9a-f]{7})").ok());

/// The error in what ended with exit code 0 and is no answer although it is longer than a
/// sentence: a proxy's page, or a run of aider, which exits with 0 after every failure.
pub(super) fn failed_run(stdout: &str) -> Option<&str> {
    let trimmed = stdout.trim();
    if ERROR_PAGE.as_ref()?.is_match(trimmed) {
        return Some(trimmed);
    }
    if !trimmed.lines().take(4).any(|line| line.starts_with("Aider v")) {
        return None;
    }
    let failed = AIDER_FAILED.as_ref()?.find_iter(trimmed).last()?;
    let rest = &trimmed[failed.start()..];
    (!AIDER_ANSWERED.as_ref()?.is_match(rest)).then_some(rest)
}

/// agy's own timeout: it cuts the turn, prints this and exits with 0 behind what was narrated.
static GAVE_UP: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(?mi)^error: timed out waiting for response[ \t\r]*$").ok());

/// The line on standard error by which a CLI says that it ended early, although it exits with 0.
pub(super) fn gave_up(stderr: &str) -> Option<&str> {
    GAVE_UP.as_ref()?.find(stderr).map(|line| line.as_str())
}

/// Lines that CLIs print before any answer, and colour codes.
static CHATTER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?m)\x1b\[[0-9;?]*[A-Za-z]|^(?:loaded cached credentials\.?|data collection is disabled\.?|yolo mode is enabled.*|reading prompt from stdin.*)$").ok()
});

/// Whether standard output holds no answer at all.
pub(super) fn is_empty(stdout: &str) -> bool {
    let lower = stdout.to_ascii_lowercase();
    CHATTER.as_ref().map_or(lower.trim().is_empty(), |chatter| {
        chatter.replace_all(&lower, "").trim().is_empty()
    })
}
