//! The dependency graph by index.

use std::collections::HashMap;

use super::{Millis, NodeSpec};
use crate::model::NodeId;

/// Why nodes and pools cannot be scheduled at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// Two nodes with one id.
    #[error("node '{0}' appears twice")]
    DuplicateNode(NodeId),
    /// Two pools with one id.
    #[error("pool '{0}' appears twice")]
    DuplicatePool(crate::model::PoolId),
    /// A dependency on nothing: fails closed.
    #[error("node '{node}' depends on '{dependency}', which is not in the plan")]
    UnknownDependency {
        /// The node.
        node: NodeId,
        /// What it names.
        dependency: NodeId,
    },
    /// The dependencies form a circle.
    #[error("the dependencies form a circle through '{0}'")]
    Cycle(NodeId),
}

/// An edge to a dependent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Edge {
    pub(super) to: u32,
    pub(super) hard: bool,
}

/// Nodes are numbered in the order of their ids, so that index order is id order.
#[derive(Debug, Clone)]
pub(super) struct Graph {
    pub(super) dependents: Vec<Vec<Edge>>,
    pub(super) dependencies: Vec<Vec<u32>>,
    pub(super) neighbours: Vec<Vec<u32>>,
    /// Dependencies before dependents.
    pub(super) order: Vec<u32>,
}

/// Neighbours looked at for continuity; more would cost without telling more.
const NEIGHBOURS_MAX: usize = 8;

impl Graph {
    /// `specs` sorted by id.
    pub(super) fn new(specs: &[NodeSpec]) -> Result<Self, ScheduleError> {
        let mut index: HashMap<&NodeId, u32> = HashMap::with_capacity(specs.len());
        for (ix, spec) in (0u32..).zip(specs) {
            if index.insert(&spec.id, ix).is_some() {
                return Err(ScheduleError::DuplicateNode(spec.id.clone()));
            }
        }
        let mut dependents: Vec<Vec<Edge>> = vec![Vec::new(); specs.len()];
        let mut dependencies: Vec<Vec<u32>> = vec![Vec::new(); specs.len()];
        let mut neighbours: Vec<Vec<u32>> = vec![Vec::new(); specs.len()];
        for (ix, spec) in (0u32..).zip(specs) {
            let at = ix as usize;
            let hard = spec.depends_on.iter().map(|d| (d, true));
            for (dependency, hard) in hard.chain(spec.after.iter().map(|d| (d, false))) {
                let Some(&from) = index.get(dependency) else {
                    return Err(ScheduleError::UnknownDependency {
                        node: spec.id.clone(),
                        dependency: dependency.clone(),
                    });
                };
                dependents[from as usize].push(Edge { to: ix, hard });
                dependencies[at].push(from);
            }
            neighbours[at] = dependencies[at]
                .iter()
                .copied()
                .chain(spec.neighbours.iter().filter_map(|n| index.get(n).copied()))
                .take(NEIGHBOURS_MAX)
                .collect();
        }
        let order = topological(&dependents, &dependencies)
            .map_err(|stuck| ScheduleError::Cycle(specs[stuck as usize].id.clone()))?;
        Ok(Self { dependents, dependencies, neighbours, order })
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Longest remaining path from each node's start to the end, own length included.
    pub(super) fn remaining(&self, length: impl Fn(usize) -> Millis) -> Vec<Millis> {
        let mut path = vec![0; self.len()];
        for &ix in self.order.iter().rev() {
            let at = ix as usize;
            let tail = self.dependents[at].iter().map(|e| path[e.to as usize]).max().unwrap_or(0);
            path[at] = length(at).saturating_add(tail);
        }
        path
    }
}

fn topological(dependents: &[Vec<Edge>], dependencies: &[Vec<u32>]) -> Result<Vec<u32>, u32> {
    let mut left: Vec<usize> = dependencies.iter().map(Vec::len).collect();
    let mut order: Vec<u32> =
        (0u32..).zip(&left).filter(|(_, n)| **n == 0).map(|(ix, _)| ix).collect();
    let mut at = 0;
    while let Some(&ix) = order.get(at) {
        at += 1;
        for edge in &dependents[ix as usize] {
            let n = &mut left[edge.to as usize];
            *n -= 1;
            if *n == 0 {
                order.push(edge.to);
            }
        }
    }
    match (0u32..).zip(&left).find(|(_, n)| **n > 0) {
        Some((stuck, _)) => Err(stuck),
        None => Ok(order),
    }
}
