//! What a script answers, and how that goes over the wire.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// Characters of tool arguments in one chunk of a stream.
const PIECE: usize = 40;

/// A completion.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Its text.
    pub text: String,
    /// Tool calls: name and arguments as sent.
    pub calls: Vec<(String, String)>,
    /// A refusal.
    pub refusal: Option<String>,
    /// The finish reason; `tool_calls` or `stop` where not given.
    pub finish: Option<String>,
    /// Input and output tokens; not reported where `None`.
    pub usage: Option<(u64, u64)>,
    /// What the usage says that it cost, US dollars.
    pub cost: Option<f64>,
    /// The model's name, where it is not the one asked for.
    pub model: Option<String>,
}

/// What the endpoint does with one request.
#[derive(Debug, Clone)]
pub enum Reply {
    /// Answers, as a stream if asked for one.
    Answer(Answer),
    /// Sends exactly this.
    Raw {
        /// HTTP status.
        status: u16,
        /// Headers besides the content type.
        headers: Vec<(String, String)>,
        /// Content type.
        content_type: String,
        /// Body.
        body: String,
    },
    /// Starts a stream and ends it half way, cleanly or by breaking the connection.
    Cut {
        /// What would have been answered.
        answer: Answer,
        /// Break the connection instead of ending the body.
        abrupt: bool,
    },
    /// Sends headers and the first chunk of a stream, then nothing.
    Hang,
}

impl Answer {
    /// A text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), usage: Some((100, 10)), ..Self::default() }
    }

    /// Tool calls.
    #[must_use]
    pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let calls =
            calls.into_iter().map(|(name, args)| (name.to_owned(), args.to_string())).collect();
        Self { calls, usage: Some((100, 10)), ..Self::default() }
    }

    fn finish(&self) -> &str {
        let natural = if self.calls.is_empty() { "stop" } else { "tool_calls" };
        self.finish.as_deref().unwrap_or(natural)
    }

    fn usage(&self) -> Option<Value> {
        self.usage.map(|(i, o)| {
            let mut usage =
                json!({"prompt_tokens": i, "completion_tokens": o, "total_tokens": i + o});
            if let Some(cost) = self.cost {
                usage["cost"] = cost.into();
            }
            usage
        })
    }

    fn whole(&self, model: &str) -> Value {
        let text = if self.text.is_empty() { Value::Null } else { self.text.as_str().into() };
        let mut message = json!({"role": "assistant", "content": text});
        if !self.calls.is_empty() {
            message["tool_calls"] = self.calls.iter().enumerate().map(call).collect();
        }
        if let Some(refusal) = &self.refusal {
            message["refusal"] = refusal.as_str().into();
        }
        let mut body = json!({"id": "chatcmpl-scripted", "object": "chat.completion", "created": 0,
            "model": model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish()}]});
        if let Some(usage) = self.usage() {
            body["usage"] = usage;
        }
        body
    }

    fn chunks(&self, model: &str) -> Vec<Value> {
        let chunk = |delta: Value, finish: Option<&str>| {
            json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0,
                "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        };
        let mut all = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
        for word in self.text.split_inclusive(' ') {
            all.push(chunk(json!({ "content": word }), None));
        }
        if let Some(refusal) = &self.refusal {
            all.push(chunk(json!({ "refusal": refusal }), None));
        }
        for (index, whole) in self.calls.iter().enumerate().map(|c| (c.0, call(c))) {
            let mut head = whole;
            let arguments = head["function"]["arguments"].as_str().unwrap_or_default().to_owned();
            head["index"] = index.into();
            head["function"]["arguments"] = "".into();
            all.push(chunk(json!({ "tool_calls": [head] }), None));
            let letters: Vec<char> = arguments.chars().collect();
            for piece in letters.chunks(PIECE) {
                let piece: String = piece.iter().collect();
                let part = json!({"index": index, "function": {"arguments": piece}});
                all.push(chunk(json!({ "tool_calls": [part] }), None));
            }
        }
        all.push(chunk(json!({}), Some(self.finish())));
        if let Some(usage) = self.usage() {
            all.push(
                json!({"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0,
                "model": model, "choices": [], "usage": usage}),
            );
        }
        all
    }
}

fn call((index, (name, arguments)): (usize, &(String, String))) -> Value {
    json!({"id": format!("call_{index}"), "type": "function",
        "function": {"name": name, "arguments": arguments}})
}

impl From<Answer> for Reply {
    fn from(answer: Answer) -> Self {
        Self::Answer(answer)
    }
}

impl Reply {
    /// A JSON body with a status.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::Raw {
            status,
            headers: Vec::new(),
            content_type: "application/json".to_owned(),
            body: body.to_string(),
        }
    }

    /// An error in OpenAI's form.
    #[must_use]
    pub fn error(status: u16, message: &str, code: &str) -> Self {
        Self::json(
            status,
            &json!({"error": {"message": message, "type": "error", "param": null, "code": code}}),
        )
    }

    /// The same with a header.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        if let Self::Raw { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    pub(super) fn respond(self, stream: bool, model: &str, stop: &CancellationToken) -> Response {
        match self {
            Self::Answer(answer) => {
                let model = answer.model.as_deref().unwrap_or(model);
                if stream {
                    let mut body: String = answer.chunks(model).iter().map(event).collect();
                    body.push_str("data: [DONE]\n\n");
                    built(200, &[], "text/event-stream", Body::from(body))
                } else {
                    let body = answer.whole(model).to_string();
                    built(200, &[], "application/json", Body::from(body))
                }
            }
            Self::Raw { status, headers, content_type, body } => {
                built(status, &headers, &content_type, Body::from(body))
            }
            Self::Cut { answer, abrupt } => {
                let chunks = answer.chunks(model);
                let half: String = chunks.iter().take(chunks.len() / 2).map(event).collect();
                let mut parts = vec![Ok(half)];
                if abrupt {
                    parts.push(Err(std::io::Error::other("cut")));
                }
                built(200, &[], "text/event-stream", Body::from_stream(stream::iter(parts)))
            }
            Self::Hang => {
                let first = event(&Answer::default().chunks(model).swap_remove(0));
                let silence = stream::once(stop.clone().cancelled_owned()).map(|()| String::new());
                let all = stream::iter([first]).chain(silence).map(Ok::<_, Infallible>);
                built(200, &[], "text/event-stream", Body::from_stream(all))
            }
        }
    }
}

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn built(status: u16, headers: &[(String, String)], content_type: &str, body: Body) -> Response {
    let mut response = Response::builder().status(status).header(CONTENT_TYPE, content_type);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    response.body(body).unwrap_or_else(|_| {
        let mut broken = Response::new(Body::from("the script gave an impossible answer"));
        *broken.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        broken
    })
}
