//! Checking again whether a finding is still there.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::{Finding, FindingId, RepoPath};
use crate::process::{Ended, Spec, Walls, run};

use super::{Slot, WorkspaceError};

/// A command that reports a tool's findings on standard output.
#[derive(Debug, Clone)]
pub struct Recheck {
    /// Program and arguments; an argument that is exactly `{paths}` becomes the paths.
    pub argv: Vec<String>,
    /// Where to look.
    pub paths: Vec<RepoPath>,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Wall clock.
    pub deadline: Duration,
    /// Largest report that is read whole, bytes.
    pub output_cap: usize,
    /// Kernel limits.
    pub walls: Walls,
    /// Stops it.
    pub cancel: CancellationToken,
}

/// Runs the command in a worktree. What it prints is the caller's to parse; linters end with 1 when
/// they found something, so the exit code says nothing here.
///
/// # Errors
/// When the command can't be started.
pub async fn recheck(slot: &Slot, it: &Recheck) -> Result<Ended, WorkspaceError> {
    let argv: Vec<OsString> = it
        .argv
        .iter()
        .flat_map(|arg| match arg.as_str() {
            // A leading `./` keeps a file name from being read as an option.
            "{paths}" => it.paths.iter().map(|path| format!("./{path}").into()).collect(),
            _ => vec![OsString::from(arg)],
        })
        .collect();
    let mut spec = Spec::new(argv, slot.path());
    spec.env = it.env.clone();
    spec.deadline = it.deadline;
    spec.output_cap = it.output_cap;
    spec.walls = it.walls.clone();
    spec.cancel = it.cancel.clone();
    Ok(run(spec).await?)
}

/// What a second look at the findings shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Proof {
    /// Targets that are still found.
    pub still_there: Vec<FindingId>,
    /// Findings of the targets' rules in touched files that were not there before.
    pub new_ones: Vec<Finding>,
    /// Targets that are found no more.
    pub gone: Vec<FindingId>,
}

/// Compares two looks by fingerprint, counting: of three equal findings two may be gone. `targets`
/// are ids of `before`; an id that is not there is neither gone nor still there.
#[must_use]
pub fn compare(
    before: &[Finding],
    after: &[Finding],
    targets: &[FindingId],
    touched: &[RepoPath],
) -> Proof {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    for finding in after {
        *left.entry(&finding.fingerprint).or_default() += 1;
    }
    let is_target: BTreeSet<&FindingId> = targets.iter().collect();
    let (aimed_at, others): (Vec<&Finding>, Vec<&Finding>) =
        before.iter().partition(|finding| is_target.contains(&finding.id));
    // Those that nobody was asked to fix claim their equals first.
    for finding in &others {
        if let Some(count) = left.get_mut(finding.fingerprint.as_str()) {
            *count = count.saturating_sub(1);
        }
    }
    let mut proof = Proof::default();
    for finding in &aimed_at {
        match left.get_mut(finding.fingerprint.as_str()) {
            Some(count) if *count > 0 => {
                *count -= 1;
                proof.still_there.push(finding.id.clone());
            }
            _ => proof.gone.push(finding.id.clone()),
        }
    }
    let rules: BTreeSet<Option<&str>> = aimed_at.iter().map(|f| f.rule.as_deref()).collect();
    let touched: BTreeSet<&RepoPath> = touched.iter().collect();
    for finding in after {
        let Some(count) = left.get_mut(finding.fingerprint.as_str()) else { continue };
        if *count == 0 {
            continue;
        }
        *count -= 1;
        let of_its_kind = rules.contains(&finding.rule.as_deref());
        if of_its_kind && finding.path().is_some_and(|path| touched.contains(path)) {
            proof.new_ones.push(finding.clone());
        }
    }
    proof
}
