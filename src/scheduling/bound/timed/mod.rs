//! Prices that change over time, for capacities and for dependencies together.
//!
//! Assume that all ends by `T`, and give every capacity a price in every cell of a grid over `[0, T]`.
//! A dependency of `j` on `i` has a price too: a function `M` that never rises, such that `j` pays
//! `M(start of j)` and `i` is paid `M(end of i)`; as `j` starts when `i` is over, the two together
//! never gain. Whatever a schedule does, each node pays at least its cheapest choice of pool and
//! start, and all of them together at most what the capacities are worth. When the cheapest choices
//! cost more than that, nothing ends by `T`. This holds for any prices: the search below only finds
//! good ones (a perceptron: what is violated by the cheapest choices becomes dearer).
//!
//! Against the sums over whole intervals this sees that nodes of several chains cannot all use the
//! fast pool at the time at which each of them would need it.

mod squeeze;

use super::{Ends, Instance};
pub(super) use squeeze::Tighten;

/// Cells of the grid at most, and their share of the work in per cent: prices that hold all the time
/// are soon found, and are where those of finer grids begin.
const LEVELS: [(usize, usize); 3] = [(1, 5), (8, 15), (64, 80)];
/// Cells looked at in all rounds together: a fraction of a second of a release build.
const WORK: usize = if cfg!(debug_assertions) { 1_000_000 } else { 40_000_000 };
/// Rounds at most, on each grid.
const ROUNDS: usize = 2_000;
/// A limit is to be refuted by this share of what the prices are worth.
const MARGIN: f64 = 0.01;
/// Even steps move all prices by one part in so many in the first round.
const EVEN: f64 = 10.0;
/// A violation whose square lies below this is none.
const LEAST: f64 = 1e-9;
/// Prices worth more than this are scaled down.
const LARGE: f64 = 1e12;
const MINUTE: f64 = 60_000.0;

/// Prices of one capacity.
enum Price {
    /// Slots: a density per cell; the sums up to each edge of the grid.
    Slots { density: Vec<f64>, sums: Vec<f64> },
    /// A window that begins with each cell; what a start in a cell pays.
    Window { price: Vec<f64>, start: Vec<f64>, span: usize },
}

impl Price {
    fn all(&mut self) -> &mut [f64] {
        match self {
            Self::Slots { density, .. } => density,
            Self::Window { price, .. } => price,
        }
    }
}

struct Edge {
    from: usize,
    to: usize,
    density: Vec<f64>,
}

/// An interval, with a sign.
struct Gap {
    from: f64,
    to: f64,
    sign: f64,
}

impl Gap {
    /// The cells that it touches, with the part of each.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "cells of a small grid"
    )]
    fn cells(&self, most: usize) -> impl Iterator<Item = (usize, f64)> + '_ {
        (self.from as usize..(self.to.ceil() as usize).min(most)).map(|b| {
            let part = self.to.min(b as f64 + 1.0) - self.from.max(b as f64);
            (b, self.sign * part.max(0.0))
        })
    }
}

/// How far prices move in a round.
enum Step {
    /// As far as would refute the limit if all cheapest choices stayed the same (Polyak): quick where
    /// few prices matter.
    Reach,
    /// Always as far, found in the first round: steady where many do.
    Even(Option<f64>),
    /// This part of what would refute the limit.
    Part(f64),
}

/// The cheapest choice of every node, their sum, and what the prices are worth.
struct Looked {
    taken: Vec<Cheapest>,
    value: f64,
    worth: f64,
    /// What rounding may come to in these sums.
    dust: f64,
}

/// One node on one pool, in cells.
struct Choice {
    ms: f64,
    /// Starts that are possible: from, to; none when `to` lies before `from`.
    from: f64,
    to: f64,
    slots: Option<usize>,
    /// Windows, with the share of each that it takes.
    windows: Vec<(usize, f64)>,
}

struct Node {
    head: f64,
    tail: f64,
    choices: Vec<Choice>,
}

struct Grid {
    cell: f64,
    cells: usize,
}

/// The cheapest choice of a node at the current prices.
#[derive(Clone, Copy)]
struct Cheapest {
    cost: f64,
    choice: usize,
    start: f64,
}

pub(super) struct Timed<'a> {
    instance: &'a Instance,
    grid: Grid,
    nodes: Vec<Node>,
    prices: Vec<Price>,
    edges: Vec<Edge>,
    /// Per node: what its start pays for its dependencies, its end gets from its dependents.
    pays: Vec<Vec<f64>>,
    gets: Vec<Vec<f64>>,
    /// The last start on each resource.
    last: Vec<f64>,
}

/// The dependencies that do not follow from others.
fn needed(instance: &Instance) -> Vec<(usize, usize)> {
    let n = instance.tasks.len();
    let mut above: Vec<Vec<u64>> = Vec::with_capacity(n);
    let mut out = Vec::new();
    for (to, task) in instance.tasks.iter().enumerate() {
        let mut set = vec![0u64; n.div_ceil(64)];
        for &d in &task.after {
            for (word, other) in set.iter_mut().zip(&above[d]) {
                *word |= other;
            }
        }
        let holds = |set: &[u64], d: usize| set[d / 64] & (1 << (d % 64)) != 0;
        let mut direct: Vec<usize> =
            task.after.iter().copied().filter(|&d| !holds(&set, d)).collect();
        direct.sort_unstable();
        direct.dedup();
        for &d in &direct {
            set[d / 64] |= 1 << (d % 64);
            out.push((d, to));
        }
        above.push(set);
    }
    out
}

fn at(sums: &[f64], t: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the grid")]
    let cell = (t.max(0.0) as usize).min(sums.len() - 2);
    #[expect(clippy::cast_precision_loss, reason = "a count of cells")]
    let part = t - cell as f64;
    sums[cell] + part * (sums[cell + 1] - sums[cell])
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "cells of a small grid"
)]
impl<'a> Timed<'a> {
    fn new(instance: &'a Instance, ends: &Ends, horizon: f64, most: usize) -> Self {
        // A cell is a whole part of a minute, or whole minutes.
        let mut cell = horizon / most as f64;
        if instance.resources.iter().any(|r| r.burst > 0.0) {
            cell = if cell < MINUTE {
                MINUTE / (MINUTE / cell).floor()
            } else {
                MINUTE * (cell / MINUTE).ceil()
            };
        }
        let cells = (horizon / cell).ceil() as usize + 1;
        let prices = instance
            .resources
            .iter()
            .map(|r| {
                if r.burst <= 0.0 {
                    return Price::Slots { density: vec![0.0; cells], sums: vec![0.0; cells + 2] };
                }
                let span = r.burst / r.rate / cell;
                let (price, start) = (vec![0.0; cells], vec![0.0; cells]);
                let span = ((span + 1e-9).floor() as usize).clamp(1, cells);
                Price::Window { price, start, span }
            })
            .collect();
        let nodes = instance
            .tasks
            .iter()
            .enumerate()
            .map(|(i, task)| Node {
                head: ends.head[i] / cell,
                tail: ends.tail[i] / cell,
                choices: task
                    .choices
                    .iter()
                    .map(|c| {
                        let mut choice = Choice {
                            ms: c.ms / cell,
                            from: 0.0,
                            to: 0.0,
                            slots: None,
                            windows: Vec::new(),
                        };
                        for &(r, amount) in &c.uses {
                            let resource = instance.resources[r];
                            if resource.burst <= 0.0 {
                                choice.slots = Some(r);
                            } else if amount > 0.0 {
                                choice.windows.push((r, amount / resource.burst));
                            }
                        }
                        choice
                    })
                    .collect(),
            })
            .collect::<Vec<Node>>();
        let edges = needed(instance)
            .into_iter()
            .map(|(from, to)| Edge { from, to, density: vec![0.0; cells] })
            .collect();
        let n = nodes.len();
        let grid = Grid { cell, cells };
        let (pays, gets) = (vec![vec![0.0; cells + 2]; n], vec![vec![0.0; cells + 2]; n]);
        let last = vec![0.0; instance.resources.len()];
        Self { instance, grid, nodes, prices, edges, pays, gets, last }
    }

    /// Takes over the prices of a coarser grid; to begin with, everything is worth the same.
    fn refine(&mut self, coarse: Option<&Self>) {
        let cells = self.grid.cells;
        let Some(coarse) = coarse else {
            for price in &mut self.prices {
                match price {
                    Price::Slots { density, .. } => density.fill(1.0 / cells as f64),
                    Price::Window { price, span, .. } => {
                        price.iter_mut().step_by(*span).for_each(|p| *p = 1.0);
                    }
                }
            }
            return;
        };
        let ratio = self.grid.cell / coarse.grid.cell;
        let old = |b: usize| {
            let cell = ((b as f64 + 0.5) * ratio) as usize;
            cell.min(coarse.grid.cells - 1)
        };
        for (price, coarse) in self.prices.iter_mut().zip(&coarse.prices) {
            match (price, coarse) {
                (Price::Slots { density, .. }, Price::Slots { density: from, .. }) => {
                    for (b, d) in density.iter_mut().enumerate() {
                        *d = from[old(b)];
                    }
                }
                (
                    Price::Window { price, span, .. },
                    Price::Window { price: from, span: wide, .. },
                ) => {
                    // Each start pays what it paid.
                    for b in (0..cells).step_by(*span) {
                        let at = old(b);
                        price[b] = from[(at + 1).saturating_sub(*wide)..=at].iter().sum();
                    }
                }
                _ => {}
            }
        }
        for (edge, coarse) in self.edges.iter_mut().zip(&coarse.edges) {
            for (b, d) in edge.density.iter_mut().enumerate() {
                *d = coarse.density[old(b)] * ratio;
            }
        }
        // A slot's time is counted in cells.
        for price in &mut self.prices {
            if let Price::Slots { density, .. } = price {
                density.iter_mut().for_each(|d| *d *= ratio);
            }
        }
    }

    /// Windows of a minute that begin in the span of a price, until the last start on it.
    fn holds(&self, resource: usize, from: usize, span: usize) -> f64 {
        let r = self.instance.resources[resource];
        let minute = r.burst / r.rate / self.grid.cell;
        let end = ((from + span) as f64 - 1e-6).min(self.last[resource]);
        (((end - from as f64) / minute + 1e-9).floor() + 1.0).max(0.0)
    }

    /// Every start between head and tail is possible when everything is to end at `limit` (in cells).
    fn open(&mut self, limit: f64) {
        for node in &mut self.nodes {
            for choice in &mut node.choices {
                choice.from = node.head;
                choice.to = limit - node.tail - choice.ms;
                if choice.to >= choice.from * (1.0 - 1e-9) {
                    choice.to = choice.to.max(choice.from);
                }
            }
        }
    }

    /// The last start on each window.
    fn set_last(&mut self) {
        self.last.fill(-1.0);
        for node in &self.nodes {
            for choice in &node.choices {
                for &(r, _) in &choice.windows {
                    self.last[r] = self.last[r].max(choice.to);
                }
            }
        }
    }

    /// Sums of the prices over the grid.
    fn tables(&mut self) {
        let cells = self.grid.cells;
        for price in &mut self.prices {
            match price {
                Price::Slots { density, sums } => {
                    for b in 0..cells {
                        sums[b + 1] = sums[b] + density[b];
                    }
                    sums[cells + 1] = sums[cells];
                }
                Price::Window { price, start, span, .. } => {
                    let mut sum = 0.0;
                    for b in 0..cells {
                        sum += price[b];
                        if b >= *span {
                            sum -= price[b - *span];
                        }
                        start[b] = sum;
                    }
                }
            }
        }
        for list in self.pays.iter_mut().chain(&mut self.gets) {
            list.fill(0.0);
        }
        for edge in &self.edges {
            let mut sum = 0.0;
            for b in (0..cells).rev() {
                sum += edge.density[b];
                self.pays[edge.to][b] += sum;
                self.gets[edge.from][b] += sum;
            }
        }
    }

    /// What all prices are worth when everything is to end at `limit` (in cells).
    fn worth(&self, limit: f64) -> f64 {
        self.prices
            .iter()
            .enumerate()
            .map(|(r, price)| match price {
                Price::Slots { density, .. } => {
                    let inside = |b: usize| (limit - b as f64).clamp(0.0, 1.0);
                    let sum: f64 = density.iter().enumerate().map(|(b, d)| d * inside(b)).sum();
                    self.instance.resources[r].rate * sum
                }
                Price::Window { price, span, .. } => {
                    let paid = price.iter().enumerate().filter(|(_, p)| **p > 0.0);
                    paid.map(|(b, p)| p * self.holds(r, b, *span)).sum()
                }
            })
            .sum()
    }

    /// Fills the tables of one choice: what its begin, its end and the windows cost, by cell; the
    /// first and the last cell of its start.
    fn fill(&self, node: usize, choice: &Choice, scratch: &mut [Vec<f64>; 3]) -> (usize, usize) {
        let (pays, gets) = (&self.pays[node], &self.gets[node]);
        let cells = self.grid.cells;
        let [begin, end, window] = scratch;
        match choice.slots.map(|r| &self.prices[r]) {
            Some(Price::Slots { sums, .. }) => {
                for b in 0..cells + 2 {
                    begin[b] = pays[b] - sums[b];
                    end[b] = sums[b] - gets[b];
                }
            }
            _ => {
                for b in 0..cells + 2 {
                    begin[b] = pays[b];
                    end[b] = -gets[b];
                }
            }
        }
        let low = (choice.from as usize).min(cells - 1);
        let high = (choice.to as usize).min(cells - 1);
        window[low..=high].fill(0.0);
        for &(r, share) in &choice.windows {
            if let Price::Window { start, .. } = &self.prices[r] {
                for (w, s) in window[low..=high].iter_mut().zip(&start[low..=high]) {
                    *w += share * s;
                }
            }
        }
        (low, high)
    }

    fn cheapest(&self, node: usize, scratch: &mut [Vec<f64>; 3]) -> Option<Cheapest> {
        let this = &self.nodes[node];
        let cells = self.grid.cells;
        let mut best: Option<Cheapest> = None;
        for (ix, choice) in this.choices.iter().enumerate() {
            if choice.to < choice.from {
                continue;
            }
            let (low, high) = self.fill(node, choice, scratch);
            let (head, latest) = (choice.from, choice.to);
            let [begin, end, window] = &*scratch;
            let mut offer = |cost: f64, start: f64| {
                if best.is_none_or(|b| cost < b.cost) {
                    best = Some(Cheapest { cost, choice: ix, start });
                }
            };
            let edge = |t: f64| at(begin, t) + at(end, t + choice.ms);
            offer(edge(head) + window[low], head);
            offer(edge(latest) + window[high], latest);
            let whole = choice.ms as usize;
            let part = choice.ms - whole as f64;
            for b in low..=high {
                let start = b as f64;
                let last = (b + whole + 1).min(cells + 1);
                if b > low {
                    let cost = begin[b]
                        + end[last - 1] * (1.0 - part)
                        + end[last] * part
                        + window[b].min(window[b - 1]);
                    offer(cost, start);
                }
                let inner = start + 1.0 - part;
                if inner > head && inner < latest {
                    let cost =
                        begin[b] * part + begin[b + 1] * (1.0 - part) + end[last] + window[b];
                    offer(cost, inner);
                }
            }
        }
        best
    }

    /// One round at `limit`, any start between head and tail: `true` when it is refuted.
    fn round(&mut self, limit: f64, how: &mut Step, scratch: &mut [Vec<f64>; 3]) -> bool {
        self.open(limit / self.grid.cell);
        let Some(state) = self.look(limit, scratch) else { return true };
        self.step(limit, how, &state);
        false
    }

    /// The cheapest choices and what they leave of the worth; `None`: the limit is refuted.
    fn look(&mut self, limit: f64, scratch: &mut [Vec<f64>; 3]) -> Option<Looked> {
        self.tables();
        self.set_last();
        let mut taken = Vec::with_capacity(self.nodes.len());
        let mut value = 0.0;
        for node in 0..self.nodes.len() {
            let cheapest = self.cheapest(node, scratch)?;
            value += cheapest.cost;
            taken.push(cheapest);
        }
        let worth = self.worth(limit / self.grid.cell);
        // What dependencies cost and gain cancels out, but for dust.
        let mass: f64 = self.edges.iter().flat_map(|e| &e.density).sum();
        let dust = 1e-6 * worth.abs() + 1e-9 * mass;
        // Only what is surely above refutes: no comparison with what is not a number does.
        let refuted = value - worth > dust;
        (!refuted).then_some(Looked { taken, value, worth, dust })
    }

    /// Moves the prices towards what the cheapest choices violate.
    fn step(&mut self, limit: f64, how: &mut Step, looked: &Looked) {
        let Looked { taken, value, worth, .. } = looked;
        let (value, worth) = (*value, *worth);
        let limit = limit / self.grid.cell;
        let cells = self.grid.cells;
        // What is violated, and by how much.
        let mut load: Vec<Vec<f64>> = vec![vec![0.0; cells]; self.prices.len()];
        for (node, taken) in self.nodes.iter().zip(taken) {
            let choice = &node.choices[taken.choice];
            if let Some(r) = choice.slots {
                let run = Gap { from: taken.start, to: taken.start + choice.ms, sign: 1.0 };
                for (b, part) in run.cells(cells) {
                    load[r][b] += part;
                }
            }
            let cell = (taken.start as usize).min(cells - 1);
            for &(r, share) in &choice.windows {
                load[r][cell] += share;
            }
        }
        let mut over = load;
        for (r, price) in self.prices.iter().enumerate() {
            let over = &mut over[r];
            match price {
                Price::Slots { density, .. } => {
                    let rate = self.instance.resources[r].rate;
                    for (b, over) in over.iter_mut().enumerate() {
                        *over -= rate * (limit - b as f64).clamp(0.0, 1.0);
                        if density[b] <= 0.0 {
                            *over = over.max(0.0);
                        }
                    }
                }
                Price::Window { price, span, .. } => {
                    let mut sum: f64 = over[..*span - 1].iter().sum();
                    for b in 0..cells {
                        sum += over.get(b + *span - 1).copied().unwrap_or(0.0);
                        let first = over[b];
                        over[b] = sum - self.holds(r, b, *span);
                        if price[b] <= 0.0 {
                            over[b] = over[b].max(0.0);
                        }
                        sum -= first;
                    }
                }
            }
        }
        let gaps: Vec<Gap> = self.edges.iter().map(|edge| self.gap(edge, taken)).collect();
        let mut length: f64 = over.iter().flatten().map(|v| v * v).sum();
        for (edge, gap) in self.edges.iter().zip(&gaps) {
            for (b, part) in gap.cells(cells) {
                if part > 0.0 || edge.density[b] > 0.0 {
                    length += part * part;
                }
            }
        }
        if length <= LEAST {
            return;
        }
        let step = match how {
            Step::Reach => (worth - value + MARGIN * worth.max(1.0)) / length,
            Step::Part(part) => *part * (worth - value) / length,
            Step::Even(step) => *step.get_or_insert_with(|| self.norm() / length.sqrt() / EVEN),
        };
        // Only the directions of prices matter: they stay within what a number holds.
        let scale = if worth > LARGE { 1.0 / worth } else { 1.0 };
        let step = step * scale;
        if !step.is_finite() {
            return;
        }
        if scale < 1.0 {
            self.scale(scale);
        }
        for (price, over) in self.prices.iter_mut().zip(&over) {
            for (price, over) in price.all().iter_mut().zip(over) {
                *price = (*price + step * over).max(0.0);
            }
        }
        for (edge, gap) in self.edges.iter_mut().zip(&gaps) {
            for (b, part) in gap.cells(cells) {
                edge.density[b] = (edge.density[b] + step * part).max(0.0);
            }
        }
    }

    /// From the start of the later node to the end of the earlier one, or what lies between them.
    fn gap(&self, edge: &Edge, taken: &[Cheapest]) -> Gap {
        let before = taken[edge.from];
        let end = before.start + self.nodes[edge.from].choices[before.choice].ms;
        let start = taken[edge.to].start;
        Gap { from: start.min(end), to: start.max(end), sign: if end > start { 1.0 } else { -1.0 } }
    }

    /// Cells looked at in a round.
    fn cost(&self) -> usize {
        let pairs: usize = self.nodes.iter().map(|n| n.choices.len()).sum();
        (pairs + self.edges.len()) * self.grid.cells
    }

    fn scale(&mut self, by: f64) {
        self.prices.iter_mut().flat_map(|p| p.all()).for_each(|p| *p *= by);
        self.edges.iter_mut().flat_map(|e| &mut e.density).for_each(|p| *p *= by);
    }

    /// The length of all prices as one vector.
    fn norm(&mut self) -> f64 {
        let capacities = self.prices.iter_mut().flat_map(|p| p.all().iter().map(|p| p * p));
        let edges = self.edges.iter().flat_map(|e| e.density.iter().map(|p| p * p));
        (capacities.sum::<f64>() + edges.sum::<f64>()).sqrt()
    }
}

/// The largest limit that was refuted, from `low` (which is) to `known` (which was reached).
pub(super) fn raise(
    instance: &Instance,
    ends: &Ends,
    tighten: Tighten<'_>,
    low: f64,
    known: f64,
) -> f64 {
    let mut low = low;
    let mut coarse: Option<Timed<'_>> = None;
    for (most, share) in LEVELS {
        let mut timed = Timed::new(instance, ends, known, most);
        timed.refine(coarse.as_ref());
        let cells = timed.grid.cells;
        let mut scratch = [vec![0.0; cells + 2], vec![0.0; cells + 2], vec![0.0; cells + 2]];
        let rounds = (WORK / 100 * share / timed.cost().max(1)).min(ROUNDS);
        let mut how =
            if most < LEVELS[LEVELS.len() - 1].0 { Step::Reach } else { Step::Even(None) };
        let mut rise = 0.005;
        for _ in 0..rounds {
            let limit = (low * (1.0 + rise)).min(known);
            if limit - low < known * 1e-4 {
                return low;
            }
            if timed.round(limit, &mut how, &mut scratch) {
                low = limit;
                rise = (rise * 1.3).min(0.02);
            } else {
                rise = (rise * 0.98).max(0.001);
            }
        }
        coarse = Some(timed);
    }
    match coarse {
        Some(mut timed) => squeeze::squeeze(&mut timed, tighten, low, known),
        None => low,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, Resource, Task};
    use super::*;

    const SLOT: Resource = Resource { rate: 1.0, burst: 0.0 };

    /// Two pools of one slot each, the second with one start a minute.
    fn instance(after: &[&[usize]], ms: &[[f64; 2]]) -> Instance {
        let window = Resource { rate: 1.0 / MINUTE, burst: 1.0 };
        let choice = |pool: usize, ms: f64| {
            let mut uses = vec![(pool, ms)];
            uses.extend((pool == 1).then_some((2, 1.0)));
            Choice { pool, meter: pool, ms, uses }
        };
        let task = |(after, ms): (&&[usize], &[f64; 2])| Task {
            after: after.to_vec(),
            choices: (0..2).map(|pool| choice(pool, ms[pool])).collect::<Vec<Choice>>(),
            group: 0,
        };
        Instance {
            tasks: after.iter().zip(ms).map(task).collect(),
            resources: vec![SLOT, SLOT, window],
            meters: vec![(Some(1), None), (Some(1), Some(1))],
            groups: vec![vec![0, 1]],
        }
    }

    /// The best of all orders and choices.
    fn optimum(instance: &Instance) -> f64 {
        fn best(i: &Instance, end: &mut Vec<f64>, free: [f64; 2], window: f64) -> f64 {
            let mut least = f64::INFINITY;
            for task in 0..i.tasks.len() {
                let ready = i.tasks[task].after.iter().map(|&d| end[d]).fold(0.0, f64::max);
                if end[task].is_finite() || ready.is_infinite() {
                    continue;
                }
                for choice in &i.tasks[task].choices {
                    let mut start = ready.max(free[choice.pool]);
                    let (mut free, mut window) = (free, window);
                    if choice.pool == 1 {
                        start = start.max(window);
                        window = start + MINUTE;
                    }
                    free[choice.pool] = start + choice.ms;
                    end[task] = start + choice.ms;
                    least = least.min(best(i, end, free, window));
                    end[task] = f64::INFINITY;
                }
            }
            let all = end.iter().copied().fold(0.0, f64::max);
            if all.is_finite() { all } else { least }
        }
        best(instance, &mut vec![f64::INFINITY; instance.tasks.len()], [0.0; 2], 0.0)
    }

    fn raised(instance: &Instance, known: f64) -> f64 {
        let n = instance.tasks.len();
        raise(
            instance,
            &Ends { head: vec![0.0; n], tail: vec![0.0; n] },
            &|_, ends| Some(ends),
            known * 0.1,
            known,
        )
    }

    #[test]
    fn it_never_lies_above_the_best_schedule() {
        let mut seed = 7u64;
        let mut below = |n: u64| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for _ in 0..24 {
            let mut after: Vec<Vec<usize>> = Vec::new();
            let mut ms = Vec::new();
            for at in 0..5usize {
                let one = (at > 0 && below(2) == 0).then(|| below(at as u64) as usize);
                after.push(one.into_iter().collect());
                ms.push([20_000.0 + below(60_000) as f64, 3_000.0 + below(30_000) as f64]);
            }
            let after: Vec<&[usize]> = after.iter().map(Vec::as_slice).collect();
            let instance = instance(&after, &ms);
            let (best, bound) = (optimum(&instance), raised(&instance, 3.0e5));
            assert!(bound <= best * (1.0 + 1e-9), "{bound} above {best}: {after:?} {ms:?}");
        }
    }

    #[test]
    fn chains_share_the_fast_pool() {
        // Three chains of four nodes; 30 s on a pool without limits, 10 s on one with one slot. The
        // longest path is 40 s and the capacities alone ask for 30 s. A chain that has the fast pool
        // for k of its nodes takes 120 - 20 k, and all of them have it for 30 k: 72 s at least, and
        // 80 s for whole nodes.
        let task = |at: usize| Task {
            after: if at.is_multiple_of(4) { Vec::new() } else { vec![at - 1] },
            choices: vec![
                Choice { pool: 0, meter: 0, ms: 30_000.0, uses: Vec::new() },
                Choice { pool: 1, meter: 1, ms: 10_000.0, uses: vec![(0, 10_000.0)] },
            ],
            group: 0,
        };
        let instance = Instance {
            tasks: (0..12).map(task).collect(),
            resources: vec![SLOT],
            meters: vec![(None, None), (Some(1), None)],
            groups: vec![vec![0, 1]],
        };
        let bound = raised(&instance, 1.2e5);
        assert!((65_000.0..=80_000.0).contains(&bound), "{bound}");
    }
}
