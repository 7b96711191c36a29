//! What the templates show: plain data, filled from the fold, the plan and the configuration.

use jiff::Timestamp;

use super::history::Span;
use crate::ledger::{Failure, FrictionRecord, NodeState, PauseRecord, Receipt};
use crate::model::{CiMode, Finding, Node, NodeId, Outcome, PoolId, RunId, Severity, Usage};

/// A run as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct RunView {
    /// Which run.
    pub run: RunId,
    /// `progress`, `paused`, `waiting`, `complete` or `idle`.
    pub status: String,
    /// The base branch.
    pub base_branch: String,
    /// Now, for "since" and "in".
    pub now: Timestamp,
    /// When a cycle last began.
    pub heartbeat: Option<Timestamp>,
    /// When the next one is expected; schedules may run late.
    pub next_cycle: Option<Timestamp>,
    /// The workflow run of this cycle.
    pub workflow_url: Option<String>,
    /// In plan order.
    pub nodes: Vec<NodeView>,
    /// By id.
    pub pools: Vec<PoolView>,
    /// The pause, if the run can't go on.
    pub pause: Option<PauseRecord>,
    /// Who paused it, for a pause by command.
    pub paused_by: Option<String>,
    /// Findings in, in nodes, dropped.
    pub findings: (usize, usize, usize),
    /// What was consumed.
    pub usage: Usage,
    /// The run's budget, US dollars.
    pub budget_usd: Option<f64>,
    /// What to fix in the tool, the configuration or the plan.
    pub friction: Vec<FrictionRecord>,
    /// Noise ceilings.
    pub ceilings: Vec<Ceiling>,
    /// Layers of the sandbox that this machine lacks, with what that means.
    pub sandbox_missing: Vec<(String, String)>,
    /// What this cycle did, oldest first.
    pub timeline: Vec<Moment>,
}

/// A node as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    /// Which node.
    pub id: NodeId,
    /// Its title; untrusted.
    pub title: String,
    /// Its state.
    pub state: NodeState,
    /// Of its worst finding.
    pub severity: Severity,
    /// What it waits for.
    pub depends_on: Vec<NodeId>,
    /// The pool that works or last worked on it.
    pub pool: Option<PoolId>,
    /// Attempts so far.
    pub attempts: u32,
    /// Number and address of its pull request.
    pub pull_request: Option<(u64, String)>,
    /// Why it failed, waits or is blocked; untrusted.
    pub note: Option<String>,
}

/// Whether a pool can work.
#[derive(Debug, Clone, PartialEq)]
pub enum PoolState {
    /// It can.
    Usable,
    /// It waits.
    Paused {
        /// Until then.
        until: Timestamp,
        /// Why.
        outcome: Outcome,
        /// What the backend said; untrusted.
        evidence: String,
    },
    /// It is out, across cycles.
    Settled {
        /// Where an end is known.
        until: Option<Timestamp>,
        /// Why.
        outcome: Outcome,
        /// What the backend said; untrusted.
        evidence: String,
    },
    /// Excluded by the configuration.
    Excluded,
    /// This process can't reach it.
    Unreachable {
        /// Why; untrusted.
        reason: String,
    },
}

/// A pool as people see it.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolView {
    /// Which pool.
    pub id: PoolId,
    /// Its state.
    pub state: PoolState,
    /// Its context window, tokens.
    pub context_tokens: u64,
    /// What people should know of it although it works.
    pub note: Option<String>,
    /// What it consumed in this run.
    pub usage: Usage,
}

/// A noise ceiling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ceiling {
    /// Of what, e.g. `comments today`.
    pub what: String,
    /// Used.
    pub used: u32,
    /// Allowed.
    pub limit: u32,
}

/// Something that the cycle did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// When.
    pub at: Timestamp,
    /// About which node.
    pub node: Option<NodeId>,
    /// What; untrusted.
    pub text: String,
}

/// A node's pull request.
#[derive(Debug, Clone, PartialEq)]
pub struct PullRequestView {
    /// Which run.
    pub run: RunId,
    /// The node.
    pub node: Node,
    /// Its findings; untrusted.
    pub findings: Vec<Finding>,
    /// What landed and how it was checked.
    pub receipt: Receipt,
    /// Attempts it took.
    pub attempts: u32,
    /// The branch that it goes to.
    pub base: String,
    /// Nodes that it is stacked on, with their pull requests.
    pub stacked_on: Vec<(NodeId, Option<u64>)>,
    /// Where files of a commit are shown, up to the commit: `https://github.com/o/r/blob/`.
    pub blob_url: Option<String>,
    /// How checks start.
    pub ci: CiMode,
}

/// Everything of a run, for the HTML report.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportView {
    /// The run, with everything that happened.
    pub run: RunView,
    /// Attempts and rests of pools.
    pub spans: Vec<Span>,
    /// One for each node of the run, in the same order.
    pub details: Vec<NodeDetail>,
}

/// What the HTML report says of a node beside its row.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDetail {
    /// Its findings; untrusted.
    pub findings: Vec<Finding>,
    /// What landed and how it was checked.
    pub receipt: Option<Receipt>,
    /// Attempts that failed, oldest first; untrusted.
    pub failures: Vec<Failure>,
    /// Consumption of all its attempts.
    pub usage: Usage,
}
