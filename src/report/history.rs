//! What happened, read from the events: a line each for people, and stretches of time to draw.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::text::{count, minute};
use super::view::Moment;
use crate::ledger::{Applied, Event, EventKind, Run};
use crate::model::{NodeId, Outcome, PoolId};

/// How a stretch of time ended, or what it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// An attempt whose result was accepted.
    Accepted,
    /// An attempt that proved that there is nothing to change.
    Satisfied,
    /// An attempt that failed.
    Failed(Outcome),
    /// An attempt whose owner gave the node back or died.
    Released,
    /// An attempt that goes on.
    Running,
    /// A pool's pause.
    Waits(Outcome),
    /// A pool that was out.
    Out(Outcome),
}

/// A stretch of time of a pool, on a node when it is an attempt.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its beginning.
    pub from: Timestamp,
    /// Its end, or the end of what is known.
    pub to: Timestamp,
    /// The pool.
    pub pool: PoolId,
    /// Node and number of the attempt.
    pub attempt: Option<(NodeId, u32)>,
    /// What it was.
    pub kind: SpanKind,
}

/// The events of a whole log that count, by the merge rules.
#[must_use]
pub fn counted(events: Vec<Event>) -> Vec<Event> {
    let mut run = Run::default();
    events.into_iter().filter(|event| run.apply(event) == Applied::Yes).collect()
}

/// Attempts, pauses and exclusions in order of their beginning. What goes on ends at `now`.
#[must_use]
pub fn spans(events: &[Event], now: Timestamp) -> Vec<Span> {
    let mut found: Vec<Span> = Vec::new();
    let mut working: BTreeMap<&NodeId, usize> = BTreeMap::new();
    let mut resting: BTreeMap<&PoolId, usize> = BTreeMap::new();
    for event in events {
        let at = event.at;
        match &event.kind {
            EventKind::AttemptStarted { node, attempt, pool, .. } => {
                working.insert(node, found.len());
                let attempt = Some((node.clone(), attempt.0));
                let (pool, kind) = (pool.clone(), SpanKind::Running);
                found.push(Span { from: at, to: now.max(at), pool, attempt, kind });
            }
            EventKind::AttemptEnded { node, outcome, .. } => {
                end(&mut found, working.remove(node), at, Some(SpanKind::Failed(*outcome)));
            }
            EventKind::Accepted { node, .. } => {
                end(&mut found, working.remove(node), at, Some(SpanKind::Accepted));
            }
            EventKind::Satisfied { node, .. } => {
                end(&mut found, working.remove(node), at, Some(SpanKind::Satisfied));
            }
            EventKind::Released { node, .. } => {
                end(&mut found, working.remove(node), at, Some(SpanKind::Released));
            }
            EventKind::PoolPaused { pool, until, outcome, .. } => {
                let before = resting.insert(pool, found.len());
                end(&mut found, before, at, None);
                let (to, kind) = ((*until).max(at), SpanKind::Waits(*outcome));
                found.push(Span { from: at, to, pool: pool.clone(), attempt: None, kind });
            }
            EventKind::PoolSettled { pool, until, outcome, .. } => {
                let before = resting.insert(pool, found.len());
                end(&mut found, before, at, None);
                let (to, kind) = (until.unwrap_or(now).max(at), SpanKind::Out(*outcome));
                found.push(Span { from: at, to, pool: pool.clone(), attempt: None, kind });
            }
            EventKind::PoolRestored { pool, .. } | EventKind::Unsettled { pool, .. } => {
                end(&mut found, resting.remove(pool), at, None);
            }
            _ => {}
        }
    }
    found
}

/// Ends the span at `index`, unless it ended before.
fn end(found: &mut [Span], index: Option<usize>, at: Timestamp, kind: Option<SpanKind>) {
    if let Some(span) = index.and_then(|index| found.get_mut(index)) {
        span.to = span.to.min(at).max(span.from);
        span.kind = kind.unwrap_or(span.kind);
    }
}

/// One line for each event that a person cares about. Untrusted.
#[must_use]
pub fn moments(events: &[Event]) -> Vec<Moment> {
    events
        .iter()
        .filter_map(|event| {
            let (node, text) = line(&event.kind)?;
            Some(Moment { at: event.at, node: node.cloned(), text })
        })
        .collect()
}

fn line(kind: &EventKind) -> Option<(Option<&NodeId>, String)> {
    use EventKind as E;
    Some(match kind {
        E::AttemptStarted { node, attempt, pool, .. } => {
            (Some(node), format!("attempt {} on {pool}", attempt.0))
        }
        E::AttemptEnded { node, attempt, outcome, detail, .. } => {
            let detail = detail.lines().find(|l| !l.trim().is_empty()).unwrap_or_default();
            (Some(node), format!("attempt {}: {}: {detail}", attempt.0, word(outcome)))
        }
        E::Released { node, reason, .. } => (Some(node), format!("given back: {reason}")),
        E::Accepted { node, receipt, .. } => {
            let files = count(receipt.touched.len(), "file");
            (Some(node), format!("accepted: {files} by {}", receipt.pool))
        }
        E::Satisfied { node, .. } => (Some(node), "nothing to change".to_owned()),
        E::PrOpened { node, number, .. } => (Some(node), format!("pull request {number}")),
        E::PrMerged { node, number, .. } => (Some(node), format!("pull request {number} merged")),
        E::PrClosed { node, number } => (Some(node), format!("pull request {number} closed")),
        E::Reopened { node, reason } => (Some(node), format!("back to work: {reason}")),
        E::Reviewed { node, reviews, by, .. } if !reviews.is_empty() => {
            (Some(node), format!("back to work: {} asked for changes", by.join(", ")))
        }
        E::Retried { node, by } => (Some(node), format!("retried by {by}")),
        E::Skipped { node, by } => (Some(node), format!("skipped by {by}")),
        E::PoolPaused { pool, until, outcome, .. } => {
            (None, format!("{pool} waits until {}: {}", minute(*until), word(outcome)))
        }
        E::PoolSettled { pool, outcome, .. } => (None, format!("{pool} is out: {}", word(outcome))),
        E::PoolRestored { pool, .. } => (None, format!("{pool} is back")),
        E::Unsettled { pool, by } => (None, format!("{pool} is used again, says {by}")),
        E::Paused { by: Some(by), .. } => (None, format!("paused by {by}")),
        E::Paused { cause, nodes, .. } => {
            (None, format!("paused: {}, {}", word(cause), count(nodes.len(), "node")))
        }
        E::Resumed { by } => (None, format!("resumed by {by}")),
        E::CommandReceived { verb, actor, .. } => (None, format!("{actor} commanded {verb}")),
        E::BudgetRaised { usd, by } => (None, format!("{usd} US dollars more from {by}")),
        E::GatePassed { .. } => (None, "the whole was verified".to_owned()),
        E::GateFailed { round, .. } => (None, format!("the whole failed, round {round}")),
        E::CycleStarted { .. } => (None, "cycle began".to_owned()),
        E::CycleEnded { status } => (None, format!("cycle ended: {status}")),
        E::Closed { .. } => (None, "run closed".to_owned()),
        E::Cancelled { by } => (None, format!("called off by {by}")),
        _ => return None,
    })
}

/// A unit variant's name in the ledger, as words.
pub(super) fn word(of: &impl serde::Serialize) -> String {
    let name = match serde_json::to_value(of) {
        Ok(Value::String(name)) => name,
        _ => String::new(),
    };
    name.replace('_', " ")
}

#[cfg(test)]
mod tests {
    use super::{SpanKind, counted, moments, spans};
    use crate::model::Outcome;
    use crate::report::sample;

    #[test]
    fn stretches_end_where_the_events_say() {
        let spans = spans(&counted(sample::events()), sample::at("2026-11-30T14:00:30Z"));
        let shown: Vec<String> = spans
            .iter()
            .map(|s| {
                let node = s.attempt.as_ref().map_or("-".to_owned(), |(n, a)| format!("{n}/{a}"));
                let seconds = s.to.duration_since(s.from).as_secs();
                format!("{node} {} {:?} {seconds}", s.pool, s.kind)
            })
            .collect();
        insta::assert_snapshot!(shown.join("\n"));
        assert!(spans.iter().any(|s| s.kind == SpanKind::Waits(Outcome::RateLimited)));
    }

    #[test]
    fn moments_are_one_line_each() {
        let lines: Vec<String> = moments(&counted(sample::events()))
            .iter()
            .map(|m| format!("{} {} {}", m.at, m.node.as_ref().map_or("-", |n| n.as_str()), m.text))
            .collect();
        insta::assert_snapshot!(lines.join("\n"));
    }
}
