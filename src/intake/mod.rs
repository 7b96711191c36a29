//! From each source format to findings. Pure: the checkout is asked through a function that the
//! caller passes, files are bytes that the caller read.

mod absolute;
mod audit;
mod combine;
mod draft;
mod issue;
mod json;
mod sarif;
mod text;
mod uri;

use serde_json::Value;

use crate::config::FindingsFormat;
use crate::model::{Finding, FindingId, IdError, Severity};

pub use combine::{Combined, combine};
pub use issue::{ISSUE_SOURCE, ReportedIssue, issue};
pub use json::MAX_SOURCE_BYTES;

/// What the checkout has at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// A text file.
    File,
    /// A folder with tracked files.
    Folder,
    /// Nothing.
    Missing,
    /// A file that is not text.
    Binary,
    /// A file that lies there without being tracked: no change of it could be proposed.
    Untracked,
    /// A link that leads out of the checkout.
    Elsewhere,
}

/// What reading needs to know of the world.
#[derive(Clone)]
pub struct IntakeContext<'a> {
    /// Where the tool that made the report had its checkout, when somebody said so; a Windows root
    /// with its drive is fine.
    pub source_root: Option<String>,
    /// Where our checkout lies now; used when the tool ran right here.
    pub checkout: Option<String>,
    /// What is at a path of the checkout.
    pub lookup: &'a dyn Fn(&str) -> PathKind,
}

impl IntakeContext<'_> {
    /// Knows nothing about any checkout.
    #[must_use]
    pub fn blind() -> Self {
        Self { source_root: None, checkout: None, lookup: &|_| PathKind::Missing }
    }
}

/// Why a source is not read. Each names the file and the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IntakeError {
    /// Over [`MAX_SOURCE_BYTES`].
    #[error("{name} has {bytes} bytes; the limit is {limit}", limit = MAX_SOURCE_BYTES)]
    TooLarge {
        /// File.
        name: String,
        /// Its size.
        bytes: usize,
    },
    /// No text.
    #[error("{name} is empty")]
    Empty {
        /// File.
        name: String,
    },
    /// Neither UTF-8 nor UTF-16 with a byte order mark.
    #[error("{name} is not text in UTF-8, nor in UTF-16 with a byte order mark")]
    Encoding {
        /// File.
        name: String,
    },
    /// Another kind of file altogether.
    #[error("{name} is {what}, not JSON")]
    Foreign {
        /// File.
        name: String,
        /// What it is, with its article.
        what: &'static str,
    },
    /// Not JSON.
    #[error("{name} is {} at line {line}, column {column}: {reason}", if *truncated { "cut off" } else { "not valid JSON" })]
    Json {
        /// File.
        name: String,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// The text ended too early.
        truncated: bool,
        /// The parser's words.
        reason: String,
    },
    /// A member has the wrong type.
    #[error("{name}: {place} should be {expected}, but is {found}")]
    Shape {
        /// File.
        name: String,
        /// JSON path.
        place: String,
        /// Type that belongs there.
        expected: &'static str,
        /// Type that is there.
        found: &'static str,
    },
    /// A member that must be there is not.
    #[error("{name}: {place} has no '{key}'")]
    MissingMember {
        /// File.
        name: String,
        /// JSON path.
        place: String,
        /// The member.
        key: String,
    },
    /// A version of a format that we do not read.
    #[error("{name} is {format} version '{found}'; read are {supported}")]
    Version {
        /// File.
        name: String,
        /// The format.
        format: &'static str,
        /// Version in the file.
        found: String,
        /// Versions that we read.
        supported: &'static str,
    },
    /// What is needed is in other files.
    #[error("{name}: {place} keeps its {what} in other files (external properties)")]
    External {
        /// File.
        name: String,
        /// JSON path.
        place: String,
        /// What is there, in the plural.
        what: &'static str,
    },
    /// The tool says that it failed: that it found nothing means nothing.
    #[error("{name}: {place} is of a tool that did not finish, and holds no results")]
    Unfinished {
        /// File.
        name: String,
        /// JSON path.
        place: String,
    },
    /// Another format than somebody said.
    #[error("{name} is {}, not {}", words(*found), words(*said))]
    OtherFormat {
        /// File.
        name: String,
        /// What was said.
        said: FindingsFormat,
        /// What it is.
        found: FindingsFormat,
    },
    /// No format that we know.
    #[error("{name} is neither SARIF 2.1.0 nor an audit findings report")]
    Unknown {
        /// File.
        name: String,
    },
    /// More findings than an id can count.
    #[error(transparent)]
    Id(#[from] IdError),
}

impl IntakeError {
    /// What a person can do about it.
    #[must_use]
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::TooLarge { .. } => "split the report, or filter it at its source",
            Self::Empty { .. } | Self::Json { truncated: true, .. } => {
                "make the report again: the tool that writes it was probably stopped, or its disk was full"
            }
            Self::Encoding { .. } => "write the report in UTF-8",
            Self::Foreign { what, .. } if what.contains("archive") => "unpack it first",
            Self::Foreign { .. } => {
                "have the tool write SARIF 2.1.0 (most have an option such as `--format sarif`)"
            }
            Self::Unfinished { .. } => "run the tool again, and look at what it says",
            Self::Json { .. } => "correct the JSON at that place, or make the report again",
            Self::Shape { .. } | Self::MissingMember { .. } => {
                "correct that member, or make the report again with a current version of its tool"
            }
            Self::Version { .. } => {
                "make the report in a version that is read (`sarif-multitool transform` converts old SARIF)"
            }
            Self::External { .. } => "inline them first (`sarif-multitool rewrite` does so)",
            Self::Unknown { .. } => {
                "give a SARIF 2.1.0 file (most tools write one with an option such as `--format sarif`) or an audit-findings.json; free text goes to --intent"
            }
            Self::OtherFormat { .. } => "correct `format` in the configuration, or leave it out",
            Self::Id(_) => "split the report",
        }
    }
}

/// Reads one source; its format is told from its content. Findings come in the file's order with
/// provisional ids and without final fingerprints; [`combine`] numbers them for the plan and finds
/// duplicates. Entries that say
/// that nothing is wrong come too, dropped as such.
///
/// # Errors
/// When the file is not what it claims to be: never an empty list for a broken file.
pub fn read(bytes: &[u8], name: &str, ctx: &IntakeContext) -> Result<Vec<Finding>, IntakeError> {
    read_as(bytes, name, ctx, FindingsFormat::Auto)
}

/// As [`read`], of a file that is `said` to be of a format.
///
/// # Errors
/// As [`read`], and when it is of another format.
pub fn read_as(
    bytes: &[u8],
    name: &str,
    ctx: &IntakeContext,
    said: FindingsFormat,
) -> Result<Vec<Finding>, IntakeError> {
    let value = json::parse(bytes, name)?;
    let root = json::At::root(&value, name);
    let Value::Object(members) = &value else {
        return Err(IntakeError::Unknown { name: name.to_owned() });
    };
    let found = format_of(members).ok_or_else(|| IntakeError::Unknown { name: name.to_owned() })?;
    if ![found, FindingsFormat::Auto].contains(&said) {
        return Err(IntakeError::OtherFormat { name: name.to_owned(), said, found });
    }
    let drafts = match found {
        FindingsFormat::Audit => audit::read(&root, ctx)?,
        FindingsFormat::Sarif | FindingsFormat::Auto => sarif::read(&root, ctx)?,
    };
    Ok(draft::settle(drafts, ctx)?)
}

fn words(format: FindingsFormat) -> &'static str {
    match format {
        FindingsFormat::Sarif => "SARIF",
        FindingsFormat::Audit => "an audit findings report",
        FindingsFormat::Auto => "of any format",
    }
}

/// What the members of the whole tell.
fn format_of(members: &serde_json::Map<String, Value>) -> Option<FindingsFormat> {
    let has = |key: &str| members.contains_key(key);
    let says_sarif =
        members.get("$schema").and_then(Value::as_str).is_some_and(|s| s.contains("sarif"));
    if has("contract_version") {
        Some(FindingsFormat::Audit)
    } else if has("runs") || has("runLogs") || says_sarif {
        Some(FindingsFormat::Sarif)
    } else if has("findings") {
        Some(FindingsFormat::Audit)
    } else {
        is_bare_sarif(members).then_some(FindingsFormat::Sarif)
    }
}

/// A log that lacks its runs. Any other file with a version is something else.
fn is_bare_sarif(members: &serde_json::Map<String, Value>) -> bool {
    let version = members.get("version").and_then(Value::as_str).unwrap_or_default();
    version.starts_with("2.")
        && members.keys().all(|key| {
            ["$schema", "version", "inlineExternalProperties", "properties"].contains(&key.as_str())
        })
}

/// One sentence of intent as a finding; it names no file. `None` when the text is blank.
///
/// # Errors
/// Never in practice: the provisional id is valid.
pub fn intent(text: &str) -> Result<Option<Finding>, IntakeError> {
    let detail = text::long(text);
    if detail.is_empty() {
        return Ok(None);
    }
    Ok(Some(Finding {
        id: finding_id(1)?,
        source_id: None,
        source: INTENT_SOURCE.to_owned(),
        rule: None,
        title: text::title(text),
        detail,
        severity: Severity::Medium,
        level: None,
        places: Vec::new(),
        suppressed: false,
        evidence: Vec::new(),
        fingerprint: String::new(),
        dropped: None,
        extra: serde_json::Map::new(),
    }))
}

/// The `source` of findings made of a sentence of intent.
pub const INTENT_SOURCE: &str = "intent";

/// `F-0001` and on.
fn finding_id(number: usize) -> Result<FindingId, IdError> {
    FindingId::new(format!("F-{number:04}"))
}
