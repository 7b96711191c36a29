//! A true lower bound of the makespan: no schedule of these nodes on these pools ends earlier.
//!
//! `docs/scheduling.md` derives it. In short: heads and tails (what must have run before, what must
//! still run after), strengthened by the work of all ancestors and descendants over the capacity of
//! the pools; between every pair of them the work that must fit; a destructive search that forbids
//! pools on which a node could not end in time and derives everything again; and prices of capacities
//! and dependencies that change over time.

mod crowd;
mod dual;
mod exact;
mod instance;
mod timed;

pub use instance::{Choice, Instance, Resource, Task};

use std::cell::Cell;

use crowd::Item;
use dual::{Dual, Room};

/// Beyond this many nodes ancestors are not enumerated: only direct dependencies strengthen heads.
const ANCESTORS_MAX: usize = 400;
/// Thresholds tried for heads and for tails.
const THRESHOLDS: usize = 24;
/// Heads and tails tried for sets that are counted in whole pieces.
const CORNERS: usize = 4;
/// Thresholds tried on each side for nodes across the edges of an interval.
const EDGES: usize = 8;
/// Bisection steps of the destructive search.
const STEPS: usize = 9;
/// Beyond this many (node, pool) pairs the bound is not searched further: the time would not be
/// worth the last per cent.
const PAIRS_MAX: usize = 40_000;
/// Largest set of ancestors or descendants that is looked at on its own.
const CROWD_MAX: usize = 48;
/// Sets looked at per node.
const CROWDS: usize = 3;

/// Placements that are tried for a small plan, for all small sets of nodes of a plan, for one set.
const TRIED: usize = if cfg!(debug_assertions) { 20_000 } else { 600_000 };
const TRIED_SETS: usize = TRIED;
const TRIED_SET: usize = TRIED / 40;

/// Beyond this many (node, pool) pairs prices that change over time are not looked for.
const TIMED_MAX: usize = 5_000;

/// The bound in milliseconds, rounded down; `known` is a makespan that was reached (the search ends
/// there).
#[must_use]
pub fn lower_bound(instance: &Instance, known: f64) -> f64 {
    let (low, ends) = quick(instance, known, TRIED);
    let pairs: usize = instance.tasks.iter().map(|t| t.choices.len()).sum();
    if pairs > TIMED_MAX || low >= known * 0.999 {
        return low.floor();
    }
    let reach = Reach::new(instance);
    let tighten = |limit: f64, ends: Ends| {
        Bounds::new(instance, &reach, limit, Some(limit), ends, &Close::none())
            .filter(|b| b.makespan <= limit * (1.0 + 1e-9))
            .map(|b| b.ends)
    };
    timed::raise(instance, &ends, &tighten, low, known).floor()
}

/// The bound without prices that change over time, in a tenth of the time.
#[must_use]
pub fn quick_bound(instance: &Instance, known: f64) -> f64 {
    quick(instance, known, TRIED / 10).0.floor()
}

fn quick(instance: &Instance, known: f64, tried: usize) -> (f64, Ends) {
    let n = instance.tasks.len();
    let start = Ends { head: vec![0.0; n], tail: vec![0.0; n] };
    if n == 0 {
        return (0.0, start);
    }
    let pairs: usize = instance.tasks.iter().map(|t| t.choices.len()).sum();
    let reach = Reach::new(instance);
    let crowds = if n <= ANCESTORS_MAX && pairs <= PAIRS_MAX { CROWDS } else { 0 };
    // Prices are best for the interval that is tried; the truth lies near what was reached.
    let close = Close { crowds, budget: Cell::new(tried.min(TRIED_SETS)) };
    let Some(base) = Bounds::new(instance, &reach, known, None, start.clone(), &close) else {
        return (0.0, start);
    };
    // Float dust must not lift the bound over a makespan that was reached.
    let mut low = base.makespan.min(known);
    low = low.max(whole(instance, &base.ends, (low, known), tried).min(known));
    if n > 4 * ANCESTORS_MAX || pairs > PAIRS_MAX {
        return (low, base.ends);
    }
    let mut high = known;
    for step in 0..STEPS {
        if high - low < known * 0.002 {
            break;
        }
        // The first guess is high: good schedules are close to their bound.
        let guess = if step == 0 { low + (high - low) * 0.9 } else { f64::midpoint(low, high) };
        let feasible =
            Bounds::new(instance, &reach, guess, Some(guess), base.ends.clone(), &Close::none())
                .is_some_and(|b| b.makespan <= guess * (1.0 + 1e-9));
        if feasible {
            high = guess;
        } else {
            low = guess;
        }
    }
    (low, base.ends)
}

/// What each choice of each task costs the whole more than its cheapest, in milliseconds of the
/// makespan, when everything takes about `horizon`. Choices that cost nothing are the ones that a
/// good schedule uses.
#[must_use]
pub fn surplus(instance: &Instance, horizon: f64) -> Vec<Vec<f64>> {
    dual::surplus(instance, horizon)
}

/// Longest path when each node takes its fastest pool, milliseconds.
#[must_use]
pub fn critical_path(instance: &Instance) -> f64 {
    let mut end = vec![0.0f64; instance.tasks.len()];
    for (at, task) in instance.tasks.iter().enumerate() {
        let head = task.after.iter().map(|&d| end[d]).fold(0.0, f64::max);
        end[at] = head + task.fastest(|_| true).unwrap_or(0.0);
    }
    end.into_iter().fold(0.0, f64::max)
}

/// Ancestors and descendants of each node.
struct Reach {
    ancestors: Vec<Vec<u32>>,
    descendants: Vec<Vec<u32>>,
    dependents: Vec<Vec<usize>>,
}

impl Reach {
    fn new(instance: &Instance) -> Self {
        let n = instance.tasks.len();
        let mut dependents = vec![Vec::new(); n];
        for (at, task) in instance.tasks.iter().enumerate() {
            for &d in &task.after {
                dependents[d].push(at);
            }
        }
        let words = n.div_ceil(64);
        let mut ancestors = vec![Vec::new(); n];
        let mut descendants = vec![Vec::new(); n];
        if n <= ANCESTORS_MAX {
            let mut sets = vec![vec![0u64; words]; n];
            for at in 0..n {
                let mut set = vec![0u64; words];
                for &d in &instance.tasks[at].after {
                    set[d / 64] |= 1 << (d % 64);
                    for (word, other) in set.iter_mut().zip(&sets[d]) {
                        *word |= other;
                    }
                }
                for d in (0..at).filter(|d| set[d / 64] & (1 << (d % 64)) != 0) {
                    #[expect(clippy::cast_possible_truncation, reason = "below ANCESTORS_MAX")]
                    {
                        ancestors[at].push(d as u32);
                        descendants[d].push(at as u32);
                    }
                }
                sets[at] = set;
            }
        } else {
            let short = |list: &[usize]| {
                list.iter().filter_map(|&d| u32::try_from(d).ok()).collect::<Vec<u32>>()
            };
            for at in 0..n {
                ancestors[at] = short(&instance.tasks[at].after);
                descendants[at] = short(&dependents[at]);
            }
        }
        Self { ancestors, descendants, dependents }
    }
}

/// What must have passed before each node, and what must still pass after it.
#[derive(Clone)]
struct Ends {
    head: Vec<f64>,
    tail: Vec<f64>,
}

/// How the last few nodes before (or after) another are looked at on their own.
struct Close {
    /// Sets per node.
    crowds: usize,
    /// Placements that may still be tried in all of them together.
    budget: Cell<usize>,
}

impl Close {
    /// No sets at all.
    fn none() -> Self {
        Self { crowds: 0, budget: Cell::new(0) }
    }

    /// The shortest interval by trying all schedules, where that is quick.
    fn exact(&self, instance: &Instance, ids: &[usize], items: &[Item<'_>], low: f64) -> f64 {
        let mut share = self.budget.get().min(TRIED_SET);
        let before = share;
        let length = exact::shortest(instance, ids, items, (low, f64::INFINITY), &mut share);
        self.budget.set(self.budget.get() - (before - share));
        length
    }
}

/// All nodes of a small plan, by trying all schedules.
fn whole(instance: &Instance, ends: &Ends, (low, known): (f64, f64), mut tried: usize) -> f64 {
    let ids: Vec<usize> = (0..instance.tasks.len()).collect();
    if ids.len() > exact::NODES_MAX {
        return low;
    }
    let allowed: Vec<Vec<bool>> =
        instance.tasks.iter().map(|t| vec![true; t.choices.len()]).collect();
    let items: Vec<Item<'_>> = ids
        .iter()
        .map(|&i| Item {
            task: &instance.tasks[i],
            allowed: &allowed[i],
            before: ends.head[i],
            after: ends.tail[i],
        })
        .collect();
    exact::shortest(instance, &ids, &items, (low, known), &mut tried)
}

/// Everything derived for one limit of the makespan.
struct Bounds {
    makespan: f64,
    ends: Ends,
}

impl Bounds {
    /// `None` when a node has no pool on which it could end in time.
    fn new(
        instance: &Instance,
        reach: &Reach,
        horizon: f64,
        limit: Option<f64>,
        mut ends: Ends,
        close: &Close,
    ) -> Option<Self> {
        let mut allowed: Vec<Vec<bool>> =
            instance.tasks.iter().map(|t| vec![true; t.choices.len()]).collect();
        let mut fastest = fastest(instance, &allowed)?;
        let mut duals = dual::collect(instance, &allowed, &fastest, horizon);
        for round in 0..4 {
            strengthen(instance, reach, &duals, &fastest, &mut ends, (&allowed, close));
            let Ends { head, tail } = &ends;
            let Some(limit) = limit else {
                let makespan = between(instance, &duals, head, tail, &fastest);
                return Some(Self { makespan, ends });
            };
            let mut changed = false;
            for (at, task) in instance.tasks.iter().enumerate() {
                for (choice, allowed) in task.choices.iter().zip(&mut allowed[at]) {
                    if *allowed && head[at] + choice.ms + tail[at] > limit * (1.0 + 1e-9) {
                        *allowed = false;
                        changed = true;
                    }
                }
            }
            fastest = self::fastest(instance, &allowed)?;
            if changed {
                duals = dual::collect(instance, &allowed, &fastest, horizon);
            }
            if !changed || round == 3 {
                let makespan = between(instance, &duals, head, tail, &fastest);
                if makespan <= limit
                    && (overfull(instance, &duals, &allowed, head, tail, limit)
                        || crowded(instance, &allowed, &ends, limit))
                {
                    return None;
                }
                return Some(Self { makespan, ends });
            }
        }
        None
    }
}

fn fastest(instance: &Instance, allowed: &[Vec<bool>]) -> Option<Vec<f64>> {
    instance.tasks.iter().zip(allowed).map(|(t, a)| t.fastest(|c| a[c])).collect()
}

/// Heads and tails: the longest path, the work of ancestors and descendants over capacity, and what
/// small sets of them need among themselves.
fn strengthen(
    instance: &Instance,
    reach: &Reach,
    duals: &[Dual],
    fastest: &[f64],
    ends: &mut Ends,
    (allowed, sets): (&[Vec<bool>], &Close),
) {
    let n = instance.tasks.len();
    let Ends { head, tail } = ends;
    for at in 0..n {
        let direct = instance.tasks[at].after.iter().map(|&d| head[d] + fastest[d]);
        let path = direct.fold(head[at], f64::max);
        let set = &reach.ancestors[at];
        head[at] = path.max(gathered(instance, set, duals, fastest, head));
        head[at] = close(instance, set, head, head[at], allowed, (sets, true));
    }
    for at in (0..n).rev() {
        let direct = reach.dependents[at].iter().map(|&d| tail[d] + fastest[d]);
        let path = direct.fold(tail[at], f64::max);
        let set = &reach.descendants[at];
        tail[at] = path.max(gathered(instance, set, duals, fastest, tail));
        tail[at] = close(instance, set, tail, tail[at], allowed, (sets, false));
    }
}

/// The last few of `set` that must run between an offset and the node, on their own: the shortest
/// interval that holds them. `best` is what is known already.
fn close(
    instance: &Instance,
    set: &[u32],
    offset: &[f64],
    mut best: f64,
    allowed: &[Vec<bool>],
    (sets, forward): (&Close, bool),
) -> f64 {
    if set.len() < 2 || sets.crowds == 0 {
        return best;
    }
    let mut order: Vec<usize> = set.iter().map(|&i| i as usize).collect();
    order.sort_by(|a, b| offset[*b].total_cmp(&offset[*a]));
    let mut tried = 0;
    for end in 2..=order.len().min(CROWD_MAX) {
        let from = offset[order[end - 1]];
        if order.get(end).is_some_and(|&next| offset[next] >= from) {
            continue;
        }
        let items: Vec<Item<'_>> = order[..end]
            .iter()
            .map(|&i| Item {
                task: &instance.tasks[i],
                allowed: &allowed[i],
                before: if forward { offset[i] - from } else { 0.0 },
                after: if forward { 0.0 } else { offset[i] - from },
            })
            .collect();
        best = best.max(from + crowd::shortest(instance, &items, best - from));
        best = best.max(from + sets.exact(instance, &order[..end], &items, best - from));
        tried += 1;
        if tried == sets.crowds {
            break;
        }
    }
    best
}

/// The same for all nodes between a few heads and tails, when all must end by `limit`.
fn crowded(instance: &Instance, allowed: &[Vec<bool>], ends: &Ends, limit: f64) -> bool {
    let n = instance.tasks.len();
    if n > ANCESTORS_MAX {
        return false;
    }
    let few = |values: &[f64]| {
        let all = thresholds(values);
        let step = all.len().div_ceil(CORNERS).max(1);
        all.into_iter().step_by(step).collect::<Vec<f64>>()
    };
    for r in few(&ends.head) {
        for q in few(&ends.tail) {
            let items: Vec<Item<'_>> = (0..n)
                .filter(|&i| ends.head[i] >= r && ends.tail[i] >= q)
                .map(|i| Item {
                    task: &instance.tasks[i],
                    allowed: &allowed[i],
                    before: ends.head[i] - r,
                    after: ends.tail[i] - q,
                })
                .collect();
            if limit > r + q && crowd::overfull(instance, &items, limit - r - q) {
                return true;
            }
        }
    }
    false
}

/// All of `set` must run after its earliest `offset`, and nothing else before the node may start.
fn gathered(
    instance: &Instance,
    set: &[u32],
    duals: &[Dual],
    fastest: &[f64],
    offset: &[f64],
) -> f64 {
    if set.len() < 2 {
        return 0.0;
    }
    let mut order: Vec<usize> = set.iter().map(|&i| i as usize).collect();
    order.sort_by(|a, b| offset[*b].total_cmp(&offset[*a]));
    let mut best = 0.0f64;
    for dual in duals {
        let mut sum = 0.0;
        for &i in &order {
            sum += dual.energy[i];
            best = best.max(offset[i] + dual.length(sum));
        }
    }
    // Whole nodes in whole slots, for all of them from the beginning of the earliest.
    let start = order.last().map_or(0.0, |&i| offset[i]);
    best.max(start + packed(instance, &order, fastest))
}

/// Makespan from what must fit between each pair of a head and a tail.
fn between(
    instance: &Instance,
    duals: &[Dual],
    head: &[f64],
    tail: &[f64],
    fastest: &[f64],
) -> f64 {
    let n = instance.tasks.len();
    let path = (0..n).map(|i| head[i] + fastest[i] + tail[i]).fold(0.0, f64::max);
    let mut best = path;
    let mut by_head: Vec<usize> = (0..n).collect();
    by_head.sort_by(|a, b| head[*b].total_cmp(&head[*a]));
    let (mut heads, mut tails) = (thresholds(head), thresholds(tail));
    if n > 4 * ANCESTORS_MAX {
        heads.truncate(THRESHOLDS / 4);
        tails.truncate(THRESHOLDS / 4);
    }
    for &q in &tails {
        let kept: Vec<usize> = by_head.iter().copied().filter(|&i| tail[i] >= q).collect();
        for dual in duals {
            let mut sum = 0.0;
            for &i in &kept {
                sum += dual.energy[i];
                best = best.max(head[i] + q + dual.length(sum));
            }
        }
        for &r in &heads {
            let end = kept.partition_point(|&i| head[i] >= r);
            if end > 1 {
                best = best.max(r + q + packed(instance, &kept[..end], fastest));
            }
        }
    }
    best
}

/// Is there an interval into which more must fall than fits, when all must end by `limit`? Here nodes
/// that lie across its edges count with what they cannot keep out.
fn overfull(
    instance: &Instance,
    duals: &[Dual],
    allowed: &[Vec<bool>],
    head: &[f64],
    tail: &[f64],
    limit: f64,
) -> bool {
    let n = instance.tasks.len();
    if n > ANCESTORS_MAX {
        return false;
    }
    let rooms: Vec<Room<'_>> = (0..n)
        .map(|i| Room { allowed: &allowed[i], head: head[i], latest: limit - tail[i] })
        .collect();
    let sparse = |values: &[f64]| {
        let all = thresholds(values);
        let step = all.len().div_ceil(EDGES).max(1);
        all.into_iter().step_by(step).collect::<Vec<f64>>()
    };
    let ends: Vec<f64> = sparse(tail).into_iter().map(|q| limit - q).collect();
    for from in sparse(head) {
        for &to in ends.iter().filter(|to| **to > from) {
            for dual in duals {
                let sum: f64 = (0..n).map(|i| dual.inside(instance, i, &rooms[i], from, to)).sum();
                if dual.length(sum) > (to - from) * (1.0 + 1e-9) {
                    return true;
                }
            }
        }
    }
    false
}

/// A few values spread over the distinct ones, the smallest included.
fn thresholds(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let step = sorted.len().div_ceil(THRESHOLDS).max(1);
    sorted.into_iter().step_by(step).collect()
}

/// Whole nodes in whole slots, and starts in whole windows.
///
/// Of the `k*m + 1` longest nodes one of `m` slots runs `k + 1`. Of `n` starts with `w` a window,
/// `n - k*w` come `k` windows after the first, and one of them is at least the `k*w + 1`-th longest.
fn packed(instance: &Instance, set: &[usize], fastest: &[f64]) -> f64 {
    let counted = counted(instance, set, fastest);
    let (slots, starts) = instance.room(set);
    if slots.is_none() && starts.is_none() {
        return counted;
    }
    let mut lengths: Vec<f64> = set.iter().map(|&i| fastest[i]).collect();
    lengths.sort_by(|a, b| b.total_cmp(a));
    let mut best = lengths.first().copied().unwrap_or(0.0).max(counted);
    if let Some(m) = slots {
        let mut k = 1;
        while k * m < lengths.len() {
            let last = k * m;
            let sum: f64 = lengths[last.saturating_sub(k)..=last].iter().sum();
            best = best.max(sum);
            k += 1;
        }
    }
    if let Some(w) = starts {
        let mut windows = 0.0;
        for length in lengths.iter().step_by(w.max(1)) {
            best = best.max(windows * 60_000.0 + length);
            windows += 1.0;
        }
    }
    best
}

/// The shortest time in which whole pools could run as many nodes as there are.
///
/// A meter whose shortest node of the set takes `d` ends at most `slots * floor(T / d)` of them by
/// `T`, and starts at most `requests * (floor((T - d) / 60 s) + 1)`. This is asked for all nodes, and
/// for the longer half and quarter of them.
fn counted(instance: &Instance, set: &[usize], fastest: &[f64]) -> f64 {
    /// Sets that are looked at: this part of the nodes, the longest ones.
    const PARTS: [usize; 3] = [1, 2, 4];
    let mut order = set.to_vec();
    order.sort_by(|a, b| fastest[*b].total_cmp(&fastest[*a]));
    let mut shortest = vec![f64::INFINITY; instance.meters.len()];
    let (mut best, mut seen) = (0.0f64, 0);
    for part in PARTS.into_iter().rev() {
        let end = order.len() / part;
        for &i in &order[seen..end] {
            for choice in &instance.tasks[i].choices {
                shortest[choice.meter] = shortest[choice.meter].min(choice.ms);
            }
        }
        seen = end;
        if end > 1 {
            best = best.max(enough(instance, &shortest, end));
        }
    }
    best
}

/// The longest time by which the meters cannot have run `count` nodes of at least these lengths.
fn enough(instance: &Instance, shortest: &[f64], count: usize) -> f64 {
    /// Bisection steps.
    const STEPS: usize = 24;
    let meters: Vec<(f64, Option<u32>, Option<u32>)> = instance
        .meters
        .iter()
        .zip(shortest)
        .filter(|(_, d)| d.is_finite())
        .map(|(&(slots, starts), &d)| {
            (d.max(1.0), slots.filter(|n| *n > 0), starts.filter(|n| *n > 0))
        })
        .collect();
    if meters.iter().any(|(_, slots, starts)| slots.is_none() && starts.is_none()) {
        return 0.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of nodes")]
    let wanted = count as f64;
    let holds = |t: f64| {
        let sum: f64 = meters
            .iter()
            .filter(|(d, ..)| *d <= t)
            .map(|&(d, slots, starts)| {
                let slots = slots.map_or(f64::INFINITY, |n| f64::from(n) * (t / d + 1e-9).floor());
                let starts = starts.map_or(f64::INFINITY, |n| {
                    f64::from(n) * (((t - d) / 60_000.0 + 1e-9).floor() + 1.0)
                });
                slots.min(starts)
            })
            .sum();
        sum >= wanted
    };
    let mut high = meters.iter().map(|(d, ..)| *d).fold(1.0, f64::max);
    while !holds(high) {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if holds(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    low
}
