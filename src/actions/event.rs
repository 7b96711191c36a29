//! The event that woke us up. It is a wake-up and nothing else: what happened is read from the API.
//! The little that is looked at can only take away: whose edit a comment holds, and whether a pull
//! request comes from elsewhere. What can't be read counts as the less trusted of the two.

use std::path::Path;

use serde_json::Value;

/// Largest payload that is read, bytes (GitHub caps webhook payloads at 25 MB).
const PAYLOAD_LIMIT: u64 = 26 * 1024 * 1024;

/// What woke us up, as far as it matters.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wakeup {
    /// The event's name; empty outside Actions.
    pub event: String,
    /// Somebody wrote, edited or deleted a comment or a review: anybody may do that at any time.
    pub by_comment: bool,
    /// The comment that was edited, and the login of who edited it.
    pub edit: Option<(u64, String)>,
    /// It is about a pull request whose head is not in this repository, or can't be told to be.
    pub from_fork: bool,
    /// What of the payload can't be read.
    pub trouble: Option<String>,
}

impl Wakeup {
    /// Reads the payload file.
    pub(super) fn read(event: &str, path: &Path) -> Self {
        let failed = |why: String| Self::parse(event, b"{}").with_trouble(why);
        match std::fs::metadata(path) {
            Ok(file) if file.len() > PAYLOAD_LIMIT => {
                failed(format!("it is larger than {PAYLOAD_LIMIT} bytes"))
            }
            Ok(_) => match std::fs::read(path) {
                Ok(bytes) => Self::parse(event, &bytes),
                Err(error) => failed(error.to_string()),
            },
            Err(error) => failed(error.to_string()),
        }
    }

    /// Reads a payload, field by field: GitHub adds fields and values, and a strict model would fail
    /// on the first new one.
    #[must_use]
    pub fn parse(event: &str, payload: &[u8]) -> Self {
        let mut it = Self {
            event: event.to_owned(),
            by_comment: matches!(
                event,
                "issue_comment"
                    | "commit_comment"
                    | "discussion_comment"
                    | "pull_request_review"
                    | "pull_request_review_comment"
            ),
            from_fork: event.starts_with("pull_request"),
            ..Self::default()
        };
        let payload = match serde_json::from_slice(payload) {
            Ok(Value::Object(payload)) => Value::Object(payload),
            Ok(_) => return it.with_trouble("it is no JSON object".to_owned()),
            Err(error) => return it.with_trouble(error.to_string()),
        };
        let text = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
        if it.by_comment && text("/action") == Some("edited") {
            let id = payload.pointer("/comment/id").and_then(Value::as_u64);
            it.edit = id.zip(text("/sender/login").map(str::to_owned));
        }
        if it.from_fork {
            // A deleted fork leaves null: that is not our repository either.
            let head = text("/pull_request/head/repo/full_name");
            let base = text("/pull_request/base/repo/full_name");
            match (head, base) {
                (Some(head), Some(base)) => it.from_fork = !head.eq_ignore_ascii_case(base),
                (None, Some(_)) => {}
                _ => return it.with_trouble("it names no pull request".to_owned()),
            }
        }
        it
    }

    fn with_trouble(mut self, why: String) -> Self {
        self.trouble.get_or_insert(why);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::{PAYLOAD_LIMIT, Wakeup};

    fn parse(event: &str, payload: &str) -> Wakeup {
        Wakeup::parse(event, payload.as_bytes())
    }

    #[test]
    fn an_edit_is_its_senders() {
        let payload = r#"{"action":"edited","comment":{"id":99,"user":{"login":"alice"}},
            "sender":{"login":"mallory","type":"User"}}"#;
        let it = parse("issue_comment", payload);
        assert_eq!(it.edit, Some((99, "mallory".to_owned())));
        assert!(it.by_comment && !it.from_fork && it.trouble.is_none());
        for other in ["created", "deleted"] {
            assert_eq!(parse("issue_comment", &payload.replace("edited", other)).edit, None);
        }
        // Whose edit it is must not be guessed.
        assert_eq!(parse("issue_comment", &payload.replace("99", "\"99\"")).edit, None);
        assert_eq!(parse("issue_comment", &payload.replace("sender", "sendee")).edit, None);
        assert_eq!(parse("workflow_run", payload).edit, None);
    }

    #[test]
    fn forks_are_told_apart() {
        let payload = |head: &str| {
            format!(
                r#"{{"pull_request":{{"head":{{"repo":{head}}},
                "base":{{"repo":{{"full_name":"o/r"}}}}}}}}"#
            )
        };
        let events = [
            "pull_request",
            "pull_request_target",
            "pull_request_review",
            "pull_request_review_comment",
        ];
        for event in events {
            for (head, fork) in [
                (r#"{"full_name":"O/r"}"#, false),
                (r#"{"full_name":"x/r"}"#, true),
                (r#"{"full_name":["o/r"]}"#, true),
                ("null", true),
            ] {
                let it = parse(event, &payload(head));
                assert_eq!((it.from_fork, it.trouble), (fork, None), "{event} {head}");
            }
            for damaged in ["{}", "[", "[]", r#"{"pull_request":{"head":{"repo":null}}}"#] {
                let it = parse(event, damaged);
                assert!(it.from_fork && it.trouble.is_some(), "{event} {damaged}");
            }
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_and_only_wakes() {
        let deep = "[".repeat(1_000);
        for damaged in ["", "[", "null", "7", "{\"a\":", deep.as_str(), "\u{feff}{}"] {
            let it = parse("issue_comment", damaged);
            assert!(it.trouble.is_some() && it.by_comment && it.edit.is_none(), "{damaged:.20}");
        }
        assert_eq!(parse("something_new", "{}").trouble, None);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("event.json");
        assert!(Wakeup::read("schedule", &path).trouble.is_some());
        assert!(Wakeup::read("schedule", folder.path()).trouble.is_some());
        std::fs::File::create(&path).unwrap().set_len(PAYLOAD_LIMIT + 1).unwrap();
        let told = Wakeup::read("schedule", &path).trouble.unwrap();
        assert!(told.contains("larger than"), "{told}");
    }
}
