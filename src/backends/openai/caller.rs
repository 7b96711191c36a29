//! Requests of one attempt: budgets, bounded retries, and what an endpoint turns out not to take.

use std::sync::LazyLock;
use std::time::Duration;

use jiff::Timestamp;
use regex::Regex;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::client::{CallError, Client};
use super::wire::Completion;
use crate::backends::classify::classify_http;
use crate::model::{Classification, Outcome, Pool};

/// A stated reset up to this is waited for inside the attempt, seconds.
const SHORT_RESET: f64 = 5.0;
/// So many short resets are waited for per attempt.
const MAX_WAITS: u32 = 3;
/// The smallest answer that is worth asking for, in tokens.
const MIN_OUTPUT: u64 = 256;

/// Retries of transient failures inside one attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Further tries after the first, per request.
    pub tries: u32,
    /// The first pause; doubled each time, with jitter.
    pub pause: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { tries: 3, pause: Duration::from_secs(1) }
    }
}

/// Why no answer came.
#[derive(Debug)]
pub(super) enum Stop {
    /// The endpoint does not take tools.
    NoTools(String),
    /// The conversation is too long for the window.
    TooLong(Classification),
    /// Anything else ends the attempt.
    End(Outcome, Option<Classification>, String),
}

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    backend: String,
    pool: Pool,
    retry: Retry,
    deadline: Instant,
    requests_left: u32,
    tokens_left: u64,
    waits: u32,
    stream: bool,
    ask_usage: bool,
    output_field: &'static str,
    output_cap: u64,
    /// Reported input over our estimate; begins with what the pool is known for, corrected with each
    /// answer.
    scale: f64,
    /// Requests so far.
    pub(super) requests: u32,
    pub(super) model_seen: Option<String>,
    /// The output limit of the last request.
    pub(super) last_cap: u64,
}

/// The budgets of one attempt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget {
    pub(super) deadline: Instant,
    pub(super) requests: u32,
    pub(super) tokens: u64,
}

impl Caller {
    pub(super) fn new(
        client: Client,
        backend: &str,
        pool: &Pool,
        retry: Retry,
        stream: bool,
        budget: Budget,
    ) -> Self {
        Self {
            client,
            backend: backend.to_owned(),
            pool: pool.clone(),
            retry,
            deadline: budget.deadline,
            requests_left: budget.requests,
            tokens_left: budget.tokens,
            waits: 0,
            stream,
            ask_usage: true,
            output_field: "max_tokens",
            output_cap: pool.output_tokens.max(1),
            scale: pool.input_scale,
            requests: 0,
            model_seen: None,
            last_cap: 0,
        }
    }

    /// Gets one answer, which has a text, calls or a refusal.
    pub(super) async fn ask(
        &mut self,
        messages: &[Value],
        tools: &[Value],
    ) -> Result<Completion, Stop> {
        let mut failures = 0;
        loop {
            let input = self.estimate(messages, tools);
            let output = self.output_limit(input)?;
            self.last_cap = output;
            self.requests_left -= 1;
            self.requests += 1;
            let body = self.body(messages, tools, output);
            let error = match self.client.complete(&body).await {
                Ok(answer) => {
                    self.count(&answer, input);
                    if !answer.is_empty() || answer.finish.as_deref().is_some_and(|f| f != "stop") {
                        return Ok(answer);
                    }
                    let what = if answer.any_choice { "an empty answer" } else { "no choices" };
                    CallError::Broken("empty-answer", format!("a 200 with {what}"))
                }
                Err(error) => error,
            };
            if self.adapt(&error) {
                continue;
            }
            if let CallError::Http { status: Some(status), body, .. } = &error
                && !tools.is_empty()
                && refuses_tools(*status, body)
            {
                return Err(Stop::NoTools(body.clone()));
            }
            let reading = self.read(error);
            match reading.outcome {
                Outcome::Transient if failures < self.retry.tries => {
                    failures += 1;
                    self.pause(self.backoff(failures), &reading).await?;
                }
                Outcome::RateLimited
                    if self.waits < MAX_WAITS
                        && reading.reset_seconds.is_some_and(|s| s <= SHORT_RESET) =>
                {
                    self.waits += 1;
                    let wait = reading.reset_seconds.unwrap_or(SHORT_RESET).max(0.05);
                    self.pause(Duration::from_secs_f64(wait), &reading).await?;
                }
                Outcome::PacketTooLarge => return Err(Stop::TooLong(reading)),
                _ => return Err(ended(reading)),
            }
        }
    }

    fn output_limit(&self, input: u64) -> Result<u64, Stop> {
        let stop = |what: String| Err(Stop::End(Outcome::Error, None, what));
        if self.requests_left == 0 {
            return stop(format!(
                "the attempt used up its {} requests without a result",
                self.requests
            ));
        }
        let room = self.tokens_left.saturating_sub(input);
        if room < MIN_OUTPUT.min(self.output_cap) {
            return stop("the attempt used up its token budget without a result".to_owned());
        }
        // The estimate is rough: a twentieth of the window stays free.
        let window = self.pool.context_tokens;
        let fits = window.saturating_sub(input).saturating_sub(window / 20);
        if fits < MIN_OUTPUT.min(self.output_cap) {
            return Err(Stop::TooLong(reading(
                Outcome::PacketTooLarge,
                "window",
                format!("about {input} tokens of input do not fit a window of {window} tokens"),
            )));
        }
        Ok(self.output_cap.min(room).min(fits))
    }

    fn body(&self, messages: &[Value], tools: &[Value], output: u64) -> Value {
        let mut body = json!({"model": self.pool.model, "messages": messages});
        body[self.output_field] = output.into();
        if !tools.is_empty() {
            body["tools"] = tools.into();
        }
        if self.stream {
            body["stream"] = true.into();
            if self.ask_usage {
                body["stream_options"] = json!({"include_usage": true});
            }
        }
        body
    }

    /// Input tokens: four bytes each, corrected by what the backend reported so far.
    fn estimate(&self, messages: &[Value], tools: &[Value]) -> u64 {
        (raw_estimate(messages, tools) * self.scale) as u64 + 1
    }

    fn count(&mut self, answer: &Completion, estimate: u64) {
        if answer.model.is_some() {
            self.model_seen.clone_from(&answer.model);
        }
        let spent = match answer.usage {
            Some((input, output)) => {
                if input > 0 {
                    let ratio = input as f64 * self.scale / estimate.max(1) as f64;
                    self.scale = ratio.clamp(0.25, 4.0);
                }
                input.saturating_add(output)
            }
            None => {
                let calls: usize = answer.calls.iter().map(|c| c.arguments.len() + 20).sum();
                estimate + ((answer.text.len() + calls) / 4) as u64
            }
        };
        self.tokens_left = self.tokens_left.saturating_sub(spent);
    }

    /// Stops sending what the endpoint refuses. True if the request is worth another try.
    fn adapt(&mut self, error: &CallError) -> bool {
        let (status, body) = match error {
            CallError::Broken(rule, _) => {
                // Some servers answer a streamed overflow with nothing: ask again without a stream,
                // which tells why.
                let silent = *rule == "empty-body" && self.stream;
                if silent {
                    self.stream = false;
                }
                return silent;
            }
            CallError::Http { status: Some(status), body, .. } => (*status, body),
            CallError::Http { .. } => return false,
        };
        if !matches!(status, 400 | 404 | 405 | 415 | 422 | 500 | 501) {
            return false;
        }
        let named_output = OUTPUT_FIELD.is_match(body);
        if self.stream && self.ask_usage && body.contains("stream_options") {
            self.ask_usage = false;
        } else if named_output && body.contains("too large") && self.output_cap >= 2 * MIN_OUTPUT {
            self.output_cap /= 2;
        } else if self.output_field == "max_tokens" && named_output && UNSUPPORTED.is_match(body) {
            self.output_field = "max_completion_tokens";
        } else if self.stream && NO_STREAM.is_match(body) {
            self.stream = false;
        } else {
            return false;
        }
        true
    }

    fn read(&self, error: CallError) -> Classification {
        match error {
            CallError::Broken(rule, evidence) => reading(Outcome::Transient, rule, evidence),
            CallError::Http { status, headers, body } => {
                classify_http(&self.backend, status, &headers, &body, Timestamp::now())
            }
        }
    }

    fn backoff(&self, failures: u32) -> Duration {
        let full = self.retry.pause * 2_u32.saturating_pow(failures.saturating_sub(1).min(6));
        full.mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    /// Waits, if the deadline leaves room for it and for another try.
    async fn pause(&self, wait: Duration, reading: &Classification) -> Result<(), Stop> {
        if Instant::now() + wait >= self.deadline {
            return Err(ended(reading.clone()));
        }
        tracing::debug!(rule = %reading.rule, seconds = wait.as_secs_f64(), "waiting before another try");
        tokio::time::sleep(wait).await;
        Ok(())
    }
}

fn raw_estimate(messages: &[Value], tools: &[Value]) -> f64 {
    let size = |values: &[Value]| values.iter().map(|v| v.to_string().len()).sum::<usize>();
    (size(messages) + size(tools)) as f64 / 4.0
}

fn ended(reading: Classification) -> Stop {
    let detail = format!("the backend failed ({}): {}", reading.rule, reading.evidence);
    Stop::End(reading.outcome, Some(reading), detail)
}

/// A reading of our own, where no backend's words decide.
pub(in crate::backends) fn reading(
    outcome: Outcome,
    rule: &str,
    evidence: String,
) -> Classification {
    let rule = rule.to_owned();
    Classification { outcome, temporary: false, reset_seconds: None, reset_at: None, rule, evidence }
}

#[expect(clippy::expect_used, reason = "constant patterns, compiled in a test")]
fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the pattern is valid")
}

static OUTPUT_FIELD: LazyLock<Regex> = LazyLock::new(|| pattern(r"max_(?:completion_)?tokens"));
static UNSUPPORTED: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?i)unsupported|not supported|unrecognized|unknown|instead"));
static NO_STREAM: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?i)\bstream(?:ing)?\b.{0,60}(?:not|un)[ -]?(?:support|available|implement|allow)|(?:not|un)[ -]?support\w*.{0,20}\bstream",
    )
});
static NO_TOOLS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)\btools?\b|\btool[_ -](?:choice|calls?|calling|use)\b|\bfunction[_ -]call")
});

/// Whether an error says that the endpoint, or its model, does not take tools.
fn refuses_tools(status: u16, body: &str) -> bool {
    status == 501 || (matches!(status, 400 | 404 | 405 | 422 | 500) && NO_TOOLS.is_match(body))
}

#[cfg(test)]
mod tests {
    use super::{NO_STREAM, refuses_tools};

    #[test]
    fn refusals_of_tools_as_servers_word_them() {
        for (status, body) in [
            (
                400,
                r#""auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"#,
            ),
            (400, "registry.example/model does not support tools"),
            (404, "No endpoints found that support tool use."),
            (500, "tools param requires --jinja flag"),
            (422, r#"{"detail":"tool_choice: extra fields not permitted"}"#),
            (501, ""),
        ] {
            assert!(refuses_tools(status, body), "{body}");
        }
        for (status, body) in [
            (404, "The model `x` does not exist"),
            (400, "maximum context length is 512 tokens"),
            (429, "too many tools"),
            (500, "Internal server error"),
        ] {
            assert!(!refuses_tools(status, body), "{body}");
        }
        assert!(NO_STREAM.is_match("streaming is not supported for this model"));
        assert!(!NO_STREAM.is_match("upstream does not answer"));
    }
}
