//! Good changes that break each other: accepted nodes of one package are verified together before
//! the second one counts, and a red close gate is traced to the node that turns it red.

use std::collections::BTreeSet;

use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, accept, land, names, open};
use crate::git::{GitError, Oid, Repo, parse_oid};
use crate::ledger::{Landing, Receipt};
use crate::model::{NodeId, VerifyCommand};
use crate::planning::is_build_file;
use crate::workspace::{Verdict, Verified, WorkspaceError};

/// What breaks, and the accepted nodes that it breaks with.
pub(super) struct Clash {
    pub detail: String,
    pub with: Vec<NodeId>,
}

/// Verifies the integrated tree when an accepted node touches a package that the new work touches
/// too. `before` and `after` are the integration without and with it.
pub(super) async fn clash(
    cycle: &Cycle,
    node: &NodeId,
    receipt: &Receipt,
    before: Oid,
    after: Oid,
) -> Result<Option<Clash>, CycleError> {
    let others: Vec<(NodeId, Vec<String>)> = {
        let run = cycle.journal.state();
        let open = run.accepted_in_order().into_iter().filter(|(id, _)| {
            let record = run.nodes.get(*id).and_then(|n| n.pr.as_ref());
            *id != node && record.is_none_or(|pr| !pr.is_over())
        });
        open.map(|(id, r)| (id.clone(), r.touched.clone())).collect()
    };
    if others.is_empty() {
        return Ok(None);
    }
    let (repo, touched, tree) =
        (cycle.repo().clone(), receipt.touched.clone(), receipt.tree.clone());
    let with = blocking(move || {
        let integrated = repo.tree_of(after)?;
        // This very tree is verified already: it was made on all of the others.
        if integrated == parse_oid(&tree)? {
            return Ok::<_, GitError>(Vec::new());
        }
        let folders = build_folders(&repo, integrated)?;
        let own = packages(&folders, &touched);
        let shared = others.into_iter().filter(|(_, t)| !packages(&folders, t).is_disjoint(&own));
        Ok(shared.map(|(id, _)| id).collect::<Vec<NodeId>>())
    })
    .await?;
    if with.is_empty() {
        return Ok(None);
    }
    let nodes = with.iter().chain([node]).filter_map(|id| cycle.plan.node(id));
    let mut commands: Vec<VerifyCommand> = nodes.flat_map(|n| n.verify.clone()).collect();
    commands.sort();
    commands.dedup();
    let verified = cycle.verifier.verify(after, before, &commands, &cycle.cancel).await?;
    Ok(failure(&verified).map(|failed| Clash {
        detail: format!(
            "The change passes alone, and not together with accepted work in the same package ({}). \
             {failed}",
            with.iter().map(NodeId::as_str).collect::<Vec<_>>().join(", ")
        ),
        with,
    }))
}

/// What failed, with its output.
pub(super) fn failure(verified: &Verified) -> Option<String> {
    let failed = verified.checks.iter().find(|c| c.verdict == Verdict::Failed)?;
    let said = accept::said(&failed.output);
    Some(format!("Verify command `{}` failed. {said}", failed.name))
}

/// Folders with a build file, without a slash at the end; the root is empty.
fn build_folders(repo: &Repo, tree: Oid) -> Result<BTreeSet<String>, GitError> {
    let entries = repo.list(tree, b"")?.into_iter();
    let paths = entries.filter_map(|entry| String::from_utf8(entry.path).ok());
    Ok(paths.filter(|path| is_build_file(path)).map(|path| folder_of(&path).to_owned()).collect())
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The packages of these paths: the nearest folders above them with a build file. What belongs to
/// none shares none.
fn packages(folders: &BTreeSet<String>, paths: &[String]) -> BTreeSet<String> {
    let nearest = |path: &String| {
        let mut folder = folder_of(path);
        loop {
            if folders.contains(folder) {
                return Some(folder.to_owned());
            }
            if folder.is_empty() {
                return None;
            }
            folder = folder_of(folder);
        }
    };
    paths.iter().filter_map(nearest).collect()
}

/// The landed node with which what landed turns red, and what fails then. `None` when what landed
/// passes by itself, or cannot be put together again: then other commits are to blame, or nobody
/// can tell.
pub(super) async fn culprit(
    cycle: &Cycle,
    landed: &[NodeId],
    planned_on: Oid,
) -> Result<Option<(NodeId, String)>, CycleError> {
    let mut work: Vec<(u64, NodeId, Oid, Oid)> = Vec::new();
    {
        let run = cycle.journal.state();
        for id in landed {
            let Some(Landing::Accepted { order, receipt, .. }) =
                run.nodes.get(id).map(|n| &n.landing)
            else {
                continue;
            };
            let (base, commit) = (parse_oid(&receipt.base)?, parse_oid(&receipt.commit)?);
            work.push((*order, id.clone(), base, commit));
        }
    }
    work.sort();
    let (repo, remote, at) = (cycle.repo().clone(), cycle.remote.clone(), cycle.clock.now());
    let keep = names::keep_prefix(cycle.run_id());
    let tips = blocking(move || {
        if work.iter().any(|(_, _, base, commit)| !repo.has(*base) || !repo.has(*commit)) {
            remote.fetch(&repo, &[&format!("+{keep}*:{keep}*")])?;
        }
        let mut tips: Vec<(NodeId, Oid)> = Vec::new();
        let mut tip = planned_on;
        for (_, id, base, commit) in work {
            if !repo.has(base) || !repo.has(commit) {
                return Ok::<_, WorkspaceError>(Vec::new());
            }
            match land::merge_onto(&repo, tip, base, commit, at)? {
                Ok(merged) => tip = merged,
                Err(_) => return Ok(Vec::new()),
            }
            tips.push((id, tip));
        }
        Ok(tips)
    })
    .await?;
    first_red(cycle, planned_on, &tips, &open::all_verify(&cycle.plan)).await
}

/// The first of several commits, each on the one before, that fails, and what fails then. What is
/// red is taken to stay red.
pub(super) async fn first_red(
    cycle: &Cycle,
    base: Oid,
    tips: &[(NodeId, Oid)],
    commands: &[VerifyCommand],
) -> Result<Option<(NodeId, String)>, CycleError> {
    let (mut green, mut red) = (0, tips.len());
    let mut found = None;
    let mut at = tips.len().checked_sub(1);
    while let Some((index, (id, tip))) = at.and_then(|at| Some((at, tips.get(at)?))) {
        let verified = cycle.verifier.verify(*tip, base, commands, &cycle.cancel).await?;
        match failure(&verified) {
            Some(failed) => (found, red) = (Some((id.clone(), failed)), index),
            None => green = index + 1,
        }
        at = (green < red).then(|| green + (red - green) / 2);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::packages;

    #[test]
    fn a_package_is_the_nearest_folder_with_a_build_file() {
        let folders = ["", "web", "web/lib"].map(str::to_owned).into();
        let of = |paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
            packages(&folders, &paths).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(of(&["src/a.rs"]), [""]);
        assert_eq!(of(&["web/src/a.ts", "web/lib/b.ts"]), ["web", "web/lib"]);
        let none = super::BTreeSet::new();
        assert!(packages(&none, &["src/a.rs".to_owned()]).is_empty());
    }
}
