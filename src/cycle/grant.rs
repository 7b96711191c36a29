//! Handing nodes out to jobs of their own: observe, decide, claim. No worker is started here and no
//! pool's key is needed; what is handed out stands in the ledger before anyone learns of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::attempt::{self, Ticket};
use super::bases::{self, Base};
use super::context::{Cycle, ReadyPool};
use super::drive::{self, Drive};
use super::error::blocking;
use super::next_step::{self, Begun, CycleReport, Job, Worked};
use super::pools::PoolSet;
use super::setup::Options;
use super::{CycleError, names, pause, seal};
use crate::backends::prompt::{self, Finish};
use crate::git::{Expect, PushResult, RefUpdate};
use crate::ledger::{Applied, EventKind, GrantedClaim, Holder, Share};
use crate::model::{AttemptNumber, GrantId, NodeId, OwnerToken, PoolId, Provider, RunId};
use crate::scheduling::partition::{Shares, partition};
use crate::scheduling::{Decision, Millis, NodeWall, Scheduler};

/// Jobs that a matrix may have in one workflow run (GitHub's limit).
pub const MAX_NODES: usize = 256;

/// Bytes that the matrix may have. An output may have 1 MB, counted in UTF-16 (GitHub's limit), and
/// what is handed out goes into two outputs.
const MAX_BYTES: usize = 400_000;

/// The longest that a hosted job may run: a result may come that late.
const JOB_LIMIT: Duration = Duration::from_secs(6 * 3_600);

/// How to hand out.
#[derive(Debug, Clone)]
pub struct GrantOptions {
    /// Most nodes; never more than [`MAX_NODES`].
    pub max_nodes: usize,
    /// Jobs of the host that run at once, where its pools declare nothing.
    pub width: u32,
    /// How long the claims stand when nobody can say whether their jobs live; the attempts' lease
    /// or the longest job, whichever is longer, when absent.
    pub expires: Option<Duration>,
    /// Folder for the prompts.
    pub prompts: Option<PathBuf>,
}

impl Default for GrantOptions {
    fn default() -> Self {
        Self { max_nodes: MAX_NODES, width: 8, expires: None, prompts: None }
    }
}

/// What was handed out.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Grant {
    /// Its id.
    pub id: GrantId,
    /// When its claims may be taken away although nobody knows whether their jobs live.
    pub expires: Timestamp,
    /// Folder of the prompts.
    pub prompts: PathBuf,
    /// The nodes; each entry is one job.
    pub nodes: Vec<GrantedNode>,
}

/// One node as its job gets it. Whoever has this may hand a result in: it is for that job alone.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct GrantedNode {
    /// Which run.
    pub run: RunId,
    /// Which grant.
    pub grant: GrantId,
    /// Which node.
    pub node: NodeId,
    /// Which try.
    pub attempt: AttemptNumber,
    /// The fence of its claim.
    pub owner: OwnerToken,
    /// The pool that is to do it.
    pub pool: PoolId,
    /// Who does it.
    pub share: Share,
    /// Commit to start from.
    pub base: String,
    /// Its prompt, below the folder of the prompts.
    pub prompt_file: String,
    /// Name of the result's artifact; with `.bundle`, of the file in it.
    pub bundle: String,
    /// Signs the result.
    pub key: String,
}

impl std::fmt::Debug for GrantedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GrantedNode")
            .field("grant", &self.grant)
            .field("node", &self.node)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// A node that is to be handed out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pick {
    node: NodeId,
    pool: PoolId,
    share: Share,
}

/// One job that only hands out.
///
/// # Errors
/// As a cycle.
pub async fn grant(
    options: Options,
    how: GrantOptions,
    cancel: CancellationToken,
) -> Result<CycleReport, CycleError> {
    let (cycle, set) = match next_step::begin(options, Job::HandOut, cancel).await? {
        Begun::Over(report) => return Ok(*report),
        Begun::Ready(cycle, set) => (cycle, set),
    };
    next_step::observe(&cycle).await?;
    let mut worked = Worked::default();
    if cycle.journal.state().cancelled.is_none() && next_step::has_open_nodes(&cycle) {
        let by_comment = cycle.woken.by_comment;
        let holder = cycle.holder.clone();
        let started = EventKind::CycleStarted { holder, by_comment, pools: None };
        cycle.journal.write(vec![started]).await?;
        let outcome = hand_out(&cycle, &set, &how, &mut worked).await;
        return next_step::conclude(&cycle, &set, worked, outcome).await;
    }
    next_step::conclude(&cycle, &set, worked, Ok(())).await
}

/// The host's share of a cycle that drives its own: handed out before anything starts here, so that
/// both go on side by side.
pub(super) async fn host_share(
    cycle: &Arc<Cycle>,
    how: &GrantOptions,
) -> Result<Option<Grant>, CycleError> {
    if !cycle.pools.values().any(is_host) {
        return Ok(None);
    }
    let ours = cycle.config.dispatch.concurrent;
    let shares = split(cycle, (ours, how.width))?;
    let (picks, _) = choose(cycle, Share::Host, &shares.in_process, how.max_nodes.min(MAX_NODES))?;
    issue(cycle, picks, how).await
}

/// Why nodes that our pools can't take now can't go on, the host's pools looked at too.
pub(super) fn beside_the_host(
    cycle: &Cycle,
    ours: Vec<NodeWall>,
) -> Result<Vec<NodeWall>, CycleError> {
    if ours.is_empty() || !cycle.pools.values().any(is_host) {
        return Ok(ours);
    }
    let mut host = drive::scheduler_over(cycle, is_host)?;
    let now = cycle.clock.now().as_millisecond();
    let beside = |wall: NodeWall| match host.wall(&wall.node, now) {
        Some(other) => wall.beside(other, now),
        None => wall,
    };
    Ok(ours.into_iter().map(beside).collect())
}

async fn hand_out(
    cycle: &Arc<Cycle>,
    set: &PoolSet,
    how: &GrantOptions,
    worked: &mut Worked,
) -> Result<(), CycleError> {
    let (picks, walls) = decide(cycle, how)?;
    worked.granted = issue(cycle, picks, how).await?;
    if worked.granted.is_some() {
        return next_step::resume(cycle).await;
    }
    if !walls.is_empty() || cycle.pools.is_empty() {
        let drive = Drive { walls, ..Drive::default() };
        worked.paused = pause::record(cycle, &drive, set).await?;
    }
    Ok(())
}

fn is_host(pool: &ReadyPool) -> bool {
    pool.pool.provider == Provider::Host
}

/// Splits what is ready now between this process's pools and the host's: one scheduler over both, in
/// which a pool that declares no concurrency has `slots` (ours, the host's) of them.
fn split(cycle: &Cycle, (ours, host): (u32, u32)) -> Result<Shares, CycleError> {
    let run = cycle.journal.state().clone();
    let now = cycle.clock.now().as_millisecond();
    let mut pools = drive::pool_states(cycle, &run, |_| true);
    // A pool that waits is no capacity now: what it would get goes to the other side.
    pools.retain(|state| state.paused.is_none_or(|(_, until, _)| until <= now));
    for state in &mut pools {
        let slots = if state.pool.provider == Provider::Host { host } else { ours };
        state.pool.limits.concurrent.get_or_insert(slots);
    }
    let scheduler = drive::scheduler_of(cycle, &run, pools)?;
    let is_host = |pool: &PoolId| cycle.pools.get(pool).is_some_and(is_host);
    Ok(partition(scheduler, is_host, now))
}

/// What may start now, by the one rule of selection, side by side; and why the rest can't.
fn decide(cycle: &Cycle, how: &GrantOptions) -> Result<(Vec<Pick>, Vec<NodeWall>), CycleError> {
    // Both shares are jobs of a matrix.
    let shares = split(cycle, (how.width, how.width))?;
    let mut left = how.max_nodes.min(MAX_NODES);
    let (mut picks, mut sides) = (Vec::new(), Vec::new());
    for (share, others) in [(Share::Work, &shares.host), (Share::Host, &shares.in_process)] {
        let (some, side) = choose(cycle, share, others, left)?;
        left -= some.len();
        picks.extend(some);
        sides.extend(side);
    }
    let walls = both_sides(&mut sides, &picks, cycle.clock.now().as_millisecond());
    Ok((picks, walls))
}

/// One wall for each node that no side takes now, over the pools of both.
fn both_sides(sides: &mut [Scheduler], picks: &[Pick], now: Millis) -> Vec<NodeWall> {
    let mut waiting: BTreeSet<NodeId> = BTreeSet::new();
    for side in &mut *sides {
        waiting.extend(side.walls(now).into_iter().map(|wall| wall.node));
    }
    waiting.retain(|node| picks.iter().all(|pick| pick.node != *node));
    let over_all = |node: &NodeId| {
        let walls = sides.iter_mut().filter_map(|side| side.wall(node, now));
        walls.reduce(|one, other| one.beside(other, now))
    };
    waiting.iter().filter_map(over_all).collect()
}

/// What the pools of one side can start now, without the other side's nodes; and the core that says
/// so, where the side has pools.
fn choose(
    cycle: &Cycle,
    share: Share,
    others: &[NodeId],
    most: usize,
) -> Result<(Vec<Pick>, Option<Scheduler>), CycleError> {
    let wanted = |pool: &ReadyPool| is_host(pool) == (share == Share::Host);
    if !cycle.pools.values().any(wanted) {
        return Ok((Vec::new(), None));
    }
    let mut scheduler = drive::scheduler_over(cycle, wanted)?;
    for node in others {
        scheduler.take_out(node, false);
    }
    let now = cycle.clock.now().as_millisecond();
    let mut picks = Vec::new();
    while picks.len() < most
        && let Decision::Start { node, pool, .. } = scheduler.next(now)
    {
        picks.push(Pick { node, pool, share });
    }
    Ok((picks, Some(scheduler)))
}

/// Claims the picks, and gives those that were won to whoever does them.
async fn issue(
    cycle: &Arc<Cycle>,
    picks: Vec<Pick>,
    how: &GrantOptions,
) -> Result<Option<Grant>, CycleError> {
    if picks.is_empty() {
        return Ok(None);
    }
    let id = GrantId::new(format!("g-{:016x}", fastrand::u64(..)))
        .map_err(|e| CycleError::Internal(e.to_string()))?;
    let now = cycle.clock.now();
    let lease = how.expires.unwrap_or(cycle.config.dispatch.lease.get().max(JOB_LIMIT));
    let lease = SignedDuration::try_from(lease).unwrap_or(SignedDuration::from_hours(24));
    let expires = now.checked_add(lease).unwrap_or(now);
    let prompts = match &how.prompts {
        Some(folder) => folder.clone(),
        None => cycle.workspace.root().join("prompts").join(id.as_str()),
    };

    let tickets = tickets(cycle, picks).await?;
    let mut claims: Vec<GrantedClaim> = Vec::new();
    let mut nodes: Vec<GrantedNode> = Vec::new();
    let mut bytes = 0;
    for (ticket, share) in &tickets {
        let (key, verify_key) = seal::new_key()?;
        let node = granted_node(cycle, &id, ticket, *share, key);
        bytes += serde_json::to_string(&node).map_or(MAX_BYTES, |text| text.len() + 1);
        if bytes > MAX_BYTES {
            tracing::warn!(handed_out = nodes.len(), "the matrix is full; the rest stays");
            break;
        }
        claims.push(GrantedClaim {
            node: node.node.clone(),
            attempt: node.attempt,
            owner: node.owner.clone(),
            pool: node.pool.clone(),
            base: node.base.clone(),
            share: *share,
            verify_key,
        });
        nodes.push(node);
    }
    let tickets = tickets.get(..nodes.len()).unwrap_or_default();
    // What a job needs is there before the claim that sends it for it.
    push_bases(cycle, tickets).await?;
    write_prompts(cycle, &prompts, tickets)?;

    let mut events: Vec<EventKind> = claims
        .iter()
        .map(|claim| EventKind::Claimed {
            node: claim.node.clone(),
            attempt: claim.attempt,
            owner: claim.owner.clone(),
            lease_until: expires,
            // The job that takes the result in, in the same workflow run, outlives this process.
            holder: Holder { process: None, ..cycle.holder.clone() },
        })
        .collect();
    events.push(EventKind::Granted { grant: id.clone(), expires, claims });
    let written = cycle.journal.write(events).await?;
    let mut won = written.applied.iter().map(|a| *a == Applied::Yes);
    nodes.retain(|_| won.next() == Some(true));
    if nodes.is_empty() {
        return Ok(None);
    }
    Ok(Some(Grant { id, expires, prompts, nodes }))
}

fn granted_node(
    cycle: &Cycle,
    grant: &GrantId,
    ticket: &Ticket,
    share: Share,
    key: String,
) -> GrantedNode {
    GrantedNode {
        run: cycle.run_id().clone(),
        grant: grant.clone(),
        node: ticket.node.id.clone(),
        attempt: ticket.number,
        owner: ticket.owner.clone(),
        pool: ticket.pool.pool.id.clone(),
        share,
        base: ticket.base.commit().to_string(),
        prompt_file: prompt_file(ticket),
        bundle: names::bundle(grant, &ticket.node.id),
        key,
    }
}

fn prompt_file(ticket: &Ticket) -> String {
    format!("{}.md", ticket.node.id)
}

/// Everything that an attempt needs but its claim. A node without a base is left where it is.
async fn tickets(cycle: &Arc<Cycle>, picks: Vec<Pick>) -> Result<Vec<(Ticket, Share)>, CycleError> {
    let cycle = cycle.clone();
    blocking(move || {
        let run = cycle.journal.state().clone();
        let mut tickets = Vec::new();
        for pick in picks {
            let (Some(node), Some(pool)) =
                (cycle.plan.node(&pick.node), cycle.pools.get(&pick.pool))
            else {
                continue;
            };
            let base = match bases::base_for(cycle.repo(), &run, node, cycle.base.commit) {
                Ok(base) => base,
                Err(error) => {
                    tracing::error!(node = %node.id, %error, "no base to work on");
                    continue;
                }
            };
            let record = run.nodes.get(&node.id).cloned().unwrap_or_default();
            let number = AttemptNumber(record.attempts + 1);
            let owner = attempt::new_owner()?;
            let (node, pool) = (node.clone(), pool.clone());
            let ticket = Ticket::new(&cycle, &record, node, number, owner, pool, base);
            tickets.push((ticket, pick.share));
        }
        Ok::<_, CycleError>(tickets)
    })
    .await
}

/// Bases that no branch of the remote holds are put where a job finds them.
async fn push_bases(cycle: &Cycle, tickets: &[(Ticket, Share)]) -> Result<(), CycleError> {
    let updates: Vec<RefUpdate> = tickets
        .iter()
        .filter(|(ticket, _)| !matches!(ticket.base, Base::Branch(_)))
        .map(|(ticket, _)| RefUpdate {
            name: names::granted_base(cycle.run_id(), &ticket.node.id),
            new: Some(ticket.base.commit()),
            expected: Expect::Any,
        })
        .collect();
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    match blocking(move || remote.push(&repo, &updates, false)).await? {
        PushResult::Done => Ok(()),
        PushResult::Rejected(refused) => {
            let reasons: Vec<String> =
                refused.into_iter().map(|r| format!("{}: {}", r.name, r.reason)).collect();
            Err(CycleError::Forge(crate::forge::ForgeError::Invalid(format!(
                "the remote refused the bases of the work: {}",
                reasons.join("; ")
            ))))
        }
    }
}

/// The prompt of each node as a file, for agents that take one.
fn write_prompts(
    cycle: &Cycle,
    folder: &Path,
    tickets: &[(Ticket, Share)],
) -> Result<(), CycleError> {
    let failed = |e| CycleError::io(format!("prompts can't be written to {}", folder.display()), e);
    std::fs::create_dir_all(folder).map_err(failed)?;
    for (ticket, share) in tickets {
        let finish = match share {
            Share::Host => Finish::Host,
            Share::Work => Finish::LastMessage,
        };
        let attempt = ticket.attempt(cycle, PathBuf::from("."), PathBuf::from("."));
        let text = prompt::render(&attempt, &finish).single();
        std::fs::write(folder.join(prompt_file(ticket)), text).map_err(failed)?;
    }
    Ok(())
}
