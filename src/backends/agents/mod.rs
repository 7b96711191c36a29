//! Command-line agents as workers: `codex`, `opencode`, `claude-worker`, `agy`.
//!
//! One driver for all: a private home with the agent's configuration, its headless arguments, the
//! prompt on standard input (or as one argument), and a loopback gateway of the attempt's own that
//! holds the key. What counts is the tree; what the agent says is read for a summary. What failed is
//! taken from the gateway first, and from the agent's own words only where the gateway saw nothing.

mod agy;
mod claude;
mod codex;
mod judge;
mod opencode;
mod version;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::classify::events;
use super::command::{run_gated, search_path};
use super::gateway::{Evidence, Gateway, Upstream};
use super::prompt::{self, Finish};
use super::redact::Redactor;
use super::worker::uncounted;
use super::{Attempt, Confinement, WorkReport, Worker};
use crate::model::{MOST_TOKENS, MOST_USD, Outcome, Provider, Usage};
use crate::process::{self, Ended, Spec};

pub use version::{VersionError, installed};

/// Bytes kept of each output stream: head and tail, so that the last events always survive.
const OUTPUT_CAP: usize = 4 << 20;

/// The variable in which an agent finds the token of its gateway. Shells that agents start do not
/// inherit names like this one where the agent filters.
const TOKEN: &str = "OVERHAUL_GATEWAY_TOKEN";

/// Which agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentKind {
    /// The codex CLI, over the Responses API.
    Codex,
    /// The opencode CLI, over chat completions.
    Opencode,
    /// The claude CLI, over Anthropic messages.
    Claude,
    /// The agy CLI, which signs in by itself.
    Agy,
}

impl AgentKind {
    /// The agent of a provider.
    #[must_use]
    pub fn of(provider: Provider) -> Option<Self> {
        match provider {
            Provider::Codex => Some(Self::Codex),
            Provider::Opencode => Some(Self::Opencode),
            Provider::ClaudeWorker => Some(Self::Claude),
            Provider::Agy => Some(Self::Agy),
            Provider::OpenaiCompatible
            | Provider::SubprocessTemplate
            | Provider::WorkerCommand
            | Provider::Host => None,
        }
    }

    fn start(self, job: &Job<'_>) -> Start {
        match self {
            Self::Codex => codex::start(job),
            Self::Opencode => opencode::start(job),
            Self::Claude => claude::start(job),
            Self::Agy => agy::start(job),
        }
    }

    fn hear(self, events: &[Value]) -> Heard {
        match self {
            Self::Codex => codex::hear(events),
            Self::Opencode => opencode::hear(events),
            Self::Claude => claude::hear(events),
            Self::Agy => agy::hear(events),
        }
    }
}

/// A configured agent.
#[derive(Clone)]
pub struct AgentSettings {
    /// Which.
    pub kind: AgentKind,
    /// Its program, with arguments that come before all others.
    pub launcher: Vec<String>,
    /// Further arguments.
    pub args: Vec<String>,
    /// The variables that it may see beside ours, with their values.
    pub env: BTreeMap<String, SecretString>,
    /// The backend behind its gateway; `None` where the agent signs in by itself.
    pub upstream: Option<Upstream>,
    /// Name of the backend for the classification rules, where the agent's own words are read.
    pub backend: String,
    /// What keeps it to its attempt.
    pub confinement: Confinement,
}

/// One attempt as an agent's file sees it.
struct Job<'a> {
    model: &'a str,
    /// Where its gateway listens, without `/v1`; `None` where it signs in by itself.
    gateway: Option<&'a str>,
    context_tokens: u64,
    output_tokens: u64,
    requests: u32,
    deadline: Duration,
    home: &'a Path,
    prompt: &'a str,
    /// Further arguments of the configuration.
    args: &'a [String],
}

/// How an agent is started.
#[derive(Debug, Default)]
struct Start {
    /// Arguments after the launcher.
    args: Vec<OsString>,
    /// Variables beside [`process::base_env`].
    env: Vec<(&'static str, String)>,
    /// The variable for the gateway's token.
    token: Option<&'static str>,
    /// Files of its home.
    files: Vec<(PathBuf, String)>,
    /// What it reads from standard input, which then ends.
    stdin: Option<String>,
}

/// What an agent's events say. Unknown events and fields are passed over.
#[derive(Debug, Default, PartialEq)]
struct Heard {
    /// It ended by itself, and well.
    done: bool,
    /// Its last message.
    message: String,
    /// Consumption, as it counts.
    usage: Usage,
    /// The model that answered, as it says.
    model: Option<String>,
}

/// The worker.
pub struct AgentWorker {
    settings: AgentSettings,
    redactor: Redactor,
}

impl AgentWorker {
    /// Takes the settings.
    #[must_use]
    pub fn new(settings: AgentSettings) -> Self {
        let keys = settings.upstream.iter().flat_map(Upstream::secrets);
        let redactor = Redactor::new(settings.env.values().chain(keys).cloned());
        Self { settings, redactor }
    }

    async fn gateway(&self, attempt: &Attempt) -> Result<Option<Gateway>, String> {
        let Some(upstream) = &self.settings.upstream else { return Ok(None) };
        Gateway::of(upstream, attempt).await.map(Some).map_err(|e| e.to_string())
    }

    fn spec(&self, attempt: &Attempt, gateway: Option<&Gateway>) -> std::io::Result<Spec> {
        let root = gateway.map(Gateway::root);
        let prompt = prompt::render(attempt, &Finish::LastMessage).single();
        let start = self.settings.kind.start(&Job {
            model: &attempt.pool.model,
            gateway: root.as_deref(),
            context_tokens: attempt.pool.context_tokens,
            output_tokens: attempt.pool.output_tokens,
            requests: attempt.request_budget,
            deadline: attempt.deadline,
            home: &attempt.home,
            prompt: &prompt,
            args: &self.settings.args,
        });
        std::fs::create_dir_all(attempt.home.join("tmp"))?;
        for (name, content) in &start.files {
            let path = attempt.home.join(name);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            std::fs::write(path, content)?;
        }
        let launcher = self.settings.launcher.iter().map(OsString::from);
        let mut spec = Spec::new(launcher.chain(start.args), &attempt.workdir);
        spec.env = process::base_env(&attempt.home, &search_path());
        let mut set = |name: &str, value: &str| {
            spec.env.insert(name.into(), value.into());
        };
        for (name, value) in &start.env {
            set(name, value);
        }
        if let (Some(name), Some(gateway)) = (start.token, gateway) {
            set(name, gateway.token().expose_secret());
        }
        for (name, value) in &self.settings.env {
            set(name, value.expose_secret());
        }
        spec.stdin = start.stdin.map(String::into_bytes);
        spec.output_cap = OUTPUT_CAP;
        self.settings.confinement.confine(&mut spec, attempt, gateway);
        Ok(spec)
    }

    fn broken(&self, detail: &str) -> WorkReport {
        self.redactor.report(WorkReport::ended(Outcome::Error, detail))
    }
}

#[async_trait]
impl Worker for AgentWorker {
    async fn work(&self, attempt: Attempt) -> WorkReport {
        let gateway = match self.gateway(&attempt).await {
            Ok(gateway) => gateway,
            Err(detail) => return self.broken(&detail),
        };
        let spec = match self.spec(&attempt, gateway.as_ref()) {
            Ok(spec) => spec,
            Err(e) => {
                return self.broken(&format!("the agent's home could not be prepared: {e}"));
            }
        };
        let ended = run_gated(spec, gateway.as_ref()).await;
        let evidence = match gateway {
            Some(gateway) => Some(gateway.stop().await),
            None => None,
        };
        match ended {
            Ok(ended) => {
                let (stdout, stderr) = (ended.stdout.text(), ended.stderr.text());
                let seen = Seen {
                    heard: self.settings.kind.hear(&events(&stdout)),
                    program: self.settings.launcher.first().map_or("", String::as_str),
                    backend: &self.settings.backend,
                    ended: &ended,
                    stdout: &stdout,
                    stderr: &stderr,
                    evidence: evidence.as_ref(),
                };
                let report = judge::judge(&attempt, &seen);
                let gated = evidence.is_some();
                self.redactor.report(if gated { report } else { uncounted(report) })
            }
            Err(e) => self.broken(&e.to_string()),
        }
    }
}

/// Everything that is known of an ended agent.
struct Seen<'a> {
    heard: Heard,
    program: &'a str,
    backend: &'a str,
    ended: &'a Ended,
    stdout: &'a str,
    stderr: &'a str,
    evidence: Option<&'a Evidence>,
}

/// A field of an event as text.
fn text<'a>(event: &'a Value, pointer: &str) -> &'a str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

/// A field of an event as a count; nothing absurd.
fn number(event: &Value, pointer: &str) -> u64 {
    event.pointer(pointer).and_then(Value::as_u64).unwrap_or(0).min(MOST_TOKENS)
}

/// A field of an event as an amount of money; nothing negative, nothing absurd.
fn dollars(event: &Value, pointer: &str) -> f64 {
    let amount = event.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0);
    if amount.is_finite() { amount.clamp(0.0, MOST_USD) } else { 0.0 }
}

fn os<T: AsRef<str>>(args: &[T]) -> Vec<OsString> {
    args.iter().map(|a| OsString::from(a.as_ref())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::AgentKind;
    use crate::model::MOST_USD;

    #[test]
    fn absurd_counts_of_an_agent_are_cut() {
        let (most, usd) = (u64::MAX, 1e300);
        let said = [
            (
                AgentKind::Claude,
                json!({"type": "result", "num_turns": most, "total_cost_usd": usd, "usage": {
                    "input_tokens": most, "cache_creation_input_tokens": most,
                    "cache_read_input_tokens": most, "output_tokens": most}}),
            ),
            (
                AgentKind::Codex,
                json!({"type": "turn.completed", "usage": {"input_tokens": most, "output_tokens": most}}),
            ),
            (
                AgentKind::Opencode,
                json!({"type": "step_finish", "part": {"cost": usd, "tokens": {"input": most,
                    "output": most, "reasoning": most, "cache": {"read": most, "write": most}}}}),
            ),
            (
                AgentKind::Agy,
                json!({"event": "result", "result": {"num_turns": most, "usage": {
                    "input_tokens": most, "cache_read_tokens": most, "output_tokens": most,
                    "thinking_tokens": most}}}),
            ),
        ];
        for (kind, event) in said {
            let usage = kind.hear(&[event.clone(), event]).usage;
            assert!((1 << 32..1 << 36).contains(&usage.tokens()), "{kind:?}: {usage:?}");
            assert!(usage.cost_usd <= 2.0 * MOST_USD, "{kind:?}: {usage:?}");
        }
    }
}
