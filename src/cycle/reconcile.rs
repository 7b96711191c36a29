//! The first act of every cycle: make the ledger agree with what git and the forge really show.
//! Claims of dead owners end, merged and closed pull requests are followed, and effects whose
//! confirmation was lost are found again.

use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, holder, names, reviews, show};
use crate::forge::{Alive, Forge, PullRequest, State};
use crate::git::{GitError, Merge, Oid, Remote, Repo, parse_oid};
use crate::ledger::{Burn, Claim, EventKind, Holder, Landing, NodeRecord, Run};
use crate::model::{GrantId, NodeId, Outcome, Usage};
use crate::report::{self, marker};

/// Ends the claims of owners that are dead, or whose lease is over and that can't be asked. The
/// claims of `spared` stay: their results are being taken in.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn release_dead_claims(
    journal: &super::Journal,
    forge: &dyn Forge,
    now: jiff::Timestamp,
    spared: Option<&GrantId>,
) -> Result<usize, CycleError> {
    let claims: Vec<(NodeId, Claim)> = {
        let run = journal.state();
        let held = run.nodes.iter().filter_map(|(id, n)| Some((id.clone(), n.claim.clone()?)));
        held.filter(|(_, claim)| {
            spared.is_none() || run.grant_of(&claim.owner).map(|(id, _)| id) != spared
        })
        .collect()
    };
    let mut events = Vec::new();
    let mut asked: Vec<(Holder, Alive)> = Vec::new();
    for (node, claim) in claims {
        // One owner may hold many nodes, and is asked for once.
        let alive = match asked.iter().find(|(holder, _)| *holder == claim.holder) {
            Some((_, alive)) => *alive,
            None => holder::alive(&claim.holder, forge).await,
        };
        asked.push((claim.holder.clone(), alive));
        let why = match alive {
            Alive::Yes => continue,
            Alive::No => "its owner is dead",
            Alive::Unknown if claim.lease_until < now => "its lease is over",
            Alive::Unknown => continue,
        };
        tracing::info!(%node, attempt = %claim.attempt, "claim released: {why}");
        events.push(end_of_dead_claim(&journal.state(), &node, &claim, why));
    }
    let released = events.len();
    if released > 0 {
        journal.write(events).await?;
    }
    Ok(released)
}

/// How often in a row a node is handed out and never heard of again before that counts against it:
/// it may be the node that ends its jobs.
const UNHEARD_MAX: u32 = 5;

/// A claim that never started work is just given back; started work counts against the
/// infrastructure budget, so that a node which kills its process cannot do so for ever.
pub(super) fn end_of_dead_claim(run: &Run, node: &NodeId, claim: &Claim, why: &str) -> EventKind {
    let unheard = run.nodes.get(node).map_or(0, |n| n.unheard);
    let granted = run.grant_of(&claim.owner).filter(|_| unheard + 1 >= UNHEARD_MAX);
    let pool = claim.started.as_ref().or(granted.map(|(_, granted)| &granted.pool));
    match pool {
        None => EventKind::Released {
            node: node.clone(),
            owner: claim.owner.clone(),
            reason: why.to_owned(),
        },
        Some(pool) => EventKind::AttemptEnded {
            node: node.clone(),
            attempt: claim.attempt,
            owner: claim.owner.clone(),
            pool: pool.clone(),
            outcome: Outcome::Transient,
            burn: Burn::Infrastructure,
            detail: format!("The attempt was cut off: {why}."),
            usage: Usage::default(),
            evidence: None,
            quarantine: None,
            conflicts_with: Vec::new(),
        },
    }
}

/// Reads what became of our pull requests, and books what the ledger does not know yet.
///
/// # Errors
/// When the forge or the ledger fails.
pub(super) async fn follow_pull_requests(cycle: &Cycle) -> Result<(), CycleError> {
    if !has_open_business(&cycle.journal.state()) {
        return Ok(());
    }
    let prefix = names::run_prefix(&cycle.config.pull_requests.branch_prefix, cycle.run_id());
    let mut found = cycle.forge.pull_requests(&prefix).await?;
    let unseen: Vec<(NodeId, u64)> = {
        let run = cycle.journal.state();
        let open = run.nodes.iter().filter_map(|(id, n)| Some((id, n.pr.as_ref()?)));
        open.filter(|(_, pr)| !pr.is_over() && found.iter().all(|seen| seen.number != pr.number))
            .map(|(id, pr)| (id.clone(), pr.number))
            .collect()
    };
    let mut events = Vec::new();
    for (node, number) in unseen {
        // Not in a list is not gone: lists are long, and late.
        match cycle.forge.find_pull_request(number).await? {
            Some(pr) => found.push(pr),
            None => {
                tracing::warn!(%node, number, "its pull request is gone; another one is opened");
                events.push(EventKind::PrLost { node, number });
            }
        }
    }
    {
        let run = cycle.journal.state();
        for pr in &found {
            let Some(name) = pr.head.strip_prefix(&prefix) else { continue };
            if name == names::TOGETHER {
                let in_it = run.nodes.iter().filter(|(_, n)| match &n.pr {
                    Some(known) => known.number == pr.number,
                    None => n.pushed.as_deref() == Some(pr.head_commit.as_str()),
                });
                events.extend(in_it.flat_map(|(id, n)| of_node(Some(n), id.clone(), pr)));
                continue;
            }
            let node = NodeId::new(name).ok().filter(|id| cycle.plan.node(id).is_some());
            if let Some(node) = node {
                events.extend(of_node(run.nodes.get(&node), node, pr));
            }
        }
    }
    hold_to_merges(cycle, &found, &events).await?;
    events.extend(heads(cycle, &prefix).await?);
    if !events.is_empty() {
        cycle.journal.write(events).await?;
    }
    reviews::follow(cycle, &found).await?;
    tell_who_pushed(cycle).await
}

/// Where people write by hand that a pull request is merged, git is asked whether it is so: what is
/// taken to have landed loses its branch.
async fn hold_to_merges(
    cycle: &Cycle,
    found: &[PullRequest],
    events: &[EventKind],
) -> Result<(), CycleError> {
    if !cycle.forge.is_written_by_hand() {
        return Ok(());
    }
    let says = |pr: &&PullRequest| {
        events
            .iter()
            .any(|e| matches!(e, EventKind::PrMerged { number, .. } if *number == pr.number))
    };
    for pr in found.iter().filter(says) {
        let (repo, remote, own) = (cycle.repo().clone(), cycle.remote.clone(), pr.clone());
        let main = (cycle.base.branch.clone(), cycle.base.commit);
        if !blocking(move || is_merged(&repo, &remote, &main, &own)).await? {
            return Err(CycleError::input(
                format!(
                    "{} says `state: merged`, and {} does not hold {}",
                    pr.url, pr.base, pr.head
                ),
                format!(
                    "merge it with git first (in a clone, on {}: `git merge origin/{}`, then `git \
                     push`), or set it back to `state: open`; name a merge in another form as \
                     `merge-commit: <commit>`",
                    pr.base, pr.head
                ),
            ));
        }
    }
    Ok(())
}

/// Whether the base of a pull request holds it: its commits, or all that they change.
fn is_merged(
    repo: &Repo,
    remote: &Remote,
    (main, head_of_main): &(String, Oid),
    pr: &PullRequest,
) -> Result<bool, GitError> {
    let mut bases = vec![*head_of_main];
    if pr.base != *main {
        // Stacked on another branch of ours; one that is not there any more holds nothing.
        let full = names::full(&pr.base);
        if let Some(commit) = remote.ls_remote(repo, &[&full])?.get(&full).copied() {
            if !repo.has(commit) {
                remote.fetch(repo, &[&format!("+{full}:refs/overhaul/fetched")])?;
            }
            bases.push(commit);
        }
    }
    let named = pr.merge_commit.iter().chain([&pr.head_commit]);
    let named: Vec<Oid> =
        named.filter_map(|id| parse_oid(id).ok()).filter(|id| repo.has(*id)).collect();
    for base in bases {
        for commit in &named {
            if repo.is_ancestor(*commit, base)? || adds_nothing(repo, *commit, base)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Squashed or picked: merging the commit would change nothing.
fn adds_nothing(repo: &Repo, commit: Oid, base: Oid) -> Result<bool, GitError> {
    let Some(root) = repo.merge_base(commit, base)? else { return Ok(false) };
    let (root, ours) = (repo.tree_of(root)?, repo.tree_of(base)?);
    Ok(
        matches!(repo.merge_trees(root, ours, repo.tree_of(commit)?)?, Merge::Clean(tree) if tree == ours),
    )
}

/// The heads of the branches of open work, from git: it costs no request and is never late.
async fn heads(cycle: &Cycle, prefix: &str) -> Result<Vec<EventKind>, CycleError> {
    let open: Vec<NodeId> = {
        let run = cycle.journal.state();
        let open = run.nodes.iter().filter(|(_, n)| {
            let pushed = n.pushed.is_some() || n.pr.is_some();
            pushed && n.pr.as_ref().is_none_or(|pr| !pr.is_over())
        });
        open.map(|(id, _)| id.clone()).collect()
    };
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let all = format!("{}*", names::full(prefix));
    let there = blocking(move || remote.ls_remote(&repo, &[&all])).await?;
    let settings = &cycle.config.pull_requests;
    let seen = open.into_iter().filter_map(|node| {
        let name = names::full(&names::work_branch(settings, cycle.run_id(), &node));
        let commit = there.get(&name)?.to_string();
        Some(EventKind::HeadSeen { node, commit })
    });
    Ok(seen.collect())
}

/// What a pull request as seen tells of its node.
fn of_node(record: Option<&NodeRecord>, node: NodeId, pr: &PullRequest) -> Vec<EventKind> {
    let mut events = Vec::new();
    let known = record.and_then(|n| n.pr.as_ref());
    // An ended one of other work than this is no answer to what is accepted now.
    let of_this_work = match record.map(|n| (&n.landing, &n.past_prs)) {
        Some((Landing::Accepted { receipt, .. }, past)) => {
            !past.contains(&pr.number)
                && (pr.state != State::Closed || pr.head_commit == receipt.commit)
        }
        _ => false,
    };
    if known.is_none() && of_this_work {
        events.push(EventKind::PrOpened {
            node: node.clone(),
            number: pr.number,
            url: pr.url.clone(),
            branch: pr.head.clone(),
            base: pr.base.clone(),
        });
    } else if known.is_none_or(|k| k.number != pr.number || k.is_over()) {
        return events;
    }
    match pr.state {
        State::Open => {}
        State::Merged => events.push(EventKind::PrMerged {
            node,
            number: pr.number,
            commit: pr.merge_commit.clone().unwrap_or_else(|| pr.head_commit.clone()),
        }),
        State::Closed => events.push(EventKind::PrClosed { node, number: pr.number }),
    }
    events
}

/// One comment on a pull request when a person's commits stop what is automatic about it. The
/// dashboard says it too.
async fn tell_who_pushed(cycle: &Cycle) -> Result<(), CycleError> {
    let run = cycle.journal.state().clone();
    for (node, record) in &run.nodes {
        let (Some(head), Some(pr)) = (record.foreign_head(), &record.pr) else { continue };
        if pr.is_over() || record.asked.is_some() {
            continue;
        }
        let ours = record.pushed.as_ref().unwrap_or(&pr.commit);
        let marker = marker::left_alone(cycle.run_id(), pr.number, ours);
        let prefix = &cycle.config.commands.prefix;
        let text = report::left_alone_comment(&marker, node, head, prefix);
        show::say_once(cycle, pr.number, &marker, &text).await?;
    }
    Ok(())
}

/// Whether anything of the run can be on the forge without an end in the ledger.
fn has_open_business(run: &Run) -> bool {
    run.nodes.values().any(|n| match &n.pr {
        Some(pr) => !pr.is_over(),
        None => matches!(n.landing, Landing::Accepted { .. }),
    })
}
