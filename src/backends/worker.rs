//! The worker edge: one attempt in, one report out.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::gateway::Admission;
use crate::model::{
    AttemptNumber, Classification, Finding, FindingId, Node, Outcome, Pool, RunId, Usage,
};

/// One attempt as a worker sees it. It holds no write token and no other pool's key.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Which run.
    pub run: RunId,
    /// The node's contract.
    pub node: Node,
    /// Its findings, in full.
    pub findings: Vec<Finding>,
    /// Which try.
    pub number: AttemptNumber,
    /// Commit that the worktree shows.
    pub base: String,
    /// The pool that does it.
    pub pool: Pool,
    /// The worktree: the only place that the worker may write, besides its home.
    pub workdir: PathBuf,
    /// A private home directory, empty at the start.
    pub home: PathBuf,
    /// Why the previous attempt was refused, if there was one.
    pub previous_failure: Option<String>,
    /// Set for the one repair turn: what was wrong with the result that this very worktree holds.
    pub repair: Option<String>,
    /// Wall clock for the whole attempt.
    pub deadline: Duration,
    /// Tokens that the attempt may consume, input and output together.
    pub token_budget: u64,
    /// Requests that the attempt may send.
    pub request_budget: u32,
    /// US dollars that the attempt may cost; no limit where absent.
    pub money_budget: Option<f64>,
    /// Whose meters and budgets admit each request; a worker that can be pointed at an address
    /// goes through a gateway ([`super::gateway::Gateway::of`]), which asks here.
    pub admission: Arc<dyn Admission>,
    /// Fires when the cycle must stop; the worker stops within two seconds.
    pub cancel: CancellationToken,
}

/// What a worker says that it did. Untrusted: nothing in it is believed without a check of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WorkerResult {
    /// Findings that it claims to have resolved.
    #[serde(default)]
    pub resolved: Vec<FindingId>,
    /// Findings that it could not resolve, with reasons.
    #[serde(default)]
    pub blocked: Vec<Blocked>,
    /// Its own summary, for the pull request; fenced as untrusted text wherever it is shown.
    #[serde(default)]
    pub summary: String,
}

/// A finding that the worker could not resolve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Blocked {
    /// Which.
    pub finding: FindingId,
    /// Why.
    pub reason: String,
}

/// How the attempt's backend part ended.
#[derive(Debug, Clone)]
pub struct WorkReport {
    /// `Success` iff `result` is there.
    pub outcome: Outcome,
    /// The parsed result.
    pub result: Option<WorkerResult>,
    /// The reading of the failure, with its reset, where a backend failed.
    pub classification: Option<Classification>,
    /// One paragraph for people and for the next prompt; secrets scrubbed, cut.
    pub detail: String,
    /// Consumption.
    pub usage: Usage,
    /// The model that really answered, where the backend says.
    pub model_seen: Option<String>,
    /// Another model than the pool's was at work.
    pub model_switch: Option<ModelSwitch>,
    /// Transcript or output for the report; secrets scrubbed, capped.
    pub log: String,
}

/// The rule of an attempt that ended because the model only talked: it was told what is missing in
/// every form already.
pub const ONLY_TALK: &str = "only-talk";

impl WorkReport {
    /// Whether one more turn may mend the result: what is malformed, not what is never tried.
    #[must_use]
    pub fn may_be_repaired(&self) -> bool {
        let talk = self.classification.as_ref().is_some_and(|reading| reading.rule == ONLY_TALK);
        self.outcome == Outcome::InvalidResult && !talk
    }

    /// An attempt without a result.
    #[must_use]
    pub fn ended(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self {
            outcome,
            result: None,
            classification: None,
            detail: detail.into(),
            usage: Usage::default(),
            model_seen: None,
            model_switch: None,
            log: String::new(),
        }
    }

    /// An attempt with a result.
    #[must_use]
    pub fn success(result: WorkerResult) -> Self {
        let detail = result.summary.clone();
        Self { result: Some(result), ..Self::ended(Outcome::Success, detail) }
    }
}

/// Another model than the pool's was asked for, or answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelSwitch {
    /// What was asked for.
    pub asked: String,
    /// What answered, where the backend says.
    pub answered: String,
}

impl ModelSwitch {
    /// The switch, if there is one: `pool` is the pool's model. A date or `latest` behind a name and
    /// a vendor before it are the same model.
    #[must_use]
    pub fn between(pool: &str, asked: &str, answered: &str) -> Option<Self> {
        let same = same_model(pool, asked) && same_model(asked, answered);
        (!same).then(|| Self { asked: asked.to_owned(), answered: answered.to_owned() })
    }
}

fn same_model(one: &str, other: &str) -> bool {
    let plain = |name: &str| {
        let name = name.trim().to_ascii_lowercase();
        name.rsplit('/').next().unwrap_or(&name).to_owned()
    };
    let (one, other) = (plain(one), plain(other));
    // Who says nothing does not contradict.
    if one.is_empty() || other.is_empty() || one == other {
        return true;
    }
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    let Some(rest) = long.strip_prefix(&short) else { return false };
    let Some(rest) = rest.strip_prefix(['-', ':', '@']) else { return false };
    let first = rest.split(['-', '.']).next().unwrap_or("");
    let date = first.len() >= 4 && first.bytes().all(|b| b.is_ascii_digit());
    date || matches!(first, "latest" | "preview" | "exp")
}

/// Does attempts on one kind of pool. Errors are outcomes: there is no other failure channel.
#[async_trait]
pub trait Worker: Send + Sync {
    /// Runs one attempt to its end. Must return within `attempt.deadline` plus a few seconds, and
    /// leave no process behind.
    async fn work(&self, attempt: Attempt) -> WorkReport;
}

#[cfg(test)]
mod tests {
    use super::ModelSwitch;

    #[test]
    fn a_dated_name_is_no_switch_and_a_smaller_sister_is() {
        let switched =
            |pool, asked, answered| ModelSwitch::between(pool, asked, answered).is_some();
        for (asked, answered) in [
            ("gpt-4o", "gpt-4o-2024-08-06"),
            ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929"),
            ("meta/llama-3.3-70b", "llama-3.3-70b"),
            ("Qwen3", "qwen3:latest"),
            ("gpt-4-0613", "gpt-4"),
            ("m", ""),
        ] {
            assert!(!switched(asked, asked, answered), "{asked} {answered}");
        }
        for (asked, answered) in [
            ("gpt-4o", "gpt-4o-mini"),
            ("claude-sonnet-4", "claude-sonnet-4-5-20250929"),
            ("gpt-5", "gpt-5-codex"),
            ("meta/llama-3.3-70b", "llama-3.1-8b"),
        ] {
            assert!(switched(asked, asked, answered), "{asked} {answered}");
        }
        assert!(switched("big", "small", "small"), "what was asked for counts too");
    }
}
