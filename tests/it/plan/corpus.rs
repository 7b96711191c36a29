//! Samples of real producers, each with the reading that is right.

use std::collections::BTreeSet;

use overhaul::intake::{Combined, IntakeContext, IntakeError, PathKind, combine, read};
use overhaul::model::{DropReason, Finding};
use serde_json::{Value, json};

use super::{data, findings, read_value};

/// A sample, its expectations and what came of it.
fn samples(folder: &str) -> Vec<(String, Value, Result<Combined, IntakeError>)> {
    let mut samples = Vec::new();
    for entry in std::fs::read_dir(data(folder)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(stem) = name.strip_suffix(".expect.json") else { continue };
        let expect: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let ext = if folder == "sarif" { "sarif" } else { "json" };
        let bytes = std::fs::read(path.with_file_name(format!("{stem}.{ext}"))).unwrap();
        let ctx = IntakeContext {
            source_root: expect["checkout_root"].as_str().map(Into::into),
            ..IntakeContext::blind()
        };
        let result = read(&bytes, stem, &ctx).map(|list| combine(vec![list]).unwrap());
        samples.push((stem.to_owned(), expect, result));
    }
    assert!(samples.len() >= 3);
    samples
}

fn reading(finding: &Finding) -> Value {
    let line = finding.line().map(Value::from);
    json!({
        "rule": finding.rule,
        "path": finding.path(),
        "line": line.or(finding.extra.get(Finding::REPORTED_LINE).cloned()),
        "level": finding.level,
        "suppressed": finding.suppressed,
    })
}

#[test]
fn every_sarif_sample_reads_as_expected() {
    for (name, expect, result) in samples("sarif") {
        if expect["error"] == true {
            assert!(result.is_err(), "{name}");
            continue;
        }
        let found = result.unwrap().findings;
        let wanted = expect["findings"].as_array().unwrap();
        assert_eq!(found.len(), wanted.len(), "{name}");
        for (finding, wanted) in found.iter().zip(wanted) {
            let read = reading(finding);
            for key in ["rule", "path", "line", "level", "suppressed"] {
                assert_eq!(read[key], wanted[key], "{name} {} {key}", finding.id);
            }
            if let Some(message) = wanted["message"].as_str() {
                assert_eq!(finding.detail, message);
            }
            if let Some(lines) = wanted["more_lines"].as_array() {
                let more: Vec<_> = finding.places[1..].iter().map(|p| p.line).collect();
                assert_eq!(json!(more), json!(lines), "{name}");
            }
            let outside = finding.dropped == Some(DropReason::OutsideCheckout);
            assert_eq!(outside, wanted["in_checkout"] == false, "{name} {}", finding.id);
            let binary = finding.dropped == Some(DropReason::Binary);
            assert_eq!(binary, wanted["binary"] == true, "{name} {}", finding.id);
        }
        if let Some(count) = expect["deduplicated_count"].as_u64() {
            let once = found.iter().filter(|f| f.dropped.is_none()).count();
            assert_eq!(once as u64, count, "{name}");
        }
        let text = format!("{found:?}") + &serde_json::to_string(&found).unwrap();
        for secret in expect["must_not_leak"].as_array().into_iter().flatten() {
            assert!(!text.contains(secret.as_str().unwrap()), "{name}: {secret}");
        }
    }
}

#[test]
fn every_audit_sample_reads_as_expected() {
    for (name, expect, result) in samples("audit-findings") {
        let found = result.unwrap().findings;
        assert_eq!(json!(found.len()), expect["findings"], "{name}");
        assert!(found.iter().all(|f| f.dropped.is_none()), "{name}");
        let prints: BTreeSet<&str> = found.iter().map(|f| f.fingerprint.as_str()).collect();
        assert_eq!(prints.len(), found.len(), "{name}");
        assert!(found.iter().all(|f| !f.title.is_empty() && !f.detail.is_empty()), "{name}");
    }
}

#[test]
fn audit_reports_keep_what_they_say() {
    let sample = |name: &str| {
        let file = data("audit-findings").join(name);
        let value: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
        findings(&value)
    };
    let found = sample("a-2026-06-01-v1-repeated-ids.json");
    assert_eq!(found[0].source_id, found[1].source_id);
    assert_eq!(found[2].places[0].end_line, Some(1));
    assert_eq!(found[4].places.len(), 2);
    assert!(found[3].evidence.is_empty());
    let found = sample("c-2026-07-30-v1alpha1-themes.json");
    assert!(found[0].detail.starts_with("Contract (lines 116-120"));
    assert!(found[0].detail.contains("Recommendation: Neutral."));
    assert_eq!(found[4].extra["likelihood"], "Low-medium.");
    assert_eq!(found[4].extra["blast_radius"], 0);
}

#[test]
fn audit_versions_and_odd_fields() {
    for version in [
        "audit-tools/audit-findings/v1",
        "audit-tools/audit-findings/v1alpha1",
        "audit-findings/v1alpha1",
        "audit-tools/audit-findings/v1-verified-pruned",
        "audit-tools/audit-findings-verified-pruned/v1",
        "audit-tools/audit-findings/verified-pruned/v1alpha1",
    ] {
        let found = read_value(&json!({"contract_version": version, "findings": []}));
        assert_eq!(found.unwrap().len(), 0, "{version}");
    }
    let found = findings(&json!({"contract_version": "audit-findings/v1alpha1", "findings": [
        {"title": "t", "severity": "HIGH ", "affected_files": ["src/a.ts:10-20", "src\\b.ts"]},
        {"title": "t", "severity": "Low-medium.", "affected_files": "src/a.ts", "evidence": "one"},
        {"description": "only this\nand more", "severity": 3, "affected_files": [{"path": "../x", "line_start": 0}]},
        {"id": 7, "affected_files": []},
    ]}));
    assert_eq!(
        json!(found.iter().map(|f| f.severity).collect::<Vec<_>>()),
        json!(["high", "medium", "medium", "medium"])
    );
    assert_eq!(found[0].places[0].line, Some(10));
    assert_eq!(found[0].places[1].path.as_str(), "src/b.ts");
    assert_eq!(found[1].evidence, ["one"]);
    assert_eq!(found[2].title, "only this");
    assert_eq!(found[2].dropped, Some(DropReason::OutsideCheckout));
    assert_eq!(found[3].source_id.as_deref(), Some("7"));
    assert_eq!(found[3].dropped, Some(DropReason::NoPlace));
}

/// A log of one run with these results.
fn log(results: Value, more: Value) -> Value {
    let mut run = json!({
        "tool": {"driver": {"name": "lint", "rules": [
            {"id": "A", "defaultConfiguration": {"level": "note"}},
            {"id": "B", "deprecatedIds": ["OLD"], "defaultConfiguration": {"level": "error"}},
        ]}},
        "results": results,
    });
    for (key, value) in more.as_object().unwrap() {
        run[key] = value.clone();
    }
    json!({"version": "2.1.0", "runs": [run]})
}

fn at(uri: &str, line: u32) -> Value {
    json!([{"physicalLocation": {
        "artifactLocation": {"uri": uri}, "region": {"startLine": line}
    }}])
}

#[test]
fn suppression_needs_acceptance() {
    for (suppressions, expected) in [
        (json!([]), false),
        (json!(null), false),
        (json!([{"kind": "external"}]), true),
        (json!([{"kind": "inSource", "status": "accepted"}]), true),
        (json!([{"kind": "external", "status": "underReview"}]), false),
        (json!([{"kind": "external", "status": "rejected"}]), false),
        (json!([{"status": "accepted"}, {"status": "rejected"}]), false),
    ] {
        let result = json!([{"ruleId": "A", "message": {"text": "m"}, "locations": at("a.c", 1), "suppressions": suppressions}]);
        let found = findings(&log(result, json!({})));
        assert_eq!(found[0].suppressed, expected, "{suppressions}");
        assert_eq!(found[0].dropped == Some(DropReason::Suppressed), expected);
    }
}

#[test]
fn what_passed_or_is_gone_is_no_finding() {
    let result = |more: Value| {
        let mut result =
            json!({"ruleId": "A", "message": {"text": "m"}, "locations": at("a.c", 1)});
        for (key, value) in more.as_object().unwrap() {
            result[key] = value.clone();
        }
        result
    };
    let results = json!([
        result(json!({"kind": "pass"})),
        result(json!({"kind": "notApplicable"})),
        result(json!({"baselineState": "absent"})),
        result(json!({"kind": "review"})),
        result(json!({"baselineState": "new", "kind": "fail"})),
    ]);
    let combined = combine(vec![read_value(&log(results, json!({}))).unwrap()]).unwrap();
    assert_eq!(combined.not_problems, 3);
    let levels: Vec<_> = combined.findings.iter().map(|f| json!(f.level)).collect();
    assert_eq!(levels, [json!("none"), json!("note")]);
}

#[test]
fn levels_come_from_the_invocation_before_the_rule() {
    let more = json!({"invocations": [{"executionSuccessful": true, "ruleConfigurationOverrides": [
        {"descriptor": {"id": "A", "index": 0}, "configuration": {"level": "error"}},
        {"descriptor": {"index": 1}, "configuration": {"level": "none"}},
    ]}]});
    let results = json!([
        {"ruleId": "A", "locations": at("a.c", 1), "message": {"text": "m"}},
        {"ruleId": "A/sub", "locations": at("a.c", 2), "message": {"text": "m"}},
        {"ruleIndex": 1, "locations": at("a.c", 3), "message": {"text": "m"}},
        {"ruleId": "A", "level": "warning", "locations": at("a.c", 4), "message": {"text": "m"}},
        {"ruleId": "C", "locations": at("a.c", 5), "message": {"text": "m"}},
        {"ruleId": "OLD", "ruleIndex": 99, "locations": at("a.c", 6), "message": {"text": "m"}},
    ]);
    let levels: Vec<_> =
        findings(&log(results, more)).iter().map(|f| json!([f.rule, f.level])).collect();
    assert_eq!(
        json!(levels),
        json!([
            ["A", "error"],
            ["A/sub", "error"],
            ["B", "none"],
            ["A", "warning"],
            ["C", "warning"],
            ["OLD", "none"]
        ])
    );
}

#[test]
fn several_runs_keep_their_own_rules_bases_and_artifacts() {
    let run = |tool: &str, rule: &str, file: &str| {
        json!({
            "tool": {"driver": {"name": tool, "rules": [{"id": rule}]}},
            "originalUriBaseIds": {"SRCROOT": {"uri": format!("file:///w/{tool}/")}},
            "artifacts": [{"location": {"uri": file, "uriBaseId": "SRCROOT"}}],
            "results": [{"ruleIndex": 0, "message": {"text": "m"}, "locations": [
                {"physicalLocation": {"artifactLocation": {"index": 0}}}]}],
        })
    };
    let log = json!({"version": "2.1.0", "runs": [
        run("one", "R1", "a.c"),
        {"tool": {"driver": {"name": "no results"}}},
        run("two", "R2", "file:///w/two/b.c"),
    ]});
    let found = findings(&log);
    let read: Vec<_> = found.iter().map(|f| json!([f.source, f.rule, f.path()])).collect();
    assert_eq!(json!(read), json!([["one", "R1", "a.c"], ["two", "R2", "b.c"]]));
}

#[test]
fn odd_references_never_crash() {
    let results = json!([
        {"rule": {"index": 4_000_000_000_u64, "toolComponent": {"index": 77}}, "locations": [
            {"physicalLocation": {"artifactLocation": {"index": 9}}}]},
        {"ruleId": "", "message": {"id": "none", "arguments": []}, "locations": [
            {"physicalLocation": {"artifactLocation": {"uri": "x.c", "uriBaseId": "loop"}, "region": {"startLine": -4}}}]},
        {"message": {"markdown": "*m*"}, "locations": [
            {"physicalLocation": {"artifactLocation": {"index": 1}, "region": {"startLine": 3}}}]},
        {"message": {"text": "m"}, "taxa": [{"index": 5, "toolComponent": {"index": 3}}, {"id": "CWE-79"}],
         "analysisTarget": {"uri": "t.c"}},
        {"message": {"text": "m"}, "locations": [{}, {"physicalLocation": {"address": {}}}]},
    ]);
    let more = json!({
        "originalUriBaseIds": {"loop": {"uri": "a/", "uriBaseId": "pool"}, "pool": {"uri": "b/", "uriBaseId": "loop"}},
        "artifacts": [{"location": {"uri": "app.html"}}, {"parentIndex": 0}, {"parentIndex": 2}],
        "taxonomies": [{"name": "CWE", "taxa": []}],
    });
    let found = findings(&log(results, more));
    let read: Vec<_> = found.iter().map(|f| json!([f.rule, f.path(), f.line()])).collect();
    assert_eq!(
        json!(read),
        json!([
            [null, null, null],
            [null, "x.c", null],
            [null, "app.html", 3],
            [null, "t.c", null],
            [null, null, null]
        ])
    );
    assert_eq!(found[3].evidence, ["CWE-79"]);
}

#[test]
fn existence_decides_between_readings() {
    let results = json!([
        {"message": {"text": "1"}, "locations": at("/infra/main.tf", 1)},
        {"message": {"text": "2"}, "locations": at("/infra/gone.tf", 1)},
        {"message": {"text": "3"}, "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": "x.tf", "uriBaseId": "sub"}}}]},
    ]);
    let more = json!({"originalUriBaseIds": {"sub": {"uri": "file:///w/sub"}}});
    let text = log(results, more).to_string();
    let files = ["infra/main.tf", "x.tf"];
    let lookup =
        |path: &str| if files.contains(&path) { PathKind::File } else { PathKind::Missing };
    let ctx = IntakeContext { source_root: Some("/w".into()), checkout: None, lookup: &lookup };
    let found = read(text.as_bytes(), "x", &ctx).unwrap();
    let read: Vec<_> = found.iter().map(|f| json!(f.path())).collect();
    assert_eq!(json!(read), json!(["infra/main.tf", null, "x.tf"]));
}

#[test]
fn the_same_finding_of_two_sources_is_one() {
    let with_snippet = |line: u32, message: &str, snippet: &str| {
        json!({"ruleId": "A", "message": {"text": message}, "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": "a.c"},
            "region": {"startLine": line, "snippet": {"text": snippet}}}}]})
    };
    let first =
        log(json!([with_snippet(3, "m", "x = 1"), with_snippet(9, "m", "x = 1")]), json!({}));
    let moved = log(
        json!([with_snippet(5, "m", "  x  = 1"), with_snippet(5, "other", "  x = 1")]),
        json!({}),
    );
    let both = combine(vec![read_value(&first).unwrap(), read_value(&moved).unwrap()]).unwrap();
    let dropped: Vec<_> = both.findings.iter().map(|f| json!([f.id, f.dropped])).collect();
    assert_eq!(
        json!(dropped),
        json!([
            ["F-0001", null],
            ["F-0002", null],
            ["F-0003", {"duplicate-of": "F-0001"}],
            ["F-0004", {"duplicate-of": "F-0002"}]
        ])
    );
}

#[test]
fn keys_that_any_report_quotes_are_scrubbed() {
    let key = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let found = findings(&json!({"contract_version": "audit-findings/v1alpha1", "findings": [{
        "id": key, "title": key, "summary": key, "evidence": [key], "notes": {"deep": [key]},
        "affected_files": [{"path": "a.c", "quoted_text": key}]}]}));
    assert!(!format!("{found:?}").contains(key));
}

#[test]
fn a_root_of_the_file_system_is_the_folder_that_was_scanned() {
    let results = json!([
        {"message": {"text": "1"}, "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": "go.sum", "uriBaseId": "ROOTPATH"}}}]},
        {"message": {"text": "2"}, "locations": at("/etc/passwd", 1)},
        {"message": {"text": "3"}, "locations": [{"physicalLocation": {
            "artifactLocation": {"uri": "a.c", "uriBaseId": "WEB"}}}]},
    ]);
    let more = json!({"originalUriBaseIds": {
        "ROOTPATH": {"uri": "file:///"}, "WEB": {"uri": "https://example.invalid/repo/"}}});
    let read: Vec<_> = findings(&log(results, more)).iter().map(|f| json!(f.path())).collect();
    assert_eq!(json!(read), json!(["go.sum", null, "a.c"]));
}

#[test]
fn the_worse_severity_of_two_sources_stands() {
    let one = |severity: &str| {
        json!({"contract_version": "audit-findings/v1alpha1", "findings": [
            {"title": "t", "severity": severity, "affected_files": ["a.c"]}]})
    };
    let sources = ["low", "critical"].map(|s| read_value(&one(s)).unwrap()).to_vec();
    let both = combine(sources).unwrap().findings;
    assert_eq!(json!(both[0].severity), "critical");
    assert!(both[1].dropped.is_some());
}

/// The error and the remedy of a source that is none.
fn refused(source: &Value) -> (String, &'static str) {
    let error = read(source.to_string().as_bytes(), "x", &IntakeContext::blind()).unwrap_err();
    (error.to_string(), error.remedy())
}

#[test]
fn an_empty_report_of_a_tool_that_failed_is_no_clean_report() {
    let failed = json!([{"executionSuccessful": false, "exitCode": 2}]);
    let run = |results: Value, invocations: Value| {
        json!({"version": "2.1.0", "runs": [
            {"tool": {"driver": {"name": "t"}}, "results": results, "invocations": invocations}]})
    };
    for log in [run(json!(null), json!([])), run(json!([]), failed.clone())] {
        let (error, remedy) = refused(&log);
        assert!(error.contains("$.runs[0] is of a tool that did not finish"), "{error}");
        assert!(remedy.contains("run the tool again"));
    }
    let one = json!([{"message": {"text": "m"}, "locations": at("a.c", 1)}]);
    assert_eq!(findings(&run(one, failed)).len(), 1);
    let both = json!([{"executionSuccessful": false}, {"executionSuccessful": true}]);
    assert!(findings(&run(json!([]), both)).is_empty());
}

#[test]
fn what_is_kept_in_other_files_is_missed_aloud() {
    let run = |result: Value, property: &str| {
        json!({"version": "2.1.0", "runs": [{
            "tool": {"driver": {"name": "t"}}, "results": [result],
            "externalPropertyFileReferences": {(property): [{"location": {"uri": "more.json"}}]}}]})
    };
    let by_index = json!({"message": {"text": "m"}, "locations": [
        {"physicalLocation": {"artifactLocation": {"index": 0}}}]});
    let (error, _) = refused(&run(by_index, "artifacts"));
    assert!(error.contains("artifactLocation keeps its artifacts in other files"), "{error}");
    let by_name = json!({"message": {"text": "m"}, "locations": at("a.c", 1)});
    assert_eq!(json!(findings(&run(by_name, "artifacts"))[0].path()), "a.c");
}

#[test]
fn json_of_another_tool_is_not_called_sarif() {
    for other in [
        json!({"version": "1.90.0", "results": [], "errors": []}),
        json!({"version": "15.0.0", "vulnerabilities": []}),
        json!({"name": "app", "version": "2.1.0"}),
        json!({"auditReportVersion": 2}),
        json!([{"filePath": "a.js", "messages": []}]),
    ] {
        let (error, remedy) = refused(&other);
        assert_eq!(error, "x is neither SARIF 2.1.0 nor an audit findings report", "{other}");
        assert!(remedy.contains("--format sarif"));
    }
    assert!(refused(&json!({"version": "2.1.0"})).0.contains("has no 'runs'"));
    let old = json!({"version": "1.0.0", "runs": []});
    assert!(refused(&old).0.contains("SARIF version '1.0.0'"));
}

#[test]
fn levels_outside_the_standard_mean_what_they_say() {
    let result = |level: &str| json!({"ruleId": "B", "level": level, "message": {"text": "m"}, "locations": at("a.c", 1)});
    let results = json!(["", "info", "Critical", "recommended"].map(result));
    let levels: Vec<_> =
        findings(&log(results, json!({}))).iter().map(|f| json!(f.level)).collect();
    assert_eq!(levels, ["error", "note", "error", "warning"]);
}

#[test]
fn secret_scanners_are_not_echoed() {
    let text = json!({"version": "2.1.0", "runs": [{
        "tool": {"driver": {"name": "gitleaks", "rules": [{"id": "generic", "shortDescription": {"text": "d"}}]}},
        "results": [{
            "ruleId": "generic",
            "message": {"text": "generic has detected hunter2hunter2 of dev@example.invalid"},
            "locations": [{"physicalLocation": {"artifactLocation": {"uri": "a.env"},
                "region": {"startLine": 1, "snippet": {"text": "hunter2hunter2"}}}}],
            "partialFingerprints": {"author": "Dev Eloper", "email": "dev@example.invalid", "commitMessage": "add"},
            "properties": {"offender": "hunter2hunter2", "tags": ["x"]},
        }],
    }]});
    let found = format!("{:?}", findings(&text));
    for hidden in ["hunter2", "dev@example", "Eloper"] {
        assert!(!found.contains(hidden), "{found}");
    }
}
