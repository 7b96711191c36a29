//! `explain error`: how one observation of a backend is classified, and by which rule.

use std::collections::BTreeMap;
use std::io::Read as _;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Failure, note, print};
use crate::backends::classify::{classify, stated_reset};
use crate::model::{Channel, Observation, Outcome};

/// Most bytes that are read; a backend's answer is far smaller.
const LARGEST_INPUT: u64 = 16 * 1024 * 1024;

/// What standard input should hold.
const SHAPE: &str = r#"give one object: {"backend","channel":"http","status","headers","body"} or {"backend","channel":"cli","exit_code","stdout","stderr"}"#;

/// The form of input and output, for the help text.
const HELP: &str = r#"Input: {"backend", "channel": "http", "status", "headers", "body"} or
{"backend", "channel": "cli", "exit_code", "stdout", "stderr"}, each part optional; "now" is when it was
seen (RFC 3339). For example: {"status": 429, "headers": {"retry-after": "30"}, "body": "slow down"}.
Output: {"outcome", "reset_seconds", "reset_at", "rule", "evidence"}."#;

/// What an observation may hold; one of them at least, beside `backend` and `now`.
const FIELDS: [&str; 9] =
    ["channel", "status", "headers", "body", "exit_code", "stdout", "stderr", "backend", "now"];

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// Print JSON (it always does).
    #[arg(long, hide = true)]
    json: bool,
}

pub(super) fn run(_args: Args) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(LARGEST_INPUT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| Failure::usage("cannot read standard input").because(error))?;
    print(&explain(&bytes, Timestamp::now())?)?;
    note(&ignored(&bytes).unwrap_or_default());
    Ok(())
}

fn explain(bytes: &[u8], wall: Timestamp) -> Result<String, Failure> {
    if bytes.len() as u64 > LARGEST_INPUT {
        return Err(Failure::usage("the observation is larger than 16 MiB")
            .remedy("cut the body to what matters"));
    }
    let observation = read(bytes)?;
    let found = classify(&observation, wall);
    let mut reset_at = found.reset_at;
    if reset_at.is_none()
        && observation.now.is_none()
        && matches!(found.outcome, Outcome::RateLimited | Outcome::CreditExhausted)
    {
        // The report does not say when it was made: the stated time may lie behind the clock.
        reset_at = stated_reset(&observation, wall);
    }
    let outcome = match found.outcome {
        Outcome::Success => json!("ok"),
        other => json!(other),
    };
    let mut text = json!({
        "outcome": outcome,
        "reset_seconds": found.reset_seconds,
        "reset_at": reset_at,
        "rule": found.rule,
        "evidence": found.evidence,
    })
    .to_string();
    text.push('\n');
    Ok(text)
}

/// Reads an observation leniently: fields may be missing, null, or of a neighbouring type.
fn read(bytes: &[u8]) -> Result<Observation, Failure> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| {
        Failure::usage("standard input is not one JSON observation").because(error).remedy(SHAPE)
    })?;
    let Value::Object(fields) = value else {
        return Err(Failure::usage("standard input is not one JSON observation")
            .because("line 1 column 1: the value is not an object")
            .remedy(SHAPE));
    };
    if !FIELDS[..7].iter().any(|name| fields.contains_key(*name)) {
        let found: Vec<&str> = fields.keys().map(String::as_str).take(10).collect();
        return Err(Failure::usage("standard input tells of no answer and no end of a program")
            .because(format!("its fields are {}", listed(&found)))
            .remedy(SHAPE));
    }
    let is_cli = match fields.get("channel") {
        Some(Value::String(name)) if name == "http" => false,
        Some(Value::String(name)) if name == "cli" => true,
        None | Some(Value::Null) => {
            ["exit_code", "stdout", "stderr"].iter().any(|name| fields.contains_key(*name))
        }
        Some(other) => {
            return Err(Failure::usage("the observation has an unknown channel")
                .because(format!("`channel` is {other}, not \"http\" or \"cli\""))
                .remedy(SHAPE));
        }
    };
    let now = match fields.get("now") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(
            text.parse::<Timestamp>()
                .map_err(|error| Failure::usage("`now` is not an RFC 3339 time").because(error))?,
        ),
        Some(_) => return Err(Failure::usage("`now` is not an RFC 3339 time")),
    };
    let channel = if is_cli {
        Channel::Cli {
            exit_code: integer(&fields, "exit_code", i64::from(i32::MIN), i64::from(i32::MAX))?
                .and_then(|code| i32::try_from(code).ok()),
            stdout: text(fields.get("stdout")),
            stderr: text(fields.get("stderr")),
        }
    } else {
        Channel::Http {
            status: integer(&fields, "status", 0, 999)?
                .filter(|status| *status > 0)
                .and_then(|status| u16::try_from(status).ok()),
            headers: headers(fields.get("headers"))?,
            body: text(fields.get("body")),
        }
    };
    Ok(Observation { backend: text(fields.get("backend")), channel, now })
}

fn listed(names: &[&str]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    if quoted.is_empty() { "none".to_owned() } else { quoted.join(", ") }
}

/// What a person may have meant otherwise: fields that are not read.
fn ignored(bytes: &[u8]) -> Option<String> {
    let Ok(Value::Object(fields)) = serde_json::from_slice(bytes) else { return None };
    let other: Vec<&str> =
        fields.keys().map(String::as_str).filter(|name| !FIELDS.contains(name)).take(10).collect();
    (!other.is_empty()).then(|| format!("not read: {}\n", listed(&other)))
}

/// A whole number within bounds, also written as a string; null and absence are none.
fn integer(
    fields: &Map<String, Value>,
    name: &str,
    least: i64,
    most: i64,
) -> Result<Option<i64>, Failure> {
    let number = match fields.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.trim().is_empty() => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(other) => other.as_i64(),
    };
    match number.filter(|number| (least..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => Err(Failure::usage(format!("`{name}` is no whole number from {least} to {most}"))
            .because(format!("it is {}", fields.get(name).unwrap_or(&Value::Null)))
            .remedy(SHAPE)),
    }
}

fn text(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

/// An object of strings, numbers or lists, or a list of pairs; names in any case.
fn headers(value: Option<&Value>) -> Result<BTreeMap<String, String>, Failure> {
    let single = |value: &Value| match value {
        Value::Array(values) => text(values.first()),
        other => text(Some(other)),
    };
    Ok(match value {
        None | Some(Value::Null) => BTreeMap::new(),
        Some(Value::Object(fields)) => {
            fields.iter().map(|(name, value)| (name.to_ascii_lowercase(), single(value))).collect()
        }
        Some(Value::Array(pairs)) => pairs
            .iter()
            .filter_map(|pair| Some((text(pair.get(0)).to_ascii_lowercase(), single(pair.get(1)?))))
            .collect(),
        Some(other) => {
            return Err(Failure::usage("`headers` is no object of names and values")
                .because(format!("it is {other}"))
                .remedy(SHAPE));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall() -> Timestamp {
        "2026-06-10T12:00:00Z".parse().unwrap()
    }

    fn explained(input: &str) -> Value {
        serde_json::from_str(&explain(input.as_bytes(), wall()).unwrap()).unwrap()
    }

    #[test]
    fn fields_of_neighbouring_types() {
        let found = explained(
            r#"{"channel":"http","status":"429","headers":{"Retry-After":30},"body":{"error":"Rate limit exceeded"},"id":"x","why":null}"#,
        );
        assert_eq!(found["outcome"], "rate_limited");
        assert_eq!(found["reset_seconds"], 30.0);
        assert_eq!(found["reset_at"], "2026-06-10T12:00:30Z");
        assert_eq!(
            explained(r#"{"channel":"cli","exit_code":0,"stdout":"done"}"#)["outcome"],
            "ok"
        );
        assert_eq!(
            explained(r#"{"status":null,"headers":null,"body":null}"#)["outcome"],
            "transient"
        );
    }

    #[test]
    fn a_passed_time_is_still_told_where_the_report_has_no_date() {
        let limit = |now: &str| {
            explained(&format!(
                r#"{{"channel":"cli","exit_code":1,"stdout":"Claude AI usage limit reached|1762952400"{now}}}"#
            ))
        };
        assert_eq!(limit("")["reset_at"], "2025-11-12T13:00:00Z");
        assert_eq!(limit("")["reset_seconds"], Value::Null);
        assert_eq!(limit(r#","now":"2025-11-12T12:00:00Z""#)["reset_seconds"], 3600.0);
        assert_eq!(limit(r#","now":"2026-01-01T00:00:00Z""#)["reset_at"], Value::Null);
    }

    #[test]
    fn malformed_input_is_refused() {
        for bad in [
            "",
            "{",
            "[]",
            "null",
            "{}",
            r#"{"code":429}"#,
            r#"{"channel":"fax"}"#,
            r#"{"now":"yesterday"}"#,
            r#"{"status":"abc"}"#,
            r#"{"status":-1}"#,
            r#"{"status":42900}"#,
            r#"{"status":4.5}"#,
            r#"{"channel":"cli","exit_code":[]}"#,
            r#"{"headers":"none"}"#,
        ] {
            assert!(explain(bad.as_bytes(), wall()).is_err(), "{bad}");
        }
    }
}
