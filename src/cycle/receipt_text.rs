//! Title and body of a node's pull request, from the ledger and the plan.

use super::context::Cycle;
use super::names;
use crate::ledger::{Receipt, Run};
use crate::model::Node;

/// What a pull request says.
pub(super) struct Text {
    pub title: String,
    pub body: String,
}

pub(super) fn pull_request(cycle: &Cycle, _run: &Run, node: &Node, receipt: &Receipt) -> Text {
    let marker = names::pull_request_marker(cycle.run_id(), &node.id);
    Text { title: node.title.clone(), body: format!("{marker}\n\n{}\n", receipt.summary) }
}
