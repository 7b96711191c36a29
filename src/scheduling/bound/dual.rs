//! Prices of the capacities: any prices give a valid bound, good ones a tight one.
//!
//! With prices `y`, a task's energy is its cheapest choice at `amount * y / rate`. What runs wholly
//! inside an interval of length L has at most the energy `sum(y * let_through(L) / rate)`, where slots
//! let through `rate * L`, and a window of 60 s a full window for every 60 s begun. Read backward:
//! so much energy needs at least so long an interval ([`Dual::length`]).

use super::Instance;

const MINUTE: f64 = 60_000.0;
const DAY: f64 = 86_400_000.0;
/// Iterations of the price search, and of the one for all nodes over the whole time.
const ROUNDS: usize = 25;
const MORE_ROUNDS: usize = 120;
/// Tasks that prices for a schedule are looked for with.
const SAMPLE: usize = 1_000;
/// Nodes times capacities beyond which fewer prices are looked for.
const MANY: usize = 100_000;
/// Subsets that get prices of their own.
const SUBSETS: usize = 8;

/// One set of prices, applied.
#[derive(Debug, Clone)]
pub(super) struct Dual {
    /// Per task, milliseconds of the whole capacity.
    pub(super) energy: Vec<f64>,
    /// Energy that slots let through per millisecond.
    slope: f64,
    /// Energy that full minute windows let through at each step.
    step: f64,
    /// Energy that daily windows let through per day.
    day: f64,
    /// No start later than this before the end of the interval.
    last: f64,
    /// The prices over the rates, per resource.
    price: Vec<f64>,
}

/// What a task may do for a limit of the makespan.
pub(super) struct Room<'a> {
    pub(super) allowed: &'a [bool],
    pub(super) head: f64,
    /// The limit less the tail: the latest end.
    pub(super) latest: f64,
}

impl Dual {
    /// The energy that a task cannot keep out of `[from, to]`, wherever it runs between its head and
    /// its tail: whole when it must lie inside, else what sticks out of neither side.
    pub(super) fn inside(
        &self,
        instance: &Instance,
        task: usize,
        room: &Room<'_>,
        from: f64,
        to: f64,
    ) -> f64 {
        let choices = instance.tasks[task].choices.iter().zip(room.allowed);
        let mut best = f64::INFINITY;
        for (choice, _) in choices.filter(|(_, allowed)| **allowed) {
            let early = room.head + choice.ms - from;
            let late = to - (room.latest - choice.ms);
            let slot = choice.ms.min(to - from).min(early).min(late).max(0.0);
            let starts_inside =
                room.head >= from && room.latest - choice.ms <= (to - self.last).max(from);
            let mut energy = 0.0;
            for &(r, amount) in &choice.uses {
                if instance.resources[r].burst <= 0.0 {
                    energy += slot * self.price[r];
                } else if starts_inside {
                    energy += amount * self.price[r];
                }
            }
            best = best.min(energy);
            if best <= 0.0 {
                break;
            }
        }
        if best.is_finite() { best } else { 0.0 }
    }

    /// The shortest interval that lets this energy through.
    pub(super) fn length(&self, energy: f64) -> f64 {
        let energy = energy * (1.0 - 1e-9) - self.day;
        if energy <= 0.0 {
            return 0.0;
        }
        if self.step <= 0.0 && self.slope <= 0.0 {
            return 0.0;
        }
        // Beyond many windows the steps are a line, from below.
        let mut k = if self.step > 0.0 {
            let per_window = self.step + self.slope * MINUTE + self.day;
            (energy / per_window - 3.0).floor().max(0.0)
        } else {
            0.0
        };
        for _ in 0..8 {
            // Inside step k: starts may lie in k + 1 windows.
            let from = if k > 0.0 { self.last + k * MINUTE } else { 0.0 };
            let left = energy - self.step * (k + 1.0);
            let at = if left <= 0.0 {
                from
            } else if self.slope > 0.0 {
                from.max(left / self.slope)
            } else {
                f64::INFINITY
            };
            if at < self.last + (k + 1.0) * MINUTE || self.step <= 0.0 {
                return if at > DAY { 0.0 } else { at };
            }
            k += 1.0;
        }
        self.last + k * MINUTE
    }
}

fn energy(instance: &Instance, allowed: &[bool], task: usize, y: &[f64]) -> (f64, usize) {
    let mut best = (f64::INFINITY, 0);
    for (at, choice) in instance.tasks[task].choices.iter().enumerate() {
        if !allowed[at] {
            continue;
        }
        let price = choice
            .uses
            .iter()
            .map(|&(r, amount)| amount * y[r] / instance.resources[r].rate)
            .sum::<f64>();
        if price < best.0 {
            best = (price, at);
        }
    }
    if best.0.is_finite() { best } else { (0.0, 0) }
}

/// What each resource lets through in an interval, over its rate.
fn let_through(instance: &Instance, horizon: f64, last: f64) -> Vec<f64> {
    instance
        .resources
        .iter()
        .map(|r| {
            if r.burst <= 0.0 {
                horizon
            } else {
                let span = r.burst / r.rate;
                span * (((horizon - last).max(0.0) / span).floor() + 1.0)
            }
        })
        .collect()
}

/// What has a price at all.
#[derive(Clone, Copy, PartialEq)]
enum Priced {
    All,
    /// The work over the slots.
    Slots,
    /// The requests and tokens over the windows.
    Windows,
}

impl Priced {
    fn holds(self, resource: &super::Resource) -> bool {
        match self {
            Self::All => true,
            Self::Slots => resource.burst <= 0.0,
            Self::Windows => resource.burst > 0.0,
        }
    }
}

/// Multiplicative search for the prices that make the energy of a subset largest.
fn optimise(
    instance: &Instance,
    allowed: &[Vec<bool>],
    set: &[usize],
    through: &[f64],
    (priced, rounds): (Priced, usize),
) -> Vec<f64> {
    let count = instance.resources.iter().filter(|r| priced.holds(r)).count();
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let first = 1.0 / count.max(1) as f64;
    let mut y: Vec<f64> =
        instance.resources.iter().map(|r| if priced.holds(r) { first } else { 0.0 }).collect();
    if count == 0 {
        return y;
    }
    let mut best = (f64::NEG_INFINITY, y.clone());
    let mut eta = 0.7;
    let cool = 0.16f64.powf(1.0 / rounds as f64);
    for _ in 0..rounds {
        let mut gradient: Vec<f64> = through.iter().map(|t| -t).collect();
        let mut value: f64 = -through.iter().zip(&y).map(|(t, y)| t * y).sum::<f64>();
        for &task in set {
            let (price, choice) = energy(instance, &allowed[task], task, &y);
            value += price;
            if let Some(choice) = instance.tasks[task].choices.get(choice) {
                for &(r, amount) in &choice.uses {
                    gradient[r] += amount / instance.resources[r].rate;
                }
            }
        }
        if value > best.0 {
            best = (value, y.clone());
        }
        let scale = gradient.iter().fold(1e-9f64, |m, g| m.max(g.abs()));
        for (y, g) in y.iter_mut().zip(&gradient).filter(|(y, _)| **y > 0.0) {
            *y = (*y * (eta * g / scale).exp()).max(1e-12);
        }
        let sum: f64 = y.iter().sum();
        y.iter_mut().for_each(|y| *y /= sum);
        eta *= cool;
    }
    best.1
}

/// What each choice of each task costs more than its cheapest, at the best prices for all of them
/// together over `horizon`, in milliseconds of the whole capacity.
pub(super) fn surplus(instance: &Instance, horizon: f64) -> Vec<Vec<f64>> {
    let n = instance.tasks.len();
    if instance.resources.is_empty() {
        return instance.tasks.iter().map(|t| vec![0.0; t.choices.len()]).collect();
    }
    let allowed: Vec<Vec<bool>> =
        instance.tasks.iter().map(|t| vec![true; t.choices.len()]).collect();
    let sample: Vec<usize> = (0..n).step_by(n.div_ceil(SAMPLE).max(1)).collect();
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks")]
    let share = sample.len() as f64 / n.max(1) as f64;
    let through: Vec<f64> =
        let_through(instance, horizon, 0.0).into_iter().map(|t| t * share).collect();
    let y = optimise(instance, &allowed, &sample, &through, (Priced::All, ROUNDS));
    instance
        .tasks
        .iter()
        .map(|task| {
            let price = |uses: &[(usize, f64)]| -> f64 {
                uses.iter().map(|&(r, amount)| amount * y[r] / instance.resources[r].rate).sum()
            };
            let prices: Vec<f64> = task.choices.iter().map(|c| price(&c.uses)).collect();
            let least = prices.iter().copied().fold(f64::INFINITY, f64::min);
            prices.into_iter().map(|p| p - least).collect()
        })
        .collect()
}

/// Prices for all tasks and for a few subsets that a bottleneck may lie in, each best for an interval
/// of about `horizon`.
pub(super) fn collect(
    instance: &Instance,
    allowed: &[Vec<bool>],
    fastest: &[f64],
    horizon: f64,
) -> Vec<Dual> {
    let (n, count) = (instance.tasks.len(), instance.resources.len());
    if count == 0 {
        return Vec::new();
    }
    let last = fastest.iter().copied().fold(f64::INFINITY, f64::min);
    let mut sets: Vec<Vec<usize>> = vec![(0..n).collect()];
    // Tasks with the same choices compete for the same pools.
    let mut classes: std::collections::BTreeMap<Vec<usize>, Vec<usize>> =
        std::collections::BTreeMap::new();
    for (at, task) in instance.tasks.iter().enumerate() {
        let key = task
            .choices
            .iter()
            .enumerate()
            .filter(|(c, _)| allowed[at][*c])
            .map(|(_, c)| c.pool)
            .collect();
        classes.entry(key).or_default().push(at);
    }
    if classes.len() > 1 {
        let mut classes: Vec<Vec<usize>> = classes.into_values().collect();
        let total = |set: &Vec<usize>| set.iter().map(|&i| fastest[i]).sum::<f64>();
        classes.sort_by(|a, b| total(b).total_cmp(&total(a)));
        sets.extend(classes.into_iter().take(SUBSETS));
    }
    // Hundreds of pools: few prices, and only for all nodes.
    let many = n.saturating_mul(count) > MANY;
    if many {
        sets.truncate(1);
    }
    if many {
        // Any prices give a valid bound; a sample finds good ones.
        let step = (n.saturating_mul(count) / MANY).max(1);
        sets[0] = (0..n).step_by(step).collect();
    }
    #[expect(clippy::cast_precision_loss, reason = "a count of tasks")]
    let sampled = sets[0].len() as f64 / n as f64;
    let mut duals: Vec<Dual> = Vec::new();
    for (at, set) in sets.iter().enumerate() {
        let shares = match at {
            0 if many => &[1.0][..],
            0 => &[1.0, 0.5, 0.25],
            _ => &[1.0, 0.4],
        };
        for share in shares {
            let mut through = let_through(instance, horizon * share, last);
            if many {
                through.iter_mut().for_each(|t| *t *= sampled);
            }
            let kinds = match (at, *share) {
                // What binds alone is found soonest alone.
                (0, 1.0) => &[Priced::All, Priced::Slots, Priced::Windows][..],
                _ => &[Priced::All],
            };
            let rounds = if kinds.len() > 1 && !many { MORE_ROUNDS } else { ROUNDS };
            for &priced in kinds {
                let y = optimise(instance, allowed, set, &through, (priced, rounds));
                duals.push(apply(instance, allowed, &y, last));
            }
        }
    }
    duals
}

fn apply(instance: &Instance, allowed: &[Vec<bool>], y: &[f64], last: f64) -> Dual {
    let n = instance.tasks.len();
    let energy = (0..n).map(|task| energy(instance, &allowed[task], task, y).0).collect();
    let (mut slope, mut step, mut day) = (0.0, 0.0, 0.0);
    for (r, y) in instance.resources.iter().zip(y) {
        let span = if r.burst > 0.0 { r.burst / r.rate } else { 0.0 };
        if r.burst <= 0.0 {
            slope += y;
        } else if span > 2.0 * MINUTE {
            day += y * span;
        } else {
            step += y * span;
        }
    }
    let price = instance.resources.iter().zip(y).map(|(r, y)| y / r.rate).collect();
    Dual { energy, slope, step, day, last, price }
}
