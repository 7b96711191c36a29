//! A node's pull request: what, why, how verified, by whom, at what cost, how to steer.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;

use crate::ledger::CheckRecord;
use crate::model::{Finding, ScopeEntry, Severity};

use super::marker;
use super::page::Page;
use super::text::{amount, code, collapsed_json, count, dollars, duration, fence, inline, title};
use super::view::PullRequestView;
use crate::model::CiMode;

/// Characters of a path that an address keeps.
const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The title: the node's, with its id so that comments can name it.
#[must_use]
pub fn pull_request_title(view: &PullRequestView) -> String {
    format!("{} ({})", title(&view.node.title, 120), view.node.id)
}

/// The body.
#[must_use]
pub fn pull_request_body(view: &PullRequestView) -> String {
    let mut page = Page::body();
    page.add(&format!("{}\n", marker::pull_request(&view.run, &view.node.id)));
    page.add(&format!("{}\n\n", inline(&view.node.title, 300)));
    page.add(&stack(view));
    page.add(&verified(view));
    page.add_lines(
        &format!("## Why: {}\n\n", count(view.findings.len(), "finding")),
        view.findings.iter().map(|f| finding(f, view)),
        "findings",
        50,
    );
    page.add(&provenance(view));
    page.add(&steer(view));
    page.add_lines(
        "## Files changed\n\n",
        view.receipt.touched.iter().map(|path| format!("- {}\n", code(path, 300))),
        "files",
        40,
    );
    if !view.receipt.summary.trim().is_empty() {
        page.add(&format!(
            "<details><summary>What the worker says (its own words, not checked)</summary>\n\n{}\n</details>\n\n",
            fence(&view.receipt.summary, "text", 2_000)
        ));
    }
    if !page.add(&receipt(view)) {
        page.add("The full receipt is on the state branch.\n");
    }
    page.finish()
}

fn stack(view: &PullRequestView) -> String {
    if view.stacked_on.is_empty() {
        return String::new();
    }
    let on: Vec<String> = view
        .stacked_on
        .iter()
        .map(|(node, number)| match number {
            Some(number) => format!("#{number} ({node})"),
            None => node.to_string(),
        })
        .collect();
    format!(
        "> [!NOTE]\n> Stacked: this builds on {}; review and merge those first.\n\n",
        on.join(", ")
    )
}

pub(super) fn finding(it: &Finding, view: &PullRequestView) -> String {
    let rule = it.rule.as_ref().map(|r| format!(" {}", code(r, 80))).unwrap_or_default();
    let place = it.places.first().map(|p| {
        let line = p.line.map(|l| format!(":{l}")).unwrap_or_default();
        let label = code(&format!("{}{line}", p.path), 200);
        match &view.blob_url {
            Some(url) => {
                let anchor = p.line.map(|l| format!("#L{l}")).unwrap_or_default();
                let path = utf8_percent_encode(p.path.as_str(), PATH);
                format!(" in [{label}]({url}{}/{path}{anchor})", view.receipt.base)
            }
            None => format!(" in {label}"),
        }
    });
    format!(
        "- **{}**{rule} {}{} ({}, {})\n",
        severity(it.severity),
        inline(&it.title, 300),
        place.unwrap_or_default(),
        it.id,
        inline(&it.source, 40)
    )
}

/// The severity's word.
pub(super) fn severity(it: Severity) -> &'static str {
    match it {
        Severity::Info => "info",
        Severity::Low => "low",
        Severity::Medium => "medium",
        Severity::High => "high",
        Severity::Critical => "critical",
    }
}

fn verified(view: &PullRequestView) -> String {
    let checks = &view.receipt.checks;
    let why = view.node.verify_waived.as_deref();
    let mut text = format!("## How it was verified\n\n{}", doubt(checks, why));
    if checks.is_empty() {
        return text;
    }
    text.push_str(&format!(
        "On exactly the tree that this branch holds ({}):\n\n| check | verdict | exit code | time |\n|---|---|---|---|\n",
        code(&short(&view.receipt.tree), 12)
    ));
    for check in checks.iter().take(50) {
        text.push_str(&check_row(check));
    }
    text.push('\n');
    text
}

/// What people must know before they trust the table; `waived` says why there is no command.
pub(super) fn doubt(checks: &[CheckRecord], waived: Option<&str>) -> String {
    let idle: Vec<String> = checks
        .iter()
        .filter(|check| check.says_nothing())
        .take(5)
        .map(|check| code(&check.name, 80))
        .collect();
    let fail = if idle.len() == 1 { "fails" } else { "fail" };
    let idle = format!("{} {fail} on the base too, with or without this change", idle.join(", "));
    let broken = checks.iter().any(CheckRecord::says_nothing);
    if checks.iter().any(CheckRecord::passes) {
        return if broken { format!("> [!NOTE]\n> {idle}.\n\n") } else { String::new() };
    }
    let why = match waived {
        _ if broken => idle,
        Some(why) => inline(why, 200),
        None => "no check is configured for it".to_owned(),
    };
    let proof = if checks.iter().any(CheckRecord::is_proof) {
        " A re-check shows that the findings are gone, not that nothing else broke."
    } else {
        ""
    };
    format!("> [!WARNING]\n> Not verified by any command: {why}.{proof} Please look closely.\n\n")
}

/// The verdict in words.
pub(super) fn verdict(it: &CheckRecord) -> &str {
    match it.verdict.as_str() {
        "base-fails-too" => "fails on the base too",
        "flaky" => "passed at its second run",
        "gone" => "the findings are gone",
        other => other,
    }
}

pub(super) fn check_row(it: &CheckRecord) -> String {
    let exit = it.exit_code.map_or_else(|| "stopped".to_owned(), |c| c.to_string());
    let time = duration(it.millis);
    format!("| {} | {} | {exit} | {time} |\n", code(&it.name, 80), inline(verdict(it), 40))
}

fn provenance(view: &PullRequestView) -> String {
    let receipt = &view.receipt;
    let usage = &receipt.usage;
    let model = receipt
        .model_seen
        .as_ref()
        .map_or_else(|| "not told by the backend".to_owned(), |model| code(model, 100));
    let agent = receipt.agent.as_ref().map(|agent| format!("| agent | {} |\n", code(agent, 100)));
    let agent = agent.unwrap_or_default();
    let scope: Vec<String> = view.node.writes.iter().take(10).map(scope).collect();
    let more = view.node.writes.len().saturating_sub(10);
    let more = if more > 0 { format!(" … and {more} more") } else { String::new() };
    format!(
        "## Where it comes from\n\n| | |\n|---|---|\n\
         | pool | {} |\n{agent}| model seen | {model} |\n| attempts | {} |\n\
         | tokens | {} in, {} out, {} |\n| cost | {} |\n\
         | base | {} of {} |\n| allowed to change | {}{more} |\n\n",
        code(&receipt.pool.0, 100),
        view.attempts,
        amount(usage.input_tokens),
        amount(usage.output_tokens),
        count(usage.requests as usize, "request"),
        dollars(usage.cost_usd),
        code(&short(&receipt.base), 12),
        code(&view.base, 100),
        scope.join(", "),
    )
}

fn scope(it: &ScopeEntry) -> String {
    match it {
        ScopeEntry::Path(path) => code(path.as_str(), 200),
        ScopeEntry::Folder(path) => code(&format!("{path}/**"), 200),
        ScopeEntry::Glob(glob) => code(glob, 200),
    }
}

fn steer(view: &PullRequestView) -> String {
    let id = &view.node.id;
    let checks = ci_line(view.ci);
    format!(
        "## How to steer\n\n\
         - Merge it, or close it to reject it; both are noticed by the next cycle.\n\
         - Comment `/overhaul retry {id}` for another attempt, `/overhaul skip {id}` to give it \
         up, `/overhaul adopt {id}` after pushing commits of your own, `/overhaul help` for the \
         rest.\n{checks}\n"
    )
}

/// How checks start, as a line of a list; nothing where there is nothing to say.
pub(super) fn ci_line(ci: CiMode) -> String {
    let checks = match ci {
        CiMode::Automatic => "Checks start by themselves.",
        CiMode::Approval => {
            "Checks wait until a person approves their start, because this was opened with \
             `GITHUB_TOKEN`; an app's token (`app-id`) lets them start by themselves."
        }
        CiMode::Never => {
            "Checks do not start here, because this was opened with `GITHUB_TOKEN` on a GitHub \
             Enterprise Server; an app's token (`app-id`) lets them start."
        }
        CiMode::Elsewhere => "",
    };
    if checks.is_empty() { String::new() } else { format!("- {checks}\n") }
}

fn receipt(view: &PullRequestView) -> String {
    collapsed_json(
        "Receipt",
        &json!({
            "run": view.run,
            "node": view.node.id,
            "attempts": view.attempts,
            "findings": view.node.findings,
            "receipt": view.receipt,
        }),
    )
}

fn short(id: &str) -> String {
    id.chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::{pull_request_body, pull_request_title};
    use crate::model::CiMode;
    use crate::report::page::BODY_BUDGET;
    use crate::report::sample;

    #[test]
    fn a_pull_request_reads_well() {
        let view = sample::pull_request();
        insta::assert_snapshot!(format!(
            "{}\n====\n{}",
            pull_request_title(&view),
            pull_request_body(&view)
        ));
    }

    #[test]
    fn a_hostile_one_stays_text() {
        let view = sample::hostile_pull_request();
        insta::assert_snapshot!(format!(
            "{}\n====\n{}",
            pull_request_title(&view),
            pull_request_body(&view)
        ));
    }

    #[test]
    fn a_huge_one_fits() {
        let mut view = sample::pull_request();
        view.ci = CiMode::Never;
        view.findings = std::iter::repeat_n(view.findings[0].clone(), 5_000).collect();
        view.receipt.touched = (0..5_000).map(|i| format!("src/file_{i}.rs")).collect();
        view.receipt.summary = "x".repeat(1_000_000);
        let body = pull_request_body(&view);
        assert!(body.chars().count() <= BODY_BUDGET);
        assert!(body.contains("more findings") && body.contains("more files"));
        assert!(body.contains("The full receipt is on the state branch."));
        assert!(body.contains("## How to steer"));
    }
}
