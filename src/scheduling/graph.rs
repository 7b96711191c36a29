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
    #[error("the dependencies form a circle: {}", circle(.0))]
    Cycle(Vec<NodeId>),
}

/// Nodes of a circle that are named.
const NAMED: usize = 8;

fn circle(nodes: &[NodeId]) -> String {
    let mut text: Vec<String> = nodes.iter().take(NAMED).map(ToString::to_string).collect();
    if nodes.len() > NAMED {
        text.push(format!("{} more", nodes.len() - NAMED));
    }
    text.extend(nodes.first().map(ToString::to_string));
    text.join(" needs ")
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
        let order = topological(&dependents, &dependencies).map_err(|nodes| {
            ScheduleError::Cycle(nodes.iter().map(|&ix| specs[ix as usize].id.clone()).collect())
        })?;
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

/// Dependencies first; the nodes of a circle otherwise, each before one that it needs.
fn topological(dependents: &[Vec<Edge>], dependencies: &[Vec<u32>]) -> Result<Vec<u32>, Vec<u32>> {
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
    let Some((mut at, _)) = (0u32..).zip(&left).find(|(_, n)| **n > 0) else { return Ok(order) };
    // What is left has a dependency that is left too: going back must come round.
    let mut path: Vec<u32> = Vec::new();
    let mut place: HashMap<u32, usize> = HashMap::new();
    loop {
        if let Some(&from) = place.get(&at) {
            return Err(path.split_off(from));
        }
        place.insert(at, path.len());
        path.push(at);
        match dependencies[at as usize].iter().find(|&&d| left[d as usize] > 0) {
            Some(&next) => at = next,
            None => return Err(path),
        }
    }
}
