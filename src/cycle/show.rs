//! What people see of a cycle on the forge: the dashboard, edited in place, and one comment when a
//! pause begins or changes cause. Nothing here ever fails the work, and the same text is never
//! written twice.

use super::context::Cycle;
use super::next_step::Status;
use super::pools::PoolSet;
use super::{CycleError, view};
use crate::forge::State;
use crate::ledger::EventKind;
use crate::model::hex_digest;
use crate::report::view::RunView;
use crate::report::{self, marker};

const DASHBOARD: &str = "dashboard";

/// Brings the dashboard up to date. Trouble is logged: the run goes on without it.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn dashboard(
    cycle: &Cycle,
    set: &PoolSet,
    status: Status,
) -> Result<(), CycleError> {
    if !cycle.config.report.dashboard {
        return Ok(());
    }
    let view = view::run(cycle, set, status);
    let digest = digest(&view);
    let shown = cycle.journal.state().shown.get(DASHBOARD).cloned();
    let number = match shown {
        Some(shown) if shown.digest == digest => shown.id.parse().ok(),
        other => match write(cycle, &view, other.and_then(|s| s.id.parse().ok()), status).await {
            Ok(number) => {
                let id = number.to_string();
                let shown = EventKind::Shown { what: DASHBOARD.to_owned(), id, digest };
                cycle.journal.write(vec![shown]).await?;
                Some(number)
            }
            Err(error) => {
                tracing::warn!(%error, "the dashboard was not updated");
                None
            }
        },
    };
    if let Some(number) = number {
        pause_comment(cycle, &view, number).await?;
    }
    Ok(())
}

async fn write(
    cycle: &Cycle,
    view: &RunView,
    known: Option<u64>,
    status: Status,
) -> Result<u64, CycleError> {
    let body = report::dashboard(view);
    let marker = marker::dashboard(&view.run);
    let open = status != Status::Complete;
    let issue = match known {
        Some(number) => number,
        None => {
            // Found by its marker or made; a failed look-up makes nothing.
            let title = report::dashboard_title(view);
            let labels = &cycle.config.pull_requests.labels;
            let issue = cycle.forge.open_issue(&title, &body, &marker, labels).await?;
            if issue.body.trim_end() == body.trim_end() && open == (issue.state == State::Open) {
                return Ok(issue.number);
            }
            issue.number
        }
    };
    let state = if open { State::Open } else { State::Closed };
    cycle.forge.update_issue(issue, Some(&body), Some(state)).await?;
    Ok(issue)
}

/// One comment when a pause begins or changes cause; the marker makes a repetition nothing.
async fn pause_comment(cycle: &Cycle, view: &RunView, number: u64) -> Result<(), CycleError> {
    let Some(pause) = &view.pause else { return Ok(()) };
    // A pause that ends by itself within this job's rhythm is no news for people.
    let quiet = matches!(
        pause.cause,
        crate::ledger::PauseCause::JobDeadline | crate::ledger::PauseCause::CapReached
    );
    let marker = marker::pause(&view.run, pause.cause, pause.first_seen);
    let digest = hex_digest([marker.as_bytes()]);
    let known = cycle.journal.state().shown.get("pause").is_some_and(|s| s.digest == digest);
    if quiet || known {
        return Ok(());
    }
    let Some(body) = report::pause_comment(view) else { return Ok(()) };
    match cycle.forge.comment(number, &body, &marker).await {
        Ok(comment) => {
            let id = comment.id.to_string();
            let shown = EventKind::Shown { what: "pause".to_owned(), id, digest };
            cycle.journal.write(vec![shown]).await?;
        }
        Err(error) => tracing::warn!(%error, "the pause was not commented on"),
    }
    Ok(())
}

/// Digest of what the dashboard says, without what changes by the mere passing of time. The
/// heartbeat counts by the day.
fn digest(view: &RunView) -> String {
    let mut still = view.clone();
    still.now = midnight(still.now);
    still.heartbeat = still.heartbeat.map(midnight);
    if let Some(pause) = &mut still.pause {
        pause.count = 0;
    }
    hex_digest([report::dashboard(&still).as_bytes()])
}

fn midnight(at: jiff::Timestamp) -> jiff::Timestamp {
    let seconds = at.as_second();
    jiff::Timestamp::from_second(seconds - seconds.rem_euclid(86_400)).unwrap_or(at)
}
