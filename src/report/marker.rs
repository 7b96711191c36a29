//! The hidden lines by which our objects on the forge are found again.

use crate::ledger::PauseCause;
use crate::model::{NodeId, RunId};

/// What every marker begins with.
pub const PREFIX: &str = "<!-- overhaul:";

/// Of a node's pull request.
#[must_use]
pub fn pull_request(run: &RunId, node: &NodeId) -> String {
    format!("{PREFIX}pull-request {run} {node} -->")
}

/// Of the one pull request of a run whose nodes go together.
#[must_use]
pub fn combined(run: &RunId) -> String {
    format!("{PREFIX}pull-request {run} -->")
}

/// Of the comment on a pull request that is not needed any more.
#[must_use]
pub fn needless(run: &RunId, node: &NodeId) -> String {
    format!("{PREFIX}needless {run} {node} -->")
}

/// Of the comment that a person's commits stop what is automatic. `ours` is the commit of ours
/// that they came after.
#[must_use]
pub fn left_alone(run: &RunId, number: u64, ours: &str) -> String {
    let short: String = ours.chars().take(12).collect();
    format!("{PREFIX}left-alone {run} {number} {short} -->")
}

/// Of the comment that a review was heard which asks for changes.
#[must_use]
pub fn changes(run: &RunId, number: u64, review: &str) -> String {
    // The forge's word: whatever it is, it stays within the line.
    let review: String = review
        .chars()
        .filter(|c| c.is_ascii_alphanumeric() || "_=".contains(*c))
        .take(80)
        .collect();
    format!("{PREFIX}changes {run} {number} {review} -->")
}

/// Of a run's dashboard issue.
#[must_use]
pub fn dashboard(run: &RunId) -> String {
    format!("{PREFIX}dashboard {run} -->")
}

/// Of the comment about one pause: one comment when it begins or changes cause, none when it is
/// only seen again. `first_seen` in seconds tells two pauses of one cause apart.
#[must_use]
pub fn pause(run: &RunId, cause: PauseCause, first_seen: jiff::Timestamp) -> String {
    format!("{PREFIX}pause {run} {} {} -->", super::pause::word(cause), first_seen.as_second())
}

/// Of the issue about one cause of pauses: opened, closed and opened again as it comes and goes.
#[must_use]
pub fn pause_issue(run: &RunId, cause: PauseCause) -> String {
    format!("{PREFIX}pause-issue {run} {} -->", super::pause::word(cause))
}

/// Of the one answer to the commands of a comment. `digest` is of its text: an edit that adds
/// commands has an answer of its own.
#[must_use]
pub fn reply(comment: u64, digest: &str) -> String {
    format!("{PREFIX}reply {comment} {digest} -->")
}

/// Whether a text is ours; such comments are never read for commands.
#[must_use]
pub fn is_ours(text: &str) -> bool {
    text.lines().any(|line| line.starts_with(PREFIX))
}

/// A tick box that acts as a command.
pub(super) fn tick(command: &str, label: &str) -> String {
    format!("- [ ] {PREFIX}tick {command} --> {label}\n")
}

/// The commands whose boxes are ticked in a dashboard's body.
#[must_use]
pub fn ticked(body: &str) -> Vec<String> {
    body.lines()
        .filter_map(|line| {
            let rest = line
                .trim_start()
                .strip_prefix("- [x] ")
                .or_else(|| line.trim_start().strip_prefix("- [X] "))?;
            let (command, _) =
                rest.strip_prefix(PREFIX)?.strip_prefix("tick ")?.split_once(" -->")?;
            Some(command.to_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{is_ours, tick, ticked};

    #[test]
    fn ticks_are_read_back() {
        let body = format!("{}{}", tick("resume", "Resume"), tick("retry N-1", "Retry"));
        assert_eq!(ticked(&body), Vec::<String>::new());
        assert_eq!(ticked(&body.replacen("[ ]", "[x]", 1)), ["resume"]);
        assert_eq!(
            ticked(&body.replace("[ ]", "[X]").replace('\n', "\r\n")),
            ["resume", "retry N-1"]
        );
        assert_eq!(ticked("- [x] `<!-- overhaul:tick cancel -->`"), Vec::<String>::new());
        assert!(is_ours("<!-- overhaul:x -->\nhi") && !is_ours("quoting `<!-- overhaul:x -->`"));
    }
}
