//! How pools behave in a simulation. Drawn from a hash of (seed, node, pool, attempt), so that the
//! order of events never changes what a pool answers.

use std::collections::BTreeMap;

use super::super::scheduler::Scheduler;
use super::super::select::estimate;
use super::super::spec::whole_millis;
use super::super::{Finish, Millis};
use super::run::{Attempt, World};
use crate::model::{Outcome, Usage};

/// A refusal takes this long, milliseconds.
const REFUSAL: Millis = 1_000;
/// A timeout takes so many times the service.
const TIMEOUT_FACTOR: Millis = 2;

/// The pool does not answer in between; both in milliseconds, the end excluded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outage {
    /// First moment.
    pub from: Millis,
    /// First moment after.
    pub to: Millis,
}

/// One pool's behaviour beside its expected speed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServiceModel {
    /// Durations lie within this fraction around the expected one. How hard a node is shows on every
    /// pool and attempt alike: the place within the fraction is drawn once for each node.
    pub jitter: f64,
    /// Probability of each outcome; the rest is success.
    pub outcomes: BTreeMap<Outcome, f64>,
    /// The reset that it states with a limit, milliseconds.
    pub reset: Option<Millis>,
    /// When it does not answer.
    pub outages: Vec<Outage>,
}

/// Every pool's model, by pool index.
pub(super) struct Model {
    pub(super) models: Vec<ServiceModel>,
    pub(super) seed: u64,
}

/// The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit moves every output bit.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A number in [0, 1) from a seed and some coordinates.
pub(in super::super) fn unit(seed: u64, parts: &[u64]) -> f64 {
    let hash = parts.iter().fold(mix(seed), |h, &p| mix(h ^ p));
    #[expect(clippy::cast_precision_loss, reason = "53 bits")]
    let value = (hash >> 11) as f64 / (1u64 << 53) as f64;
    value
}

impl Model {
    /// The duration of a success.
    pub(super) fn service(&self, scheduler: &Scheduler, node: usize, pool: usize) -> Millis {
        let expected = scheduler.declared(node, pool);
        let jitter = self.models[pool].jitter;
        if jitter <= 0.0 {
            return expected;
        }
        let u = unit(self.seed, &[1, node as u64]);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of a year fit 53 bits")]
        let ms = whole_millis(expected as f64 * (1.0 + jitter * (2.0 * u - 1.0)));
        ms.max(1)
    }

    fn draw(&self, node: usize, pool: usize, attempt: u32) -> Outcome {
        let mut u = unit(self.seed, &[2, node as u64, pool as u64, u64::from(attempt)]);
        for (&outcome, &p) in &self.models[pool].outcomes {
            if u < p {
                return outcome;
            }
            u -= p;
        }
        Outcome::Success
    }
}

impl World for Model {
    fn attempt(
        &mut self,
        scheduler: &Scheduler,
        node: usize,
        pool: usize,
        attempt: u32,
        now: Millis,
    ) -> Attempt {
        let service = self.service(scheduler, node, pool);
        let outcome = self.draw(node, pool, attempt);
        let ms = match outcome {
            Outcome::Success | Outcome::InvalidResult | Outcome::Error => service,
            Outcome::Transient => (service / 2).max(1),
            Outcome::Timeout => service.saturating_mul(TIMEOUT_FACTOR),
            _ => REFUSAL.min(service),
        };
        let model = &self.models[pool];
        let hit = model.outages.iter().find(|o| o.from < now + ms && o.to > now);
        let (ms, outcome) = match hit {
            Some(outage) => ((outage.from - now).max(REFUSAL.min(ms)), Outcome::Transient),
            None => (ms, outcome),
        };
        let limit = matches!(
            outcome,
            Outcome::RateLimited | Outcome::QuotaUnclassified | Outcome::ModelUnavailable
        );
        let spec = &scheduler.specs[node];
        let need = estimate(spec, &scheduler.pools[pool].pool);
        // A refusal costs nothing; everything else is charged in full.
        let charged = ms > REFUSAL || outcome == Outcome::Success;
        let usage = Usage {
            requests: 1,
            input_tokens: if charged { need.input_tokens } else { 0 },
            output_tokens: if charged { need.output_tokens } else { 0 },
            cost_usd: 0.0,
        };
        let finish = Finish {
            outcome,
            reset_at: model.reset.filter(|_| limit).map(|reset| now + ms + reset),
            temporary: outcome == Outcome::ModelUnavailable && model.reset.is_some(),
            usage: Some(usage),
        };
        Attempt { ms, finish }
    }
}
