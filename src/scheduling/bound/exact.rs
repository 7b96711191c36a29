//! The shortest interval that holds a few nodes, by trying all schedules of them.
//!
//! Nodes are placed in the order of their starts, each at its earliest time that is not before the
//! last start: every schedule is met or beaten so. A place that another order reaches with no more of
//! any capacity taken is not gone on from. What runs beside these nodes is left out, which can only
//! shorten the interval.

use std::collections::HashMap;

use super::Instance;
use super::crowd::Item;

/// More nodes than this are not tried.
pub(super) const NODES_MAX: usize = 24;
/// States kept per set of placed nodes.
const KEPT: usize = 48;
const DUST: f64 = 1e-6;

/// What is taken after some placements.
#[derive(Clone)]
struct State {
    placed: u32,
    /// The last start.
    now: f64,
    /// Latest end with what must come after it.
    length: f64,
    /// End of each placed node.
    end: [f64; NODES_MAX],
    /// What holds capacities.
    taken: Vec<Taken>,
}

/// Until when so much of a capacity is taken.
#[derive(Clone, Copy)]
struct Taken {
    capacity: usize,
    until: f64,
    amount: f64,
}

/// One choice, with the resources numbered anew.
struct Option_ {
    ms: f64,
    uses: Vec<(usize, f64)>,
}

struct Node {
    before: f64,
    after: f64,
    shortest: f64,
    /// Nodes of the set that must be over.
    needs: u32,
    /// Nodes of the set that wait for it.
    gives: u32,
    options: Vec<Option_>,
}

/// A capacity: slots, or an amount in a window of so many milliseconds.
#[derive(Clone, Copy, PartialEq)]
struct Capacity {
    amount: f64,
    span: f64,
}

struct Search {
    nodes: Vec<Node>,
    capacities: Vec<Capacity>,
    seen: HashMap<u32, Vec<State>>,
    /// Placements that may still be tried.
    left: usize,
    limit: f64,
}

/// What trying came to.
enum Found {
    /// A schedule of this length.
    Length(f64),
    /// There is none within the limit.
    None,
    /// The budget ended.
    Unknown,
}

/// The shortest interval, from `low` on, that is not shown to be too short within `budget`
/// placements. `items` are the nodes `ids` of the instance; `known` is a length that was reached, or
/// infinity.
pub(super) fn shortest(
    instance: &Instance,
    ids: &[usize],
    items: &[Item<'_>],
    (mut low, known): (f64, f64),
    budget: &mut usize,
) -> f64 {
    /// A gain below this is not worth the search.
    const WORTH: f64 = 1.001;
    /// Limits that may stay open.
    const OPEN: usize = 4;
    if items.len() < 2 || items.len() > NODES_MAX || *budget < items.len() * OPEN {
        return low;
    }
    let Some((nodes, capacities)) = problem(instance, ids, items) else { return low };
    let mut left = 0;
    let mut search = Search { nodes, capacities, seen: HashMap::new(), left: 0, limit: 0.0 };
    let mut high = known;
    let mut open = 0;
    let share = *budget / OPEN;
    // Whatever is met first ends somewhere.
    let mut limit = if high.is_finite() { high / WORTH } else { f64::INFINITY };
    while high > low * WORTH && open < OPEN {
        search.left = share;
        let found = search.within(limit.max(low));
        left += share - search.left;
        match found {
            Found::Unknown => {
                open += 1;
                limit = f64::midpoint(low, limit.min(high));
                continue;
            }
            Found::None => low = low.max(limit),
            Found::Length(length) => high = length.min(high),
        }
        limit = if open == 0 { high / WORTH } else { f64::midpoint(low, high.min(limit * 1.05)) };
        if *budget <= left {
            break;
        }
    }
    *budget = budget.saturating_sub(left);
    low
}

/// The nodes among themselves; `None` when one of them has no choice.
fn problem(
    instance: &Instance,
    ids: &[usize],
    items: &[Item<'_>],
) -> Option<(Vec<Node>, Vec<Capacity>)> {
    let mut number: HashMap<usize, usize> = HashMap::new();
    let mut capacities = Vec::new();
    let place = |id: usize| ids.iter().position(|&i| i == id);
    let mut nodes: Vec<Node> = Vec::with_capacity(items.len());
    for item in items {
        let mut options: Vec<Option_> = Vec::new();
        for (choice, _) in item.task.choices.iter().zip(item.allowed).filter(|(_, a)| **a) {
            let uses = choice
                .uses
                .iter()
                .filter(|(_, amount)| *amount > 0.0)
                .map(|&(r, amount)| {
                    let resource = instance.resources[r];
                    let at = *number.entry(r).or_insert_with(|| {
                        capacities.push(if resource.burst > 0.0 {
                            Capacity {
                                amount: resource.burst,
                                span: resource.burst / resource.rate,
                            }
                        } else {
                            Capacity { amount: resource.rate, span: 0.0 }
                        });
                        capacities.len() - 1
                    });
                    (at, if resource.burst > 0.0 { amount } else { 1.0 })
                })
                .collect();
            options.push(Option_ { ms: choice.ms, uses });
        }
        let shortest = options.iter().map(|o| o.ms).min_by(f64::total_cmp)?;
        let needs =
            item.task.after.iter().filter_map(|&d| place(d)).fold(0u32, |m, at| m | 1 << at);
        let (before, after) = (item.before, item.after);
        nodes.push(Node { before, after, shortest, needs, gives: 0, options });
    }
    for at in 0..nodes.len() {
        let needs = nodes[at].needs;
        for (d, node) in nodes.iter_mut().enumerate() {
            if needs & (1 << d) != 0 {
                node.gives |= 1 << at;
            }
        }
    }
    Some((nodes, capacities))
}

impl Search {
    fn within(&mut self, limit: f64) -> Found {
        self.limit = limit;
        self.seen.clear();
        let first =
            State { placed: 0, now: 0.0, length: 0.0, end: [0.0; NODES_MAX], taken: Vec::new() };
        self.go(&first)
    }

    fn go(&mut self, state: &State) -> Found {
        let all = (1u32 << self.nodes.len()) - 1;
        if state.placed == all {
            return Found::Length(state.length);
        }
        let mut steps = Vec::new();
        for (at, node) in self.nodes.iter().enumerate() {
            if state.placed & (1 << at) != 0 {
                continue;
            }
            let ready = self.ready(state, at);
            if ready + node.shortest + node.after > self.limit * (1.0 + 1e-12) {
                return Found::None;
            }
            if node.needs & !state.placed != 0 {
                continue;
            }
            for option in 0..node.options.len() {
                if let Some(next) = self.placed(state, at, option, ready) {
                    steps.push(next);
                }
            }
        }
        // The earliest start first: what could have started meanwhile is not left behind.
        steps.sort_by(|a, b| a.now.total_cmp(&b.now).then(a.length.total_cmp(&b.length)));
        for next in steps {
            if self.left == 0 {
                return Found::Unknown;
            }
            self.left -= 1;
            if self.known(&next) {
                continue;
            }
            match self.go(&next) {
                Found::None => {}
                other => return other,
            }
        }
        Found::None
    }

    /// The earliest that a node may start by its head and its dependencies.
    fn ready(&self, state: &State, at: usize) -> f64 {
        let node = &self.nodes[at];
        let mut ready = node.before.max(state.now);
        for (d, end) in state.end.iter().enumerate().take(self.nodes.len()) {
            if node.needs & (1 << d) != 0 {
                let end = if state.placed & (1 << d) != 0 {
                    *end
                } else {
                    state.now + self.nodes[d].shortest
                };
                ready = ready.max(end);
            }
        }
        ready
    }

    /// The state after one more node; `None` when it would not end in time.
    fn placed(&self, state: &State, at: usize, option: usize, ready: f64) -> Option<State> {
        let node = &self.nodes[at];
        let option = &node.options[option];
        let fits = |t: f64| t + option.ms + node.after <= self.limit * (1.0 + 1e-12);
        let mut start = ready;
        loop {
            let mut free = start;
            for &(r, amount) in &option.uses {
                free = free.max(self.free(&state.taken, r, start, amount)?);
            }
            if !fits(free) {
                return None;
            }
            if free <= start + DUST {
                break;
            }
            start = free;
        }
        let mut next = state.clone();
        next.placed |= 1 << at;
        next.now = start;
        next.end[at] = start + option.ms;
        next.length = next.length.max(start + option.ms + node.after);
        next.taken.retain(|t| t.until > start + DUST);
        for &(capacity, amount) in &option.uses {
            let span = self.capacities[capacity].span;
            let until = start + if span > 0.0 { span } else { option.ms };
            next.taken.push(Taken { capacity, until, amount });
        }
        Some(next)
    }

    /// The earliest time from `at` on at which `amount` more fits; `None`: never.
    fn free(&self, taken: &[Taken], capacity: usize, at: f64, amount: f64) -> Option<f64> {
        let most = self.capacities[capacity].amount * (1.0 + 1e-9) - amount;
        if most < 0.0 {
            return None;
        }
        if sum(taken, capacity, at) <= most {
            return Some(at);
        }
        let ends = taken.iter().filter(|t| t.capacity == capacity && t.until > at);
        let fits = ends.map(|t| t.until).filter(|&end| sum(taken, capacity, end) <= most);
        fits.min_by(f64::total_cmp)
    }

    /// Was a state with the same nodes and no more of anything taken seen before?
    fn known(&mut self, state: &State) -> bool {
        let list = self.seen.entry(state.placed).or_default();
        let (nodes, capacities) = (&self.nodes, &self.capacities);
        if list.iter().any(|old| dominates(nodes, capacities, old, state)) {
            return true;
        }
        list.retain(|old| !dominates(nodes, capacities, state, old));
        if list.len() < KEPT {
            list.push(state.clone());
        }
        false
    }
}

/// What is taken of a capacity just after `at`.
fn sum(taken: &[Taken], capacity: usize, at: f64) -> f64 {
    let these = taken.iter().filter(|t| t.capacity == capacity && t.until > at + DUST);
    these.map(|t| t.amount).sum()
}

/// With the same nodes placed: does `a` leave at least as much as `b`?
fn dominates(nodes: &[Node], capacities: &[Capacity], a: &State, b: &State) -> bool {
    if a.now > b.now + DUST {
        return false;
    }
    let open = |node: &Node| node.gives & !a.placed != 0;
    let late = |at: usize| a.end[at] > b.end[at] + DUST && a.end[at] > b.now + DUST;
    if (0..nodes.len()).any(|at| a.placed & (1 << at) != 0 && open(&nodes[at]) && late(at)) {
        return false;
    }
    let less =
        |t: f64, r: usize| sum(&a.taken, r, t) <= sum(&b.taken, r, t) + capacities[r].amount * 1e-9;
    (0..capacities.len()).all(|r| less(b.now, r))
        && b.taken.iter().filter(|t| t.until > b.now).all(|t| less(t.until, t.capacity))
}
