//! The comment about a pause: one template per cause, each with what would end it.

use serde_json::{Value, json};

use crate::ledger::{PauseCause, PauseRecord, PausedNode};

use super::history;
use super::marker;
use super::page::Page;
use super::text::{amount, code, count, hidden_json, inline, minute};
use super::view::{PoolState, PoolView, RunView};

/// The cause's word in the ledger.
pub(super) fn word(cause: PauseCause) -> &'static str {
    match cause {
        PauseCause::BudgetExhausted => "budget_exhausted",
        PauseCause::CapReached => "cap_reached",
        PauseCause::NoCapablePool => "no_capable_pool",
        PauseCause::NoUsablePool => "no_usable_pool",
        PauseCause::JobDeadline => "job_deadline",
        PauseCause::Operator => "operator",
    }
}

/// The pause in one sentence, and what ends it in another.
pub(super) fn sentences(view: &RunView, pause: &PauseRecord) -> (String, String) {
    let n = count(pause.nodes.iter().filter(|n| n.cause == pause.cause).count(), "node");
    let resets = match pause.not_before {
        Some(at) => format!("The earliest reset is at **{}**.", minute(at)),
        None => "No reset time is known.".to_owned(),
    };
    let mut what = match pause.cause {
        PauseCause::BudgetExhausted => {
            format!("Waiting for a quota or budget to come back: {n}. {resets}")
        }
        PauseCause::CapReached => {
            format!("Every fitting pool is full at this moment. Waiting: {n}.")
        }
        PauseCause::NoCapablePool => {
            format!("No available pool fits: {n}. **Waiting will not help.**")
        }
        PauseCause::NoUsablePool => format!("No pool can be used at all. Waiting: {n}."),
        PauseCause::JobDeadline => {
            format!("This job's time was up. Waiting for the next cycle: {n}.")
        }
        PauseCause::Operator => format!(
            "Paused by {} at {}.",
            view.paused_by.as_deref().map_or_else(|| "a person".to_owned(), |p| code(p, 60)),
            minute(pause.first_seen)
        ),
    };
    let others = pause.nodes.iter().filter(|n| n.cause != pause.cause).count();
    if others > 0 {
        what.push_str(&format!(" For other causes, shown below: {}.", count(others, "node")));
    }
    (what, ends(pause.cause, "/overhaul"))
}

/// What ends a pause, a line for each cause that keeps a node; commands begin with `prefix`.
#[must_use]
pub fn remedies(pause: &PauseRecord, prefix: &str) -> Vec<String> {
    let mut causes = vec![pause.cause];
    for node in &pause.nodes {
        if !causes.contains(&node.cause) {
            causes.push(node.cause);
        }
    }
    if let [only] = causes.as_slice() {
        return vec![ends(*only, prefix)];
    }
    causes.into_iter().map(|it| format!("({}) {}", words(it), ends(it, prefix))).collect()
}

/// What ends a pause of one cause.
fn ends(cause: PauseCause, prefix: &str) -> String {
    match cause {
        PauseCause::BudgetExhausted => format!(
            "The next cycle after that goes on by itself. `{prefix} resume` tries at once; \
             `{prefix} budget +5` adds five dollars where the budget is yours."
        ),
        PauseCause::CapReached => "This clears in seconds to minutes; the next cycle goes on by \
                                   itself. Nothing needs to be done."
            .to_owned(),
        PauseCause::NoCapablePool => format!(
            "Add a pool that is large or capable enough, lift an exclusion, or shrink the node; \
             `{prefix} skip <node>` leaves it out."
        ),
        PauseCause::NoUsablePool => format!(
            "Each pool below says why. After fixing one: `{prefix} unsettle <pool>` or `{prefix} \
             resume`."
        ),
        PauseCause::JobDeadline => "Nothing is wrong; the next cycle goes on.".to_owned(),
        PauseCause::Operator => format!("`{prefix} resume` goes on."),
    }
}

/// Why the run is paused, in a few words.
#[must_use]
pub fn words(cause: PauseCause) -> &'static str {
    match cause {
        PauseCause::BudgetExhausted => "waiting for quota or budget",
        PauseCause::CapReached => "every fitting pool is full at this moment",
        PauseCause::NoCapablePool => "no pool is big enough",
        PauseCause::NoUsablePool => "no usable pool",
        PauseCause::JobDeadline => "out of time in this job",
        PauseCause::Operator => "by a person",
    }
}

/// The headline of a pause.
pub(super) fn headline(cause: PauseCause) -> &'static str {
    match cause {
        PauseCause::BudgetExhausted => "Paused: waiting for quota",
        PauseCause::CapReached => "Paused for a moment: every pool is full",
        PauseCause::NoCapablePool => "Stuck: no pool is big enough",
        PauseCause::NoUsablePool => "Stuck: no usable pool",
        PauseCause::JobDeadline => "Paused: out of time in this job",
        PauseCause::Operator => "Paused by command",
    }
}

/// The comment, with its marker; `None` when the run is not paused.
#[must_use]
pub fn pause_comment(view: &RunView) -> Option<String> {
    let pause = view.pause.as_ref()?;
    Some(page(view, pause, &marker::pause(&view.run, pause.cause, pause.first_seen)))
}

/// Title of the issue about one cause.
#[must_use]
pub fn pause_issue_title(view: &RunView, cause: PauseCause) -> String {
    format!("overhaul: {} (run {})", headline(cause), view.run)
}

/// Body of the issue about one cause, with its marker; `pause` holds the nodes of that cause alone.
#[must_use]
pub fn pause_issue(view: &RunView, pause: &PauseRecord) -> String {
    page(view, pause, &marker::pause_issue(&view.run, pause.cause))
}

fn page(view: &RunView, pause: &PauseRecord, marker: &str) -> String {
    let mut page = Page::body();
    page.add(&format!("{marker}\n"));
    let (what, ends) = sentences(view, pause);
    page.add(&format!("### {}\n\n{what}\n\n{ends}\n\n", headline(pause.cause)));
    add_nodes(&mut page, pause);
    add_pools(&mut page, view, pause);
    page.add(&format!("{}\n", hidden_json("pause-data", &data(view, pause))));
    page.finish()
}

/// The nodes, those of the leading cause first.
pub(super) fn add_nodes(page: &mut Page, pause: &PauseRecord) {
    let mixed = pause.nodes.iter().any(|n| n.cause != pause.cause);
    let mut nodes: Vec<&PausedNode> = pause.nodes.iter().collect();
    nodes.sort_by_key(|n| (n.cause != pause.cause, n.cause));
    let (head, cause) = if mixed {
        ("| node&nbsp;&nbsp;&nbsp; | cause | why | not before |\n|---|---|---|---|\n", true)
    } else {
        ("| node&nbsp;&nbsp;&nbsp; | why | not before |\n|---|---|---|\n", false)
    };
    page.add_lines(
        head,
        nodes.into_iter().map(|n| {
            let cause =
                if cause { format!(" {} |", code(word(n.cause), 30)) } else { String::new() };
            let at = n.not_before.map_or_else(|| "—".to_owned(), minute);
            format!("| {} |{cause} {} | {at} |\n", n.node, inline(&n.reason, 300))
        }),
        "nodes",
        50,
    );
}

/// The pools that matter to the cause.
pub(super) fn add_pools(page: &mut Page, view: &RunView, pause: &PauseRecord) {
    let all = matches!(pause.cause, PauseCause::NoUsablePool | PauseCause::NoCapablePool);
    if !matches!(pause.cause, PauseCause::JobDeadline | PauseCause::Operator) {
        page.add_lines(
            "| pool | state | back | context | why |\n|---|---|---|---|---|\n",
            view.pools.iter().filter(|p| all || p.state != PoolState::Usable).map(pool_row),
            "pools",
            80,
        );
    }
}

/// A row of the quota calendar.
pub(super) fn pool_row(it: &PoolView) -> String {
    let (state, back, why) = match &it.state {
        PoolState::Usable => {
            let note = it.note.as_deref().unwrap_or("");
            ("usable", String::new(), inline(note, 300))
        }
        PoolState::Paused { until, outcome, evidence } => {
            ("waits", minute(*until), reason(history::word(outcome), evidence))
        }
        PoolState::Settled { until, outcome, evidence } => (
            "out",
            until.map_or_else(|| "when a person acts".to_owned(), minute),
            reason(history::word(outcome), evidence),
        ),
        PoolState::Excluded => ("excluded", "by configuration".to_owned(), String::new()),
        PoolState::Unreachable { reason } => {
            ("unreachable", "when fixed".to_owned(), inline(reason, 300))
        }
    };
    let id = code(&it.id.0, 100);
    format!("| {id} | {state} | {back} | {} | {why} |\n", amount(it.context_tokens))
}

fn reason(word: String, evidence: &str) -> String {
    let evidence = inline(evidence, 300);
    if evidence.is_empty() { word } else { format!("{word}: {evidence}") }
}

/// The same for machines.
fn data(view: &RunView, pause: &PauseRecord) -> Value {
    /// More would not help a reader and could crowd out the text.
    const NODES: usize = 200;
    json!({
        "run": view.run,
        "cause": pause.cause,
        "not-before": pause.not_before,
        "first-seen": pause.first_seen,
        "node-count": pause.nodes.len(),
        "nodes": pause.nodes.iter().take(NODES).map(|n| json!({
            "node": n.node,
            "cause": n.cause,
            "not-before": n.not_before,
        })).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::pause_comment;
    use crate::ledger::PauseCause;
    use crate::report::page::BODY_BUDGET;
    use crate::report::sample;

    #[test]
    fn every_cause_says_what_ends_it() {
        let causes = [
            PauseCause::BudgetExhausted,
            PauseCause::CapReached,
            PauseCause::NoCapablePool,
            PauseCause::NoUsablePool,
            PauseCause::JobDeadline,
            PauseCause::Operator,
        ];
        let all: Vec<String> = causes
            .into_iter()
            .map(|cause| pause_comment(&sample::paused(cause)).unwrap())
            .collect();
        insta::assert_snapshot!(all.join("\n\n====\n\n"));
    }

    #[test]
    fn an_issue_is_about_one_cause() {
        let view = sample::mixed_pause();
        let mut pause = view.pause.clone().unwrap();
        pause.nodes.retain(|node| node.cause == PauseCause::NoCapablePool);
        pause.cause = PauseCause::NoCapablePool;
        let title = super::pause_issue_title(&view, pause.cause);
        insta::assert_snapshot!(format!("{title}\n====\n{}", super::pause_issue(&view, &pause)));
    }

    #[test]
    fn mixed_causes_stay_apart() {
        insta::assert_snapshot!(pause_comment(&sample::mixed_pause()).unwrap());
    }

    #[test]
    fn ten_thousand_nodes_fit_and_the_data_is_there() {
        let mut view = sample::paused(PauseCause::NoCapablePool);
        if let Some(pause) = &mut view.pause {
            pause.nodes = std::iter::repeat_n(pause.nodes[0].clone(), 10_000).collect();
        }
        let text = pause_comment(&view).unwrap();
        assert!(text.chars().count() <= BODY_BUDGET);
        assert!(text.contains("more nodes") && text.contains("\"node-count\":10000"));
    }
}
