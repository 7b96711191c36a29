//! The conversation of one attempt, and how it is shortened when it outgrows the window.

use serde_json::{Value, json};

use super::wire::ToolCall;
use crate::backends::prompt;

/// Older results longer than this are shortened, in bytes.
const LONG: usize = 600;

/// System prompt, task, and what followed.
#[derive(Debug, Default)]
pub(super) struct History {
    messages: Vec<Value>,
}

impl History {
    pub(super) fn new(system: &str, task: &str) -> Self {
        Self {
            messages: vec![
                json!({"role": "system", "content": system}),
                json!({"role": "user", "content": task}),
            ],
        }
    }

    pub(super) fn messages(&self) -> &[Value] {
        &self.messages
    }

    pub(super) fn user(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
    }

    pub(super) fn assistant(&mut self, text: &str) {
        // Some servers refuse an assistant message without content.
        let text = if text.trim().is_empty() { "(no text)" } else { text };
        self.messages.push(json!({"role": "assistant", "content": text}));
    }

    /// The model's own message with its calls. Arguments that are no JSON object are replaced,
    /// because servers parse them again.
    pub(super) fn assistant_calls(&mut self, text: &str, calls: &[ToolCall]) {
        let calls: Vec<Value> = calls
            .iter()
            .map(|c| {
                let object =
                    serde_json::from_str::<Value>(&c.arguments).is_ok_and(|v| v.is_object());
                let arguments = if object { c.arguments.as_str() } else { "{}" };
                json!({"id": c.id, "type": "function",
                    "function": {"name": c.name, "arguments": arguments}})
            })
            .collect();
        let content = if text.is_empty() { Value::Null } else { text.into() };
        self.messages.push(json!({"role": "assistant", "content": content, "tool_calls": calls}));
    }

    pub(super) fn tool(&mut self, id: &str, text: &str) {
        self.messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
    }

    /// Shortens older results and long arguments; false when nothing was left to shorten.
    pub(super) fn compact(&mut self) -> bool {
        let end = self.messages.len();
        // The last exchange is kept whole if anything older can give way.
        self.shorten(2, end.saturating_sub(2)) || self.shorten(2, end)
    }

    fn shorten(&mut self, from: usize, to: usize) -> bool {
        let mut shortened = false;
        for message in self.messages.get_mut(from..to).into_iter().flatten() {
            if let Some(text) = message.get("content").and_then(Value::as_str)
                && text.len() > LONG
            {
                let short = prompt::cut(text, LONG / 3);
                message["content"] =
                    format!("{short}\n[shortened to save room; read it again if needed]").into();
                shortened = true;
            }
            for call in
                message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten()
            {
                let arguments = &mut call["function"]["arguments"];
                if let Some(text) = arguments.as_str()
                    && text.len() > LONG
                {
                    *arguments = json!({"shortened": text.len()}).to_string().into();
                    shortened = true;
                }
            }
        }
        shortened
    }
}

#[cfg(test)]
mod tests {
    use super::History;

    #[test]
    fn older_results_give_way_first() {
        let mut history = History::new("s", "t");
        for id in ["1", "2"] {
            history.assistant_calls("", &[]);
            history.tool(id, &"x".repeat(5_000));
        }
        assert!(history.compact());
        let size = |h: &History, i: usize| h.messages()[i]["content"].as_str().unwrap().len();
        assert!(size(&history, 3) < 400 && size(&history, 5) == 5_000);
        assert!(history.compact());
        assert!(size(&history, 5) < 400);
        assert!(!history.compact());
    }
}
