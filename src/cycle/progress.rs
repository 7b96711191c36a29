//! What happens, a line each, for whoever watches the log. What counts is in the ledger, so most
//! lines are made of its events, once they are written.

use jiff::{SignedDuration, Timestamp};

use super::context::Cycle;
use super::next_step::{Status, counted};
use crate::ledger::{Event, EventKind, NodeState, Receipt};
use crate::model::{Outcome, PoolId, scrub};

/// Longest text from outside in one line, in characters.
const LONGEST: usize = 240;

/// Shorter waits with nothing at work are not announced.
const WORTH_SAYING: SignedDuration = SignedDuration::from_secs(5);

/// Says what was just written.
pub(super) fn tell(events: &[Event]) {
    for line in events.iter().filter_map(|event| line(&event.kind)) {
        tracing::info!("{line}");
    }
}

/// The beginning of a cycle's work.
pub(super) fn begins(cycle: &Cycle) {
    let states = cycle.states();
    let ready = states.values().filter(|s| **s == NodeState::Ready).count();
    let pools: Vec<String> = cycle.pools.keys().map(|pool| short(&pool.0)).collect();
    let pools = if pools.is_empty() { "none".to_owned() } else { pools.join(", ") };
    tracing::info!(
        "cycle begins: run {} on {}, {ready} of {} ready; pools: {pools}",
        cycle.run_id(),
        cycle.base.branch,
        counted(states.len(), "node")
    );
}

/// The end of a cycle.
pub(super) fn ends(cycle: &Cycle, status: Status, message: &str) {
    let word = serde_json::to_value(status).ok();
    let word = word.as_ref().and_then(|w| w.as_str()).unwrap_or_default();
    tracing::info!("cycle ends: run {} is {word}: {message}", cycle.run_id());
}

/// Nothing is at work, and nothing can start before then.
pub(super) fn idle(cycle: &Cycle, until: Timestamp) {
    if until.duration_since(cycle.clock.now()) > WORTH_SAYING {
        tracing::info!("nothing can start before {}", moment(until));
    }
}

/// One event as a person reads it; none for bookkeeping.
fn line(event: &EventKind) -> Option<String> {
    Some(match event {
        EventKind::Opened { run, base_branch, .. } => format!("run {run} opened on {base_branch}"),
        EventKind::Claimed { node, attempt, .. } => {
            format!("{node}: claimed for attempt {attempt}")
        }
        EventKind::Granted { grant, claims, .. } => {
            format!("{} handed out as {grant}", counted(claims.len(), "node"))
        }
        EventKind::AttemptStarted { node, attempt, pool, .. } => {
            format!("{node}: attempt {attempt} begins on {pool}")
        }
        EventKind::AttemptEnded { node, attempt, pool, outcome, detail, .. } => {
            let outcome = words(*outcome);
            let head = format!("{node}: attempt {attempt} on {pool} ended, {outcome}");
            let why = short(detail);
            if why.is_empty() { head } else { format!("{head}: {why}") }
        }
        EventKind::Accepted { node, attempt, receipt, .. } => {
            format!("{node}: attempt {attempt} on {} ended, {}", receipt.pool, verified(receipt))
        }
        EventKind::Satisfied { node, attempt, evidence, .. } => {
            format!("{node}: attempt {attempt} ended, nothing to change: {}", short(evidence))
        }
        EventKind::Reopened { node, reason } => format!("{node}: back to work: {}", short(reason)),
        EventKind::PrOpened { node, url, .. } => format!("{node}: pull request {url}"),
        EventKind::PrMerged { node, number, .. } => format!("{node}: pull request {number} merged"),
        EventKind::PrClosed { node, number } => format!("{node}: pull request {number} closed"),
        EventKind::PoolPaused { pool, until, outcome, .. } => waits(pool, *until, *outcome),
        EventKind::PoolSettled { pool, outcome, until, .. } => {
            let until = until.map(|at| format!(" until {}", moment(at))).unwrap_or_default();
            format!("pool {pool}: out{until}, {}", words(*outcome))
        }
        EventKind::PoolRestored { pool, by } => format!("pool {pool}: back, by {}", short(by)),
        EventKind::GateFailed { detail, .. } => {
            format!("what landed together does not pass: {}", short(detail))
        }
        _ => return None,
    })
}

/// A pool that waits, and why.
pub(super) fn waits(pool: &PoolId, until: Timestamp, outcome: Outcome) -> String {
    format!("pool {pool}: waits until {}, {}", moment(until), words(outcome))
}

/// A time to the second.
pub(super) fn moment(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// What stands behind an acceptance.
fn verified(receipt: &Receipt) -> String {
    let checks: Vec<String> =
        receipt.checks.iter().map(|c| format!("{} {}", c.name, c.verdict)).collect();
    if checks.is_empty() {
        return "accepted, verified by no command".to_owned();
    }
    format!("verified and accepted: {}", short(&checks.join(", ")))
}

fn words(outcome: Outcome) -> String {
    let word = serde_json::to_value(outcome).ok();
    word.as_ref().and_then(|w| w.as_str()).unwrap_or("ended").replace('_', " ")
}

/// A text from outside in one line: no secret, no control character, not too long. Head and tail
/// stay.
fn short(text: &str) -> String {
    let clean = scrub(text);
    let plain: String = clean.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    let count = line.chars().count();
    if count <= LONGEST {
        return line;
    }
    let head: String = line.chars().take(LONGEST / 2).collect();
    let tail: String = line.chars().skip(count - LONGEST / 2).collect();
    format!("{head} … {tail}")
}

#[cfg(test)]
mod tests {
    use super::{line, short};
    use crate::ledger::{Burn, EventKind};
    use crate::model::{AttemptNumber, NodeId, Outcome, OwnerToken, PoolId, Usage};

    fn ended(detail: &str) -> EventKind {
        EventKind::AttemptEnded {
            node: NodeId::new("N-001").unwrap(),
            attempt: AttemptNumber(2),
            owner: OwnerToken::new("o").unwrap(),
            pool: PoolId::new("nim"),
            outcome: Outcome::RateLimited,
            burn: Burn::None,
            detail: detail.to_owned(),
            usage: Usage::default(),
            evidence: None,
            quarantine: None,
            conflicts_with: Vec::new(),
        }
    }

    #[test]
    fn an_end_is_one_line_without_secrets() {
        let key = format!("nvapi-{}", "a1".repeat(20));
        let said = line(&ended(&format!("slow down\n::error::x {key}\u{1b}[31m"))).unwrap();
        assert!(
            said.starts_with("N-001: attempt 2 on nim ended, rate limited: slow down ::error::x"),
            "{said}"
        );
        assert!(!said.contains(&key) && !said.contains('\n') && !said.contains('\u{1b}'), "{said}");
    }

    #[test]
    fn long_texts_keep_head_and_tail() {
        let said = short(&format!("first {} last", "x".repeat(5_000)));
        assert!(said.starts_with("first ") && said.ends_with(" last"), "{said}");
        assert!(said.chars().count() < 260);
    }

    #[test]
    fn a_waiting_pool_says_until_when_and_why() {
        let event = EventKind::PoolPaused {
            pool: PoolId::new("nim"),
            until: "2026-07-01T20:46:00.25Z".parse().unwrap(),
            outcome: Outcome::RateLimited,
            evidence: String::new(),
            step: 1,
        };
        assert_eq!(
            line(&event).unwrap(),
            "pool nim: waits until 2026-07-01T20:46:00Z, rate limited"
        );
    }
}
