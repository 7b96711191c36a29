//! Nodes: a table of all, and for each its findings, failures and receipt.

use std::fmt::Write as _;

use super::class;
use super::escape::{line, lines, link};
use crate::ledger::{CheckRecord, Failure, Receipt};
use crate::model::Finding;
use crate::report::history::word;
use crate::report::pull_request::{severity, verdict};
use crate::report::text::{amount, count, dollars, duration};
use crate::report::view::{NodeDetail, NodeView};

/// Nodes whose details are shown.
const DETAILED: usize = 3_000;
/// Findings, files and failures that are shown of a node.
const SHOWN: usize = 100;

/// Every node in a row.
pub(super) fn table(nodes: &[NodeView], details: &[NodeDetail]) -> String {
    let mut text = "<h2>Nodes</h2>\n<table><tr><th>node<th>state<th>what<th>severity<th class=\"n\">findings\
                    <th>pull request<th class=\"n\">attempts<th>pool<th class=\"n\">tokens<th class=\"n\">cost</tr>\n"
        .to_owned();
    for (index, node) in nodes.iter().enumerate() {
        let detail = details.get(index);
        let id = line(node.id.as_str(), 100);
        let name = if index < DETAILED { format!("<a href=\"#{id}\">{id}</a>") } else { id };
        let pull = node.pull_request.as_ref().map(|(number, url)| link(url, &format!("#{number}")));
        let usage = detail.map(|d| d.usage).unwrap_or_default();
        let pool = node.pool.as_ref().map(|p| line(&p.0, 100)).unwrap_or_default();
        let _ = writeln!(
            text,
            "<tr><td class=\"w\">{name}<td><span class=\"chip {}\">{}</span><td>{}<td>{}<td class=\"n\">{}\
             <td class=\"w\">{}<td class=\"n\">{}<td>{pool}<td class=\"n\">{}<td class=\"n\">{}</tr>",
            class(node.state),
            word(&node.state),
            line(&node.title, 200),
            severity(node.severity),
            detail.map_or(0, |d| d.findings.len()),
            pull.unwrap_or_default(),
            node.attempts,
            amount(usage.input_tokens + usage.output_tokens),
            dollars(usage.cost_usd),
        );
    }
    text + "</table>\n"
}

/// What is known of each node, folded away.
pub(super) fn details(nodes: &[NodeView], details: &[NodeDetail]) -> String {
    let mut text = "<h2>Receipts</h2>\n".to_owned();
    for (node, detail) in nodes.iter().zip(details).take(DETAILED) {
        let id = line(node.id.as_str(), 100);
        let _ = writeln!(
            text,
            "<details id=\"{id}\"><summary><b>{id}</b> {} <span class=\"chip {}\">{}</span></summary><div>",
            line(&node.title, 200),
            class(node.state),
            word(&node.state)
        );
        if let Some(note) = &node.note {
            let _ = writeln!(text, "<pre>{}</pre>", lines(note, 2_000));
        }
        text.push_str(&findings(&detail.findings));
        if let Some(it) = &detail.receipt {
            text.push_str(&receipt(it));
        }
        text.push_str(&failures(&detail.failures));
        text.push_str("</div></details>\n");
    }
    if nodes.len() > DETAILED {
        let _ = writeln!(text, "<p>… and {}</p>", count(nodes.len() - DETAILED, "more node"));
    }
    text
}

fn findings(findings: &[Finding]) -> String {
    let mut text = format!("<h3>{}</h3>\n<table>\n", count(findings.len(), "finding"));
    for it in findings.iter().take(SHOWN) {
        let place = it.places.first().map(|p| {
            let at = p.line.map(|l| format!(":{l}")).unwrap_or_default();
            line(&format!("{}{at}", p.path), 300)
        });
        let _ = writeln!(
            text,
            "<tr><td class=\"w\">{}<td>{}<td><code>{}</code><td>{}<td><code>{}</code></tr>",
            line(it.id.as_str(), 100),
            severity(it.severity),
            it.rule.as_ref().map(|r| line(r, 100)).unwrap_or_default(),
            line(&it.title, 300),
            place.unwrap_or_default(),
        );
    }
    text.push_str("</table>\n");
    more(&mut text, findings.len());
    text
}

fn receipt(it: &Receipt) -> String {
    let mut text = format!(
        "<h3>Receipt</h3>\n<table>\n<tr><td>commit<td><code>{}</code></tr>\n<tr><td>its tree, as verified\
         <td><code>{}</code></tr>\n<tr><td>base<td><code>{}</code></tr>\n<tr><td>pool<td><code>{}</code>{}</tr>\n\
         <tr><td>consumed<td>{}, {} tokens in, {} out, {}</tr>\n<tr><td>resolved<td>{}</tr>\n</table>\n",
        line(&it.commit, 64),
        line(&it.tree, 64),
        line(&it.base, 64),
        line(&it.pool.0, 200),
        it.model_seen
            .as_ref()
            .map(|m| format!(", answered as <code>{}</code>", line(m, 200)))
            .unwrap_or_default(),
        count(it.usage.requests as usize, "request"),
        amount(it.usage.input_tokens),
        amount(it.usage.output_tokens),
        dollars(it.usage.cost_usd),
        count(it.resolved.len(), "finding"),
    );
    if !it.checks.is_empty() {
        text.push_str(
            "<table><tr><th>check<th>verdict<th class=\"n\">exit code<th class=\"n\">took</tr>\n",
        );
        it.checks.iter().take(SHOWN).for_each(|check| text.push_str(&row(check)));
        text.push_str("</table>\n");
    }
    text.push_str("<h3>Files changed</h3>\n<pre>");
    for path in it.touched.iter().take(SHOWN) {
        let _ = writeln!(text, "{}", line(path, 300));
    }
    text.push_str("</pre>\n");
    more(&mut text, it.touched.len());
    if !it.summary.trim().is_empty() {
        let _ = writeln!(
            text,
            "<h3>What the worker says (its own words, not checked)</h3>\n<pre>{}</pre>",
            lines(&it.summary, 4_000)
        );
    }
    text
}

fn row(it: &CheckRecord) -> String {
    let code = it.exit_code.map_or_else(|| "stopped".to_owned(), |code| code.to_string());
    format!(
        "<tr><td>{}<td>{}<td class=\"n\">{code}<td class=\"n\">{}</tr>\n",
        line(&it.name, 100),
        line(verdict(it), 40),
        duration(it.millis)
    )
}

fn failures(failures: &[Failure]) -> String {
    if failures.is_empty() {
        return String::new();
    }
    let mut text = format!("<h3>{}</h3>\n", count(failures.len(), "failed attempt"));
    for it in failures.iter().rev().take(SHOWN) {
        let _ = writeln!(
            text,
            "<p>attempt {} on <code>{}</code>: {}</p>\n<pre>{}</pre>",
            it.attempt.0,
            line(&it.pool.0, 200),
            word(&it.outcome),
            lines(&it.detail, 4_000)
        );
    }
    more(&mut text, failures.len());
    text
}

fn more(text: &mut String, of: usize) {
    if of > SHOWN {
        let _ = writeln!(text, "<p>… and {} more</p>", of - SHOWN);
    }
}
