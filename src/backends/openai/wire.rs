//! Reading what OpenAI-compatible servers really send. Tolerant on purpose: fields are missing,
//! null, of other types, or have other names from server to server.

use serde_json::Value;

use crate::model::MOST_TOKENS;

/// One call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// As sent; should be a JSON object, often is not.
    pub(super) arguments: String,
}

/// One answer, from a body or assembled from a stream.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Completion {
    pub(super) text: String,
    pub(super) refusal: String,
    pub(super) calls: Vec<ToolCall>,
    pub(super) finish: Option<String>,
    pub(super) model: Option<String>,
    /// Input and output tokens.
    pub(super) usage: Option<(u64, u64)>,
    /// Whether any choice was there at all.
    pub(super) any_choice: bool,
}

/// The error that hides in a 200: its body, and the status that it names.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::backends) struct HiddenError {
    pub(in crate::backends) status: Option<u16>,
    pub(super) body: String,
}

/// Finds an error in an answer that has status 200.
pub(in crate::backends) fn hidden_error(body: &Value) -> Option<HiddenError> {
    let error = body.get("error").filter(|e| !e.is_null() && **e != Value::Bool(false));
    let has_choices = body.get("choices").is_some_and(Value::is_array);
    if error.is_none() && has_choices {
        return None;
    }
    // `{"status":429,"title":...}` and `{"detail":...}` are error bodies, too.
    let problem = ["status", "detail", "title", "message", "object"].iter().any(|key| match *key {
        "status" => number(body.get("status")).is_some_and(|n| n >= 400),
        "object" => body.get("object").and_then(Value::as_str) == Some("error"),
        key => body.get(key).is_some(),
    });
    if error.is_none() && !problem {
        return None;
    }
    let named = |v: Option<&Value>| number(v).filter(|n| (400..600).contains(n));
    let status = error
        .and_then(|e| named(e.get("code")).or_else(|| named(e.get("status"))))
        .or_else(|| named(body.get("status")))
        .or_else(|| named(body.get("code")))
        .and_then(|n| u16::try_from(n).ok());
    Some(HiddenError { status, body: body.to_string() })
}

/// A number, or a text that is one.
fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(n) => n.as_u64(),
        Value::String(s) => s.parse().ok(),
        _ => None,
    }
}

impl Completion {
    /// Takes in a whole body or one chunk of a stream.
    pub(super) fn absorb(&mut self, body: &Value) {
        if let Some(model) = body.get("model").and_then(Value::as_str).filter(|m| !m.is_empty()) {
            self.model = Some(model.to_owned());
        }
        if let Some(usage) = body.get("usage").filter(|u| u.is_object()) {
            let of = |a: &str, b: &str| number(usage.get(a)).or_else(|| number(usage.get(b)));
            let of = |a: &str, b: &str| of(a, b).map(|tokens| tokens.min(MOST_TOKENS));
            let input = of("prompt_tokens", "input_tokens");
            let output = of("completion_tokens", "output_tokens");
            if input.is_some() || output.is_some() {
                self.usage = Some((input.unwrap_or(0), output.unwrap_or(0)));
            }
        }
        let choices = body.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        // Only the first choice counts; `n` is never sent.
        let first = choices.iter().find(|c| number(c.get("index")).unwrap_or(0) == 0);
        if let Some(choice) = first {
            self.any_choice = true;
            if let Some(part) = choice.get("delta").or_else(|| choice.get("message")) {
                self.absorb_message(part);
            } else if let Some(text) = choice.get("text").and_then(Value::as_str) {
                self.text.push_str(text);
            }
            if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
                self.finish = Some(finish.to_owned());
            }
        }
    }

    fn absorb_message(&mut self, message: &Value) {
        match message.get("content") {
            Some(Value::String(text)) => self.text.push_str(text),
            Some(Value::Array(parts)) => {
                for part in parts {
                    if let Some(text) = part.get("text").and_then(Value::as_str) {
                        self.text.push_str(text);
                    }
                }
            }
            _ => {}
        }
        if let Some(text) = message.get("refusal").and_then(Value::as_str) {
            self.refusal.push_str(text);
        }
        for call in message.get("tool_calls").and_then(Value::as_array).into_iter().flatten() {
            self.absorb_call(call);
        }
        if let Some(function) = message.get("function_call").filter(|f| f.is_object()) {
            self.absorb_call(&serde_json::json!({ "index": 0, "function": function }));
        }
    }

    /// Whole calls have an id and no index; pieces have an index, or neither.
    fn absorb_call(&mut self, call: &Value) {
        let id = call.get("id").and_then(Value::as_str).unwrap_or("");
        let index = number(call.get("index")).and_then(|i| usize::try_from(i).ok());
        let slot = match index {
            Some(index) if index < self.calls.len() => index,
            Some(_) => self.push_call(),
            None if id.is_empty() && !self.calls.is_empty() && call_name(call).is_none() => {
                self.calls.len() - 1
            }
            None => match self.calls.iter().position(|c| !id.is_empty() && c.id == id) {
                Some(same) => same,
                None => self.push_call(),
            },
        };
        let Some(target) = self.calls.get_mut(slot) else { return };
        if target.id.is_empty() {
            id.clone_into(&mut target.id);
        }
        if let Some(name) = call_name(call)
            && target.name.is_empty()
        {
            name.clone_into(&mut target.name);
        }
        match call.get("function").unwrap_or(call).get("arguments") {
            Some(Value::String(text)) => target.arguments.push_str(text),
            Some(value @ (Value::Object(_) | Value::Array(_))) => {
                target.arguments.push_str(&value.to_string());
            }
            _ => {}
        }
    }

    fn push_call(&mut self) -> usize {
        self.calls.push(ToolCall::default());
        self.calls.len() - 1
    }

    /// Nothing in it that could be worked with.
    pub(super) fn is_empty(&self) -> bool {
        self.text.trim().is_empty() && self.calls.is_empty() && self.refusal.is_empty()
    }
}

fn call_name(call: &Value) -> Option<&str> {
    let function = call.get("function").unwrap_or(call);
    function.get("name").and_then(Value::as_str).filter(|n| !n.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Completion, hidden_error};

    fn stream(chunks: &[Value]) -> Completion {
        let mut all = Completion::default();
        chunks.iter().for_each(|c| all.absorb(c));
        all
    }

    fn delta(delta: &Value) -> Value {
        json!({"model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    }

    #[test]
    fn pieces_of_parallel_calls() {
        let got = stream(&[
            delta(&json!({"role": "assistant", "content": null})),
            delta(
                &json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "read_file", "arguments": ""}}]}),
            ),
            delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"path\":"}}]})),
            delta(&json!({"tool_calls": [{"index": 0, "function": {"arguments": "\"x\"}"}}]})),
            delta(
                &json!({"tool_calls": [{"index": 1, "id": "b", "function": {"name": "finish", "arguments": {}}}]}),
            ),
            json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 7}}),
        ]);
        assert_eq!(got.calls.len(), 2);
        assert_eq!(got.calls[0].arguments, r#"{"path":"x"}"#);
        assert_eq!((got.calls[1].name.as_str(), got.calls[1].arguments.as_str()), ("finish", "{}"));
        assert_eq!(got.usage, Some((5, 7)));
        assert_eq!(got.finish.as_deref(), Some("tool_calls"));
    }

    #[test]
    fn calls_without_an_index() {
        let got = stream(&[
            delta(
                &json!({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{"}}]}),
            ),
            delta(&json!({"tool_calls": [{"function": {"arguments": "}"}}]})),
            delta(
                &json!({"tool_calls": [{"id": "b", "function": {"name": "g", "arguments": "{}"}}]}),
            ),
        ]);
        let names: Vec<_> =
            got.calls.iter().map(|c| (c.name.as_str(), c.arguments.as_str())).collect();
        assert_eq!(names, [("f", "{}"), ("g", "{}")]);
    }

    #[test]
    fn errors_in_a_200() {
        let status = |v: &Value| hidden_error(v).map(|e| e.status);
        assert_eq!(status(&json!({"choices": [], "error": null})), None);
        assert_eq!(status(&json!({"error": "Unauthorized"})), Some(None));
        assert_eq!(status(&json!({"error": {"code": "429"}})), Some(Some(429)));
        assert_eq!(
            status(&json!({"error": {"code": 503, "message": "x"}, "choices": []})),
            Some(Some(503))
        );
        assert_eq!(status(&json!({"status": 429, "title": "Too Many Requests"})), Some(Some(429)));
        assert_eq!(status(&json!({"detail": "Not Found"})), Some(None));
        assert_eq!(status(&json!({"usage": {}})), None);
    }
}
