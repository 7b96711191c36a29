//! Turns one observation of a backend into an outcome: typed evidence first, then anchored
//! phrases, never a bare number in free text and never the worker's own words.
//!
//! The rules are tables (`clouds`, `vendors`, `agents`, `general`); the specific come first.

mod agents;
mod answer;
mod clock;
mod clouds;
mod evidence;
mod general;
mod reset;
mod rule;
mod transcript;
mod vendors;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::Timestamp;

use self::answer::Answer;
use self::evidence::Evidence;
use self::rule::{Compiled, Rule};
use self::transcript::Said;
use crate::model::{Channel, Classification, Observation, Outcome, scrub};

pub use self::reset::LONGEST as LONGEST_RESET_SECONDS;
pub(super) use self::reset::stated_seconds;
pub(super) use self::transcript::events;

/// All tables in the order in which they are asked.
fn tables() -> [&'static [Rule]; 12] {
    [
        vendors::NVIDIA,
        agents::SENTENCES,
        agents::RUNNER,
        agents::WRAPPERS,
        vendors::ROUTERS,
        vendors::LOCAL,
        clouds::ANTHROPIC,
        clouds::GOOGLE,
        clouds::AMAZON,
        vendors::HOSTS,
        clouds::OPENAI,
        general::WORDS,
    ]
}

static RULES: LazyLock<Vec<Compiled>> = LazyLock::new(|| {
    tables().into_iter().chain([general::STATUS]).flatten().filter_map(Compiled::new).collect()
});

/// Every rule as (name, outcome, source), in the order in which they are asked.
pub fn rules() -> impl Iterator<Item = (&'static str, Outcome, &'static str)> {
    RULES.iter().map(|compiled| (compiled.rule.name, compiled.rule.outcome, compiled.rule.source))
}

/// Size is judged before anything else: a request that can never pass must not wait for a reset.
static SIZE_RULES: LazyLock<Vec<&'static Compiled>> = LazyLock::new(|| {
    RULES
        .iter()
        .filter(|compiled| {
            compiled.rule.outcome == Outcome::PacketTooLarge && compiled.rule.name != "status-413"
        })
        .collect()
});

/// Classifies one observation. `now` is used where the observation has no time of its own.
#[must_use]
pub fn classify(observation: &Observation, now: Timestamp) -> Classification {
    let now = observation.now.unwrap_or(now);
    match &observation.channel {
        Channel::Http { status, headers, body } => {
            classify_http(&observation.backend, *status, headers, body, now)
        }
        Channel::Cli { exit_code, stdout, stderr } => {
            classify_cli(&observation.backend, *exit_code, stdout, stderr, now)
        }
    }
}

/// The rule of an answer that sends the request to another address.
pub const REDIRECT: &str = "redirect";

/// Classifies an HTTP answer, or the client's message where only that is left.
/// `status` is none where the connection itself failed.
#[must_use]
pub fn classify_http(
    backend: &str,
    status: Option<u16>,
    headers: &BTreeMap<String, String>,
    body: &str,
    now: Timestamp,
) -> Classification {
    let lower: BTreeMap<String, String> =
        headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect();
    let now = reset::observed_at(&lower, now);
    let mut text = body.to_owned();
    if let Some(200..=299) = status.filter(|status| *status != 202) {
        let content_type = lower.get("content-type").map_or("", String::as_str);
        match answer::read(body, content_type) {
            Answer::Final(outcome, rule, seen) => return plain(outcome, rule, &seen),
            Answer::Failed(error) => text = error,
        }
    }
    let mut seen = Evidence::new(backend, status, &lower, &text);
    if status == Some(202) {
        seen.status = status;
    }
    if seen.text.is_empty() && seen.status.is_none() {
        return plain(Outcome::Transient, "no-answer", "the connection gave no answer");
    }
    decide(&seen, now).unwrap_or_else(|| unread(status, &lower, &seen.shown(0..0)))
}

/// An answer that no rule reads, and that is no model's. Who answers so at this address is not what
/// the pool was declared to be: that is the pool's fault, whatever was asked.
fn unread(status: Option<u16>, headers: &BTreeMap<String, String>, text: &str) -> Classification {
    let Some(status) = status else { return plain(Outcome::Error, "unknown-answer", text) };
    let (outcome, rule, what) = match status {
        200..=299 => return plain(Outcome::Transient, "unknown-answer", text),
        300..=399 => {
            let place = headers.get("location").map_or("elsewhere", String::as_str);
            let what = format!("status {status} redirects to {place}; correct `base-url`");
            (Outcome::ModelUnavailable, REDIRECT, what)
        }
        500..=599 => (Outcome::Transient, "unknown-answer", format!("status {status}")),
        _ => {
            let what = format!("status {status} is no answer of a model's");
            (Outcome::ModelUnavailable, "unknown-answer", what)
        }
    };
    let text = if text.is_empty() { String::new() } else { format!(": {text}") };
    plain(outcome, rule, &format!("{what}{text}"))
}

/// Classifies the end of a command-line worker. `exit_code` is none where a signal ended it.
#[must_use]
pub fn classify_cli(
    backend: &str,
    exit_code: Option<i32>,
    stdout: &str,
    stderr: &str,
    now: Timestamp,
) -> Classification {
    let evidence = |status: Option<u16>, text: &str| {
        let mut seen = Evidence::new(backend, status, &BTreeMap::new(), text);
        seen.exit_code = exit_code;
        seen
    };
    let timed_out = exit_code == Some(124);
    let said = transcript::read(stdout);
    match &said {
        Said::Final(outcome, rule, seen) => return plain(*outcome, rule, seen),
        Said::Failed(status, text) => {
            let seen = evidence(*status, text);
            if let Some(found) = decide(&seen, now) {
                return found;
            }
            return plain(Outcome::Error, "worker-error", &seen.shown(0..0));
        }
        Said::Unfinished | Said::NotEvents => {}
    }
    if exit_code == Some(0) && said == Said::NotEvents && !transcript::is_empty(stdout) {
        if let Some(found) = transcript::failed_run(stdout)
            .or_else(|| transcript::gave_up(stderr))
            .and_then(|failed| decide(&evidence(None, failed), now))
        {
            return found;
        }
        // An answer in prose; only a CLI's own error sentence in its place is a failure.
        let seen = evidence(None, stdout);
        if transcript::looks_like_error(stdout)
            && in_place_of_an_answer(&seen)
            && let Some(found) = decide(&seen, now)
        {
            return found;
        }
        return plain(Outcome::Success, "answer", "");
    }
    let mut text = transcript::error_lines(stderr);
    if said == Said::NotEvents {
        // What was cut off in the middle of its work was no error's text, however short it is.
        let lines = if timed_out { transcript::marked_lines } else { transcript::error_lines };
        text = format!("{}\n{text}", lines(stdout));
    }
    let seen = evidence(None, &text);
    if let Some(found) = decide(&seen, now) {
        return found;
    }
    let (outcome, rule) = if timed_out {
        (Outcome::Timeout, "worker-timeout")
    } else if said == Said::Unfinished {
        (Outcome::Transient, "events-without-end")
    } else if exit_code == Some(0) {
        (Outcome::Transient, "empty-answer")
    } else {
        (Outcome::Error, "unknown-failure")
    };
    plain(outcome, rule, &seen.shown(0..0))
}

/// Whether a program reports its failure as events do that are known, and not in prose, which may be
/// about anything.
#[must_use]
pub(super) fn fails_in_events(stdout: &str, stderr: &str) -> bool {
    let failed = |text| matches!(transcript::read(text), Said::Failed(..) | Said::Final(..));
    failed(stdout) || failed(stderr)
}

/// The absolute reset that an observation states although it has passed at `now`; for reports that
/// do not say when they were made.
#[must_use]
pub fn stated_reset(observation: &Observation, now: Timestamp) -> Option<Timestamp> {
    let none = BTreeMap::new();
    let (headers, text) = match &observation.channel {
        Channel::Http { headers, body, .. } => (headers, body.clone()),
        Channel::Cli { stdout, stderr, .. } => (&none, format!("{stdout}\n{stderr}")),
    };
    let seen = Evidence::new(&observation.backend, None, headers, &text);
    reset::find_past(&seen.headers, &seen.text, now)
}

fn decide(seen: &Evidence, now: Timestamp) -> Option<Classification> {
    let holds =
        |compiled: &'static Compiled| compiled.holds(seen).map(|place| (compiled.rule, place));
    let (rule, place) =
        SIZE_RULES.iter().copied().find_map(holds).or_else(|| RULES.iter().find_map(holds))?;
    let reset = (rule.waits && may_have_reset(rule.outcome))
        .then(|| reset::find(&seen.headers, &seen.text, now))
        .flatten();
    // A limit of unknown kind that says when it ends is one that time heals.
    let ends = reset.is_some_and(|reset| reset.seconds > 0.0);
    let (outcome, name) = match rule.outcome {
        Outcome::QuotaUnclassified if ends => (Outcome::RateLimited, "limit-with-reset"),
        outcome => (outcome, rule.name),
    };
    Some(Classification {
        outcome,
        temporary: outcome == Outcome::ModelUnavailable && (rule.heals || reset.is_some()),
        reset_seconds: reset.map(|reset| reset.seconds),
        reset_at: reset.map(|reset| reset.at),
        rule: name.to_owned(),
        evidence: seen.shown(place),
    })
}

/// Whether prose that came with exit code 0 is a CLI's own sentence: it stands at the very start,
/// and is not the start of a longer sentence about something else.
fn in_place_of_an_answer(seen: &Evidence) -> bool {
    /// A few symbols and a word may stand before it.
    const START: usize = 40;
    let api_error = seen.text.get(..12).is_some_and(|start| start.contains("api error"));
    // goose
    let ran_into = seen.text.starts_with("ran into this error: ");
    api_error
        || ran_into
        || RULES.iter().any(|compiled| {
            agents::SENTENCES.iter().any(|rule| rule.name == compiled.rule.name)
                && compiled.holds(seen).is_some_and(|place| {
                    place.start < START && seen.text.get(place.end..).is_some_and(ends_a_clause)
                })
        })
}

/// Whether what follows a CLI's sentence leaves it as it is: the end, a mark, or a known addition.
fn ends_a_clause(rest: &str) -> bool {
    let rest = rest.trim_start();
    !rest.starts_with(char::is_alphanumeric)
        || ["for ", "to ", "on ", "at ", "with ", "until "]
            .iter()
            .any(|word| rest.starts_with(word))
}

fn may_have_reset(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::RateLimited
            | Outcome::QuotaUnclassified
            | Outcome::CreditExhausted
            | Outcome::ModelUnavailable
            | Outcome::Transient
    )
}

fn plain(outcome: Outcome, rule: &str, seen: &str) -> Classification {
    Classification {
        outcome,
        temporary: false,
        reset_seconds: None,
        reset_at: None,
        rule: rule.to_owned(),
        evidence: scrub(seen).chars().take(400).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_is_told_by_the_rule_and_not_by_words_beside_it() {
        let none = BTreeMap::new();
        let http = |status, body: &str| {
            let read = classify_http("x", Some(status), &none, body, Timestamp::UNIX_EPOCH);
            assert_eq!(read.outcome, Outcome::ModelUnavailable, "{body}: {read:?}");
            read.temporary
        };
        for (status, body) in [
            (400, r#"{"detail":"DEGRADED function cannot be invoked"}"#),
            (429, r#"{"error":{"message":"No capacity available for model x on the server"}}"#),
            (503, r#"{"error":{"message":"The model is at capacity"}}"#),
            (404, r#"{"error":{"message":"model x is not available, retry after 60 seconds"}}"#),
        ] {
            assert!(http(status, body), "{body}");
        }
        for (status, body) in [
            (404, r#"{"error":{"message":"The model `degraded-7b` does not exist"}}"#),
            (404, r#"{"error":{"message":"Model x not found. Others are at capacity."}}"#),
        ] {
            assert!(!http(status, body), "{body}");
        }
    }

    #[test]
    fn every_rule_compiles_and_names_its_source() {
        let all: Vec<&Rule> = tables().into_iter().chain([general::STATUS]).flatten().collect();
        assert_eq!(RULES.len(), all.len());
        let names: std::collections::BTreeSet<&str> = all.iter().map(|rule| rule.name).collect();
        assert_eq!(names.len(), all.len(), "two rules share a name");
        assert!(rules().all(|(_, _, source)| !source.is_empty()));
    }
}
