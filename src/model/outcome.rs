//! How one attempt's backend call ended.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The taxonomy. Every attempt ends in exactly one.
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
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A valid result, even if logs mention limits.
    #[serde(rename = "success", alias = "ok")]
    Success,
    /// 429 and equivalents that time heals.
    RateLimited,
    /// Money or a fixed allowance is gone; a person must act.
    CreditExhausted,
    /// The model is gone, not enabled, degraded or at capacity.
    ModelUnavailable,
    /// This request is too big for this pool.
    PacketTooLarge,
    /// A limit for sure, its kind unknown.
    QuotaUnclassified,
    /// The key was refused.
    Auth,
    /// Network, 5xx, overload, truncated stream, empty answer.
    Transient,
    /// The attempt's own deadline passed.
    Timeout,
    /// Refused for how it was asked.
    BadRequest,
    /// Refused for what was asked.
    ContentFiltered,
    /// The worker ended without a usable result.
    InvalidResult,
    /// Any other failure of the worker.
    Error,
}

/// One raw observation of a backend failure, as `explain error` reads it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Observation {
    /// Which service or CLI, e.g. `openai`, `nim`, `codex-cli`.
    #[serde(default)]
    pub backend: String,
    /// What was seen.
    #[serde(flatten)]
    pub channel: Channel,
    /// The time of the observation; the wall clock where absent.
    #[serde(default)]
    pub now: Option<Timestamp>,
}

/// What was seen, by channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "channel", rename_all = "snake_case")]
pub enum Channel {
    /// An HTTP exchange; `status` null when the connection itself failed.
    Http {
        /// HTTP status.
        #[serde(default)]
        status: Option<u16>,
        /// Response headers, lower-case names.
        #[serde(default)]
        headers: BTreeMap<String, String>,
        /// The response body as text, or the client's error message.
        #[serde(default)]
        body: String,
    },
    /// A command-line worker.
    Cli {
        /// Exit code; null when killed.
        #[serde(default)]
        exit_code: Option<i32>,
        /// Standard output.
        #[serde(default)]
        stdout: String,
        /// Standard error.
        #[serde(default)]
        stderr: String,
    },
}

/// The reading of one observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub struct Classification {
    /// What it is.
    pub outcome: Outcome,
    /// A model that is not available comes back by itself: it is degraded, or at capacity.
    #[serde(default)]
    pub temporary: bool,
    /// Seconds from `now` until it may work again, where the backend said so credibly.
    pub reset_seconds: Option<f64>,
    /// The same as a time.
    pub reset_at: Option<Timestamp>,
    /// The name of the rule that decided.
    pub rule: String,
    /// The text that the rule saw; secrets scrubbed, cut.
    pub evidence: String,
}
