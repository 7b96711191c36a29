//! One attempt at one node: claim, work, accept, record. Whatever happens in here stays with the
//! node: the only errors that leave are the ledger's and the machine's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

use super::accept::{self, OnBase, Refusal, Verdict};
use super::bases::{self, Base};
use super::context::{Cycle, ReadyPool};
use super::desk::Seat;
use super::error::blocking;
use super::{CycleError, land, others, setup};
use crate::backends::gateway::{Lack, Open};
use crate::backends::{Attempt, ModelSwitch, WorkReport};
use crate::ledger::{Burn, EventKind, Evidence, FrictionType, NodeRecord, Receipt};
use crate::model::{
    AttemptNumber, Classification, Finding, Node, NodeId, Outcome, OwnerToken, Pool, Usage,
};
use crate::workspace::{Quarantine, quarantine};

/// How the attempt ended, for the scheduler.
#[derive(Debug, Clone)]
pub struct Done {
    /// Which node.
    pub node: NodeId,
    /// How the backend call ended.
    pub outcome: Outcome,
    /// The reading of a backend failure.
    pub classification: Option<Classification>,
    /// Consumption.
    pub usage: Usage,
    /// Which key was refused, where another job knows.
    pub key: Option<String>,
    /// What became of the node.
    pub end: End,
}

/// What became of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Accepted, or proven to need nothing.
    Landed,
    /// Back to the frontier, or out of attempts: the ledger knows.
    Ended,
    /// It does not merge with accepted work; the next attempt builds on that.
    Conflict,
    /// Its pool had no room for its next request before then; nobody's failure.
    HeldBack(Timestamp),
    /// Somebody else owns it.
    Lost,
}

/// The parts of an attempt that do not change while it runs.
pub(super) struct Ticket {
    pub node: Node,
    pub findings: Vec<Finding>,
    pub number: AttemptNumber,
    pub owner: OwnerToken,
    pub pool: ReadyPool,
    /// Where its requests are admitted; none where nothing is asked for.
    pub seat: Option<Arc<Seat>>,
    pub base: Base,
    pub previous_failure: Option<String>,
    pub told: Told,
}

/// What only the job knows that did the attempt, where that was another one.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    /// Until when our own windows or budgets let no request of it through there.
    pub held_back: Option<Timestamp>,
    /// Which key was refused there ([`super::keys`]).
    pub key: Option<String>,
}

/// Runs one attempt to its recorded end.
///
/// # Errors
/// When the ledger or the machine fails; the claim then stays for the next cycle to release.
pub async fn run(
    cycle: Arc<Cycle>,
    node: Node,
    pool: ReadyPool,
    seat: Arc<Seat>,
) -> Result<Done, CycleError> {
    let node_id = node.id.clone();
    let Some(ticket) = claim(&cycle, node, pool, seat.clone()).await? else {
        return Ok(Done {
            node: node_id,
            outcome: Outcome::Success,
            classification: None,
            usage: Usage::default(),
            key: None,
            end: End::Lost,
        });
    };
    others::follow(&cycle, seat.desk());
    if seat.gives_way() {
        return give_way(&cycle, ticket).await;
    }
    crate::failpoint::attempt(node_id.as_str());
    let (report, verdict) = match work_and_judge(&cycle, &ticket).await {
        Ok(both) => both,
        Err(error) => (nothing_to_do(), unworkable(error)?),
    };
    record(&cycle, &ticket, report, verdict).await
}

/// Another cycle claimed its node first, on the same meter, and that is full by it.
async fn give_way(cycle: &Cycle, ticket: Ticket) -> Result<Done, CycleError> {
    let (node, owner) = (ticket.node.id, ticket.owner);
    let reason = "another cycle uses the pool's limits".to_owned();
    cycle.journal.write(vec![EventKind::Released { node: node.clone(), owner, reason }]).await?;
    Ok(Done {
        node,
        outcome: Outcome::Success,
        classification: None,
        usage: Usage::default(),
        end: End::HeldBack(cycle.clock.now()),
        key: None,
    })
}

/// Trouble with one node's worktree, commands or commits is that attempt's end and nobody else's;
/// without the ledger nothing goes on.
pub(super) fn unworkable(error: CycleError) -> Result<Verdict, CycleError> {
    match error {
        CycleError::Journal(_) => Err(error),
        error => {
            tracing::error!(%error, "an attempt could not be carried out");
            let detail = format!("The attempt could not be carried out: {error}.");
            Ok(Verdict::Refused(Refusal::new(Outcome::Error, detail)))
        }
    }
}

/// Takes the node in the ledger; `None` when somebody else has it.
async fn claim(
    cycle: &Cycle,
    node: Node,
    pool: ReadyPool,
    seat: Arc<Seat>,
) -> Result<Option<Ticket>, CycleError> {
    let run = cycle.journal.state().clone();
    let now = cycle.clock.now();
    let (repo, head, for_node) = (cycle.repo().clone(), cycle.base.commit, node.clone());
    let record = run.nodes.get(&node.id).cloned().unwrap_or_default();
    let base = blocking(move || bases::base_for(&repo, &run, &for_node, head)).await;
    let number = AttemptNumber(record.attempts + 1);
    let owner = new_owner()?;
    let lease = SignedDuration::try_from(cycle.config.dispatch.lease.get())
        .unwrap_or(SignedDuration::from_hours(1));
    let claimed = EventKind::Claimed {
        node: node.id.clone(),
        attempt: number,
        owner: owner.clone(),
        lease_until: now.checked_add(lease).unwrap_or(now),
        holder: cycle.holder.clone(),
    };
    let base = match base {
        Ok(base) => base,
        Err(error @ CycleError::Journal(_)) => return Err(error),
        Err(error) => {
            tracing::error!(node = %node.id, %error, "no base to work on");
            let ended = EventKind::AttemptEnded {
                node: node.id.clone(),
                attempt: number,
                owner: owner.clone(),
                pool: pool.pool.id.clone(),
                outcome: Outcome::Error,
                burn: Burn::Infrastructure,
                detail: format!("There is no base to work on: {error}."),
                usage: Usage::default(),
                evidence: None,
                quarantine: None,
                conflicts_with: Vec::new(),
            };
            cycle.journal.write(vec![claimed, ended]).await?;
            return Ok(None);
        }
    };
    let started = EventKind::AttemptStarted {
        node: node.id.clone(),
        attempt: number,
        owner: owner.clone(),
        pool: pool.pool.id.clone(),
        base: base.commit().to_string(),
        expected: expected(&node, &pool.pool),
    };
    if !cycle.journal.write(vec![claimed, started]).await?.all() {
        return Ok(None);
    }
    let ticket = Ticket::new(cycle, &record, node, number, owner, pool, base);
    Ok(Some(Ticket { seat: Some(seat), ..ticket }))
}

/// What the first request of an attempt is expected to use.
fn expected(node: &Node, pool: &Pool) -> Usage {
    let output_tokens = node.output_tokens.min(pool.output_tokens);
    Usage {
        requests: 1,
        input_tokens: node.input_tokens,
        output_tokens,
        cost_usd: pool.price(node.input_tokens.saturating_add(output_tokens)),
    }
}

/// A fence for a claim.
pub(super) fn new_owner() -> Result<OwnerToken, CycleError> {
    OwnerToken::new(format!("{:032x}", fastrand::u128(..)))
        .map_err(|e| CycleError::Internal(e.to_string()))
}

impl Ticket {
    pub(super) fn new(
        cycle: &Cycle,
        record: &NodeRecord,
        node: Node,
        number: AttemptNumber,
        owner: OwnerToken,
        pool: ReadyPool,
        base: Base,
    ) -> Self {
        let findings =
            node.findings.iter().filter_map(|id| cycle.plan.finding(id)).cloned().collect();
        let failed = record.failures.iter().rev().find(|f| f.burn != Burn::None);
        let previous_failure = match (&record.reopened, failed) {
            (Some(why), Some(f)) if f.attempt.0 > record.reopened_after => {
                Some(format!("{why}\n\nThe attempt after that was refused too. {}", f.detail))
            }
            (Some(why), _) => Some(why.clone()),
            (None, failed) => failed.map(|f| f.detail.clone()),
        };
        let told = Told::default();
        Self { node, findings, number, owner, pool, seat: None, base, previous_failure, told }
    }

    /// Until when our own windows or budgets let no request of it through, where that ended it.
    pub(super) fn held_back(&self) -> Option<Timestamp> {
        let here = self.seat.as_ref().and_then(|seat| seat.held_back());
        here.map(|(_, until)| until).or(self.told.held_back)
    }

    /// The attempt as its worker sees it.
    pub(super) fn attempt(&self, cycle: &Cycle, workdir: PathBuf, home: PathBuf) -> Attempt {
        Attempt {
            run: cycle.run_id().clone(),
            node: self.node.clone(),
            findings: self.findings.clone(),
            number: self.number,
            base: self.base.commit().to_string(),
            pool: match &self.seat {
                Some(seat) => seat.known(&self.pool.pool),
                None => self.pool.pool.clone(),
            },
            workdir,
            home,
            previous_failure: self.previous_failure.clone(),
            repair: None,
            deadline: self.pool.attempt_timeout,
            token_budget: token_budget(cycle, self),
            request_budget: cycle.config.dispatch.budget.attempt_requests,
            money_budget: cycle.config.dispatch.budget.attempt_usd,
            admission: match &self.seat {
                Some(seat) => seat.clone(),
                None => Arc::new(Open),
            },
            cancel: cycle.cancel.clone(),
        }
    }
}

pub(super) async fn work_and_judge(
    cycle: &Cycle,
    ticket: &Ticket,
) -> Result<(WorkReport, Verdict), CycleError> {
    if let Some(why) = setup::missing_program(cycle, &ticket.node.verify, &ticket.findings) {
        let detail = format!("No worker was started: {why}.");
        return Ok(not_begun(Verdict::Refused(Refusal::new(Outcome::Error, detail))));
    }
    let slot = accept::slot_at(cycle, ticket.base.commit()).await?;
    match accept::on_base(cycle, ticket, &slot).await? {
        OnBase::There => {}
        OnBase::Gone { evidence } => return Ok(not_begun(Verdict::Satisfied { evidence })),
        OnBase::Blind { why } => {
            return Ok(not_begun(Verdict::Refused(accept::blind(cycle, ticket, &why))));
        }
    }
    let attempt = ticket.attempt(cycle, slot.path(), slot.home());
    let Some(worker) = ticket.pool.worker.clone() else {
        return Err(CycleError::Internal(format!("pool {} has no worker", ticket.pool.pool.id)));
    };
    let started = Instant::now();
    let mut report = worker.work(attempt.clone()).await;
    report.time.get_or_insert_with(|| started.elapsed());
    let mut verdict = accept::judge(cycle, ticket, &slot, &report).await?;
    // One repair turn for a malformed result, in the same worktree.
    if let Verdict::Refused(refusal) = &verdict
        && refusal.repairable
        && !cycle.cancel.is_cancelled()
        && let Some(rest) = repair_turn(attempt, &report, &refusal.detail)
    {
        let second = worker.work(rest).await;
        // The time that was left for it is no word of the backend: the first result is what failed.
        let in_vain = second.outcome == Outcome::Timeout && !cycle.cancel.is_cancelled();
        let judged = match in_vain {
            true => None,
            false => Some(accept::judge(cycle, ticket, &slot, &second).await?),
        };
        report = one_attempt(report, second);
        match judged {
            Some(judged) => verdict = judged,
            None => report.outcome = Outcome::InvalidResult,
        }
    }
    Ok((report, verdict))
}

/// The second turn of an attempt, with what the first one left of its time and budgets; none where
/// there is no time left.
fn repair_turn(mut attempt: Attempt, first: &WorkReport, problem: &str) -> Option<Attempt> {
    let left = attempt.deadline.saturating_sub(first.time.unwrap_or_default());
    if left.is_zero() {
        return None;
    }
    let used = first.usage;
    attempt.repair = Some(problem.to_owned());
    attempt.deadline = left;
    attempt.request_budget = attempt.request_budget.saturating_sub(used.requests).max(1);
    attempt.token_budget = attempt.token_budget.saturating_sub(used.tokens());
    attempt.money_budget = attempt.money_budget.map(|usd| (usd - used.cost_usd).max(0.0));
    Some(attempt)
}

/// Both turns are one attempt: what either of them showed counts.
fn one_attempt(first: WorkReport, mut second: WorkReport) -> WorkReport {
    second.usage += first.usage;
    second.classification = second.classification.or(first.classification);
    second.model_seen = second.model_seen.or(first.model_seen);
    second.model_switch = second.model_switch.or(first.model_switch);
    second
}

/// A tool loop sends its whole history with each request: allow a generous multiple of one turn.
fn token_budget(cycle: &Cycle, ticket: &Ticket) -> u64 {
    let one_turn = ticket.node.input_tokens.saturating_add(ticket.node.output_tokens);
    let usual = one_turn.saturating_mul(20).max(200_000);
    cycle.config.dispatch.budget.attempt_tokens.unwrap_or(usual)
}

/// The end of an attempt that nobody worked on.
fn not_begun(verdict: Verdict) -> (WorkReport, Verdict) {
    (nothing_to_do(), verdict)
}

pub(super) fn nothing_to_do() -> WorkReport {
    WorkReport::ended(Outcome::Success, "")
}

/// Writes the end into the ledger, in the order that a crash at any point survives.
pub(super) async fn record(
    cycle: &Cycle,
    ticket: &Ticket,
    report: WorkReport,
    verdict: Verdict,
) -> Result<Done, CycleError> {
    let mut done = Done {
        node: ticket.node.id.clone(),
        outcome: report.outcome,
        classification: report.classification.clone(),
        usage: report.usage,
        key: ticket.told.key.clone(),
        end: End::Ended,
    };
    let switched = model_switched(ticket, &report);
    match verdict {
        Verdict::Satisfied { evidence } => {
            let satisfied = EventKind::Satisfied {
                node: ticket.node.id.clone(),
                attempt: ticket.number,
                owner: ticket.owner.clone(),
                evidence,
            };
            let written = cycle.journal.write(vec![satisfied]).await?;
            done.end = if written.all() { End::Landed } else { End::Lost };
        }
        Verdict::Good(good) => {
            let receipt = Receipt {
                base: ticket.base.commit().to_string(),
                on: ticket.base.nodes(),
                commit: good.commit.to_string(),
                tree: good.tree.to_string(),
                resolved: good.resolved,
                touched: good.touched,
                checks: good.checks,
                pool: ticket.pool.pool.id.clone(),
                model_seen: report.model_seen.clone(),
                agent: ticket.pool.agent.clone(),
                usage: report.usage,
                summary: good.summary,
                authors: Vec::new(),
            };
            let friction = good.friction.into_iter().chain(switched).collect();
            match land::accept(cycle, ticket, receipt, friction).await {
                Ok(land::Acceptance::Accepted) => done.end = End::Landed,
                Ok(land::Acceptance::Lost) => done.end = End::Lost,
                Ok(land::Acceptance::Conflict { detail, with }) => {
                    done.end = End::Conflict;
                    // The world moved, not the node's fault.
                    let ended = ended(
                        ticket,
                        &report,
                        Outcome::InvalidResult,
                        Burn::Infrastructure,
                        detail,
                        None,
                        with,
                    );
                    cycle.journal.write(vec![ended]).await?;
                }
                Err(error) => {
                    if let Verdict::Refused(refusal) = unworkable(error)? {
                        refuse(cycle, ticket, &report, refusal, &mut done).await?;
                    }
                }
            }
        }
        Verdict::Refused(mut refusal) => {
            refusal.friction.extend(switched);
            refuse(cycle, ticket, &report, refusal, &mut done).await?;
        }
    }
    Ok(done)
}

/// The record of a silent switch of models; one per pool and model that answered.
fn model_switched(ticket: &Ticket, report: &WorkReport) -> Option<EventKind> {
    let switch = report.model_switch.as_ref()?;
    let (pool, model) = (&ticket.pool.pool.id, &ticket.pool.pool.model);
    let ModelSwitch { asked, answered } = switch;
    let text = if answered.is_empty() || asked == answered {
        format!("`{pool}` is for `{model}`, and `{asked}` was asked for")
    } else {
        format!("`{pool}` is for `{model}`; `{asked}` was asked for, and `{answered}` answered")
    };
    Some(EventKind::Friction {
        friction: FrictionType::ModelSwitched,
        discriminator: format!("{pool}:{asked}:{answered}"),
        text,
        remedy: "correct `model`, or look at what the backend or the agent puts in its place"
            .to_owned(),
    })
}

/// Books a refused attempt, with its tree for people.
async fn refuse(
    cycle: &Cycle,
    ticket: &Ticket,
    report: &WorkReport,
    refusal: Refusal,
    done: &mut Done,
) -> Result<(), CycleError> {
    done.outcome = refusal.outcome;
    let quarantine = match refusal.tree {
        Some(tree) => keep_refused(cycle, ticket, tree, &refusal.detail).await,
        None => None,
    };
    // An attempt that was not let through has failed at nothing: no backend has refused its size.
    let held_back = ticket.held_back();
    let cancelled = cycle.cancel.is_cancelled();
    let stopped = cancelled || held_back.is_some();
    let burn = if stopped && refusal.outcome != Outcome::InvalidResult {
        Burn::None
    } else {
        crate::scheduling::burn(refusal.outcome)
    };
    if burn == Burn::None && stopped {
        if let Some(until) = held_back {
            done.end = End::HeldBack(until);
        } else if refusal.outcome == Outcome::Timeout {
            // Our stop is no word of the pool's.
            done.end = End::HeldBack(cycle.clock.now());
        }
    }
    let (outcome, detail) = (refusal.outcome, refusal.detail);
    let mut events = vec![ended(ticket, report, outcome, burn, detail, quarantine, Vec::new())];
    events.extend(refusal.friction);
    events.extend(need_seen(ticket, report).filter(|_| burn == Burn::None));
    cycle.journal.write(events).await?;
    Ok(())
}

/// What the refused request needs, where time alone does not help it: so that the node is not
/// started again for the same end.
fn need_seen(ticket: &Ticket, report: &WorkReport) -> Option<EventKind> {
    let seat = ticket.seat.as_ref()?;
    let (refused, _) = seat.held_back()?;
    let least = seat.unmet()?;
    let mut used = report.usage;
    used += Usage {
        requests: 1,
        input_tokens: least.input_tokens,
        output_tokens: least.output_tokens,
        cost_usd: ticket.pool.pool.price(least.total()),
    };
    let fits = refused.lack != Lack::Fit;
    Some(EventKind::NeedSeen {
        node: ticket.node.id.clone(),
        pool: ticket.pool.pool.id.clone(),
        input_tokens: (!fits).then_some(least.input_tokens),
        used: fits.then_some(used),
    })
}

fn ended(
    ticket: &Ticket,
    report: &WorkReport,
    outcome: Outcome,
    burn: Burn,
    detail: String,
    quarantine: Option<String>,
    conflicts_with: Vec<NodeId>,
) -> EventKind {
    EventKind::AttemptEnded {
        node: ticket.node.id.clone(),
        attempt: ticket.number,
        owner: ticket.owner.clone(),
        pool: ticket.pool.pool.id.clone(),
        outcome,
        burn,
        detail,
        usage: report.usage,
        evidence: evidence(ticket, report),
        quarantine,
        conflicts_with,
    }
}

/// What the backend answered: as the gateway saw it, else as the worker's output tells it.
fn evidence(ticket: &Ticket, report: &WorkReport) -> Option<Evidence> {
    let said = report.classification.as_ref();
    let told = said.map(|reading| Evidence {
        rule: reading.rule.clone(),
        text: reading.evidence.clone(),
        reset_seconds: reading.reset_seconds,
        ..Evidence::default()
    });
    ticket.seat.as_ref().and_then(|seat| seat.evidence()).or(told)
}

/// Refused attempts whose trees are kept, per run.
const QUARANTINE_KEPT: usize = 50;

/// Keeps the tree of a refused attempt; best effort, because the attempt is over either way.
async fn keep_refused(
    cycle: &Cycle,
    ticket: &Ticket,
    tree: crate::git::Oid,
    reason: &str,
) -> Option<String> {
    let repo = cycle.repo().clone();
    let (run, node, attempt) = (cycle.run_id().clone(), ticket.node.id.clone(), ticket.number);
    let (base, time, reason) = (ticket.base.commit(), cycle.clock.now(), reason.to_owned());
    let kept = blocking(move || {
        let it = Quarantine { run: &run, node: &node, attempt, base, tree, reason: &reason, time };
        quarantine(&repo, &it, QUARANTINE_KEPT)
    })
    .await;
    match kept {
        Ok(name) => Some(name),
        Err(error) => {
            tracing::warn!(node = %ticket.node.id, %error, "the refused tree could not be kept");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{one_attempt, repair_turn};
    use crate::backends::testing::attempt;
    use crate::backends::{Attempt, ModelSwitch, WorkReport};
    use crate::model::{Outcome, Usage};

    fn first() -> WorkReport {
        let mut report = WorkReport::ended(Outcome::InvalidResult, "no result");
        report.time = Some(Duration::from_secs(40));
        report.usage = Usage { requests: 3, input_tokens: 900, output_tokens: 100, cost_usd: 0.25 };
        report.model_switch =
            Some(ModelSwitch { asked: "big".to_owned(), answered: "small".to_owned() });
        report
    }

    #[test]
    fn the_repair_turn_has_what_is_left() {
        let whole = Attempt {
            deadline: Duration::from_secs(60),
            request_budget: 10,
            token_budget: 5_000,
            money_budget: Some(1.0),
            ..attempt("/w", "/h")
        };
        let turn = repair_turn(whole.clone(), &first(), "no result").unwrap();
        assert_eq!((turn.deadline.as_secs(), turn.request_budget), (20, 7));
        assert_eq!((turn.token_budget, turn.money_budget), (4_000, Some(0.75)));
        assert_eq!(turn.repair.as_deref(), Some("no result"));
        let slow = WorkReport { time: Some(Duration::from_secs(60)), ..first() };
        assert!(repair_turn(whole, &slow, "no result").is_none());
    }

    #[test]
    fn what_the_first_turn_showed_is_not_forgotten() {
        let second = WorkReport::ended(Outcome::Error, "again nothing");
        let both = one_attempt(first(), second);
        assert_eq!((both.outcome, both.usage.requests), (Outcome::Error, 3));
        assert_eq!(both.model_switch.unwrap().answered, "small");
    }
}
