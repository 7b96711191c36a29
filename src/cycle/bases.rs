//! What an attempt starts from: the base branch plus the accepted work it builds on.

use std::collections::BTreeSet;

use crate::git::{Oid, Repo, parse_oid};
use crate::ledger::{Landing, PrEnd, Run};
use crate::model::{Node, NodeId};
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
    /// A generated merge of several accepted nodes: needs a generated branch.
    Generated {
        /// The merge commit.
        commit: Oid,
        /// The nodes in it.
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
}

/// Accepted nodes, not merged yet, that `node` must be built on.
#[must_use]
pub fn builds_on(run: &Run, node: &Node) -> Vec<(NodeId, String)> {
    let record = run.nodes.get(&node.id);
    let conflicts = record.into_iter().flat_map(|r| r.conflicts.iter());
    let wanted: BTreeSet<&NodeId> =
        node.depends_on.iter().chain(&node.after).chain(conflicts).collect();
    let mut found: Vec<(u64, NodeId, String)> = wanted
        .into_iter()
        .filter_map(|id| {
            let record = run.nodes.get(id)?;
            let ended = record.pr.as_ref().and_then(|pr| pr.end.as_ref());
            match (&record.landing, ended) {
                (_, Some(PrEnd::Merged(_) | PrEnd::Closed)) => None,
                (Landing::Accepted { order, receipt, .. }, None) => {
                    Some((*order, id.clone(), receipt.commit.clone()))
                }
                _ => None,
            }
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, id, commit)| (id, commit)).collect()
}

/// The base for the next attempt at `node`.
///
/// # Errors
/// When git fails. Conflicting dependencies are not an error: the ones that do not merge are left
/// out, and integration will say so.
pub fn base_for(
    repo: &Repo,
    run: &Run,
    node: &Node,
    head: Oid,
    at: jiff::Timestamp,
) -> Result<Base, WorkspaceError> {
    let mut tips: Vec<(NodeId, Oid)> = Vec::new();
    for (id, commit) in builds_on(run, node) {
        tips.push((id, parse_oid(&commit)?));
    }
    // A dependency that another one is stacked on is in it already.
    let mut needed: Vec<(NodeId, Oid)> = Vec::new();
    for (index, (id, commit)) in tips.iter().enumerate() {
        let mut covered = false;
        for (other, (_, tip)) in tips.iter().enumerate() {
            if other != index && tip != commit && repo.is_ancestor(*commit, *tip)? {
                covered = true;
            }
        }
        if !covered {
            needed.push((id.clone(), *commit));
        }
    }
    match needed.as_slice() {
        [] => Ok(Base::Branch(head)),
        [(on, commit)] => Ok(Base::Stacked { commit: *commit, on: on.clone() }),
        several => generate(repo, several, at),
    }
}

/// Merges several tips. Those that do not merge with the first ones are left out; integration will
/// say so.
fn generate(
    repo: &Repo,
    tips: &[(NodeId, Oid)],
    at: jiff::Timestamp,
) -> Result<Base, WorkspaceError> {
    let mut of: Vec<NodeId> = Vec::new();
    let mut tip: Option<Oid> = None;
    for (id, commit) in tips {
        let Some(so_far) = tip else {
            (tip, of) = (Some(*commit), vec![id.clone()]);
            continue;
        };
        let names: Vec<&str> = of.iter().chain([id]).map(NodeId::as_str).collect();
        let message = format!("Base of work on {}\n", names.join(", "));
        let merged = stacked_base(repo, &[so_far, *commit], &message, at)?;
        if let Integrated::Merged { commit, .. } = merged {
            of.push(id.clone());
            tip = Some(commit);
        }
    }
    match (tip, of.as_slice()) {
        (Some(commit), [on]) => Ok(Base::Stacked { commit, on: on.clone() }),
        (Some(commit), _) => Ok(Base::Generated { commit, of }),
        (None, _) => Err(WorkspaceError::Empty),
    }
}
