//! Pools, and what attempts used of them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::{Applied, Run};
use crate::ledger::event::{EventKind, Used};
use crate::ledger::record::{PoolPause, PoolSettle};
use crate::model::{MeterKey, NodeId, PoolId, Usage};

/// The longest window of a quota.
const LONGEST_WINDOW: SignedDuration = SignedDuration::from_hours(24);

impl Run {
    pub(super) fn apply_pool(&mut self, kind: &EventKind) {
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
            EventKind::TokensObserved { pool, per_estimate } => {
                self.pools.entry(pool.clone()).or_default().input_scale = Some(*per_estimate);
            }
            _ => {}
        }
    }

    pub(super) fn use_up(&mut self, node: &NodeId, pool: &PoolId, usage: Usage, at: Timestamp) {
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

    pub(super) fn remember(
        &mut self,
        meters: &BTreeMap<PoolId, MeterKey>,
        used: &[Used],
    ) -> Applied {
        if !self.meters.is_empty() {
            return Applied::No("the meters are known already");
        }
        self.meters.clone_from(meters);
        for Used { pool, at, usage } in used {
            self.pools.entry(pool.clone()).or_default().recent.push((*at, *usage));
        }
        Applied::Yes
    }
}
