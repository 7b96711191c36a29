//! One coordinator splits the frontier between this process and the host.

use super::select::{self, estimate};
use super::spec::{NodeSpec, PoolState, declare};
use super::{Graph, Millis, ScheduleError};
use crate::model::NodeId;

/// Slots of an account that declares no concurrency, when shares are measured.
pub const DEFAULT_SLOTS: u32 = 4;

/// Who gets which node. Every node of the frontier is in exactly one list; an empty share is just
/// empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Shares {
    /// Driven here, now.
    pub in_process: Vec<NodeId>,
    /// Granted to the host, as a matrix.
    pub host: Vec<NodeId>,
    /// Fits no pool of either side; stays unclaimed, with its own cause.
    pub unplaced: Vec<NodeId>,
}

/// Attempts that a side can run at once: each meter once, whatever its pools.
#[must_use]
pub fn capacity(pools: &[PoolState], default_slots: u32) -> u32 {
    let mut meters = super::Meters::new();
    let mut seen = std::collections::BTreeSet::new();
    let ids: Vec<_> = pools.iter().map(|p| meters.declare(&p.pool.meter, p.pool.limits)).collect();
    ids.into_iter()
        .filter(|ix| seen.insert(*ix))
        .map(|ix| meters.limits(ix).concurrent.unwrap_or(default_slots))
        .fold(0, u32::saturating_add)
}

/// Splits by real capacity: nodes in scheduling order, each to the side that ends it earlier.
/// `host_slots` is what the host can run at once (the matrix width) where its pools declare nothing.
///
/// # Errors
/// When the nodes do not form a graph.
pub fn partition(
    frontier: &[NodeSpec],
    in_process: &[PoolState],
    host: &[PoolState],
    host_slots: u32,
) -> Result<Shares, ScheduleError> {
    let mut specs: Vec<NodeSpec> = frontier
        .iter()
        .cloned()
        .map(|mut spec| {
            // Its dependencies are satisfied; that is what makes it the frontier.
            spec.depends_on.clear();
            spec.after.clear();
            spec
        })
        .collect();
    specs.sort_by(|a, b| a.id.cmp(&b.id));
    Graph::new(&specs)?;
    let slots = [capacity(in_process, DEFAULT_SLOTS), capacity(host, host_slots.max(1))];
    let sides = [in_process, host].map(|side| {
        let mut side = side.to_vec();
        declare(&mut side);
        side
    });
    let mut work: Vec<(NodeSpec, [Option<Millis>; 2])> = Vec::new();
    let mut shares = Shares::default();
    for spec in specs {
        let fitting: Vec<(usize, &PoolState)> = sides
            .iter()
            .enumerate()
            .flat_map(|(side, pools)| pools.iter().map(move |p| (side, p)))
            .filter(|(_, p)| select::fits(&spec, &p.pool).is_ok())
            .collect();
        let floor = select::floor_for(spec.tier, fitting.iter().map(|(_, p)| &p.pool));
        let mut best: [Option<Millis>; 2] = [None, None];
        for (side, p) in fitting.into_iter().filter(|(_, p)| select::meets(&p.pool, floor)) {
            let need = estimate(&spec, &p.pool);
            let ms = p.service.expect(need.input_tokens, need.output_tokens, spec.service);
            best[side] = Some(best[side].map_or(ms, |b| b.min(ms)));
        }
        if best == [None, None] {
            shares.unplaced.push(spec.id);
        } else {
            work.push((spec, best));
        }
    }
    // Longest first, nodes with one home before those with two, then severity, then id.
    work.sort_by(|(a, x), (b, y)| {
        let longest = |w: &[Option<Millis>; 2]| w.iter().flatten().min().copied();
        let homes = |w: &[Option<Millis>; 2]| w.iter().flatten().count();
        homes(x)
            .cmp(&homes(y))
            .then(longest(y).cmp(&longest(x)))
            .then(b.severity.cmp(&a.severity))
            .then(a.id.cmp(&b.id))
    });
    let mut load: [Millis; 2] = [0, 0];
    for (spec, best) in work {
        let end = |side: usize| {
            best[side].map(|ms| (load[side].saturating_add(ms)) / Millis::from(slots[side].max(1)))
        };
        let side = match (end(0), end(1)) {
            (Some(here), Some(there)) => usize::from(there < here),
            (Some(_), None) => 0,
            _ => 1,
        };
        load[side] = load[side].saturating_add(best[side].unwrap_or(0));
        if side == 0 { shares.in_process.push(spec.id) } else { shares.host.push(spec.id) }
    }
    shares.in_process.sort();
    shares.host.sort();
    Ok(shares)
}
