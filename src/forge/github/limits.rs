//! What an answer means: done, a limit, a refusal, or trouble. One order, in one place.
//!
//! Source: GitHub's "Rate limits for the REST API" and "Best practices for using the REST API":
//! limits come as 403 or 429; `retry-after` is followed first, else `x-ratelimit-reset` when
//! `x-ratelimit-remaining` is 0, else at least a minute, growing. A 403 is also how a missing
//! permission is told, and only the body tells which.

use std::time::Duration;

use axum::http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;

use super::pace::after;

/// The wait when a limit names no end; doubles with each limit in a row.
const GROWING_MINUTE: Duration = Duration::from_secs(60);
/// No limit of GitHub lasts longer: primary limits reset within the hour, the rest is margin for
/// servers that are set up differently. A longer wait is a broken header.
const LONGEST: Duration = Duration::from_secs(6 * 60 * 60);
/// Longest text taken from an answer, in characters.
const LONGEST_MESSAGE: usize = 600;

/// What an answer means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// 2xx, or 304 for a conditional request.
    Done,
    /// The token is not or no longer good.
    Unauthorized,
    /// Nothing was done; it may work at the time given.
    Limited(Timestamp),
    /// Nothing was done: 3xx that leads elsewhere.
    Moved(String),
    /// Nothing was done, and repeating it will not help.
    Refused,
    /// 5xx: unknown whether something was done.
    Trouble,
}

/// What the body of a refusal says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Said {
    /// The message and those of its details, joined, bounded, on one line.
    pub message: String,
    /// `(field, code)` of each detail.
    pub details: Vec<(String, String)>,
}

impl Said {
    /// Reads `{message, errors: [{field, code, message} | text], documentation_url}`; anything
    /// else is taken as text.
    pub(super) fn read(body: &[u8]) -> Self {
        let Ok(value) = serde_json::from_slice::<Value>(body) else {
            return Self { message: plain(&String::from_utf8_lossy(body)), details: Vec::new() };
        };
        let text = |value: &Value, key: &str| {
            value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let mut parts = vec![text(&value, "message")];
        let mut details = Vec::new();
        for error in value.get("errors").and_then(Value::as_array).into_iter().flatten().take(20) {
            let (field, code) = (text(error, "field"), text(error, "code"));
            match error.as_str() {
                Some(told) => parts.push(told.to_owned()),
                None if error.get("message").is_some() => parts.push(text(error, "message")),
                None => parts.push(format!("{field} {code}")),
            }
            details.push((field, code));
        }
        if let Some(told) = value.get("errors").and_then(Value::as_str) {
            parts.push(told.to_owned());
        }
        parts.retain(|part| !part.trim().is_empty());
        Self { message: plain(&parts.join("; ")), details }
    }

    pub(super) fn has(&self, phrase: &str) -> bool {
        self.message.to_lowercase().contains(phrase)
    }

    /// Whether a detail names this field and code.
    pub(super) fn names(&self, field: &str, code: &str) -> bool {
        self.details.iter().any(|(f, c)| f == field && c == code)
    }
}

/// One bounded line without control characters.
fn plain(text: &str) -> String {
    let line: String =
        text.chars().take(LONGEST_MESSAGE).map(|c| if c.is_control() { ' ' } else { c }).collect();
    line.trim().to_owned()
}

/// Judges an answer. `streak` counts the limits met in a row before this one.
pub(super) fn judge(
    status: u16,
    headers: &HeaderMap,
    said: &Said,
    now: Timestamp,
    streak: u32,
) -> Verdict {
    match status {
        200..=299 | 304 => Verdict::Done,
        300..=399 => match headers.get("location").and_then(|value| value.to_str().ok()) {
            Some(location) => Verdict::Moved(location.to_owned()),
            None => Verdict::Refused,
        },
        401 => Verdict::Unauthorized,
        403 | 429 if is_limit(status, headers, said) => {
            Verdict::Limited(limit_end(headers, now, streak))
        }
        // Creating too much too fast is at times told as invalid content.
        422 if said.has("submitted too quickly") => {
            Verdict::Limited(limit_end(headers, now, streak))
        }
        400..=499 => Verdict::Refused,
        _ => Verdict::Trouble,
    }
}

fn is_limit(status: u16, headers: &HeaderMap, said: &Said) -> bool {
    const LIMIT: [&str; 4] =
        ["rate limit", "abuse detection", "too many requests", "temporarily blocked"];
    const PERMISSION: [&str; 6] =
        ["resource not accessible", "not permitted", "must have", "saml", "locked", "archived"];
    status == 429
        || LIMIT.iter().any(|phrase| said.has(phrase))
        || (!PERMISSION.iter().any(|phrase| said.has(phrase))
            && (headers.contains_key("retry-after") || nothing_remains(headers)))
}

fn nothing_remains(headers: &HeaderMap) -> bool {
    text(headers, "x-ratelimit-remaining").is_some_and(|value| value.trim() == "0")
}

fn limit_end(headers: &HeaderMap, now: Timestamp, streak: u32) -> Timestamp {
    let bounded =
        |end: Timestamp| end.clamp(after(now, Duration::from_secs(1)), after(now, LONGEST));
    if let Some(end) = text(headers, "retry-after").and_then(|value| retry_after(value, now)) {
        return bounded(end);
    }
    if nothing_remains(headers)
        && let Some(reset) = text(headers, "x-ratelimit-reset").and_then(|v| v.trim().parse().ok())
        && let Ok(reset) = Timestamp::from_second(reset)
    {
        return bounded(reset);
    }
    bounded(after(now, GROWING_MINUTE.saturating_mul(2_u32.saturating_pow(streak.min(6)))))
}

/// Seconds, an epoch time, or an HTTP date; negative and unreadable ones count as absent.
fn retry_after(value: &str, now: Timestamp) -> Option<Timestamp> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<f64>() {
        if !seconds.is_finite() || seconds < 0.0 {
            return None;
        }
        // Nobody waits thirty years: proxies write the end itself.
        if seconds > 1e9 {
            #[expect(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
            return Timestamp::from_second(seconds as i64).ok();
        }
        return Some(after(now, Duration::from_secs_f64(seconds)));
    }
    jiff::fmt::rfc2822::parse(value).ok().map(|date| date.timestamp())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn now() -> Timestamp {
        Timestamp::from_second(NOW).unwrap()
    }

    fn verdict(status: u16, pairs: &[(&'static str, &str)], body: &str, streak: u32) -> Verdict {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.insert(*name, value.parse().unwrap());
        }
        judge(status, &headers, &Said::read(body.as_bytes()), now(), streak)
    }

    fn limited(seconds: i64) -> Verdict {
        Verdict::Limited(Timestamp::from_second(NOW + seconds).unwrap())
    }

    #[test]
    fn the_order_of_limits() {
        let both = [
            ("retry-after", "7"),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", "1800000900"),
        ];
        let body = r#"{"message":"You have exceeded a secondary rate limit."}"#;
        assert_eq!(verdict(403, &both, body, 0), limited(7));
        assert_eq!(verdict(403, &both[1..], body, 0), limited(900));
        let remains = [("x-ratelimit-remaining", "12"), ("x-ratelimit-reset", "1800000900")];
        assert_eq!(verdict(429, &remains, body, 0), limited(60));
        assert_eq!(verdict(403, &[], body, 2), limited(240));
        assert_eq!(verdict(429, &[], "", 99), limited(3840));
    }

    #[test]
    fn the_body_tells_a_permission_from_a_limit() {
        let body = r#"{"message":"Resource not accessible by integration"}"#;
        assert_eq!(verdict(403, &[("x-ratelimit-remaining", "0")], body, 0), Verdict::Refused);
        assert_eq!(verdict(403, &[], r#"{"message":"Forbidden"}"#, 0), Verdict::Refused);
        assert_eq!(
            verdict(403, &[], r#"{"message":"Must have admin rights to Repository."}"#, 0),
            Verdict::Refused
        );
        let quick = r#"{"message":"Validation Failed","errors":[{"resource":"Issue","code":"custom","message":"was submitted too quickly"}]}"#;
        assert_eq!(verdict(422, &[], quick, 0), limited(60));
    }

    #[test]
    fn a_wait_is_read_in_every_shape_and_bounded() {
        for (value, expected) in [
            ("30", 30),
            ("1.5", 1),
            ("0", 1),
            ("-5", 60),
            ("NaN", 60),
            ("soon", 60),
            ("1800000120", 120),
            ("99999999", 6 * 60 * 60),
            ("Fri, 15 Jan 2027 08:02:00 GMT", 120),
        ] {
            let Verdict::Limited(end) = verdict(429, &[("retry-after", value)], "", 0) else {
                panic!("{value}")
            };
            assert_eq!(end.as_second(), NOW + expected, "{value}");
        }
    }

    #[test]
    fn any_body_is_read() {
        let listed = r#"{"message":"Validation Failed","errors":["too long",{"field":"head","code":"invalid"}]}"#;
        let said = Said::read(listed.as_bytes());
        assert_eq!(said.message, "Validation Failed; too long; head invalid");
        assert!(said.names("head", "invalid"));
        assert_eq!(Said::read(br#"{"message":"m","errors":"told"}"#).message, "m; told");
        assert_eq!(Said::read(b"<html>\n502</html>").message, "<html> 502</html>");
        assert_eq!(Said::read(br#"[1,{"message":7}]"#).message, "");
        assert!(Said::read("x".repeat(100_000).as_bytes()).message.len() <= LONGEST_MESSAGE);
    }
}
