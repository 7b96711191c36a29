//! Starts that no schedule has which ends by a limit.
//!
//! At given prices every node pays at least its cheapest choice, and all together at most what the
//! capacities are worth. What is left between the two is all that one node may pay beyond its
//! cheapest: a start that costs more is in no schedule that ends by the limit. Without it others are
//! not possible either (dependencies, whole nodes between heads and tails), and the cheapest choices
//! that remain cost more: so prices and starts narrow each other until nothing is left, or no more is
//! found.

use super::super::Ends;
use super::{Looked, Step, Timed};

/// Cells looked at in all rounds together.
const WORK: usize = if cfg!(debug_assertions) { 1_000_000 } else { 60_000_000 };
/// Rounds for one limit at most, and without progress.
const ROUNDS: usize = 600;
const PATIENCE: usize = 60;
/// First rise of the limit, and the smallest that is worth a try.
const RISE: f64 = 0.04;
const LEAST: f64 = 0.002;
/// A narrowing by this share of all starts is worth deriving the rest again.
const WORTH: f64 = 0.01;

/// Derives heads and tails again from those given, all for one limit; `None`: refuted.
pub(in super::super) type Tighten<'a> = &'a dyn Fn(f64, Ends) -> Option<Ends>;

#[expect(clippy::cast_precision_loss, reason = "cells of a small grid")]
impl Timed<'_> {
    /// The first (or last) start of a choice that costs at most `most`.
    fn bounds(
        &self,
        node: usize,
        choice: usize,
        most: f64,
        scratch: &mut [Vec<f64>; 3],
    ) -> Option<(f64, f64)> {
        let choice = &self.nodes[node].choices[choice];
        let (low, high) = self.fill(node, choice, scratch);
        let [begin, end, window] = &*scratch;
        let part = choice.ms - choice.ms.floor();
        let cost = |t: f64| super::at(begin, t) + super::at(end, t + choice.ms);
        // The cost is a line between these, for one cell.
        let pieces = |b: usize| {
            let cell = b as f64;
            let inner = cell + 1.0 - part;
            let cut = |t: f64| t.clamp(choice.from, choice.to);
            let points = [cut(cell), cut(inner), cut(cell + 1.0)];
            points.map(|t| (t, cost(t) + window[b]))
        };
        let first = (low..=high)
            .find_map(|b| pieces(b).windows(2).find_map(|pair| crossing(pair[0], pair[1], most)))?;
        let last = (low..=high).rev().find_map(|b| {
            pieces(b).windows(2).rev().find_map(|pair| crossing(pair[1], pair[0], most))
        })?;
        Some((first, last))
    }

    /// Takes out the starts that are too dear; how much went, as a share, or `None` when some node
    /// has no start left.
    fn narrow(&mut self, looked: &Looked, scratch: &mut [Vec<f64>; 3]) -> Option<f64> {
        let left = (looked.worth - looked.value).max(0.0) + looked.dust;
        let (mut before, mut after) = (0.0, 0.0);
        for node in 0..self.nodes.len() {
            let most = looked.taken[node].cost + left;
            for at in 0..self.nodes[node].choices.len() {
                let (from, to) =
                    (self.nodes[node].choices[at].from, self.nodes[node].choices[at].to);
                if to < from {
                    continue;
                }
                before += to - from + 1.0;
                let found = self.bounds(node, at, most, scratch);
                let choice = &mut self.nodes[node].choices[at];
                match found {
                    Some((first, last)) => {
                        choice.from = first.max(from);
                        choice.to = last.min(to).max(choice.from);
                        after += choice.to - choice.from + 1.0;
                    }
                    None => choice.to = choice.from - 1.0,
                }
            }
        }
        self.propagate().then(|| (before - after) / before.max(1.0))
    }

    /// Carries heads forward and tails backward along the dependencies; `false`: a node has no start.
    fn propagate(&mut self) -> bool {
        const DUST: f64 = 1e-9;
        let n = self.nodes.len();
        let mut end = vec![0.0f64; n];
        for node in 0..n {
            let ready = self.instance.tasks[node].after.iter().map(|&d| end[d]).fold(0.0, f64::max);
            let mut first = f64::INFINITY;
            for choice in &mut self.nodes[node].choices {
                if choice.to < choice.from {
                    continue;
                }
                choice.from = choice.from.max(ready * (1.0 - DUST));
                if choice.to < choice.from {
                    continue;
                }
                first = first.min(choice.from + choice.ms);
            }
            if first.is_infinite() {
                return false;
            }
            end[node] = first;
        }
        let mut latest = vec![f64::INFINITY; n];
        for node in (0..n).rev() {
            let mut last = f64::NEG_INFINITY;
            for choice in &mut self.nodes[node].choices {
                if choice.to < choice.from {
                    continue;
                }
                choice.to = choice.to.min(latest[node] * (1.0 + DUST) - choice.ms);
                if choice.to >= choice.from {
                    last = last.max(choice.to);
                }
            }
            if last.is_infinite() {
                return false;
            }
            for &d in &self.instance.tasks[node].after {
                latest[d] = latest[d].min(last);
            }
        }
        true
    }

    /// Heads and tails, in milliseconds, as the starts are now.
    fn ends(&self, limit: f64) -> Ends {
        let cell = self.grid.cell;
        let open = |node: &super::Node| {
            let choices = node.choices.iter().filter(|c| c.to >= c.from);
            choices.fold((f64::INFINITY, 0.0f64), |(head, end), c| {
                (head.min(c.from), end.max(c.to + c.ms))
            })
        };
        let both = self.nodes.iter().map(open);
        let (head, tail) =
            both.map(|(head, end)| (head * cell, (limit - end * cell).max(0.0))).unzip();
        Ends { head, tail }
    }

    /// Takes over stronger heads and tails.
    fn take(&mut self, limit: f64, ends: &Ends) {
        let cell = self.grid.cell;
        for (i, node) in self.nodes.iter_mut().enumerate() {
            let (head, end) = (ends.head[i] / cell, (limit - ends.tail[i]) / cell);
            for choice in &mut node.choices {
                choice.from = choice.from.max(head * (1.0 - 1e-9));
                choice.to = choice.to.min((end - choice.ms) * (1.0 + 1e-9));
            }
        }
    }

    /// Can it be shown that nothing ends by `limit`?
    fn refutes(
        &mut self,
        limit: f64,
        tighten: Tighten<'_>,
        work: &mut usize,
        scratch: &mut [Vec<f64>; 3],
    ) -> bool {
        self.open(limit / self.grid.cell);
        let cost = self.cost();
        let (mut least, mut idle, mut part) = (f64::INFINITY, 0, 1.0);
        let mut narrowed = f64::INFINITY;
        let mut gone = WORTH;
        for _ in 0..ROUNDS {
            *work = work.saturating_sub(cost);
            if *work == 0 || idle > PATIENCE {
                return false;
            }
            let Some(looked) = self.look(limit, scratch) else { return true };
            let left = (looked.worth - looked.value) / looked.worth.max(1e-12);
            if !left.is_finite() {
                return false;
            }
            idle += 1;
            if left < least * 0.99 {
                (least, idle) = (left, 0);
            } else if idle % 12 == 0 {
                part = (part * 0.7f64).max(0.05);
            }
            if left < narrowed * 0.9 {
                narrowed = left;
                *work = work.saturating_sub(cost * 2);
                let Some(share) = self.narrow(&looked, scratch) else { return true };
                gone += share;
                if gone > WORTH {
                    gone = 0.0;
                    let Some(ends) = tighten(limit, self.ends(limit)) else { return true };
                    self.take(limit, &ends);
                    if !self.propagate() {
                        return true;
                    }
                }
                if share > WORTH {
                    // What was cheapest may be gone.
                    (least, narrowed) = (f64::INFINITY, narrowed * 1.2);
                    idle = 0;
                    continue;
                }
            }
            self.step(limit, &mut Step::Part(part), &looked);
        }
        false
    }
}

/// Where a line from `a` to `b` first is at most `most`.
fn crossing(a: (f64, f64), b: (f64, f64), most: f64) -> Option<f64> {
    if a.1 <= most {
        return Some(a.0);
    }
    (b.1 <= most).then(|| {
        let part = (a.1 - most) / (a.1 - b.1);
        a.0 + (b.0 - a.0) * (part - 1e-9).clamp(0.0, 1.0)
    })
}

/// The largest limit that was refuted, from `low` on.
pub(super) fn squeeze(
    timed: &mut Timed<'_>,
    tighten: Tighten<'_>,
    mut low: f64,
    known: f64,
) -> f64 {
    let cells = timed.grid.cells;
    let mut scratch = [vec![0.0; cells + 2], vec![0.0; cells + 2], vec![0.0; cells + 2]];
    let (mut work, mut rise) = (WORK, RISE);
    while work > 0 && rise >= LEAST && low < known * 0.999 {
        let limit = (low * (1.0 + rise)).min(known * 0.9995);
        if timed.refutes(limit, tighten, &mut work, &mut scratch) {
            low = limit;
            rise *= 1.4;
        } else {
            rise *= 0.5;
        }
    }
    low
}
