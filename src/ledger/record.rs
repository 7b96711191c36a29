//! What the log says of nodes, pools and the run: plain records, written by the fold only.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::event::{
    BranchAsk, Burn, Event, EventKind, Evidence, FrictionType, GrantedClaim, Holder, PauseCause,
    PausedNode, Receipt,
};
use crate::model::{AttemptNumber, Limits, NodeId, Outcome, OwnerToken, PoolId, Usage};

/// Who has a node now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Claim {
    /// The fence.
    pub owner: OwnerToken,
    /// Which try.
    pub attempt: AttemptNumber,
    /// When the lease ends unless renewed.
    pub lease_until: Timestamp,
    /// Whose process.
    pub holder: Holder,
    /// The pool at work, once the attempt started.
    pub started: Option<PoolId>,
}

/// Nodes that were handed out together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GrantRecord {
    /// When.
    pub at: Timestamp,
    /// When its claims may be taken away although nobody knows whether their jobs live.
    pub expires: Timestamp,
    /// What was handed out, in the order of the grant.
    pub claims: Vec<GrantedClaim>,
    /// Its results were taken in.
    pub ended: bool,
}

/// How one attempt failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Failure {
    /// Which try.
    pub attempt: AttemptNumber,
    /// On which pool.
    pub pool: PoolId,
    /// How.
    pub outcome: Outcome,
    /// How it counts.
    pub burn: Burn,
    /// What went wrong.
    pub detail: String,
    /// What the backend answered, where one did.
    #[serde(default)]
    pub evidence: Option<Evidence>,
    /// The kept tree.
    pub quarantine: Option<String>,
}

/// Where a node's work has come to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Landing {
    /// Nowhere yet.
    #[default]
    None,
    /// Accepted: verified and integrated, at this place in the order of acceptance.
    Accepted {
        /// Order of acceptance, from 0.
        order: u64,
        /// What and how.
        receipt: Box<Receipt>,
        /// When, by the event.
        at: Timestamp,
    },
    /// Nothing to change, proven.
    Satisfied {
        /// By what.
        evidence: String,
    },
}

/// The node's pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PrRecord {
    /// Its number.
    pub number: u64,
    /// Its address.
    pub url: String,
    /// Head branch.
    pub branch: String,
    /// Base branch.
    pub base: String,
    /// When it was opened or found.
    #[serde(default)]
    pub opened_at: Timestamp,
    /// The commit that its text shows.
    #[serde(default)]
    pub commit: String,
    /// `None` while open; the merge commit, or nothing when closed unmerged.
    pub end: Option<PrEnd>,
    /// As of which change its reviews were looked at.
    #[serde(default)]
    pub reviewed: Option<Timestamp>,
}

impl PrRecord {
    /// Merged or closed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.end.is_some()
    }
}

/// The head of a node's branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct HeadRecord {
    /// The commit.
    pub commit: String,
    /// Since when we know of it.
    pub since: Timestamp,
    /// A person pushed it.
    pub foreign: bool,
}

/// What a person asked for a node's branch, and that was not done yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Asked {
    /// What.
    pub ask: BranchAsk,
    /// Who.
    pub by: String,
    /// The comment and its line; 0 from a shell.
    pub comment: u64,
    /// Its line.
    pub line: u32,
    /// When it was said.
    pub said: Timestamp,
}

/// A person's approval of one commit; another head makes it void.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Approval {
    /// Of what.
    pub commit: String,
    /// Whose.
    pub by: String,
}

/// Changes that people asked for in reviews of a node's pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChangeRequest {
    /// The newest review.
    pub review: String,
    /// Who asked.
    pub by: Vec<String>,
}

/// How a pull request ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrEnd {
    /// Merged as this commit.
    Merged(String),
    /// Closed unmerged.
    Closed,
}

/// Everything the log says of one node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct NodeRecord {
    /// Its owner now.
    pub claim: Option<Claim>,
    /// The highest attempt number used.
    pub attempts: u32,
    /// Attempts that count against the contract budget since the last `Retried`.
    pub contract_burnt: u32,
    /// Attempts that count against the infrastructure budget since the last `Retried`.
    pub infrastructure_burnt: u32,
    /// Failures, oldest first, all of them.
    pub failures: Vec<Failure>,
    /// Where its work has come to.
    pub landing: Landing,
    /// The head that is on the remote.
    pub pushed: Option<String>,
    /// Its pull request.
    pub pr: Option<PrRecord>,
    /// Earlier pull requests of it that have ended or are gone.
    pub past_prs: BTreeSet<u64>,
    /// The head of its branch, where we have seen or pushed one.
    pub head: Option<HeadRecord>,
    /// What a person wants of its branch.
    pub asked: Option<Asked>,
    /// The last approval; it counts while its commit is the head.
    pub approved: Option<Approval>,
    /// Skipped by.
    pub skipped: Option<String>,
    /// Accepted nodes that its work conflicted with: further bases of the next attempt.
    pub conflicts: BTreeSet<NodeId>,
    /// Why it was taken back to work.
    pub reopened: Option<String>,
    /// The attempts that there had been by then.
    pub reopened_after: u32,
    /// Reviews that asked for changes and were acted on.
    pub heeded: BTreeSet<String>,
    /// The last of them.
    pub change_request: Option<ChangeRequest>,
    /// Grants of it, one after the other, of which nothing was ever heard.
    pub unheard: u32,
    /// How often it was, since the last `Retried`.
    pub reopenings: u32,
    /// The pool that last worked on it (continuity).
    pub last_pool: Option<PoolId>,
    /// When its last attempt began.
    pub started_at: Option<Timestamp>,
    /// Consumption of all attempts.
    pub usage: Usage,
}

impl NodeRecord {
    /// The head that a person pushed, while it is there.
    #[must_use]
    pub fn foreign_head(&self) -> Option<&str> {
        self.head.as_ref().filter(|head| head.foreign).map(|head| head.commit.as_str())
    }

    /// The receipt of accepted work whose commit is `from` and that nobody has merged or rejected.
    pub(super) fn open_work(&mut self, from: &str) -> Option<&mut Receipt> {
        if self.pr.as_ref().is_some_and(|pr| pr.end.is_some()) {
            return None;
        }
        match &mut self.landing {
            Landing::Accepted { receipt, .. } if receipt.commit == from => Some(receipt),
            _ => None,
        }
    }

    /// Back to work with this in the prompt.
    pub(super) fn reopen(&mut self, reason: &str) {
        self.landing = Landing::None;
        self.reopened = Some(reason.to_owned());
        self.reopened_after = self.attempts;
    }

    pub(super) fn forget_ended_pr(&mut self) {
        if let Some(ended) = self.pr.take_if(|pr| pr.end.is_some()) {
            self.past_prs.insert(ended.number);
        }
    }

    /// The approval of what the branch holds now.
    #[must_use]
    pub fn approval(&self) -> Option<&Approval> {
        let head = self.head.as_ref()?;
        self.approved.as_ref().filter(|approval| approval.commit == head.commit)
    }
}

/// What a pool's accepted attempts took, from their start to the acceptance, our checks included:
/// sums in which older attempts count less, so that a pool that became slower is seen to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Served {
    /// Attempts.
    pub attempts: f64,
    /// Wall clock, milliseconds.
    pub millis: f64,
    /// Input tokens.
    pub input_tokens: f64,
    /// Output tokens.
    pub output_tokens: f64,
}

impl Served {
    /// What an older attempt still counts when the next one is added.
    const KEPT: f64 = 0.9;
    /// Longer attempts say nothing of a pool's speed (a stopped machine, a wrong clock).
    const MILLIS_MAX: i64 = 24 * 3_600_000;

    pub(super) fn add(&mut self, millis: i64, usage: &Usage) {
        if !(1..=Self::MILLIS_MAX).contains(&millis) {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "sums for an estimate")]
        let sums = [
            (&mut self.attempts, 1.0),
            (&mut self.millis, millis as f64),
            (&mut self.input_tokens, usage.input_tokens as f64),
            (&mut self.output_tokens, usage.output_tokens as f64),
        ];
        for (sum, amount) in sums {
            *sum = *sum * Self::KEPT + amount;
        }
    }
}

/// Everything the log says of one pool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct PoolRecord {
    /// Waits until then.
    pub paused: Option<PoolPause>,
    /// Out.
    pub settled: Option<PoolSettle>,
    /// Learned limits.
    pub learned: Option<Limits>,
    /// How long its accepted attempts took.
    pub served: Served,
    /// What attempts used in the day before the last of them, by their ends: it still counts in the
    /// windows of the next job.
    pub recent: Vec<(Timestamp, Usage)>,
    /// What it charges although it is declared free, US dollars per million tokens.
    pub usd_per_mtok: Option<f64>,
    /// Consumption.
    pub usage: Usage,
}

/// A pool's pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PoolPause {
    /// Its end.
    pub until: Timestamp,
    /// Its cause.
    pub outcome: Outcome,
    /// What the backend said.
    pub evidence: String,
    /// The backoff step, from 0.
    pub step: u32,
}

/// A pool that is out across cycles.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PoolSettle {
    /// The cause.
    pub outcome: Outcome,
    /// The end, where one is known.
    pub until: Option<Timestamp>,
    /// What the backend said.
    pub evidence: String,
    /// Which key was refused; see [`EventKind::PoolSettled`].
    #[serde(default)]
    pub key: Option<String>,
}

/// The pause of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PauseRecord {
    /// The leading cause.
    pub cause: PauseCause,
    /// Each node with its own cause.
    pub nodes: Vec<PausedNode>,
    /// The earliest time at which anything can go on.
    pub not_before: Option<Timestamp>,
    /// When this cause was first recorded.
    pub first_seen: Timestamp,
    /// How often it was recorded.
    pub count: u32,
    /// Who asked for it, where a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A friction record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FrictionRecord {
    /// Its kind.
    pub friction: FrictionType,
    /// What it is about; with the kind, its key.
    pub discriminator: String,
    /// What was seen.
    pub text: String,
    /// What to do.
    pub remedy: String,
    /// How often.
    pub count: u32,
}

/// Something of ours on the forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ShownRecord {
    /// The forge's id.
    pub id: String,
    /// Digest of what was shown last.
    pub digest: String,
}

/// Something of ours that notifies people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Made {
    /// An issue.
    Issue,
    /// A comment.
    Comment,
}

impl Made {
    /// What showing something made: the first time of an issue, each new comment. What is only
    /// written again in place notifies nobody.
    pub(super) fn of(what: &str, id: &str, before: Option<&ShownRecord>) -> Option<Self> {
        let issue = what == "dashboard" || what.starts_with("pause-issue:");
        let is_new = !id.is_empty() && before.is_none_or(|before| before.id != id);
        match (issue, what) {
            (_, "dashboard-lines") => None,
            _ if !is_new => None,
            (true, _) => Some(Self::Issue),
            (false, _) => Some(Self::Comment),
        }
    }
}

/// A line of a comment that was read as a command, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Received {
    /// The comment.
    pub comment: u64,
    /// Digest of its text.
    pub body_digest: String,
    /// The issue or pull request that it is on.
    pub on: u64,
    /// Its line in the comment.
    pub line: u32,
    /// What it asks for; or `invalid`, `denied`, `ignored`.
    pub verb: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Who wrote it.
    pub actor: String,
    /// What came of it, for people.
    pub result: String,
    /// When it was acted on.
    pub at: Timestamp,
}

impl Received {
    pub(super) fn of(event: &Event) -> Option<Self> {
        let EventKind::CommandReceived {
            comment,
            on,
            body_digest,
            line,
            verb,
            args,
            actor,
            result,
        } = &event.kind
        else {
            return None;
        };
        Some(Self {
            comment: *comment,
            body_digest: body_digest.clone(),
            on: *on,
            line: *line,
            verb: verb.clone(),
            args: args.clone(),
            actor: actor.clone(),
            result: result.clone(),
            at: event.at,
        })
    }
}

/// The close gate so far.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Gate {
    /// Commit with positive evidence.
    pub passed: Option<String>,
    /// Failed rounds.
    pub failed_rounds: u32,
    /// What the last failed round said.
    pub detail: String,
}
