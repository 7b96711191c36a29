//! Several sources become one list: numbered in order, the same finding kept once.

use std::collections::{BTreeMap, HashMap};

use super::finding_id;
use crate::model::{DropReason, Finding, IdError, content_fingerprint};

/// The findings of all sources.
#[derive(Debug, Clone, PartialEq)]
pub struct Combined {
    /// Numbered `F-0001` and on, in the order of the sources. Duplicates stay, dropped as such.
    pub findings: Vec<Finding>,
    /// Entries that said that nothing is wrong; they are no findings.
    pub not_problems: usize,
}

/// Joins what [`super::read`] and [`super::intent`] gave for each source.
///
/// # Errors
/// Never in practice: the ids made here are valid.
pub fn combine(sources: Vec<Vec<Finding>>) -> Result<Combined, IdError> {
    let mut findings: Vec<Finding> = Vec::with_capacity(sources.iter().map(Vec::len).sum());
    let mut not_problems = 0;
    let mut seen: HashMap<String, usize> = HashMap::new();
    // Sources quote differently, or not at all: across them, rule and line tell the same finding.
    let mut at_place: HashMap<Spot, Vec<usize>> = HashMap::new();
    for source in sources {
        let before = source.len();
        let mut source: Vec<Finding> = source
            .into_iter()
            .filter(|finding| finding.dropped != Some(DropReason::NotAProblem))
            .collect();
        not_problems += before - source.len();
        fingerprint(&mut source);
        let mut elsewhere = at_place.clone();
        for mut finding in source {
            finding.id = finding_id(findings.len() + 1)?;
            if finding.dropped.is_none() {
                // A suppressed or unplaced twin must not hide a finding, so only live ones count.
                let spot = spot(&finding);
                let same = seen.get(&finding.fingerprint).copied().or_else(|| {
                    let others = elsewhere.get_mut(spot.as_ref()?)?;
                    // One for one: two findings of a rule on a line stay two.
                    (!others.is_empty()).then(|| others.remove(0))
                });
                if let (Some(first), Some(spot)) = (same, &spot)
                    && let Some(others) = elsewhere.get_mut(spot)
                {
                    others.retain(|other| *other != first);
                }
                match same.and_then(|first| findings.get_mut(first)) {
                    Some(first) => {
                        // The worse of two opinions stands for both.
                        first.severity = first.severity.max(finding.severity);
                        finding.dropped = Some(DropReason::DuplicateOf(first.id.clone()));
                    }
                    None => {
                        seen.insert(finding.fingerprint.clone(), findings.len());
                        if let Some(spot) = spot {
                            at_place.entry(spot).or_default().push(findings.len());
                        }
                    }
                }
            }
            findings.push(finding);
        }
    }
    Ok(Combined { findings, not_problems })
}

/// Rule, path and line.
type Spot = (String, String, u32);

fn spot(finding: &Finding) -> Option<Spot> {
    Some((finding.rule.clone()?, finding.path()?.to_string(), finding.line()?))
}

/// Sets the stable fingerprints of one source. With a snippet the line number does not count, so
/// that a moved finding keeps its identity; equal snippets on several lines of a file are told
/// apart by their order. Without one, the message and the line are all there is.
fn fingerprint(source: &mut [Finding]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, finding) in source.iter_mut().enumerate() {
        let place = finding.places.first();
        let base = match place.and_then(|p| p.snippet.as_deref()).filter(|s| !s.trim().is_empty()) {
            Some(snippet) => snippet.to_owned(),
            // Until here the field holds the line's hash, where the source gave one.
            None if !finding.fingerprint.is_empty() => {
                format!("{}\n{}", finding.detail, finding.fingerprint)
            }
            None => {
                let lines: Vec<String> =
                    finding.places.iter().map(|p| format!("{} {:?}", p.path, p.line)).collect();
                let outside = finding.extra.get(Finding::REPORTED_LINE);
                format!("{}\n{}\n{}\n{outside:?}", finding.title, finding.detail, lines.join("\n"))
            }
        };
        finding.fingerprint = content_fingerprint(finding.rule.as_deref(), finding.path(), &base);
        groups.entry(finding.fingerprint.clone()).or_default().push(index);
    }
    for members in groups.into_values().filter(|members| members.len() > 1) {
        // Same line and same message: the same finding.
        let key = |i: usize| (source[i].line(), source[i].detail.clone());
        let mut keys: Vec<_> = members.iter().map(|i| key(*i)).collect();
        keys.sort();
        keys.dedup();
        let ordinals: Vec<(usize, usize)> = members
            .iter()
            .map(|i| (*i, keys.binary_search(&key(*i)).unwrap_or_default()))
            .filter(|(_, ordinal)| *ordinal > 0)
            .collect();
        for (index, ordinal) in ordinals {
            source[index].fingerprint.push_str(&format!("-{ordinal}"));
        }
    }
}
