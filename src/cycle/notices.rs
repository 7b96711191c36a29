//! What is worth saying of the pools at the beginning of a cycle: once for each run and pool, as
//! friction.

use super::context::{Cycle, ReadyPool};
use super::drive::friction;
use crate::ledger::{EventKind, FrictionType};
use crate::model::{PoolId, Tier};

/// The beginning of a cycle that asks its pools, with what is worth saying of them. The ledger keeps
/// what the run has not heard before.
pub(super) fn beginning(cycle: &Cycle) -> Vec<EventKind> {
    let run = cycle.journal.state();
    let pools = cycle.pools.keys().cloned().collect();
    let started = EventKind::CycleStarted {
        holder: cycle.holder.clone(),
        by_comment: cycle.woken.by_comment,
        pools: Some(pools),
    };
    let said = cycle.pools.values().flat_map(|ready| of(cycle, run.reached.as_deref(), ready));
    std::iter::once(started).chain(said).collect()
}

fn of(cycle: &Cycle, before: Option<&[PoolId]>, ready: &ReadyPool) -> Vec<EventKind> {
    let told = |kind, text: &str| friction(kind, ready.pool.id.to_string(), text.to_owned());
    let mut notices = Vec::new();
    if before.is_some_and(|pools| !pools.contains(&ready.pool.id)) {
        let text = "the cycle before could not use it; this one can";
        notices.push(told(FrictionType::NewlyReachablePool, text));
    }
    if is_blind(cycle, ready) {
        let text = "it signs in by itself: its requests are counted when an attempt is over";
        notices.push(told(FrictionType::QuotaBlind, text));
    }
    if passes_unknown(cycle, ready) {
        let text = "its capability is unknown: it takes nodes that lesser pools are kept from";
        notices.push(told(FrictionType::UnknownTier, text));
    }
    notices
}

/// Where no capability is known, or no node asks for any, there is nothing to pass.
fn passes_unknown(cycle: &Cycle, ready: &ReadyPool) -> bool {
    ready.pool.tier.is_none()
        && cycle.pools.values().any(|other| other.pool.tier.is_some())
        && cycle.plan.nodes.iter().any(|node| node.tier > Tier::Small)
}

/// An agent without an address talks past every gateway of ours.
fn is_blind(cycle: &Cycle, ready: &ReadyPool) -> bool {
    let settings = cycle.config.pool(&ready.pool.id);
    ready.worker.is_some()
        && ready.pool.provider.is_agent()
        && settings.is_some_and(|pool| pool.address().is_none())
}
