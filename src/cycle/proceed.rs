//! How cycles follow each other: one whose time was up starts the next one where that is asked for,
//! and comments start no more of them in an hour than the fuse allows.

use jiff::SignedDuration;

use super::Journal;
use super::context::Cycle;
use super::next_step::{CycleReport, Status};
use super::setup::Parts;
use crate::config::Continuation;
use crate::forge::ForgeError;
use crate::ledger::{NodeState, PauseCause};

/// Starts the next cycle when this one ran out of time with ready work. Only after some was done:
/// each start costs attempts, whose budgets end, so no chain is endless. Trouble is told and fails
/// nothing: the schedule goes on in any case.
pub(super) async fn start_next(cycle: &Cycle, paused: Option<PauseCause>, attempts: usize) -> bool {
    let timely = paused == Some(PauseCause::JobDeadline) && cycle.clock.now() >= cycle.deadline;
    if cycle.config.dispatch.continuation == Continuation::None || !timely || attempts == 0 {
        return false;
    }
    if !cycle.states().values().any(|state| *state == NodeState::Ready) {
        return false;
    }
    let Some((workflow, branch)) = &cycle.woken.workflow else {
        tracing::warn!("the next cycle was not started: this is no workflow of GitHub Actions");
        return false;
    };
    match cycle.forge.start_workflow(workflow, branch).await {
        Ok(()) => true,
        Err(ForgeError::Forbidden { remedy, message, .. }) => {
            tracing::warn!("the next cycle was not started: {message}; {remedy}");
            false
        }
        Err(error) => {
            tracing::warn!(%error, "the next cycle was not started; the schedule goes on");
            false
        }
    }
}

/// What a cycle reports that comments woke too often: it takes orders and starts nothing.
pub(super) fn fuse(parts: &Parts, journal: &Journal) -> Option<CycleReport> {
    let limit = parts.config.commands.fuse.cycles_per_hour;
    let hour = parts.clock.now().checked_sub(SignedDuration::from_hours(1)).ok()?;
    let run = journal.state();
    let woken = run.woken.iter().filter(|at| **at > hour).count();
    if !parts.options.woken.by_comment || woken < usize::try_from(limit).unwrap_or(usize::MAX) {
        return None;
    }
    let mut report = CycleReport::without_run(
        Status::Waiting,
        format!(
            "comments started {woken} cycles in an hour, as many as commands.fuse allows; orders \
             are taken, and the next cycle that no comment starts goes on"
        ),
    );
    report.run_id = Some(journal.run_id().clone());
    Some(report)
}
