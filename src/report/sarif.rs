//! What remains of a run's findings as SARIF 2.1.0, within what code scanning takes in an upload.

use serde_json::{Map, Value, json};

use crate::model::{Finding, Place, Severity};

/// Most results of one run that code scanning takes.
const RESULTS: usize = 25_000;
/// Most runs of one file that code scanning takes.
const RUNS: usize = 20;
/// Most places of one result that code scanning keeps.
const PLACES: usize = 1_000;

/// One finding that is still there.
#[derive(Debug, Clone, Copy)]
pub struct Remaining<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// What became of it, in the words of the outcomes file.
    pub outcome: &'a str,
    /// Address of the pull request that is about it.
    pub pull_request: Option<&'a str>,
}

/// The document: a run per tool, worst findings first. Findings without a file can't be shown by
/// code scanning; they, and what goes beyond its limits, are counted in the properties.
#[must_use]
pub fn remaining_sarif(remaining: &[Remaining<'_>]) -> Value {
    let mut shown: Vec<&Remaining<'_>> =
        remaining.iter().filter(|r| !r.finding.places.is_empty()).collect();
    shown.sort_by_key(|r| std::cmp::Reverse(r.finding.severity));
    let mut runs: Vec<Run> = Vec::new();
    let mut left_out = remaining.len() - shown.len();
    for it in shown {
        let tool = &it.finding.source;
        let there = runs.iter().position(|run| run.tool == *tool);
        let at = there.or_else(|| {
            (runs.len() < RUNS).then(|| {
                runs.push(Run { tool: tool.clone(), rules: Vec::new(), results: Vec::new() });
                runs.len() - 1
            })
        });
        match at.and_then(|at| runs.get_mut(at)).filter(|run| run.results.len() < RESULTS) {
            Some(run) => run.add(it),
            None => left_out += 1,
        }
    }
    let runs: Vec<Value> = runs.into_iter().map(Run::finish).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": runs,
        "properties": {"remaining": remaining.len(), "left-out": left_out},
    })
}

struct Run {
    tool: String,
    /// Id, and whether it is critical: one rule can be both.
    rules: Vec<(String, bool)>,
    results: Vec<Value>,
}

impl Run {
    fn add(&mut self, it: &Remaining<'_>) {
        let finding = it.finding;
        let rule = finding.rule.clone().unwrap_or_else(|| "finding".to_owned());
        let rule = (rule, finding.severity == Severity::Critical);
        let index = self.rules.iter().position(|known| *known == rule).unwrap_or_else(|| {
            self.rules.push(rule.clone());
            self.rules.len() - 1
        });
        let level = match finding.severity {
            Severity::Critical | Severity::High => "error",
            Severity::Medium => "warning",
            Severity::Low => "note",
            Severity::Info => "none",
        };
        let mut properties = Map::new();
        properties.insert("outcome".to_owned(), it.outcome.into());
        if let Some(url) = it.pull_request {
            properties.insert("pull-request".to_owned(), url.into());
        }
        if let Some(id) = &finding.source_id {
            properties.insert("source-id".to_owned(), id.clone().into());
        }
        let places: Vec<Value> = finding.places.iter().take(PLACES).map(location).collect();
        self.results.push(json!({
            "ruleId": rule.0,
            "ruleIndex": index,
            "level": level,
            "message": {"text": finding.detail},
            "locations": places,
            "partialFingerprints": {"overhaul/v1": finding.fingerprint},
            "properties": properties,
        }));
    }

    fn finish(self) -> Value {
        let rules: Vec<Value> = self
            .rules
            .into_iter()
            .map(|(id, critical)| {
                let mut rule = json!({"id": id, "shortDescription": {"text": id}});
                // No level says it; from 9.0 on a score does.
                if critical && let Some(rule) = rule.as_object_mut() {
                    rule.insert("properties".to_owned(), json!({"security-severity": "9.0"}));
                }
                rule
            })
            .collect();
        json!({
            "tool": {"driver": {"name": self.tool, "rules": rules}},
            // Code scanning refuses two analyses of one tool and category in one upload.
            "automationDetails": {"id": "overhaul/"},
            "results": self.results,
        })
    }
}

fn location(place: &Place) -> Value {
    // Relative to the repository's root, percent-encoded as a URI (RFC 3986 §3.3).
    const UNSAFE: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
        .remove(b'/')
        .remove(b'-')
        .remove(b'.')
        .remove(b'_')
        .remove(b'~');
    let uri = percent_encoding::utf8_percent_encode(place.path.as_str(), UNSAFE).to_string();
    let mut physical = json!({"artifactLocation": {"uri": uri}});
    if let Some(line) = place.line {
        let mut region = json!({"startLine": line, "endLine": place.end_line.unwrap_or(line)});
        if let Some(snippet) = &place.snippet {
            region["snippet"] = json!({"text": snippet});
        }
        physical["region"] = region;
    }
    json!({"physicalLocation": physical})
}

#[cfg(test)]
mod tests {
    use super::{Remaining, remaining_sarif};
    use crate::intake::{self, IntakeContext};
    use crate::model::{Finding, Severity};

    fn combined(sarif: &serde_json::Value) -> Vec<Finding> {
        let read = intake::read(sarif.to_string().as_bytes(), "x", &IntakeContext::blind());
        intake::combine(vec![read.unwrap()]).unwrap().findings
    }

    #[test]
    fn what_remains_reads_back_as_it_was() {
        let result = |rule: &str, level: &str, uri: &str, line: u32, text: &str| {
            serde_json::json!({
                "ruleId": rule, "level": level, "message": {"text": text},
                "locations": [{"physicalLocation": {
                    "artifactLocation": {"uri": uri},
                    "region": {"startLine": line, "endLine": line + 1, "snippet": {"text": text}},
                }}],
            })
        };
        let source = serde_json::json!({"version": "2.1.0", "runs": [
            {"tool": {"driver": {"name": "one", "rules": [
                {"id": "bad", "properties": {"security-severity": "9.8"}},
            ]}}, "results": [
                result("bad", "note", "a%20b/%C3%BC.rs", 3, "an `odd` name"),
                result("style", "note", "src/a.rs", 7, "second\nline"),
                result("style", "none", "src/a.rs", 9, "informative"),
            ]},
            {"tool": {"driver": {"name": "two"}}, "results": [result("w", "warning", "b.rs", 1, "x")]},
        ]});
        let findings = combined(&source);
        assert_eq!(findings[0].severity, Severity::Critical);
        let remaining: Vec<Remaining<'_>> = findings
            .iter()
            .map(|finding| Remaining {
                finding,
                outcome: "failed",
                pull_request: Some("https://x/1"),
            })
            .collect();
        let written = remaining_sarif(&remaining);
        let mut again = combined(&written);
        again.sort_by(|a, b| a.fingerprint.cmp(&b.fingerprint));
        let mut before = findings.clone();
        before.sort_by(|a, b| a.fingerprint.cmp(&b.fingerprint));
        assert_eq!(again.len(), before.len());
        for (again, before) in again.iter().zip(&before) {
            assert_eq!(
                (&again.source, &again.rule, &again.detail, again.severity, &again.places),
                (&before.source, &before.rule, &before.detail, before.severity, &before.places)
            );
            assert_eq!(again.fingerprint, before.fingerprint, "the same identity");
        }
        insta::assert_snapshot!(serde_json::to_string_pretty(&written).unwrap());
    }

    #[test]
    fn findings_without_a_file_are_counted_and_left_out() {
        let intent = intake::intent("Do something").unwrap().unwrap();
        let it = Remaining { finding: &intent, outcome: "failed", pull_request: None };
        let written = remaining_sarif(&[it]);
        assert_eq!(written["runs"], serde_json::json!([]));
        assert_eq!(written["properties"]["left-out"], 1);
    }
}
