//! One thing to fix.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{FindingId, RepoPath};

/// How bad a finding is. Ordered: `Info < Low < Medium < High < Critical`.
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
pub enum Severity {
    /// Worth knowing.
    Info,
    /// Small.
    Low,
    /// The default where a source says nothing.
    Medium,
    /// Bad.
    High,
    /// Worst.
    Critical,
}

/// SARIF 2.1.0 §3.27.10 `level`.
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
pub enum Level {
    /// No severity applies.
    None,
    /// Minor.
    Note,
    /// The default of SARIF.
    Warning,
    /// Serious.
    Error,
}

/// One place a finding points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Place {
    /// File or folder inside the repository.
    pub path: RepoPath,
    /// First line, from 1; `None` = the whole file.
    pub line: Option<u32>,
    /// Last line; equals `line` where the source gives none.
    pub end_line: Option<u32>,
    /// The code there, as the source quoted it.
    pub snippet: Option<String>,
    /// Function or type named by the source.
    pub symbol: Option<String>,
}

/// Why a finding is in no node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// Suppressed in the source.
    Suppressed,
    /// Names no place inside the checkout.
    OutsideCheckout,
    /// Names no file at all.
    NoPlace,
    /// The same finding as another one.
    DuplicateOf(FindingId),
    /// Its file is binary; there is no text to edit.
    Binary,
    /// Its file does not exist in the checkout.
    Missing,
    /// Its file lies in the checkout, but git does not track it.
    Untracked,
    /// Its path is protected by policy and needs a person (`.github/**`, CODEOWNERS, ...).
    Protected,
    /// Below the configured severity, or excluded by a configured filter.
    Filtered,
    /// The source says that nothing is wrong (SARIF `kind: pass`, `baselineState: absent`, ...).
    NotAProblem,
    /// Waits for a finding that was itself dropped, so it could never be done.
    Prerequisite(FindingId),
}

/// One thing to fix.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Finding {
    /// Ours, unique in the plan.
    pub id: FindingId,
    /// What the source called it; not a key (sources repeat ids).
    pub source_id: Option<String>,
    /// The tool or report it came from, e.g. `ruff`, `audit-findings`, `intent`.
    pub source: String,
    /// Rule, check or category, `None` where the source has none.
    pub rule: Option<String>,
    /// One line.
    pub title: String,
    /// What is wrong and what is proposed; may be long, is untrusted text.
    pub detail: String,
    /// Ours, from the source's severity or level.
    pub severity: Severity,
    /// The SARIF level, where the source has one.
    pub level: Option<Level>,
    /// Every place; the first is the primary one. Empty when the source names none inside the checkout.
    pub places: Vec<Place>,
    /// Suppressed in the source.
    pub suppressed: bool,
    /// Free-text evidence lines.
    pub evidence: Vec<String>,
    /// Stable across sources and runs: rule, path, normalised snippet (see [`content_fingerprint`]).
    pub fingerprint: String,
    /// Set when the finding is in no node.
    pub dropped: Option<DropReason>,
    /// Fields of the source that we do not know; kept, never interpreted.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub extra: serde_json::Map<String, serde_json::Value>,
}

impl Finding {
    /// Key in `extra` that is ours: the line of a finding that names no file inside the checkout.
    pub const REPORTED_LINE: &str = "reported-line";
    /// Key in `extra` that is ours: source ids of findings that have to be fixed first, an array.
    pub const DEPENDS_ON: &str = "depends-on";
    /// Key in `extra` that is ours: the number of the issue that it is.
    pub const ISSUE: &str = "issue";
    /// Key in `extra` that is ours: `true` when its missing files are to be created.
    pub const CREATES_FILES: &str = "creates-files";

    /// The primary path.
    #[must_use]
    pub fn path(&self) -> Option<&RepoPath> {
        self.places.first().map(|p| &p.path)
    }

    /// The primary line, from 1.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.places.first().and_then(|p| p.line)
    }
}

/// SHA-256 over the parts, each length-prefixed so that no two lists collide; lower-case hex.
#[must_use]
pub fn hex_digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

/// The stable fingerprint of a finding: rule, path, and its snippet (or message) with white space
/// folded, so that a moved line or a re-indented file keeps its identity. 32 hex digits.
#[must_use]
pub fn content_fingerprint(rule: Option<&str>, path: Option<&RepoPath>, text: &str) -> String {
    let folded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let path = path.map_or("", RepoPath::as_str);
    let mut hex = hex_digest([rule.unwrap_or("").as_bytes(), path.as_bytes(), folded.as_bytes()]);
    hex.truncate(32);
    hex
}
