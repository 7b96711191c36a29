//! What others ask of a folded run.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::event::{PauseCause, Receipt};
use super::record::{Landing, Made};
use super::run::Run;
use crate::model::{FindingId, NodeId, OwnerToken};

impl Run {
    /// Whether a person paused it: nothing new is started until a person resumes it.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.pause.as_ref().is_some_and(|pause| pause.cause == PauseCause::Operator)
    }

    /// Whether this owner holds the node now: the fence that every landing passes.
    #[must_use]
    pub fn is_owned(&self, node: &NodeId, owner: &OwnerToken) -> bool {
        self.nodes.get(node).and_then(|n| n.claim.as_ref()).is_some_and(|c| &c.owner == owner)
    }

    /// What we made since then.
    #[must_use]
    pub fn made_since(&self, since: Timestamp, what: Made) -> usize {
        self.made.iter().filter(|(at, made)| *at > since && *made == what).count()
    }

    /// Whether this command line of this comment text was acted on.
    #[must_use]
    pub fn is_command_done(&self, comment: u64, body_digest: &str, line: u32) -> bool {
        self.commands.contains(&command_key(comment, body_digest, line))
    }

    /// Accepted nodes in the order of acceptance.
    #[must_use]
    pub fn accepted_in_order(&self) -> Vec<(&NodeId, &Receipt)> {
        let mut list: Vec<(u64, &NodeId, &Receipt)> = self
            .nodes
            .iter()
            .filter_map(|(id, n)| match &n.landing {
                Landing::Accepted { order, receipt, .. } => Some((*order, id, &**receipt)),
                _ => None,
            })
            .collect();
        list.sort_by_key(|(order, ..)| *order);
        list.into_iter().map(|(_, id, receipt)| (id, receipt)).collect()
    }

    /// Findings that are resolved: only by a recorded landing.
    #[must_use]
    pub fn resolved(&self) -> BTreeSet<&FindingId> {
        self.nodes
            .values()
            .filter_map(|n| match &n.landing {
                Landing::Accepted { receipt, .. } => Some(receipt.resolved.iter()),
                _ => None,
            })
            .flatten()
            .collect()
    }
}

/// The key of a command that was acted on.
pub(super) fn command_key(comment: u64, body_digest: &str, line: u32) -> String {
    format!("{comment}:{body_digest}:{line}")
}
