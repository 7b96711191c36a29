//! What people see of a cycle on the forge: the dashboard, edited in place, and of a pause one
//! comment or an issue per cause. Nothing here ever fails the work, the same text is never written
//! twice, what people wrote into a text of ours stays, and there is a ceiling on what notifies.

use std::collections::BTreeMap;

use super::context::Cycle;
use super::next_step::Status;
use super::pools::PoolSet;
use super::{CycleError, holder, view};
use crate::config::Pauses;
use crate::forge::{Alive, ForgeError, State};
use crate::ledger::{EventKind, Made, PauseCause, PauseRecord, Run};
use crate::model::hex_digest;
use crate::report::view::RunView;
use crate::report::{self, marker, notes};

/// What the ledger calls the dashboard.
pub(super) const DASHBOARD: &str = "dashboard";
/// What the ledger calls the lines of the dashboard that are ours.
pub(super) const LINES: &str = "dashboard-lines";

/// Brings everything up to date that people see of the run.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn dashboard(
    cycle: &Cycle,
    set: &PoolSet,
    status: Status,
) -> Result<(), CycleError> {
    let view = view::run(cycle, set, status);
    let number =
        if cycle.config.report.dashboard { update(cycle, &view, status).await? } else { None };
    match (cycle.config.pauses, number) {
        (Pauses::Issue, _) => pause_issues(cycle, &view, status).await,
        (Pauses::Dashboard, Some(number)) => pause_comment(cycle, &view, number).await,
        (Pauses::Dashboard, None) => Ok(()),
    }
}

/// Brings the dashboard up to date. Trouble is logged: the run goes on without it.
async fn update(cycle: &Cycle, view: &RunView, status: Status) -> Result<Option<u64>, CycleError> {
    let digest = digest(view);
    let run = cycle.journal.state().clone();
    let shown = run.shown.get(DASHBOARD);
    let known = shown.and_then(|s| s.id.parse().ok());
    if shown.is_some_and(|shown| shown.digest == digest) {
        return Ok(known);
    }
    match write(cycle, &run, view, known, status).await {
        Ok(None) => Ok(None),
        Ok(Some(number)) => {
            let id = number.to_string();
            let lines = notes::fingerprint(&report::dashboard(view));
            let shown = |what: &str, digest| EventKind::Shown {
                what: what.to_owned(),
                id: id.clone(),
                digest,
            };
            cycle.journal.write(vec![shown(DASHBOARD, digest), shown(LINES, lines)]).await?;
            Ok(Some(number))
        }
        Err(error @ CycleError::Journal(_)) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the dashboard was not updated");
            Ok(None)
        }
    }
}

async fn write(
    cycle: &Cycle,
    run: &Run,
    view: &RunView,
    known: Option<u64>,
    status: Status,
) -> Result<Option<u64>, CycleError> {
    let ours = report::dashboard(view);
    let open = status != Status::Complete;
    let mut there = None;
    if let Some(number) = known {
        // An update of nothing reads.
        match cycle.forge.update_issue(number, None, None).await {
            Ok(issue) => there = Some(issue),
            // Deleted: another one is made.
            Err(ForgeError::NotFound(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let issue = match there {
        Some(issue) => issue,
        None if !may_make(cycle, run, Made::Issue) => return Ok(None),
        None if !is_ours_to_make(cycle, run, DASHBOARD).await? => return Ok(None),
        None => {
            // Found by its marker or made; a failed look-up makes nothing.
            let title = report::dashboard_title(&cycle.config.report.title, view);
            let labels = &cycle.config.pull_requests.labels;
            let marker = marker::dashboard(&view.run);
            cycle.forge.open_issue(&title, &ours, &marker, labels).await?
        }
    };
    let written = run.shown.get(LINES).map(|lines| lines.digest.as_str()).unwrap_or_default();
    let body = notes::keep(&ours, &issue.body, written);
    let state = if open { State::Open } else { State::Closed };
    if issue.body.trim_end() != body.trim_end() || issue.state != state {
        cycle.forge.update_issue(issue.number, Some(&body), Some(state)).await?;
    }
    Ok(Some(issue.number))
}

/// Whether the day's ceiling leaves room; said when it does not.
pub(super) fn may_make(cycle: &Cycle, run: &Run, what: Made) -> bool {
    let noise = &cycle.config.report.noise;
    let (limit, setting) = match what {
        Made::Issue => (noise.issues_per_day, "issues-per-day"),
        Made::Comment => (noise.comments_per_day, "comments-per-day"),
    };
    let made = run.made_since(view::noise_day(cycle.clock.now()), what);
    let room = made < usize::try_from(limit).unwrap_or(usize::MAX);
    if !room {
        tracing::warn!("{made} in a day are enough (report.noise.{setting}); it waits");
    }
    room
}

/// One comment for each marker, whoever else is at it now, within the day's ceiling. Best effort.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn say_once(
    cycle: &Cycle,
    on: u64,
    marker: &str,
    text: &str,
) -> Result<(), CycleError> {
    let run = cycle.journal.state().clone();
    if run.shown.contains_key(marker)
        || !may_make(cycle, &run, Made::Comment)
        || !is_ours_to_make(cycle, &run, marker).await?
    {
        return Ok(());
    }
    match cycle.forge.comment(on, text, marker).await {
        Ok(comment) => {
            let (what, id) = (marker.to_owned(), comment.id.to_string());
            let digest = hex_digest([text.as_bytes()]);
            cycle.journal.write(vec![EventKind::Shown { what, id, digest }]).await?;
        }
        Err(error) => tracing::warn!(number = on, %error, "a comment was not made"),
    }
    Ok(())
}

/// Whether this cycle is the one to make something, of those that are at it now: looking before
/// making is not enough where two look at once.
async fn is_ours_to_make(cycle: &Cycle, run: &Run, what: &str) -> Result<bool, CycleError> {
    let instead_of = run.shown.get(what).map(|shown| shown.id.clone()).unwrap_or_default();
    let mut after = None;
    if let Some((since, maker)) = run.making.get(what)
        && (*maker == cycle.holder || holder::alive(maker, &*cycle.forge).await == Alive::No)
    {
        after = Some(*since);
    }
    let holder = cycle.holder.clone();
    let making = EventKind::Making { what: what.to_owned(), instead_of, holder, after };
    Ok(cycle.journal.write(vec![making]).await?.all())
}

/// A pause that ends by itself within this job's rhythm is no news for people.
fn is_quiet(cause: PauseCause) -> bool {
    matches!(cause, PauseCause::JobDeadline | PauseCause::CapReached)
}

/// One comment when a pause begins or changes cause; the marker makes a repetition nothing.
async fn pause_comment(cycle: &Cycle, view: &RunView, number: u64) -> Result<(), CycleError> {
    let Some(pause) = &view.pause else { return Ok(()) };
    let marker = marker::pause(&view.run, pause.cause, pause.first_seen);
    let digest = hex_digest([marker.as_bytes()]);
    let run = cycle.journal.state().clone();
    let known = run.shown.get("pause").is_some_and(|s| s.digest == digest);
    if is_quiet(pause.cause) || known || !may_make(cycle, &run, Made::Comment) {
        return Ok(());
    }
    let Some(body) = report::pause_comment(view) else { return Ok(()) };
    if !is_ours_to_make(cycle, &run, "pause").await? {
        return Ok(());
    }
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

/// An issue per cause, open as long as something waits for that cause.
async fn pause_issues(cycle: &Cycle, view: &RunView, status: Status) -> Result<(), CycleError> {
    let run = cycle.journal.state().clone();
    let mut causes: BTreeMap<String, PauseRecord> = BTreeMap::new();
    for part in view.pause.iter().filter(|_| status != Status::Complete).flat_map(by_cause) {
        causes.insert(pause_key(part.cause), part);
    }
    let mut shown = Vec::new();
    for (what, pause) in &causes {
        let title = report::pause_issue_title(view, pause.cause);
        let body = report::pause_issue(view, pause);
        let digest = hex_digest([body.as_bytes()]);
        let known = run.shown.get(what);
        if known.is_some_and(|known| known.digest == digest) {
            continue;
        }
        let number: Option<u64> = known.and_then(|known| known.id.parse().ok());
        if number.is_none()
            && !(may_make(cycle, &run, Made::Issue) && is_ours_to_make(cycle, &run, what).await?)
        {
            continue;
        }
        match show_pause(cycle, view, pause, number, &title, &body).await {
            Ok(number) => shown.push((what.clone(), number.to_string(), digest)),
            Err(error) => tracing::warn!(%error, "the issue about the pause was not updated"),
        }
    }
    let over = run.shown.iter().filter(|(what, known)| {
        what.starts_with(PAUSE_ISSUE) && !causes.contains_key(*what) && !known.digest.is_empty()
    });
    for (what, known) in over {
        let Ok(number) = known.id.parse() else { continue };
        match cycle.forge.update_issue(number, None, Some(State::Closed)).await {
            Ok(_) | Err(ForgeError::NotFound(_)) => {
                shown.push((what.clone(), known.id.clone(), String::new()));
            }
            Err(error) => tracing::warn!(%error, "the issue about a pause was not closed"),
        }
    }
    if !shown.is_empty() {
        let event = |(what, id, digest)| EventKind::Shown { what, id, digest };
        cycle.journal.write(shown.into_iter().map(event).collect()).await?;
    }
    Ok(())
}

const PAUSE_ISSUE: &str = "pause-issue:";

fn pause_key(cause: PauseCause) -> String {
    let word = serde_json::to_value(cause).ok();
    let word = word.as_ref().and_then(|word| word.as_str()).unwrap_or_default();
    format!("{PAUSE_ISSUE}{word}")
}

/// The parts of a pause, each with the nodes of one cause.
fn by_cause(pause: &PauseRecord) -> Vec<PauseRecord> {
    let mut causes = vec![pause.cause];
    for node in &pause.nodes {
        if !causes.contains(&node.cause) {
            causes.push(node.cause);
        }
    }
    causes.retain(|cause| !is_quiet(*cause));
    let part = |cause: PauseCause| {
        let nodes = pause.nodes.iter().filter(|node| node.cause == cause).cloned().collect();
        let not_before = pause.not_before.filter(|_| cause == pause.cause);
        PauseRecord { cause, nodes, not_before, ..pause.clone() }
    };
    causes.into_iter().map(part).collect()
}

async fn show_pause(
    cycle: &Cycle,
    view: &RunView,
    pause: &PauseRecord,
    known: Option<u64>,
    title: &str,
    body: &str,
) -> Result<u64, ForgeError> {
    let number = match known {
        Some(number) => number,
        None => {
            let marker = marker::pause_issue(&view.run, pause.cause);
            let labels = &cycle.config.pull_requests.labels;
            let issue = cycle.forge.open_issue(title, body, &marker, labels).await?;
            if issue.state == State::Open && issue.body.trim_end() == body.trim_end() {
                return Ok(issue.number);
            }
            issue.number
        }
    };
    Ok(cycle.forge.update_issue(number, Some(body), Some(State::Open)).await?.number)
}

/// Digest of what the dashboard says, without what changes by the mere passing of time. The
/// heartbeat counts by the day.
fn digest(view: &RunView) -> String {
    let mut still = view.clone();
    still.now = midnight(still.now);
    still.heartbeat = still.heartbeat.map(midnight);
    still.workflow_url = None;
    // Hours and days pass by themselves; what is open stands at the nodes.
    still.ceilings.retain(|ceiling| !ceiling.what.contains("pull requests"));
    if let Some(pause) = &mut still.pause {
        pause.count = 0;
    }
    hex_digest([report::dashboard(&still).as_bytes()])
}

fn midnight(at: jiff::Timestamp) -> jiff::Timestamp {
    let seconds = at.as_second();
    jiff::Timestamp::from_second(seconds - seconds.rem_euclid(86_400)).unwrap_or(at)
}
