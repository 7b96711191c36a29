//! The events. A run is its events and nothing else.
//!
//! Wire format: one JSON object a line, `{"v":1,"at":"..","cycle":"..","kind":"..", ...}`. Fields
//! are only ever added, with a default. A kind that this version does not know becomes
//! [`EventKind::Unknown`]: it stops a writer and leaves a reader working.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::model::{
    AttemptNumber, CycleId, FindingId, GrantId, MeterKey, NodeId, Outcome, OwnerToken, PoolId,
    RunId, Usage,
};

/// The event format that this version writes.
pub const EVENT_VERSION: u32 = 1;

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Event {
    /// Format version.
    pub v: u32,
    /// When it was written, by the writer's clock.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// Which cycle wrote it.
    pub cycle: CycleId,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Whose process holds a claim, for asking whether it still lives.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Holder {
    /// GitHub workflow run id and attempt, on Actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_run: Option<u64>,
    /// The attempt of that workflow run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workflow_attempt: Option<u32>,
    /// Machine, boot and process, elsewhere.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// Why a run cannot go on now.
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
pub enum PauseCause {
    /// Every blocked node waits for a stated reset or budget.
    BudgetExhausted,
    /// Momentarily full; clears in seconds to minutes.
    CapReached,
    /// The blocked nodes exceed the window or capability of every available pool.
    NoCapablePool,
    /// Every pool is settled or unreachable.
    NoUsablePool,
    /// The time budget of this job is near.
    JobDeadline,
    /// Paused by a person.
    Operator,
}

/// Why one node waits, in a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct PausedNode {
    /// Which node.
    pub node: NodeId,
    /// Its own cause; mixed causes stay apart.
    pub cause: PauseCause,
    /// One sentence with the figures.
    pub reason: String,
    /// When it may go on, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub not_before: Option<Timestamp>,
}

/// Kinds of friction: "this went wrong; fix the tool, the config or the plan".
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
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum FrictionType {
    QuotaEscalation,
    PoolSettled,
    CreditExhausted,
    ModelUnavailable,
    PacketTooLarge,
    QuotaUnclassified,
    DeclaredCostDrift,
    QuotaBlind,
    VerifyFlaky,
    ScopeViolation,
    NewlyReachablePool,
    BaseBroken,
    SecretRefused,
    ModelSwitched,
}

/// What verified a tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct CheckRecord {
    /// The command's name.
    pub name: String,
    /// Exit code; `None` when it was stopped.
    pub exit_code: Option<i32>,
    /// Wall clock, milliseconds.
    pub millis: u64,
    /// `passed`, `failed`, `base-fails-too`, `flaky`.
    pub verdict: String,
}

/// What landed and how it was checked: the receipt of an accepted node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Receipt {
    /// Base commit of the attempt.
    pub base: String,
    /// Accepted nodes that the base holds beside the base branch.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NodeId>,
    /// The node's commit.
    pub commit: String,
    /// Its tree: exactly what was verified.
    pub tree: String,
    /// Findings that it resolves.
    pub resolved: Vec<FindingId>,
    /// Paths that it changes, as UTF-8 (lossy for odd names).
    pub touched: Vec<String>,
    /// Verify commands and re-checks.
    pub checks: Vec<CheckRecord>,
    /// The pool that did it.
    pub pool: PoolId,
    /// The model that really answered, where it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_seen: Option<String>,
    /// Program and version of the agent that did it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Consumption.
    pub usage: Usage,
    /// The worker's own summary; untrusted.
    #[serde(default)]
    pub summary: String,
    /// People whose commits are in it, `Name <mail>`; untrusted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<String>,
}

/// What a person asks for a node's branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BranchAsk {
    /// Take the commits on it into the node.
    Adopt,
    /// Take them off it.
    Reset,
    /// Approve its head.
    Approve,
}

/// Who does a granted node.
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
pub enum Share {
    /// A job of its own that drives one of our pools.
    Work,
    /// Somebody else's agent, in a job of its own.
    Host,
}

/// One node of a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct GrantedClaim {
    /// Which node.
    pub node: NodeId,
    /// Which try.
    pub attempt: AttemptNumber,
    /// The fence of its claim.
    pub owner: OwnerToken,
    /// The pool that is to do it.
    pub pool: PoolId,
    /// Commit to start from.
    pub base: String,
    /// Who does it.
    pub share: Share,
    /// Public half of the key that signs the result, hex. The other half is with the job only.
    pub verify_key: String,
}

/// How an attempt counts against the node's budgets (contract 2, infrastructure 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Burn {
    /// Nothing: limits that time heals, shutdown.
    None,
    /// The node's own failure: a bad result, a failed check.
    Contract,
    /// The world's failure: network, deadline.
    Infrastructure,
}

/// What a backend really answered when an attempt failed on it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Evidence {
    /// HTTP status, where an answer came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The rule that read it.
    pub rule: String,
    /// Its words; secrets scrubbed, cut.
    pub text: String,
    /// The stated reset, seconds from then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reset_seconds: Option<f64>,
    /// Requests of the attempt that a gateway saw.
    pub requests: u32,
    /// How many of them failed.
    pub failures: u32,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", rename_all_fields = "kebab-case")]
#[expect(missing_docs, reason = "fields carry the words of the vocabulary")]
pub enum EventKind {
    /// A run begins.
    Opened { run: RunId, base_branch: String, base_commit: String, findings_digest: String },
    /// A plan (by digest) is the run's plan from here on.
    Planned { revision: u32, digest: String },
    /// A grant names an owner. Ignored when the node has a live claim or is not claimable.
    Claimed {
        node: NodeId,
        attempt: AttemptNumber,
        owner: OwnerToken,
        #[schemars(with = "String")]
        lease_until: Timestamp,
        #[serde(default)]
        holder: Holder,
    },
    /// Nodes are handed out to jobs of their own; the claims stand beside it. Entries whose claim is
    /// not held by that owner count for nothing.
    Granted {
        grant: GrantId,
        #[schemars(with = "String")]
        expires: Timestamp,
        claims: Vec<GrantedClaim>,
    },
    /// The grant's results were taken in, and nothing of it is held any more.
    GrantEnded { grant: GrantId },
    /// The lease moves on.
    LeaseRenewed {
        node: NodeId,
        owner: OwnerToken,
        #[schemars(with = "String")]
        lease_until: Timestamp,
    },
    /// The owner gives the node back (or a cycle takes a dead owner's claim away).
    Released { node: NodeId, owner: OwnerToken, reason: String },
    /// A worker is about to be called.
    AttemptStarted {
        node: NodeId,
        attempt: AttemptNumber,
        owner: OwnerToken,
        pool: PoolId,
        base: String,
    },
    /// The attempt ended without landing. Ends the claim unless `keep_claim`.
    AttemptEnded {
        node: NodeId,
        attempt: AttemptNumber,
        owner: OwnerToken,
        pool: PoolId,
        outcome: Outcome,
        burn: Burn,
        /// What went wrong, for people and for the next prompt; scrubbed and cut.
        detail: String,
        #[serde(default)]
        usage: Usage,
        /// What the backend answered, where one did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        evidence: Option<Evidence>,
        /// The kept tree of a rejected attempt, as a commit id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        quarantine: Option<String>,
        /// Nodes whose accepted work conflicts; the next attempt is based on them too.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        conflicts_with: Vec<NodeId>,
    },
    /// Verified on its final tree and integrated. The landing: nothing is resolved without it.
    Accepted { node: NodeId, attempt: AttemptNumber, owner: OwnerToken, receipt: Receipt },
    /// Nothing to change, proven by our own check on the base.
    Satisfied { node: NodeId, attempt: AttemptNumber, owner: OwnerToken, evidence: String },
    /// The node's branch is on the remote.
    BranchPushed { node: NodeId, branch: String, commit: String },
    /// Its pull request is open (or was found again).
    PrOpened { node: NodeId, number: u64, url: String, branch: String, base: String },
    /// Its text shows this commit of ours, and it goes to this base.
    PrUpdated {
        node: NodeId,
        number: u64,
        commit: String,
        #[serde(default)]
        base: String,
    },
    /// It is nowhere any more: what it was for goes on without it.
    PrLost { node: NodeId, number: u64 },
    /// The head of the node's branch as seen: a person's, unless the log names the commit as ours.
    HeadSeen { node: NodeId, commit: String },
    /// About to be pushed as a branch of ours that holds several nodes.
    BranchBuilt { branch: String, commit: String },
    /// The same work on another base, or with a person's commits taken in; verified again. Ignored
    /// when the node's work is not `from` any more.
    Rebuilt {
        node: NodeId,
        from: String,
        receipt: Receipt,
        reason: String,
        /// Who asked to take the commits of the branch in; they are its head already.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        adopted_by: Option<String>,
    },
    /// All that the node changes is on the base branch already. As `Rebuilt`, bound to `from`.
    FoundOnBase { node: NodeId, from: String, evidence: String },
    /// A person says what is to become of what is on the node's branch.
    BranchAsked {
        node: NodeId,
        ask: BranchAsk,
        by: String,
        /// The comment and its line; 0 from a shell.
        #[serde(default)]
        comment: u64,
        #[serde(default)]
        line: u32,
        /// When it was said: what was pushed later is not meant.
        #[schemars(with = "String")]
        said: Timestamp,
    },
    /// What came of that, for people.
    BranchAnswered { node: NodeId, result: String },
    /// A person's commits were taken off the branch and kept there.
    HeadReset { node: NodeId, commit: String, quarantine: String },
    /// A person approves exactly this commit.
    Approved { node: NodeId, commit: String, by: String },
    /// Its reviews were looked at as of its last change. `reviews` are the ones that ask for changes
    /// and are new: the node goes back to work with `reason` in the prompt. Ignored unless its work
    /// is in review there.
    Reviewed {
        node: NodeId,
        number: u64,
        #[schemars(with = "String")]
        seen: Timestamp,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        reviews: Vec<String>,
        /// Who asks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        by: Vec<String>,
        /// Their words, cut; untrusted.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        reason: String,
    },
    /// People or policy merged it.
    PrMerged { node: NodeId, number: u64, commit: String },
    /// Closed unmerged.
    PrClosed { node: NodeId, number: u64 },
    /// Back to work with this in the prompt (change request, conflict with a moved base).
    Reopened { node: NodeId, reason: String },
    /// A person retries a failed or rejected node: its attempt budget starts anew.
    Retried { node: NodeId, by: String },
    /// A person skips it.
    Skipped { node: NodeId, by: String },
    /// The pool waits.
    PoolPaused {
        pool: PoolId,
        #[schemars(with = "String")]
        until: Timestamp,
        outcome: Outcome,
        evidence: String,
        step: u32,
    },
    /// The pool is out, across cycles. `until` where an end is known.
    PoolSettled {
        pool: PoolId,
        outcome: Outcome,
        #[serde(default)]
        #[schemars(with = "Option<String>")]
        until: Option<Timestamp>,
        evidence: String,
        /// Of a refused key: which one it was, as a salted and very short digest.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// The pool is back.
    PoolRestored { pool: PoolId, by: String },
    /// A person lifts a settle that no cycle may lift.
    Unsettled { pool: PoolId, by: String },
    /// This request size does not fit this pool, for good.
    SizeBanned { node: NodeId, pool: PoolId, tokens: u64 },
    /// A limit that was learned, not declared.
    LimitLearned { pool: PoolId, limits: crate::model::Limits },
    /// Whose quota each pool draws on, and what the run before used of it. The first one counts.
    Metered {
        meters: BTreeMap<PoolId, MeterKey>,
        #[serde(default)]
        used: Vec<Used>,
    },
    /// A pool that is declared free charges this much, US dollars per million tokens.
    CostObserved { pool: PoolId, usd_per_mtok: f64 },
    /// The run cannot go on now.
    Paused {
        cause: PauseCause,
        nodes: Vec<PausedNode>,
        #[serde(default)]
        #[schemars(with = "Option<String>")]
        not_before: Option<Timestamp>,
        /// Who asked for it, where a person did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    },
    /// Work goes on; ends every pause.
    Resumed { by: String },
    /// A comment command was acted on; repeats of (comment, body) change nothing.
    CommandReceived {
        comment: u64,
        /// The issue or pull request that it is on, where the answer goes.
        #[serde(default)]
        on: u64,
        body_digest: String,
        line: u32,
        verb: String,
        #[serde(default)]
        args: Vec<String>,
        actor: String,
        result: String,
    },
    /// Comments up to then were read for commands.
    InboxRead {
        #[schemars(with = "String")]
        until: Timestamp,
    },
    /// More budget, by command; US dollars.
    BudgetRaised { usd: f64, by: String },
    /// Something to fix in the tool, the config or the plan. One per (type, discriminator).
    Friction { friction: FrictionType, discriminator: String, text: String, remedy: String },
    /// A cycle is about to make something that notifies people. One at a time: ignored while another
    /// one makes it, and when it was made meanwhile.
    Making {
        what: String,
        /// What the maker knows to show it now; empty where nothing does.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        instead_of: String,
        #[serde(default)]
        holder: Holder,
        /// Since when a maker had it that is dead.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(with = "Option<String>")]
        after: Option<Timestamp>,
    },
    /// The forge object (dashboard, pause comment) that shows something, so that it is found again.
    Shown { what: String, id: String, digest: String },
    /// The close gate: the integrated tree was verified.
    GatePassed { commit: String, checks: Vec<CheckRecord> },
    /// The close gate failed; `round` never exceeds two.
    GateFailed { commit: String, round: u32, nodes: Vec<NodeId>, detail: String },
    /// The cycle began; the dashboard's heartbeat.
    CycleStarted {
        #[serde(default)]
        holder: Holder,
        /// A comment woke it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        by_comment: bool,
    },
    /// The cycle ended with this status.
    CycleEnded { status: String },
    /// The run is over. `counts` by final state.
    Closed { commit: String, counts: BTreeMap<String, usize> },
    /// Called off by a person: nothing more is started.
    Cancelled { by: String },
    /// A kind this version does not know.
    #[serde(skip_serializing, other)]
    #[schemars(skip)]
    Unknown,
}

/// What a pool used before the run began.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct Used {
    /// Which.
    pub pool: PoolId,
    /// When, at the latest.
    #[schemars(with = "String")]
    pub at: Timestamp,
    /// How much.
    pub usage: Usage,
}

/// JSON Schema of one event, for those who read a run's log with tools of their own. A reader must
/// leave kinds and fields alone that it does not know.
#[must_use]
pub fn event_schema() -> schemars::Schema {
    schemars::generate::SchemaSettings::draft2020_12()
        .into_generator()
        .into_root_schema_for::<Event>()
}
