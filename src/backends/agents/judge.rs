//! From an ended agent to a report.

use jiff::Timestamp;

use super::Seen;
use crate::backends::classify::classify_cli;
use crate::backends::command::{ending, last_lines};
use crate::backends::gateway::{self, Exhausted};
use crate::backends::result::{self, ResultError};
use crate::backends::{Attempt, ModelSwitch, WorkReport, WorkerResult};
use crate::model::{Outcome, Usage};
use crate::process::Status;

pub(super) fn judge(attempt: &Attempt, seen: &Seen<'_>) -> WorkReport {
    let mut report = outcome(attempt, seen);
    report.usage = usage(attempt, seen);
    let at_gateway = seen.evidence.and_then(|e| e.model_seen.clone());
    report.model_seen = at_gateway.or_else(|| seen.heard.model.clone());
    report.model_switch = switch(attempt, seen);
    report.log = format!(
        "$ {} ...\n{}\n{}\n{:?}\n",
        seen.program, seen.stdout, seen.stderr, seen.ended.status
    );
    report
}

fn outcome(attempt: &Attempt, seen: &Seen<'_>) -> WorkReport {
    let status = seen.ended.status;
    match status {
        Status::Cancelled if attempt.cancel.is_cancelled() => {
            return WorkReport::ended(Outcome::Timeout, "stopped because the cycle ends");
        }
        Status::OverDisk => {
            let detail = format!("`{}` wrote more than its disk cap", seen.program);
            return WorkReport::ended(Outcome::Error, detail);
        }
        _ => {}
    }
    // A result wins over any limit on the way to it.
    if seen.heard.done && matches!(status, Status::Exited(_)) {
        match handed_in(attempt, &seen.heard.message, status.success()) {
            Some(Ok(result)) => return WorkReport::success(result),
            Some(Err(problem)) if status.success() => {
                return WorkReport::ended(Outcome::InvalidResult, problem.to_string());
            }
            _ => {}
        }
    }
    let how = match status {
        Status::TimedOut => format!("the attempt's {} s are over", attempt.deadline.as_secs()),
        Status::Cancelled => "it was stopped".to_owned(),
        status => format!("`{}` ended with {}", seen.program, ending(status)),
    };
    let spent = seen.evidence.and_then(|e| e.ending());
    // Requests that never went out say nothing of the backend.
    if let (Some(Exhausted::Refused(_)), Some((outcome, why))) =
        (seen.evidence.and_then(|e| e.exhausted), &spent)
    {
        return WorkReport::ended(*outcome, why.as_str());
    }
    // Typed evidence first: agents reword it, hide it, or try again for ever.
    // An answer that the attempt's own clock cut off says nothing of the backend.
    let cut_off = |rule: &str| status == Status::TimedOut && rule == gateway::DEADLINE;
    let verdict = seen.evidence.and_then(|e| e.verdict());
    if let Some(reading) = verdict.filter(|reading| !cut_off(&reading.rule)) {
        let how = spent.as_ref().map_or(&how, |(_, why)| why);
        let detail = format!("{how}; the backend last answered: {}", reading.evidence);
        let mut report = WorkReport::ended(reading.outcome, detail);
        report.classification = Some(reading.clone());
        return report;
    }
    if let Some((outcome, why)) = spent {
        return WorkReport::ended(outcome, why);
    }
    if status == Status::TimedOut {
        return WorkReport::ended(Outcome::Timeout, how);
    }
    let code = match status {
        Status::Exited(code) => Some(code),
        _ => None,
    };
    let reading = classify_cli(seen.backend, code, seen.stdout, seen.stderr, Timestamp::now());
    let outcome = match reading.outcome {
        // It came to no end that counts, whatever a rule makes of its text.
        Outcome::Success => Outcome::Error,
        other => other,
    };
    let words = if reading.evidence.is_empty() {
        last_lines(if seen.stderr.trim().is_empty() { seen.stdout } else { seen.stderr })
    } else {
        reading.evidence.clone()
    };
    let mut report = WorkReport::ended(outcome, format!("{how}: {words}"));
    report.classification = Some(reading);
    report
}

/// The result in a last message. The tree is what counts: an agent that ended well and said so in
/// prose claims every finding, and our own checks decide. `None` where it did not end well and
/// handed nothing in.
fn handed_in(
    attempt: &Attempt,
    message: &str,
    well: bool,
) -> Option<Result<WorkerResult, ResultError>> {
    match result::parse_output(message, &attempt.node) {
        Err(ResultError::Missing) if well => {
            let mut claim = WorkerResult {
                resolved: attempt.node.findings.clone(),
                blocked: Vec::new(),
                summary: message.trim().to_owned(),
            };
            if let Ok(checked) = result::check(claim.clone(), &attempt.node) {
                claim = checked;
            }
            Some(Ok(claim))
        }
        Err(ResultError::Missing) => None,
        other => Some(other),
    }
}

/// The gateway counts where there is one; what it was not told, the agent may know.
fn usage(attempt: &Attempt, seen: &Seen<'_>) -> Usage {
    let own = seen.heard.usage;
    let Some(evidence) = seen.evidence else { return own };
    let mut usage = evidence.usage;
    if usage.tokens() == 0 {
        (usage.input_tokens, usage.output_tokens) = (own.input_tokens, own.output_tokens);
    }
    if attempt.pool.cost_per_mtok.is_none() {
        usage.cost_usd = own.cost_usd;
    }
    usage
}

/// Whether another model worked than the pool's.
fn switch(attempt: &Attempt, seen: &Seen<'_>) -> Option<ModelSwitch> {
    let asked = &attempt.pool.model;
    match seen.evidence {
        Some(evidence) => evidence.switch(asked),
        None => {
            let answered = seen.heard.model.clone()?;
            ModelSwitch::between(asked, asked, &answered)
        }
    }
}
