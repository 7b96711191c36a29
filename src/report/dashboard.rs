//! The dashboard issue: one per run, edited in place.

use crate::ledger::NodeState;

use super::marker;
use super::page::Page;
use super::pause;
use super::text::{self, amount, code, count, dollars, inline, minute};
use super::view::{NodeView, RunView};

/// Node states in the order that people care about, with their headings.
pub(super) const SECTIONS: &[(NodeState, &str)] = &[
    (NodeState::Failed, "Failed: needs a person"),
    (NodeState::Rejected, "Rejected"),
    (NodeState::InReview, "In review"),
    (NodeState::Accepted, "Accepted, pull request to come"),
    (NodeState::Working, "Being worked on"),
    (NodeState::Claimed, "Claimed"),
    (NodeState::Ready, "Ready"),
    (NodeState::Waiting, "Waiting for another node"),
    (NodeState::Blocked, "Blocked"),
    (NodeState::Landed, "Landed"),
    (NodeState::Satisfied, "Nothing to change"),
    (NodeState::Skipped, "Skipped"),
];

/// The title; `title` is the configured one.
#[must_use]
pub fn dashboard_title(title: &str, view: &RunView) -> String {
    format!("{}: run {}", text::title(title, 120), view.run)
}

/// The body.
#[must_use]
pub fn dashboard(view: &RunView) -> String {
    let mut page = Page::body();
    page.add(&format!("{}\n", marker::dashboard(&view.run)));
    page.add(&format!("{}\n\n", headline(view)));
    if let Some(pause) = &view.pause {
        let (what, ends) = pause::sentences(view, pause);
        page.add(&format!("## Paused\n\n{what}\n\n{ends}\n\n"));
        pause::add_nodes(&mut page, pause);
    }
    page.add(&ticks(view));
    page.add_lines(
        "## Pools\n\n| pool | state | back | context | why |\n|---|---|---|---|---|\n",
        view.pools.iter().map(pause::pool_row),
        "pools",
        30,
    );
    page.add(&facts(view));
    for (state, title) in SECTIONS {
        let nodes: Vec<&NodeView> = view.nodes.iter().filter(|n| n.state == *state).collect();
        let head = format!("## {title} ({})\n\n", nodes.len());
        page.add_lines(&head, nodes.into_iter().map(node_line), "nodes", 60);
    }
    page.add_lines(
        "## Friction\n\n",
        view.friction.iter().map(|f| {
            let times = if f.count > 1 { format!(" ({} times)", f.count) } else { String::new() };
            format!("- {}{times} {}\n", inline(&f.text, 300), inline(&f.remedy, 300))
        }),
        "records",
        100,
    );
    page.finish()
}

/// Progress in one line: a bar and the counts.
pub(super) fn headline(view: &RunView) -> String {
    let (done, offered) = standing(&view.nodes);
    let total = view.nodes.len();
    let part = |of: usize| (of * 20).checked_div(total);
    let filled = part(done).unwrap_or(20);
    let offered_to = part(done + offered).unwrap_or(20);
    let failed = view.nodes.iter().filter(|n| n.state == NodeState::Failed).count();
    let more: String = [(offered, "in review"), (failed, "failed")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, how)| format!(", {count} {how}"))
        .collect();
    format!(
        "**{}**: {}{}{} {done} of {} done{more}",
        inline(&view.status, 40),
        "█".repeat(filled),
        "▒".repeat(offered_to - filled),
        "░".repeat(20 - offered_to),
        count(total, "node"),
    )
}

/// Nodes that nobody has to look at any more, and those whose change waits for people: what is only
/// in review is not done.
pub(super) fn standing(nodes: &[NodeView]) -> (usize, usize) {
    let of = |wanted: &[NodeState]| nodes.iter().filter(|n| wanted.contains(&n.state)).count();
    (
        of(&[NodeState::Landed, NodeState::Satisfied]),
        of(&[NodeState::InReview, NodeState::Accepted]),
    )
}

/// One node in a list.
fn node_line(it: &NodeView) -> String {
    let pull = match &it.pull_request {
        Some((number, _)) => format!(" #{number}"),
        None => String::new(),
    };
    let pool = it.pool.as_ref().map(|p| format!(", {}", code(&p.0, 80))).unwrap_or_default();
    let attempts = if it.attempts > 0 {
        format!(", {}", count(it.attempts as usize, "attempt"))
    } else {
        String::new()
    };
    let after = if it.depends_on.is_empty() || it.state.is_done() {
        String::new()
    } else {
        let first: Vec<&str> = it.depends_on.iter().take(5).map(|n| n.as_str()).collect();
        let more = if it.depends_on.len() > 5 { ", …" } else { "" };
        format!(", after {}{more}", first.join(", "))
    };
    let note = it.note.as_ref().map(|n| format!(": {}", inline(n, 200))).unwrap_or_default();
    format!(
        "- {}{pull} {} ({}{pool}{attempts}{after}){note}\n",
        it.id,
        inline(&it.title, 120),
        super::pull_request::severity(it.severity),
    )
}

fn ticks(view: &RunView) -> String {
    if view.status == "complete" {
        return over(view);
    }
    let mut text =
        "## Do\n\nA tick acts as the command and is cleared by the next cycle.\n\n".to_owned();
    if view.pause.is_some() {
        text.push_str(&marker::tick("resume", "Resume now"));
    } else if view.nodes.iter().any(|n| !n.state.is_final()) {
        text.push_str(&marker::tick("pause", "Pause"));
    }
    let failed =
        view.nodes.iter().filter(|n| matches!(n.state, NodeState::Failed | NodeState::Rejected));
    for node in failed.take(10) {
        let label = format!("Retry {} {}", node.id, inline(&node.title, 80));
        text.push_str(&marker::tick(&format!("retry {}", node.id), &label));
    }
    text.push_str(&marker::tick("cancel", "Call the run off"));
    text.push_str("\nOr comment `/overhaul help`.\n\n");
    text
}

/// Nobody reads ticks and comments of a run that is over: none are offered.
fn over(view: &RunView) -> String {
    if view.nodes.iter().any(|n| !n.state.is_final()) {
        return "The run was called off: nothing more is started. Its open pull requests can still \
                be merged or closed.\n\n"
            .to_owned();
    }
    let failed = view.nodes.iter().find(|n| n.state == NodeState::Failed);
    let again = match failed {
        Some(node) => format!(
            " `overhaul retry {}` at a shell works on that node again, and opens the run for it.",
            node.id
        ),
        None => String::new(),
    };
    format!("The run is over: ticks and comments here are not read any more.{again}\n\n")
}

fn facts(view: &RunView) -> String {
    let (total, in_nodes, dropped) = view.findings;
    let budget = view.budget_usd.map(|b| format!(" of {}", dollars(b))).unwrap_or_default();
    let mut text = format!(
        "## Facts\n\n| | |\n|---|---|\n\
         | base branch | {} |\n| findings | {total}: {in_nodes} in nodes, {dropped} dropped |\n\
         | consumed | {}{budget}; {} tokens in, {} out; {} |\n",
        code(&view.base_branch, 100),
        dollars(view.usage.cost_usd),
        amount(view.usage.input_tokens),
        amount(view.usage.output_tokens),
        count(view.usage.requests as usize, "request"),
    );
    if let Some(at) = view.heartbeat {
        let url = view.workflow_url.as_ref().map(|u| format!(" ([log]({u}))")).unwrap_or_default();
        text.push_str(&format!("| last cycle | {}{url} |\n", minute(at)));
    }
    if let Some(at) = view.next_cycle {
        text.push_str(&format!("| next cycle | about {}; schedules can be late |\n", minute(at)));
    }
    for it in &view.ceilings {
        text.push_str(&format!("| {} | {} of {} |\n", inline(&it.what, 60), it.used, it.limit));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::{dashboard, dashboard_title};
    use crate::ledger::{NodeState, PauseCause};
    use crate::report::marker;
    use crate::report::page::BODY_BUDGET;
    use crate::report::sample;

    #[test]
    fn a_dashboard_reads_well() {
        let view = sample::run();
        insta::assert_snapshot!(format!(
            "{}\n====\n{}",
            dashboard_title("Overhaul dashboard", &view),
            dashboard(&view)
        ));
    }

    #[test]
    fn what_is_in_review_is_not_done() {
        let mut view = sample::run();
        for node in &mut view.nodes {
            node.state = NodeState::InReview;
        }
        let body = dashboard(&view);
        assert!(
            body.contains(&format!("{} 0 of 6 nodes done, 6 in review", "▒".repeat(20))),
            "{body}"
        );
    }

    #[test]
    fn a_run_that_is_over_offers_nothing_that_nobody_reads() {
        let mut view = sample::run();
        view.status = "complete".to_owned();
        let called_off = dashboard(&view);
        assert!(!called_off.contains("- [ ]") && called_off.contains("called off"), "{called_off}");
        view.nodes.retain(|node| node.state.is_final());
        let body = dashboard(&view);
        assert!(!body.contains("- [ ]") && !body.contains("comment `"), "{body}");
        assert!(body.contains("`overhaul retry N-003` at a shell"), "{body}");
        assert!(body.contains(" failed\n"), "{body}");
    }

    #[test]
    fn a_paused_one_says_so_first() {
        let body = dashboard(&sample::paused(PauseCause::NoUsablePool));
        insta::assert_snapshot!(body);
        let ticked = marker::ticked(&body.replacen("[ ]", "[x]", 1));
        assert_eq!(ticked, ["resume"]);
    }

    #[test]
    fn ten_thousand_nodes_fit() {
        let mut view = sample::run();
        view.nodes = (0..10_000).map(|i| view.nodes[i % view.nodes.len()].clone()).collect();
        let body = dashboard(&view);
        assert!(body.chars().count() <= BODY_BUDGET);
        assert!(body.contains("more nodes"));
        assert!(body.contains("10000 nodes done"));
    }
}
