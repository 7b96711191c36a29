//! Simulated annealing on (pool, order), aimed at the chain of nodes that makes the end late.

use super::super::Millis;
use super::super::simulate::Trace;
use super::evaluate::{Model, NOBODY, Schedule, Scratch, evaluate};

/// Schedules within this factor of the lower bound are good enough.
const GOOD_ENOUGH: f64 = 1.004;
/// First temperature as a share of the makespan.
const WARM: f64 = 0.02;

/// A schedule to begin with.
pub(super) struct Plan {
    pub(super) makespan: Millis,
    pub(super) done: Vec<bool>,
    pool: Vec<usize>,
    start: Vec<Millis>,
}

impl Plan {
    pub(super) fn of_trace(n: usize, trace: &Trace, done: Vec<bool>) -> Self {
        let (mut pool, mut start) = (vec![0; n], vec![0; n]);
        for entry in &trace.entries {
            pool[entry.node] = entry.pool;
            start[entry.node] = entry.start;
        }
        Self { makespan: trace.makespan, done, pool, start }
    }
}

/// What the search found: a pool per node, and the nodes in order.
pub(super) struct Found {
    pub(super) pool: Vec<usize>,
    pub(super) order: Vec<usize>,
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

struct State {
    choice: Vec<u32>,
    key: Vec<u64>,
}

/// Improves a plan within `budget` node placements; `None` when the pass is as good.
pub(super) fn improve(
    model: &Model,
    first: &Plan,
    floor: Millis,
    budget: usize,
    seed: u64,
) -> Option<Found> {
    let nodes: Vec<usize> =
        (0..model.options.len()).filter(|&i| !model.options[i].is_empty()).collect();
    let target = good_enough(floor);
    if nodes.len() < 2 || first.makespan <= target {
        return None;
    }
    let mut order = nodes.clone();
    order.sort_by_key(|&i| (first.start[i], i));
    let mut state =
        State { choice: vec![0; model.options.len()], key: vec![0; model.options.len()] };
    for (place, &i) in order.iter().enumerate() {
        // Room between two places, so that a node can be moved in between.
        state.key[i] = (place as u64 + 1) << 32;
        let at = model.options[i].iter().position(|o| o.pool == first.pool[i]).unwrap_or(0);
        state.choice[i] = u32::try_from(at).unwrap_or(0);
    }
    let mut rng = Rng(seed);
    let mut current = Schedule::default();
    let mut scratch = Scratch::default();
    evaluate(model, &state.choice, &state.key, Millis::MAX, &mut scratch, &mut current);
    let mut best = (current.makespan, state.choice.clone(), state.key.clone());
    let mut next = Schedule::default();
    let mut undo: Vec<(usize, u32, u64)> = Vec::new();
    let rounds = budget / nodes.len();
    let mut chain = chain_of(&current, &nodes);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a temperature"
    )]
    for round in 0..rounds {
        if best.0 <= target {
            break;
        }
        undo.clear();
        mutate(model, &nodes, &chain, &current, &mut state, &mut rng, &mut undo);
        if undo.is_empty() {
            continue;
        }
        let left = 1.0 - round as f64 / rounds as f64;
        let heat = WARM * best.0 as f64 * left * left;
        // The chance is drawn first, so that a hopeless schedule need not be finished.
        let bearable = -heat * rng.unit().max(1e-12).ln();
        let limit = current.makespan as f64 * 1.005 + bearable;
        let whole =
            evaluate(model, &state.choice, &state.key, limit as Millis, &mut scratch, &mut next);
        let worse = (next.makespan - current.makespan) as f64
            + 0.02 * (next.sum - current.sum) as f64 / nodes.len() as f64;
        if whole && worse <= bearable {
            std::mem::swap(&mut current, &mut next);
            chain = chain_of(&current, &nodes);
            if current.makespan < best.0 {
                best = (current.makespan, state.choice.clone(), state.key.clone());
            }
        } else {
            for &(i, choice, key) in undo.iter().rev() {
                state.choice[i] = choice;
                state.key[i] = key;
            }
        }
    }
    if best.0 >= first.makespan {
        return None;
    }
    let (_, choice, key) = best;
    order.sort_by_key(|&i| (key[i], i));
    let pool = (0..model.options.len())
        .map(|i| model.options[i].get(choice[i] as usize).map_or(usize::MAX, |o| o.pool))
        .collect();
    Some(Found { pool, order })
}

#[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "milliseconds")]
fn good_enough(floor: Millis) -> Millis {
    (floor as f64 * GOOD_ENOUGH) as Millis
}

/// From the node that ends last back to the beginning: who let whom start.
fn chain_of(schedule: &Schedule, nodes: &[usize]) -> Vec<usize> {
    let mut chain = Vec::new();
    let mut at = nodes.iter().copied().max_by_key(|&i| schedule.end[i]);
    while let Some(i) = at {
        chain.push(i);
        if chain.len() > nodes.len() {
            break;
        }
        at = match schedule.cause[i] {
            NOBODY => None,
            cause => Some(cause as usize),
        };
    }
    chain
}

fn mutate(
    model: &Model,
    nodes: &[usize],
    chain: &[usize],
    now: &Schedule,
    state: &mut State,
    rng: &mut Rng,
    undo: &mut Vec<(usize, u32, u64)>,
) {
    let mut set = |state: &mut State, i: usize, choice: u32, key: u64| {
        undo.push((i, state.choice[i], state.key[i]));
        state.choice[i] = choice;
        state.key[i] = key;
    };
    let c = if rng.below(8) == 0 {
        nodes[rng.below(nodes.len())]
    } else {
        chain[rng.below(chain.len())]
    };
    let options = model.options[c].len();
    let other = |rng: &mut Rng, i: usize, state: &State| -> Option<u32> {
        let count = model.options[i].len();
        if count < 2 {
            return None;
        }
        // The first options are the ones that the whole can best afford.
        let mut step = rng.below(count - 1);
        if rng.below(2) == 0 {
            step = step.min(rng.below(count - 1));
        }
        let at = if step >= state.choice[i] as usize { step + 1 } else { step };
        u32::try_from(at).ok()
    };
    match rng.below(10) {
        // Another pool.
        0..=3 if options > 1 => {
            if let Some(choice) = other(rng, c, state) {
                set(state, c, choice, state.key[c]);
            }
        }
        // Change places and pools with another node.
        4 | 5 => {
            let x = nodes[rng.below(nodes.len())];
            let pool = |i: usize, s: &State| model.options[i][s.choice[i] as usize].pool;
            let find = |i: usize, pool: usize| {
                model.options[i]
                    .iter()
                    .position(|o| o.pool == pool)
                    .and_then(|p| u32::try_from(p).ok())
            };
            let (pc, px) = (pool(c, state), pool(x, state));
            if x != c
                && let (Some(for_c), Some(for_x)) = (find(c, px), find(x, pc))
            {
                let (kc, kx) = (state.key[c], state.key[x]);
                set(state, c, for_c, kx);
                set(state, x, for_x, kc);
            }
        }
        // Move a node out of the way of the chain.
        6 | 7 => {
            let meter = |i: usize, s: &State| model.options[i][s.choice[i] as usize].meter;
            let x = nodes[rng.below(nodes.len())];
            if x != c && meter(x, state) == meter(c, state) && now.start[x] <= now.start[c] {
                if rng.below(2) == 0
                    && let Some(choice) = other(rng, x, state)
                {
                    set(state, x, choice, state.key[x]);
                } else {
                    let key = state.key[c].saturating_add(1 + rng.next() % 1_000_000);
                    set(state, x, state.choice[x], key);
                }
            }
        }
        // Earlier in the order, perhaps elsewhere too.
        _ => {
            let x = nodes[rng.below(nodes.len())];
            if x != c {
                let key = state.key[x].saturating_sub(1 + rng.next() % 1_000_000);
                let choice = if rng.below(4) == 0 { other(rng, c, state) } else { None };
                let choice = choice.unwrap_or(state.choice[c]);
                set(state, c, choice, key);
            }
        }
    }
}
