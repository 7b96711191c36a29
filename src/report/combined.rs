//! The one pull request of a run whose nodes go together.

use serde_json::json;

use super::marker;
use super::page::Page;
use super::pull_request::{check_row, ci_line, doubt, finding};
use super::text::{code, collapsed_json, count, dollars, inline};
use super::view::PullRequestView;
use crate::ledger::CheckRecord;
use crate::model::RunId;

/// The title.
#[must_use]
pub fn combined_title(run: &RunId, nodes: usize) -> String {
    format!("overhaul: {} ({run})", count(nodes, "change"))
}

/// The body. `checks` ran on the tree of all of them together.
#[must_use]
pub fn combined_body(views: &[PullRequestView], checks: &[CheckRecord]) -> String {
    let mut page = Page::body();
    let Some(first) = views.first() else { return page.finish() };
    page.add(&format!(
        "{}\nOne commit a node, {} in all.\n\n",
        marker::combined(&first.run),
        count(views.len(), "node")
    ));
    page.add(&format!("## How it was verified\n\n{}", doubt(checks, None)));
    page.add_lines(
        "All of it together, on the tree that this branch holds:\n\n\
         | check | verdict | exit code | time |\n|---|---|---|---|\n",
        checks.iter().map(check_row),
        "checks",
        50,
    );
    for view in views {
        let usage = &view.receipt.usage;
        let head = format!(
            "## {}: {}\n\n{}, {}, {}.\n\n",
            view.node.id,
            inline(&view.node.title, 200),
            code(&view.receipt.pool.0, 100),
            count(view.attempts as usize, "attempt"),
            dollars(usage.cost_usd)
        );
        page.add_lines(&head, view.findings.iter().map(|f| finding(f, view)), "findings", 20);
    }
    page.add(&format!(
        "## How to steer\n\n- Merge it, or close it to reject all of it; both are noticed by the \
         next cycle.\n- `/overhaul help` in a comment lists the commands.\n{}\n",
        ci_line(first.ci)
    ));
    let receipts: Vec<_> =
        views.iter().map(|view| json!({"node": view.node.id, "receipt": view.receipt})).collect();
    if !page.add(&collapsed_json("Receipts", &json!(receipts))) {
        page.add("The full receipts are on the state branch.\n");
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::{combined_body, combined_title};
    use crate::report::page::BODY_BUDGET;
    use crate::report::sample;

    #[test]
    fn one_for_all_reads_well() {
        let views = vec![sample::pull_request(), sample::hostile_pull_request()];
        let body = combined_body(&views, &views[0].receipt.checks);
        insta::assert_snapshot!(format!("{}\n====\n{body}", combined_title(&views[0].run, 2)));
    }

    #[test]
    fn a_thousand_nodes_fit() {
        let views = vec![sample::pull_request(); 1_000];
        assert!(combined_body(&views, &[]).chars().count() <= BODY_BUDGET);
    }
}
