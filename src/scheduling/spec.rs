//! What the scheduler is told of nodes and pools.

use super::budget::{Budgets, Spent};
use super::meter::{MeterIx, Meters};
use super::outcome::AttemptLimits;
use super::{Millis, Settled};
use crate::ledger::Served;
use crate::model::{Limits, Node, NodeId, Outcome, Pool, PoolId, Severity, Tier, Usage};

/// Where a node stands when the scheduler begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeStatus {
    /// To be done here.
    #[default]
    Open,
    /// Accepted or satisfied: dependents may run.
    Done,
    /// Failed, rejected or skipped: hard dependents are blocked.
    Failed,
    /// Claimed by another owner: dependents wait, it is never started here.
    Elsewhere,
}

/// One node, as far as scheduling cares.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSpec {
    /// Unique.
    pub id: NodeId,
    /// Must be done before; their failure blocks this node.
    pub depends_on: Vec<NodeId>,
    /// Must be final before, whatever their end.
    pub after: Vec<NodeId>,
    /// Nodes whose prompt overlaps (beside the dependencies): continuity prefers their pool.
    pub neighbours: Vec<NodeId>,
    /// Capability floor.
    pub tier: Tier,
    /// Highest severity of its findings.
    pub severity: Severity,
    /// Estimated input tokens.
    pub input_tokens: u64,
    /// Output envelope, tokens.
    pub output_tokens: u64,
    /// Expected work at speed 1, where it is known better than from the tokens.
    pub service: Option<Millis>,
    /// Where it stands.
    pub status: NodeStatus,
    /// Failures of its own so far.
    pub contract_failures: u32,
    /// Failures of the world so far.
    pub infra_failures: u32,
    /// Pools that refused this size, with the tokens that were refused.
    pub banned: Vec<(PoolId, u64)>,
    /// Pools that refused what was asked, for another reason: not asked again.
    pub refused: Vec<PoolId>,
    /// What its attempts have used so far.
    pub spent: Spent,
    /// Input tokens of requests that the limits of these pools did not let through.
    pub asked: Vec<(PoolId, u64)>,
    /// What an attempt that a budget cut short had used, with the request that was refused: the next
    /// one needs as much.
    pub took: Spent,
}

impl NodeSpec {
    /// An open node without dependencies: standard tier, medium severity, 8 000 tokens in, 2 000
    /// out.
    #[must_use]
    pub fn new(id: NodeId) -> Self {
        Self {
            id,
            depends_on: Vec::new(),
            after: Vec::new(),
            neighbours: Vec::new(),
            tier: Tier::Standard,
            severity: Severity::Medium,
            input_tokens: 8_000,
            output_tokens: 2_000,
            service: None,
            status: NodeStatus::Open,
            contract_failures: 0,
            infra_failures: 0,
            banned: Vec::new(),
            refused: Vec::new(),
            spent: Spent::default(),
            asked: Vec::new(),
            took: Spent::default(),
        }
    }
}

impl From<&Node> for NodeSpec {
    fn from(node: &Node) -> Self {
        Self {
            depends_on: node.depends_on.clone(),
            after: node.after.clone(),
            tier: node.tier,
            severity: node.severity,
            input_tokens: node.input_tokens,
            output_tokens: node.output_tokens,
            ..Self::new(node.id.clone())
        }
    }
}

/// Expected duration of one attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServiceEstimate {
    /// Fixed part, milliseconds.
    pub base: f64,
    /// Milliseconds per 1 000 input tokens.
    pub per_input_ktok: f64,
    /// Milliseconds per 1 000 output tokens.
    pub per_output_ktok: f64,
    /// Divides the whole; also scales a node's own `service`.
    pub speed: f64,
}

impl Default for ServiceEstimate {
    /// 20 s + 0.5 s per 1 000 tokens in + 20 s per 1 000 tokens out (50 tokens a second, what hosted
    /// models of middle size do); replaced by what is observed.
    fn default() -> Self {
        Self { base: 20_000.0, per_input_ktok: 500.0, per_output_ktok: 20_000.0, speed: 1.0 }
    }
}

impl ServiceEstimate {
    /// Corrected by what the pool really took. The expectation itself counts like one attempt, so
    /// that a single odd one does not turn it over.
    #[must_use]
    pub fn corrected(self, served: &Served) -> Self {
        /// No pool is taken to be more than so many times as fast, or as slow, as was expected.
        const MOST: f64 = 50.0;
        let work = |attempts: f64, input: f64, output: f64| {
            attempts * self.base
                + self.per_input_ktok * input / 1_000.0
                + self.per_output_ktok * output / 1_000.0
        };
        let typical = work(1.0, 8_000.0, 2_000.0) / self.speed;
        let expected =
            work(served.attempts, served.input_tokens, served.output_tokens) / self.speed;
        let faster = (expected + typical) / (served.millis + typical);
        if !faster.is_finite() || served.attempts <= 0.0 {
            return self;
        }
        Self { speed: self.speed * faster.clamp(1.0 / MOST, MOST), ..self }
    }

    /// Expected milliseconds, at least one.
    #[must_use]
    pub fn expect(&self, input: u64, output: u64, service: Option<Millis>) -> Millis {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let work = service.map_or_else(
            || {
                self.base
                    + self.per_input_ktok * input as f64 / 1_000.0
                    + self.per_output_ktok * output as f64 / 1_000.0
            },
            |ms| ms as f64,
        );
        let speed = if self.speed > 0.0 { self.speed } else { 1.0 };
        whole_millis(work / speed).max(1)
    }
}

/// Whole milliseconds, rounded up, so that a sum of them is never less than the sum of what was
/// rounded. What arithmetic adds by itself is no further millisecond.
pub(super) fn whole_millis(ms: f64) -> Millis {
    const NOISE: f64 = 1.0e-6;
    #[expect(clippy::cast_possible_truncation, reason = "clamped; NaN casts to 0")]
    let whole = (ms - NOISE).ceil().clamp(0.0, 1.0e13) as Millis;
    whole
}

/// One pool of the eligible set, with what the ledger remembers of it.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolState {
    /// The declaration.
    pub pool: Pool,
    /// How fast it is.
    pub service: ServiceEstimate,
    /// A pause that still runs: cause, end, backoff step.
    pub paused: Option<(Outcome, Millis, u32)>,
    /// A settle.
    pub settled: Option<Settled>,
    /// Limits that were learned.
    pub learned: Limits,
    /// What attempts used within the last day, and when.
    pub used: Vec<(Millis, Usage)>,
}

impl From<Pool> for PoolState {
    fn from(pool: Pool) -> Self {
        Self {
            pool,
            service: ServiceEstimate::default(),
            paused: None,
            settled: None,
            learned: Limits::default(),
            used: Vec::new(),
        }
    }
}

/// The meters of these pools. What an account lets through holds for each of its pools, whichever
/// of them says it.
pub(super) fn declare(pools: &mut [PoolState]) -> (Meters, Vec<MeterIx>) {
    let mut meters = Meters::new();
    let meter_of: Vec<MeterIx> =
        pools.iter().map(|p| meters.declare(&p.pool.meter, p.pool.limits)).collect();
    for (state, &meter) in pools.iter_mut().zip(&meter_of) {
        state.pool.limits = meters.limits(meter);
    }
    (meters, meter_of)
}

/// How to schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// 0 = cheapest first, 1 = fastest. Up to 0.5 no node ever waits beside an idle pool that
    /// fits; beyond, it waits for a faster pool when it ends earlier by waiting.
    pub dial: f64,
    /// When it begins; what looks ahead counts from here.
    pub start: Millis,
    /// The latest time worth waiting for inside this job; later waits are a wall.
    pub deadline: Option<Millis>,
    /// The longest wait with nothing at work; longer ones are a wall. Any where absent.
    pub patience: Option<Millis>,
    /// What may still be used here.
    pub budgets: Budgets,
    /// Failed attempts per node.
    pub attempts: AttemptLimits,
    /// Node placements that the look ahead may try before the first start (dial beyond 0.5).
    pub lookahead: usize,
}

/// About a second of a release build. A build with debug assertions takes twenty times as long for
/// each placement, and looks less far.
const LOOKAHEAD: usize = if cfg!(debug_assertions) { 1_500_000 } else { 6_000_000 };

impl Default for Options {
    fn default() -> Self {
        Self {
            dial: 0.0,
            start: 0,
            deadline: None,
            patience: None,
            budgets: Budgets::default(),
            attempts: AttemptLimits::default(),
            lookahead: LOOKAHEAD,
        }
    }
}
