//! Landing a node's tree on the run's integration branch, in memory.

use jiff::Timestamp;

use crate::failpoint;
use crate::git::{Expect, GitError, Merge, Oid, Repo};
use crate::model::{AttemptNumber, NodeId, RunId};

use super::WorkspaceError;

/// A node's tree and where it should land.
#[derive(Debug, Clone)]
pub struct Integration<'a> {
    /// Tip of the integration branch.
    pub onto: Oid,
    /// Commit that the attempt started from.
    pub base: Oid,
    /// The node's whole tree.
    pub tree: Oid,
    /// Commit message with its trailers.
    pub message: &'a str,
    /// Commit time; with the same inputs it makes the same commit.
    pub time: Timestamp,
}

/// How it landed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Integrated {
    /// A new commit on `onto`, its only parent.
    Merged {
        /// The integrated tree.
        tree: Oid,
        /// The commit.
        commit: Oid,
    },
    /// Everything that the node changes is on `onto` already.
    AlreadyThere,
    /// These paths were changed differently since the base.
    Conflict(Vec<Vec<u8>>),
}

/// Three-way merge of the node's tree onto the branch. Writes objects, moves no ref.
///
/// # Errors
/// When an object can't be read or written.
pub fn integrate(repo: &Repo, it: &Integration<'_>) -> Result<Integrated, WorkspaceError> {
    let base = repo.tree_of(it.base)?;
    let onto = repo.tree_of(it.onto)?;
    Ok(match repo.merge_trees(base, onto, it.tree)? {
        Merge::Conflict(paths) => Integrated::Conflict(paths),
        Merge::Clean(tree) if tree == onto => Integrated::AlreadyThere,
        Merge::Clean(tree) => {
            let commit = repo.commit(tree, &[it.onto], it.message, it.time)?;
            Integrated::Merged { tree, commit }
        }
    })
}

/// One commit that holds all of `commits` (a node's several dependencies), the base of a stacked
/// pull request. The order given is the order of merging; the same inputs give the same commit.
///
/// # Errors
/// [`WorkspaceError::Empty`] without commits, or when an object can't be read or written.
pub fn stacked_base(
    repo: &Repo,
    commits: &[Oid],
    message: &str,
    time: Timestamp,
) -> Result<Integrated, WorkspaceError> {
    let (first, rest) = commits.split_first().ok_or(WorkspaceError::Empty)?;
    let mut tip = *first;
    for next in rest {
        if repo.is_ancestor(*next, tip)? {
            continue;
        }
        if repo.is_ancestor(tip, *next)? {
            tip = *next;
            continue;
        }
        let base = match repo.merge_base(tip, *next)? {
            Some(base) => repo.tree_of(base)?,
            None => repo.edit_tree(None, &[])?,
        };
        match repo.merge_trees(base, repo.tree_of(tip)?, repo.tree_of(*next)?)? {
            Merge::Conflict(paths) => return Ok(Integrated::Conflict(paths)),
            Merge::Clean(tree) => tip = repo.commit(tree, &[tip, *next], message, time)?,
        }
    }
    Ok(Integrated::Merged { tree: repo.tree_of(tip)?, commit: tip })
}

/// A refused attempt to be kept.
#[derive(Debug, Clone)]
pub struct Quarantine<'a> {
    /// Which run.
    pub run: &'a RunId,
    /// Which node.
    pub node: &'a NodeId,
    /// Which try.
    pub attempt: AttemptNumber,
    /// What it started from.
    pub base: Oid,
    /// Its whole tree.
    pub tree: Oid,
    /// Why it was refused.
    pub reason: &'a str,
    /// When.
    pub time: Timestamp,
}

/// Keeps a refused attempt's tree under `refs/overhaul/quarantine/<run>/<node>/<attempt>`, and of
/// the run's refused attempts only the `keep` newest. Gives the ref's name.
///
/// # Errors
/// When an object or ref can't be written.
pub fn quarantine(repo: &Repo, it: &Quarantine<'_>, keep: usize) -> Result<String, GitError> {
    let prefix = format!("refs/overhaul/quarantine/{}/", it.run);
    let name = format!("{prefix}{}/{}", it.node, it.attempt);
    let commit = repo.commit(it.tree, &[it.base], it.reason, it.time)?;
    repo.update_ref(&name, Some(commit), Expect::Any)?;
    failpoint::reached("quarantine ref");
    let mut kept = repo
        .refs(&prefix)?
        .into_iter()
        .map(|(name, id)| Ok((repo.time_of(id)?, name, id)))
        .collect::<Result<Vec<_>, GitError>>()?;
    kept.sort();
    let excess = kept.len().saturating_sub(keep.max(1));
    for (_, old, id) in kept.into_iter().take(excess).filter(|(_, old, _)| *old != name) {
        repo.update_ref(&old, None, Expect::At(id))?;
    }
    Ok(name)
}
