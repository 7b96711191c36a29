//! What people ask of a node's branch: take the commits on it into the node, take them off it,
//! approve its head. Done after pull requests were looked at, so that what is meant is what is
//! seen; each ends in one sentence for whoever asked.

use std::collections::BTreeSet;

use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, accept, bases, names};
use crate::git::{Expect, GitError, Oid, PushResult, RefUpdate, Repo, parse_oid};
use crate::ledger::{Asked, BranchAsk, EventKind, Landing, NodeRecord, Receipt};
use crate::model::{Node, NodeId};
use crate::workspace::WorkspaceError;

/// People named as co-authors of a node's commit.
const AUTHORS: usize = 20;

/// What came of a wish: a sentence, and what is so from now on.
#[derive(Default)]
struct Answer {
    said: String,
    events: Vec<EventKind>,
    blobs: Vec<(String, Vec<u8>)>,
    keep: Vec<(String, String)>,
}

impl Answer {
    fn only(said: impl Into<String>) -> Self {
        Self { said: said.into(), ..Self::default() }
    }
}

/// Does what was asked. Gives the comments whose answers are known now. Trouble with one branch is
/// logged and left for the next cycle.
///
/// # Errors
/// When the ledger or the machine fails.
pub(super) async fn carry_out(cycle: &Cycle) -> Result<Vec<u64>, CycleError> {
    let asked: Vec<(NodeId, Asked)> = {
        let run = cycle.journal.state();
        run.nodes.iter().filter_map(|(id, n)| Some((id.clone(), n.asked.clone()?))).collect()
    };
    let mut answered = Vec::new();
    for (id, asked) in asked {
        let Some(node) = cycle.plan.node(&id) else { continue };
        let record = cycle.journal.state().nodes.get(&id).cloned().unwrap_or_default();
        let answer = match asked.ask {
            BranchAsk::Adopt => adopt(cycle, node, &record, &asked).await,
            BranchAsk::Reset => reset(cycle, node, &record).await,
            BranchAsk::Approve => Ok(approve(node, &record, &asked)),
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error @ (CycleError::Journal(_) | CycleError::Internal(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(node = %id, %error, "its branch waits for the next cycle");
                continue;
            }
        };
        if cycle.cancel.is_cancelled() {
            break;
        }
        let Answer { said, mut events, blobs, keep } = answer;
        events.push(EventKind::BranchAnswered { node: id, result: said });
        if cycle.journal.write_led_batch(events, blobs, keep).await?.all() {
            answered.push(asked.comment);
        }
    }
    Ok(answered)
}

/// The head of the node's branch on the remote, brought here.
async fn head_of(cycle: &Cycle, node: &NodeId) -> Result<Option<Oid>, CycleError> {
    let branch = names::work_branch(&cycle.config.pull_requests, cycle.run_id(), node);
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    blocking(move || {
        let name = names::full(&branch);
        let there = remote.ls_remote(&repo, &[&name])?.get(&name).copied();
        if there.is_some_and(|head| !repo.has(head)) {
            remote.fetch(&repo, &[&format!("+{name}:refs/overhaul/branches/{branch}")])?;
        }
        Ok::<_, GitError>(there)
    })
    .await
}

fn short(commit: impl ToString) -> String {
    commit.to_string().chars().take(12).collect()
}

/// Takes what is on the branch into the node: checked like any result. A person may go beyond the
/// node's write scope where no other unfinished node may write; what is refused always is refused
/// here too.
async fn adopt(
    cycle: &Cycle,
    node: &Node,
    record: &NodeRecord,
    asked: &Asked,
) -> Result<Answer, CycleError> {
    let id = &node.id;
    if super::single::is_on(cycle) {
        let said = "with `pull-requests.mode: single` the branch belongs to several nodes, and \
                    commits on it are taken in by merging it; nothing was changed";
        return Ok(Answer::only(said));
    }
    let over = record.pr.as_ref().is_some_and(|pr| pr.is_over());
    let receipt = match &record.landing {
        Landing::Accepted { receipt, .. } if !over => receipt,
        _ => return Ok(Answer::only(format!("{id} is not in review; nothing was changed"))),
    };
    let Some(head) = head_of(cycle, id).await? else {
        return Ok(Answer::only(format!("{id} has no branch; nothing was changed")));
    };
    if cycle.journal.state().heads.contains(&head.to_string()) {
        let said = format!("the branch of {id} holds no commits of a person; nothing was changed");
        return Ok(Answer::only(said));
    }
    let Some((base, on)) = ground(cycle, node, receipt, head).await? else {
        return Ok(Answer::only(format!(
            "the branch of {id} is not built on {} or on what the node was built on; rebase it",
            cycle.base.branch
        )));
    };
    let repo = cycle.repo().clone();
    let (before, tree, authors) = blocking(move || {
        Ok::<_, GitError>((repo.tree_of(base)?, repo.tree_of(head)?, repo.authors(base, head)?))
    })
    .await?;
    if before == tree {
        return Ok(Answer::only(format!(
            "the branch of {id} changes nothing; nothing was taken in"
        )));
    }
    let refused = |why: &str| {
        Answer::only(format!("not taken in, and the branch is left alone as it is. {why}"))
    };
    let scoped = match accept::in_scope(cycle, node, (before, tree), Vec::new(), true).await? {
        Ok(scoped) => scoped,
        Err(refusal) => return Ok(refused(&refusal.detail)),
    };
    let change = accept::Change { commit: head, base, tree, touched: &scoped.touched };
    let (checks, friction) = match accept::proven(cycle, node, &receipt.resolved, &change).await? {
        Ok(proven) => proven,
        Err(refusal) => return Ok(refused(&refusal.detail)),
    };
    let known: BTreeSet<String> = receipt.authors.iter().cloned().chain(authors).collect();
    let said = format!(
        "the commits up to {} are the node's work now; {} checks passed on them",
        short(head),
        checks.iter().filter(|check| check.verdict == "passed").count()
    );
    let adopted = Receipt {
        base: base.to_string(),
        on,
        commit: head.to_string(),
        tree: tree.to_string(),
        touched: scoped.touched,
        checks,
        authors: known.into_iter().take(AUTHORS).collect(),
        ..(**receipt).clone()
    };
    let mut events = vec![EventKind::Rebuilt {
        node: id.clone(),
        from: receipt.commit.clone(),
        receipt: adopted.clone(),
        reason: "a person's commits were taken in".to_owned(),
        adopted_by: Some(asked.by.clone()),
    }];
    events.extend(scoped.friction);
    events.extend(friction);
    Ok(Answer {
        said,
        events,
        blobs: vec![names::receipt_blob(id, &adopted)?],
        keep: vec![(names::keep_ref(cycle.run_id(), id), adopted.commit)],
    })
}

/// What the branch is built on, with the nodes in that: the base that the node's work had, or a
/// newer one that a person merged or rebased onto. `None` when it is neither.
async fn ground(
    cycle: &Cycle,
    node: &Node,
    receipt: &Receipt,
    head: Oid,
) -> Result<Option<(Oid, Vec<NodeId>)>, CycleError> {
    let (repo, run, node) = (cycle.repo().clone(), cycle.journal.state().clone(), node.clone());
    let (old, main) = (parse_oid(&receipt.base)?, cycle.base.commit);
    let old_on = receipt.on.clone();
    blocking(move || {
        let wanted = bases::base_for(&repo, &run, &node, main)?;
        let mut found: Vec<Oid> = Vec::new();
        for onto in [old, wanted.commit(), main] {
            if let Some(common) = repo.merge_base(head, onto)?
                && !found.contains(&common)
            {
                found.push(common);
            }
        }
        let on = |base: Oid| match base {
            base if base == old => old_on,
            base if base == wanted.commit() => wanted.nodes(),
            _ => Vec::new(),
        };
        Ok::<_, WorkspaceError>(nearest(&repo, &found)?.map(|base| (base, on(base))))
    })
    .await
}

/// The one that holds all the others.
fn nearest(repo: &Repo, found: &[Oid]) -> Result<Option<Oid>, WorkspaceError> {
    for candidate in found {
        let mut holds = true;
        for other in found {
            holds &= repo.is_ancestor(*other, *candidate)?;
        }
        if holds {
            return Ok(Some(*candidate));
        }
    }
    Ok(None)
}

/// Takes a person's commits off the branch and keeps them under another name, in one push.
async fn reset(cycle: &Cycle, node: &Node, record: &NodeRecord) -> Result<Answer, CycleError> {
    let id = &node.id;
    let Some(head) = head_of(cycle, id).await? else {
        return Ok(Answer::only(format!("{id} has no branch; nothing was changed")));
    };
    if cycle.journal.state().heads.contains(&head.to_string()) {
        let said = format!("the branch of {id} holds no commits of a person; nothing was changed");
        return Ok(Answer::only(said));
    }
    if record.pr.as_ref().is_some_and(|pr| pr.is_over()) {
        return Ok(Answer::only(format!("{id} is not in review; nothing was changed")));
    }
    let branch = names::work_branch(&cycle.config.pull_requests, cycle.run_id(), id);
    let quarantine = names::quarantine_ref(cycle.run_id(), id, &head.to_string());
    let mut updates =
        vec![RefUpdate { name: quarantine.clone(), new: Some(head), expected: Expect::Any }];
    // A node that is at work again has nothing to put there; its next result may.
    let ours = match &record.landing {
        Landing::Accepted { receipt, .. } => {
            Some(record.pushed.as_ref().unwrap_or(&receipt.commit).clone())
        }
        _ => None,
    };
    if let Some(ours) = &ours {
        let (name, new) = (names::full(&branch), Some(parse_oid(ours)?));
        updates.push(RefUpdate { name, new, expected: Expect::At(head) });
    }
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    if let PushResult::Rejected(refused) =
        blocking(move || remote.push(&repo, &updates, true)).await?
    {
        let why: Vec<String> = refused.into_iter().map(|r| r.reason).collect();
        return Ok(Answer::only(format!(
            "the branch could not be written ({}); nothing was changed",
            why.join("; ")
        )));
    }
    let mut events = vec![EventKind::HeadReset {
        node: id.clone(),
        commit: head.to_string(),
        quarantine: quarantine.clone(),
    }];
    if let Some(commit) = ours {
        let node = id.clone();
        events.push(EventKind::BranchPushed { node, branch, commit });
    }
    let said = format!("the branch is overhaul's again; the commits are kept as {quarantine}");
    Ok(Answer { said, events, ..Answer::default() })
}

/// Approves the head that was there when it was said. What came later, or what we cannot tell the
/// time of, is not approved.
fn approve(node: &Node, record: &NodeRecord, asked: &Asked) -> Answer {
    let id = &node.id;
    let open = record.pr.as_ref().is_some_and(|pr| !pr.is_over());
    let (true, Some(head)) = (open, &record.head) else {
        return Answer::only(format!("{id} has no open pull request; nothing was approved"));
    };
    if head.since > asked.said {
        return Answer::only(format!(
            "nothing was approved: the head of {id} is {} now, and may be newer than the approval; \
             look at it and approve again",
            short(&head.commit)
        ));
    }
    let approved =
        EventKind::Approved { node: id.clone(), commit: head.commit.clone(), by: asked.by.clone() };
    Answer {
        said: format!("{id} is approved at {}; another head makes it void", short(&head.commit)),
        events: vec![approved],
        ..Answer::default()
    }
}
