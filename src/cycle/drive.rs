//! The driver: asks the scheduling core what to start, runs attempts at once, tells the core how
//! they ended. It decides nothing itself.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::{Id, JoinSet};

use super::attempt::{self, Done, End};
use super::context::{Cycle, ReadyPool};
use super::desk::Desk;
use super::keys;
use super::{CycleError, land, others, progress, reconcile};
use crate::backends::classify::REDIRECT;
use crate::ledger::{
    Burn, DependsOn, EventKind, FrictionType, NodeRecord, NodeState, Run, SizeBan,
};
use crate::model::{NodeId, Outcome, PoolId};
use crate::scheduling::{
    AttemptLimits, Budgets, Ceiling, Decision, Effect, Finish, Finished, Millis, NodeSpec,
    NodeStatus, NodeWall, Options, PoolState, Scheduler, Settled, Spent, refused_here,
    settles_across_cycles, timestamp,
};

/// What the drive came to.
#[derive(Debug, Default)]
pub struct Drive {
    /// Attempts started.
    pub started: usize,
    /// Why the rest cannot go on, node by node.
    pub walls: Vec<NodeWall>,
    /// Stopped by the clock or by a signal while work was left.
    pub out_of_time: bool,
}

fn millis(at: Timestamp) -> Millis {
    at.as_millisecond()
}

/// Works until nothing more can be started in this cycle.
///
/// # Errors
/// When the ledger or the machine fails. Nodes and pools failing is not an error.
pub async fn drive(cycle: &Arc<Cycle>) -> Result<Drive, CycleError> {
    let desk = Desk::new(scheduler(cycle)?, cycle.clock.clone());
    let (landings, queue) = mpsc::unbounded_channel();
    let lander = tokio::spawn(land_in_order(cycle.clone(), queue));
    let keeper = tokio::spawn(renew_leases(cycle.clone()));
    let outcome = run(cycle, &desk, &landings).await;
    keeper.abort();
    drop(landings);
    lander.await.map_err(|e| CycleError::Internal(e.to_string()))??;
    keep_learned(cycle, &desk).await?;
    outcome
}

/// A change of a pool's scale that is worth an event.
const SCALE_STEP: f64 = 0.05;

/// What was learned of limits and of a pool's tokens outlives the job, also where it grew again.
async fn keep_learned(cycle: &Cycle, desk: &Desk) -> Result<(), CycleError> {
    let events: Vec<EventKind> = {
        let (run, core) = (cycle.journal.state(), desk.core());
        let changed = cycle.pools.keys().filter_map(|pool| {
            let limits = core.meters().learned(core.meter(pool)?);
            let known = run.pools.get(pool).and_then(|record| record.learned);
            (known.unwrap_or_default() != limits)
                .then(|| EventKind::LimitLearned { pool: pool.clone(), limits })
        });
        let scaled = cycle.pools.keys().filter_map(|pool| {
            let per_estimate = core.input_scale(pool)?;
            let known = run.pools.get(pool).and_then(|record| record.input_scale).unwrap_or(1.0);
            ((per_estimate - known).abs() > SCALE_STEP * known)
                .then(|| EventKind::TokensObserved { pool: pool.clone(), per_estimate })
        });
        changed.chain(scaled).collect()
    };
    if !events.is_empty() {
        cycle.journal.write(events).await?;
    }
    Ok(())
}

async fn run(
    cycle: &Arc<Cycle>,
    desk: &Arc<Desk>,
    landings: &mpsc::UnboundedSender<NodeId>,
) -> Result<Drive, CycleError> {
    let mut drive = Drive::default();
    let mut running: JoinSet<Result<Done, CycleError>> = JoinSet::new();
    let mut owners: HashMap<Id, (NodeId, PoolId)> = HashMap::new();
    let limit = usize::try_from(cycle.config.dispatch.concurrent).unwrap_or(usize::MAX).max(1);
    loop {
        let now = cycle.clock.now();
        if now >= cycle.deadline {
            cycle.cancel.cancel();
        }
        let stopping = cycle.cancel.is_cancelled();
        others::follow(cycle, desk);
        let changed = desk.changed();
        let mut changed = std::pin::pin!(changed);
        changed.as_mut().enable();
        let decision = if stopping || running.len() >= limit {
            Decision::Wait { until: None }
        } else {
            desk.core().next(millis(now))
        };
        let wait_until = match decision {
            Decision::Start { node, pool } => {
                let meter = desk.core().meter(&pool);
                let known = (cycle.plan.node(&node), cycle.pools.get(&pool), meter);
                let (Some(planned), Some(ready), Some(meter)) = known else {
                    desk.core().take_out(&node, false);
                    continue;
                };
                let seat = desk.seat(&node, meter);
                let work = attempt::run(cycle.clone(), planned.clone(), ready.clone(), seat);
                let task = running.spawn(work);
                owners.insert(task.id(), (node, pool));
                drive.started += 1;
                continue;
            }
            Decision::Wait { until } => until,
            Decision::Wall(walls) => {
                drive.walls = walls;
                None
            }
            Decision::Done => None,
        };
        if running.is_empty() {
            if stopping {
                match desk.core().next(millis(now)) {
                    Decision::Done => {}
                    // What time would not heal is said as it is.
                    Decision::Wall(walls) => drive.walls = walls,
                    Decision::Start { .. } | Decision::Wait { .. } => drive.out_of_time = true,
                }
                return Ok(drive);
            }
            let Some(until) = wait_until else { return Ok(drive) };
            progress::idle(cycle, timestamp(until));
            wait(cycle, Some(timestamp(until))).await;
            continue;
        }
        let ended = tokio::select! {
            ended = running.join_next_with_id() => ended,
            () = wait(cycle, wait_until.map(timestamp)), if !stopping => continue,
            // A request used less than it held, or a window was corrected.
            () = changed, if !stopping && running.len() < limit => continue,
        };
        match ended {
            None => {}
            Some(Ok((id, done))) => {
                let pool = owners.remove(&id).map(|(_, pool)| pool);
                settle(cycle, desk, done?, pool.as_ref(), Some(landings)).await?;
            }
            Some(Err(panicked)) => {
                // A panic in one node's task fails that attempt only.
                if let Some((node, pool)) = owners.remove(&panicked.id()) {
                    tracing::error!(%node, %pool, "an attempt ended unexpectedly: {panicked}");
                    give_up_claim(cycle, &node).await?;
                    desk.change(|core| core.take_out(&node, false));
                }
            }
        }
    }
}

/// Sleeps until a time, the deadline or the stop signal, whichever is first.
async fn wait(cycle: &Cycle, until: Option<Timestamp>) {
    tokio::select! {
        () = cycle.clock.sleep_until(until.map_or(cycle.deadline, |u| u.min(cycle.deadline))) => {}
        () = cycle.cancel.cancelled() => {}
    }
    if cycle.clock.now() >= cycle.deadline {
        cycle.cancel.cancel();
    }
}

/// Tells the core how an attempt ended, and the ledger what that means for pools.
pub(super) async fn settle(
    cycle: &Cycle,
    desk: &Desk,
    done: Done,
    pool: Option<&PoolId>,
    landings: Option<&mpsc::UnboundedSender<NodeId>>,
) -> Result<(), CycleError> {
    let now = cycle.clock.now();
    let mut events = Vec::new();
    match done.end {
        End::Lost => {
            desk.change(|core| core.take_out(&done.node, false));
            return Ok(());
        }
        End::Landed => {
            let finish = finish(&done, now);
            let finished = desk.change(|core| core.finished(&done.node, &finish, millis(now)));
            events.extend(pool_events(cycle, finished, &done));
            if events.is_empty() {
                events.extend(pool.and_then(|pool| recovered(cycle, pool, now)));
            }
            match cycle.depends_on() {
                DependsOn::Accepted => desk.core().landed(&done.node),
                DependsOn::Landed => {
                    desk.core().take_out(&done.node, false);
                }
            }
            let _ = landings.map(|landings| landings.send(done.node.clone()));
        }
        End::Conflict => desk.change(|core| core.in_vain(&done.node, done.usage)),
        End::HeldBack(until) => {
            let (asked, took) =
                cycle.journal.state().nodes.get(&done.node).map(needs).unwrap_or_default();
            desk.change(|core| {
                core.held_back(&done.node, millis(until));
                core.needs(&done.node, &asked, took);
            });
        }
        End::Ended => {
            let finish = finish(&done, now);
            let finished = desk.change(|core| core.finished(&done.node, &finish, millis(now)));
            events.extend(pool_events(cycle, finished, &done));
        }
    }
    events.extend(desk.core().drifts().into_iter().flat_map(|(pool, price)| drift(pool, price)));
    if !events.is_empty() {
        cycle.journal.write(events).await?;
    }
    // The ledger is the measure: whatever the core believes, a spent node is not started again.
    if cycle.states().get(&done.node) == Some(&NodeState::Failed) {
        desk.core().take_out(&done.node, true);
    }
    Ok(())
}

/// Longest spread of the work that waits for one reset, seconds.
const RESET_JITTER: f64 = 15.0;

fn finish(done: &Done, now: Timestamp) -> Finish {
    let mut finish = Finish::new(done.outcome);
    if let Some(reading) = &done.classification {
        // Counted from the cycle's own clock: the other side's may differ.
        finish.reset_at = reading.reset_seconds.filter(|s| s.is_finite() && *s >= 0.0).map(|s| {
            let jitter = fastrand::f64() * (s / 10.0).min(RESET_JITTER);
            #[expect(clippy::cast_possible_truncation, reason = "saturates; the core cuts it")]
            let wait = ((s + jitter) * 1_000.0) as Millis;
            millis(now).saturating_add(wait)
        });
        finish.temporary = reading.temporary;
    }
    finish.usage = Some(done.usage);
    finish
}

fn pool_events(cycle: &Cycle, finished: Option<Finished>, done: &Done) -> Vec<EventKind> {
    let effects = finished.map(|f| f.effects).unwrap_or_default();
    effects.iter().flat_map(|effect| effect_events(cycle, effect, done)).collect()
}

/// A pool that is declared free charges: it is dear from here on, and that is said once.
fn drift(pool: PoolId, usd_per_mtok: f64) -> [EventKind; 2] {
    let text = format!("declared free; its answers charge {usd_per_mtok:.2} US dollars per Mtok");
    let friction = friction(FrictionType::DeclaredCostDrift, pool.to_string(), text);
    [EventKind::CostObserved { pool, usd_per_mtok }, friction]
}

/// A success after a pause: the backoff starts anew.
fn recovered(cycle: &Cycle, pool: &PoolId, now: Timestamp) -> Option<EventKind> {
    let run = cycle.journal.state();
    let record = run.pools.get(pool)?;
    let over = record.paused.as_ref().is_some_and(|p| p.until <= now);
    (over && record.settled.is_none())
        .then(|| EventKind::PoolRestored { pool: pool.clone(), by: "a success".to_owned() })
}

fn effect_events(cycle: &Cycle, effect: &Effect, done: &Done) -> Vec<EventKind> {
    let evidence = done.classification.as_ref().map(|c| c.evidence.clone()).unwrap_or_default();
    match effect {
        // An open circuit breaker dies with the job: a fresh one tries again.
        Effect::Paused { pool, until, outcome, .. } if !settles_across_cycles(*outcome) => {
            tracing::info!("{}", progress::waits(pool, timestamp(*until), *outcome));
            Vec::new()
        }
        Effect::Paused { pool, until, step, outcome } => {
            let mut events = vec![EventKind::PoolPaused {
                pool: pool.clone(),
                until: timestamp(*until),
                outcome: *outcome,
                evidence: evidence.clone(),
                step: *step,
            }];
            if *step > 1 {
                let text = format!("limited {step} times in a row, as soon as its pause was over");
                events.push(friction(FrictionType::QuotaEscalation, pool.to_string(), text));
            }
            if *outcome == Outcome::QuotaUnclassified {
                events.push(friction(FrictionType::QuotaUnclassified, pool.to_string(), evidence));
            }
            events
        }
        Effect::Settled { pool, settled } => {
            let kind = match settled.outcome {
                Outcome::CreditExhausted => FrictionType::CreditExhausted,
                Outcome::ModelUnavailable => FrictionType::ModelUnavailable,
                _ => FrictionType::PoolSettled,
            };
            vec![
                EventKind::PoolSettled {
                    pool: pool.clone(),
                    outcome: settled.outcome,
                    until: settled.until.map(timestamp),
                    evidence: evidence.clone(),
                    key: (settled.outcome == Outcome::Auth)
                        .then(|| refused_key(cycle, pool, done))
                        .flatten(),
                },
                settled_friction(kind, pool, done, evidence),
            ]
        }
        Effect::Restored { pool } => {
            vec![EventKind::PoolRestored { pool: pool.clone(), by: "a probe".to_owned() }]
        }
        Effect::Banned { node, pool, tokens } => vec![
            EventKind::SizeBanned {
                node: node.clone(),
                pool: pool.clone(),
                tokens: *tokens,
                context_tokens: cycle.pools.get(pool).map(|ready| ready.pool.context_tokens),
            },
            friction(FrictionType::PacketTooLarge, format!("{node}:{pool}"), evidence),
        ],
        Effect::Learned { pool, limits } => {
            vec![EventKind::LimitLearned { pool: pool.clone(), limits: *limits }]
        }
        Effect::Blocked { .. } => Vec::new(),
    }
}

/// Which key it was: the job that was refused knows, else this one.
fn refused_key(cycle: &Cycle, pool: &PoolId, done: &Done) -> Option<String> {
    done.key.clone().or_else(|| keys::tag(cycle.config.pool(pool)?, &*cycle.env))
}

/// The record of a settle. Another address heals by no wait.
fn settled_friction(kind: FrictionType, pool: &PoolId, done: &Done, evidence: String) -> EventKind {
    let mut event = friction(kind, pool.to_string(), evidence);
    if let EventKind::Friction { remedy, .. } = &mut event
        && done.classification.as_ref().is_some_and(|reading| reading.rule == REDIRECT)
    {
        "correct `base-url`, then `unsettle`".clone_into(remedy);
    }
    event
}

pub(super) fn friction(kind: FrictionType, discriminator: String, text: String) -> EventKind {
    let remedy = match kind {
        FrictionType::CreditExhausted => "top up the account, or exclude the pool; then `unsettle`",
        FrictionType::ModelUnavailable => "name another model, or wait for the probe",
        FrictionType::PacketTooLarge => "add a pool with a larger window, or split the node",
        FrictionType::DeclaredCostDrift => "declare `cost-per-mtok`, or exclude the pool",
        FrictionType::QuotaUnclassified => "declare the pool's limits",
        FrictionType::QuotaEscalation => {
            "declare the pool's limits, lower its `concurrent`, or add a pool"
        }
        FrictionType::QuotaBlind => {
            "give it a `key-env`, so that its requests go through a gateway; or declare `concurrent`"
        }
        FrictionType::NewlyReachablePool => "nothing: nodes that fit it can use it now",
        FrictionType::UnknownTier => "declare `tier`",
        _ => "see the pool's cause; renew its key (a new one is tried by itself) or exclude it",
    };
    EventKind::Friction { friction: kind, discriminator, text, remedy: remedy.to_owned() }
}

/// Ends the claim of an attempt whose task died; counted, so that it cannot go on for ever.
async fn give_up_claim(cycle: &Cycle, node: &NodeId) -> Result<(), CycleError> {
    let event = {
        let run = cycle.journal.state();
        run.nodes.get(node).and_then(|n| n.claim.as_ref()).filter(|c| c.holder == cycle.holder).map(
            |claim| reconcile::end_of_dead_claim(&run, node, claim, "its task ended unexpectedly"),
        )
    };
    if let Some(event) = event {
        cycle.journal.write(vec![event]).await?;
    }
    Ok(())
}

/// Keeps this process's claims alive. A lost renewal is no harm: the fence is at the landing.
async fn renew_leases(cycle: Arc<Cycle>) {
    let lease = cycle.config.dispatch.lease.get();
    let every = (lease / 3).max(Duration::from_secs(1));
    loop {
        tokio::time::sleep(every).await;
        let now = cycle.clock.now();
        let until =
            now.checked_add(SignedDuration::try_from(lease).unwrap_or_default()).unwrap_or(now);
        let renewals: Vec<EventKind> = {
            let run = cycle.journal.state();
            held(&run, &cycle)
                .map(|(node, owner)| EventKind::LeaseRenewed {
                    node: node.clone(),
                    owner: owner.clone(),
                    lease_until: until,
                })
                .collect()
        };
        if !renewals.is_empty()
            && let Err(error) = cycle.journal.write(renewals).await
        {
            tracing::warn!(%error, "leases were not renewed");
        }
    }
}

/// The claims that this process holds.
pub(super) fn held<'a>(
    run: &'a Run,
    cycle: &'a Cycle,
) -> impl Iterator<Item = (&'a NodeId, &'a crate::model::OwnerToken)> {
    run.nodes.iter().filter_map(|(id, n)| {
        n.claim.as_ref().filter(|c| c.holder == cycle.holder).map(|c| (id, &c.owner))
    })
}

/// Lands accepted nodes one by one in the order of acceptance: a stacked pull request finds its
/// base branch there.
async fn land_in_order(
    cycle: Arc<Cycle>,
    mut queue: mpsc::UnboundedReceiver<NodeId>,
) -> Result<(), CycleError> {
    while let Some(node) = queue.recv().await {
        let mut nodes = vec![node];
        while let Ok(more) = queue.try_recv() {
            nodes.push(more);
        }
        land::finish_nodes(&cycle, &nodes).await?;
    }
    land::finish_pending(&cycle).await
}

fn scheduler(cycle: &Cycle) -> Result<Scheduler, CycleError> {
    scheduler_over(cycle, |pool| pool.worker.is_some())
}

/// Every node of the plan as the scheduling core sees it.
fn node_specs(cycle: &Cycle, run: &Run) -> Vec<NodeSpec> {
    let states = cycle.states();
    cycle
        .plan
        .nodes
        .iter()
        .map(|node| {
            let mut spec = NodeSpec::from(node);
            if let Some(record) = run.nodes.get(&node.id) {
                spec.after.extend(record.conflicts.iter().cloned());
                spec.contract_failures = record.contract_burnt;
                spec.infra_failures = record.infrastructure_burnt;
                spec.spent = record.usage.into();
                spec.refused = refused_by(cycle, run, record);
                (spec.asked, spec.took) = needs(record);
            }
            if let Some(bans) = run.bans.get(&node.id) {
                spec.banned = holding(cycle, bans);
            }
            spec.status = status(states.get(&node.id).copied(), cycle.depends_on());
            spec
        })
        .collect()
}

/// Pools that refused what the node asks, while another one is left that may take it: one of this
/// cycle, or one that is settled and may come back.
fn refused_by(cycle: &Cycle, run: &Run, record: &NodeRecord) -> Vec<PoolId> {
    let of_now = record.failures.iter().filter(|f| f.attempt.0 > record.reopened_after);
    let refused = of_now.filter(|f| f.burn != Burn::None && refused_here(f.outcome));
    let pools: Vec<PoolId> = refused.map(|f| f.pool.clone()).collect();
    let settled = run.pools.iter().filter(|(_, pool)| pool.settled.is_some()).map(|(id, _)| id);
    let declared = settled.filter(|id| cycle.config.pool(id).is_some());
    if cycle.pools.keys().chain(declared).all(|id| pools.contains(id)) {
        return Vec::new();
    }
    pools
}

/// The bans that hold for the pools as they are declared now.
fn holding(cycle: &Cycle, bans: &BTreeMap<PoolId, SizeBan>) -> Vec<(PoolId, u64)> {
    let window = |pool: &PoolId| cycle.pools.get(pool).map_or(0, |p| p.pool.context_tokens);
    let held = bans.iter().filter(|(pool, ban)| ban.holds(window(pool)));
    held.map(|(pool, ban)| (pool.clone(), ban.tokens)).collect()
}

/// What our own limits and budgets did not let through, for [`Scheduler::needs`].
fn needs(record: &NodeRecord) -> (Vec<(PoolId, u64)>, Spent) {
    let asked = record.outgrown.iter().map(|(pool, tokens)| (pool.clone(), *tokens));
    (asked.collect(), record.took.into())
}

/// The pools of this cycle that `wanted` lets through, with what the ledger remembers of them.
pub(super) fn pool_states(
    cycle: &Cycle,
    run: &Run,
    wanted: impl Fn(&ReadyPool) -> bool,
) -> Vec<PoolState> {
    let now = cycle.clock.now();
    let pools = cycle.pools.values().filter(|p| wanted(p));
    pools.map(|ready| pool_state(ready.pool.clone(), run, now)).collect()
}

/// The scheduling core over the pools that `wanted` lets through.
pub(super) fn scheduler_over(
    cycle: &Cycle,
    wanted: impl Fn(&ReadyPool) -> bool,
) -> Result<Scheduler, CycleError> {
    let run = cycle.journal.state().clone();
    scheduler_of(cycle, &run, pool_states(cycle, &run, wanted))
}

/// The scheduling core over these pools. What jobs elsewhere are at work on takes its place in their
/// meters.
pub(super) fn scheduler_of(
    cycle: &Cycle,
    run: &Run,
    pools: Vec<PoolState>,
) -> Result<Scheduler, CycleError> {
    let nodes = node_specs(cycle, run);
    let budget = &cycle.config.dispatch.budget;
    let whole = Ceiling {
        requests: budget.requests,
        tokens: budget.tokens,
        usd: budget.usd.map(|usd| usd + run.extra_budget_usd),
    };
    let budgets = Budgets {
        run: whole.less(run.usage.into()),
        cycle: Ceiling {
            requests: budget.cycle_requests,
            tokens: budget.cycle_tokens,
            usd: budget.cycle_usd,
        },
        node: Ceiling {
            requests: budget.node_requests,
            tokens: budget.node_tokens,
            usd: budget.node_usd,
        },
    };
    let max = &cycle.config.dispatch.max_attempts;
    let options = Options {
        dial: cycle.config.dispatch.dial.0,
        start: millis(cycle.clock.now()),
        deadline: Some(millis(cycle.deadline)),
        patience: cycle.patience.and_then(|time| Millis::try_from(time.as_millis()).ok()),
        budgets,
        attempts: AttemptLimits { contract: max.contract, infrastructure: max.infrastructure },
        ..Options::default()
    };
    let mut scheduler =
        Scheduler::new(nodes, pools, options).map_err(|e| CycleError::Internal(e.to_string()))?;
    let mut granted: Vec<_> = run.grants.values().collect();
    granted.sort_by_key(|grant| grant.at);
    for grant in granted {
        for claim in run.outstanding(grant) {
            scheduler.adopt(&claim.node, &claim.pool, millis(grant.at));
        }
    }
    Ok(scheduler)
}

fn status(state: Option<NodeState>, depends: DependsOn) -> NodeStatus {
    match state {
        Some(NodeState::Landed | NodeState::Satisfied) => NodeStatus::Done,
        Some(NodeState::Accepted | NodeState::InReview) => match depends {
            DependsOn::Accepted => NodeStatus::Done,
            DependsOn::Landed => NodeStatus::Elsewhere,
        },
        Some(NodeState::Claimed | NodeState::Working) => NodeStatus::Elsewhere,
        Some(NodeState::Waiting | NodeState::Ready) => NodeStatus::Open,
        Some(NodeState::Failed | NodeState::Rejected | NodeState::Skipped | NodeState::Blocked)
        | None => NodeStatus::Failed,
    }
}

/// A pause that ended longer ago says nothing of the limits now: twice the longest backoff.
const STEP_MEMORY: SignedDuration = SignedDuration::from_mins(30);

/// What the ledger remembers of a pool.
fn pool_state(pool: crate::model::Pool, run: &Run, now: Timestamp) -> PoolState {
    let mut state = PoolState::from(pool);
    let Some(record) = run.pools.get(&state.pool.id) else { return state };
    // One that is over still counts as a step of the backoff, until a success ends it.
    let fresh = now.checked_sub(STEP_MEMORY).unwrap_or(now);
    if let Some(pause) = record.paused.as_ref().filter(|p| p.until > fresh) {
        state.paused = Some((pause.outcome, millis(pause.until), pause.step));
    }
    // Also one whose end has come: a single probe decides then.
    if let Some(settle) = &record.settled {
        state.settled = Some(Settled { outcome: settle.outcome, until: settle.until.map(millis) });
    }
    if let Some(learned) = record.learned {
        state.learned = learned;
    }
    state.service = state.service.corrected(&record.served);
    // A person who declares a price knows it better.
    if state.pool.cost_per_mtok == Some(0.0) && record.usd_per_mtok.is_some() {
        state.pool.cost_per_mtok = record.usd_per_mtok;
    }
    if let Some(scale) = record.input_scale.filter(|scale| scale.is_finite() && *scale > 0.0) {
        state.pool.input_scale = scale;
    }
    state.used = record.recent.iter().map(|(at, usage)| (millis(*at), *usage)).collect();
    state
}
