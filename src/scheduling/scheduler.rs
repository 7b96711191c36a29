//! The state machine: nodes become ready, start, finish; pools fill, pause and come back.
//!
//! A decision costs O(classes x pools + log n): nodes with the same fitting pools and the same
//! floor form one class with an ordered ready set, so that nothing rescans the frontier.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Millis;
use super::budget::{self, Purse, Purses, Spent};
use super::graph::{Graph, ScheduleError};
use super::health::{Gate, Health, Settled};
use super::lookahead::{self, Guide};
use super::meter::{Admission, Estimate, MeterIx, Meters, Reservation};
use super::pass::SCAN;
use super::poolset::PoolSet;
use super::requests::Scale;
use super::select::estimate;
use super::spec::{NodeSpec, NodeStatus, Options, PoolState};
use super::wall::NodeWall;
use crate::ledger::Burn;
use crate::model::{Limits, NodeId, Outcome, PoolId, Severity, Tier};

/// What to do now.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Start this node on this pool. Its first request is already reserved in the windows.
    Start {
        /// The node.
        node: NodeId,
        /// The pool.
        pool: PoolId,
    },
    /// Nothing may start: wait for a running attempt or for this time, whichever is first.
    Wait {
        /// Ask again at this time at the latest; `None` = only a running attempt changes things.
        until: Option<Millis>,
    },
    /// Nothing runs and nothing can start within the deadline: each waiting node with its cause.
    Wall(Vec<NodeWall>),
    /// Nothing is left to do here.
    Done,
}

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// For its dependencies.
    Waiting,
    /// For a pool.
    Ready,
    /// For the end of a retry delay.
    Delayed(Millis),
    /// Running on a pool.
    Running,
    /// Ended well; being verified and landed.
    Landing,
    /// Accepted or satisfied.
    Done,
    /// Its budget is used up.
    Failed,
    /// A hard dependency failed.
    Blocked,
    /// Claimed by another owner.
    Elsewhere,
}

/// What changed beside the node, for the ledger.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "fields carry the words of the vocabulary")]
pub enum Effect {
    /// The pool waits.
    Paused { pool: PoolId, until: Millis, step: u32, outcome: Outcome },
    /// The pool left the set.
    Settled { pool: PoolId, settled: Settled },
    /// The pool is back after a probe.
    Restored { pool: PoolId },
    /// This size does not fit this pool, for good.
    Banned { node: NodeId, pool: PoolId, tokens: u64 },
    /// A learned limit moved.
    Learned { pool: PoolId, limits: Limits },
    /// A dependent can no longer run.
    Blocked { node: NodeId, by: NodeId },
}

/// The end of one attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// Where the node stands now.
    pub state: NodeState,
    /// How the attempt counted.
    pub burn: Burn,
    /// What else changed.
    pub effects: Vec<Effect>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Running {
    pub(super) pool: usize,
    pub(super) started_at: Millis,
    pub(super) expected_end: Millis,
    /// What the launch reserved, until the attempt's first request takes its place.
    pub(super) reservation: Option<Reservation>,
    /// What the launch took from the budgets, likewise.
    pub(super) booked: Spent,
    pub(super) probe: bool,
    /// At work elsewhere: nothing here waits for its end.
    pub(super) adopted: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Work {
    pub(super) deps_left: usize,
    pub(super) rank: Millis,
    pub(super) class: usize,
    pub(super) state: NodeState,
    pub(super) running: Option<Running>,
    pub(super) last_pool: Option<usize>,
    pub(super) shut: Vec<usize>,
    pub(super) contract: u32,
    pub(super) infra: u32,
    pub(super) infra_row: u32,
    pub(super) free_probes: u32,
    pub(super) purse: Purse,
}

/// Ready order inside a class: longest remaining path, severity, id.
pub(super) type Key = (Reverse<Millis>, Reverse<Severity>, u32);

#[derive(Debug, Clone)]
pub(super) struct Class {
    pub(super) fit: PoolSet,
    pub(super) floor: Tier,
    /// The floor that holds among the pools that are left.
    pub(super) real_floor: Tier,
    pub(super) eligible: Vec<usize>,
    pub(super) ready: BTreeSet<Key>,
    /// `(tokens, node)` by input and by output: the smallest requests, for windows that only they fit.
    pub(super) by_input: BTreeSet<(u64, u32)>,
    pub(super) by_output: BTreeSet<(u64, u32)>,
}

/// The pure scheduling core. Times never go backward by more than a clock's correction.
#[derive(Debug, Clone)]
pub struct Scheduler {
    pub(super) specs: Arc<Vec<NodeSpec>>,
    pub(super) graph: Arc<Graph>,
    pub(super) pools: Arc<Vec<PoolState>>,
    pub(super) meter_of: Arc<Vec<MeterIx>>,
    pub(super) options: Options,
    pub(super) patience: f64,
    /// What each eligible pool of a node costs the whole, and how much that counts.
    pub(super) handicap: Option<(Arc<Vec<Vec<f64>>>, f64)>,
    /// Followed while the world behaves as expected.
    pub(super) guide: Option<Arc<Guide>>,
    /// When a node that the guide holds back fits its window.
    pub(super) guide_wake: Option<Millis>,
    pub(super) meters: Meters,
    pub(super) health: Vec<Health>,
    /// By how much each pool is faster than expected, from what ended here.
    pub(super) pace: Vec<Pace>,
    pub(super) nodes: Vec<Work>,
    pub(super) classes: Vec<Class>,
    pub(super) class_of: BTreeMap<(PoolSet, Tier), usize>,
    pub(super) delayed: BTreeSet<(Millis, u32)>,
    /// Expected ends of running attempts, per meter.
    pub(super) ends: Vec<BTreeSet<(Millis, u32)>>,
    pub(super) running: usize,
    /// Which pools had room at a time, while nothing but starts has happened since.
    pub(super) room: Option<(Millis, Vec<bool>)>,
    pub(super) purses: Purses,
    /// Pools that were declared free and charge, not told yet.
    pub(super) drifts: Vec<(PoolId, f64)>,
    /// Per pool, what its requests here taught of our estimates, and what was known before.
    pub(super) scales: Vec<(Scale, f64)>,
}

impl Scheduler {
    /// Takes the plan and the eligible pools; with the dial beyond 0.5 looks ahead first.
    ///
    /// # Errors
    /// Duplicate ids, unknown dependencies, circles.
    pub fn new(
        nodes: Vec<NodeSpec>,
        pools: Vec<PoolState>,
        options: Options,
    ) -> Result<Self, ScheduleError> {
        let mut scheduler = Self::without_lookahead(nodes, pools, options)?;
        if options.dial > 0.5 {
            lookahead::tune(&mut scheduler);
        }
        Ok(scheduler)
    }

    pub(super) fn without_lookahead(
        mut specs: Vec<NodeSpec>,
        mut pools: Vec<PoolState>,
        options: Options,
    ) -> Result<Self, ScheduleError> {
        specs.sort_by(|a, b| a.id.cmp(&b.id));
        pools.sort_by(|a, b| a.pool.id.cmp(&b.pool.id));
        if let Some(pair) = pools.windows(2).find(|pair| pair[0].pool.id == pair[1].pool.id) {
            return Err(ScheduleError::DuplicatePool(pair[0].pool.id.clone()));
        }
        let graph = Graph::new(&specs)?;
        let mut meters = Meters::new();
        let meter_of: Vec<MeterIx> =
            pools.iter().map(|p| meters.declare(&p.pool.meter, p.pool.limits)).collect();
        let mut health = vec![Health::default(); pools.len()];
        for (ix, state) in pools.iter().enumerate() {
            if let Some((outcome, until, step)) = state.paused {
                health[ix].pause(outcome, until, step);
            }
            if let Some(settled) = state.settled {
                health[ix].remember(settled);
            }
            if state.learned != Limits::default() {
                meters.relearn(meter_of[ix], state.learned);
            }
        }
        remember(&mut meters, &pools, &meter_of);
        let nodes = specs
            .iter()
            .enumerate()
            .map(|(ix, spec)| Work {
                deps_left: graph.dependencies[ix].len(),
                rank: 0,
                class: 0,
                state: match spec.status {
                    NodeStatus::Open => NodeState::Waiting,
                    NodeStatus::Done => NodeState::Done,
                    NodeStatus::Failed => NodeState::Failed,
                    NodeStatus::Elsewhere => NodeState::Elsewhere,
                },
                running: None,
                last_pool: None,
                shut: Vec::new(),
                contract: spec.contract_failures,
                infra: spec.infra_failures,
                infra_row: 0,
                free_probes: 0,
                purse: Purse::new(options.budgets.node, spec.spent),
            })
            .collect();
        let scales = pools.iter().map(|p| (Scale::default(), p.pool.input_scale)).collect();
        let mut this = Self {
            ends: vec![BTreeSet::new(); meters.len()],
            specs: Arc::new(specs),
            graph: Arc::new(graph),
            pools: Arc::new(pools),
            meter_of: Arc::new(meter_of),
            options,
            patience: 0.0,
            handicap: None,
            guide: None,
            guide_wake: None,
            meters,
            pace: vec![Pace::default(); health.len()],
            health,
            nodes,
            classes: Vec::new(),
            class_of: BTreeMap::new(),
            delayed: BTreeSet::new(),
            running: 0,
            room: None,
            purses: Purses::new(&options.budgets),
            drifts: Vec::new(),
            scales,
        };
        for ix in 0..this.nodes.len() {
            this.nodes[ix].class = this.classify(ix);
        }
        let ranks = this.graph.remaining(|ix| this.fastest(ix));
        this.set_ranks(&ranks);
        this.open();
        Ok(this)
    }

    /// Resolves what is final already, and fills the ready sets.
    fn open(&mut self) {
        let order = self.graph.order.clone();
        let mut effects = Vec::new();
        for &ix in &order {
            match self.nodes[ix as usize].state {
                NodeState::Done => self.release_dependents(ix),
                NodeState::Failed => self.block_dependents(ix, &mut effects),
                _ => {}
            }
        }
        for &ix in &order {
            let work = &self.nodes[ix as usize];
            if work.state == NodeState::Waiting && work.deps_left == 0 {
                self.make_ready(ix);
            }
        }
    }

    /// Replaces the ranks, in index order; only before the first start.
    pub(super) fn set_ranks(&mut self, ranks: &[Millis]) {
        let ready: Vec<u32> =
            self.classes.iter().flat_map(|c| c.ready.iter().map(|k| k.2)).collect();
        for &ix in &ready {
            self.leave_ready(ix);
        }
        for (work, &rank) in self.nodes.iter_mut().zip(ranks) {
            work.rank = rank;
        }
        for ix in ready {
            self.make_ready(ix);
        }
    }

    /// Nothing is known against any pool.
    pub(super) fn pools_are_fresh(&self) -> bool {
        self.pools.iter().all(|p| p.paused.is_none() && p.settled.is_none())
    }

    /// Follows a guide: `order` are its nodes, first to last.
    pub(super) fn follow(&mut self, guide: Arc<Guide>, order: &[usize]) {
        let mut ranks = vec![0; self.nodes.len()];
        for (place, &ix) in order.iter().rev().enumerate() {
            ranks[ix] = Millis::try_from(place).unwrap_or(Millis::MAX) + 1;
        }
        self.guide = Some(guide);
        self.set_ranks(&ranks);
    }

    /// The world is not as expected: back to the pass.
    pub(super) fn leave_guide(&mut self) {
        self.guide_wake = None;
        if let Some(guide) = self.guide.take() {
            self.set_ranks(&guide.ranks);
        }
    }

    /// Expected milliseconds of a node on a pool, corrected by what its attempts took here.
    pub(super) fn expected(&self, node: usize, pool: usize) -> Millis {
        self.pace[pool].apply(self.declared(node, pool))
    }

    /// The same, as it was expected at the beginning.
    pub(super) fn declared(&self, node: usize, pool: usize) -> Millis {
        let spec = &self.specs[node];
        let state = &self.pools[pool];
        let need = estimate(spec, &state.pool);
        state.service.expect(need.input_tokens, need.output_tokens, spec.service)
    }

    /// Expected milliseconds on its fastest eligible pool.
    pub(super) fn fastest(&self, node: usize) -> Millis {
        let class = &self.classes[self.nodes[node].class];
        class.eligible.iter().map(|&p| self.expected(node, p)).min().unwrap_or(1)
    }

    pub(super) fn node_ix(&self, id: &NodeId) -> Option<u32> {
        let at = self.specs.binary_search_by(|s| s.id.cmp(id)).ok()?;
        u32::try_from(at).ok()
    }

    pub(super) fn pool_ix(&self, id: &PoolId) -> Option<usize> {
        self.pools.binary_search_by(|p| p.pool.id.cmp(id)).ok()
    }

    /// What to do at `now`. Ask again after every start, and whenever something was reported.
    pub fn next(&mut self, now: Millis) -> Decision {
        if self.room.as_ref().is_some_and(|(at, _)| *at != now) {
            self.room = None;
        }
        while let Some(&(at, ix)) = self.delayed.first() {
            if at > now {
                break;
            }
            self.delayed.pop_first();
            self.make_ready(ix);
        }
        if let Some((ix, pool)) = self.pick(now)
            && let Some(start) = self.start(ix, pool, now)
        {
            return start;
        }
        let wait = self.earliest_change(now);
        if self.guide.is_some() && self.running == 0 && wait.is_none() {
            // The guide leads nowhere (a budget, a closed pool): the pass decides.
            self.leave_guide();
            return self.next(now);
        }
        if self.running > 0 {
            return Decision::Wait { until: wait };
        }
        let waiting = !self.delayed.is_empty() || self.classes.iter().any(|c| !c.ready.is_empty());
        match wait {
            _ if !waiting => Decision::Done,
            Some(at) if self.options.deadline.is_none_or(|end| at <= end) => {
                Decision::Wait { until: Some(at) }
            }
            _ => Decision::Wall(self.walls(now)),
        }
    }

    fn start(&mut self, ix: u32, pool: usize, now: Millis) -> Option<Decision> {
        let at = ix as usize;
        let need = estimate(&self.specs[at], &self.pools[pool].pool);
        let meter = self.meter_of[pool];
        let Admission::Granted(reservation) = self.meters.launch(meter, now, need) else {
            return None;
        };
        self.leave_ready(ix);
        let expected_end = now + self.expected(at, pool);
        let probe = self.health[pool].started();
        self.running += 1;
        if let Some((at, mut room)) = self.room.take() {
            for (p, there) in room.iter_mut().enumerate() {
                if *there && self.meter_of[p] == meter {
                    *there = self.has_room(p, now);
                }
            }
            self.room = Some((at, room));
        }
        self.occupy(ix, pool, (now, expected_end), (need, reservation));
        if let Some(running) = self.nodes[at].running.as_mut() {
            running.probe = probe;
        }
        Some(Decision::Start {
            node: self.specs[at].id.clone(),
            pool: self.pools[pool].pool.id.clone(),
        })
    }

    /// A node takes its place on a pool, from a time to its expected end.
    fn occupy(
        &mut self,
        ix: u32,
        pool: usize,
        (started_at, expected_end): (Millis, Millis),
        (need, reservation): (Estimate, Reservation),
    ) {
        let at = ix as usize;
        self.ends[self.meter_of[pool].0].insert((expected_end, ix));
        let booked = budget::expected(&self.pools[pool], need);
        self.take(at, booked);
        let work = &mut self.nodes[at];
        work.state = NodeState::Running;
        work.last_pool = Some(pool);
        work.running = Some(Running {
            pool,
            started_at,
            expected_end,
            reservation: Some(reservation),
            booked,
            probe: false,
            adopted: false,
        });
    }

    /// A node that a job of its own has been working on since `since`, on this pool: it takes its
    /// place in the pool's meter, and its end is [`Self::finished`] like any other. `false` where
    /// node or pool are unknown, or the node is at work or at its end already.
    pub fn adopt(&mut self, node: &NodeId, pool: &PoolId, since: Millis) -> bool {
        let (Some(ix), Some(pool)) = (self.node_ix(node), self.pool_ix(pool)) else { return false };
        let at = ix as usize;
        match self.nodes[at].state {
            NodeState::Ready => self.leave_ready(ix),
            NodeState::Waiting | NodeState::Elsewhere => {}
            _ => return false,
        }
        self.room = None;
        let need = estimate(&self.specs[at], &self.pools[pool].pool);
        let meter = self.meter_of[pool];
        let reservation = self.meters.adopt(meter, since, need);
        let expected_end = since + self.expected(at, pool);
        self.occupy(ix, pool, (since, expected_end), (need, reservation));
        if let Some(running) = self.nodes[at].running.as_mut() {
            running.adopted = true;
        }
        true
    }

    /// Every meter of the set.
    #[must_use]
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// The meter of a pool.
    #[must_use]
    pub fn meter(&self, pool: &PoolId) -> Option<MeterIx> {
        self.pool_ix(pool).map(|ix| self.meter_of[ix])
    }

    /// Where a node stands.
    #[must_use]
    pub fn state(&self, node: &NodeId) -> Option<NodeState> {
        self.node_ix(node).map(|ix| self.nodes[ix as usize].state)
    }

    /// Every node with its state, by id.
    pub fn states(&self) -> impl Iterator<Item = (&NodeId, NodeState)> {
        self.specs.iter().map(|s| &s.id).zip(self.nodes.iter().map(|w| w.state))
    }

    /// Pools of unknown capability: they pass every floor, which is worth saying once.
    pub fn unknown_tier(&self) -> impl Iterator<Item = &PoolId> {
        self.pools.iter().filter(|p| p.pool.tier.is_none()).map(|p| &p.pool.id)
    }

    /// The earliest time at which something may start that cannot start now.
    fn earliest_change(&mut self, now: Millis) -> Option<Millis> {
        let mut best = self.delayed.first().map(|d| d.0).into_iter().chain(self.guide_wake).min();
        for class in 0..self.classes.len() {
            // A window of one kind is fitted first by the smallest request of that kind; where a pool
            // has both, it may be any of them.
            let few = self.classes[class].probes(1);
            let mut many = Vec::new();
            for p in self.classes[class].eligible.clone() {
                let from = match self.health[p].gate(now) {
                    Gate::Open => now,
                    Gate::Until(at) => at,
                    Gate::Probing | Gate::Settled(_) => continue,
                };
                let full = self.meters.free_slots(self.meter_of[p]) == Some(0);
                if full && from == now && self.running > 0 {
                    // The end of a running attempt comes first, and asks again.
                    continue;
                }
                let limits = self.meters.limits(self.meter_of[p]);
                let both = limits.input_tokens_per_minute.is_some()
                    && limits.output_tokens_per_minute.is_some();
                if both && many.is_empty() {
                    many = self.classes[class].probes(SCAN);
                }
                for &ix in if both { &many } else { &few } {
                    let need = estimate(&self.specs[ix as usize], &self.pools[p].pool);
                    if !self.affordable(p, need) {
                        continue;
                    }
                    let at = self.meters.earliest(self.meter_of[p], now, need);
                    if let Some(at) = at.map(|at| at.max(from)).filter(|&at| at > now) {
                        best = Some(best.map_or(at, |b| b.min(at)));
                    }
                }
            }
        }
        best
    }

    /// Every node that waits for a pool, with its own cause.
    pub fn walls(&mut self, now: Millis) -> Vec<NodeWall> {
        let waiting: Vec<u32> = (0u32..)
            .zip(&self.nodes)
            .filter(|(_, w)| matches!(w.state, NodeState::Ready | NodeState::Delayed(_)))
            .map(|(ix, _)| ix)
            .collect();
        waiting.into_iter().map(|ix| self.wall_of(ix as usize, now)).collect()
    }
}

/// Books what earlier jobs used; entries of pools on one meter in the order of time.
fn remember(meters: &mut Meters, pools: &[PoolState], meter_of: &[MeterIx]) {
    let mut used: Vec<_> = pools
        .iter()
        .zip(meter_of)
        .flat_map(|(state, meter)| state.used.iter().map(move |(at, usage)| (*at, *meter, usage)))
        .collect();
    used.sort_by_key(|(at, meter, _)| (*at, *meter));
    for (at, meter, usage) in used {
        meters.remember(meter, at, usage);
    }
}

pub(super) fn gate_open(health: &Health, now: Millis) -> bool {
    health.gate(now) == Gate::Open
}

/// Expected and real milliseconds of a pool's attempts, older ones counting less.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    expected: f64,
    real: f64,
}

impl Pace {
    const KEPT: f64 = 0.9;
    /// The expectation counts like so many milliseconds of work: a few attempts.
    const PRIOR: f64 = 120_000.0;
    /// Less than this share is no news.
    const NEWS: f64 = 0.05;

    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub(super) fn add(&mut self, expected: Millis, real: Millis) {
        if real > 0 {
            self.expected = self.expected * Self::KEPT + expected as f64;
            self.real = self.real * Self::KEPT + real as f64;
        }
    }

    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "an estimate")]
    fn apply(self, expected: Millis) -> Millis {
        let slower = (self.real + Self::PRIOR) / (self.expected + Self::PRIOR);
        if (slower - 1.0).abs() < Self::NEWS {
            return expected;
        }
        ((expected as f64 * slower) as Millis).max(1)
    }
}

impl Work {
    pub(super) fn is_shut(&self, pool: usize) -> bool {
        self.shut.contains(&pool)
    }
}
