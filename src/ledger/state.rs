//! The state of every node, computed from the log and the plan and stored nowhere.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::record::{Landing, NodeRecord, PrEnd};
use super::run::Run;
use crate::model::{Node, NodeId, Plan};

/// A node's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// A prerequisite is not there yet.
    Waiting,
    /// Can be claimed.
    Ready,
    /// Has an owner.
    Claimed,
    /// Its worker was called.
    Working,
    /// Verified on its final tree and integrated.
    Accepted,
    /// Its pull request is open.
    InReview,
    /// Merged. Final.
    Landed,
    /// Nothing to change, proven. Final.
    Satisfied,
    /// Attempt budget spent.
    Failed,
    /// Its pull request was closed unmerged.
    Rejected,
    /// Skipped by a person. Final.
    Skipped,
    /// A prerequisite is failed, rejected, skipped or blocked.
    Blocked,
}

impl NodeState {
    /// Nothing more will happen by itself.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(
            self,
            Self::Landed
                | Self::Satisfied
                | Self::Failed
                | Self::Rejected
                | Self::Skipped
                | Self::Blocked
        )
    }

    /// Its result can be built on.
    #[must_use]
    pub fn is_done(self) -> bool {
        matches!(self, Self::Accepted | Self::InReview | Self::Landed | Self::Satisfied)
    }
}

/// How many attempts a node has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptBudget {
    /// Failures of the node itself.
    pub contract: u32,
    /// Failures of the world.
    pub infrastructure: u32,
}

impl Default for AttemptBudget {
    fn default() -> Self {
        Self { contract: 2, infrastructure: 5 }
    }
}

/// When dependents may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DependsOn {
    /// On an accepted prerequisite (the dependent is stacked on it).
    #[default]
    Accepted,
    /// Only on a merged one.
    Landed,
}

/// Every node's state. Nodes of the log that the plan does not know are left out.
#[must_use]
pub fn node_states(
    run: &Run,
    plan: &Plan,
    budget: AttemptBudget,
    depends: DependsOn,
) -> BTreeMap<NodeId, NodeState> {
    let by_id: HashMap<&NodeId, &Node> = plan.nodes.iter().map(|n| (&n.id, n)).collect();
    let mut states: BTreeMap<NodeId, NodeState> = BTreeMap::new();
    // Iterative depth-first walk: plans come validated (acyclic), but a deep chain must not
    // overflow the stack, and a cycle from a hand-made plan must end (its nodes stay waiting).
    let mut visiting: BTreeMap<&NodeId, bool> = BTreeMap::new();
    for root in &plan.nodes {
        let mut stack = vec![&root.id];
        while let Some(id) = stack.last().copied() {
            let Some(node) = by_id.get(id) else {
                stack.pop();
                continue;
            };
            if states.contains_key(id) {
                stack.pop();
                continue;
            }
            let expanded = visiting.insert(id, true).is_some();
            if !expanded {
                let open = node.depends_on.iter().chain(&node.after);
                stack.extend(open.filter(|d| !states.contains_key(*d)));
                continue;
            }
            stack.pop();
            let state = own_state(run.nodes.get(id), budget)
                .unwrap_or_else(|| from_dependencies(run.nodes.get(id), node, &states, depends));
            states.insert(id.clone(), state);
        }
    }
    if run.cancelled.is_some() {
        // Nothing more is started: what was not begun is over, and the run can end.
        let open = |state: &&mut NodeState| matches!(state, NodeState::Ready | NodeState::Waiting);
        states.values_mut().filter(open).for_each(|state| *state = NodeState::Skipped);
    }
    states
}

/// The state that the node's own record decides, if it does.
fn own_state(record: Option<&NodeRecord>, budget: AttemptBudget) -> Option<NodeState> {
    let record = record?;
    let end = record.pr.as_ref().and_then(|pr| pr.end.as_ref());
    match record.landing {
        // Merged is merged, whatever was under way: a person's word is the last one.
        _ if matches!(end, Some(PrEnd::Merged(_))) => return Some(NodeState::Landed),
        // Its pull request, if there is one, has nothing left to say.
        Landing::Satisfied { .. } => return Some(NodeState::Satisfied),
        _ if end == Some(&PrEnd::Closed) => return Some(NodeState::Rejected),
        Landing::Accepted { .. } => {
            let open = record.pr.as_ref().is_some_and(|pr| pr.end.is_none());
            return Some(if open { NodeState::InReview } else { NodeState::Accepted });
        }
        Landing::None => {}
    }
    if record.skipped.is_some() {
        return Some(NodeState::Skipped);
    }
    if let Some(claim) = &record.claim {
        return Some(if claim.started.is_some() { NodeState::Working } else { NodeState::Claimed });
    }
    if record.contract_burnt >= budget.contract
        || record.infrastructure_burnt >= budget.infrastructure
    {
        return Some(NodeState::Failed);
    }
    None
}

fn from_dependencies(
    record: Option<&NodeRecord>,
    node: &Node,
    states: &BTreeMap<NodeId, NodeState>,
    depends: DependsOn,
) -> NodeState {
    let mut ready = true;
    for id in &node.depends_on {
        match states.get(id) {
            // Unknown dependencies fail closed.
            None => return NodeState::Blocked,
            Some(s) if s.is_done() => {
                if depends == DependsOn::Landed
                    && !matches!(s, NodeState::Landed | NodeState::Satisfied)
                {
                    ready = false;
                }
            }
            Some(s) if s.is_final() => return NodeState::Blocked,
            Some(_) => ready = false,
        }
    }
    let conflicts = record.into_iter().flat_map(|r| r.conflicts.iter());
    for id in node.after.iter().chain(conflicts) {
        // Order only: any end will do; a node that is not in the plan orders nothing.
        if let Some(state) = states.get(id)
            && !state.is_done()
            && !state.is_final()
        {
            ready = false;
        }
    }
    if ready { NodeState::Ready } else { NodeState::Waiting }
}
