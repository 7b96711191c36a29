//! Where each finding may be worked on, or why nowhere.

use std::collections::HashMap;

use super::estimate::{Checkout, Kind};
use super::scope::Protection;
use super::{PlanError, PlanPolicy};
use crate::model::{DropReason, Finding, FindingId, RepoPath, ScopeEntry};

/// Most explicit dependencies of a plan. Repeated ids multiply them, and a hostile report could make
/// them quadratic.
const MAX_DEPENDENCIES: usize = 200_000;

/// One finding that will be in a node. Findings are named by their index.
pub(super) struct Work {
    pub finding: usize,
    /// Sorted, without repeats.
    pub writes: Vec<ScopeEntry>,
    pub creates: Vec<RepoPath>,
    /// Findings that have to be done before.
    pub depends_on: Vec<usize>,
    /// Another finding waits for this one.
    pub is_awaited: bool,
}

/// Sets `dropped` where a finding has no place, and gives the work of the others.
pub(super) fn place(
    findings: &mut [Finding],
    checkout: &Checkout,
    protection: &Protection,
    policy: &PlanPolicy,
) -> Result<Vec<Work>, PlanError> {
    let mut works: Vec<Option<Work>> = Vec::with_capacity(findings.len());
    for (index, finding) in findings.iter_mut().enumerate() {
        if finding.dropped.is_none() && finding.severity < policy.min_severity {
            finding.dropped = Some(DropReason::Filtered);
        }
        let work = match finding.dropped {
            Some(_) => None,
            None => match scope_of(finding, checkout, protection) {
                Ok((writes, creates)) => Some(Work {
                    finding: index,
                    writes,
                    creates,
                    depends_on: Vec::new(),
                    is_awaited: false,
                }),
                Err(reason) => {
                    finding.dropped = Some(reason);
                    None
                }
            },
        };
        works.push(work);
    }
    depend(findings, &mut works)?;
    Ok(works.into_iter().flatten().collect())
}

type Writes = (Vec<ScopeEntry>, Vec<RepoPath>);

/// The entries a finding may write. Places that are gone or protected are left out; when none is
/// left, the first one's reason is the finding's.
fn scope_of(
    finding: &Finding,
    checkout: &Checkout,
    protection: &Protection,
) -> Result<Writes, DropReason> {
    if finding.places.is_empty() {
        return Ok((vec![ScopeEntry::Glob("**".to_owned())], Vec::new()));
    }
    let may_create = finding.extra.get(Finding::CREATES_FILES).is_some_and(|v| v == true);
    let mut writes = Vec::new();
    let mut creates = Vec::new();
    let mut reason = None;
    for place in &finding.places {
        let path = place.path.clone();
        let kind = checkout.kind(path.as_str());
        let entry = match kind {
            Kind::Folder => ScopeEntry::Folder(path.clone()),
            Kind::File | Kind::Missing | Kind::Unknown => ScopeEntry::Path(path.clone()),
        };
        if protection.covers_entry(&entry) {
            reason.get_or_insert(DropReason::Protected);
            continue;
        }
        if kind == Kind::Missing && !may_create {
            reason.get_or_insert(DropReason::Missing);
            continue;
        }
        if may_create && matches!(kind, Kind::Missing | Kind::Unknown) {
            creates.push(path);
        }
        writes.push(entry);
    }
    writes.sort();
    writes.dedup();
    creates.sort();
    creates.dedup();
    match reason {
        Some(reason) if writes.is_empty() => Err(reason),
        _ => Ok((writes, creates)),
    }
}

/// Resolves explicit dependencies. They fail closed: an unknown one is an error, and what waits for
/// a dropped finding is dropped too.
fn depend(findings: &mut [Finding], works: &mut [Option<Work>]) -> Result<(), PlanError> {
    let mut by_source_id: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut by_id: HashMap<&FindingId, usize> = HashMap::new();
    for (index, finding) in findings.iter().enumerate() {
        by_id.insert(&finding.id, index);
        if let Some(id) = &finding.source_id {
            by_source_id.entry(id).or_default().push(index);
        }
    }
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); findings.len()];
    let mut awaited = vec![false; findings.len()];
    let mut edges = 0;
    for (index, finding) in findings.iter().enumerate() {
        let Some(work) = works[index].as_mut() else { continue };
        let wanted = finding.extra.get(Finding::DEPENDS_ON).and_then(|v| v.as_array());
        for id in wanted.into_iter().flatten().filter_map(|v| v.as_str()) {
            let Some(targets) = by_source_id.get(id) else {
                return Err(PlanError::UnknownDependency {
                    dependent: name(finding),
                    missing: id.to_owned(),
                });
            };
            for target in targets {
                // A duplicate is done when the finding it repeats is done.
                let target = match &findings[*target].dropped {
                    Some(DropReason::DuplicateOf(first)) => by_id.get(first).copied(),
                    _ => Some(*target),
                };
                let Some(target) = target else { continue };
                // Findings that share an id do not wait for each other by naming it.
                if target == index && targets.len() > 1 {
                    continue;
                }
                edges += 1;
                if edges > MAX_DEPENDENCIES {
                    return Err(PlanError::TooManyDependencies(MAX_DEPENDENCIES));
                }
                waiting[target].push(index);
                awaited[target] = true;
                work.depends_on.push(target);
            }
        }
        work.depends_on.sort_unstable();
        work.depends_on.dedup();
    }
    let mut gone: Vec<usize> = (0..findings.len()).filter(|i| works[*i].is_none()).collect();
    while let Some(target) = gone.pop() {
        let id = findings[target].id.clone();
        for &dependent in &waiting[target] {
            if works[dependent].take().is_some() {
                findings[dependent].dropped = Some(DropReason::Prerequisite(id.clone()));
                gone.push(dependent);
            }
        }
    }
    for work in works.iter_mut().flatten() {
        work.is_awaited = awaited[work.finding];
    }
    Ok(())
}

/// `F-0002 (COR-001)`.
pub(super) fn name(finding: &Finding) -> String {
    match &finding.source_id {
        Some(source) => format!("{} ({source})", finding.id),
        None => finding.id.to_string(),
    }
}
