//! Can a set of nodes run inside an interval of a given length at all?
//!
//! A relaxation that only says no when no schedule exists: every node takes a share of each of its
//! choices that would end in time, and every capacity must hold the sum. Prices on the capacities
//! prove that there is no such division (Farkas): when at some prices that add up to 1 the cheapest
//! choices of all nodes cost more than 1 together, the set does not fit.
//!
//! Beside the amounts as they are, each capacity is also counted in whole pieces: for a
//! dual feasible function `f` whatever fits a slot or a window satisfies `sum f(x) <= 1`, so that
//! three nodes of just over half a window are seen to need three windows.

use super::{Instance, Task};

/// Iterations of the price search.
const ROUNDS: usize = 40;
/// Ways in which one capacity is counted.
const VARIANTS: usize = 7;
/// Relative slack against float dust.
const DUST: f64 = 1e-9;

/// A node, relative to the interval.
pub(super) struct Item<'a> {
    pub(super) task: &'a Task,
    pub(super) allowed: &'a [bool],
    /// It cannot start earlier than this after the beginning.
    pub(super) before: f64,
    /// It must be over so long before the end.
    pub(super) after: f64,
}

/// 1 beyond a half, a half at it: two such pieces do not share.
pub(super) fn halves(x: f64) -> f64 {
    let twice = x * 2.0;
    if (twice - twice.round()).abs() < DUST { x } else { twice.floor() }
}

/// The same in thirds: `floor(3 x) / 2`.
pub(super) fn thirds(x: f64) -> f64 {
    let thrice = x * 3.0;
    if (thrice - thrice.round()).abs() < DUST { x } else { (thrice.floor() / 2.0).min(1.0) }
}

/// What remains of a piece when those below a third are left out, and those beyond two thirds,
/// beside which nothing else then fits, count in full.
pub(super) fn large(x: f64) -> f64 {
    if x > 2.0 / 3.0 + DUST {
        1.0
    } else if x < 1.0 / 3.0 - DUST {
        0.0
    } else {
        x
    }
}

/// Over the starts that are possible on one window.
#[derive(Clone, Copy)]
struct Span {
    first: f64,
    last: f64,
}

/// Columns of the relaxation: `(column, share of its capacity)` per choice per item.
struct Columns {
    ids: Vec<u32>,
    count: usize,
    choices: Vec<Vec<(u32, f64)>>,
    items: Vec<std::ops::Range<usize>>,
}

impl Columns {
    fn push(&mut self, uses: &mut Vec<(u32, f64)>, resource: usize, variant: usize, share: f64) {
        if share <= 0.0 {
            return;
        }
        let id = &mut self.ids[resource * VARIANTS + variant];
        if *id == u32::MAX {
            *id = u32::try_from(self.count).unwrap_or(u32::MAX - 1);
            self.count += 1;
        }
        uses.push((*id, share));
    }

    /// `None`: some node has no choice that ends in time.
    fn new(instance: &Instance, items: &[Item<'_>], length: f64) -> Option<Self> {
        let end = length * (1.0 + DUST);
        let in_time = |item: &Item<'_>, ms: f64| item.before + ms + item.after <= end;
        let nobody = Span { first: f64::INFINITY, last: f64::NEG_INFINITY };
        let mut spans = vec![nobody; instance.resources.len()];
        for item in items {
            for (choice, _) in item.task.choices.iter().zip(item.allowed).filter(|(_, a)| **a) {
                if in_time(item, choice.ms) {
                    for &(r, _) in &choice.uses {
                        spans[r].first = spans[r].first.min(item.before);
                        spans[r].last = spans[r].last.max(length - item.after - choice.ms);
                    }
                }
            }
        }
        let mut this = Self {
            ids: vec![u32::MAX; instance.resources.len() * VARIANTS],
            count: 0,
            choices: Vec::new(),
            items: Vec::with_capacity(items.len()),
        };
        for item in items {
            let from = this.choices.len();
            for (choice, _) in item.task.choices.iter().zip(item.allowed).filter(|(_, a)| **a) {
                if !in_time(item, choice.ms) {
                    continue;
                }
                let mut uses = Vec::with_capacity(choice.uses.len() * 3);
                for &(r, amount) in &choice.uses {
                    let resource = instance.resources[r];
                    if resource.burst <= 0.0 {
                        let part = choice.ms / length;
                        for (variant, part) in
                            [part, halves(part), thirds(part), large(part)].into_iter().enumerate()
                        {
                            this.push(&mut uses, r, variant, part / resource.rate);
                        }
                        continue;
                    }
                    let span = resource.burst / resource.rate;
                    let Span { first, last } = spans[r];
                    let windows = ((last - first) / span + DUST).floor() + 1.0;
                    let part = amount / resource.burst;
                    this.push(&mut uses, r, 0, part / windows);
                    // Those that must start early share the first windows, those that may only
                    // start late the last ones.
                    let latest = length - item.after - choice.ms;
                    for (variant, k) in [windows - 1.0, windows - 2.0, (windows / 2.0).floor()]
                        .into_iter()
                        .enumerate()
                    {
                        if k < 1.0 {
                            continue;
                        }
                        if latest < first + k * span - 1e-3 {
                            this.push(&mut uses, r, 1 + variant, part / k);
                        }
                        if item.before > last - k * span + 1e-3 {
                            this.push(&mut uses, r, 4 + variant, part / k);
                        }
                    }
                }
                this.choices.push(uses);
            }
            if this.choices.len() == from {
                return None;
            }
            this.items.push(from..this.choices.len());
        }
        Some(this)
    }
}

/// True when no schedule runs all of them inside an interval of this length.
pub(super) fn overfull(instance: &Instance, items: &[Item<'_>], length: f64) -> bool {
    if items.is_empty() {
        return false;
    }
    let Some(columns) = Columns::new(instance, items, length) else { return true };
    let count = columns.count;
    if count == 0 {
        return false;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of columns")]
    let mut price = vec![1.0 / count as f64; count];
    let mut load = vec![0.0; count];
    let mut sum = vec![0.0; count];
    let mut eta = 0.8;
    for round in 1..=ROUNDS {
        load.fill(0.0);
        let mut value = 0.0;
        for range in &columns.items {
            let (mut least, mut taken) = (f64::INFINITY, range.start);
            for at in range.clone() {
                let cost: f64 =
                    columns.choices[at].iter().map(|&(c, share)| share * price[c as usize]).sum();
                if cost < least {
                    (least, taken) = (cost, at);
                }
            }
            value += least;
            for &(c, share) in &columns.choices[taken] {
                load[c as usize] += share;
            }
        }
        if value > 1.0 + 1e-7 {
            return true;
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of rounds")]
        let rounds = round as f64;
        let mut most = 0.0f64;
        for (sum, load) in sum.iter_mut().zip(&load) {
            *sum += load;
            most = most.max(*sum / rounds);
        }
        if most <= 1.0 {
            // A division that fits was found.
            return false;
        }
        let scale = load.iter().fold(DUST, |m, l| m.max((l - 1.0).abs()));
        let mut total = 0.0;
        for (price, load) in price.iter_mut().zip(&load) {
            *price = (*price * (eta * (load - 1.0) / scale).exp()).max(1e-12);
            total += *price;
        }
        price.iter_mut().for_each(|p| *p /= total);
        eta *= 0.96;
    }
    false
}

/// The shortest interval, from `low` on, that is not shown to be too short.
pub(super) fn shortest(instance: &Instance, items: &[Item<'_>], low: f64) -> f64 {
    /// A gain below this is not worth the search.
    const WORTH: f64 = 1.002;
    if low <= 0.0 || !overfull(instance, items, low * WORTH) {
        return low;
    }
    let (mut low, mut step) = (low * WORTH, 0.08);
    let mut high = loop {
        let next = low * (1.0 + step);
        if !overfull(instance, items, next) {
            break next;
        }
        low = next;
        step *= 2.0;
        if step > 20.0 {
            return low;
        }
    };
    for _ in 0..5 {
        let middle = f64::midpoint(low, high);
        if overfull(instance, items, middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::super::{Choice, Resource};
    use super::*;

    fn instance(ms: &[f64], resource: Resource, amount: impl Fn(f64) -> f64) -> Instance {
        let tasks = ms
            .iter()
            .map(|&ms| Task {
                after: Vec::new(),
                choices: vec![Choice { pool: 0, meter: 0, ms, uses: vec![(0, amount(ms))] }],
                group: 0,
            })
            .collect();
        Instance {
            tasks,
            resources: vec![resource],
            meters: vec![(None, None)],
            groups: vec![vec![0]],
        }
    }

    fn items(instance: &Instance) -> Vec<Item<'_>> {
        let item = |task| Item { task, allowed: &[true], before: 0.0, after: 0.0 };
        instance.tasks.iter().map(item).collect()
    }

    #[test]
    fn whole_nodes_do_not_pour_into_slots() {
        // Three of 60 on two slots: 90 by area, 120 in truth.
        let slots = instance(&[60.0; 3], Resource { rate: 2.0, burst: 0.0 }, |ms| ms);
        assert!(overfull(&slots, &items(&slots), 119.0));
        assert!(!overfull(&slots, &items(&slots), 120.0));
    }

    #[test]
    fn whole_requests_do_not_pour_into_windows() {
        // Three requests of 0.6 windows: the third starts two minutes after the first.
        let window = Resource { rate: 1.0 / 60_000.0, burst: 1.0 };
        let mut list = instance(&[1_000.0; 3], window, |_| 0.6);
        list.resources[0] = window;
        for task in &mut list.tasks {
            task.choices[0].uses = vec![(0, halves(0.6))];
        }
        assert!(overfull(&list, &items(&list), 120_999.0));
        assert!(!overfull(&list, &items(&list), 121_001.0));
    }

    #[test]
    fn the_counting_functions_are_dual_feasible() {
        for f in [halves, thirds, large] {
            for a in 0..=24u32 {
                for b in 0..=(24 - a) {
                    for c in 0..=(24 - a - b) {
                        let sum: f64 = [a, b, c].map(|x| f(f64::from(x) / 24.0)).iter().sum();
                        assert!(sum <= 1.0 + 1e-9, "{a} {b} {c}: {sum}");
                    }
                }
            }
        }
    }
}
