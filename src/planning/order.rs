//! Explicit dependencies first, then overlap: nodes that may write one file wait for each other.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap};

use super::PlanError;
use super::estimate::{Checkout, output_tokens};
use super::group::Group;
use super::place::name;
use super::scope::fixed_folder;
use super::verify::Verifier;
use crate::model::{Finding, Node, NodeId, ScopeEntry, Severity, Tier};

/// Files from which on a node counts as wide.
const WIDE: usize = 4;

/// Makes the nodes, in topological order, lowest input index first.
pub(super) fn order(
    groups: Vec<Group>,
    findings: &[Finding],
    checkout: &Checkout,
    verify: &Verifier,
) -> Result<Vec<Node>, PlanError> {
    let home: HashMap<usize, usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(group, g)| g.findings.iter().map(move |finding| (*finding, group)))
        .collect();
    let depends: Vec<Vec<usize>> = groups
        .iter()
        .map(|g| g.depends_on.iter().filter_map(|finding| home.get(finding).copied()).collect())
        .collect();
    let sorted = topological(&depends).map_err(|cycle| PlanError::Cycle {
        cycle: cycle.into_iter().map(|g| name(&findings[groups[g].findings[0]])).collect(),
    })?;
    let mut ids: Vec<Option<NodeId>> = vec![None; groups.len()];
    for (position, group) in sorted.iter().enumerate() {
        ids[*group] = Some(NodeId::new(format!("N-{:03}", position + 1))?);
    }
    let id = |group: usize| ids[group].clone();
    let mut writers = Writers::default();
    let mut nodes: Vec<Node> = Vec::with_capacity(groups.len());
    for &index in &sorted {
        let group = &groups[index];
        let before = writers.before(&group.writes, nodes.len());
        let after = before
            .into_iter()
            .map(|position| nodes[position].id.clone())
            .filter(|node| !depends[index].iter().any(|d| id(*d).as_ref() == Some(node)))
            .collect();
        let Some(own) = id(index) else { continue };
        nodes.push(node(
            group,
            own,
            depends[index].iter().filter_map(|d| id(*d)).collect(),
            after,
            findings,
            checkout,
            verify,
        ));
    }
    Ok(nodes)
}

fn node(
    group: &Group,
    id: NodeId,
    depends_on: Vec<NodeId>,
    after: Vec<NodeId>,
    findings: &[Finding],
    checkout: &Checkout,
    verify: &Verifier,
) -> Node {
    let members: Vec<&Finding> = group.findings.iter().map(|i| &findings[*i]).collect();
    let severity = members.iter().map(|f| f.severity).max().unwrap_or(Severity::Medium);
    let (verify, verify_waived) = verify.of(&group.writes, checkout);
    Node {
        id,
        title: title(&members, &group.writes),
        findings: members.iter().map(|f| f.id.clone()).collect(),
        writes: group.writes.clone(),
        creates: group.creates.clone(),
        depends_on,
        after,
        verify,
        verify_waived,
        tier: tier(severity, members.len(), &group.writes, checkout),
        severity,
        input_tokens: group.input_tokens,
        output_tokens: output_tokens(members.len()),
    }
}

fn title(members: &[&Finding], writes: &[ScopeEntry]) -> String {
    match (members, writes) {
        ([only], _) => only.title.clone(),
        (many, [first]) => format!("{} findings in {}", many.len(), fixed_folder(first)),
        (many, [first, rest @ ..]) => {
            format!("{} findings in {} and {} more", many.len(), fixed_folder(first), rest.len())
        }
        (many, []) => format!("{} findings", many.len()),
    }
}

fn tier(severity: Severity, findings: usize, writes: &[ScopeEntry], checkout: &Checkout) -> Tier {
    let width = writes.iter().map(|e| checkout.width(e)).fold(0, usize::saturating_add);
    if severity == Severity::Critical || width >= WIDE {
        Tier::Deep
    } else if severity <= Severity::Low && findings == 1 && width == 1 {
        Tier::Small
    } else {
        Tier::Standard
    }
}

/// Indices in topological order, the lowest ready one first. The error is a cycle, its first member
/// repeated at the end.
pub(super) fn topological(depends: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
    let mut open: Vec<usize> = depends.iter().map(Vec::len).collect();
    let mut dependents: Vec<Vec<usize>> = vec![Vec::new(); depends.len()];
    for (index, list) in depends.iter().enumerate() {
        for dependency in list {
            dependents[*dependency].push(index);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> =
        (0..depends.len()).filter(|i| open[*i] == 0).map(Reverse).collect();
    let mut sorted = Vec::with_capacity(depends.len());
    while let Some(Reverse(index)) = ready.pop() {
        sorted.push(index);
        for &dependent in &dependents[index] {
            open[dependent] -= 1;
            if open[dependent] == 0 {
                ready.push(Reverse(dependent));
            }
        }
    }
    if sorted.len() == depends.len() {
        return Ok(sorted);
    }
    Err(cycle(depends, &open))
}

/// Walks from any unfinished index to an unfinished dependency until one repeats.
fn cycle(depends: &[Vec<usize>], open: &[usize]) -> Vec<usize> {
    let mut walked: Vec<usize> = Vec::new();
    let mut position: HashMap<usize, usize> = HashMap::new();
    let mut next = open.iter().position(|n| *n > 0);
    while let Some(index) = next {
        if let Some(start) = position.get(&index) {
            let mut found = walked.split_off(*start);
            found.push(index);
            return found;
        }
        position.insert(index, walked.len());
        walked.push(index);
        next = depends[index].iter().copied().find(|d| open[*d] > 0);
    }
    walked
}

/// Who wrote what last: a tree of folder names. Each step costs the depth of a path; a folder takes
/// over everything below it, so that no pair of nodes is ever compared. Kept flat, because paths may
/// be deeper than a stack.
pub(super) struct Writers {
    spots: Vec<Spot>,
}

#[derive(Default)]
struct Spot {
    children: HashMap<String, usize>,
    /// Last node that may write exactly this path.
    path: Option<usize>,
    /// Last node that may write everything below.
    folder: Option<usize>,
}

impl Default for Writers {
    fn default() -> Self {
        Self { spots: vec![Spot::default()] }
    }
}

impl Writers {
    /// The earlier nodes that `me` has to wait for directly, and records what `me` may write. Any
    /// earlier node with an overlapping scope is reached through them.
    pub fn before(&mut self, writes: &[ScopeEntry], me: usize) -> BTreeSet<usize> {
        let mut before = BTreeSet::new();
        for entry in writes {
            let is_path = matches!(entry, ScopeEntry::Path(_));
            self.enter(fixed_folder(entry), is_path, me, &mut before);
        }
        before.remove(&me);
        before
    }

    fn enter(&mut self, path: &str, is_path: bool, me: usize, before: &mut BTreeSet<usize>) {
        let mut at = 0;
        // All writers of the folders above hold this path, so they already wait for each other:
        // the last one stands for all.
        let mut last = self.spots[at].folder;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            at = match self.spots[at].children.get(part) {
                Some(child) => *child,
                None => {
                    self.spots.push(Spot::default());
                    let child = self.spots.len() - 1;
                    self.spots[at].children.insert(part.to_owned(), child);
                    child
                }
            };
            last = last.max(self.spots[at].folder);
        }
        if is_path {
            before.extend(last.max(self.spots[at].path));
            self.spots[at].path = Some(me);
            return;
        }
        before.extend(last);
        let mut below = vec![at];
        while let Some(spot) = below.pop() {
            let spot = std::mem::take(&mut self.spots[spot]);
            before.extend(spot.path.into_iter().chain(spot.folder));
            below.extend(spot.children.into_values());
        }
        self.spots[at].folder = Some(me);
    }
}
