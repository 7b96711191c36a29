//! The real scheduler under a virtual clock that starts at 0.

mod configured;
mod explain;
pub mod input;
mod report;
mod run;
mod world;

pub use report::{PauseRecord, Simulation, TimelineEntry, prediction_schema};
pub(super) use run::{Attempt, Trace, World, run};
pub use world::{Outage, ServiceModel};

use std::collections::BTreeMap;

use super::{NodeSpec, Options, PoolState, ScheduleError, Scheduler};

/// Waits beyond this are not simulated, milliseconds: thirty days.
const HORIZON: super::Millis = 30 * 24 * 3_600_000;

/// Predicts a run. Deterministic for a seed.
///
/// # Errors
/// When nodes and pools cannot be scheduled at all.
pub fn simulate(
    nodes: Vec<NodeSpec>,
    pools: Vec<(PoolState, ServiceModel)>,
    options: Options,
    seed: u64,
) -> Result<Simulation, ScheduleError> {
    let (states, mut models): (Vec<PoolState>, Vec<_>) = pools
        .into_iter()
        .map(|(state, model)| {
            let id = state.pool.id.clone();
            (state, (id, model))
        })
        .unzip();
    models.sort_by(|a, b| a.0.cmp(&b.0));
    let models: Vec<ServiceModel> = models.into_iter().map(|m| m.1).collect();
    let deadline = Some(options.deadline.unwrap_or(HORIZON));
    let options = Options { deadline, start: 0, ..options };
    let mut scheduler = Scheduler::new(nodes, states, options)?;
    let mut world = world::Model { models, seed };
    // The capacities as declared, before anything is learned.
    let start = scheduler.clone();
    let trace = run(&mut scheduler, &mut world);
    Ok(report::report(&start, &scheduler, &world, &trace))
}

/// Counts by state word.
fn counts(scheduler: &Scheduler) -> BTreeMap<&'static str, usize> {
    let mut out = BTreeMap::new();
    for (_, state) in scheduler.states() {
        let word = match state {
            super::NodeState::Done => "done",
            super::NodeState::Failed => "failed",
            super::NodeState::Blocked => "blocked",
            _ => "unfinished",
        };
        *out.entry(word).or_insert(0) += 1;
    }
    out
}
