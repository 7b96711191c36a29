//! The checks that every plan passes before anything runs, whoever made it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::PlanError;
use super::order::{Writers, topological};
use super::scope::{Protection, Scope, fixed_folder};
use crate::model::{CoveragePlace, FindingId, Node, NodeId, Plan, ScopeEntry};

/// Checks a plan as a graph: unique ids, known dependencies, no cycle, every finding in exactly one
/// place and the counts right, scopes valid and not protected, verify commands present or waived,
/// and an order between nodes whose scopes overlap (globs count as the folder they start with).
///
/// # Errors
/// The first violation.
pub fn validate(plan: &Plan) -> Result<(), PlanError> {
    if plan.version != 1 {
        return Err(PlanError::Version(plan.version));
    }
    let mut index: HashMap<&NodeId, usize> = HashMap::with_capacity(plan.nodes.len());
    for (position, node) in plan.nodes.iter().enumerate() {
        if index.insert(&node.id, position).is_some() {
            return Err(PlanError::DuplicateId(node.id.to_string()));
        }
    }
    // Lockfiles and the policy's own globs are the planner's business: a plan does not carry them.
    let protection = Protection::new(&[], true)?;
    for node in &plan.nodes {
        check_node(node, &protection)?;
    }
    check_coverage(plan)?;
    check_graph(plan, &index)
}

fn check_node(node: &Node, protection: &Protection) -> Result<(), PlanError> {
    let id = || node.id.to_string();
    if node.findings.is_empty() {
        return Err(PlanError::Empty { node: id(), what: "finding" });
    }
    if node.writes.is_empty() {
        return Err(PlanError::Empty { node: id(), what: "write scope" });
    }
    let scope = Scope::new(&node.writes)?;
    if let Some(entry) = node.writes.iter().find(|entry| protection.covers_entry(entry)) {
        let path = match entry {
            ScopeEntry::Glob(text) => text,
            other => fixed_folder(other),
        };
        return Err(PlanError::Protected { node: id(), path: path.to_owned() });
    }
    if let Some(path) = node.creates.iter().find(|path| !scope.matches(path.as_str().as_bytes())) {
        return Err(PlanError::CreatesOutside { node: id(), path: path.to_string() });
    }
    let waived = node.verify_waived.as_deref().is_some_and(|reason| !reason.trim().is_empty());
    if node.verify.is_empty() && !waived {
        return Err(PlanError::Unverified(id()));
    }
    if node.verify.iter().any(|c| c.argv.first().is_none_or(String::is_empty)) {
        return Err(PlanError::Empty { node: id(), what: "program in a verify command" });
    }
    Ok(())
}

fn check_coverage(plan: &Plan) -> Result<(), PlanError> {
    let mut homes: BTreeMap<&FindingId, Vec<&NodeId>> = BTreeMap::new();
    for finding in &plan.findings {
        if homes.insert(&finding.id, Vec::new()).is_some() {
            return Err(PlanError::DuplicateId(finding.id.to_string()));
        }
    }
    for node in &plan.nodes {
        for finding in &node.findings {
            homes
                .get_mut(finding)
                .ok_or_else(|| PlanError::UnknownDependency {
                    dependent: node.id.to_string(),
                    missing: finding.to_string(),
                })?
                .push(&node.id);
        }
    }
    let mut in_nodes = 0;
    for finding in &plan.findings {
        let homes = homes.get(&finding.id).map(Vec::as_slice).unwrap_or_default();
        let table = plan.coverage.places.get(&finding.id);
        let right = match (homes, &finding.dropped, table) {
            ([home], None, Some(CoveragePlace::Node(told))) => {
                in_nodes += 1;
                *home == told
            }
            ([], Some(reason), Some(CoveragePlace::Dropped(told))) => reason == told,
            _ => false,
        };
        if !right {
            let mut places: Vec<String> = homes.iter().map(ToString::to_string).collect();
            places.extend(finding.dropped.as_ref().map(|_| "dropped".to_owned()));
            let places =
                if places.is_empty() { "no place".to_owned() } else { places.join(" and ") };
            return Err(PlanError::Coverage { finding: finding.id.to_string(), places });
        }
    }
    let table = &plan.coverage;
    let total = plan.findings.len();
    let dropped = total - in_nodes;
    if table.total != total
        || table.in_nodes != in_nodes
        || table.dropped != dropped
        || table.places.len() != total
    {
        return Err(PlanError::Counts(format!(
            "{total} findings are {in_nodes} in nodes and {dropped} dropped, but the table says {}, {} and {}",
            table.total, table.in_nodes, table.dropped
        )));
    }
    Ok(())
}

fn check_graph(plan: &Plan, index: &HashMap<&NodeId, usize>) -> Result<(), PlanError> {
    let mut before: Vec<Vec<usize>> = Vec::with_capacity(plan.nodes.len());
    for node in &plan.nodes {
        let named = node.depends_on.iter().chain(&node.after).map(|id| {
            index.get(id).copied().ok_or_else(|| PlanError::UnknownDependency {
                dependent: node.id.to_string(),
                missing: id.to_string(),
            })
        });
        let mut list = named.collect::<Result<Vec<_>, _>>()?;
        list.sort_unstable();
        list.dedup();
        before.push(list);
    }
    let sorted = topological(&before).map_err(|cycle| PlanError::Cycle {
        cycle: cycle.into_iter().map(|n| plan.nodes[n].id.to_string()).collect(),
    })?;
    let mut writers = Writers::default();
    for (position, &node) in sorted.iter().enumerate() {
        for earlier in writers.before(&plan.nodes[node].writes, position) {
            let earlier = sorted[earlier];
            if before[node].binary_search(&earlier).is_err() && !waits(&before, node, earlier) {
                let name = |n: usize| plan.nodes[n].id.to_string();
                return Err(PlanError::Unordered(name(earlier), name(node)));
            }
        }
    }
    Ok(())
}

/// True when `node` waits for `earlier` through others.
fn waits(before: &[Vec<usize>], node: usize, earlier: usize) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![node];
    while let Some(at) = open.pop() {
        if at == earlier {
            return true;
        }
        if seen.insert(at) {
            open.extend(&before[at]);
        }
    }
    false
}
