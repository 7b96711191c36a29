//! Readings by status alone.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::model::{Classification, Outcome};

pub(crate) fn classify_http(
    _backend: &str,
    status: Option<u16>,
    headers: &BTreeMap<String, String>,
    body: &str,
    now: Timestamp,
) -> Classification {
    let outcome = match status {
        None | Some(500..=599) => Outcome::Transient,
        Some(401 | 403) => Outcome::Auth,
        Some(404) => Outcome::ModelUnavailable,
        Some(413) => Outcome::PacketTooLarge,
        Some(429) => Outcome::RateLimited,
        Some(_) if body.contains("context length") || body.contains("context size") => {
            Outcome::PacketTooLarge
        }
        Some(_) => Outcome::BadRequest,
    };
    let reset_seconds = headers.get("retry-after").and_then(|v| v.parse::<f64>().ok());
    let reset_at =
        reset_seconds.and_then(|s| now.checked_add(std::time::Duration::from_secs_f64(s)).ok());
    Classification {
        outcome,
        reset_seconds,
        reset_at,
        rule: "http-status".to_owned(),
        evidence: body.chars().take(500).collect(),
    }
}

#[expect(dead_code, reason = "the command workers come next")]
pub(crate) fn classify_cli(
    _backend: &str,
    exit_code: Option<i32>,
    stdout: &str,
    stderr: &str,
    _now: Timestamp,
) -> Classification {
    Classification {
        outcome: Outcome::Error,
        reset_seconds: None,
        reset_at: None,
        rule: format!("exit {exit_code:?}"),
        evidence: format!("{stdout}{stderr}").chars().take(500).collect(),
    }
}
