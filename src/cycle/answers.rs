//! Answers to commands: owed from the append that took them on, until the ledger says that they were
//! given.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::context::Cycle;
use super::view::noise_day;
use super::{Clock, CycleError, Journal};
use crate::commands::Verb;
use crate::config::Config;
use crate::forge::{Forge, ForgeError};
use crate::ledger::{EventKind, Made, Received};
use crate::report::{self, marker};

/// After this long an answer is taken to be lost with its cycle, and another cycle gives it.
const ANSWER_LOST: SignedDuration = SignedDuration::from_mins(2);

/// Answers what was known only after looking at branches.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn late(cycle: &Cycle, comments: &[u64]) -> Result<(), CycleError> {
    let own: Vec<(u64, String)> = {
        let run = cycle.journal.state();
        let lines = run.received.iter().filter(|line| comments.contains(&line.comment));
        lines.map(|line| (line.comment, line.body_digest.clone())).collect()
    };
    if own.is_empty() {
        return Ok(());
    }
    let (config, forge, clock) = (&cycle.config, &*cycle.forge, &cycle.clock);
    give(&Voice { config, forge, clock, journal: &cycle.journal }, &own).await
}

/// What answering needs.
pub(super) struct Voice<'a> {
    pub config: &'a Config,
    pub forge: &'a dyn Forge,
    pub clock: &'a Clock,
    pub journal: &'a Journal,
}

/// Gives the answers that are owed: this cycle's own (comment and digest of its text), and those that
/// were lost with another one.
///
/// # Errors
/// When the ledger fails.
pub(super) async fn give(voice: &Voice<'_>, own: &[(u64, String)]) -> Result<(), CycleError> {
    let run = voice.journal.state().clone();
    // What becomes of a branch is known later, and the whole comment is answered then.
    let pending: BTreeSet<u64> =
        run.nodes.values().filter_map(|n| n.asked.as_ref()).map(|asked| asked.comment).collect();
    let lost_before = voice.clock.now().checked_sub(ANSWER_LOST).ok();
    let mut owed: BTreeMap<(u64, &str), Vec<&Received>> = BTreeMap::new();
    for line in &run.received {
        if line.verb == "ignored" || line.comment != 0 && pending.contains(&line.comment) {
            continue;
        }
        let lost = lost_before.is_some_and(|before| line.at < before);
        let own = own.iter().any(|(c, d)| *c == line.comment && *d == line.body_digest);
        if (own || lost) && !run.shown.contains_key(&shown_key(line)) {
            owed.entry((line.comment, &line.body_digest)).or_default().push(line);
        }
    }
    let mut given = Vec::new();
    let day = noise_day(voice.clock.now());
    let made = run.made_since(day, Made::Comment);
    let limit = voice.config.report.noise.comments_per_day;
    let room = usize::try_from(limit).unwrap_or(usize::MAX).saturating_sub(made);
    if owed.len() > room {
        tracing::warn!("{made} comments in a day are enough (report.noise); answers wait");
    }
    for lines in owed.values().take(room) {
        let Some(first) = lines.first() else { continue };
        match answer_one(voice, run.id.as_ref(), first, lines).await {
            Ok(id) => given.push(EventKind::Shown {
                what: shown_key(first),
                id,
                digest: first.body_digest.clone(),
            }),
            Err(error) => tracing::warn!(comment = first.comment, %error, "no answer yet"),
        }
    }
    if !given.is_empty() {
        voice.journal.write(given).await?;
    }
    Ok(())
}

/// The id of the answer; empty where the conversation takes none.
async fn answer_one(
    voice: &Voice<'_>,
    run: Option<&crate::model::RunId>,
    first: &Received,
    lines: &[&Received],
) -> Result<String, ForgeError> {
    let refused = matches!(first.verb.as_str(), "invalid" | "denied");
    let reaction = if refused { "confused" } else { "eyes" };
    if first.comment != 0
        && let Err(error) = voice.forge.react(first.comment, reaction).await
    {
        tracing::warn!(comment = first.comment, %error, "no reaction to a comment");
    }
    let prefix = &voice.config.commands.prefix;
    let usage: Vec<(String, &str)> = Verb::ALL
        .iter()
        .map(|verb| verb.usage())
        .map(|(form, meaning)| (format!("{prefix} {form}"), meaning))
        .collect();
    let marker = marker::reply(first.comment, &first.body_digest);
    let Some(run) = run else { return Ok(String::new()) };
    let body = report::reply(&marker, run, lines, &usage);
    match voice.forge.comment(first.on, &body, &marker).await {
        Ok(comment) => Ok(comment.id.to_string()),
        Err(error @ (ForgeError::Unavailable(_) | ForgeError::Limited { .. })) => Err(error),
        Err(error) => {
            tracing::warn!(comment = first.comment, %error, "it can't be answered");
            Ok(String::new())
        }
    }
}

/// What the ledger says was shown when a comment was answered.
fn shown_key(line: &Received) -> String {
    format!("reply:{}:{}", line.comment, line.body_digest)
}
