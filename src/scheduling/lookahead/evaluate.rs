//! A flat copy of the problem, and what a pool and a place in the order for every node come to.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::super::scheduler::Scheduler;
use super::super::select::estimate;
use super::super::{Estimate, Millis, NodeState};

const MINUTE: Millis = 60_000;

/// One pool for one node.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) pool: usize,
    pub(super) meter: usize,
    pub(super) ms: Millis,
    pub(super) need: Estimate,
}

struct MeterLimits {
    slots: Option<u32>,
    requests: Option<u32>,
    input: Option<u64>,
    output: Option<u64>,
}

/// The problem. Nodes outside of it (final, or fitting nowhere) have no option.
pub(super) struct Model {
    pub(super) options: Vec<Vec<Place>>,
    dependents: Vec<Vec<u32>>,
    dependencies: Vec<u32>,
    meters: Vec<MeterLimits>,
    /// Longest path after each node, on the fastest pools.
    tail: Vec<Millis>,
}

/// A schedule, by node.
#[derive(Debug, Clone, Default)]
pub(super) struct Schedule {
    pub(super) makespan: Millis,
    /// Sum of all ends: the tie-breaker that lets the search move over plateaus.
    pub(super) sum: Millis,
    pub(super) start: Vec<Millis>,
    pub(super) end: Vec<Millis>,
    /// The node whose end (or start, a window ago) let it start.
    pub(super) cause: Vec<u32>,
}

pub(super) const NOBODY: u32 = u32::MAX;

impl Model {
    /// `surplus(node, at)`: what the `at`-th pool of its class costs the whole more than its best;
    /// options come in this order.
    pub(super) fn new(
        scheduler: &Scheduler,
        done: &[bool],
        surplus: impl Fn(usize, usize) -> f64,
    ) -> Self {
        let n = scheduler.specs.len();
        let inside = |i: usize| done[i] && scheduler.nodes[i].state != NodeState::Done;
        let mut options = Vec::with_capacity(n);
        let mut dependents = vec![Vec::new(); n];
        let mut dependencies = vec![0; n];
        for (i, dependents) in dependents.iter_mut().enumerate() {
            let class = &scheduler.classes[scheduler.nodes[i].class];
            let list = class.eligible.iter().filter(|_| inside(i)).map(|&pool| Place {
                pool,
                meter: scheduler.meter_of[pool].0,
                ms: scheduler.expected(i, pool),
                need: estimate(&scheduler.specs[i], &scheduler.pools[pool].pool),
            });
            let mut list: Vec<(f64, Place)> =
                list.enumerate().map(|(at, place)| (surplus(i, at), place)).collect();
            list.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.ms.cmp(&b.1.ms)));
            options.push(list.into_iter().map(|(_, place)| place).collect::<Vec<Place>>());
            for edge in &scheduler.graph.dependents[i] {
                if inside(i) && inside(edge.to as usize) {
                    dependents.push(edge.to);
                    dependencies[edge.to as usize] += 1;
                }
            }
        }
        let meters = (0..scheduler.meters.len())
            .map(|m| {
                let limits = scheduler.meters.limits(super::super::meter::MeterIx(m));
                MeterLimits {
                    slots: limits.concurrent,
                    requests: limits.requests_per_minute,
                    input: limits.input_tokens_per_minute,
                    output: limits.output_tokens_per_minute,
                }
            })
            .collect();
        let mut tail = vec![0; n];
        for &ix in scheduler.graph.order.iter().rev() {
            let i = ix as usize;
            tail[i] = dependents[i]
                .iter()
                .map(|&to| {
                    let fastest = options[to as usize].iter().map(|o| o.ms).min().unwrap_or(0);
                    tail[to as usize] + fastest
                })
                .max()
                .unwrap_or(0);
        }
        Self { options, dependents, dependencies, meters, tail }
    }
}

/// Memory of [`evaluate`], kept between calls.
#[derive(Default)]
pub(super) struct Scratch {
    meters: Vec<MeterState>,
    waiting: Vec<u32>,
    /// (time, node or [`NOBODY`], meter to look at)
    events: BinaryHeap<Reverse<(Millis, u32, u32)>>,
    touched: Vec<usize>,
}

#[derive(Default)]
struct MeterState {
    free: u32,
    ready: BinaryHeap<Reverse<(u64, u32)>>,
    recent: VecDeque<(Millis, u64, u64, u32)>,
    input: u64,
    output: u64,
    woken_for: Millis,
}

impl MeterState {
    /// When the next request fits, and whose departure from the window makes it fit.
    fn fits_at(&mut self, limits: &MeterLimits, need: Estimate, now: Millis) -> (Millis, u32) {
        while let Some(&(at, input, output, _)) = self.recent.front() {
            if at + MINUTE > now {
                break;
            }
            self.input -= input;
            self.output -= output;
            self.recent.pop_front();
        }
        let (mut input, mut output) = (self.input, self.output);
        let mut left = self.recent.len();
        let mut when = (now, NOBODY);
        let mut gone = self.recent.iter();
        loop {
            let over = limits.requests.is_some_and(|l| left >= l as usize)
                || limits.input.is_some_and(|l| input + need.input_tokens > l)
                || limits.output.is_some_and(|l| output + need.output_tokens > l);
            if !over {
                return when;
            }
            let Some(&(at, i, o, node)) = gone.next() else { return when };
            left -= 1;
            input -= i;
            output -= o;
            when = (at + MINUTE, node);
        }
    }
}

/// Runs the plan: `choice` is an index into each node's options, `key` orders (smallest first).
/// Within a meter the order is strict: nobody overtakes a ready node that waits for a window.
/// Gives up (`false`) as soon as the end cannot lie within `limit`.
pub(super) fn evaluate(
    model: &Model,
    choice: &[u32],
    key: &[u64],
    limit: Millis,
    scratch: &mut Scratch,
    out: &mut Schedule,
) -> bool {
    let n = model.options.len();
    let Scratch { meters, waiting, events, touched } = scratch;
    meters.resize_with(model.meters.len(), MeterState::default);
    for (state, limits) in meters.iter_mut().zip(&model.meters) {
        state.free = limits.slots.unwrap_or(u32::MAX);
        state.ready.clear();
        state.recent.clear();
        state.input = 0;
        state.output = 0;
        state.woken_for = -1;
    }
    waiting.clone_from(&model.dependencies);
    events.clear();
    out.start.clear();
    out.start.resize(n, 0);
    out.end.clear();
    out.end.resize(n, 0);
    out.cause.clear();
    out.cause.resize(n, NOBODY);
    out.makespan = 0;
    out.sum = 0;
    let option = |node: usize| model.options[node][choice[node] as usize];
    for node in 0..n {
        if !model.options[node].is_empty() && waiting[node] == 0 {
            #[expect(clippy::cast_possible_truncation, reason = "at most NODES_MAX")]
            meters[option(node).meter].ready.push(Reverse((key[node], node as u32)));
        }
    }
    let (mut now, mut causer) = (0, NOBODY);
    touched.clear();
    touched.extend(0..meters.len());
    loop {
        for &m in touched.iter() {
            #[expect(clippy::cast_possible_truncation, reason = "a count of pools")]
            let meter = m as u32;
            let limits = &model.meters[m];
            let state = &mut meters[m];
            while state.free > 0 {
                let Some(&Reverse((_, node))) = state.ready.peek() else { break };
                let o = option(node as usize);
                let (at, blocker) = state.fits_at(limits, o.need, now);
                if at > now {
                    if state.woken_for != at {
                        state.woken_for = at;
                        out.cause[node as usize] = blocker;
                        events.push(Reverse((at, NOBODY, meter)));
                    }
                    break;
                }
                state.ready.pop();
                if limits.slots.is_some() {
                    state.free -= 1;
                }
                state.recent.push_back((now, o.need.input_tokens, o.need.output_tokens, node));
                state.input += o.need.input_tokens;
                state.output += o.need.output_tokens;
                let i = node as usize;
                if now + o.ms + model.tail[i] > limit {
                    return false;
                }
                out.start[i] = now;
                out.end[i] = now + o.ms;
                if causer != NOBODY {
                    out.cause[i] = causer;
                }
                out.makespan = out.makespan.max(now + o.ms);
                out.sum += now + o.ms;
                events.push(Reverse((now + o.ms, node, meter)));
            }
        }
        touched.clear();
        let Some(&Reverse((at, ..))) = events.peek() else { return true };
        now = at;
        causer = NOBODY;
        while let Some(&Reverse((at, node, meter))) = events.peek() {
            if at > now {
                break;
            }
            events.pop();
            let meter = meter as usize;
            touched.push(meter);
            if node == NOBODY {
                continue;
            }
            causer = node;
            if model.meters[meter].slots.is_some() {
                meters[meter].free += 1;
            }
            for &to in &model.dependents[node as usize] {
                let left = &mut waiting[to as usize];
                *left -= 1;
                if *left == 0 {
                    let m = option(to as usize).meter;
                    meters[m].ready.push(Reverse((key[to as usize], to)));
                    touched.push(m);
                }
            }
        }
        touched.sort_unstable();
        touched.dedup();
    }
}
