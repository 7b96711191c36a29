//! Nodes and the plan that holds them.

use std::collections::BTreeMap;
use std::fmt;

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
///
/// Read by name or by rank: 1 is small, 2 standard, 3 and above deep (there is no floor above
/// deep, so higher ranks are the same).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tier {
    /// One safe item.
    Small,
    /// The default.
    Standard,
    /// Critical or wide work.
    Deep,
}

impl<'de> Deserialize<'de> for Tier {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TierVisitor)
    }
}

struct TierVisitor;

impl serde::de::Visitor<'_> for TierVisitor {
    type Value = Tier;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`small`, `standard`, `deep`, or a rank from 1")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Tier, E> {
        match text {
            "small" => Ok(Tier::Small),
            "standard" => Ok(Tier::Standard),
            "deep" => Ok(Tier::Deep),
            _ => Err(E::unknown_variant(text, &["small", "standard", "deep"])),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, rank: u64) -> Result<Tier, E> {
        match rank {
            0 => Err(E::invalid_value(serde::de::Unexpected::Unsigned(0), &self)),
            1 => Ok(Tier::Small),
            2 => Ok(Tier::Standard),
            _ => Ok(Tier::Deep),
        }
    }

    fn visit_i64<E: serde::de::Error>(self, rank: i64) -> Result<Tier, E> {
        match u64::try_from(rank) {
            Ok(rank) => self.visit_u64(rank),
            Err(_) => Err(E::invalid_value(serde::de::Unexpected::Signed(rank), &self)),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, rank: f64) -> Result<Tier, E> {
        match rank {
            r if r.is_nan() || r < 1.0 => {
                Err(E::invalid_value(serde::de::Unexpected::Float(rank), &self))
            }
            r if r < 2.0 => Ok(Tier::Small),
            r if r < 3.0 => Ok(Tier::Standard),
            _ => Ok(Tier::Deep),
        }
    }
}

impl schemars::JsonSchema for Tier {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Tier".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Capability a node asks for, or a pool offers, by name or by rank: 1 is \
                            small, 2 standard, 3 and above deep.",
            "oneOf": [
                { "type": "string", "enum": ["small", "standard", "deep"] },
                { "type": "number", "minimum": 1 }
            ]
        })
    }
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
