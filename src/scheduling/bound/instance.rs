//! What the bound is computed from.

use std::collections::HashMap;

use super::super::Scheduler;
use super::super::select::estimate;
use super::crowd::{halves, large, thirds};

/// Ways to count requests that do not pour into a window.
const COUNTS: [fn(f64) -> f64; 3] = [halves, thirds, large];

/// Length of the windows of input tokens, of output tokens and of both, milliseconds.
const TOKEN_SPANS: [f64; 3] = [60_000.0, 60_000.0, 86_400_000.0];

/// One capacity: slots, or what a window lets through.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resource {
    /// Amount per millisecond in the long run.
    pub rate: f64,
    /// Amount that may come at once on top (a full window).
    pub burst: f64,
}

/// One pool for one node.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Index of the pool.
    pub pool: usize,
    /// Index of its meter.
    pub meter: usize,
    /// Duration in milliseconds.
    pub ms: f64,
    /// Resources that it takes, with the amounts.
    pub uses: Vec<(usize, f64)>,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Indexes of earlier tasks that must be over.
    pub after: Vec<usize>,
    /// Where it may run.
    pub choices: Vec<Choice>,
    /// Index of its set of meters in [`Instance::groups`].
    pub group: usize,
}

impl Task {
    /// Its shortest duration over the choices that are allowed.
    pub(super) fn fastest(&self, allowed: impl Fn(usize) -> bool) -> Option<f64> {
        self.choices
            .iter()
            .enumerate()
            .filter(|(at, _)| allowed(*at))
            .map(|(_, c)| c.ms)
            .min_by(f64::total_cmp)
    }
}

/// Nodes in topological order, and the capacities.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Instance {
    /// The nodes.
    pub tasks: Vec<Task>,
    /// The capacities.
    pub resources: Vec<Resource>,
    /// Slots and starts a minute of each meter.
    pub meters: Vec<(Option<u32>, Option<u32>)>,
    /// The sets of meters that tasks may use.
    pub groups: Vec<Vec<usize>>,
}

impl Instance {
    /// The nodes in `included`, as the scheduler may place them now (its learned limits aside).
    /// `ms(node, pool)` is the duration, `used` further pools of a node that it really ran on.
    pub(in super::super) fn of(
        scheduler: &Scheduler,
        included: impl Fn(usize) -> bool,
        ms: impl Fn(usize, usize) -> f64,
        used: impl Fn(usize) -> Option<usize>,
    ) -> Self {
        let mut this = Self::default();
        let mut first = Vec::new();
        for meter in 0..scheduler.meters.len() {
            let limits = scheduler.meters.limits(super::super::meter::MeterIx(meter));
            this.meters.push((limits.concurrent, limits.requests_per_minute));
            #[expect(clippy::cast_precision_loss, reason = "token counts")]
            let parts = [
                limits.concurrent.map(|n| (f64::from(n), 0.0)),
                limits.requests_per_minute.map(|n| (f64::from(n) / 60_000.0, f64::from(n))),
                limits.requests_per_day.map(|n| (f64::from(n) / 86_400_000.0, f64::from(n))),
                limits.input_tokens_per_minute.map(|n| (n as f64 / 60_000.0, n as f64)),
                limits.output_tokens_per_minute.map(|n| (n as f64 / 60_000.0, n as f64)),
                limits.tokens_per_day.map(|n| (n as f64 / 86_400_000.0, n as f64)),
            ];
            let parts = parts.map(|part| {
                // A limit of nothing is not a capacity to divide by: only what needs none of it
                // passes there.
                part.filter(|(rate, _)| *rate > 0.0).map(|(rate, burst)| {
                    this.resources.push(Resource { rate, burst });
                    this.resources.len() - 1
                })
            });
            first.push(parts);
        }
        // Whole requests in a token window: one further resource per way of counting them.
        let mut whole: HashMap<(usize, usize, usize), usize> = HashMap::new();
        let mut groups: HashMap<Vec<usize>, usize> = HashMap::new();
        let mut position: HashMap<usize, usize> = HashMap::new();
        for &ix in &scheduler.graph.order {
            let node = ix as usize;
            if !included(node) {
                continue;
            }
            let class = &scheduler.classes[scheduler.nodes[node].class];
            let mut pools = class.eligible.clone();
            if let Some(pool) = used(node)
                && !pools.contains(&pool)
            {
                pools.push(pool);
            }
            let choices = pools
                .into_iter()
                .map(|pool| {
                    let need = estimate(&scheduler.specs[node], &scheduler.pools[pool].pool);
                    let ms = ms(node, pool);
                    #[expect(clippy::cast_precision_loss, reason = "token counts")]
                    let amounts = [
                        ms,
                        1.0,
                        1.0,
                        need.input_tokens as f64,
                        need.output_tokens as f64,
                        need.total() as f64,
                    ];
                    let meter = scheduler.meter_of[pool].0;
                    let mut uses: Vec<(usize, f64)> = first[meter]
                        .iter()
                        .zip(amounts)
                        .filter_map(|(resource, amount)| resource.map(|r| (r, amount)))
                        .collect();
                    for (dimension, amount) in amounts.into_iter().enumerate().skip(3) {
                        let Some(window) = first[meter][dimension] else { continue };
                        let part = amount / this.resources[window].burst;
                        for (way, count) in COUNTS.iter().enumerate() {
                            let counted = count(part);
                            if counted > 0.0 {
                                let r =
                                    *whole.entry((meter, dimension, way)).or_insert_with(|| {
                                        let rate = 1.0 / TOKEN_SPANS[dimension - 3];
                                        this.resources.push(Resource { rate, burst: 1.0 });
                                        this.resources.len() - 1
                                    });
                                uses.push((r, counted));
                            }
                        }
                    }
                    Choice { pool, meter, ms, uses }
                })
                .collect();
            let after = scheduler.graph.dependencies[node]
                .iter()
                .filter_map(|d| position.get(&(*d as usize)).copied())
                .collect();
            position.insert(node, this.tasks.len());
            let choices: Vec<Choice> = choices;
            let mut meters: Vec<usize> = choices.iter().map(|c| c.meter).collect();
            meters.sort_unstable();
            meters.dedup();
            let group = *groups.entry(meters).or_insert_with_key(|meters| {
                this.groups.push(meters.clone());
                this.groups.len() - 1
            });
            this.tasks.push(Task { after, choices, group });
        }
        this
    }

    /// Slots, and starts a minute, of all meters that a set may use together; `None` = no limit.
    pub(super) fn room(&self, set: &[usize]) -> (Option<usize>, Option<usize>) {
        let mut groups = vec![false; self.groups.len()];
        for &i in set {
            groups[self.tasks[i].group] = true;
        }
        let mut seen = vec![false; self.meters.len()];
        for (meters, _) in self.groups.iter().zip(&groups).filter(|(_, there)| **there) {
            for &meter in meters {
                seen[meter] = true;
            }
        }
        let (mut slots, mut starts) = (Some(0usize), Some(0usize));
        let add = |sum: Option<usize>, n: Option<u32>| Some(sum?.saturating_add(n? as usize));
        for ((concurrent, a_minute), _) in self.meters.iter().zip(&seen).filter(|(_, seen)| **seen)
        {
            slots = add(slots, *concurrent);
            starts = add(starts, *a_minute);
        }
        (slots.filter(|n| *n > 0), starts.filter(|n| *n > 0))
    }
}
