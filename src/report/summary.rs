//! The step summary: outcome first, then the nodes, the plan as a graph, and what happened when.

use std::collections::{HashMap, HashSet};

use crate::ledger::NodeState;
use crate::model::NodeId;

use super::dashboard::{SECTIONS, headline};
use super::page::Page;
use super::pause;
use super::text::{amount, code, count, dollars, inline, minute};
use super::view::{NodeView, RunView};

/// Nodes that are drawn: Mermaid refuses more than 500 edges, and people can't read that many.
const DRAWN: usize = 60;
/// Edges that are drawn; see above.
const EDGES: usize = 200;

/// The summary.
#[must_use]
pub fn step_summary(view: &RunView) -> String {
    let mut page = Page::summary();
    page.add(&format!("# overhaul: {}\n\n{}\n\n", view.run, headline(view)));
    if let Some(pause) = &view.pause {
        let (what, ends) = pause::sentences(view, pause);
        page.add(&format!("> [!IMPORTANT]\n> {what} {ends}\n\n"));
        pause::add_nodes(&mut page, pause);
        pause::add_pools(&mut page, view, pause);
    }
    page.add(&format!(
        "{}; {} tokens in, {} out. Base {}.\n\n",
        dollars(view.usage.cost_usd),
        amount(view.usage.input_tokens),
        amount(view.usage.output_tokens),
        code(&view.base_branch, 100)
    ));
    let noted: Vec<String> = view
        .pools
        .iter()
        .filter_map(|p| {
            Some(format!("- {}: {}\n", code(&p.id.0, 100), inline(p.note.as_deref()?, 300)))
        })
        .collect();
    page.add_lines("", noted, "pools", 30);
    let mut nodes: Vec<&NodeView> = view.nodes.iter().collect();
    nodes.sort_by_key(|n| SECTIONS.iter().position(|(state, _)| *state == n.state));
    page.add_lines(
        "## Nodes\n\n| node&nbsp;&nbsp;&nbsp; | state | pull request | pool | attempts | what |\n|---|---|---|---|---|---|\n",
        nodes.into_iter().map(row),
        "nodes",
        70,
    );
    page.add(&graph(&view.nodes));
    page.add_lines(
        "## What happened\n\n| time | node | what |\n|---|---|---|\n",
        view.timeline.iter().map(|m| {
            let node = m.node.as_ref().map_or("—", NodeId::as_str);
            let time = m.at.strftime("%H:%M:%S");
            format!("| {time} | {node} | {} |\n", inline(&m.text, 200))
        }),
        "entries",
        100,
    );
    for (layer, what) in &view.sandbox_missing {
        page.add(&format!("> [!WARNING]\n> Sandbox, `{layer}`: {}.\n\n", inline(what, 300)));
    }
    page.add(&format!("Written at {}.\n", minute(view.now)));
    page.finish()
}

fn row(it: &NodeView) -> String {
    let pull = match &it.pull_request {
        Some((number, url)) if url.starts_with("https://") => format!("[#{number}]({url})"),
        Some((number, _)) => format!("#{number}"),
        None => "—".to_owned(),
    };
    let pool = it.pool.as_ref().map_or_else(|| "—".to_owned(), |p| code(&p.0, 80));
    let note = it.note.as_ref().map(|n| format!(": {}", inline(n, 160))).unwrap_or_default();
    format!(
        "| {} | {} | {pull} | {pool} | {} | {}{note} |\n",
        it.id,
        word(it.state),
        it.attempts,
        inline(&it.title, 120),
    )
}

/// The state's word with a sign that needs no colour.
fn word(state: NodeState) -> &'static str {
    match state {
        NodeState::Waiting => "waiting",
        NodeState::Ready => "ready",
        NodeState::Claimed => "claimed",
        NodeState::Working => "working",
        NodeState::Accepted => "✓ accepted",
        NodeState::InReview => "✓ in review",
        NodeState::Landed => "✔ landed",
        NodeState::Satisfied => "✔ nothing to change",
        NodeState::Failed => "✗ failed",
        NodeState::Rejected => "✗ rejected",
        NodeState::Skipped => "skipped",
        NodeState::Blocked => "blocked",
    }
}

/// What depends on what, as a Mermaid graph. Labels hold our own ids and words only.
fn graph(nodes: &[NodeView]) -> String {
    let known: HashSet<&NodeId> = nodes.iter().map(|n| &n.id).collect();
    let prerequisites = |node: &NodeView| -> Vec<NodeId> {
        node.depends_on.iter().filter(|on| known.contains(on)).cloned().collect()
    };
    let needed: HashSet<NodeId> = nodes.iter().flat_map(prerequisites).collect();
    // Nodes that stand alone would only make the picture tall.
    let joined: Vec<&NodeView> =
        nodes.iter().filter(|n| needed.contains(&n.id) || !prerequisites(n).is_empty()).collect();
    if joined.is_empty() {
        return String::new();
    }
    let drawn: HashMap<&NodeId, usize> =
        joined.iter().take(DRAWN).enumerate().map(|(i, n)| (&n.id, i)).collect();
    let mut text = "## Plan\n\n```mermaid\ngraph LR\n".to_owned();
    for (i, node) in joined.iter().take(DRAWN).enumerate() {
        let (id, class) = (&node.id, class(node.state));
        text.push_str(&format!("  n{i}[\"{id}<br/>{}\"]:::{class}\n", word(node.state)));
    }
    let mut edges = 0;
    for (to, node) in joined.iter().take(DRAWN).enumerate() {
        for from in node.depends_on.iter().filter_map(|on| drawn.get(on)) {
            if edges < EDGES {
                text.push_str(&format!("  n{from} --> n{to}\n"));
                edges += 1;
            }
        }
    }
    text.push_str(
        "  classDef done stroke:#1a7f37,stroke-width:2px\n  \
         classDef bad stroke:#cf222e,stroke-width:2px\n  \
         classDef busy stroke:#9a6700,stroke-width:2px\n  \
         classDef idle stroke:#6e7781\n```\n\n",
    );
    if joined.len() > DRAWN {
        text.push_str(&format!("… and {} more nodes, not drawn\n\n", joined.len() - DRAWN));
    }
    let alone = nodes.len() - joined.len();
    if alone > 0 {
        text.push_str(&format!("Not drawn: {} without dependencies.\n\n", count(alone, "node")));
    }
    text
}

fn class(state: NodeState) -> &'static str {
    match state {
        NodeState::Failed | NodeState::Rejected | NodeState::Blocked => "bad",
        NodeState::Claimed | NodeState::Working => "busy",
        NodeState::Waiting | NodeState::Ready | NodeState::Skipped => "idle",
        NodeState::Accepted | NodeState::InReview | NodeState::Landed | NodeState::Satisfied => {
            "done"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::step_summary;
    use crate::report::page::SUMMARY_BUDGET;
    use crate::report::sample;

    #[test]
    fn a_summary_reads_well() {
        insta::assert_snapshot!(step_summary(&sample::run()));
    }

    #[test]
    fn a_mixed_pause_is_told_at_the_top() {
        insta::assert_snapshot!(step_summary(&sample::mixed_pause()));
    }

    #[test]
    fn a_huge_one_fits() {
        let mut view = sample::run();
        view.nodes = (0..10_000).map(|i| view.nodes[i % view.nodes.len()].clone()).collect();
        view.timeline = std::iter::repeat_n(view.timeline[0].clone(), 20_000).collect();
        let text = step_summary(&view);
        assert!(text.len() <= SUMMARY_BUDGET, "{}", text.len());
        assert!(text.contains("more nodes, not drawn"));
    }
}
