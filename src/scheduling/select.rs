//! The one selection rule: which pools a node may use, and in which order.

use std::cmp::Ordering;

use super::spec::{NodeSpec, PoolState};
use super::{Estimate, Millis};
use crate::model::{Pool, Tier};

/// Why a pool can never take a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Misfit {
    /// Prompt and answer exceed the context window; tokens needed, tokens there.
    Context(u64, u64),
    /// The request alone exceeds a declared window; tokens needed, tokens a minute.
    Window(u64, u64),
    /// The request alone exceeds the tokens of a day; tokens needed, tokens a day.
    Day(u64, u64),
    /// A declared limit of zero.
    Zero,
    /// This pool has refused this size.
    Banned(u64),
    /// It lies below the capability floor, and others do not.
    Tier(Tier),
}

/// What the node asks of this pool, as its backend counts; the answer is cut to the pool's own output limit.
#[must_use]
pub fn estimate(spec: &NodeSpec, pool: &Pool) -> Estimate {
    Estimate {
        input_tokens: pool.weigh(spec.input_tokens),
        output_tokens: spec.output_tokens.min(pool.output_tokens),
    }
}

/// Does the request fit the pool by size? (Capability is judged over the set: [`floor_for`].)
///
/// # Errors
/// With the figures of the misfit.
pub fn fits(spec: &NodeSpec, pool: &Pool) -> Result<(), Misfit> {
    let need = estimate(spec, pool);
    let total = need.input_tokens.saturating_add(need.output_tokens);
    if total > pool.context_tokens {
        return Err(Misfit::Context(total, pool.context_tokens));
    }
    if let Some(limit) = pool.limits.input_tokens_per_minute.filter(|&l| need.input_tokens > l) {
        return Err(Misfit::Window(need.input_tokens, limit));
    }
    if let Some(limit) = pool.limits.output_tokens_per_minute.filter(|&l| need.output_tokens > l) {
        return Err(Misfit::Window(need.output_tokens, limit));
    }
    if let Some(limit) = pool.limits.tokens_per_day.filter(|&l| total > l) {
        return Err(Misfit::Day(total, limit));
    }
    let l = &pool.limits;
    if [l.requests_per_minute, l.requests_per_day, l.concurrent].contains(&Some(0)) {
        return Err(Misfit::Zero);
    }
    let refused = spec.banned.iter().filter(|(id, _)| id == &pool.id).map(|(_, tokens)| *tokens);
    match refused.min() {
        Some(tokens) if spec.input_tokens >= tokens => Err(Misfit::Banned(tokens)),
        _ => Ok(()),
    }
}

/// The floor that really holds among the pools that fit by size: it is lowered to the best there
/// is, and never leaves a node without any pool because no deep pool exists.
#[must_use]
pub fn floor_for<'a>(floor: Tier, fitting: impl IntoIterator<Item = &'a Pool>) -> Tier {
    let mut best = None;
    for pool in fitting {
        match pool.tier {
            None => return floor,
            tier => best = best.max(tier),
        }
    }
    best.map_or(floor, |best| floor.min(best))
}

/// Unknown capability passes every floor.
#[must_use]
pub fn meets(pool: &Pool, floor: Tier) -> bool {
    pool.tier.is_none_or(|tier| tier >= floor)
}

/// One candidate of a node, with the figures that order it.
#[derive(Debug, Clone, Copy)]
pub struct Candidate {
    /// Index of the pool.
    pub pool: usize,
    /// When it could start.
    pub start: Millis,
    /// When it would end.
    pub finish: Millis,
    /// So much later it counts as ending, because others need the pool more.
    pub handicap: Millis,
    /// US dollars; `None` = unknown, sorts after known.
    pub cost: Option<f64>,
    /// Nodes that only this pool fits want its free slots.
    pub wanted: bool,
    /// Steps above the capability floor; unknown capability comes last.
    pub above_floor: u8,
    /// It last did a neighbouring node.
    pub continuity: bool,
    /// Slots in use, per mille.
    pub load: u32,
}

impl Candidate {
    /// The end, the handicap included.
    #[must_use]
    pub fn counted(&self) -> Millis {
        self.finish.saturating_add(self.handicap)
    }
}

/// Steps above the floor.
#[must_use]
pub fn above_floor(pool: &Pool, floor: Tier) -> u8 {
    let rank = |tier: Tier| match tier {
        Tier::Small => 0u8,
        Tier::Standard => 1,
        Tier::Deep => 2,
    };
    pool.tier.map_or(3, |tier| rank(tier).saturating_sub(rank(floor)))
}

/// US dollars of one attempt.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "an estimate")]
pub fn cost(pool: &PoolState, need: Estimate) -> Option<f64> {
    let tokens = need.input_tokens.saturating_add(need.output_tokens) as f64;
    pool.pool.cost_per_mtok.filter(|c| c.is_finite()).map(|per| per / 1.0e6 * tokens)
}

/// The order: the dial, then kept scarce pools, the tier closest above the floor, continuity,
/// load, id. `dial` 0 is cost alone, 1 is the end alone (then cost); between, both are weighed on
/// the scale of the candidates at hand.
pub fn order(candidates: &mut [Candidate], dial: f64, now: Millis) {
    let longest = candidates.iter().map(|c| c.finish - now).max().unwrap_or(1).max(1);
    let dearest = candidates.iter().filter_map(|c| c.cost).fold(0.0f64, f64::max);
    #[expect(clippy::cast_precision_loss, reason = "a score")]
    let score = |c: &Candidate| {
        let price = match c.cost {
            Some(cost) if dearest > 0.0 => cost / dearest,
            Some(_) => 0.0,
            None => 2.0,
        };
        let wait = (c.finish - now) as f64 / longest as f64;
        dial * wait + (1.0 - dial) * price
    };
    let by_cost = |a: &Candidate, b: &Candidate| match (a.cost, b.cost) {
        (Some(a), Some(b)) => a.total_cmp(&b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    };
    let tie = |a: &Candidate, b: &Candidate| -> Ordering {
        a.wanted
            .cmp(&b.wanted)
            .then(a.above_floor.cmp(&b.above_floor))
            .then(b.continuity.cmp(&a.continuity))
            .then(a.load.cmp(&b.load))
            .then(a.pool.cmp(&b.pool))
    };
    candidates.sort_by(|a, b| {
        let dial_order = if dial <= 0.0 {
            by_cost(a, b)
        } else if dial >= 1.0 {
            a.counted().cmp(&b.counted()).then_with(|| by_cost(a, b))
        } else {
            score(a).total_cmp(&score(b)).then_with(|| by_cost(a, b))
        };
        dial_order.then_with(|| tie(a, b))
    });
}
