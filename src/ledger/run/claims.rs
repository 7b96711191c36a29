//! Claims and grants, and what only the owner of a claim may write.

use jiff::Timestamp;

use super::{Applied, Run};
use crate::ledger::event::{Burn, Event, EventKind, GrantedClaim, Holder};
use crate::ledger::record::{Claim, Failure, GrantRecord, Landing};
use crate::model::{AttemptNumber, GrantId, NodeId, OwnerToken, Usage};

impl Run {
    pub(super) fn claim(
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
            expected: Usage::default(),
        });
        Applied::Yes
    }

    pub(super) fn grant(
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

    /// Events that only the claim's owner may write; the owner was checked.
    pub(super) fn apply_owned(&mut self, event: &Event) {
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
            EventKind::AttemptStarted { node, pool, expected, .. } => {
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
                    claim.expected = *expected;
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
}
