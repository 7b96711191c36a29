//! Names of refs. All are deterministic, so that an effect whose confirmation was lost
//! is found again.

use super::CycleError;
use crate::config::{PullRequestMode, PullRequests};
use crate::ledger::Receipt;
use crate::model::{GrantId, NodeId, RunId};

/// The receipt of a node's accepted work as it stands in the run's blobs, one a commit: for
/// machines.
///
/// # Errors
/// When it can't be written as JSON.
pub fn receipt_blob(node: &NodeId, receipt: &Receipt) -> Result<(String, Vec<u8>), CycleError> {
    let short: String = receipt.commit.chars().take(12).collect();
    let bytes = serde_json::to_vec_pretty(receipt)
        .map_err(|e| CycleError::Internal(format!("a receipt can't be written: {e}")))?;
    Ok((format!("receipt-{node}-{short}.json"), bytes))
}

/// Branch of a node, e.g. `overhaul/r-0001-1a2b3c4d/N-001`.
#[must_use]
pub fn node_branch(prefix: &str, run: &RunId, node: &NodeId) -> String {
    format!("{prefix}/{run}/{node}")
}

/// Last part of the branch that holds all nodes of a run. No node is called so: their ids are ours.
pub const TOGETHER: &str = "all";

/// The branch that a node's accepted work is on: its own, or the one of all nodes.
#[must_use]
pub fn work_branch(settings: &PullRequests, run: &RunId, node: &NodeId) -> String {
    match settings.mode {
        PullRequestMode::PerNode => node_branch(&settings.branch_prefix, run, node),
        PullRequestMode::Single => {
            format!("{}{TOGETHER}", run_prefix(&settings.branch_prefix, run))
        }
    }
}

/// Generated base branch of a node that builds on several others.
#[must_use]
pub fn base_branch(prefix: &str, run: &RunId, node: &NodeId) -> String {
    format!("{prefix}/{run}/{node}.base")
}

/// Common start of a run's branches.
#[must_use]
pub fn run_prefix(prefix: &str, run: &RunId) -> String {
    format!("{prefix}/{run}/")
}

/// Private ref that keeps an accepted commit from being lost with the machine. Not a branch: no
/// person pushes there, so it may always be written.
#[must_use]
pub fn keep_ref(run: &RunId, node: &NodeId) -> String {
    format!("{}{node}", keep_prefix(run))
}

/// Where the base of a handed-out node is, when no branch holds it; goes with the kept refs.
#[must_use]
pub fn granted_base(run: &RunId, node: &NodeId) -> String {
    format!("{}{node}.base", keep_prefix(run))
}

/// Name of the artifact that holds a handed-out node's result.
#[must_use]
pub fn bundle(grant: &GrantId, node: &NodeId) -> String {
    format!("overhaul-{grant}-{node}")
}

/// Common start of a run's kept refs.
#[must_use]
pub fn keep_prefix(run: &RunId) -> String {
    format!("refs/overhaul/keep/{run}/")
}

/// What the ledger remembers of auto-merge on a pull request.
#[must_use]
pub fn auto_merge(number: u64) -> String {
    format!("auto-merge:{number}")
}

/// Where a person's commits are kept that were taken off a node's branch.
#[must_use]
pub fn quarantine_ref(run: &RunId, node: &NodeId, commit: &str) -> String {
    let short: String = commit.chars().take(12).collect();
    format!("refs/overhaul/quarantine/{run}/{node}/head-{short}")
}

/// Full name of a branch.
#[must_use]
pub fn full(branch: &str) -> String {
    format!("refs/heads/{branch}")
}
