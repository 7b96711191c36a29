//! Where a symbolic link leads, inside a tree that is on no disk.

use std::collections::VecDeque;

use crate::git::{GitError, Mode, Oid, Repo};

/// The most links on one way, as Linux allows (`MAXSYMLINKS`, path_resolution(7)).
const MAX_LINKS: usize = 40;

/// The end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// A place inside the tree, whether or not something is there.
    Inside,
    /// Outside, in `.git`, in a loop, or absolute.
    Outside,
}

/// Follows the link at `path` to `target` as the kernel would, through other links of the tree.
pub(super) fn resolve(
    repo: &Repo,
    tree: Oid,
    path: &[u8],
    target: &[u8],
) -> Result<Target, GitError> {
    let mut at: Vec<Vec<u8>> = components(path).collect();
    at.pop();
    let mut ahead: VecDeque<Vec<u8>> = VecDeque::new();
    if target.is_empty() || target.starts_with(b"/") {
        return Ok(Target::Outside);
    }
    ahead.extend(components(target));
    let mut links = 1;
    while let Some(step) = ahead.pop_front() {
        match step.as_slice() {
            b"" | b"." => continue,
            b".." => {
                if at.pop().is_none() {
                    return Ok(Target::Outside);
                }
                continue;
            }
            name if name.eq_ignore_ascii_case(b".git") => return Ok(Target::Outside),
            _ => at.push(step),
        }
        let here = at.join(&b'/');
        if let Some(entry) = repo.entry(tree, &here)?
            && entry.mode == Mode::Symlink
        {
            links += 1;
            let next = repo.blob(entry.id)?;
            if links > MAX_LINKS || next.is_empty() || next.starts_with(b"/") {
                return Ok(Target::Outside);
            }
            at.pop();
            for step in components(&next).collect::<Vec<_>>().into_iter().rev() {
                ahead.push_front(step);
            }
        }
    }
    Ok(Target::Inside)
}

/// Does the link at `path`, whose content is the blob `id`, lead out of the tree?
///
/// # Errors
/// When the store can't be read.
pub fn leads_outside(repo: &Repo, tree: Oid, path: &[u8], id: Oid) -> Result<bool, GitError> {
    Ok(resolve(repo, tree, path, &repo.blob(id)?)? == Target::Outside)
}

fn components(path: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').map(<[u8]>::to_vec)
}
