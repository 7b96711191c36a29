//! The event that woke us up. Payloads are read field by field: GitHub adds fields and values, and
//! a strict model would fail on the first new one.

use std::path::Path;

use serde_json::Value;

use super::ActionsError;

/// Largest payload that is read, bytes (GitHub caps webhook payloads at 25 MB).
const PAYLOAD_LIMIT: u64 = 26 * 1024 * 1024;

/// What woke us up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wakeup {
    /// Not a workflow: somebody at a shell.
    Manual,
    /// The schedule.
    Schedule {
        /// The cron line.
        cron: String,
    },
    /// Somebody or another workflow asked for it.
    Dispatch {
        /// Login of who did.
        sender: String,
    },
    /// A comment was made or edited, on an issue, a pull request or a line of its diff.
    Comment {
        /// Its id.
        id: u64,
        /// Number of the issue or pull request.
        issue: u64,
        /// Whether that is a pull request.
        on_pull_request: bool,
        /// `created` or `edited`.
        action: String,
        /// Its text.
        body: String,
        /// Login of its author.
        author: String,
        /// Login of who caused the event; differs from the author when somebody else edits.
        sender: String,
        /// `User`, `Bot` or `Organization`.
        sender_type: String,
    },
    /// Something happened to a pull request.
    PullRequest {
        /// Its number.
        number: u64,
        /// `opened`, `closed`, `synchronize`, ...
        action: String,
        /// Whether closing merged it.
        merged: bool,
        /// Its head branch.
        head: String,
        /// Whether the head is in another repository.
        from_fork: bool,
    },
    /// Another workflow ended.
    WorkflowRun {
        /// The run.
        id: u64,
        /// Its head branch.
        branch: String,
        /// `success`, `failure`, ...; empty while it goes on.
        conclusion: String,
    },
    /// Another event, by name.
    Other(String),
}

/// Reads the payload file.
pub(super) fn read(event: &str, path: &Path) -> Result<Wakeup, ActionsError> {
    let file = |source| ActionsError::File {
        what: "the event payload",
        path: path.display().to_string(),
        source,
    };
    if std::fs::metadata(path).map_err(file)?.len() > PAYLOAD_LIMIT {
        let reason = format!("larger than {PAYLOAD_LIMIT} bytes");
        return Err(ActionsError::Event { event: event.to_owned(), reason });
    }
    parse_event(event, &std::fs::read(path).map_err(file)?)
}

/// Reads a payload.
///
/// # Errors
/// When it is no JSON object or lacks what its event always has.
pub fn parse_event(event: &str, payload: &[u8]) -> Result<Wakeup, ActionsError> {
    let failed = |reason: String| ActionsError::Event { event: event.to_owned(), reason };
    let payload: Value = serde_json::from_slice(payload).map_err(|e| failed(e.to_string()))?;
    let missing = |pointer: &str| failed(format!("{pointer} is missing"));
    let text = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
    let need = |pointer: &str| text(pointer).map(str::to_owned).ok_or_else(|| missing(pointer));
    let number = |pointer: &str| {
        payload.pointer(pointer).and_then(Value::as_u64).ok_or_else(|| missing(pointer))
    };
    let or_empty = |pointer: &str| text(pointer).unwrap_or_default().to_owned();
    Ok(match event {
        "schedule" => Wakeup::Schedule { cron: or_empty("/schedule") },
        "workflow_dispatch" | "repository_dispatch" => {
            Wakeup::Dispatch { sender: or_empty("/sender/login") }
        }
        // A deleted comment commands nothing.
        "issue_comment" | "pull_request_review_comment" if text("/action") == Some("deleted") => {
            Wakeup::Other(format!("{event}.deleted"))
        }
        "issue_comment" | "pull_request_review_comment" => {
            let on_diff = event == "pull_request_review_comment";
            Wakeup::Comment {
                id: number("/comment/id")?,
                issue: number(if on_diff { "/pull_request/number" } else { "/issue/number" })?,
                on_pull_request: on_diff
                    || payload.pointer("/issue/pull_request").is_some_and(|p| !p.is_null()),
                action: or_empty("/action"),
                body: or_empty("/comment/body"),
                author: need("/comment/user/login")?,
                sender: need("/sender/login")?,
                sender_type: need("/sender/type")?,
            }
        }
        "pull_request" | "pull_request_target" => Wakeup::PullRequest {
            number: number("/pull_request/number")?,
            action: or_empty("/action"),
            merged: payload.pointer("/pull_request/merged").and_then(Value::as_bool) == Some(true),
            head: need("/pull_request/head/ref")?,
            // A deleted fork leaves null: that is not our repository either.
            from_fork: text("/pull_request/head/repo/full_name")
                != text("/pull_request/base/repo/full_name"),
        },
        "workflow_run" => Wakeup::WorkflowRun {
            id: number("/workflow_run/id")?,
            branch: or_empty("/workflow_run/head_branch"),
            conclusion: or_empty("/workflow_run/conclusion"),
        },
        other => Wakeup::Other(other.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::{Wakeup, parse_event};

    #[test]
    fn a_comment_knows_its_author_and_its_sender() {
        let payload = br#"{"action":"edited","issue":{"number":7,"pull_request":{"url":"u"}},
            "comment":{"id":99,"body":null,"user":{"login":"alice"}},
            "sender":{"login":"mallory","type":"User"}}"#;
        assert_eq!(
            parse_event("issue_comment", payload).unwrap(),
            Wakeup::Comment {
                id: 99,
                issue: 7,
                on_pull_request: true,
                action: "edited".to_owned(),
                body: String::new(),
                author: "alice".to_owned(),
                sender: "mallory".to_owned(),
                sender_type: "User".to_owned(),
            }
        );
        let diff = br#"{"action":"created","pull_request":{"number":8},"comment":{"id":1,
            "body":"x","user":{"login":"a"}},"sender":{"login":"a","type":"Bot"}}"#;
        let Wakeup::Comment { issue: 8, on_pull_request: true, .. } =
            parse_event("pull_request_review_comment", diff).unwrap()
        else {
            panic!("not a comment on pull request 8")
        };
        let deleted = parse_event("issue_comment", br#"{"action":"deleted"}"#).unwrap();
        assert_eq!(deleted, Wakeup::Other("issue_comment.deleted".to_owned()));
    }

    #[test]
    fn forks_are_told_apart() {
        let payload = |head: &str| {
            format!(
                r#"{{"action":"closed","pull_request":{{"number":3,"merged":true,
                "head":{{"ref":"overhaul/r/n","repo":{head}}},
                "base":{{"repo":{{"full_name":"o/r"}}}}}}}}"#
            )
        };
        for (head, fork) in
            [(r#"{"full_name":"o/r"}"#, false), (r#"{"full_name":"x/r"}"#, true), ("null", true)]
        {
            let Wakeup::PullRequest { number: 3, merged: true, from_fork, .. } =
                parse_event("pull_request", payload(head).as_bytes()).unwrap()
            else {
                panic!("not a pull request")
            };
            assert_eq!(from_fork, fork, "{head}");
        }
    }

    #[test]
    fn the_rest_has_names_and_errors_have_reasons() {
        let parse = |name: &str, text: &str| parse_event(name, text.as_bytes());
        let cron = Wakeup::Schedule { cron: "7 3 * * *".to_owned() };
        assert_eq!(parse("schedule", r#"{"schedule":"7 3 * * *"}"#).unwrap(), cron);
        assert_eq!(
            parse("workflow_dispatch", r#"{"sender":{"login":"a"}}"#).unwrap(),
            Wakeup::Dispatch { sender: "a".to_owned() }
        );
        assert_eq!(parse("push", "{}").unwrap(), Wakeup::Other("push".to_owned()));
        let error = parse("issue_comment", r#"{"comment":{"id":"x"}}"#).unwrap_err().to_string();
        assert!(error.contains("issue_comment") && error.contains("/comment/id"), "{error}");
        assert!(parse("schedule", "[").is_err());
    }
}
