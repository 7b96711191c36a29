//! Findings with one write scope share a node, within its limits. Nodes stay small: scopes that
//! merely overlap are ordered, never merged, so that no chain of shared files grows a giant.

use std::collections::HashMap;

use super::PlanPolicy;
use super::estimate::{Checkout, finding_tokens};
use super::place::Work;
use crate::model::{Finding, RepoPath, ScopeEntry};

/// A node to be.
pub(super) struct Group {
    pub findings: Vec<usize>,
    pub writes: Vec<ScopeEntry>,
    pub creates: Vec<RepoPath>,
    /// Findings that have to be done before.
    pub depends_on: Vec<usize>,
    pub input_tokens: u64,
}

/// Groups in the order of their first finding; parts of a split follow each other.
pub(super) fn group(
    works: Vec<Work>,
    findings: &[Finding],
    checkout: &Checkout,
    policy: &PlanPolicy,
) -> Vec<Group> {
    let mut lots: Vec<Vec<Work>> = Vec::new();
    let mut by_scope: HashMap<Vec<ScopeEntry>, usize> = HashMap::new();
    for work in works {
        // What waits, or is waited for, stays alone: sharing a node could close a cycle. So does
        // an intent, which may touch anything.
        let alone = work.is_awaited
            || !work.depends_on.is_empty()
            || work.writes.iter().any(|entry| matches!(entry, ScopeEntry::Glob(_)));
        let known = if alone { None } else { by_scope.get(&work.writes).copied() };
        match known {
            Some(lot) => lots[lot].push(work),
            None => {
                if !alone {
                    by_scope.insert(work.writes.clone(), lots.len());
                }
                lots.push(vec![work]);
            }
        }
    }
    lots.into_iter().flat_map(|lot| split(lot, findings, checkout, policy)).collect()
}

/// Cuts a lot where it exceeds the findings or the tokens of one node. One finding is never cut.
fn split(
    mut lot: Vec<Work>,
    findings: &[Finding],
    checkout: &Checkout,
    policy: &PlanPolicy,
) -> Vec<Group> {
    // Neighbours in the file are neighbours in the parts.
    lot.sort_by_key(|work| (findings[work.finding].line(), work.finding));
    let limit = policy.max_findings_per_node.max(1);
    let mut groups: Vec<Group> = Vec::new();
    for work in lot {
        let tokens = finding_tokens(&findings[work.finding]);
        match groups.last_mut() {
            Some(group)
                if group.findings.len() < limit
                    && group.input_tokens.saturating_add(tokens) <= policy.budget_tokens =>
            {
                group.findings.push(work.finding);
                group.input_tokens += tokens;
                group.creates.extend(work.creates);
            }
            _ => groups.push(Group {
                findings: vec![work.finding],
                input_tokens: checkout.scope_tokens(&work.writes).saturating_add(tokens),
                writes: work.writes,
                creates: work.creates,
                depends_on: work.depends_on,
            }),
        }
    }
    for group in &mut groups {
        group.creates.sort();
        group.creates.dedup();
    }
    groups
}
