//! What a pool and a place in the order for every node come to.
//!
//! Nodes are placed one after the other, each at its earliest time not before the last start on its
//! meter. Any schedule, taken in the order of its starts, is met or beaten so: the best order gives
//! the best schedule. What was placed last can be taken back, so that a change late in the order
//! costs only what comes after it.

use super::super::Millis;
use super::model::{MeterLimits, Model, Place};

const MINUTE: Millis = 60_000;
const DAY: Millis = 24 * 60 * MINUTE;

/// In the place of a node: none.
pub(super) const NOBODY: u32 = u32::MAX;

/// Starts on one meter so far, and who holds its slots until when.
#[derive(Default)]
struct Meter {
    starts: Vec<Millis>,
    nodes: Vec<u32>,
    /// Tokens of all starts before each, and of all.
    input: Vec<u64>,
    output: Vec<u64>,
    slots: Vec<(Millis, u32)>,
}

/// What placing a node changed, for taking it back.
struct Step {
    meter: usize,
    slot: usize,
    held: (Millis, u32),
    /// Before it: the latest end, and the sum of all ends.
    makespan: Millis,
    sum: Millis,
}

/// A schedule in the making.
pub(super) struct Line<'a> {
    model: &'a Model,
    meters: Vec<Meter>,
    steps: Vec<Step>,
    /// The latest end.
    pub(super) makespan: Millis,
    /// Sum of all ends: the tie-breaker that lets a search move over plateaus.
    pub(super) sum: Millis,
    /// By node; what is not placed has old values.
    pub(super) start: Vec<Millis>,
    pub(super) end: Vec<Millis>,
    /// The node whose end (or start, here or a window ago) let it start.
    pub(super) cause: Vec<u32>,
}

/// The last of `count` entries that must have left a window before `need` fits beside those after
/// it; `sum(k)` is that of the first `k`.
fn leaver(count: usize, sum: impl Fn(usize) -> u64, limit: u64, need: u64) -> Option<usize> {
    let most = limit.saturating_sub(need);
    let mut at = count;
    while at > 0 && sum(count) - sum(at - 1) <= most {
        at -= 1;
    }
    at.checked_sub(1)
}

impl Meter {
    fn windows(&self, limits: &MeterLimits, place: &Place) -> (Millis, u32) {
        let mut when = match self.starts.last() {
            Some(&last) => (last, self.nodes[self.nodes.len() - 1]),
            None => return (0, NOBODY),
        };
        let mut behind = |at: usize, span: Millis| {
            let free = self.starts[at] + span;
            if free > when.0 {
                when = (free, self.nodes[at]);
            }
        };
        let count = self.starts.len();
        for (limit, span) in [(limits.requests, MINUTE), (limits.requests_a_day, DAY)] {
            if let Some(at) = limit.and_then(|l| count.checked_sub(l as usize)) {
                behind(at, span);
            }
        }
        let (input, output) = (place.need.input_tokens, place.need.output_tokens);
        if let Some(limit) = limits.input.filter(|_| input > 0)
            && let Some(at) = leaver(count, |k| self.input[k], limit, input)
        {
            behind(at, MINUTE);
        }
        if let Some(limit) = limits.output.filter(|_| output > 0)
            && let Some(at) = leaver(count, |k| self.output[k], limit, output)
        {
            behind(at, MINUTE);
        }
        if let Some(limit) = limits.tokens_a_day {
            let both = |k: usize| self.input[k].saturating_add(self.output[k]);
            if let Some(at) = leaver(count, both, limit, input.saturating_add(output)) {
                behind(at, DAY);
            }
        }
        when
    }
}

impl<'a> Line<'a> {
    pub(super) fn new(model: &'a Model) -> Self {
        let n = model.options.len();
        let meters = model.meters.iter().map(|limits| {
            // More slots than nodes are no limit.
            let slots = limits.slots.map_or(0, |s| s as usize);
            let slots = if slots < n { slots } else { 0 };
            Meter {
                slots: vec![(0, NOBODY); slots],
                input: vec![0],
                output: vec![0],
                ..Meter::default()
            }
        });
        Self {
            model,
            meters: meters.collect(),
            steps: Vec::with_capacity(n),
            makespan: 0,
            sum: 0,
            start: vec![0; n],
            end: vec![0; n],
            cause: vec![NOBODY; n],
        }
    }

    /// Nodes placed.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Places the next node; `false`, and nothing is changed, when the end cannot lie within `limit`.
    pub(super) fn place(&mut self, node: u32, choice: u32, limit: Millis) -> bool {
        let model = self.model;
        let at = node as usize;
        let place = &model.options[at][choice as usize];
        let limits = &model.meters[place.meter];
        let meter = &mut self.meters[place.meter];
        let (mut start, mut cause) = meter.windows(limits, place);
        for &before in &model.dependencies[at] {
            let end = self.end[before as usize];
            if end > start || (end == start && cause != NOBODY) {
                (start, cause) = (end, before);
            }
        }
        let mut slot = 0;
        for (ix, held) in meter.slots.iter().enumerate().skip(1) {
            if held.0 < meter.slots[slot].0 {
                slot = ix;
            }
        }
        let held = meter.slots.get(slot).copied().unwrap_or((0, NOBODY));
        if held.0 > start {
            (start, cause) = held;
        }
        let end = start + place.ms;
        if end + model.tail[at] > limit {
            return false;
        }
        if let Some(held) = meter.slots.get_mut(slot) {
            *held = (end, node);
        }
        meter.starts.push(start);
        meter.nodes.push(node);
        let sum = |sums: &mut Vec<u64>, more: u64| {
            sums.push(sums.last().copied().unwrap_or(0).saturating_add(more));
        };
        sum(&mut meter.input, place.need.input_tokens);
        sum(&mut meter.output, place.need.output_tokens);
        let (makespan, total) = (self.makespan, self.sum);
        self.steps.push(Step { meter: place.meter, slot, held, makespan, sum: total });
        self.start[at] = start;
        self.end[at] = end;
        self.cause[at] = cause;
        self.makespan = makespan.max(end);
        self.sum = total + end;
        true
    }

    /// Takes back all but the first `len` nodes.
    pub(super) fn back_to(&mut self, len: usize) {
        while self.steps.len() > len {
            let Some(step) = self.steps.pop() else { return };
            let meter = &mut self.meters[step.meter];
            meter.starts.pop();
            meter.nodes.pop();
            meter.input.pop();
            meter.output.pop();
            if let Some(held) = meter.slots.get_mut(step.slot) {
                *held = step.held;
            }
            self.makespan = step.makespan;
            self.sum = step.sum;
        }
    }
}
