//! `fold(events) -> Run`: total, deterministic, fast. The fold itself holds the merge rules for
//! concurrent writers, so that a stale writer's events change nothing whoever reads them.
//!
//! First claim wins; what an owner says after its claim is gone is ignored; everything else is a
//! union. A claim ends only by an event (`Released`, `AttemptEnded`, a landing), never by a clock.

mod branches;
mod claims;
mod nodes;
mod pools;
mod whole;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::ledger::event::{Event, EventKind, GrantedClaim, Holder};
use crate::ledger::record::{
    FrictionRecord, Gate, GrantRecord, Made, NodeRecord, PauseRecord, PoolRecord, Received,
    ShownRecord,
};
use crate::model::{GrantId, MeterKey, NodeId, OwnerToken, PoolId, RunId, Usage};

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
    /// Digest of the settings that its work depends on; empty where it was not kept.
    pub settings_digest: String,
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

    pub(super) fn record(&mut self, node: &NodeId) -> &mut NodeRecord {
        self.nodes.entry(node.clone()).or_default()
    }
}
