//! One pool's health: pauses, settles and the circuit breaker.

use super::Millis;
use super::outcome::{RESET_MAX, backoff, reset_floor};
use crate::model::Outcome;

/// Failures in a row that open the circuit breaker.
pub const BREAKER_FAILURES: u32 = 3;

/// Out of the set, across cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settled {
    /// Why.
    pub outcome: Outcome,
    /// Its end, where one exists; then one probe decides.
    pub until: Option<Millis>,
}

/// May an attempt start on this pool?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Open,
    /// Not before this time.
    Until(Millis),
    /// One probe is in flight; its end decides.
    Probing,
    /// Out.
    Settled(Settled),
}

/// The state behind the gate.
#[derive(Debug, Clone, Default)]
pub struct Health {
    blocked_until: Option<Millis>,
    blocked_by: Option<Outcome>,
    step: u32,
    stepped_at: Option<Millis>,
    settled: Option<Settled>,
    failures: u32,
    breaker_step: u32,
    needs_probe: bool,
    probing: bool,
}

impl Health {
    /// The gate at `now`.
    #[must_use]
    pub fn gate(&self, now: Millis) -> Gate {
        if let Some(settled) = self.settled {
            match settled.until {
                Some(until) if until > now => return Gate::Until(until),
                Some(_) => {}
                None => return Gate::Settled(settled),
            }
        }
        match self.blocked_until {
            Some(until) if until > now => Gate::Until(until),
            _ if self.probing => Gate::Probing,
            _ => Gate::Open,
        }
    }

    /// Settled without an end: no longer part of the set.
    #[must_use]
    pub fn is_out(&self) -> bool {
        matches!(self.settled, Some(Settled { until: None, .. }))
    }

    /// Settled, without an end or with one that has not come.
    #[must_use]
    pub fn is_settled(&self, now: Millis) -> bool {
        self.settled.is_some_and(|settled| settled.until.is_none_or(|until| until > now))
    }

    /// What blocks it, for people.
    #[must_use]
    pub fn cause(&self) -> Option<Outcome> {
        self.settled.map(|s| s.outcome).or(self.blocked_by)
    }

    /// An attempt starts; true when it is a half-open probe.
    pub fn started(&mut self) -> bool {
        let expired_settle = self.settled.take().is_some();
        if self.needs_probe || expired_settle {
            self.needs_probe = true;
            self.probing = true;
        }
        self.probing
    }

    /// A probe ended without an answer about the pool (its own request was at fault, or it was
    /// cancelled).
    pub fn probe_over(&mut self) {
        self.probing = false;
    }

    /// An attempt that started at `started_at` succeeded; true when the pool is back by it.
    pub fn succeeded(&mut self, started_at: Millis) -> bool {
        let back = self.needs_probe;
        self.failures = 0;
        self.breaker_step = 0;
        self.needs_probe = false;
        self.probing = false;
        if self.stepped_at.is_none_or(|step| started_at > step) {
            self.step = 0;
            self.blocked_by = None;
        }
        back
    }

    /// A limit that time heals. Returns the pause's end and step when this is news: concurrent
    /// failures of one pause window are one step.
    pub fn limited(
        &mut self,
        outcome: Outcome,
        started_at: Millis,
        reset_at: Option<Millis>,
        now: Millis,
    ) -> Option<(Millis, u32)> {
        self.probing = false;
        let reset = reset_at.filter(|&at| at > now).map(|at| at.min(now + RESET_MAX));
        let same_window = self.stepped_at.is_some_and(|step| started_at <= step)
            || self.blocked_until.is_some_and(|until| now < until);
        if same_window {
            // A later reset is still believed; the step does not move.
            let until = reset.filter(|&at| self.blocked_until.is_none_or(|b| at > b))?;
            self.blocked_until = Some(until);
            return Some((until, self.step));
        }
        self.step += 1;
        self.stepped_at = Some(now);
        let until = reset.unwrap_or(now + backoff(self.step));
        // A reset that has just proved wrong is believed less: nothing may spin on it.
        let until = until.max(now + reset_floor(self.step));
        self.blocked_until = Some(until);
        self.blocked_by = Some(outcome);
        Some((until, self.step))
    }

    /// Leaves the set; returns the settle. One that heals gets an end and a probe.
    pub fn settle(
        &mut self,
        outcome: Outcome,
        temporary: bool,
        reset_at: Option<Millis>,
        now: Millis,
    ) -> Settled {
        self.probing = false;
        let reset = reset_at.filter(|&at| at > now).map(|at| at.min(now + RESET_MAX));
        let until = if temporary {
            self.breaker_step += 1;
            Some(reset.unwrap_or(now + backoff(self.breaker_step)))
        } else {
            None
        };
        let settled = Settled { outcome, until };
        self.settled = Some(settled);
        settled
    }

    /// A failure of the moment. Returns the end of the pause when the breaker opens.
    pub fn failed(&mut self, outcome: Outcome, now: Millis) -> Option<Millis> {
        let was_probe = self.probing;
        self.probing = false;
        self.failures = self.failures.saturating_add(1);
        if self.blocked_until.is_some_and(|until| now < until) {
            return None;
        }
        if self.failures < BREAKER_FAILURES && !was_probe {
            return None;
        }
        self.breaker_step += 1;
        let until = now + backoff(self.breaker_step);
        self.blocked_until = Some(until);
        self.blocked_by = Some(outcome);
        self.needs_probe = true;
        Some(until)
    }

    /// Blocks until a time, as the ledger remembers it.
    pub fn pause(&mut self, outcome: Outcome, until: Millis, step: u32) {
        self.blocked_until = Some(until);
        self.blocked_by = Some(outcome);
        self.step = step;
    }

    /// Settles as the ledger remembers it.
    pub fn remember(&mut self, settled: Settled) {
        self.settled = Some(settled);
    }
}

#[cfg(test)]
mod tests {
    use super::{Gate, Health};
    use crate::model::Outcome;

    #[test]
    fn one_step_per_pause_window() {
        let mut h = Health::default();
        assert_eq!(h.limited(Outcome::RateLimited, 0, None, 1_000), Some((61_000, 1)));
        assert_eq!(h.limited(Outcome::RateLimited, 0, None, 1_100), None);
        assert_eq!(h.limited(Outcome::RateLimited, 500, None, 70_000), None);
        assert_eq!(h.gate(61_000), Gate::Open);
        assert_eq!(h.limited(Outcome::RateLimited, 62_000, None, 63_000), Some((183_000, 2)));
        assert_eq!(
            h.limited(Outcome::RateLimited, 62_000, Some(500_000), 64_000),
            Some((500_000, 2))
        );
    }

    #[test]
    fn the_breaker_opens_and_one_probe_closes_it() {
        let mut h = Health::default();
        assert_eq!(h.failed(Outcome::Transient, 1), None);
        assert_eq!(h.failed(Outcome::Transient, 2), None);
        assert_eq!(h.failed(Outcome::Transient, 3), Some(60_003));
        assert_eq!(h.gate(60_002), Gate::Until(60_003));
        assert_eq!(h.gate(60_003), Gate::Open);
        assert!(h.started());
        assert_eq!(h.gate(60_004), Gate::Probing);
        assert_eq!(h.failed(Outcome::Transient, 60_005), Some(180_005));
        assert!(h.started());
        assert!(h.succeeded(180_006));
        assert_eq!(h.gate(180_007), Gate::Open);
        assert!(!h.started());
    }

    #[test]
    fn degraded_has_an_end_and_a_probe_credit_has_none() {
        let mut h = Health::default();
        let settled = h.settle(Outcome::ModelUnavailable, true, None, 0);
        assert_eq!(settled.until, Some(60_000));
        assert_eq!(h.gate(1), Gate::Until(60_000));
        assert!(!h.is_out());
        assert!(h.started());
        assert_eq!(h.gate(60_001), Gate::Probing);
        h.settle(Outcome::CreditExhausted, false, None, 60_002);
        assert!(h.is_out());
    }
}
