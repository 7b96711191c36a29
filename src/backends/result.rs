//! Strict reading of what a worker hands in. Its words are untrusted: sizes are bounded, ids must
//! be the node's own, and anything else is an error that the one repair turn is told.

use std::collections::BTreeSet;

use super::WorkerResult;
use crate::model::{FindingId, Node};

/// Largest output that is searched for a result, in bytes; of more, the tail is taken.
pub const MAX_OUTPUT: usize = 4 * 1024 * 1024;
/// Largest result object, in bytes.
const MAX_RESULT: usize = 256 * 1024;
/// Longest summary kept, in characters.
const MAX_SUMMARY: usize = 4_000;
/// Longest reason kept, in characters.
const MAX_REASON: usize = 1_000;

/// Why a worker's output holds no usable result. The texts are written for the worker.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultError {
    /// Nothing that looks like a result.
    #[error(
        "there is no result: neither is the whole answer JSON nor does it hold a fenced `json` block"
    )]
    Missing,
    /// Too long.
    #[error("the result has {0} bytes; at most {MAX_RESULT} are read")]
    TooLarge(usize),
    /// Not the JSON that was asked for.
    #[error("the result is not the JSON object that was asked for: {0}")]
    Malformed(String),
    /// Ids of another node, or of none.
    #[error("the result names findings that are not of this task: {}", join(.0))]
    Foreign(Vec<FindingId>),
    /// One id as resolved and as blocked.
    #[error("the result names findings both as resolved and as blocked: {}", join(.0))]
    Contradiction(Vec<FindingId>),
    /// Says nothing about any finding.
    #[error("the result names no finding; list each one of the task as resolved or as blocked")]
    Empty,
}

fn join(ids: &[FindingId]) -> String {
    ids.iter().take(10).map(FindingId::as_str).collect::<Vec<_>>().join(", ")
}

/// Reads a worker's output: the whole text as JSON, else its last fenced `json` block.
///
/// # Errors
/// When there is no such thing, or it is not a valid result for this node.
pub fn parse_output(output: &str, node: &Node) -> Result<WorkerResult, ResultError> {
    let text =
        tail(output, MAX_OUTPUT).trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    if text.starts_with('{') && text.ends_with('}') {
        return parse_json(text, node);
    }
    match last_json_block(text) {
        Some(block) => parse_json(block, node),
        None => Err(ResultError::Missing),
    }
}

/// Reads one JSON object as the result for this node.
///
/// # Errors
/// When it is too large, not of the form asked for, or its ids are not the node's.
pub fn parse_json(text: &str, node: &Node) -> Result<WorkerResult, ResultError> {
    if text.len() > MAX_RESULT {
        return Err(ResultError::TooLarge(text.len()));
    }
    let result = serde_json::from_str(text).map_err(|e| ResultError::Malformed(e.to_string()))?;
    check(result, node)
}

/// Checks a result's ids against the node, drops repetitions and bounds its texts.
///
/// # Errors
/// When ids are foreign, contradictory or missing altogether.
pub fn check(mut result: WorkerResult, node: &Node) -> Result<WorkerResult, ResultError> {
    let own: BTreeSet<&FindingId> = node.findings.iter().collect();
    let named = result.resolved.iter().chain(result.blocked.iter().map(|b| &b.finding));
    let foreign: Vec<FindingId> = named.filter(|id| !own.contains(id)).cloned().collect();
    if !foreign.is_empty() {
        return Err(ResultError::Foreign(foreign));
    }
    let mut seen = BTreeSet::new();
    result.resolved.retain(|id| seen.insert(id.clone()));
    let both: Vec<FindingId> =
        result.blocked.iter().map(|b| &b.finding).filter(|id| seen.contains(id)).cloned().collect();
    if !both.is_empty() {
        return Err(ResultError::Contradiction(both));
    }
    result.blocked.retain(|b| seen.insert(b.finding.clone()));
    if seen.is_empty() {
        return Err(ResultError::Empty);
    }
    truncate(&mut result.summary, MAX_SUMMARY);
    for blocked in &mut result.blocked {
        truncate(&mut blocked.reason, MAX_REASON);
    }
    Ok(result)
}

/// The content of the last complete fenced block whose label is `json`.
fn last_json_block(text: &str) -> Option<&str> {
    let mut found = None;
    let mut open: Option<(usize, usize, bool)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim();
        let marks = trimmed.bytes().take_while(|b| *b == b'`').count();
        match open {
            None if marks >= 3 => {
                let label = trimmed[marks..].trim();
                open = Some((marks, at + line.len(), label.eq_ignore_ascii_case("json")));
            }
            Some((needed, start, is_json)) if marks >= needed && marks == trimmed.len() => {
                if is_json {
                    found = text.get(start..at);
                }
                open = None;
            }
            _ => {}
        }
        at += line.len();
    }
    found.map(str::trim)
}

/// At most the last `max` bytes, from a character boundary on.
fn tail(text: &str, max: usize) -> &str {
    let mut start = text.len().saturating_sub(max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

fn truncate(text: &mut String, max: usize) {
    if let Some((end, _)) = text.char_indices().nth(max) {
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::{ResultError, parse_json, parse_output};
    use crate::backends::testing;

    const GOOD: &str =
        r#"{"resolved":["F-1"],"blocked":[{"finding":"F-2","reason":"no"}],"summary":"s"}"#;

    #[test]
    fn whole_text_or_last_block() {
        let node = testing::attempt("/tree", "/home").node;
        assert!(parse_output(&format!("\u{feff} {GOOD}\n"), &node).is_ok());
        let prose = format!("I did it.\n```json\n{{}}\n```\nreally:\n````json\n{GOOD}\n````\nbye");
        assert_eq!(parse_output(&prose, &node).unwrap().resolved.len(), 1);
        let inner = format!("```rust\n```json inside\n```\n```json\n{GOOD}\n```");
        assert!(parse_output(&inner, &node).is_ok());
        for bad in ["", "done", "```json\n{\"resolved\":", "``` \n{}\n```"] {
            assert_eq!(parse_output(bad, &node), Err(ResultError::Missing), "{bad}");
        }
    }

    #[test]
    fn ids_are_the_nodes_own() {
        let node = testing::attempt("/tree", "/home").node;
        let of = |text: &str| parse_json(text, &node);
        assert!(matches!(of(r#"{"resolved":["F-9"]}"#), Err(ResultError::Foreign(_))));
        assert!(matches!(of(r#"{"resolved":["../x"]}"#), Err(ResultError::Malformed(_))));
        assert!(matches!(of(r#"{"resolved":["F-1"],"extra":1}"#), Err(ResultError::Malformed(_))));
        assert!(matches!(
            of(r#"{"resolved":["F-1"],"blocked":[{"finding":"F-1","reason":""}]}"#),
            Err(ResultError::Contradiction(_))
        ));
        assert_eq!(of("{}"), Err(ResultError::Empty));
        assert_eq!(of(r#"{"resolved":["F-1","F-1"]}"#).unwrap().resolved.len(), 1);
    }

    #[test]
    fn hostile_sizes_and_depths() {
        let node = testing::attempt("/tree", "/home").node;
        let big = format!(r#"{{"resolved":["F-1"],"summary":"{}"}}"#, "é".repeat(300_000));
        assert!(matches!(parse_output(&big, &node), Err(ResultError::TooLarge(_))));
        let long = format!(r#"{{"resolved":["F-1"],"summary":"{}"}}"#, "é".repeat(10_000));
        assert_eq!(parse_output(&long, &node).unwrap().summary.chars().count(), 4_000);
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert!(parse_output(&deep, &node).is_err());
    }
}
