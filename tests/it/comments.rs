//! A reviewer steers a run from comments.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use overhaul::commands::{
    Access, DEFAULT_PREFIX, Occasion, Reply, Sender, SenderKind, decide, parse,
};
use serde_json::Value;

fn rows() -> Vec<Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/comments.jsonl");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn explain(input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_overhaul"))
        .args(["explain", "comment"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

/// The observed comments whose reading is a matter of taste, and where ours is the alternative.
const ALTERNATIVE: [&str; 2] = ["C065", "C067"];

#[test]
fn observed_comments_are_read_as_a_careful_person_would() {
    for row in rows() {
        let id = row["id"].as_str().unwrap();
        let output = explain(&row.to_string());
        assert!(output.status.success(), "{id}");
        let got: Value = serde_json::from_slice(&output.stdout).unwrap();
        if ALTERNATIVE.contains(&id) {
            assert_eq!(got["commands"], row["expected"]["alternatives"][0]["commands"], "{id}");
        } else {
            assert_eq!(got["commands"], row["expected"]["commands"], "{id}");
            assert_eq!(got["invalid"], row["expected"]["invalid"], "{id}");
        }
    }
}

#[test]
fn observed_comments_are_answered_as_a_careful_person_would() {
    for row in rows() {
        let id = row["id"].as_str().unwrap();
        if ALTERNATIVE.contains(&id) {
            continue;
        }
        let (event, expected) = (&row["event"], &row["expected"]);
        let parsed = parse(row["body"].as_str().unwrap(), None, DEFAULT_PREFIX);
        let sender = Sender {
            kind: SenderKind::from_event(event["sender_type"].as_str().unwrap()),
            login: event["user_login"].as_str().unwrap_or("someone"),
            access: Access::from_api(row["permission"].as_str().unwrap()),
        };
        let occasion = Occasion {
            deleted: event["action"] == "deleted",
            closed: event["issue_state"] == "closed",
        };
        let decision = decide(&parsed, sender, occasion, Access::Write);
        assert_eq!(decision.authorised, expected["authorised"].as_bool().unwrap(), "{id}");
        assert_eq!(decision.act, expected["act"].as_bool().unwrap(), "{id}");
        let reply = match decision.reply {
            Reply::None => "none",
            Reply::Ack => "ack",
            Reply::Error => "error",
            Reply::Hint => "hint",
            Reply::Denied => "denied",
        };
        assert_eq!(reply, expected["reply"], "{id}");
    }
}

#[test]
fn explain_prints_what_an_edit_adds() {
    let output = explain(
        r#"{"body": "/overhaul resume\n/overhaul skip N-1", "previous_body": "/overhaul resume"}"#,
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "{\"commands\":[{\"name\":\"skip\",\"args\":[\"N-1\"]}],\"invalid\":[]}\n"
    );
}

#[test]
fn explain_says_what_would_be_done_and_what_was_meant() {
    let notes = |body: &str| {
        let output = explain(&serde_json::json!({ "body": body }).to_string());
        assert!(output.status.success(), "{body}");
        String::from_utf8(output.stderr).unwrap()
    };
    let mixed = notes("/overhaul pause\n/overhaul retyr N-1");
    assert!(mixed.contains("line 2: did you mean `/overhaul retry NODE`?"), "{mixed}");
    assert!(mixed.contains("it would do nothing"), "{mixed}");
    let quoted = notes("> /overhaul pause\n\n/overhaul status");
    assert!(quoted.contains("line 1 is shown, not said"), "{quoted}");
    assert!(quoted.ends_with("it would do it\n") && !quoted.contains("line 3"), "{quoted}");
    assert_eq!(notes("see docs/overhaul.md"), "it asks for nothing\n");
}

#[test]
fn explain_refuses_what_is_no_comment() {
    for input in ["", "{", "[]", "{\"body\": 5}", "\u{0}", "{\"text\": \"/overhaul pause\"}"] {
        assert_eq!(explain(input).status.code(), Some(2), "{input}");
    }
    let output = explain(r#"{"body": null, "event": {}}"#);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "{\"commands\":[],\"invalid\":[]}\n");
}
