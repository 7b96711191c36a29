//! Simulated annealing on (pool, order), aimed at the chain of nodes that makes the end late.

use super::super::Millis;
use super::super::simulate::Trace;
use super::line::{Line, NOBODY};
use super::model::Model;

/// Schedules within this factor of the lower bound are good enough.
const GOOD_ENOUGH: f64 = 1.002;
/// First temperature as a share of the makespan.
const WARM: f64 = 0.02;
/// What the mean end counts beside the makespan.
const MEAN: f64 = 0.02;

/// A schedule to begin with.
pub(super) struct Plan {
    pub(super) makespan: Millis,
    pub(super) done: Vec<bool>,
    pool: Vec<usize>,
    start: Vec<Millis>,
}

impl Plan {
    /// Times from `begin` on.
    pub(super) fn of_trace(trace: &Trace, done: Vec<bool>, begin: Millis) -> Self {
        let (mut pool, mut start) = (vec![0; done.len()], vec![0; done.len()]);
        for entry in &trace.entries {
            pool[entry.node] = entry.pool;
            start[entry.node] = entry.start - begin;
        }
        Self { makespan: trace.makespan, done, pool, start }
    }
}

/// What the search found: a pool and a start per node, and the nodes in the order of their starts.
pub(super) struct Found {
    pub(super) pool: Vec<usize>,
    pub(super) start: Vec<Millis>,
    pub(super) order: Vec<usize>,
    makespan: Millis,
}

impl Found {
    /// The same as a schedule to begin with.
    pub(super) fn plan(&self, done: Vec<bool>) -> Plan {
        let (pool, start) = (self.pool.clone(), self.start.clone());
        Plan { makespan: self.makespan, done, pool, start }
    }
}

/// xorshift64* (Vigna 2016): small, seeded, good enough for a search.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, n: usize) -> usize {
        ((self.next() >> 33) % n.max(1) as u64) as usize
    }
    fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let value = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        value
    }
}

/// Every node's pool and place, and how the last change is undone.
struct Order<'a> {
    model: &'a Model,
    nodes: Vec<u32>,
    /// Place in `nodes`, by node.
    place: Vec<usize>,
    choice: Vec<u32>,
    shifts: Vec<(usize, usize)>,
    choices: Vec<(usize, u32)>,
    /// Nothing before this place has changed.
    from: usize,
}

impl Order<'_> {
    fn shift(&mut self, from: usize, to: usize) {
        let (low, high) = (from.min(to), from.max(to));
        if from < to {
            self.nodes[low..=high].rotate_left(1);
        } else {
            self.nodes[low..=high].rotate_right(1);
        }
        for at in low..=high {
            self.place[self.nodes[at] as usize] = at;
        }
    }

    /// Moves a node to another place.
    fn move_to(&mut self, node: usize, to: usize) {
        let from = self.place[node];
        if from != to {
            self.shift(from, to);
            self.shifts.push((from, to));
            self.from = self.from.min(from.min(to));
        }
    }

    fn choose(&mut self, node: usize, choice: u32) {
        if self.choice[node] != choice {
            self.choices.push((node, self.choice[node]));
            self.choice[node] = choice;
            self.from = self.from.min(self.place[node]);
        }
    }

    fn begin(&mut self) {
        self.shifts.clear();
        self.choices.clear();
        self.from = usize::MAX;
    }

    fn undo(&mut self) {
        while let Some((from, to)) = self.shifts.pop() {
            self.shift(to, from);
        }
        while let Some((node, choice)) = self.choices.pop() {
            self.choice[node] = choice;
        }
    }

    /// The places between its dependencies and its dependents.
    fn range(&self, node: usize) -> (usize, usize) {
        let before = self.model.dependencies[node].iter().map(|&d| self.place[d as usize] + 1);
        let after = self.model.dependents[node].iter().map(|&d| self.place[d as usize] - 1);
        (before.max().unwrap_or(0), after.min().unwrap_or(self.nodes.len() - 1))
    }

    fn pool(&self, node: usize) -> usize {
        self.model.options[node][self.choice[node] as usize].pool
    }

    fn meter(&self, node: usize) -> usize {
        self.model.options[node][self.choice[node] as usize].meter
    }

    fn on(&self, node: usize, pool: usize) -> Option<u32> {
        let at = self.model.options[node].iter().position(|o| o.pool == pool)?;
        u32::try_from(at).ok()
    }

    /// Another pool; the first options are the ones that the whole can best afford.
    fn other(&self, node: usize, rng: &mut Rng) -> Option<u32> {
        let count = self.model.options[node].len();
        if count < 2 {
            return None;
        }
        let mut step = rng.below(count - 1);
        if rng.below(2) == 0 {
            step = step.min(rng.below(count - 1));
        }
        let at = if step >= self.choice[node] as usize { step + 1 } else { step };
        u32::try_from(at).ok()
    }

    /// Change places and pools.
    fn swap(&mut self, a: usize, b: usize) {
        let (a, b) = if self.place[a] < self.place[b] { (a, b) } else { (b, a) };
        let (Some(for_a), Some(for_b)) = (self.on(a, self.pool(b)), self.on(b, self.pool(a)))
        else {
            return;
        };
        let (first, last) = (self.place[a], self.place[b]);
        if self.range(a).1 < last || self.range(b).0 > first {
            return;
        }
        self.move_to(b, first);
        self.move_to(a, last);
        self.choose(a, for_a);
        self.choose(b, for_b);
    }
}

/// The schedule that the search stands on.
#[derive(Default, Clone)]
struct Current {
    makespan: Millis,
    sum: Millis,
    start: Vec<Millis>,
    end: Vec<Millis>,
    cause: Vec<u32>,
}

impl Current {
    /// Takes over what was placed from `from` on.
    fn take(&mut self, line: &Line<'_>, nodes: &[u32]) {
        (self.makespan, self.sum) = (line.makespan, line.sum);
        for &node in nodes {
            let at = node as usize;
            self.start[at] = line.start[at];
            self.end[at] = line.end[at];
            self.cause[at] = line.cause[at];
        }
    }

    /// From the node that ends last back to the beginning: who let whom start.
    fn chain(&self, nodes: &[u32], chain: &mut Vec<usize>) {
        chain.clear();
        let mut at = nodes.iter().map(|&i| i as usize).max_by_key(|&i| self.end[i]);
        while let Some(i) = at {
            chain.push(i);
            at = Some(self.cause[i]).filter(|&cause| cause != NOBODY).map(|cause| cause as usize);
        }
    }
}

/// Improves a plan within `budget` node placements; `None` when the pass is as good.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a temperature of milliseconds"
)]
pub(super) fn improve(
    model: &Model,
    first: &Plan,
    floor: Millis,
    budget: usize,
    seed: u64,
) -> Option<Found> {
    let n = model.options.len();
    let mut nodes: Vec<u32> =
        (0u32..).take(n).filter(|&i| !model.options[i as usize].is_empty()).collect();
    let count = nodes.len();
    let target = (floor as f64 * GOOD_ENOUGH) as Millis;
    if count < 2 || first.makespan <= target {
        return None;
    }
    nodes.sort_by_key(|&i| (first.start[i as usize], i));
    let mut order = Order {
        model,
        place: vec![0; n],
        choice: vec![0; n],
        nodes,
        shifts: Vec::new(),
        choices: Vec::new(),
        from: 0,
    };
    for (place, &node) in order.nodes.iter().enumerate() {
        order.place[node as usize] = place;
    }
    for node in 0..n {
        order.choice[node] = order.on(node, first.pool[node]).unwrap_or(0);
    }
    let mut line = Line::new(model);
    let mut spent = 0usize;
    for &node in &order.nodes {
        line.place(node, order.choice[node as usize], Millis::MAX / 2);
    }
    let mut current = Current {
        makespan: line.makespan,
        sum: line.sum,
        start: line.start.clone(),
        end: line.end.clone(),
        cause: line.cause.clone(),
    };
    let mut best = (current.makespan, order.choice.clone(), current.start.clone());
    let mut rng = Rng(seed);
    let mut chain = Vec::with_capacity(count);
    current.chain(&order.nodes, &mut chain);
    let mut accepted = 0;
    while spent < budget && best.0 > target {
        // A change that comes to nothing costs something too.
        spent += 1;
        order.begin();
        mutate(&mut order, &chain, &current, &mut rng);
        if order.from >= count {
            continue;
        }
        let left = 1.0 - spent as f64 / budget as f64;
        let heat = WARM * best.0 as f64 * left * left;
        // The chance is drawn first, so that a hopeless schedule need not be finished.
        let bearable = -heat * rng.unit().max(1e-12).ln();
        let limit = (current.makespan as f64 * 1.005 + bearable) as Millis;
        // What was tried last is in the line from where it differed on.
        let kept = order.from.min(line.len());
        line.back_to(kept);
        let mut whole = true;
        for at in kept..count {
            let node = order.nodes[at];
            spent += 1;
            let limit = if at < order.from { Millis::MAX / 2 } else { limit };
            if !line.place(node, order.choice[node as usize], limit) {
                whole = false;
                break;
            }
        }
        let worse = (line.makespan - current.makespan) as f64
            + MEAN * (line.sum - current.sum) as f64 / count as f64;
        if whole && worse <= bearable {
            current.take(&line, &order.nodes[order.from..]);
            accepted += 1;
            if current.makespan < best.0 {
                best.0 = current.makespan;
                best.1.clone_from(&order.choice);
                best.2.clone_from(&current.start);
            }
            if accepted % 8 == 0 {
                let from = by_start(&mut order, &current.start);
                line.back_to(from);
            }
            current.chain(&order.nodes, &mut chain);
        } else {
            line.back_to(order.from);
            order.undo();
        }
    }
    if best.0 >= first.makespan {
        return None;
    }
    let (makespan, choice, start) = best;
    let mut order: Vec<usize> = order.nodes.iter().map(|&i| i as usize).collect();
    order.sort_by_key(|&i| (start[i], i));
    let pool = (0..n)
        .map(|i| model.options[i].get(choice[i] as usize).map_or(usize::MAX, |o| o.pool))
        .collect();
    Some(Found { pool, start, order, makespan })
}

/// Puts the nodes in the order of their starts again; the first place that changed.
fn by_start(order: &mut Order<'_>, start: &[Millis]) -> usize {
    let mut from = order.nodes.len();
    for at in 1..order.nodes.len() {
        let node = order.nodes[at];
        let mut to = at;
        while to > 0 && start[order.nodes[to - 1] as usize] > start[node as usize] {
            order.nodes[to] = order.nodes[to - 1];
            order.place[order.nodes[to] as usize] = to;
            to -= 1;
        }
        if to < at {
            order.nodes[to] = node;
            order.place[node as usize] = to;
            from = from.min(to);
        }
    }
    from
}

fn mutate(order: &mut Order<'_>, chain: &[usize], now: &Current, rng: &mut Rng) {
    let any = |rng: &mut Rng, order: &Order<'_>| order.nodes[rng.below(order.nodes.len())] as usize;
    let c = if rng.below(8) == 0 { any(rng, order) } else { chain[rng.below(chain.len())] };
    match rng.below(12) {
        // Another pool, perhaps earlier in the order too.
        0..=3 if order.model.options[c].len() > 1 => {
            if let Some(choice) = order.other(c, rng) {
                order.choose(c, choice);
                if rng.below(3) == 0 {
                    let (low, high) = order.range(c);
                    order.move_to(c, low + rng.below(high + 1 - low));
                }
            }
        }
        // Change places and pools with another node.
        4 | 5 => {
            let x = any(rng, order);
            if x != c {
                order.swap(c, x);
            }
        }
        // Before the one that it waits for on its meter, or that one elsewhere.
        6 | 7 => {
            let x = match now.cause[c] {
                NOBODY => any(rng, order),
                cause => cause as usize,
            };
            if x == c || order.meter(x) != order.meter(c) {
                return;
            }
            match rng.below(3) {
                0 => {
                    if let Some(choice) = order.other(x, rng) {
                        order.choose(x, choice);
                    }
                }
                1 => {
                    let (low, high) = order.range(x);
                    let to = order.place[c];
                    if to <= high && to >= low {
                        order.move_to(x, to);
                    }
                }
                _ => {
                    let (low, high) = order.range(c);
                    let to = order.place[x];
                    if to <= high && to >= low {
                        order.move_to(c, to);
                    }
                }
            }
        }
        // Move another node of its meter out of the way of the chain.
        8 | 9 => {
            let x = any(rng, order);
            if x != c && order.meter(x) == order.meter(c) && now.start[x] <= now.start[c] {
                if rng.below(2) == 0
                    && let Some(choice) = order.other(x, rng)
                {
                    order.choose(x, choice);
                } else {
                    let (_, high) = order.range(x);
                    let to = order.place[c].min(high);
                    order.move_to(x, to.max(order.place[x]));
                }
            }
        }
        // Anywhere that its dependencies and dependents leave.
        _ => {
            let (low, high) = order.range(c);
            order.move_to(c, low + rng.below(high + 1 - low));
            if rng.below(4) == 0
                && let Some(choice) = order.other(c, rng)
            {
                order.choose(c, choice);
            }
        }
    }
}
