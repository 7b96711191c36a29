//! Audit findings reports (`audit-findings.json`). Ids repeat in real reports and are no keys.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::draft::{Draft, Spot};
use super::json::At;
use super::uri::{Base, Resolver, Spelling};
use super::{IntakeContext, IntakeError, finding_id, text};
use crate::model::{Finding, Severity};

/// The `source` of these findings.
const SOURCE: &str = "audit-findings";

/// Members that become fields of a finding; all others are kept in `extra`.
const KNOWN: [&str; 18] = [
    "id",
    "title",
    "category",
    "rule",
    "severity",
    "summary",
    "description",
    "recommendation",
    "impact",
    "failure_scenario",
    "affected_files",
    "evidence",
    "depends_on",
    "dependencies",
    "action",
    "create",
    "creates",
    "new_file",
];

/// Most evidence lines that one finding keeps.
const MAX_EVIDENCE: usize = 60;

/// Reads the whole report.
pub(super) fn read(root: &At, ctx: &IntakeContext) -> Result<Vec<Draft>, IntakeError> {
    check_version(root)?;
    let Some(findings) = root.items("findings")? else { return Err(root.missing("findings")) };
    let resolver = Resolver::new(ctx, Spelling::Plain, Vec::new());
    let mut drafts = findings
        .into_iter()
        .map(|at| finding(&at.expect_object()?, &resolver))
        .collect::<Result<Vec<_>, _>>()?;
    order_blocks(root, &mut drafts)?;
    Ok(drafts)
}

/// Blocks of work that wait for others: each finding of the one waits for each of the other. An
/// unknown block is waited for as an unknown finding is: planning refuses it.
fn order_blocks(root: &At, drafts: &mut [Draft]) -> Result<(), IntakeError> {
    let texts = |at: &At, key: &str| -> Result<Vec<String>, IntakeError> {
        let items = at.items(key)?.unwrap_or_default();
        Ok(items.iter().filter_map(|item| item.value.as_str()).map(text::title).collect())
    };
    let mut blocks: BTreeMap<String, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for block in root.items("work_blocks")?.unwrap_or_default() {
        let block = block.expect_object()?;
        let Some(id) = block.get("id").map(|id| text::title(&prose(id.value))) else { continue };
        let entry = blocks.entry(id).or_default();
        entry.0.extend(texts(&block, "finding_ids")?);
        entry.1.extend(texts(&block, "depends_on")?);
    }
    let reported: BTreeSet<String> =
        drafts.iter().filter_map(|draft| draft.finding.source_id.clone()).collect();
    for (findings, waits_for) in blocks.values().filter(|(_, waits_for)| !waits_for.is_empty()) {
        let mut before: BTreeSet<&String> = BTreeSet::new();
        for block in waits_for {
            match blocks.get(block) {
                // What is not in the report any more is not waited for.
                Some((others, _)) => before.extend(others.iter().filter(|o| reported.contains(*o))),
                None => {
                    before.insert(block);
                }
            }
        }
        for draft in drafts.iter_mut() {
            let finding = &mut draft.finding;
            if !finding.source_id.as_ref().is_some_and(|id| findings.contains(id)) {
                continue;
            }
            let waits = finding
                .extra
                .entry(Finding::DEPENDS_ON.to_owned())
                .or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(waits) = waits {
                let own = finding.source_id.as_ref();
                let new = before.iter().filter(|id| Some(**id) != own);
                waits.extend(new.map(|id| Value::from(id.as_str())));
            }
        }
    }
    Ok(())
}

/// `audit-tools/audit-findings/v1`, `.../v1alpha1`, without the prefix, and suffixed variants of
/// version 1 such as a verified and pruned report. A report without a version is read by its shape.
fn check_version(root: &At) -> Result<(), IntakeError> {
    let Some(found) = root.text("contract_version")? else { return Ok(()) };
    let contract = found.trim().trim_start_matches("audit-tools/");
    let version = contract
        .strip_prefix("audit-findings")
        .and_then(|rest| rest.rsplit_once('/'))
        .filter(|(variant, _)| {
            variant.chars().all(|c| c.is_ascii_alphabetic() || matches!(c, '-' | '_' | '/'))
        })
        .and_then(|(_, version)| version.strip_prefix("v1"));
    if version.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit() || c == '.')) {
        return Ok(());
    }
    Err(IntakeError::Version {
        name: root.name().to_owned(),
        format: "audit findings",
        found: text::title(found),
        supported: "audit-tools/audit-findings/v1 and v1alpha1",
    })
}

fn finding(at: &At, resolver: &Resolver) -> Result<Draft, IntakeError> {
    let title = at.text("title")?.unwrap_or_default();
    let said = [at.text("summary")?, at.text("description")?, Some(title)];
    let said = said.into_iter().flatten().find(|t| !t.trim().is_empty()).unwrap_or_default();
    let mut detail = said.to_owned();
    for (key, heading) in [
        ("description", "Description"),
        ("impact", "Impact"),
        ("failure_scenario", "Failure scenario"),
        ("recommendation", "Recommendation"),
    ] {
        // These are prose; another type is kept as it is rather than refused.
        if let Some(more) = at.get(key).map(|more| prose(more.value))
            && !more.trim().is_empty()
            && more != said
        {
            detail.push_str(&format!("\n\n{heading}: {more}"));
        }
    }
    let source_id = at.get("id").map(|id| prose(id.value)).filter(|id| !id.is_empty());
    let rule = at.text("category")?.or(at.text("rule")?).map(text::title);
    let heading = [title, said].into_iter().find(|t| !t.trim().is_empty());
    let name =
        heading.or(rule.as_deref()).or(source_id.as_deref()).unwrap_or("a finding without a title");
    let title = text::title(name);
    let finding = Finding {
        id: finding_id(1)?,
        source: SOURCE.to_owned(),
        detail: if detail.trim().is_empty() { title.clone() } else { text::long(&detail) },
        title,
        severity: at.get("severity").map_or(Severity::Medium, |s| severity(&prose(s.value))),
        level: None,
        places: Vec::new(),
        suppressed: matches!(at.get("suppressed").map(|s| s.value), Some(Value::Bool(true))),
        evidence: evidence(at)?,
        fingerprint: String::new(),
        dropped: None,
        extra: extras(at)?,
        source_id: source_id.map(|id| text::title(&id)),
        rule,
    };
    Ok(Draft { finding, spots: spots(at, resolver)? })
}

/// Text of a text, or of each item, or JSON.
fn prose(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(items) => items.iter().map(prose).collect::<Vec<_>>().join("\n"),
        other => other.to_string(),
    }
}

fn evidence(at: &At) -> Result<Vec<String>, IntakeError> {
    let lines: Vec<String> = match at.get("evidence") {
        Some(one) if one.value.is_string() => vec![prose(one.value)],
        _ => at.items("evidence")?.unwrap_or_default().iter().map(|e| prose(e.value)).collect(),
    };
    Ok(lines.iter().take(MAX_EVIDENCE).map(|line| text::snippet(line)).collect())
}

fn spots(at: &At, resolver: &Resolver) -> Result<Vec<Spot>, IntakeError> {
    let files = match at.get("affected_files") {
        Some(one) if one.value.is_string() || one.value.is_object() => vec![one],
        _ => at.items("affected_files")?.unwrap_or_default(),
    };
    let mut spots = Vec::new();
    for file in files {
        if let Some(path) = file.value.as_str() {
            let (path, line) = with_line(path);
            let at = resolver.locate(path, &Base::Checkout);
            spots.push(Spot { at, line, end_line: None, snippet: None, symbol: None });
            continue;
        }
        let file = file.expect_object()?;
        let Some(path) = file.text("path")?.or(file.text("file")?) else { continue };
        let line = match file.line("line_start")? {
            Some(line) => Some(line),
            None => file.line("line")?,
        };
        spots.push(Spot {
            at: resolver.locate(path, &Base::Checkout),
            line,
            end_line: file.line("line_end")?,
            snippet: file.text("quoted_text")?.or(file.text("snippet")?).map(text::snippet),
            symbol: file.text("symbol")?.map(text::title),
        });
    }
    // Files to be created may be named apart from the affected ones.
    for key in ["create", "creates", "new_file"] {
        let named = match at.get(key).map(|named| named.value) {
            Some(Value::String(path)) => vec![path.as_str()],
            Some(Value::Array(paths)) => paths.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        for path in named {
            let at = resolver.locate(path, &Base::Checkout);
            spots.push(Spot { at, line: None, end_line: None, snippet: None, symbol: None });
        }
    }
    Ok(spots)
}

/// `src/a.ts:10` and `src/a.ts:10-20`.
fn with_line(path: &str) -> (&str, Option<u32>) {
    let split = path.rsplit_once(':').and_then(|(file, lines)| {
        let first = lines.split('-').next()?;
        let line = first.parse().ok().filter(|line| *line > 0)?;
        (!file.is_empty()).then_some((file, line))
    });
    split.map_or((path, None), |(file, line)| (file, Some(line)))
}

/// Everything that we do not read, and what planning asks for.
fn extras(at: &At) -> Result<Map<String, Value>, IntakeError> {
    let mut kept = Map::new();
    for (key, value) in at.value.as_object().into_iter().flatten() {
        if !KNOWN.contains(&key.as_str()) {
            kept.insert(key.clone(), text::kept(value));
        }
    }
    let mut depends = Vec::new();
    for key in ["depends_on", "dependencies"] {
        for item in at.items(key)?.unwrap_or_default() {
            let id = item.value.as_str().ok_or_else(|| item.wrong("the id of a finding"))?;
            depends.push(Value::from(text::title(id)));
        }
    }
    for reserved in [Finding::REPORTED_LINE, Finding::DEPENDS_ON, Finding::CREATES_FILES] {
        kept.remove(reserved);
    }
    if !depends.is_empty() {
        kept.insert(Finding::DEPENDS_ON.to_owned(), depends.into());
    }
    if creates(at) {
        kept.insert(Finding::CREATES_FILES.to_owned(), true.into());
    }
    Ok(kept)
}

/// The record says that its files are to be created.
fn creates(at: &At) -> bool {
    let flag = |key: &str| match at.get(key).map(|v| v.value) {
        Some(Value::Bool(yes)) => *yes,
        Some(Value::Array(files)) => !files.is_empty(),
        Some(Value::String(text)) => !text.trim().is_empty(),
        _ => false,
    };
    let action = at.get("action").and_then(|a| a.value.as_str()).unwrap_or_default();
    flag("create") || flag("creates") || flag("new_file") || action.eq_ignore_ascii_case("create")
}

/// Free text: the worst word it contains counts.
fn severity(text: &str) -> Severity {
    const WORDS: [(Severity, &[&str]); 5] = [
        (Severity::Critical, &["critical", "blocker", "fatal", "severe", "p0", "sev0"]),
        (Severity::High, &["high", "major", "error", "important", "p1", "sev1"]),
        (Severity::Medium, &["medium", "moderate", "warning", "med", "p2", "sev2"]),
        (Severity::Low, &["low", "minor", "note", "p3", "sev3"]),
        (Severity::Info, &["info", "informational", "trivial", "none", "p4", "nit", "sev4"]),
    ];
    let text = text.to_ascii_lowercase();
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    WORDS
        .iter()
        .find(|(_, names)| names.iter().any(|name| words.contains(name)))
        .map_or(Severity::Medium, |(severity, _)| *severity)
}
