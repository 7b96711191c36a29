//! Prices of the capacities: any prices give a valid bound, good ones a tight one.
//!
//! With `y` a split of 1 over the resources, a task's energy is its cheapest choice at the price
//! `amount * y / rate`. Over any interval of length L the energies of what runs wholly inside add up
//! to at most `L + burst`, since each resource lets through at most `rate * L + burst`.

use super::Instance;

/// Iterations of the price search.
const ROUNDS: usize = 40;
/// Subsets that get prices of their own.
const SUBSETS: usize = 8;

/// One set of prices, applied.
#[derive(Debug, Clone)]
pub(super) struct Dual {
    /// Per task, milliseconds of the whole capacity.
    pub(super) energy: Vec<f64>,
    /// What full windows let through at once, in the same unit.
    pub(super) burst: f64,
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

fn burst(instance: &Instance, y: &[f64]) -> f64 {
    instance.resources.iter().zip(y).map(|(r, y)| y * r.burst / r.rate).sum()
}

/// Multiplicative search for the prices that make the energy of a subset largest.
fn optimise(instance: &Instance, allowed: &[Vec<bool>], set: &[usize], start: &[f64]) -> Vec<f64> {
    let mut y = start.to_vec();
    let mut best = (f64::NEG_INFINITY, y.clone());
    let mut eta = 0.7;
    for _ in 0..ROUNDS {
        let mut gradient: Vec<f64> = instance.resources.iter().map(|r| -r.burst / r.rate).collect();
        let mut value = -burst(instance, &y);
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
        for (y, g) in y.iter_mut().zip(&gradient) {
            *y = (*y * (eta * g / scale).exp()).max(1e-12);
        }
        let sum: f64 = y.iter().sum();
        y.iter_mut().for_each(|y| *y /= sum);
        eta *= 0.93;
    }
    best.1
}

/// Prices for all tasks and for a few subsets that a bottleneck may lie in.
pub(super) fn collect(instance: &Instance, allowed: &[Vec<bool>], fastest: &[f64]) -> Vec<Dual> {
    let (n, count) = (instance.tasks.len(), instance.resources.len());
    if count == 0 {
        return Vec::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let even = vec![1.0 / count as f64; count];
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
    let mut duals: Vec<Dual> = Vec::new();
    let mut add = |y: &[f64]| {
        let energies = (0..n).map(|task| energy(instance, &allowed[task], task, y).0).collect();
        duals.push(Dual { energy: energies, burst: burst(instance, y) });
    };
    for set in &sets {
        add(&optimise(instance, allowed, set, &even));
    }
    // Slots alone: what short sets are bound by, where bursts swallow the windows.
    let slots: Vec<f64> =
        instance.resources.iter().map(|r| if r.burst > 0.0 { 1e-12 } else { 1.0 }).collect();
    let sum: f64 = slots.iter().sum();
    if slots.iter().any(|s| *s >= 1.0) && slots.iter().any(|s| *s < 1.0) {
        let start: Vec<f64> = slots.iter().map(|s| s / sum).collect();
        add(&optimise(instance, allowed, &sets[0], &start));
    }
    duals
}
