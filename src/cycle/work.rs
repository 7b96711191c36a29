//! Handed-out nodes in a job of their own: it reads the ledger, works, judges, and leaves a file for
//! each. It writes neither to the forge nor to the ledger; whatever it says is judged again where it
//! lands.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::accept::{self, Refusal, Verdict};
use super::attempt::{self, Ticket};
use super::bases::Base;
use super::bundle::{self, Manifest, Said};
use super::context::{Cycle, ReadyPool};
use super::desk::Desk;
use super::error::blocking;
use super::pools;
use super::setup::{self, Options};
use super::{CycleError, GrantedNode, drive, names, next_step, open, seal};
use crate::backends::{Attempt, WorkReport, Worker, WorkerResult, result};
use crate::config::Config;
use crate::git::{Oid, parse_oid};
use crate::ledger::{GrantedClaim, Run, fold};
use crate::model::{NodeId, Outcome, PoolId, Usage};
use crate::store::ReadOnly;
use crate::workspace;

/// Largest file with an agent's result that is read, bytes; of more, the end counts.
const MAX_RESULT_FILE: usize = result::MAX_OUTPUT;

/// How old the ledger may be that says whether a claim is still held. Work on a lost one is only lost
/// work: the land job asks again.
const LEDGER_AGE: SignedDuration = SignedDuration::from_secs(60);

/// Nodes of a job that are under way at once: while the worker of one works, the node before is judged.
const IN_FLIGHT: usize = 2;

/// What a job left.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Left {
    /// Which node.
    pub node: NodeId,
    /// The file.
    pub bundle: PathBuf,
    /// How the attempt ended.
    pub outcome: Outcome,
    /// Whether the change passed every check here.
    pub acceptable: bool,
    /// One paragraph: why not.
    pub detail: String,
}

/// What somebody else's agent left in the checkout.
#[derive(Debug, Clone, Default)]
pub struct Delivered {
    /// File with its last message; without one, it claims every finding of the node.
    pub result: Option<PathBuf>,
    /// What it consumed, as far as known.
    pub usage: Usage,
    /// The model that worked.
    pub model: Option<String>,
}

/// Runs handed-out attempts on their pools, one worker after the other; gives what became of each. Those
/// that a stop or the end of the time budget leaves undone are not among them.
///
/// # Errors
/// When nothing can be begun. [`CycleError::Refused`], of all or of one, when the claim is not held any
/// more, or the hand-out is not that of the ledger. A node or pool that fails is no error: its file says
/// so.
pub async fn work(
    options: Options,
    granted: &[GrantedNode],
    out: &Path,
    cancel: CancellationToken,
) -> Result<Vec<Result<Left, CycleError>>, CycleError> {
    let job = Job::begin(options, granted, true, cancel).await?;
    let job = &job;
    let done = futures_util::stream::iter(granted.iter().enumerate())
        .map(|(place, granted)| async move {
            let over =
                job.cycle.cancel.is_cancelled() || job.cycle.clock.now() >= job.cycle.deadline;
            if over && place > 0 { None } else { Some(job.work(granted, out).await) }
        })
        .buffered(IN_FLIGHT)
        .collect::<Vec<_>>()
        .await;
    Ok(done.into_iter().flatten().collect())
}

/// Takes what an agent left in the checkout as the result of a handed-out node.
///
/// # Errors
/// As [`work`].
pub async fn accept_node(
    options: Options,
    granted: GrantedNode,
    delivered: Delivered,
    out: &Path,
    cancel: CancellationToken,
) -> Result<Left, CycleError> {
    let checkout = options.repo.clone();
    let job = Job::begin(options, std::slice::from_ref(&granted), false, cancel).await?;
    let ticket = job.ticket(&granted).await?;
    let cycle = job.cycle;
    let mut report = attempt::nothing_to_do();
    report.usage = delivered.usage;
    report.model_seen.clone_from(&delivered.model);
    let verdict = match claimed(&ticket, delivered.result.as_deref()) {
        Ok(result) => {
            report.result = Some(result.clone());
            let judged = judge_checkout(&cycle, &ticket, &checkout, &result).await;
            judged.or_else(attempt::unworkable)?
        }
        Err(why) => Verdict::Refused(Refusal::new(Outcome::InvalidResult, why)),
    };
    leave(&cycle, &ticket, &granted, (report, verdict), out).await
}

/// What the agent says, strictly read.
fn claimed(ticket: &Ticket, file: Option<&Path>) -> Result<WorkerResult, String> {
    let Some(file) = file else {
        let resolved = ticket.node.findings.clone();
        return Ok(WorkerResult { resolved, ..WorkerResult::default() });
    };
    let bytes = std::fs::read(file)
        .map_err(|e| format!("The agent's result {} can't be read: {e}.", file.display()))?;
    let start = bytes.len().saturating_sub(MAX_RESULT_FILE);
    let text = String::from_utf8_lossy(bytes.get(start..).unwrap_or_default());
    result::parse_output(&text, &ticket.node).map_err(|e| format!("The agent's result: {e}."))
}

async fn judge_checkout(
    cycle: &Arc<Cycle>,
    ticket: &Ticket,
    checkout: &Path,
    result: &WorkerResult,
) -> Result<Verdict, CycleError> {
    let limits = accept::take_limits(cycle);
    let (workspace, commit) = (cycle.workspace.clone(), ticket.base.commit());
    let root = checkout.to_owned();
    let taken =
        tokio::task::spawn_blocking(move || workspace.take_checkout(&root, commit, &limits))
            .await
            .map_err(|e| CycleError::Internal(e.to_string()))?;
    match accept::taken(taken)? {
        Ok(taken) => accept::judge_tree(cycle, ticket, taken.tree, taken.refused, result).await,
        Err(verdict) => Ok(verdict),
    }
}

/// One job: what it reads once for all of its nodes.
struct Job {
    cycle: Arc<Cycle>,
    /// The requests of this job keep its pools' limits, beside what else is handed out to them.
    desk: Arc<Desk>,
    /// The ledger that claims are looked up in, and since when it is known.
    ledger: Mutex<(Run, Timestamp)>,
}

/// A worker that waits for its turn: several nodes of a job are under way, and one is worked on at a
/// time.
struct InTurn {
    worker: Arc<dyn Worker>,
    turn: Arc<Mutex<()>>,
}

#[async_trait::async_trait]
impl Worker for InTurn {
    async fn work(&self, attempt: Attempt) -> WorkReport {
        let _turn = self.turn.lock().await;
        let started = Instant::now();
        let mut report = self.worker.work(attempt).await;
        report.time = Some(started.elapsed());
        report
    }
}

impl Job {
    /// Reads the ledger, and makes sure that it knows one of these hand-outs at least.
    async fn begin(
        options: Options,
        granted: &[GrantedNode],
        drives: bool,
        cancel: CancellationToken,
    ) -> Result<Self, CycleError> {
        let Some(first) = granted.first() else {
            return Err(CycleError::input("nothing was handed out", "name one node at least"));
        };
        if granted.iter().any(|other| other.run != first.run) {
            return Err(CycleError::Refused("the hand-outs are of several runs".to_owned()));
        }
        let mut parts = setup::prepare(options).await?;
        parts.store = Arc::new(ReadOnly(parts.store));
        let journal = parts.journal(first.run.clone()).await?;
        let run = journal.state().clone();
        let claims: Vec<Result<GrantedClaim, CycleError>> =
            granted.iter().map(|granted| known(&run, granted)).collect();
        let wanted: BTreeSet<PoolId> =
            claims.iter().flatten().map(|claim| claim.pool.clone()).collect();
        if wanted.is_empty()
            && let Some(Err(refused)) = claims.into_iter().next()
        {
            return Err(refused);
        }
        let plan = open::load_plan(&journal).await?;
        let read = parts.clock.now();
        let mut set = pools::declared(&parts.config, None, read)?;
        if drives {
            // Only the pools of these claims are asked for: this job may hold no other's key.
            let around = next_step::surroundings(&parts.config, &parts.walls);
            let turn = Arc::new(Mutex::new(()));
            for pool in &wanted {
                let only = pools::one(&parts.config, pool, &*parts.options.env, &around).await;
                if let Some(mut ready) = only {
                    ready.worker = ready.worker.map(|worker| {
                        Arc::new(InTurn { worker, turn: turn.clone() }) as Arc<dyn Worker>
                    });
                    set.ready.insert(pool.clone(), ready);
                }
            }
        }
        let cycle = Arc::new(parts.cycle(journal, plan, set.ready, cancel).await?);
        let core = drive::scheduler_over(&cycle, |ready| wanted.contains(&ready.pool.id))?;
        let desk = Desk::new(core, cycle.clock.clone());
        Ok(Self { cycle, desk, ledger: Mutex::new((run, read)) })
    }

    /// The attempt of a hand-out that the ledger knows, while its claim is held.
    async fn ticket(&self, granted: &GrantedNode) -> Result<Ticket, CycleError> {
        let claim = {
            let mut ledger = self.ledger.lock().await;
            let now = self.cycle.clock.now();
            if now.duration_since(ledger.1) > LEDGER_AGE {
                *ledger = (fold(&self.cycle.journal.events().await?), now);
            }
            known(&ledger.0, granted)?
        };
        let mut ticket = ticket(&self.cycle, &claim).await?;
        let meter = self.desk.core().meter(&claim.pool);
        ticket.seat = meter.map(|meter| self.desk.seat(&claim.node, meter));
        Ok(ticket)
    }

    async fn work(&self, granted: &GrantedNode, out: &Path) -> Result<Left, CycleError> {
        let ticket = self.ticket(granted).await?;
        let cycle = &self.cycle;
        let judged = match &ticket.pool.worker {
            Some(_) => match attempt::work_and_judge(cycle, &ticket).await {
                Ok(both) => both,
                Err(error) => (attempt::nothing_to_do(), attempt::unworkable(error)?),
            },
            None => {
                let why = format!(
                    "This job does not reach the pool {}: {}.",
                    ticket.pool.pool.id,
                    unreached(&cycle.config, &ticket, &*cycle.env).await
                );
                (attempt::nothing_to_do(), Verdict::Refused(Refusal::new(Outcome::Transient, why)))
            }
        };
        leave(cycle, &ticket, granted, judged, out).await
    }
}

/// The ledger's side of a hand-out.
fn known(run: &Run, granted: &GrantedNode) -> Result<GrantedClaim, CycleError> {
    let refused = |why: &str| Err(CycleError::Refused(format!("node {}: {why}", granted.node)));
    let Some((grant, claim)) = run.grant_of(&granted.owner) else {
        return refused("the ledger knows no such hand-out");
    };
    let same = *grant == granted.grant
        && claim.node == granted.node
        && claim.attempt == granted.attempt
        && claim.base == granted.base
        && claim.pool == granted.pool;
    let probe = granted.owner.as_str().as_bytes();
    let signs = seal::sign(&granted.key, probe)
        .is_some_and(|seal| seal::holds(&claim.verify_key, probe, &seal));
    if !same || !signs {
        return refused("the hand-out is not as the ledger has it");
    }
    let held = run.nodes.get(&claim.node).and_then(|n| n.claim.as_ref());
    if held.is_none_or(|held| held.owner != claim.owner) {
        return refused("its claim is not held any more: somebody took the node back");
    }
    Ok(claim.clone())
}

/// The attempt of a granted claim, its base brought here.
pub(super) async fn ticket(cycle: &Arc<Cycle>, claim: &GrantedClaim) -> Result<Ticket, CycleError> {
    let Some(node) = cycle.plan.node(&claim.node).cloned() else {
        return Err(CycleError::Refused(format!("the plan has no node {}", claim.node)));
    };
    let Some(pool) = cycle.pools.get(&claim.pool).cloned().or_else(|| declared(cycle, claim))
    else {
        return Err(CycleError::Refused(format!(
            "node {} was handed out for the pool {}, which the configuration does not have",
            claim.node, claim.pool
        )));
    };
    let base = parse_oid(&claim.base)?;
    fetch_base(cycle, claim, base).await?;
    let record = cycle.journal.state().nodes.get(&claim.node).cloned().unwrap_or_default();
    let (owner, base) = (claim.owner.clone(), Base::Branch(base));
    Ok(Ticket::new(cycle, &record, node, claim.attempt, owner, pool, base))
}

/// A pool that left the set since, e.g. because it was settled: its results still count.
fn declared(cycle: &Cycle, claim: &GrantedClaim) -> Option<ReadyPool> {
    let settings = cycle.config.pool(&claim.pool)?;
    Some(ReadyPool {
        pool: settings.to_pool(),
        worker: None,
        agent: None,
        attempt_timeout: settings.timeout.unwrap_or(cycle.config.dispatch.attempt_timeout).get(),
    })
}

/// The base is on the base branch, on a node's branch, or where the grant put it.
async fn fetch_base(cycle: &Cycle, claim: &GrantedClaim, base: Oid) -> Result<(), CycleError> {
    if cycle.repo().has(base) {
        return Ok(());
    }
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let branch = names::full(&cycle.base.branch);
    let granted = names::granted_base(cycle.run_id(), &claim.node);
    blocking(move || {
        // Either may not be there; what counts is that the commit is here afterwards.
        for source in [branch, granted] {
            if !repo.has(base) {
                let fetched = remote.fetch(&repo, &[&format!("+{source}:refs/overhaul/fetched")]);
                if let Err(error) = fetched {
                    tracing::debug!(%error, source, "not fetched");
                }
            }
        }
        if repo.has(base) { Ok(()) } else { remote.fetch(&repo, &[&base.to_string()]) }
    })
    .await
}

async fn unreached(config: &Config, ticket: &Ticket, env: &pools::Env) -> String {
    match config.pool(&ticket.pool.pool.id) {
        Some(pool) => pools::why_not(pool, env).await,
        None => "it is not configured".to_owned(),
    }
}

/// Writes the file.
async fn leave(
    cycle: &Arc<Cycle>,
    ticket: &Ticket,
    granted: &GrantedNode,
    (report, verdict): (WorkReport, Verdict),
    out: &Path,
) -> Result<Left, CycleError> {
    let (said, tree, outcome) = match verdict {
        Verdict::Good(good) => (Said::Done, Some(good.tree), report.outcome),
        Verdict::Satisfied { .. } => (Said::Satisfied, None, Outcome::Success),
        Verdict::Refused(refusal) => {
            let (outcome, detail) = (refusal.outcome, refusal.detail);
            (Said::Refused { outcome, detail }, refusal.tree, outcome)
        }
    };
    let repo = cycle.repo().clone();
    let base = ticket.base.commit();
    let (pieces, content, tree) = blocking(move || {
        let Some(tree) = tree else { return Ok((Vec::new(), Vec::new(), None)) };
        match workspace::pack(&repo, repo.tree_of(base)?, tree) {
            Ok((pieces, content)) => Ok((pieces, content, Some(tree.to_string()))),
            // A refused tree is kept for people only, as far as it can be sent.
            Err(workspace::ParcelError::Refused(_)) => Ok((Vec::new(), Vec::new(), None)),
            Err(workspace::ParcelError::Workspace(error)) => Err(CycleError::from(error)),
        }
    })
    .await?;
    let acceptable = !matches!(said, Said::Refused { .. });
    let detail = match &said {
        Said::Refused { detail, .. } => detail.clone(),
        Said::Done | Said::Satisfied => String::new(),
    };
    let manifest = Manifest {
        run: granted.run.clone(),
        grant: granted.grant.clone(),
        node: granted.node.clone(),
        attempt: granted.attempt,
        owner: granted.owner.clone(),
        base: base.to_string(),
        tree,
        pieces,
        said,
        outcome: report.outcome,
        result: report.result,
        classification: report.classification,
        usage: report.usage,
        model_seen: report.model_seen,
        log: report.log,
    };
    let bundle = bundle::write(out, granted, manifest, &content)?;
    Ok(Left { node: granted.node.clone(), bundle, outcome, acceptable, detail })
}
