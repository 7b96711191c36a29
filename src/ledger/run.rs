//! `fold(events) -> Run`: total, deterministic, fast. The fold itself holds the merge rules for
//! concurrent writers, so that a stale writer's events change nothing whoever reads them.
//!
//! First claim wins; what an owner says after its claim is gone is ignored; everything else is a
//! union. A claim ends only by an event (`Released`, `AttemptEnded`, a landing), never by a clock.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::event::{Burn, Event, EventKind, GrantedClaim, Holder, PauseCause, Used};
use super::questions::command_key;
use super::record::{
    Approval, Asked, ChangeRequest, Claim, Failure, FrictionRecord, Gate, GrantRecord, HeadRecord,
    Landing, Made, NodeRecord, PauseRecord, PoolPause, PoolRecord, PoolSettle, PrEnd, PrRecord,
    Received, ShownRecord,
};
use crate::model::{AttemptNumber, GrantId, MeterKey, NodeId, OwnerToken, PoolId, RunId, Usage};

/// After this long, who was about to make something is taken to be dead: making it takes seconds,
/// waits for limits included it takes less than this.
const MAKER_LOST: SignedDuration = SignedDuration::from_mins(5);

/// The longest window of a quota.
const LONGEST_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// What applying one event did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It changed the run.
    Yes,
    /// The merge rules ignore it, for this reason.
    No(&'static str),
}

/// The state of a run: its events, folded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Run {
    /// Its id; `None` before `Opened`.
    pub id: Option<RunId>,
    /// Branch that it remedies.
    pub base_branch: String,
    /// Commit that it was planned on.
    pub base_commit: String,
    /// Digest of the findings.
    pub findings_digest: String,
    /// Revision and digest of the plan.
    pub plan: Option<(u32, String)>,
    /// By node.
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// By grant.
    pub grants: BTreeMap<GrantId, GrantRecord>,
    /// By pool.
    pub pools: BTreeMap<PoolId, PoolRecord>,
    /// Every commit that is or was a branch's head by our doing, or that a person gave up.
    pub heads: BTreeSet<String>,
    /// (node, pool) pairs that do not fit, with the size in tokens.
    pub bans: BTreeMap<NodeId, BTreeMap<PoolId, u64>>,
    /// Whose quota each pool draws on, as the run began.
    pub meters: BTreeMap<PoolId, MeterKey>,
    /// The pause, until work resumes.
    pub pause: Option<PauseRecord>,
    /// Friction, in order of first appearance.
    pub friction: Vec<FrictionRecord>,
    /// Processed commands: `comment:digest:line`.
    pub commands: BTreeSet<String>,
    /// The same in order, with what came of them.
    pub received: Vec<Received>,
    /// Comments up to then were read for commands.
    pub inbox: Option<Timestamp>,
    /// When the run began.
    pub opened: Option<Timestamp>,
    /// What of ours is on the forge, by what it shows.
    pub shown: BTreeMap<String, ShownRecord>,
    /// What a cycle is about to make, since when, and whose process it is.
    pub making: BTreeMap<String, (Timestamp, Holder)>,
    /// What we wrote that notifies people, and when.
    pub made: Vec<(Timestamp, Made)>,
    /// When comments started cycles that worked.
    pub woken: Vec<Timestamp>,
    /// Close gate.
    pub gate: Gate,
    /// Extra budget by command, US dollars.
    pub extra_budget_usd: f64,
    /// Consumption of all attempts.
    pub usage: Usage,
    /// Acceptances so far.
    pub accepted: u64,
    /// Last heartbeat and its cycle.
    pub heartbeat: Option<Timestamp>,
    /// Status of the last ended cycle.
    pub last_status: Option<String>,
    /// Called off by.
    pub cancelled: Option<String>,
    /// Over.
    pub closed: Option<BTreeMap<String, usize>>,
    /// Events applied or ignored so far.
    pub events: usize,
    /// Events of a newer version: a writer must stop.
    pub unknown_events: usize,
}

/// Folds a whole log.
#[must_use]
pub fn fold<'a>(events: impl IntoIterator<Item = &'a Event>) -> Run {
    let mut run = Run::default();
    for event in events {
        run.apply(event);
    }
    run
}

impl Run {
    /// Applies one event.
    pub fn apply(&mut self, event: &Event) -> Applied {
        self.events += 1;
        if matches!(event.kind, EventKind::Unknown) || event.v > super::EVENT_VERSION {
            self.unknown_events += 1;
            return Applied::No("written by a newer version");
        }
        // A person who retries a node of a closed run opens it again.
        if self.closed.is_some() && !matches!(event.kind, EventKind::Retried { .. }) {
            return Applied::No("the run is closed");
        }
        self.apply_known(event)
    }

    fn apply_known(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::Opened { .. } | EventKind::Planned { .. } => self.apply_opening(event),
            EventKind::Claimed { node, attempt, owner, lease_until, holder } => {
                self.claim(node, *attempt, owner, *lease_until, holder)
            }
            EventKind::Granted { grant, expires, claims } => {
                self.grant(event.at, grant, *expires, claims)
            }
            EventKind::GrantEnded { grant } => match self.grants.get_mut(grant) {
                Some(record) if !record.ended => {
                    record.ended = true;
                    Applied::Yes
                }
                _ => Applied::No("no such open grant"),
            },
            EventKind::LeaseRenewed { node, owner, .. }
            | EventKind::Released { node, owner, .. }
            | EventKind::AttemptStarted { node, owner, .. }
            | EventKind::AttemptEnded { node, owner, .. }
            | EventKind::Accepted { node, owner, .. }
            | EventKind::Satisfied { node, owner, .. } => {
                let held = self.nodes.get(node).and_then(|n| n.claim.as_ref()).map(|c| &c.owner);
                if held == Some(owner) {
                    self.apply_owned(event);
                    Applied::Yes
                } else {
                    Applied::No("the claim is not held by this owner")
                }
            }
            EventKind::BranchPushed { .. }
            | EventKind::PrOpened { .. }
            | EventKind::PrUpdated { .. }
            | EventKind::PrLost { .. }
            | EventKind::Reviewed { .. }
            | EventKind::PrMerged { .. }
            | EventKind::PrClosed { .. }
            | EventKind::Reopened { .. }
            | EventKind::Retried { .. }
            | EventKind::Skipped { .. } => self.apply_node(event),
            EventKind::HeadSeen { .. }
            | EventKind::BranchBuilt { .. }
            | EventKind::Rebuilt { .. }
            | EventKind::FoundOnBase { .. }
            | EventKind::BranchAsked { .. }
            | EventKind::BranchAnswered { .. }
            | EventKind::HeadReset { .. }
            | EventKind::Approved { .. } => self.apply_branch(event),
            EventKind::Metered { meters, used } => self.remember(meters, used),
            EventKind::PoolPaused { .. }
            | EventKind::PoolSettled { .. }
            | EventKind::PoolRestored { .. }
            | EventKind::Unsettled { .. }
            | EventKind::SizeBanned { .. }
            | EventKind::LimitLearned { .. }
            | EventKind::CostObserved { .. } => {
                self.apply_pool(&event.kind);
                Applied::Yes
            }
            _ => self.apply_run(event),
        }
    }

    fn apply_opening(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::Opened { run, base_branch, base_commit, findings_digest } => {
                if self.id.is_some() {
                    return Applied::No("the run is open already");
                }
                self.id = Some(run.clone());
                self.opened = Some(event.at);
                self.base_branch.clone_from(base_branch);
                self.base_commit.clone_from(base_commit);
                self.findings_digest.clone_from(findings_digest);
                Applied::Yes
            }
            EventKind::Planned { revision, digest } => {
                if self.plan.as_ref().is_some_and(|(have, _)| have >= revision) {
                    return Applied::No("a plan of this revision is there already");
                }
                self.plan = Some((*revision, digest.clone()));
                Applied::Yes
            }
            _ => Applied::No("no opening"),
        }
    }

    fn claim(
        &mut self,
        node: &NodeId,
        attempt: AttemptNumber,
        owner: &OwnerToken,
        lease_until: Timestamp,
        holder: &Holder,
    ) -> Applied {
        if self.cancelled.is_some() {
            return Applied::No("the run is cancelled");
        }
        if self.is_stopped() {
            return Applied::No("a person paused the run");
        }
        let record = self.nodes.entry(node.clone()).or_default();
        if record.claim.is_some() {
            return Applied::No("the node has an owner");
        }
        if record.landing != Landing::None || record.skipped.is_some() {
            return Applied::No("the node is finished");
        }
        if attempt.0 != record.attempts + 1 {
            return Applied::No("the attempt number is not the next one");
        }
        record.attempts = attempt.0;
        record.claim = Some(Claim {
            owner: owner.clone(),
            attempt,
            lease_until,
            holder: holder.clone(),
            started: None,
        });
        Applied::Yes
    }

    fn grant(
        &mut self,
        at: Timestamp,
        grant: &GrantId,
        expires: Timestamp,
        claims: &[GrantedClaim],
    ) -> Applied {
        if self.grants.contains_key(grant) {
            return Applied::No("the grant is known");
        }
        let held = |c: &&GrantedClaim| {
            let claim = self.nodes.get(&c.node).and_then(|n| n.claim.as_ref());
            claim.is_some_and(|held| held.owner == c.owner && held.attempt == c.attempt)
        };
        let claims: Vec<GrantedClaim> = claims.iter().filter(held).cloned().collect();
        if claims.is_empty() {
            return Applied::No("none of its claims is held");
        }
        self.grants.insert(grant.clone(), GrantRecord { at, expires, claims, ended: false });
        Applied::Yes
    }

    /// The grant that a claim belongs to.
    #[must_use]
    pub fn grant_of(&self, owner: &OwnerToken) -> Option<(&GrantId, &GrantedClaim)> {
        self.grants.iter().find_map(|(id, record)| {
            record.claims.iter().find(|c| c.owner == *owner).map(|c| (id, c))
        })
    }

    /// Granted claims that are still held, in the order of their grant.
    pub fn outstanding<'a>(
        &'a self,
        grant: &'a GrantRecord,
    ) -> impl Iterator<Item = &'a GrantedClaim> {
        grant.claims.iter().filter(|c| {
            let claim = self.nodes.get(&c.node).and_then(|n| n.claim.as_ref());
            claim.is_some_and(|held| held.owner == c.owner)
        })
    }

    /// Events that only the claim's owner may write; the owner was checked.
    fn apply_owned(&mut self, event: &Event) {
        match &event.kind {
            EventKind::LeaseRenewed { node, lease_until, .. } => {
                if let Some(claim) = self.record(node).claim.as_mut() {
                    claim.lease_until = *lease_until;
                }
            }
            EventKind::Released { node, owner, .. } => {
                let unheard = u32::from(self.grant_of(owner).is_some());
                let record = self.record(node);
                record.claim = None;
                record.unheard += unheard;
            }
            EventKind::AttemptStarted { node, pool, .. } => {
                // Work goes on: whatever the run waited for is over. Only people end their pause.
                self.record(node).unheard = 0;
                if !self.is_stopped() {
                    self.pause = None;
                }
                let record = self.record(node);
                record.last_pool = Some(pool.clone());
                record.started_at = Some(event.at);
                if let Some(claim) = record.claim.as_mut() {
                    claim.started = Some(pool.clone());
                }
            }
            EventKind::AttemptEnded {
                node,
                attempt,
                pool,
                outcome,
                burn,
                detail,
                usage,
                evidence,
                quarantine,
                conflicts_with,
                ..
            } => {
                self.use_up(node, pool, *usage, event.at);
                let record = self.record(node);
                record.claim = None;
                match burn {
                    Burn::None => {}
                    Burn::Contract => record.contract_burnt += 1,
                    Burn::Infrastructure => record.infrastructure_burnt += 1,
                }
                record.conflicts.extend(conflicts_with.iter().cloned());
                record.failures.push(Failure {
                    attempt: *attempt,
                    pool: pool.clone(),
                    outcome: *outcome,
                    burn: *burn,
                    detail: detail.clone(),
                    evidence: evidence.clone(),
                    quarantine: quarantine.clone(),
                });
            }
            EventKind::Accepted { node, receipt, .. } => {
                self.use_up(node, &receipt.pool, receipt.usage, event.at);
                if let Some(began) = self.record(node).started_at.take() {
                    let millis = event.at.as_millisecond().saturating_sub(began.as_millisecond());
                    let pool = self.pools.entry(receipt.pool.clone()).or_default();
                    pool.served.add(millis, &receipt.usage);
                }
                self.heads.insert(receipt.commit.clone());
                let order = self.accepted;
                self.accepted += 1;
                let record = self.record(node);
                record.claim = None;
                record.reopened = None;
                record.pushed = None;
                record.landing =
                    Landing::Accepted { order, receipt: Box::new(receipt.clone()), at: event.at };
            }
            EventKind::Satisfied { node, evidence, .. } => {
                let record = self.record(node);
                record.claim = None;
                record.reopened = None;
                record.landing = Landing::Satisfied { evidence: evidence.clone() };
            }
            _ => {}
        }
    }

    /// Events about a node that anyone may write: observations of the world, and people's words.
    fn apply_node(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::BranchPushed { node, commit, .. } => {
                self.heads.insert(commit.clone());
                let record = self.record(node);
                record.pushed = Some(commit.clone());
                record.head =
                    Some(HeadRecord { commit: commit.clone(), since: event.at, foreign: false });
            }
            EventKind::PrOpened { node, number, url, branch, base } => {
                let record = self.record(node);
                if record.pr.as_ref().is_some_and(|pr| pr.number == *number && pr.end.is_some()) {
                    return Applied::No("that pull request has ended");
                }
                let commit = match &record.landing {
                    Landing::Accepted { receipt, .. } => receipt.commit.clone(),
                    _ => String::new(),
                };
                let again = record.pr.as_ref().filter(|pr| pr.number == *number);
                let opened_at = again.map_or(event.at, |pr| pr.opened_at);
                let reviewed = again.and_then(|pr| pr.reviewed);
                record.pr = Some(PrRecord {
                    number: *number,
                    url: url.clone(),
                    branch: branch.clone(),
                    base: base.clone(),
                    opened_at,
                    commit,
                    end: None,
                    reviewed,
                });
            }
            EventKind::PrUpdated { node, number, commit, base } => {
                match self.record(node).pr.as_mut() {
                    Some(pr) if pr.number == *number && pr.end.is_none() => {
                        pr.commit.clone_from(commit);
                        if !base.is_empty() {
                            pr.base.clone_from(base);
                        }
                    }
                    _ => return Applied::No("no such open pull request"),
                }
            }
            EventKind::PrLost { node, number } => {
                let record = self.record(node);
                if record.pr.as_ref().is_none_or(|pr| pr.number != *number || pr.end.is_some()) {
                    return Applied::No("no such open pull request");
                }
                record.pr = None;
                record.past_prs.insert(*number);
            }
            EventKind::Reviewed { node, number, seen, reviews, by, reason } => {
                let record = self.record(node);
                let working = !matches!(record.landing, Landing::Accepted { .. });
                match record.pr.as_mut() {
                    _ if working => return Applied::No("the node is at work already"),
                    Some(pr) if pr.number == *number && pr.end.is_none() => {
                        pr.reviewed = Some(*seen);
                    }
                    _ => return Applied::No("no such open pull request"),
                }
                let known = record.heeded.len();
                record.heeded.extend(reviews.iter().cloned());
                if record.heeded.len() > known {
                    record.reopen(reason);
                    // A person's word, as a retry is.
                    record.contract_burnt = 0;
                    record.infrastructure_burnt = 0;
                    let review = reviews.last().cloned().unwrap_or_default();
                    record.change_request = Some(ChangeRequest { review, by: by.clone() });
                }
            }
            EventKind::PrMerged { node, number, commit } => {
                return self.end_pr(node, *number, PrEnd::Merged(commit.clone()));
            }
            EventKind::PrClosed { node, number } => {
                return self.end_pr(node, *number, PrEnd::Closed);
            }
            EventKind::Reopened { node, reason } => {
                let record = self.record(node);
                if record.landing == Landing::None {
                    return Applied::No("the node is at work already");
                }
                record.reopen(reason);
                record.reopenings += 1;
                // What has ended stays ended: new work has a pull request of its own.
                record.forget_ended_pr();
            }
            EventKind::Retried { node, .. } => {
                let record = self.record(node);
                if matches!(record.landing, Landing::Satisfied { .. })
                    || record.pr.as_ref().is_some_and(|p| matches!(p.end, Some(PrEnd::Merged(_))))
                {
                    return Applied::No("the node is finished");
                }
                if record.pr.as_ref().is_some_and(|p| p.end == Some(PrEnd::Closed)) {
                    record.forget_ended_pr();
                    record.landing = Landing::None;
                }
                record.contract_burnt = 0;
                record.infrastructure_burnt = 0;
                record.unheard = 0;
                record.reopenings = 0;
                record.skipped = None;
                self.closed = None;
                self.gate = Gate::default();
            }
            EventKind::Skipped { node, by } => {
                let record = self.record(node);
                record.skipped = Some(by.clone());
                record.claim = None;
            }
            _ => return Applied::No("no node event"),
        }
        Applied::Yes
    }

    /// Events about what is on a node's branch.
    fn apply_branch(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::HeadSeen { node, commit } => {
                let foreign = !self.heads.contains(commit);
                let record = self.record(node);
                if record.head.as_ref().is_some_and(|head| head.commit == *commit) {
                    return Applied::No("the head is known");
                }
                record.head = Some(HeadRecord { commit: commit.clone(), since: event.at, foreign });
            }
            EventKind::BranchBuilt { commit, .. } => {
                if !self.heads.insert(commit.clone()) {
                    return Applied::No("the commit is known as ours");
                }
            }
            EventKind::Rebuilt { node, from, receipt, adopted_by, .. } => {
                let record = self.record(node);
                let Some(work) = record.open_work(from) else {
                    return Applied::No("the node's work is another one by now");
                };
                *work = receipt.clone();
                if adopted_by.is_some() {
                    record.pushed = Some(receipt.commit.clone());
                    record.head = Some(HeadRecord {
                        commit: receipt.commit.clone(),
                        since: event.at,
                        foreign: false,
                    });
                }
                self.heads.insert(receipt.commit.clone());
            }
            EventKind::FoundOnBase { node, from, evidence } => {
                let record = self.record(node);
                if record.open_work(from).is_none() {
                    return Applied::No("the node's work is another one by now");
                }
                record.landing = Landing::Satisfied { evidence: evidence.clone() };
            }
            EventKind::BranchAsked { node, ask, by, comment, line, said } => {
                self.record(node).asked = Some(Asked {
                    ask: *ask,
                    by: by.clone(),
                    comment: *comment,
                    line: *line,
                    said: *said,
                });
            }
            EventKind::BranchAnswered { node, result } => {
                let Some(asked) = self.record(node).asked.take() else {
                    return Applied::No("nothing is asked for that branch");
                };
                let lines = self.received.iter_mut();
                for line in lines.filter(|r| r.comment == asked.comment && r.line == asked.line) {
                    line.result.clone_from(result);
                }
            }
            EventKind::HeadReset { node, commit, .. } => {
                self.heads.insert(commit.clone());
                let record = self.record(node);
                if record.foreign_head() == Some(commit.as_str()) {
                    record.head = None;
                }
            }
            EventKind::Approved { node, commit, by } => {
                self.record(node).approved =
                    Some(Approval { commit: commit.clone(), by: by.clone() });
            }
            _ => return Applied::No("no event of a branch"),
        }
        Applied::Yes
    }

    fn end_pr(&mut self, node: &NodeId, number: u64, end: PrEnd) -> Applied {
        match self.record(node).pr.as_mut() {
            Some(pr) if pr.number == number && pr.end.is_none() => {
                pr.end = Some(end);
                Applied::Yes
            }
            _ => Applied::No("no such open pull request"),
        }
    }

    fn apply_pool(&mut self, kind: &EventKind) {
        match kind {
            EventKind::PoolPaused { pool, until, outcome, evidence, step } => {
                let record = self.pools.entry(pool.clone()).or_default();
                // Concurrent failures report one pause; the later end wins whatever the order.
                if record.paused.as_ref().is_none_or(|p| p.until < *until) {
                    record.paused = Some(PoolPause {
                        until: *until,
                        outcome: *outcome,
                        evidence: evidence.clone(),
                        step: *step,
                    });
                }
            }
            EventKind::PoolSettled { pool, outcome, until, evidence, key } => {
                self.pools.entry(pool.clone()).or_default().settled = Some(PoolSettle {
                    outcome: *outcome,
                    until: *until,
                    evidence: evidence.clone(),
                    key: key.clone(),
                });
            }
            EventKind::PoolRestored { pool, .. } | EventKind::Unsettled { pool, .. } => {
                let record = self.pools.entry(pool.clone()).or_default();
                record.paused = None;
                record.settled = None;
            }
            EventKind::SizeBanned { node, pool, tokens } => {
                self.bans.entry(node.clone()).or_default().insert(pool.clone(), *tokens);
            }
            EventKind::LimitLearned { pool, limits } => {
                self.pools.entry(pool.clone()).or_default().learned = Some(*limits);
            }
            EventKind::CostObserved { pool, usd_per_mtok } => {
                self.pools.entry(pool.clone()).or_default().usd_per_mtok = Some(*usd_per_mtok);
            }
            _ => {}
        }
    }

    /// Events about the run as a whole.
    fn apply_run(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::Paused { cause, nodes, not_before } => {
                if self.is_stopped() && *cause != PauseCause::Operator {
                    return Applied::No("a person paused the run");
                }
                let (first_seen, count) = match &self.pause {
                    Some(p) if p.cause == *cause => (p.first_seen, p.count + 1),
                    _ => (event.at, 1),
                };
                self.pause = Some(PauseRecord {
                    cause: *cause,
                    nodes: nodes.clone(),
                    not_before: *not_before,
                    first_seen,
                    count,
                });
            }
            EventKind::Resumed { .. } => self.pause = None,
            EventKind::CommandReceived { comment, body_digest, line, .. } => {
                if !self.commands.insert(command_key(*comment, body_digest, *line)) {
                    return Applied::No("the command was acted on already");
                }
                self.received.extend(Received::of(event));
            }
            EventKind::InboxRead { until } => {
                if self.inbox.is_some_and(|inbox| inbox >= *until) {
                    return Applied::No("the inbox was read further already");
                }
                self.inbox = Some(*until);
            }
            EventKind::BudgetRaised { usd, .. } => self.extra_budget_usd += usd.max(0.0),
            EventKind::Friction { friction, discriminator, text, remedy } => {
                let known = self
                    .friction
                    .iter_mut()
                    .find(|f| f.friction == *friction && f.discriminator == *discriminator);
                if let Some(known) = known {
                    known.count += 1;
                    return Applied::No("the friction is known");
                }
                self.friction.push(FrictionRecord {
                    friction: *friction,
                    discriminator: discriminator.clone(),
                    text: text.clone(),
                    remedy: remedy.clone(),
                    count: 1,
                });
            }
            EventKind::Making { what, instead_of, holder, after } => {
                let shown = self.shown.get(what).map_or("", |shown| shown.id.as_str());
                if shown != instead_of {
                    return Applied::No("it was made meanwhile");
                }
                let lost = |since: Timestamp| {
                    *after == Some(since) || event.at.duration_since(since) > MAKER_LOST
                };
                if self.making.get(what).is_some_and(|(since, _)| !lost(*since)) {
                    return Applied::No("another cycle makes it");
                }
                self.making.insert(what.clone(), (event.at, holder.clone()));
            }
            EventKind::Shown { what, id, digest } => {
                self.making.remove(what);
                let made = Made::of(what, id, self.shown.get(what));
                self.made.extend(made.map(|made| (event.at, made)));
                let shown = ShownRecord { id: id.clone(), digest: digest.clone() };
                self.shown.insert(what.clone(), shown);
            }
            EventKind::GatePassed { commit, .. } => self.gate.passed = Some(commit.clone()),
            EventKind::GateFailed { round, detail, .. } => {
                self.gate.failed_rounds = self.gate.failed_rounds.max(*round);
                self.gate.detail.clone_from(detail);
            }
            EventKind::CycleStarted { by_comment, .. } => {
                self.heartbeat = Some(event.at);
                if *by_comment {
                    self.woken.push(event.at);
                }
            }
            EventKind::CycleEnded { status } => {
                self.heartbeat = Some(event.at);
                self.last_status = Some(status.clone());
            }
            EventKind::Closed { counts, .. } => self.closed = Some(counts.clone()),
            EventKind::Cancelled { by } => self.cancelled = Some(by.clone()),
            _ => return Applied::No("not a run event"),
        }
        Applied::Yes
    }

    fn remember(&mut self, meters: &BTreeMap<PoolId, MeterKey>, used: &[Used]) -> Applied {
        if !self.meters.is_empty() {
            return Applied::No("the meters are known already");
        }
        self.meters.clone_from(meters);
        for Used { pool, at, usage } in used {
            self.pools.entry(pool.clone()).or_default().recent.push((*at, *usage));
        }
        Applied::Yes
    }

    fn record(&mut self, node: &NodeId) -> &mut NodeRecord {
        self.nodes.entry(node.clone()).or_default()
    }

    fn use_up(&mut self, node: &NodeId, pool: &PoolId, usage: Usage, at: Timestamp) {
        self.usage += usage;
        self.record(node).usage += usage;
        let record = self.pools.entry(pool.clone()).or_default();
        record.usage += usage;
        if usage != Usage::default() {
            record.recent.push((at, usage));
        }
        let old = at.checked_sub(LONGEST_WINDOW).unwrap_or(at);
        if record.recent.first().is_some_and(|(first, _)| *first <= old) {
            record.recent.retain(|(at, _)| *at > old);
        }
    }
}
