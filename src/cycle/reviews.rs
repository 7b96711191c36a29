//! Reviews that ask for changes: the node goes back to work with what they say in its prompt. Of
//! people only, who may command; once for each review; never where a person's commits are on the
//! branch. A review can't widen anything: the node's scope and checks are what they were.

use std::fmt::Write as _;

use super::access::Accesses;
use super::context::Cycle;
use super::error::blocking;
use super::{CycleError, show, single};
use crate::backends::prompt::cut;
use crate::commands::Access;
use crate::forge::{PullRequest, Review};
use crate::git::parse_oid;
use crate::ledger::{EventKind, Landing, NodeRecord, Receipt};
use crate::model::NodeId;
use crate::report::{self, marker};

/// Longest text taken over from reviews, in characters.
const MAX_WORDS: usize = 3_000;
/// Longest part of the reviewed change that is shown again, in characters.
const MAX_PATCH: usize = 2_500;

/// Looks at the reviews of pull requests that changed since they were looked at last: no more
/// requests where nothing happened.
///
/// # Errors
/// When the ledger fails. Trouble of the forge leaves reviews for the next cycle.
pub(super) async fn follow(cycle: &Cycle, found: &[PullRequest]) -> Result<(), CycleError> {
    let run = cycle.journal.state().clone();
    // In one pull request of several nodes nobody says whose work is meant.
    if single::is_on(cycle) || run.cancelled.is_some() {
        return Ok(());
    }
    let changed: Vec<(&NodeId, u64)> = run
        .nodes
        .iter()
        .filter_map(|(node, record)| {
            let number = in_review(record)?;
            let seen = found.iter().find(|pr| pr.number == number)?.updated_at?;
            let known = record.pr.as_ref().and_then(|pr| pr.reviewed);
            (known != Some(seen)).then_some((node, number))
        })
        .collect();
    let mut events = Vec::new();
    if !changed.is_empty() {
        let numbers: Vec<u64> = changed.iter().map(|(_, number)| *number).collect();
        match cycle.forge.reviews(&numbers).await {
            Ok(all) => {
                let mut access = Accesses::new(&*cycle.forge);
                for (node, number) in changed {
                    let Some(reviews) = all.iter().find(|r| r.number == number) else { continue };
                    let Some(record) = run.nodes.get(node) else { continue };
                    match heard(cycle, record, &reviews.asking, &mut access).await {
                        Ok(asking) => events.push(EventKind::Reviewed {
                            node: node.clone(),
                            number,
                            seen: reviews.updated_at,
                            reviews: asking.iter().map(|review| review.id.clone()).collect(),
                            by: asking.iter().map(|review| review.by.clone()).collect(),
                            reason: reason(cycle, record, &asking).await?,
                        }),
                        Err(error) => tracing::warn!(%node, %error, "its reviews wait"),
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "reviews were not read; the next cycle does"),
        }
    }
    if !events.is_empty() {
        cycle.journal.write(events).await?;
    }
    tell(cycle).await
}

/// The pull request of work that people may still send back.
fn in_review(record: &NodeRecord) -> Option<u64> {
    let accepted = matches!(record.landing, Landing::Accepted { .. });
    let pr = record.pr.as_ref().filter(|pr| !pr.is_over())?;
    (accepted && record.foreign_head().is_none() && record.asked.is_none()).then_some(pr.number)
}

/// The reviews that are new and of people who may command.
async fn heard<'a>(
    cycle: &Cycle,
    record: &NodeRecord,
    asking: &'a [Review],
    access: &mut Accesses<'_>,
) -> Result<Vec<&'a Review>, CycleError> {
    let required = Access::from(cycle.config.commands.permission);
    let mut heard = Vec::new();
    for review in asking.iter().filter(|review| !record.heeded.contains(&review.id)) {
        if access.of(&review.by).await? >= required {
            heard.push(review);
        } else {
            tracing::info!(by = review.by, "a review asks for changes that may not");
        }
    }
    Ok(heard)
}

/// What goes into the next prompt: their words, and the change that they are about.
async fn reason(
    cycle: &Cycle,
    record: &NodeRecord,
    asking: &[&Review],
) -> Result<String, CycleError> {
    let Landing::Accepted { receipt, .. } = &record.landing else { return Ok(String::new()) };
    if asking.is_empty() {
        return Ok(String::new());
    }
    let mut words = String::new();
    for review in asking {
        let _ = writeln!(words, "{} wrote:\n{}", review.by, review.body.trim());
        for remark in &review.remarks {
            let line = remark.line.map(|line| format!(", line {line}")).unwrap_or_default();
            let _ = writeln!(words, "\non {}{line}:\n{}", remark.path, remark.body.trim());
        }
        words.push('\n');
    }
    let patch = match patch(cycle, receipt).await {
        Ok(patch) => cut(&patch, MAX_PATCH),
        Err(error) => {
            tracing::warn!(%error, "the reviewed change can't be shown to the next attempt");
            "(not available)".to_owned()
        }
    };
    Ok(format!(
        "Reviewers of the pull request ask for changes. Do the task again, from the start and as they \
         want it, as far as scope and checks allow.\n\n{}\nThe change that they reviewed:\n{patch}",
        cut(words.trim_end(), MAX_WORDS)
    ))
}

async fn patch(cycle: &Cycle, receipt: &Receipt) -> Result<String, CycleError> {
    let (base, commit) = (parse_oid(&receipt.base)?, parse_oid(&receipt.commit)?);
    let repo = cycle.repo().clone();
    blocking(move || repo.patch(base, commit)).await
}

/// Says on the pull request that a review was heard.
async fn tell(cycle: &Cycle) -> Result<(), CycleError> {
    let run = cycle.journal.state().clone();
    for (node, record) in &run.nodes {
        let (Some(asked), Some(pr)) = (&record.change_request, &record.pr) else { continue };
        if pr.is_over() {
            continue;
        }
        let marker = marker::changes(cycle.run_id(), pr.number, &asked.review);
        let text = report::changes_comment(&marker, node, &asked.by);
        show::say_once(cycle, pr.number, &marker, &text).await?;
    }
    Ok(())
}
