//! Why nodes cannot go on, each with its own cause and figures.

use super::budget::OverBudget;
use super::health::Gate;
use super::outcome::{PoolEffect, pool_effect};
use super::scheduler::Scheduler;
use super::select::{self, Misfit, estimate};
use super::{Millis, timestamp};
use crate::ledger::{PauseCause, PausedNode};
use crate::model::{NodeId, Outcome, PoolId, Tier};

/// Waits up to this long are momentary, milliseconds (the longest backoff).
const MOMENTARY: Millis = super::outcome::BACKOFF_MAX;

/// What stands between a node and a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Obstacle {
    /// It can never fit.
    Misfit(Misfit),
    /// The pool left the set.
    Settled(Outcome),
    /// The pool waits for a stated reset or a backoff.
    Paused(Outcome, Millis),
    /// A minute window is full until then.
    Window(Millis),
    /// The daily allowance is used until then.
    Day(Millis),
    /// Every slot is in use.
    Busy,
    /// A probe decides first.
    Probing,
    /// A configured budget is used up.
    Budget(OverBudget),
    /// The node itself waits for its retry delay.
    Delay(Millis),
    /// It has no room for the requests of this node before then.
    Held(Millis),
}

/// One waiting node.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeWall {
    /// The node.
    pub node: NodeId,
    /// Its own cause.
    pub cause: PauseCause,
    /// When it may go on, where known.
    pub not_before: Option<Millis>,
    /// Tokens in and out that it asks for.
    pub need: (u64, u64),
    /// Its capability floor.
    pub tier: Tier,
    /// Each pool of the set with what stands in between.
    pub pools: Vec<(PoolId, Obstacle)>,
}

impl Obstacle {
    fn not_before(self) -> Option<Millis> {
        match self {
            Self::Paused(_, at)
            | Self::Window(at)
            | Self::Day(at)
            | Self::Delay(at)
            | Self::Held(at) => Some(at),
            _ => None,
        }
    }

    /// In words; `time` says a time.
    fn text(self, time: impl Fn(Millis) -> String) -> String {
        match self {
            Self::Misfit(Misfit::Context(need, have)) => {
                format!("needs {need} tokens, its context window has {have}")
            }
            Self::Misfit(Misfit::Window(need, have)) => {
                format!("needs {need} tokens at once, its limit is {have} a minute")
            }
            Self::Misfit(Misfit::Day(need, have)) => {
                format!("needs {need} tokens at once, its limit is {have} a day")
            }
            Self::Misfit(Misfit::Zero) => "a declared limit is 0".to_owned(),
            Self::Misfit(Misfit::Banned(tokens)) => format!("refused {tokens} tokens before"),
            Self::Misfit(Misfit::Tier(floor)) => {
                format!("below the capability floor {}", tier_word(floor))
            }
            Self::Settled(outcome) => format!("out: {}", outcome_word(outcome)),
            Self::Paused(outcome, at) if rests(outcome) => {
                let word = outcome_word(outcome);
                format!("failed several times in a row ({word}), tried again at {}", time(at))
            }
            Self::Paused(outcome, at) => {
                format!("{}, until {}", outcome_word(outcome), time(at))
            }
            Self::Window(at) => format!("its window is full until {}", time(at)),
            Self::Day(at) => format!("its daily allowance is used until {}", time(at)),
            Self::Busy => "every slot is in use".to_owned(),
            Self::Probing => "a probe decides first".to_owned(),
            Self::Budget(over) => over.text(),
            Self::Delay(at) => format!("retried at {}", time(at)),
            Self::Held(at) => format!("has no room for its requests until {}", time(at)),
        }
    }
}

/// A pool whose circuit breaker is open: it has failed, and nothing says that a quota is used up.
fn rests(outcome: Outcome) -> bool {
    pool_effect(outcome) == PoolEffect::Suspect
}

fn tier_word(tier: Tier) -> &'static str {
    match tier {
        Tier::Small => "small",
        Tier::Standard => "standard",
        Tier::Deep => "deep",
    }
}

pub(super) fn outcome_word(outcome: Outcome) -> String {
    serde_json::to_value(outcome)
        .ok()
        .and_then(|v| v.as_str().map(|s| s.replace('_', " ")))
        .unwrap_or_default()
}

impl NodeWall {
    /// One sentence with the figures.
    #[must_use]
    pub fn reason(&self) -> String {
        self.reason_with(|at| timestamp(at).to_string())
    }

    /// The same on another clock: `time` says a time.
    pub(super) fn reason_with(&self, time: impl Fn(Millis) -> String) -> String {
        if self.pools.is_empty() {
            return "no pool is usable".to_owned();
        }
        let parts: Vec<String> =
            self.pools.iter().map(|(pool, o)| format!("{pool}: {}", o.text(&time))).collect();
        let (input, output) = self.need;
        format!(
            "asks for {input} tokens in, {output} out, tier {}; {}",
            tier_word(self.tier),
            parts.join("; ")
        )
    }
}

impl From<&NodeWall> for PausedNode {
    fn from(wall: &NodeWall) -> Self {
        Self {
            node: wall.node.clone(),
            cause: wall.cause,
            reason: wall.reason(),
            not_before: wall.not_before.map(timestamp),
        }
    }
}

impl NodeWall {
    /// The same node before the pools of another side: one wall over both.
    #[must_use]
    pub fn beside(mut self, other: Self, now: Millis) -> Self {
        self.pools.extend(other.pools);
        self.pools.sort_by(|a, b| a.0.cmp(&b.0));
        let obstacles: Vec<Obstacle> = self.pools.iter().map(|p| p.1).collect();
        (self.cause, self.not_before) = cause(&obstacles, now);
        self
    }
}

/// The cause of a pause of several nodes, and the earliest time at which one of them goes on. What
/// heals soonest names the pause; each node keeps its own cause.
#[must_use]
pub fn summary(walls: &[NodeWall]) -> Option<(PauseCause, Option<Millis>)> {
    let weight = |cause: PauseCause| match cause {
        PauseCause::CapReached => 0,
        PauseCause::BudgetExhausted => 1,
        PauseCause::JobDeadline => 2,
        PauseCause::NoUsablePool => 3,
        PauseCause::NoCapablePool => 4,
        PauseCause::Operator => 5,
    };
    let cause = walls.iter().map(|w| w.cause).min_by_key(|c| weight(*c))?;
    // One that may go on at any moment waits for no other one's time.
    let at_once = |w: &NodeWall| w.cause == PauseCause::CapReached && w.not_before.is_none();
    if walls.iter().any(at_once) {
        return Some((cause, None));
    }
    Some((cause, walls.iter().filter_map(|w| w.not_before).min()))
}

/// The cause of one node from what stands between it and each pool of the set.
#[must_use]
pub fn cause(obstacles: &[Obstacle], now: Millis) -> (PauseCause, Option<Millis>) {
    let usable: Vec<Obstacle> =
        obstacles.iter().copied().filter(|o| !matches!(o, Obstacle::Settled(_))).collect();
    if usable.is_empty() {
        return (PauseCause::NoUsablePool, None);
    }
    let capable: Vec<Obstacle> =
        usable.into_iter().filter(|o| !matches!(o, Obstacle::Misfit(_))).collect();
    if capable.is_empty() {
        return (PauseCause::NoCapablePool, None);
    }
    let momentary = |o: &Obstacle| match o {
        Obstacle::Busy | Obstacle::Probing | Obstacle::Delay(_) => true,
        Obstacle::Paused(outcome, _) => rests(*outcome),
        Obstacle::Window(at) | Obstacle::Day(at) | Obstacle::Held(at) => *at - now <= MOMENTARY,
        _ => false,
    };
    let soon: Vec<Obstacle> = capable.iter().copied().filter(momentary).collect();
    if soon.is_empty() {
        return (PauseCause::BudgetExhausted, earliest(&capable));
    }
    // A slot may come free at any moment: a pool that waits for hours says nothing of that.
    let at_once = soon.iter().any(|o| o.not_before().is_none());
    (PauseCause::CapReached, if at_once { None } else { earliest(&soon) })
}

fn earliest(obstacles: &[Obstacle]) -> Option<Millis> {
    obstacles.iter().filter_map(|o| o.not_before()).min()
}

impl Scheduler {
    /// What stands between a node and each pool of this set, wherever the node is.
    pub fn wall(&mut self, node: &NodeId, now: Millis) -> Option<NodeWall> {
        self.node_ix(node).map(|ix| self.wall_of(ix as usize, now))
    }

    pub(super) fn wall_of(&mut self, ix: usize, now: Millis) -> NodeWall {
        let pools: Vec<(PoolId, Obstacle)> = (0..self.pools.len())
            .map(|p| (self.pools[p].pool.id.clone(), self.obstacle(ix, p, now)))
            .collect();
        let obstacles: Vec<Obstacle> = pools.iter().map(|p| p.1).collect();
        let (cause, not_before) = cause(&obstacles, now);
        let spec = &self.specs[ix];
        NodeWall {
            node: spec.id.clone(),
            cause,
            not_before,
            need: (spec.input_tokens, spec.output_tokens),
            tier: spec.tier,
            pools,
        }
    }

    fn obstacle(&mut self, ix: usize, p: usize, now: Millis) -> Obstacle {
        let spec = &self.specs[ix];
        let pool = &self.pools[p].pool;
        let gate = self.health[p].gate(now);
        let outcome = self.health[p].cause().unwrap_or(Outcome::RateLimited);
        if let Gate::Settled(settled) = gate {
            return Obstacle::Settled(settled.outcome);
        }
        if let Err(misfit) = select::fits(spec, pool) {
            return Obstacle::Misfit(misfit);
        }
        if self.nodes[ix].is_shut(p) {
            return Obstacle::Misfit(Misfit::Banned(spec.input_tokens));
        }
        if let Some(over) = self.node_over_budget(ix, p) {
            return Obstacle::Budget(over);
        }
        let class = &self.classes[self.nodes[ix].class];
        if !select::meets(pool, class.real_floor) {
            return Obstacle::Misfit(Misfit::Tier(class.real_floor));
        }
        let need = estimate(spec, pool);
        if let Some(over) = self.over_budget(ix, p) {
            return Obstacle::Budget(over);
        }
        match gate {
            Gate::Until(at) => return Obstacle::Paused(outcome, at),
            Gate::Probing => return Obstacle::Probing,
            Gate::Open | Gate::Settled(_) => {}
        }
        if let Some(at) = self.nodes[ix].tired_of(p).filter(|&at| at > now) {
            return Obstacle::Delay(at);
        }
        let meter = self.meter_of[p];
        let held = self.nodes[ix].held_by(meter).unwrap_or(now);
        match self.meters.earliest(meter, now, need) {
            Some(at) if held > at => Obstacle::Held(held),
            Some(at) if at > now && self.meters.day_is_full(meter, now, need) => Obstacle::Day(at),
            Some(at) if at > now => Obstacle::Window(at),
            _ => match self.nodes[ix].state {
                super::NodeState::Delayed(at) => Obstacle::Delay(at),
                _ => Obstacle::Busy,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NodeWall, Obstacle, cause, summary};
    use crate::ledger::PauseCause;
    use crate::model::{NodeId, Outcome, PoolId, Tier};
    use crate::scheduling::budget::{OverBudget, Scope};
    use crate::scheduling::select::Misfit;

    #[test]
    fn a_node_that_may_go_on_at_any_moment_waits_for_no_reset() {
        let wall = |obstacle: Obstacle| {
            let pools = vec![(PoolId::new("p"), obstacle)];
            let (cause, not_before) = cause(&[obstacle], 0);
            let node = NodeId::new("N").unwrap();
            NodeWall { node, cause, not_before, need: (1, 1), tier: Tier::Small, pools }
        };
        let reset = wall(Obstacle::Paused(Outcome::RateLimited, 3_600_000));
        let full = wall(Obstacle::Window(30_000));
        let whole = |walls: &[NodeWall]| summary(walls).unwrap();
        let both = [reset.clone(), full];
        assert_eq!(whole(&both), (PauseCause::CapReached, Some(30_000)));
        let both = [reset, wall(Obstacle::Busy)];
        assert_eq!(whole(&both), (PauseCause::CapReached, None));
    }

    #[test]
    fn one_cause_per_kind_of_wall() {
        let reset = Obstacle::Paused(Outcome::RateLimited, 3_600_000);
        let small = Obstacle::Misfit(Misfit::Context(96_000, 32_000));
        let out = Obstacle::Settled(Outcome::Auth);
        let over = OverBudget::of(Scope::Run);
        assert_eq!(cause(&[], 0), (PauseCause::NoUsablePool, None));
        assert_eq!(cause(&[out, out], 0), (PauseCause::NoUsablePool, None));
        assert_eq!(cause(&[out, small], 0), (PauseCause::NoCapablePool, None));
        assert_eq!(cause(&[reset, small], 0), (PauseCause::BudgetExhausted, Some(3_600_000)));
        assert_eq!(cause(&[reset, Obstacle::Budget(over)], 0).0, PauseCause::BudgetExhausted);
        assert_eq!(
            cause(&[reset, Obstacle::Window(30_000)], 0),
            (PauseCause::CapReached, Some(30_000))
        );
        assert_eq!(cause(&[reset, Obstacle::Busy], 0), (PauseCause::CapReached, None));
        assert_eq!(cause(&[reset, Obstacle::Probing], 0), (PauseCause::CapReached, None));
        for far in [Obstacle::Window, Obstacle::Day, Obstacle::Held].map(|of| of(7_200_000)) {
            assert_eq!(cause(&[far], 0), (PauseCause::BudgetExhausted, Some(7_200_000)));
        }
        assert_eq!(cause(&[Obstacle::Held(60_000)], 0).0, PauseCause::CapReached);
        for outcome in [Outcome::Transient, Outcome::Timeout] {
            let down = Obstacle::Paused(outcome, 900_000);
            assert_eq!(cause(&[down], 0), (PauseCause::CapReached, Some(900_000)));
            let text = down.text(|at| at.to_string());
            assert!(text.contains("failed several times in a row"), "{text}");
        }
    }
}
