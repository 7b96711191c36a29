//! What an attempt starts from: the base branch plus the accepted work it builds on.

use std::collections::{BTreeMap, BTreeSet};

use crate::git::{Oid, Repo, parse_oid};
use crate::ledger::{Landing, NodeState, PrEnd, Run};
use crate::model::{Node, NodeId, Plan};
use crate::workspace::{Integrated, WorkspaceError, stacked_base};

/// Where an attempt starts, and so what its pull request is against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// The base branch itself.
    Branch(Oid),
    /// The commit of one accepted node: a stacked pull request.
    Stacked {
        /// The commit.
        commit: Oid,
        /// The node whose branch it is.
        on: NodeId,
    },
    /// A generated merge of several commits: needs a generated branch.
    Generated {
        /// The merge commit.
        commit: Oid,
        /// The accepted nodes in it.
        of: Vec<NodeId>,
    },
}

impl Base {
    /// The commit.
    #[must_use]
    pub fn commit(&self) -> Oid {
        match self {
            Self::Branch(commit)
            | Self::Stacked { commit, .. }
            | Self::Generated { commit, .. } => *commit,
        }
    }

    /// The accepted nodes that it holds beside the base branch.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeId> {
        match self {
            Self::Branch(_) => Vec::new(),
            Self::Stacked { on, .. } => vec![on.clone()],
            Self::Generated { of, .. } => of.clone(),
        }
    }
}

/// What a node is built on beside the base branch.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ground {
    /// Commits that people merged. Work on an older base does not have them.
    landed: Vec<String>,
    /// Accepted and not merged yet, in the order of acceptance.
    accepted: Vec<(u64, NodeId, String)>,
}

/// Nodes whose order matters to `node`. Whose own work is accepted builds on what it needs, and of
/// the others only on what was accepted before it, or two nodes could build on each other.
fn wanted<'a>(run: &'a Run, node: &'a Node) -> BTreeSet<&'a NodeId> {
    let record = run.nodes.get(&node.id);
    let own = record.and_then(|r| order(&r.landing));
    let conflicts = record.into_iter().flat_map(|r| r.conflicts.iter());
    let earlier = |id: &&NodeId| match (own, run.nodes.get(*id).and_then(|r| order(&r.landing))) {
        (Some(own), Some(other)) => other < own,
        _ => true,
    };
    node.depends_on.iter().chain(node.after.iter().chain(conflicts).filter(earlier)).collect()
}

fn order(landing: &Landing) -> Option<u64> {
    match landing {
        Landing::Accepted { order, .. } => Some(*order),
        _ => None,
    }
}

fn ground(run: &Run, node: &Node) -> Ground {
    let mut ground = Ground::default();
    for id in wanted(run, node) {
        let Some(record) = run.nodes.get(id) else { continue };
        let ended = record.pr.as_ref().and_then(|pr| pr.end.as_ref());
        match (&record.landing, ended) {
            (_, Some(PrEnd::Merged(commit))) => ground.landed.push(commit.clone()),
            (Landing::Accepted { order, receipt, .. }, None) => {
                ground.accepted.push((*order, id.clone(), receipt.commit.clone()));
            }
            _ => {}
        }
    }
    ground.accepted.sort();
    ground
}

/// Accepted nodes that build on work which is being done again: what they are on will change, so
/// they wait as they are.
#[must_use]
pub fn unsettled(run: &Run, plan: &Plan, states: &BTreeMap<NodeId, NodeState>) -> BTreeSet<NodeId> {
    let open = |id: &NodeId| {
        let again = run.nodes.get(id).is_some_and(|r| r.reopened.is_some());
        again && states.get(id).is_some_and(|s| !s.is_done() && !s.is_final())
    };
    let mut found: BTreeSet<NodeId> = BTreeSet::new();
    loop {
        let before = found.len();
        for node in &plan.nodes {
            let accepted =
                matches!(states.get(&node.id), Some(NodeState::Accepted | NodeState::InReview));
            if accepted && wanted(run, node).iter().any(|id| open(id) || found.contains(*id)) {
                found.insert(node.id.clone());
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

/// The nodes that need `node`, directly or through others.
#[must_use]
pub fn built_on(plan: &Plan, node: &NodeId) -> BTreeSet<NodeId> {
    let mut found = BTreeSet::from([node.clone()]);
    // Plans are in topological order.
    for other in &plan.nodes {
        if other.depends_on.iter().any(|id| found.contains(id)) {
            found.insert(other.id.clone());
        }
    }
    found.remove(node);
    found
}

/// The base for the next attempt at `node`, or for its accepted work.
///
/// # Errors
/// When git fails. Conflicting dependencies are not an error: the ones that do not merge are left
/// out, and integration will say so.
pub fn base_for(repo: &Repo, run: &Run, node: &Node, head: Oid) -> Result<Base, WorkspaceError> {
    let ground = ground(run, node);
    if ground.accepted.is_empty() {
        return Ok(Base::Branch(head));
    }
    let mut tips: Vec<(Option<NodeId>, Oid)> = Vec::new();
    for commit in &ground.landed {
        let commit = parse_oid(commit)?;
        if repo.has(commit) {
            tips.push((None, commit));
        }
    }
    for (_, id, commit) in &ground.accepted {
        tips.push((Some(id.clone()), parse_oid(commit)?));
    }
    // What another one is built on is in it already.
    let mut needed: Vec<(Option<NodeId>, Oid)> = Vec::new();
    for (index, (id, commit)) in tips.iter().enumerate() {
        let mut covered = false;
        for (other, (_, tip)) in tips.iter().enumerate() {
            let twin = tip == commit && other < index;
            if other != index && (twin || tip != commit && repo.is_ancestor(*commit, *tip)?) {
                covered = true;
            }
        }
        if !covered {
            needed.push((id.clone(), *commit));
        }
    }
    match needed.as_slice() {
        [(Some(on), commit)] => Ok(Base::Stacked { commit: *commit, on: on.clone() }),
        // The nodes are in what people merged.
        all if all.iter().all(|(id, _)| id.is_none()) => Ok(Base::Branch(head)),
        several => generate(repo, several, head),
    }
}

/// Merges several tips; the same ones give the same commit. Those that do not merge with the first
/// ones are left out; integration will say so.
fn generate(
    repo: &Repo,
    tips: &[(Option<NodeId>, Oid)],
    head: Oid,
) -> Result<Base, WorkspaceError> {
    let mut newest = 0;
    for (_, commit) in tips {
        newest = newest.max(repo.time_of(*commit)?);
    }
    let at = jiff::Timestamp::from_second(newest).unwrap_or_default();
    let mut of: Vec<NodeId> = Vec::new();
    let mut tip: Option<Oid> = None;
    let mut merged_any = false;
    for (id, commit) in tips {
        if let Some(so_far) = tip {
            let names: Vec<&str> = of.iter().chain(id).map(NodeId::as_str).collect();
            let message = format!("Base of work on {}\n", names.join(", "));
            match stacked_base(repo, &[so_far, *commit], &message, at)? {
                Integrated::Merged { commit, .. } => {
                    tip = Some(commit);
                    merged_any = true;
                }
                _ => continue,
            }
        } else {
            tip = Some(*commit);
        }
        of.extend(id.clone());
    }
    match (tip, of.as_slice()) {
        (Some(commit), [on]) if !merged_any => Ok(Base::Stacked { commit, on: on.clone() }),
        (Some(commit), [_, ..]) => Ok(Base::Generated { commit, of }),
        (Some(_), []) => Ok(Base::Branch(head)),
        (None, _) => Err(WorkspaceError::Empty),
    }
}
