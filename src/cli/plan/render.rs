//! A plan as JSON and as text.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use crate::model::{DropReason, Finding, FindingId, Node, Plan, ScopeEntry, VerifyCommand};

/// `findings`, `nodes` and `coverage`, one object, pretty.
pub(super) fn json(plan: &Plan, not_problems: usize) -> String {
    let findings: Vec<Value> = plan.findings.iter().map(finding).collect();
    let places: Map<String, Value> =
        plan.coverage.places.iter().map(|(id, place)| (id.to_string(), json!(place))).collect();
    let value = json!({
        "version": plan.version,
        "revision": plan.revision,
        "findings": findings,
        "nodes": plan.nodes,
        "coverage": {
            "total": plan.coverage.total,
            "in-nodes": plan.coverage.in_nodes,
            "dropped": plan.coverage.dropped,
            "dropped-by-reason": by_reason(plan),
            "no-problems": not_problems,
            "places": places,
        },
    });
    format!("{value:#}\n")
}

fn finding(finding: &Finding) -> Value {
    let lines: Vec<u32> = finding.places.iter().filter_map(|place| place.line).collect();
    let reported = finding.extra.get(Finding::REPORTED_LINE).cloned();
    let first = finding.line().map(Value::from).or(reported);
    let other = match &finding.dropped {
        Some(DropReason::DuplicateOf(id) | DropReason::Prerequisite(id)) => Some(id),
        _ => None,
    };
    json!({
        "id": finding.id,
        "source": finding.source,
        "source-id": finding.source_id,
        "rule": finding.rule,
        "path": finding.path(),
        "line": first,
        "lines": lines,
        "places": finding.places.iter().map(|place| json!({
            "path": place.path,
            "line": place.line,
            "end-line": place.end_line,
            "symbol": place.symbol,
        })).collect::<Vec<_>>(),
        "level": finding.level,
        "severity": finding.severity,
        "suppressed": finding.suppressed,
        "title": finding.title,
        "message": finding.detail,
        "fingerprint": finding.fingerprint,
        "dropped": finding.dropped.as_ref().map(reason),
        "dropped-for": other,
    })
}

fn reason(reason: &DropReason) -> &'static str {
    match reason {
        DropReason::Suppressed => "suppressed",
        DropReason::OutsideCheckout => "outside-checkout",
        DropReason::NoPlace => "no-place",
        DropReason::DuplicateOf(_) => "duplicate-of",
        DropReason::Binary => "binary",
        DropReason::Missing => "missing",
        DropReason::Untracked => "untracked",
        DropReason::Protected => "protected",
        DropReason::Filtered => "filtered",
        DropReason::NotAProblem => "not-a-problem",
        DropReason::Prerequisite(_) => "prerequisite",
    }
}

fn by_reason(plan: &Plan) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for dropped in plan.findings.iter().filter_map(|f| f.dropped.as_ref()) {
        *counts.entry(reason(dropped)).or_default() += 1;
    }
    counts
}

/// A block per node, then what was dropped, then the counts.
pub(super) fn text(plan: &Plan, not_problems: usize) -> String {
    let mut out = String::new();
    let findings: HashMap<&FindingId, &Finding> =
        plan.findings.iter().map(|finding| (&finding.id, finding)).collect();
    for node in &plan.nodes {
        write_node(&mut out, &findings, node);
    }
    if plan.findings.is_empty() {
        out.push_str("No findings: there is nothing to do.\n");
    }
    let reasons = by_reason(plan);
    let dropped: Vec<String> = reasons.iter().map(|(why, n)| format!("{n} {why}")).collect();
    let coverage = &plan.coverage;
    let _ = write!(
        out,
        "{} = {} in {} + {} dropped",
        count(coverage.total, "finding"),
        coverage.in_nodes,
        count(plan.nodes.len(), "node"),
        coverage.dropped
    );
    if !dropped.is_empty() {
        let _ = write!(out, " ({})", dropped.join(", "));
    }
    out.push_str(".\n");
    write_dropped(&mut out, plan);
    if not_problems > 0 {
        let _ =
            writeln!(out, "Not counted: {} that nothing is wrong.", count(not_problems, "report"));
    }
    out
}

/// Dropped findings that are named; JSON holds all.
const SHOWN: usize = 20;

/// Which findings were dropped, where they are, and why.
fn write_dropped(out: &mut String, plan: &Plan) {
    let dropped = plan.findings.iter().filter_map(|f| Some((f, f.dropped.as_ref()?)));
    for (finding, why) in dropped.clone().take(SHOWN) {
        let place = finding.path().map(|path| format!(" {}", clean(path.as_str())));
        let place = place.unwrap_or_default();
        let title = clean(&finding.title);
        let _ = writeln!(out, "  {}{place}: {}  {title}", finding.id, in_words(why));
    }
    let more = dropped.count().saturating_sub(SHOWN);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more; --json names all");
    }
}

fn in_words(reason: &DropReason) -> String {
    match reason {
        DropReason::Suppressed => "suppressed by the tool or in the source".to_owned(),
        DropReason::OutsideCheckout => "its file is outside the checkout".to_owned(),
        DropReason::NoPlace => "it names no place".to_owned(),
        DropReason::DuplicateOf(id) => format!("the same as {id}"),
        DropReason::Binary => "its file is binary".to_owned(),
        DropReason::Missing => "its file is not in the checkout".to_owned(),
        DropReason::Untracked => "git does not track its file".to_owned(),
        DropReason::Protected => "its file is protected".to_owned(),
        DropReason::Filtered => "below `min-severity`".to_owned(),
        DropReason::NotAProblem => "the report says it is no problem".to_owned(),
        DropReason::Prerequisite(id) => format!("it waits for {id}, which was dropped"),
    }
}

fn write_node(out: &mut String, findings: &HashMap<&FindingId, &Finding>, node: &Node) {
    let tier = word(json!(node.tier));
    let severity = word(json!(node.severity));
    let _ = writeln!(
        out,
        "{}  {}  [{severity}, {tier}, {} tokens]",
        node.id,
        clean(&node.title),
        node.input_tokens
    );
    for finding in node.findings.iter().filter_map(|id| findings.get(id)) {
        let place = finding.path().map(|path| clean(path.as_str()));
        let place = place.unwrap_or_else(|| "anywhere".to_owned());
        let line = finding.line().map(|line| format!(":{line}")).unwrap_or_default();
        let title = if node.findings.len() > 1 { clean(&finding.title) } else { String::new() };
        let row = format!("  {}    {place}{line}  {title}", finding.id);
        let _ = writeln!(out, "{}", row.trim_end());
    }
    let writes: Vec<String> = node.writes.iter().map(entry).collect();
    let _ = writeln!(out, "  writes    {}", writes.join(", "));
    if !node.creates.is_empty() {
        let creates: Vec<String> = node.creates.iter().map(|p| clean(p.as_str())).collect();
        let _ = writeln!(out, "  creates   {}", creates.join(", "));
    }
    let verify: Vec<String> = node.verify.iter().map(command).collect();
    match &node.verify_waived {
        Some(why) if verify.is_empty() => {
            let _ = writeln!(out, "  verify    none: {}", clean(why));
        }
        _ => {
            let _ = writeln!(out, "  verify    {}", verify.join("; "));
        }
    }
    for (label, nodes) in [("  needs   ", &node.depends_on), ("  after   ", &node.after)] {
        if !nodes.is_empty() {
            let ids: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            let _ = writeln!(out, "{label}  {}", ids.join(", "));
        }
    }
    out.push('\n');
}

fn command(command: &VerifyCommand) -> String {
    clean(&command.argv.join(" "))
}

fn entry(entry: &ScopeEntry) -> String {
    match entry {
        ScopeEntry::Path(path) => clean(path.as_str()),
        ScopeEntry::Folder(path) => format!("{}/", clean(path.as_str())),
        ScopeEntry::Glob(glob) if glob == "**" => "the whole repository".to_owned(),
        ScopeEntry::Glob(glob) => clean(glob),
    }
}

/// Untrusted text must not steer a terminal.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn word(value: Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
