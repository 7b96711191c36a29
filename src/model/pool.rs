//! A pool: one (backend, account, model) with its own quota, context window, tier and cost.

use serde::{Deserialize, Serialize};

use super::{MeterKey, PoolId, Tier};

/// Who does the work.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Provider {
    /// NIM, vLLM, TGI, Ollama, llama.cpp, LiteLLM, OpenRouter and the like: our own tool loop.
    OpenaiCompatible,
    /// The codex CLI.
    Codex,
    /// The opencode CLI.
    Opencode,
    /// The claude CLI.
    ClaudeWorker,
    /// The agy CLI.
    Agy,
    /// A command with a prompt template.
    SubprocessTemplate,
    /// A plain command; no model is involved.
    WorkerCommand,
    /// Another agent in a job of its own; never driven in-process.
    Host,
}

/// Declared limits; each optional.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Limits {
    /// Requests in any 60 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<u32>,
    /// Requests in any 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requests_per_day: Option<u32>,
    /// Input tokens in any 60 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens_per_minute: Option<u64>,
    /// Output tokens in any 60 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_minute: Option<u64>,
    /// Input and output tokens in any 24 hours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens_per_day: Option<u64>,
    /// Attempts at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent: Option<u32>,
}

/// What scheduling needs to know of a pool. How to reach it is the configuration's business.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Pool {
    /// Unique.
    pub id: PoolId,
    /// Who does the work.
    pub provider: Provider,
    /// Model name as the backend knows it; empty for plain commands.
    pub model: String,
    /// Whose quota it draws on.
    pub meter: MeterKey,
    /// Capability; `None` = unknown, passes every floor.
    pub tier: Option<Tier>,
    /// Context window in tokens; never null (32 000 where nothing is known).
    pub context_tokens: u64,
    /// Output limit in tokens; never null (4 096 where nothing is known).
    pub output_tokens: u64,
    /// Declared limits.
    pub limits: Limits,
    /// US dollars per million tokens; 0 = free, `None` = unknown (sorts after known).
    pub cost_per_mtok: Option<f64>,
    /// Input tokens that its backend reports for each one that we estimate at four bytes; 1 where
    /// nothing is known.
    #[serde(default = "one")]
    pub input_scale: f64,
}

fn one() -> f64 {
    1.0
}

impl Pool {
    /// Input tokens as its backend counts them.
    #[must_use]
    pub fn weigh(&self, estimated: u64) -> u64 {
        if self.input_scale == 1.0 {
            return estimated;
        }
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate; saturates")]
        let weighed = (estimated as f64 * self.input_scale).ceil() as u64;
        weighed
    }
}

impl Provider {
    /// A command-line agent with a driver of its own.
    #[must_use]
    pub fn is_agent(self) -> bool {
        matches!(self, Self::Codex | Self::Opencode | Self::ClaudeWorker | Self::Agy)
    }

    /// The in-process worker predicate, one function for the whole program: may this process drive
    /// the pool itself? Plain commands only under the command-workers policy; a host never.
    #[must_use]
    pub fn is_in_process(self, command_workers: bool) -> bool {
        match self {
            Self::OpenaiCompatible
            | Self::Codex
            | Self::Opencode
            | Self::Agy
            | Self::ClaudeWorker => true,
            Self::SubprocessTemplate | Self::WorkerCommand => command_workers,
            Self::Host => false,
        }
    }
}
