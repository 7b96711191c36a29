//! Why nodes cannot go on, each with its own cause and figures.

use super::budget::OverBudget;
use super::health::Gate;
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
            Self::Paused(_, at) | Self::Window(at) | Self::Day(at) | Self::Delay(at) => Some(at),
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
            Self::Paused(outcome, at) => {
                format!("{}, until {}", outcome_word(outcome), time(at))
            }
            Self::Window(at) => format!("its window is full until {}", time(at)),
            Self::Day(at) => format!("its daily allowance is used until {}", time(at)),
            Self::Busy => "every slot is in use".to_owned(),
            Self::Probing => "a probe decides first".to_owned(),
            Self::Budget(over) => over.text().to_owned(),
            Self::Delay(at) => format!("retried at {}", time(at)),
        }
    }
}

fn tier_word(tier: Tier) -> &'static str {
    match tier {
        Tier::Small => "small",
        Tier::Standard => "standard",
        Tier::Deep => "deep",
    }
}

fn outcome_word(outcome: Outcome) -> String {
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
    let not_before = capable.iter().filter_map(|o| o.not_before()).min();
    let momentary = |o: &Obstacle| match o {
        Obstacle::Busy | Obstacle::Probing | Obstacle::Window(_) | Obstacle::Delay(_) => true,
        Obstacle::Day(at) => *at - now <= MOMENTARY,
        _ => false,
    };
    if capable.iter().any(momentary) {
        return (PauseCause::CapReached, not_before);
    }
    (PauseCause::BudgetExhausted, not_before)
}

impl Scheduler {
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
        if !class.eligible.contains(&p) {
            return Obstacle::Misfit(Misfit::Tier(class.real_floor));
        }
        let need = estimate(spec, pool);
        if let Some(over) = self.over_budget(p, need) {
            return Obstacle::Budget(over);
        }
        match gate {
            Gate::Until(at) => return Obstacle::Paused(outcome, at),
            Gate::Probing => return Obstacle::Probing,
            Gate::Open | Gate::Settled(_) => {}
        }
        let meter = self.meter_of[p];
        match self.meters.earliest(meter, now, need) {
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
    use super::{Obstacle, cause};
    use crate::ledger::PauseCause;
    use crate::model::Outcome;
    use crate::scheduling::budget::{OverBudget, Scope};
    use crate::scheduling::select::Misfit;

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
        assert_eq!(
            cause(&[Obstacle::Day(7_200_000)], 0),
            (PauseCause::BudgetExhausted, Some(7_200_000))
        );
    }
}
