//! Work that no command of the repository proves. It is not refused for that, and never silent:
//! people are told what to look at more closely, and how to have it looked at by a machine.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::config::Config;
use crate::ledger::{Landing, NodeState, Run};
use crate::model::{Node, NodeId, Plan};

/// What people should know although nothing failed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Warning {
    /// One sentence.
    pub text: String,
    /// One sentence.
    pub remedy: String,
}

/// Of a run: what is to come, and what waits for people.
pub(super) fn warnings(
    config: &Config,
    plan: &Plan,
    run: &Run,
    states: &BTreeMap<NodeId, NodeState>,
) -> Vec<Warning> {
    let open = |node: &&Node| states.get(&node.id).is_none_or(|state| !state.is_final());
    let nodes: Vec<&Node> = plan.nodes.iter().filter(open).collect();
    let mut all: Vec<Warning> = without_command(config, &nodes).into_iter().collect();
    all.extend(broken_on_base(run, &nodes));
    all
}

/// Of a plan that is not begun.
pub(super) fn of_plan(config: &Config, plan: &Plan) -> Option<Warning> {
    without_command(config, &plan.nodes.iter().collect::<Vec<_>>())
}

fn without_command(config: &Config, nodes: &[&Node]) -> Option<Warning> {
    // A reason in the configuration is a person's decision.
    if config.verify.waive.is_some() {
        return None;
    }
    let bare: Vec<&Node> = nodes.iter().copied().filter(|node| node.verify.is_empty()).collect();
    let why = bare.first()?.verify_waived.as_deref().unwrap_or("no check is configured for it");
    let names: Vec<&NodeId> = bare.iter().map(|node| &node.id).collect();
    Some(Warning {
        text: format!(
            "no command verifies {} of {} open nodes ({}): {why}",
            bare.len(),
            nodes.len(),
            listed(&names)
        ),
        remedy: "declare `verify.commands`, or say in `verify.waive` why none is needed".to_owned(),
    })
}

/// A command that fails with the change and without it says nothing about the change.
fn broken_on_base(run: &Run, nodes: &[&Node]) -> Vec<Warning> {
    let mut by_command: BTreeMap<&str, Vec<&NodeId>> = BTreeMap::new();
    for node in nodes {
        let Some(Landing::Accepted { receipt, .. }) = run.nodes.get(&node.id).map(|n| &n.landing)
        else {
            continue;
        };
        for check in receipt.checks.iter().filter(|check| check.says_nothing()) {
            by_command.entry(&check.name).or_default().push(&node.id);
        }
    }
    let warning = |(name, nodes): (&str, Vec<&NodeId>)| Warning {
        text: format!(
            "verify command `{name}` fails on the base too, so it proves nothing of {}",
            listed(&nodes)
        ),
        remedy: "repair the base branch, or drop the command from `verify`".to_owned(),
    };
    by_command.into_iter().map(warning).collect()
}

/// The first few.
fn listed(nodes: &[&NodeId]) -> String {
    const SHOWN: usize = 5;
    let first: Vec<&str> = nodes.iter().take(SHOWN).map(|id| id.as_str()).collect();
    let more = nodes.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", first.join(", "))
}
