//! Reads a 2xx answer by its structure: a result, a cut or filtered one, an empty one, or an error
//! in a success's clothes. The answer's own text is never looked at.

use serde_json::Value;

use crate::model::Outcome;

/// What a 2xx body turned out to be.
#[derive(Debug, PartialEq)]
pub(super) enum Answer {
    /// Decided by structure: outcome, rule, what was seen.
    Final(Outcome, &'static str, String),
    /// An error; its text goes to the rules.
    Failed(String),
}

fn done(outcome: Outcome, rule: &'static str, seen: impl Into<String>) -> Answer {
    Answer::Final(outcome, rule, seen.into())
}

/// Reads a whole body, JSON or a stream of server-sent events.
pub(super) fn read(body: &str, content_type: &str) -> Answer {
    let trimmed = body.trim();
    if trimmed.is_empty() {
        return done(Outcome::Transient, "empty-body", "");
    }
    if content_type.contains("event-stream")
        || trimmed.starts_with("data:")
        || trimmed.starts_with("event:")
        || trimmed.starts_with("error:")
        || trimmed.starts_with(": ")
    {
        return stream(trimmed);
    }
    match super::transcript::lenient(trimmed) {
        Some(Value::Array(parts)) if parts.iter().any(is_chunk) => {
            // Gemini streams a JSON array without alt=sse.
            let mut state = Stream::default();
            parts.iter().for_each(|part| state.add(part));
            state.finish(false)
        }
        Some(value) => whole(&value),
        None if trimmed.contains("\"error\"") || trimmed.contains("'error'") => {
            Answer::Failed(trimmed.to_owned())
        }
        None if trimmed.starts_with(['{', '[']) => {
            done(Outcome::Transient, "cut-json", "the body is JSON that does not end")
        }
        None => Answer::Failed(trimmed.to_owned()),
    }
}

fn is_chunk(value: &Value) -> bool {
    value.get("candidates").is_some() || value.get("promptFeedback").is_some()
}

fn present<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    value.get(name).filter(|found| match found {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        Value::Bool(yes) => *yes,
        Value::Number(_) => true,
    })
}

/// A whole answer is a stream of one piece that is known to be complete.
fn whole(value: &Value) -> Answer {
    let mut state = Stream::default();
    state.add(value);
    if let Some(error) = state.error {
        return Answer::Failed(error);
    }
    if state.seen_answer {
        return state.finish(true);
    }
    // MiniMax reports failures as a status in a 200.
    let refused = value.pointer("/base_resp/status_code").and_then(Value::as_i64).unwrap_or(0) != 0;
    let failing = refused
        || value.get("success") == Some(&Value::Bool(false))
        || ["errors", "detail"].iter().any(|name| present(value, name).is_some())
        || (present(value, "message").is_some_and(Value::is_string)
            && ["code", "type", "status"].iter().any(|name| present(value, name).is_some()))
        || (value.get("msg").is_some() && value.get("code").is_some());
    if failing || value.is_string() {
        return Answer::Failed(value.to_string());
    }
    done(Outcome::Success, "answer", "")
}

fn stream(text: &str) -> Answer {
    let mut state = Stream::default();
    let mut broken = false;
    for line in text.lines() {
        let line = line.trim();
        let data = line.strip_prefix("data:").map_or(line, str::trim);
        if data == "[DONE]" {
            state.terminal = true;
        } else if let Some(error) = line.strip_prefix("error:").map(str::trim)
            && error.starts_with('{')
        {
            // llama.cpp names the field of its last event so.
            state.error.get_or_insert_with(|| error.to_owned());
        } else if data.starts_with('{') {
            match serde_json::from_str::<Value>(data) {
                Ok(value) => state.add(&value),
                Err(_) => broken = true,
            }
        } else if !line.starts_with("event:")
            && !line.starts_with(':')
            && line.contains("\"error\"")
        {
            state.error.get_or_insert_with(|| line.to_owned());
        }
    }
    if state.error.is_none() && broken {
        return done(Outcome::Transient, "broken-stream", "an event does not parse");
    }
    state.finish(false)
}

/// What the pieces of an answer add up to.
#[derive(Debug, Default)]
struct Stream {
    error: Option<String>,
    seen_answer: bool,
    content: bool,
    terminal: bool,
    finish: Option<String>,
    filtered: bool,
}

impl Stream {
    fn add(&mut self, value: &Value) {
        let kind = value.get("type").and_then(Value::as_str).unwrap_or("");
        if self.error.is_none() && (kind == "error" || present(value, "error").is_some()) {
            self.error = Some(value.to_string());
        }
        if let Some(choices) = value.get("choices").and_then(Value::as_array) {
            self.seen_answer = true;
            choices.iter().for_each(|choice| self.choice(choice));
        }
        if let Some(candidates) = value.get("candidates").and_then(Value::as_array) {
            self.seen_answer = true;
            candidates.iter().for_each(|candidate| self.candidate(candidate));
        }
        if let Some(feedback) = value.get("promptFeedback") {
            self.seen_answer = true;
            self.filtered |= present(feedback, "blockReason").is_some();
        }
        if let Some(results) = value.get("prompt_filter_results").and_then(Value::as_array) {
            self.filtered |= results.iter().any(|result| says_filtered(result, 0));
        }
        self.top_level(value);
        self.anthropic(kind, value);
        self.responses(kind, value);
        self.ollama(value);
    }

    /// Bedrock's Converse (`output.message`, `stopReason`) and Cohere's chat (`message`,
    /// `finish_reason`).
    fn top_level(&mut self, value: &Value) {
        let message = value
            .pointer("/output/message")
            .or_else(|| value.get("message").filter(|message| present(message, "role").is_some()));
        let reason = ["stopReason", "finish_reason"]
            .iter()
            .find_map(|name| present(value, name).and_then(Value::as_str));
        let Some(reason) = reason.filter(|_| message.is_some()) else { return };
        self.seen_answer = true;
        self.content |= message.is_some_and(|message| {
            ["content", "tool_calls"].iter().any(|name| present(message, name).is_some())
        });
        self.end(reason);
    }

    fn choice(&mut self, choice: &Value) {
        if let Some(error) = present(choice, "error") {
            self.error.get_or_insert_with(|| error.to_string());
        }
        for part in [choice.get("message"), choice.get("delta")].into_iter().flatten() {
            self.content |= ["content", "tool_calls", "function_call"]
                .iter()
                .any(|name| present(part, name).is_some());
            self.filtered |= present(part, "refusal").is_some();
        }
        self.content |= present(choice, "text").is_some();
        if let Some(reason) = present(choice, "finish_reason").and_then(Value::as_str) {
            self.end(reason);
        }
    }

    fn candidate(&mut self, candidate: &Value) {
        let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
        self.content |= parts.is_some_and(|parts| {
            parts.iter().filter(|part| part.get("thought") != Some(&Value::Bool(true))).any(
                |part| {
                    ["text", "functionCall", "inlineData", "executableCode"]
                        .iter()
                        .any(|name| present(part, name).is_some())
                },
            )
        });
        if let Some(reason) = present(candidate, "finishReason").and_then(Value::as_str) {
            self.end(reason);
        }
    }

    fn anthropic(&mut self, kind: &str, value: &Value) {
        match kind {
            "message" => {
                self.seen_answer = true;
                self.content |= present(value, "content").is_some();
                if let Some(reason) = present(value, "stop_reason").and_then(Value::as_str) {
                    self.end(reason);
                }
            }
            "message_start" => self.seen_answer = true,
            "content_block_start" | "content_block_delta" => self.content = true,
            "message_delta" => {
                if let Some(reason) = value.pointer("/delta/stop_reason").and_then(Value::as_str) {
                    self.end(reason);
                }
            }
            "message_stop" => self.terminal = true,
            _ => {}
        }
    }

    fn responses(&mut self, kind: &str, value: &Value) {
        if kind.starts_with("response.") {
            self.seen_answer = true;
            self.content |= kind.contains("delta") || kind == "response.output_item.done";
        }
        let response = if value.get("object").and_then(Value::as_str) == Some("response") {
            value
        } else if let Some(response) =
            value.get("response").filter(|_| kind.starts_with("response."))
        {
            response
        } else {
            return;
        };
        self.seen_answer = true;
        let typed =
            |item: &Value, kind: &str| item.get("type").and_then(Value::as_str) == Some(kind);
        for item in response.get("output").and_then(Value::as_array).into_iter().flatten() {
            let parts = item.get("content").and_then(Value::as_array);
            let refused = parts.is_some_and(|parts| {
                !parts.is_empty() && parts.iter().all(|part| typed(part, "refusal"))
            });
            self.filtered |= refused;
            self.content |= !refused && !typed(item, "reasoning");
        }
        if let Some(error) = present(response, "error") {
            self.error.get_or_insert_with(|| error.to_string());
        }
        match response.get("status").and_then(Value::as_str) {
            Some("completed") => self.end("stop"),
            Some("incomplete") => self.end(
                response
                    .pointer("/incomplete_details/reason")
                    .and_then(Value::as_str)
                    .unwrap_or("length"),
            ),
            Some("failed" | "cancelled") => {
                self.error.get_or_insert_with(|| "response failed: server_error".to_owned());
            }
            _ => {
                if let Some(reason) =
                    response.pointer("/incomplete_details/reason").and_then(Value::as_str)
                {
                    self.end(reason);
                }
            }
        }
    }

    fn ollama(&mut self, value: &Value) {
        let Some(finished) = value.get("done").and_then(Value::as_bool) else { return };
        self.seen_answer = true;
        self.content |= value
            .pointer("/message/content")
            .and_then(Value::as_str)
            .is_some_and(|t| !t.is_empty())
            || value.pointer("/message/tool_calls").is_some()
            || present(value, "response").is_some();
        if finished {
            self.end(value.get("done_reason").and_then(Value::as_str).unwrap_or("stop"));
        }
    }

    fn end(&mut self, reason: &str) {
        self.terminal = true;
        self.finish = Some(reason.to_ascii_lowercase());
    }

    fn finish(self, whole: bool) -> Answer {
        if let Some(error) = self.error {
            return Answer::Failed(error);
        }
        let reason = self.finish.as_deref().unwrap_or("");
        let seen = format!("finish reason: {reason}");
        match reason {
            "length"
            | "max_tokens"
            | "max_output_tokens"
            | "model_length"
            | "error_limit"
            | "model_context_window_exceeded" => {
                return done(Outcome::PacketTooLarge, "answer-cut-at-cap", seen);
            }
            "content_filter"
            | "content-filter"
            | "refusal"
            | "safety"
            | "recitation"
            | "prohibited_content"
            | "blocklist"
            | "spii"
            | "image_safety"
            | "sensitive"
            | "guardrail_intervened"
            | "error_toxic"
            | "content_filtered" => {
                return done(Outcome::ContentFiltered, "answer-filtered", seen);
            }
            "error"
            | "network_error"
            | "insufficient_system_resource"
            | "unknown"
            | "malformed_function_call"
            | "abort" => {
                return done(Outcome::Transient, "answer-aborted", seen);
            }
            _ => {}
        }
        if !self.content {
            return if self.filtered {
                done(Outcome::ContentFiltered, "prompt-filtered", "the prompt was filtered")
            } else {
                done(Outcome::Transient, "empty-answer", "the answer has no content")
            };
        }
        if !self.terminal && !whole {
            return done(Outcome::Transient, "cut-stream", "the stream has no end");
        }
        done(Outcome::Success, "answer", seen)
    }
}

/// Azure's `content_filter_results`: `filtered: true` at any depth.
fn says_filtered(value: &Value, depth: usize) -> bool {
    if depth > 8 {
        return false;
    }
    match value {
        Value::Object(fields) => fields.iter().any(|(name, inner)| {
            (name == "filtered" && inner == &Value::Bool(true)) || says_filtered(inner, depth + 1)
        }),
        Value::Array(items) => items.iter().any(|inner| says_filtered(inner, depth + 1)),
        _ => false,
    }
}
