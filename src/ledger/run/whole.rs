//! Events about the run as a whole.

use jiff::{SignedDuration, Timestamp};

use super::{Applied, Run};
use crate::ledger::event::{Event, EventKind, PauseCause};
use crate::ledger::questions::command_key;
use crate::ledger::record::{FrictionRecord, Made, PauseRecord, Received, ShownRecord};

/// After this long, who was about to make something is taken to be dead: making it takes seconds,
/// waits for limits included it takes less than this.
const MAKER_LOST: SignedDuration = SignedDuration::from_mins(5);

impl Run {
    pub(super) fn apply_opening(&mut self, event: &Event) -> Applied {
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

    /// Events about the run as a whole.
    pub(super) fn apply_run(&mut self, event: &Event) -> Applied {
        match &event.kind {
            EventKind::Paused { cause, nodes, not_before, by } => {
                if self.is_stopped() && *cause != PauseCause::Operator {
                    return Applied::No("a person paused the run");
                }
                // Who was first, and when.
                let (first_seen, count, by) = match &self.pause {
                    Some(p) if p.cause == *cause => (p.first_seen, p.count + 1, p.by.clone()),
                    _ => (event.at, 1, by.clone()),
                };
                self.pause = Some(PauseRecord {
                    cause: *cause,
                    nodes: nodes.clone(),
                    not_before: *not_before,
                    first_seen,
                    count,
                    by,
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
}
