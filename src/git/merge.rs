//! Three-way merges without a worktree.

use std::collections::BTreeSet;

use gix::merge::tree::TreatAsUnresolved;

use super::{GitError, Oid, Repo};

/// How a merge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merge {
    /// The merged tree, written.
    Clean(Oid),
    /// Paths that a person (or a new attempt) must decide on, in order.
    Conflict(Vec<Vec<u8>>),
}

impl Repo {
    /// Merges `theirs` into `ours`, both made from `base` (all trees; the empty tree is fine).
    /// Renames are followed as `git merge` does.
    ///
    /// # Errors
    /// When a tree can't be read or the result can't be written.
    pub fn merge_trees(&self, base: Oid, ours: Oid, theirs: Oid) -> Result<Merge, GitError> {
        if base == theirs || ours == theirs {
            return Ok(Merge::Clean(ours));
        }
        if base == ours {
            return Ok(Merge::Clean(theirs));
        }
        let repo = self.local();
        let failed = |error| GitError::gix(format!("merging {theirs} into {ours}"), error);
        let options = repo.tree_merge_options().map_err(failed)?;
        let labels = gix::merge::blob::builtin_driver::text::Labels {
            ancestor: Some("base".into()),
            current: Some("ours".into()),
            other: Some("theirs".into()),
        };
        let mut outcome = repo.merge_trees(base, ours, theirs, labels, options).map_err(failed)?;
        let unresolved = TreatAsUnresolved::git();
        if outcome.has_unresolved_conflicts(unresolved) {
            let paths: BTreeSet<Vec<u8>> = outcome
                .conflicts
                .iter()
                .filter(|conflict| conflict.is_unresolved(unresolved))
                .flat_map(|conflict| [conflict.ours.location(), conflict.theirs.location()])
                .map(|path| path.to_vec())
                .collect();
            return Ok(Merge::Conflict(paths.into_iter().collect()));
        }
        Ok(Merge::Clean(outcome.tree.write().map_err(failed)?.detach()))
    }
}
