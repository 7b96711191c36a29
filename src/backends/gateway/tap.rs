//! Reading usage, model and errors out of an answer while it passes by.

use serde_json::Value;

use crate::backends::openai::hidden_error;
use crate::model::{MOST_TOKENS, MOST_USD};

/// Bytes kept of an answer that is no stream, and of one line of a stream.
const MAX_KEPT: usize = 8 * 1024 * 1024;

/// Listens to one answer. Never changes it.
#[derive(Debug)]
pub(super) struct Tap {
    stream: bool,
    kept: Vec<u8>,
    overflow: bool,
    pub(super) usage: Option<(u64, u64)>,
    pub(super) model: Option<String>,
    /// US dollars, where the answer says.
    pub(super) cost_usd: Option<f64>,
    /// An error inside a 200: the status that it names, and its body.
    pub(super) error: Option<(Option<u16>, String)>,
    /// The stream said that it is complete.
    pub(super) complete: bool,
    /// Nothing that matters comes any more: a client may stop reading here.
    pub(super) over: bool,
    pub(super) bytes: u64,
}

impl Tap {
    pub(super) fn new(stream: bool) -> Self {
        Self {
            stream,
            kept: Vec::new(),
            overflow: false,
            usage: None,
            model: None,
            cost_usd: None,
            error: None,
            complete: false,
            over: false,
            bytes: 0,
        }
    }

    pub(super) fn hear(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        if !self.stream {
            self.keep(piece);
            return;
        }
        let mut rest = piece;
        while let Some(end) = rest.iter().position(|b| *b == b'\n') {
            let (line, after) = rest.split_at(end);
            rest = after.get(1..).unwrap_or(&[]);
            if self.kept.is_empty() && !self.overflow {
                self.line(line);
            } else {
                self.keep(line);
                let whole = std::mem::take(&mut self.kept);
                if !std::mem::take(&mut self.overflow) {
                    self.line(&whole);
                }
            }
        }
        self.keep(rest);
    }

    /// The answer is over.
    pub(super) fn end(&mut self) {
        let rest = std::mem::take(&mut self.kept);
        if self.stream {
            self.line(&rest);
        } else if !self.overflow {
            match serde_json::from_slice::<Value>(&rest) {
                Ok(body) => {
                    self.complete = true;
                    self.read(&body);
                }
                Err(_) => self.complete = false,
            }
        }
    }

    fn keep(&mut self, piece: &[u8]) {
        if self.kept.len() + piece.len() > MAX_KEPT {
            self.overflow = true;
            self.kept.clear();
        } else {
            self.kept.extend_from_slice(piece);
        }
    }

    fn line(&mut self, line: &[u8]) {
        let Some(data) = line.strip_prefix(b"data:") else { return };
        let data = data.trim_ascii();
        if data == b"[DONE]" {
            self.complete = true;
            self.over = true;
        } else if let Ok(event) = serde_json::from_slice::<Value>(data) {
            self.read(&event);
        }
    }

    /// One body or event of chat completions, responses or messages.
    fn read(&mut self, event: &Value) {
        let kind = event.get("type").and_then(Value::as_str).unwrap_or("");
        if matches!(kind, "message_stop" | "response.completed" | "response.incomplete") {
            self.complete = true;
            self.over = true;
        }
        let choices = event.get("choices").and_then(Value::as_array);
        if choices
            .is_some_and(|c| c.iter().any(|c| c.get("finish_reason").is_some_and(Value::is_string)))
        {
            self.complete = true;
        }
        // Both newer protocols wrap the object: `response` and `message`.
        let inner =
            event.get("response").or_else(|| event.get("message")).filter(|v| v.is_object());
        let inner = inner.unwrap_or(event);
        if let Some(model) = inner.get("model").and_then(Value::as_str).filter(|m| !m.is_empty()) {
            self.model = Some(model.to_owned());
        }
        if let Some(usage) = inner.get("usage").or_else(|| event.get("usage")) {
            self.read_usage(usage);
        }
        if kind == "error"
            || kind == "response.failed"
            || event.get("error").is_some_and(|e| !e.is_null())
        {
            let status = hidden_error(event).or_else(|| hidden_error(inner)).and_then(|e| e.status);
            self.error = Some((status, event.to_string()));
        }
    }

    fn read_usage(&mut self, usage: &Value) {
        let tokens = |value: &Value| value.as_u64().map(|n| n.min(MOST_TOKENS));
        let get = |names: &[&str]| names.iter().find_map(|n| usage.get(*n)).and_then(tokens);
        let input = get(&["prompt_tokens", "input_tokens"]);
        let output = get(&["completion_tokens", "output_tokens"]);
        // OpenRouter's field; its credits are dollars.
        let cost = usage.get("cost").and_then(Value::as_f64).filter(|c| c.is_finite() && *c >= 0.0);
        let cost = cost.map(|usd| usd.min(MOST_USD));
        self.cost_usd = cost.or(self.cost_usd);
        // Messages count cached input beside the rest of it.
        let cached = ["cache_creation_input_tokens", "cache_read_input_tokens"]
            .iter()
            .filter_map(|n| usage.get(*n).and_then(tokens))
            .sum::<u64>();
        if input.is_none() && output.is_none() {
            return;
        }
        let (old_input, old_output) = self.usage.unwrap_or_default();
        // A later event repeats or completes an earlier one; it never takes back.
        let input = input.map_or(0, |i| i + cached);
        self.usage = Some((input.max(old_input), output.unwrap_or(0).max(old_output)));
    }
}

#[cfg(test)]
mod tests {
    use super::Tap;

    fn hear(text: &str, step: usize) -> Tap {
        let mut tap = Tap::new(true);
        text.as_bytes().chunks(step).for_each(|c| tap.hear(c));
        tap.end();
        tap
    }

    #[test]
    fn three_protocols_in_any_pieces() {
        let chat = "data: {\"model\":\"m\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
            data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":7}}\n\ndata: [DONE]\n\n";
        let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":\
            {\"model\":\"m\",\"usage\":{\"input_tokens\":5,\"output_tokens\":7}}}\n\n";
        let messages = "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\",\
            \"usage\":{\"input_tokens\":2,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\r\n\r\n\
            data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":7}}\n\ndata: {\"type\":\"message_stop\"}\n\n";
        for text in [chat, responses, messages] {
            for step in [1, 7, 10_000] {
                let tap = hear(text, step);
                assert_eq!(tap.usage, Some((5, 7)), "{text}");
                assert_eq!(tap.model.as_deref(), Some("m"));
                assert!(tap.complete && tap.error.is_none());
            }
        }
    }

    #[test]
    fn errors_and_cuts() {
        let tap = hear("data: {\"error\":{\"message\":\"x\",\"code\":\"429\"}}\n\n", 3);
        assert_eq!(tap.error.unwrap().0, Some(429));
        assert!(
            hear("data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\n\n", 9)
                .error
                .is_some()
        );
        assert!(
            !hear("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"cho", 9)
                .complete
        );
    }
}
