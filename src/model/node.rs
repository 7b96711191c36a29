//! Nodes and the plan that holds them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Finding, FindingId, NodeId, RepoPath, Severity};

/// Where a node may write. A closed enum, not a glob string, because real file names contain
/// `[`, `*` and `{`.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ScopeEntry {
    /// Exactly this file.
    Path(RepoPath),
    /// Everything below this folder.
    Folder(RepoPath),
    /// A glob (`*`, `?`, `**`, `[..]`, `{..}`), `*` not crossing `/`.
    Glob(String),
}

/// Capability a node asks for, or a pool offers. Ordered.
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
pub enum Tier {
    /// One safe item.
    Small,
    /// The default.
    Standard,
    /// Critical or wide work.
    Deep,
}

/// One verify command: an argv, never a shell line made from outside text.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub struct VerifyCommand {
    /// A short name for people and for the tool loop.
    pub name: String,
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Wall clock, seconds.
    pub timeout_seconds: u64,
}

/// One unit of work; becomes one pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Node {
    /// Unique in the plan.
    pub id: NodeId,
    /// One line for people.
    pub title: String,
    /// The findings it must resolve; never empty.
    pub findings: Vec<FindingId>,
    /// What it may change.
    pub writes: Vec<ScopeEntry>,
    /// Files that do not exist yet and that it is expected to create (inside `writes`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub creates: Vec<RepoPath>,
    /// Hard dependencies: this node is blocked when one of them fails, is rejected or skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<NodeId>,
    /// Order only, because the write scopes overlap: wait until these are accepted or final.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<NodeId>,
    /// Commands that must pass on the exact tree that lands.
    pub verify: Vec<VerifyCommand>,
    /// Why there is no verify command, when `verify` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_waived: Option<String>,
    /// Capability floor.
    pub tier: Tier,
    /// Highest severity of its findings.
    pub severity: Severity,
    /// Estimated prompt size in tokens, from the real files and findings.
    pub input_tokens: u64,
    /// Output envelope in tokens.
    pub output_tokens: u64,
}

/// Where one finding ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoveragePlace {
    /// In this node.
    Node(NodeId),
    /// In no node, for this reason.
    Dropped(super::DropReason),
}

/// Proof that each finding ended in exactly one place: `total == in_nodes + dropped`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Coverage {
    /// Findings in.
    pub total: usize,
    /// Findings in nodes.
    pub in_nodes: usize,
    /// Findings dropped with a reason.
    pub dropped: usize,
    /// Each finding's place.
    pub places: BTreeMap<FindingId, CoveragePlace>,
}

/// The validated, immutable graph of nodes. A re-plan is a new revision.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Plan {
    /// Format version, 1.
    pub version: u32,
    /// Counted from 1.
    pub revision: u32,
    /// Every finding that came in, dropped ones too.
    pub findings: Vec<Finding>,
    /// In a deterministic topological order.
    pub nodes: Vec<Node>,
    /// Where each finding went.
    pub coverage: Coverage,
}

impl Plan {
    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes.iter().find(|n| &n.id == id)
    }

    /// The finding with this id.
    #[must_use]
    pub fn finding(&self, id: &FindingId) -> Option<&Finding> {
        self.findings.iter().find(|f| &f.id == id)
    }
}
