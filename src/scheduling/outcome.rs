//! What an outcome does to the pool and to the node: the one table.

use super::Millis;
use crate::ledger::Burn;
use crate::model::{Outcome, Usage};

/// First pause without a known reset, milliseconds.
pub const BACKOFF_FIRST: Millis = 60_000;
/// Longest pause without a known reset, milliseconds.
pub const BACKOFF_MAX: Millis = 15 * 60_000;
/// Failures after which a node has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptLimits {
    /// Of its own.
    pub contract: u32,
    /// Of the world.
    pub infrastructure: u32,
}

impl Default for AttemptLimits {
    fn default() -> Self {
        Self { contract: 2, infrastructure: 5 }
    }
}

/// Stated resets beyond this are cut: no backend's allowance is longer than a month.
pub const RESET_MAX: Millis = 31 * 24 * 3_600_000;

/// Pause length of the n-th step (from 1): 60 s, doubling to 15 min.
#[must_use]
pub fn backoff(step: u32) -> Millis {
    BACKOFF_FIRST.saturating_mul(1 << step.saturating_sub(1).min(10)).min(BACKOFF_MAX)
}

/// The shortest pause of the n-th step, whatever reset was stated: 1 s, doubling to 60 s.
#[must_use]
pub fn reset_floor(step: u32) -> Millis {
    1_000_i64.saturating_mul(1 << step.saturating_sub(1).min(10)).min(BACKOFF_FIRST)
}

/// How one attempt ended, as the driver reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// The classified outcome.
    pub outcome: Outcome,
    /// The backend's own reset, where it stated a credible one; the caller adds jitter.
    pub reset_at: Option<Millis>,
    /// `model_unavailable` that heals (degraded, at capacity).
    pub temporary: bool,
    /// What was used; `None` when nothing was reported.
    pub usage: Option<Usage>,
}

impl Finish {
    /// An outcome without further facts.
    #[must_use]
    pub fn new(outcome: Outcome) -> Self {
        Self { outcome, reset_at: None, temporary: false, usage: None }
    }
}

/// What happens to the pool that ran the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolEffect {
    /// It works: failures are forgotten.
    Healthy,
    /// Nothing: the fault is the request's.
    Untouched,
    /// Waits for its reset or a backoff.
    Paused,
    /// Leaves the set.
    Settled,
    /// Counts towards the circuit breaker.
    Suspect,
}

/// The pool column of the outcome table.
#[must_use]
pub fn pool_effect(outcome: Outcome) -> PoolEffect {
    match outcome {
        Outcome::Success => PoolEffect::Healthy,
        Outcome::RateLimited | Outcome::QuotaUnclassified => PoolEffect::Paused,
        Outcome::CreditExhausted | Outcome::ModelUnavailable | Outcome::Auth => PoolEffect::Settled,
        Outcome::Transient | Outcome::Timeout => PoolEffect::Suspect,
        Outcome::PacketTooLarge
        | Outcome::BadRequest
        | Outcome::ContentFiltered
        | Outcome::InvalidResult
        | Outcome::Error => PoolEffect::Untouched,
    }
}

/// The settling predicate within a cycle.
#[must_use]
pub fn settles(outcome: Outcome) -> bool {
    pool_effect(outcome) == PoolEffect::Settled
}

/// The settling predicate across cycles: memory dies with the job, so pauses are kept with their
/// end too. Never for faults of a request or of the moment.
#[must_use]
pub fn settles_across_cycles(outcome: Outcome) -> bool {
    matches!(pool_effect(outcome), PoolEffect::Settled | PoolEffect::Paused)
}

/// How the attempt counts against the node.
#[must_use]
pub fn burn(outcome: Outcome) -> Burn {
    match outcome {
        Outcome::Success
        | Outcome::RateLimited
        | Outcome::CreditExhausted
        | Outcome::ModelUnavailable
        | Outcome::PacketTooLarge
        | Outcome::QuotaUnclassified
        | Outcome::Auth => Burn::None,
        Outcome::Transient | Outcome::Timeout => Burn::Infrastructure,
        Outcome::BadRequest
        | Outcome::ContentFiltered
        | Outcome::InvalidResult
        | Outcome::Error => Burn::Contract,
    }
}

/// Refused for what was asked: this pool will refuse it again, another may not.
#[must_use]
pub fn refused_here(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::BadRequest | Outcome::ContentFiltered)
}

#[cfg(test)]
mod tests {
    use super::{PoolEffect, backoff, burn, pool_effect, settles_across_cycles};
    use crate::ledger::Burn;
    use crate::model::Outcome;

    #[test]
    fn one_settling_predicate() {
        use Outcome::{
            Auth, BadRequest, CreditExhausted, Error, ModelUnavailable, PacketTooLarge,
            QuotaUnclassified, RateLimited, Timeout, Transient,
        };
        for o in [CreditExhausted, ModelUnavailable, Auth] {
            assert!(pool_effect(o) == PoolEffect::Settled && settles_across_cycles(o), "{o:?}");
        }
        for o in [RateLimited, QuotaUnclassified] {
            assert!(pool_effect(o) == PoolEffect::Paused && settles_across_cycles(o), "{o:?}");
        }
        for o in [PacketTooLarge, Timeout, Transient, Error, BadRequest] {
            assert!(!settles_across_cycles(o), "{o:?}");
        }
        assert_eq!(burn(RateLimited), Burn::None);
        assert_eq!(burn(Timeout), Burn::Infrastructure);
        assert_eq!(burn(Error), Burn::Contract);
    }

    #[test]
    fn backoff_doubles_to_a_quarter_of_an_hour() {
        let steps: Vec<_> = (1..7).map(|n| backoff(n) / 1_000).collect();
        assert_eq!(steps, [60, 120, 240, 480, 900, 900]);
        assert_eq!(backoff(u32::MAX), 900_000);
    }
}
