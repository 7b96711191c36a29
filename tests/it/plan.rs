//! Findings become a plan: every sample of every format, and the command.

mod corpus;
mod defects;
mod properties;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use overhaul::intake::{IntakeContext, IntakeError, combine, read};
use overhaul::model::Finding;
use serde_json::{Value, json};

fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(folder)
}

/// Runs `overhaul plan` on a checkout.
fn plan(root: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overhaul"));
    command.arg("plan").arg("--root").arg(root).args(args).output().unwrap()
}

fn plan_json(root: &Path, args: &[&str]) -> Value {
    let output = plan(root, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A report of one finding per path, with whatever else `more` says.
fn audit(findings: Value) -> String {
    json!({"contract_version": "audit-tools/audit-findings/v1", "findings": findings}).to_string()
}

/// Reads a JSON value as a source, without a checkout.
fn read_value(value: &Value) -> Result<Vec<Finding>, IntakeError> {
    read(value.to_string().as_bytes(), "report", &IntakeContext::blind())
}

/// Findings of one source, numbered and without duplicates.
fn findings(value: &Value) -> Vec<Finding> {
    combine(vec![read_value(value).unwrap()]).unwrap().findings
}

fn write(root: &Path, path: &str, text: &str) {
    let file = root.join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
}

#[test]
fn the_configured_findings_are_planned_and_dropped_ones_are_named() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.txt", "x");
    let config = "version: 1\npools: [{provider: host}]\nfindings: [{file: report.json}]\n";
    write(dir.path(), ".github/overhaul.yml", config);
    let finding = |id: &str, path: &str| json!({"id": id, "title": format!("about {id}"), "affected_files": [path]});
    let report = audit(json!([finding("A", "a.txt"), finding("B", "gone.txt")]));
    write(dir.path(), "report.json", &report);
    let output = plan(dir.path(), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("2 findings = 1 in 1 node + 1 dropped (1 missing)."), "{text}");
    assert!(text.contains("gone.txt: its file is not in the checkout  about B"), "{text}");
    // A file of another format than was said is refused.
    let said = "file: report.json, format: sarif";
    write(dir.path(), ".github/overhaul.yml", &config.replace("file: report.json", said));
    let output = plan(dir.path(), &[]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("is an audit findings report, not SARIF"), "{text}");
    // What lives on the forge is looked at by a dry run.
    write(
        dir.path(),
        ".github/overhaul.yml",
        &config.replace("file: report.json", "code-scanning: {}"),
    );
    let output = plan(dir.path(), &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("next-step --dry-run"));
}

#[test]
fn a_checkout_gives_scope_verify_and_sizes() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "Cargo.toml", "[package]");
    write(dir.path(), "src/a.rs", &"x".repeat(4_000));
    write(dir.path(), "web/package.json", r#"{"scripts": {"lint": "eslint ."}}"#);
    write(dir.path(), "web/a.ts", "x");
    write(dir.path(), "docs/a.md", "x");
    write(dir.path(), ".github/workflows/ci.yml", "x");
    write(dir.path(), "b.dat", "a\0b");
    let report = dir.path().join("report");
    let paths = ["src/a.rs", "web", "docs/a.md", ".github/workflows/ci.yml", "b.dat", "gone.rs"];
    let found: Vec<Value> = paths
        .iter()
        .map(|path| json!({"id": path, "title": path, "severity": "low", "affected_files": [{"path": path}]}))
        .collect();
    std::fs::write(&report, audit(found.into())).unwrap();
    let out = plan_json(dir.path(), &["--findings", report.to_str().unwrap()]);
    let dropped: Vec<&Value> =
        out["findings"].as_array().unwrap().iter().map(|f| &f["dropped"]).collect();
    assert_eq!(json!(dropped), json!([null, null, null, "protected", "binary", "missing"]));
    let nodes = out["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    assert_eq!(nodes[0]["writes"], json!([{"path": "src/a.rs"}]));
    assert_eq!(nodes[0]["verify"][0]["argv"], json!(["cargo", "check"]));
    assert_eq!(nodes[0]["tier"], "small");
    let tokens = |node: usize| nodes[node]["input-tokens"].as_u64().unwrap();
    assert!(tokens(0) >= 2_500 && tokens(0) < 2_600, "{}", tokens(0));
    assert!(tokens(2) >= 1_500 && tokens(2) < 1_600, "{}", tokens(2));
    assert_eq!(nodes[1]["writes"], json!([{"folder": "web"}]));
    assert_eq!(nodes[1]["verify"][0]["argv"], json!(["npm", "--prefix", "./web", "run", "lint"]));
    assert_eq!(nodes[2]["verify"], json!([]));
    assert!(nodes[2]["verify-waived"].is_string());
    assert_eq!(out["coverage"]["total"], 6);
    assert_eq!(out["coverage"]["in-nodes"], 3);
    assert_eq!(out["coverage"]["dropped"], 3);
}

#[test]
fn the_command_says_what_it_would_do() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path(), "a.py", "x");
    write(dir.path(), "pyproject.toml", "");
    let report = dir.path().join("report");
    let report_text = audit(json!([
        {"title": "First\u{1b}[31m", "severity": "high", "affected_files": [{"path": "a.py", "line_start": 3}]},
        {"title": "Second", "severity": "low", "affected_files": [{"path": "a.py", "line_start": 9}]},
    ]));
    std::fs::write(&report, report_text).unwrap();
    let args = ["--findings", report.to_str().unwrap(), "--intent", "Use one logger everywhere"];
    let output = plan(dir.path(), &args);
    insta::assert_snapshot!(String::from_utf8(output.stdout).unwrap(), @"
    N-001  2 findings in a.py  [high, standard, 1519 tokens]
      F-0001    a.py:3  First[31m
      F-0002    a.py:9  Second
      writes    a.py
      verify    python3 -m compileall -q .

    N-002  Use one logger everywhere  [medium, standard, 1575 tokens]
      F-0003    anywhere
      writes    the whole repository
      verify    python3 -m compileall -q .
      after     N-001

    3 findings = 3 in 2 nodes + 0 dropped.
    ");
}

#[test]
fn zero_findings_are_said_and_broken_files_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let empty = data("sarif").join("09-no-runs.sarif");
    let output = plan(dir.path(), &["--findings", empty.to_str().unwrap()]);
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("No findings"));

    for (name, text, words) in [
        ("cut", r#"{"version": "2.1.0", "runs": [{"tool"#, "cut off at line 1, column"),
        ("bad", "{\"version\": \"2.1.0\",\n \"runs\": x}", "not valid JSON at line 2, column 10"),
        ("empty", "  \n", "is empty"),
        ("old", r#"{"version": "1.0.0", "runs": []}"#, "SARIF version '1.0.0'"),
        (
            "older",
            r#"{"$schema": "http://json.schemastore.org/sarif-1.0.0", "runLogs": []}"#,
            "sarif-1.0.0",
        ),
        ("draft", r#"{"version": "2.0.0-csd.2.beta.2018-10-10", "runs": []}"#, "2.0.0-csd.2"),
        ("runless", r#"{"version": "2.1.0"}"#, "$ has no 'runs'"),
        ("null", r#"{"version": "2.1.0", "runs": null}"#, "$ has no 'runs'"),
        (
            "findingless",
            r#"{"contract_version": "audit-tools/audit-findings/v1"}"#,
            "$ has no 'findings'",
        ),
        (
            "future",
            r#"{"contract_version": "audit-tools/audit-findings/v2", "findings": []}"#,
            "v2",
        ),
        ("v10", r#"{"contract_version": "audit-tools/audit-findings/v10", "findings": []}"#, "v10"),
        (
            "item",
            r#"{"contract_version": "audit-findings/v1alpha1", "findings": [{}, 4]}"#,
            "$.findings[1] should be an object",
        ),
        ("other", r#"{"name": "x", "dependencies": {}}"#, "neither SARIF"),
        ("list", "[]", "neither SARIF"),
        ("word", "hello", "not valid JSON"),
        (
            "external",
            r#"{"version": "2.1.0", "runs": [{"externalPropertyFileReferences": {"results": []}}]}"#,
            "external",
        ),
    ] {
        let file = dir.path().join(name);
        std::fs::write(&file, text).unwrap();
        let output = plan(dir.path(), &["--findings", file.to_str().unwrap()]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(error.contains(words), "{name}: {error}");
        assert!(error.contains(name) && error.contains("do: "), "{name}: {error}");
        assert!(output.stdout.is_empty(), "{name}");
    }
    let output = plan(dir.path(), &["--findings", "nowhere.sarif"]);
    assert_eq!(output.status.code(), Some(2));
}
