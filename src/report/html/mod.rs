//! A run as one HTML file: no script, nothing fetched, every text from outside only text. A policy
//! inside the page forbids what the page does not do, should an escape ever be missed.

mod axis;
mod escape;
mod node;
mod timeline;

use std::fmt::Write as _;

use super::dashboard::standing;
use super::history::word;
use super::pause::headline;
use super::text::{amount, count, dollars, minute};
use super::view::{NodeView, PoolState, PoolView, ReportView, RunView};
use crate::ledger::{NodeState, PauseRecord};
use escape::line;

/// Lines of the log that are shown, the newest.
const MOMENTS: usize = 2_000;

/// The report.
#[must_use]
pub fn html_report(view: &ReportView) -> String {
    let run = &view.run;
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>overhaul: {}</title>\n<style>\n{}</style>\n</head>\n<body>\n",
        line(run.run.as_str(), 100),
        include_str!("style.css"),
    );
    page.push_str(&head(run));
    if let Some(pause) = &run.pause {
        page.push_str(&paused(pause));
    }
    let drawing = timeline::timeline(&view.spans, &run.nodes);
    if !drawing.is_empty() {
        let _ = writeln!(page, "<h2>Timeline</h2>\n<div class=\"scroll\">{drawing}</div>");
    }
    page.push_str(&node::table(&run.nodes, &view.details));
    page.push_str(&pools(&run.pools));
    page.push_str(&friction(run));
    page.push_str(&node::details(&run.nodes, &view.details));
    page.push_str(&log(run));
    let _ =
        writeln!(page, "<p class=\"soft\">Written at {}.</p>\n</body>\n</html>", minute(run.now));
    page
}

fn head(run: &RunView) -> String {
    let (done, offered) = standing(&run.nodes);
    let (total, in_nodes, dropped) = run.findings;
    let budget = run.budget_usd.map(|b| format!(" of {}", dollars(b))).unwrap_or_default();
    let fact = |value: String, what: &str| format!("<li><b>{value}</b>{what}</li>\n");
    let mut text = format!(
        "<h1>{}</h1>\n<p class=\"soft\">{} on {}</p>\n",
        line(run.run.as_str(), 100),
        line(&run.status, 40),
        line(&run.base_branch, 100)
    );
    text.push_str(&bar(&run.nodes));
    text.push_str("<ul class=\"facts\">\n");
    text.push_str(&fact(format!("{done} of {}", run.nodes.len()), "nodes done"));
    if offered > 0 {
        text.push_str(&fact(offered.to_string(), "in review"));
    }
    text.push_str(&fact(
        format!("{in_nodes} of {total}"),
        &format!("findings in nodes, {dropped} dropped"),
    ));
    text.push_str(&fact(format!("{}{budget}", dollars(run.usage.cost_usd)), "spent"));
    text.push_str(&fact(
        format!("{} + {}", amount(run.usage.input_tokens), amount(run.usage.output_tokens)),
        "tokens in and out",
    ));
    text.push_str(&fact(run.usage.requests.to_string(), "requests"));
    if let Some(at) = run.heartbeat {
        text.push_str(&fact(minute(at), "last cycle"));
    }
    text.push_str("</ul>\n");
    text
}

/// Nodes by how they stand, as parts of a bar.
fn bar(nodes: &[NodeView]) -> String {
    if nodes.is_empty() {
        return String::new();
    }
    let mut text = "<div class=\"bar\">".to_owned();
    for class in ["good", "same", "busy", "bad", "idle"] {
        let n = nodes.iter().filter(|n| self::class(n.state) == class).count();
        if n > 0 {
            let _ = write!(text, "<i class=\"{class}\" style=\"flex:{n}\"></i>");
        }
    }
    text + "</div>\n"
}

fn class(state: NodeState) -> &'static str {
    match state {
        NodeState::Landed | NodeState::Satisfied => "good",
        NodeState::Accepted | NodeState::InReview => "same",
        NodeState::Claimed | NodeState::Working => "busy",
        NodeState::Failed | NodeState::Rejected | NodeState::Blocked => "bad",
        NodeState::Waiting | NodeState::Ready | NodeState::Skipped => "idle",
    }
}

fn paused(pause: &PauseRecord) -> String {
    let mut text = format!("<div class=\"pause\"><b>{}</b>", headline(pause.cause));
    if let Some(at) = pause.not_before {
        let _ = write!(text, ", not before {}", minute(at));
    }
    text.push_str("\n<table><tr><th>node<th>cause<th>why<th>not before</tr>\n");
    for node in pause.nodes.iter().take(200) {
        let at = node.not_before.map(minute).unwrap_or_default();
        let (cause, why) = (word(&node.cause), line(&node.reason, 300));
        let _ = writeln!(
            text,
            "<tr><td class=\"w\">{}<td class=\"w\">{cause}<td>{why}<td class=\"w\">{at}</tr>",
            line(node.node.as_str(), 100)
        );
    }
    text.push_str("</table>\n");
    if pause.nodes.len() > 200 {
        let _ = writeln!(text, "<p>… and {}</p>", count(pause.nodes.len() - 200, "more node"));
    }
    text + "</div>\n"
}

/// The quota calendar.
fn pools(pools: &[PoolView]) -> String {
    let mut text = "<h2>Pools</h2>\n<table><tr><th>pool<th>state<th>back<th class=\"n\">context\
                    <th class=\"n\">requests<th class=\"n\">tokens<th class=\"n\">cost<th>why</tr>\n"
        .to_owned();
    for pool in pools {
        let (state, back, why) = match &pool.state {
            PoolState::Usable => ("usable", String::new(), String::new()),
            PoolState::Paused { until, outcome, evidence } => {
                ("waits", minute(*until), format!("{}: {evidence}", word(outcome)))
            }
            PoolState::Settled { until, outcome, evidence } => (
                "out",
                until.map_or_else(|| "when a person acts".to_owned(), minute),
                format!("{}: {evidence}", word(outcome)),
            ),
            PoolState::Excluded => ("excluded", "by configuration".to_owned(), String::new()),
            PoolState::Unreachable { reason } => {
                ("unreachable", "when fixed".to_owned(), reason.clone())
            }
        };
        let chip = match &pool.state {
            PoolState::Usable => "good",
            PoolState::Settled { .. } | PoolState::Unreachable { .. } => "bad",
            PoolState::Paused { .. } | PoolState::Excluded => "idle",
        };
        let _ = writeln!(
            text,
            "<tr><td><code>{}</code><td><span class=\"chip {chip}\">{state}</span><td class=\"w\">{back}\
             <td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td>{}</tr>",
            line(&pool.id.0, 200),
            amount(pool.context_tokens),
            pool.usage.requests,
            amount(pool.usage.input_tokens + pool.usage.output_tokens),
            dollars(pool.usage.cost_usd),
            line(&why, 400),
        );
    }
    text + "</table>\n"
}

fn friction(run: &RunView) -> String {
    if run.friction.is_empty() {
        return String::new();
    }
    let mut text =
        "<h2>Friction</h2>\n<table><tr><th>what<th>what to do<th class=\"n\">times</tr>\n"
            .to_owned();
    for it in run.friction.iter().take(500) {
        let _ = writeln!(
            text,
            "<tr><td>{}<td>{}<td class=\"n\">{}</tr>",
            line(&it.text, 500),
            line(&it.remedy, 500),
            it.count
        );
    }
    text + "</table>\n"
}

fn log(run: &RunView) -> String {
    if run.timeline.is_empty() {
        return String::new();
    }
    let left_out = run.timeline.len().saturating_sub(MOMENTS);
    let mut text = format!(
        "<h2>What happened</h2>\n<details><summary>{}</summary><div>\n",
        count(run.timeline.len(), "line")
    );
    if left_out > 0 {
        let _ = writeln!(text, "<p>The first {left_out} are on the state branch only.</p>");
    }
    text.push_str("<table><tr><th>time<th>node<th>what</tr>\n");
    for moment in run.timeline.iter().skip(left_out) {
        let node = moment.node.as_ref().map(|n| line(n.as_str(), 100)).unwrap_or_default();
        let _ = writeln!(
            text,
            "<tr><td class=\"w\">{}<td class=\"w\">{node}<td>{}</tr>",
            moment.at.strftime("%Y-%m-%d %H:%M:%S"),
            line(&moment.text, 300)
        );
    }
    text + "</table>\n</div></details>\n"
}

#[cfg(test)]
mod tests {
    use super::html_report;
    use crate::report::sample;

    #[test]
    fn a_report_reads_well() {
        let page = html_report(&sample::report());
        let body = page.split_once("<body>").unwrap().1;
        insta::assert_snapshot!(body);
    }

    /// Name and attribute names of every tag. No `>` stands in our attribute values.
    fn tags(page: &str) -> Vec<(&str, Vec<&str>)> {
        let inside = page
            .split('<')
            .skip(1)
            .map(|rest| rest.split('>').next().unwrap().trim_end_matches('/'));
        inside
            .map(|tag| {
                let (name, rest) = tag.split_once([' ', '\n']).unwrap_or((tag, ""));
                // Outside of quotes there are names only.
                let names = rest.split('"').step_by(2);
                let names = names.flat_map(|n| n.split([' ', '=', '\n'])).filter(|n| !n.is_empty());
                (name.trim_start_matches('/'), names.collect())
            })
            .collect()
    }

    #[test]
    fn nothing_is_fetched_and_nothing_runs() {
        const TAGS: &[&str] = &[
            "!doctype", "html", "head", "meta", "title", "style", "body", "h1", "h2", "h3", "p",
            "b", "i", "a", "ul", "li", "div", "span", "table", "tr", "th", "td", "code", "pre",
            "details", "summary", "svg", "defs", "pattern", "rect", "line", "text",
        ];
        const ATTRIBUTES: &[&str] = &[
            "html",
            "lang",
            "charset",
            "http-equiv",
            "content",
            "name",
            "class",
            "id",
            "style",
            "href",
            "rel",
            "role",
            "aria-label",
            "viewBox",
            "width",
            "height",
            "patternUnits",
            "patternTransform",
            "x",
            "y",
            "x1",
            "y1",
            "x2",
            "y2",
            "rx",
        ];
        for view in [sample::report(), sample::hostile_report()] {
            let page = html_report(&view);
            for (tag, attributes) in tags(&page) {
                assert!(TAGS.contains(&tag), "<{tag} {attributes:?}>");
                for attribute in attributes {
                    assert!(ATTRIBUTES.contains(&attribute), "{attribute} in <{tag}>");
                }
            }
            for url in page.split("href=\"").skip(1) {
                assert!(url.starts_with("https://github.com/o/r/") || url.starts_with("#N-"));
            }
            assert!(page.contains("default-src 'none'"));
            assert!(!page.contains("url(h") && !page.contains("@import"));
            assert!(!page.contains('\u{202e}') && !page.contains("ghp_0123456789"));
        }
        let hostile = html_report(&sample::hostile_report());
        assert!(hostile.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }

    #[test]
    fn ten_thousand_nodes_stay_openable() {
        let mut view = sample::report();
        let (nodes, details) = (view.run.nodes.clone(), view.details.clone());
        view.run.nodes = (0..10_000).map(|i| nodes[i % nodes.len()].clone()).collect();
        view.details = (0..10_000).map(|i| details[i % details.len()].clone()).collect();
        let page = html_report(&view);
        assert!(page.len() < 16 << 20, "{}", page.len());
        assert!(page.contains("more nodes"));
    }
}
