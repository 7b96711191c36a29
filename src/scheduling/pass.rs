//! One pass of the selection: which ready node starts now, and where.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::health::Gate;
use super::meter::Ahead;
use super::scheduler::{Class, Key, Running, Scheduler, gate_open};
use super::select::{self, Candidate, estimate};
use super::{Estimate, Millis, NodeState};

/// Nodes of one class looked at before only its smallest requests are tried.
pub(super) const SCAN: usize = 64;
/// Nodes that may hold a place on a busy pool in one pass; beyond, the queue is so long that an
/// idle pool is never the slower choice.
const HOLDS: usize = 128;
/// A guide is left when an attempt takes so many times longer or shorter than it was expected to.
pub(super) const ASTRAY: Millis = 2;
/// An attempt that is overdue is expected to end this much later at least, milliseconds.
const OVERDUE: Millis = 1_000;

/// When an attempt is expected to end that was to end at `end`: after a moment, or once it has been
/// late for as long again.
fn still(end: Millis, now: Millis) -> Millis {
    end.max(now).saturating_add(OVERDUE.max(now - end))
}

/// Node order across classes: longest remaining path, scarcity, severity, id.
fn rank(
    key: &Key,
    class: &Class,
) -> (Reverse<Millis>, usize, Reverse<crate::model::Severity>, u32) {
    (key.0, class.eligible.len(), key.1, key.2)
}

/// Slots of a meter as the pass fills them in advance.
struct Slots {
    free: Option<u32>,
    ends: BinaryHeap<Reverse<Millis>>,
    ahead: Ahead,
}

impl Slots {
    fn from(&self, now: Millis) -> Option<Millis> {
        match self.free {
            None => Some(now),
            Some(0) => self.ends.peek().map(|end| end.0),
            Some(_) => Some(now),
        }
    }

    fn take(&mut self, end: Millis, need: Estimate) {
        if let Some(free) = &mut self.free {
            if *free > 0 {
                *free -= 1;
            } else {
                self.ends.pop();
            }
            self.ends.push(Reverse(end));
        }
        self.ahead.requests += 1;
        self.ahead.input = self.ahead.input.saturating_add(need.input_tokens);
        self.ahead.output = self.ahead.output.saturating_add(need.output_tokens);
    }
}

impl Scheduler {
    /// The node to start now and its pool.
    pub(super) fn pick(&mut self, now: Millis) -> Option<(u32, usize)> {
        let open = match self.room.take() {
            Some((at, open)) if at == now => open,
            _ => (0..self.pools.len()).map(|p| self.has_room(p, now)).collect(),
        };
        let picked = self.pick_among(now, &open);
        self.room = Some((now, open));
        picked
    }

    fn pick_among(&mut self, now: Millis, open: &[bool]) -> Option<(u32, usize)> {
        if self.guide.is_some() && self.late(now).is_some_and(|at| at <= now) {
            self.leave_guide();
        }
        if self.guide.is_some() {
            return self.pick_guided(now, open);
        }
        if !open.contains(&true) {
            return None;
        }
        if self.options.dial > 0.5 {
            self.pick_patient(now, open)
        } else {
            self.pick_eager(now, open)
        }
    }

    /// By the guide: in its order, each node on its pool. Within a meter nobody overtakes a node
    /// that is ready, nor, before the time that the guide expects, one that is not.
    fn pick_guided(&mut self, now: Millis, open: &[bool]) -> Option<(u32, usize)> {
        let guide = std::sync::Arc::clone(self.guide.as_ref()?);
        let mut ready: Vec<Key> =
            self.classes.iter().flat_map(|c| c.ready.iter().copied()).collect();
        ready.sort_unstable();
        self.guide_wake = None;
        let mut blocked = vec![false; self.meters.len()];
        for key in ready {
            let pool = guide.pool[key.2 as usize];
            let Some(&meter) = self.meter_of.get(pool) else { continue };
            if blocked[meter.0] {
                continue;
            }
            let need = estimate(&self.specs[key.2 as usize], &self.pools[pool].pool);
            blocked[meter.0] = true;
            let planned = self.options.start.saturating_add(guide.start[key.2 as usize]);
            if planned > now && self.next_in_line(&guide.line[meter.0]) != Some(key.2) {
                self.guide_wake = Some(self.guide_wake.map_or(planned, |w| w.min(planned)));
                continue;
            }
            if !self.affordable(key.2 as usize, pool) {
                continue;
            }
            match self.meters.earliest(meter, now, need) {
                Some(at) if at > now => {
                    self.guide_wake = Some(self.guide_wake.map_or(at, |w| w.min(at)));
                }
                Some(_) if open[pool] => return Some((key.2, pool)),
                _ => {}
            }
        }
        None
    }

    /// When to look again because an attempt has not ended as expected: a node may hold a place on
    /// its pool. The guide is then left; without it the place is expected ever later.
    pub(super) fn late(&self, now: Millis) -> Option<Millis> {
        if self.options.dial <= 0.5 || self.classes.iter().all(|c| c.ready.is_empty()) {
            return None;
        }
        let first = self.ends.iter().filter_map(|ends| ends.first());
        let running = first.filter_map(|&(_, ix)| self.nodes[ix as usize].running.as_ref());
        let late = |running: &Running| {
            let (from, end) = (running.started_at, running.expected_end);
            if self.guide.is_some() {
                from.saturating_add((end - from).saturating_mul(ASTRAY))
            } else {
                still(end, now)
            }
        };
        running.filter(|running| !running.adopted).map(late).min()
    }

    /// The first node of a line that has not started.
    fn next_in_line(&self, line: &[u32]) -> Option<u32> {
        let waits = |ix: &&u32| {
            let state = self.nodes[**ix as usize].state;
            matches!(state, NodeState::Waiting | NodeState::Ready | NodeState::Delayed(_))
        };
        line.iter().find(waits).copied()
    }

    /// Gate open, a slot free, room for one more request.
    pub(super) fn has_room(&mut self, pool: usize, now: Millis) -> bool {
        let meter = self.meter_of[pool];
        gate_open(&self.health[pool], now)
            && self.meters.free_slots(meter) != Some(0)
            && self.meters.earliest(meter, now, Estimate::default()) == Some(now)
    }

    /// Never waits beside an idle pool that fits.
    fn pick_eager(&mut self, now: Millis, open: &[bool]) -> Option<(u32, usize)> {
        let mut best: Option<(_, u32, usize)> = None;
        for class in 0..self.classes.len() {
            let c = &self.classes[class];
            let Some(first) = c.ready.first() else { continue };
            if !c.eligible.iter().any(|&p| open[p])
                || best.as_ref().is_some_and(|(top, ..)| *top <= rank(first, c))
            {
                continue;
            }
            for ix in c.probes(SCAN) {
                if let Some(pool) = self.best_open(ix, now, open) {
                    let c = &self.classes[class];
                    let work = &self.nodes[ix as usize];
                    let key = (Reverse(work.rank), Reverse(self.specs[ix as usize].severity), ix);
                    let r = rank(&key, c);
                    if best.as_ref().is_none_or(|(top, ..)| r < *top) {
                        best = Some((r, ix, pool));
                    }
                    break;
                }
            }
        }
        best.map(|(_, ix, pool)| (ix, pool))
    }

    /// The first pool, by the one order, that takes the node at once.
    fn best_open(&mut self, ix: u32, now: Millis, open: &[bool]) -> Option<usize> {
        let at = ix as usize;
        let class = self.nodes[at].class;
        let mut candidates = Vec::with_capacity(self.classes[class].eligible.len());
        for i in 0..self.classes[class].eligible.len() {
            let p = self.classes[class].eligible[i];
            if !open[p] {
                continue;
            }
            let need = estimate(&self.specs[at], &self.pools[p].pool);
            if self.affordable(at, p)
                && self.meters.earliest(self.meter_of[p], now, need) == Some(now)
            {
                candidates.push(self.candidate(at, p, now, need));
            }
        }
        self.mark_wanted(class, &mut candidates);
        select::order(&mut candidates, self.options.dial, now);
        candidates.first().map(|c| c.pool)
    }

    fn candidate(&self, node: usize, pool: usize, start: Millis, need: Estimate) -> Candidate {
        let state = &self.pools[pool];
        let meter = self.meter_of[pool];
        let in_flight = self.meters.in_flight(meter);
        let slots = self.meters.free_slots(meter).map_or(1_000, |free| free + in_flight).max(1);
        let work = &self.nodes[node];
        Candidate {
            pool,
            start,
            finish: start + self.expected(node, pool),
            handicap: 0,
            cost: select::cost(state, need),
            wanted: false,
            above_floor: select::above_floor(&state.pool, self.classes[work.class].real_floor),
            continuity: self.graph.neighbours[node]
                .iter()
                .any(|&n| self.nodes[n as usize].last_pool == Some(pool)),
            load: in_flight.saturating_mul(1_000) / slots,
        }
    }

    /// Marks pools whose free slots are wanted by nodes that fit nowhere else.
    fn mark_wanted(&self, class: usize, candidates: &mut [Candidate]) {
        if candidates.len() < 2 {
            return;
        }
        for c in candidates {
            let free = self.meters.free_slots(self.meter_of[c.pool]);
            c.wanted = free.is_some_and(|free| {
                self.classes.iter().enumerate().any(|(ix, other)| {
                    ix != class && other.eligible == [c.pool] && other.ready.len() >= free as usize
                })
            });
        }
    }

    /// Earliest end wins: a node may hold a place on a busy, faster pool, and lower nodes see that
    /// place as taken.
    fn pick_patient(&mut self, now: Millis, open: &[bool]) -> Option<(u32, usize)> {
        let mut slots: Vec<Option<Slots>> = (0..self.meters.len()).map(|_| None).collect();
        let mut cursors: Vec<(usize, Option<Key>)> = (0..self.classes.len())
            .map(|c| (c, self.classes[c].ready.first().copied()))
            .filter(|(c, key)| key.is_some() && !self.classes[*c].eligible.is_empty())
            .collect();
        let mut held = 0;
        loop {
            let (at, key) = cursors
                .iter()
                .enumerate()
                .filter_map(|(at, (c, key))| {
                    let usable = held < HOLDS || self.classes[*c].eligible.iter().any(|&p| open[p]);
                    key.filter(|_| usable).map(|k| (at, *c, k))
                })
                .min_by_key(|(_, c, k)| rank(k, &self.classes[*c]))
                .map(|(at, _, k)| (at, k))?;
            let class = cursors[at].0;
            let after = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
            cursors[at].1 = self.classes[class].ready.range(after).next().copied();
            let patient = held < HOLDS;
            let best = self.best_ahead(key.2, now, &mut slots, patient);
            match best {
                Some(c) if c.start <= now => return Some((key.2, c.pool)),
                Some(c) if patient => {
                    let need = estimate(&self.specs[key.2 as usize], &self.pools[c.pool].pool);
                    if let Some(slots) = &mut slots[self.meter_of[c.pool].0] {
                        slots.take(c.finish, need);
                    }
                    held += 1;
                }
                _ => held += 1,
            }
            if held > 2 * HOLDS {
                // Too deep: the rest is decided as if nobody was waiting.
                return self.pick_eager(now, open);
            }
        }
    }

    fn best_ahead(
        &mut self,
        ix: u32,
        now: Millis,
        slots: &mut [Option<Slots>],
        patient: bool,
    ) -> Option<Candidate> {
        let at = ix as usize;
        let class = self.nodes[at].class;
        let mut candidates = Vec::with_capacity(self.classes[class].eligible.len());
        for i in 0..self.classes[class].eligible.len() {
            let p = self.classes[class].eligible[i];
            let gate = match self.health[p].gate(now) {
                Gate::Open => now,
                Gate::Until(until) => until,
                Gate::Probing | Gate::Settled(_) => continue,
            };
            let meter = self.meter_of[p];
            let need = estimate(&self.specs[at], &self.pools[p].pool);
            if !self.affordable(at, p) {
                continue;
            }
            if slots[meter.0].is_none() {
                slots[meter.0] = Some(self.slots(meter.0, now));
            }
            let Some(s) = &slots[meter.0] else { continue };
            let (Some(slot), ahead) = (s.from(now), s.ahead) else { continue };
            let Some(window) = self.meters.earliest_behind(meter, now, need, ahead) else {
                continue;
            };
            let start = gate.max(slot).max(window);
            if patient || start <= now {
                let handicap = self.handicap_of(at, i);
                candidates.push(Candidate { handicap, ..self.candidate(at, p, start, need) });
            }
        }
        self.mark_wanted(class, &mut candidates);
        select::order(&mut candidates, self.options.dial, now);
        let best = *candidates.first()?;
        if best.start > now
            && let Some(idle) = candidates.iter().find(|c| c.start <= now)
        {
            #[expect(clippy::cast_precision_loss, reason = "a comparison of lengths")]
            let (wait, go) = ((best.counted() - now) as f64, (idle.counted() - now) as f64);
            if go <= wait * (1.0 + self.patience) {
                return Some(*idle);
            }
        }
        Some(best)
    }

    /// Of the `at`-th eligible pool. Prices were found for the pools of the beginning: a node whose
    /// class has changed since has none.
    fn handicap_of(&self, node: usize, at: usize) -> Millis {
        let Some((surplus, weight)) = &self.handicap else { return 0 };
        let eligible = &self.classes[self.nodes[node].class].eligible;
        match surplus.get(node) {
            Some(list) if list.len() == eligible.len() => {
                #[expect(clippy::cast_possible_truncation, reason = "clamped")]
                let ms = (list[at] * weight).clamp(0.0, 1.0e12) as Millis;
                ms
            }
            _ => 0,
        }
    }

    fn slots(&self, meter: usize, now: Millis) -> Slots {
        let ix = super::meter::MeterIx(meter);
        let free = self.meters.free_slots(ix);
        let limit = self.meters.limits(ix).concurrent.unwrap_or(u32::MAX);
        // A learned limit may lie below what runs already.
        let over = self.meters.in_flight(ix).saturating_sub(limit) as usize;
        let ends = match free {
            None => BinaryHeap::new(),
            Some(_) => self.ends[meter]
                .iter()
                .skip(over)
                .map(|(end, _)| Reverse(if *end > now { *end } else { still(*end, now) }))
                .collect(),
        };
        Slots { free, ends, ahead: Ahead::default() }
    }
}
