//! Names of refs. All are deterministic, so that an effect whose confirmation was lost
//! is found again.

use crate::model::{GrantId, NodeId, RunId};

/// Branch of a node, e.g. `overhaul/r-0001-1a2b3c4d/N-001`.
#[must_use]
pub fn node_branch(prefix: &str, run: &RunId, node: &NodeId) -> String {
    format!("{prefix}/{run}/{node}")
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

/// Full name of a branch.
#[must_use]
pub fn full(branch: &str) -> String {
    format!("refs/heads/{branch}")
}
