//! What is left of an observation when the worker's own words are taken out: status, typed values,
//! headers, and the error's text in one normal form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use crate::model::scrub;

/// Most bytes of text that are looked at; the first and the last half of a longer one.
const LONGEST_TEXT: usize = 64 * 1024;
/// Most bytes of evidence that are shown.
const LONGEST_SHOWN: usize = 400;

/// The evidence of a failure.
#[derive(Debug, Clone, Default)]
pub(super) struct Evidence {
    /// The backend's name, lower case.
    pub backend: String,
    /// HTTP status: from the wire, else as stated in an anchored form.
    pub status: Option<u16>,
    /// Values of type, code, status, reason, name and title fields, lower case.
    pub kinds: Vec<String>,
    /// Normalised and lower case; same byte offsets as `plain`.
    pub text: String,
    /// Normalised: scrubbed, one line, no escapes, no colour codes.
    pub plain: String,
    /// Response headers, lower-case names, with those that the body quotes.
    pub headers: BTreeMap<String, String>,
    /// Exit code of a command-line worker.
    pub exit_code: Option<i32>,
}

/// `"type": "x"`, `'code': 429`, `status=429`: JSON, Python reprs and cut pieces of both alike.
static KEYED: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"["'](?:type|code|status|reason|error_type|errortype|error_code|name|title|error|__type|subtype)["']\s*:\s*["']?([a-z0-9_.:/ -]{1,80})"#,
    )
    .ok()
});

/// Header lines quoted in bodies: `"X-RateLimit-Reset": "1741305600000"`.
static QUOTED_HEADER: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r#"["']((?:x-)?ratelimit-[a-z-]+|anthropic-ratelimit-[a-z-]+|retry-after(?:-ms)?|date)["']\s*:\s*["']([^"']{1,60})["']"#,
    )
    .ok()
});

/// A status stated in words that leave no doubt; a bare number in free text is never one.
static STATED_STATUS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(concat!(
        r#"(?:\berror code:? |\bstatus ?code["']?[:= ]+|\b(?:last |unexpected |with |response )status:? (?:code )?|\bstatus: |"#,
        r#"["'](?:status|code|statuscode|httpstatuscode|http_code)["']: ?["']?|\bhttp(?:/[0-9.]+)?[ :]+(?:error )?|\bapi ?error[: (]+(?:\d+ )?|\bapi error occurred: status |\bhttperror: |"#,
        r#"\brequest rejected \(|\bcode: |\berror: |\berror |\[|^)([1-5]\d\d)(?:$|\b[^0-9.,%])"#,
    ))
    .ok()
});

/// What a number before it counts; `413 files changed` is no status.
const COUNTED: &[&str] = &[
    "files",
    "lines",
    "tests",
    "errors",
    "warnings",
    "passed",
    "failed",
    "items",
    "bytes",
    "tokens",
    "ms",
    "seconds",
    "minutes",
    "commits",
    "changes",
    "insertions",
    "occurrences",
    "results",
    "times",
];

static NOISE: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\x1b\[[0-9;?]*[A-Za-z]|\\[nrt]|[\s│┃]+").ok());

/// `Limit 30000, Requested 31538`; `limit: 6000, used: 10, requested: 7000`.
static LIMIT_AND_REQUEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"\blimit:? ([0-9][0-9,]{0,14}),? (?:used:? [0-9,]{1,15},? )?requested:? ~?([0-9][0-9,]{0,14})").ok()
});

/// The request's messages as litellm repeats them behind an error: `Messages: [{'role': ...}]`.
static ECHOED_MESSAGES: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r#"(?i)\bmessages(?:=|: ?)\[ ?\{ ?["']role["'].*?(?:\} ?\]|$)"#).ok()
});

impl Evidence {
    /// Evidence from an error's text.
    pub(super) fn new(
        backend: &str,
        status: Option<u16>,
        headers: &BTreeMap<String, String>,
        text: &str,
    ) -> Self {
        let mut headers: BTreeMap<String, String> = headers
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
            .collect();
        let mut plain = normal(&without_quotes(text));
        if let Some(kind) = headers.get("x-amzn-errortype") {
            // AWS names the exception there, the body only describes it.
            let kind = kind.split(':').next().unwrap_or_default();
            plain = normal(&format!("{plain} {{\"__type\": \"{kind}\"}}"));
        }
        let text = plain.to_ascii_lowercase();
        if let Some(pattern) = QUOTED_HEADER.as_ref() {
            for found in pattern.captures_iter(&text).take(32) {
                headers.entry(found[1].to_owned()).or_insert_with(|| found[2].to_owned());
            }
        }
        let kinds = KEYED.as_ref().map_or_else(Vec::new, |pattern| {
            pattern.captures_iter(&text).take(64).map(|found| found[1].trim().to_owned()).collect()
        });
        let stated = || {
            let found = STATED_STATUS.as_ref()?.captures_iter(&text).take(32).find(|found| {
                let after = found.get(1).map_or(0, |status| status.end());
                !COUNTED.iter().any(|noun| text[after..].trim_start().starts_with(noun))
            })?;
            found[1].parse().ok()
        };
        let status = status.filter(|status| !(200..300).contains(status)).or_else(stated);
        Self {
            backend: backend.to_ascii_lowercase(),
            status,
            kinds,
            text,
            plain,
            headers,
            exit_code: None,
        }
    }

    /// Whether the text says that this one request is larger than the whole limit.
    pub(super) fn exceeds_alone(&self) -> bool {
        let number = |text: &str| text.replace(',', "").parse::<u64>().ok();
        LIMIT_AND_REQUEST.as_ref().is_some_and(|pattern| {
            pattern.captures_iter(&self.text).any(|found| {
                number(&found[1]).zip(number(&found[2])).is_some_and(|(limit, asked)| asked > limit)
            })
        })
    }

    /// The text around the place that decided.
    pub(super) fn shown(&self, place: std::ops::Range<usize>) -> String {
        let start = floor(&self.plain, place.start.saturating_sub(80));
        let end = floor(&self.plain, start.saturating_add(LONGEST_SHOWN));
        self.plain.get(start..end).unwrap_or("").trim().to_owned()
    }
}

/// A JSON error without what it quotes of the model's words or of the request: they decide nothing.
fn without_quotes(text: &str) -> Cow<'_, str> {
    let trimmed = text.trim();
    if !trimmed.starts_with(['{', '[']) || trimmed.len() > LONGEST_TEXT {
        return Cow::Borrowed(text);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(trimmed) else { return Cow::Borrowed(text) };
    if prune(&mut value) { Cow::Owned(value.to_string()) } else { Cow::Borrowed(text) }
}

/// Takes quoted words out; true where there were some.
fn prune(value: &mut Value) -> bool {
    let mut any = false;
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| any |= prune(item)),
        Value::Object(fields) => {
            // Groq's and OpenRouter's names; pydantic's `input` and `ctx` stand beside the place
            // they are from.
            let mut quotes = vec!["failed_generation", "flagged_input"];
            if fields.contains_key("loc") {
                quotes.extend(["input", "ctx"]);
            }
            let before = fields.len();
            fields.retain(|name, _| !quotes.contains(&name.as_str()));
            any = fields.len() < before;
            fields.values_mut().for_each(|inner| any |= prune(inner));
        }
        _ => {}
    }
    any
}

fn floor(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index).rev().find(|index| text.is_char_boundary(*index)).unwrap_or(0)
}

/// One line without colour codes, escapes, box drawing and secrets.
fn normal(text: &str) -> String {
    let cut = if text.len() <= LONGEST_TEXT {
        text.to_owned()
    } else {
        let head = floor(text, LONGEST_TEXT / 2);
        let tail = floor(text, text.len() - LONGEST_TEXT / 2);
        format!("{} {}", &text[..head], &text[tail..])
    };
    let straight: String = scrub(&cut)
        // UTF-8 that was read as Windows-1252.
        .replace("\u{e2}\u{20ac}\u{2122}", "'")
        .replace("\u{c2}\u{b7}", "\u{b7}")
        .replace("\\\"", "\"")
        .replace("\\\"", "\"")
        .chars()
        .map(|c| match c {
            // An apostrophe is what a wrong decoder most often loses in an English sentence.
            '\u{2018}' | '\u{2019}' | '\u{fffd}' => '\'',
            '\u{201c}' | '\u{201d}' => '"',
            '\u{2219}' | '\u{2022}' => '\u{b7}',
            '\u{202f}' | '\u{a0}' | '\0' => ' ',
            c => c,
        })
        .collect();
    let line = NOISE
        .as_ref()
        .map_or_else(|| straight.clone(), |noise| noise.replace_all(&straight, " ").into_owned());
    let line = line.replace(" \\ ", " ");
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    ECHOED_MESSAGES.as_ref().map_or_else(
        || line.clone(),
        |echoed| echoed.replace_all(&line, "messages: [...]").into_owned(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> Evidence {
        Evidence::new("x", None, &BTreeMap::new(), text)
    }

    #[test]
    fn typed_values_survive_every_rendering() {
        for text in [
            r#"{"error":{"type":"rate_limit_error","code":429}}"#,
            "Error code: 429 - {'error': {'type': 'rate_limit_error', 'code': None",
            r#"litellm: {\"error\": {\"type\": \"rate_limit_error\", \"code\": \"429\"}}"#,
            r#"x","type":"rate_limit_error"},"statusCode":429"#,
        ] {
            let seen = seen(text);
            assert!(seen.kinds.iter().any(|kind| kind == "rate_limit_error"), "{text}: {seen:?}");
            assert_eq!(seen.status, Some(429), "{text}");
        }
    }

    #[test]
    fn a_bare_number_is_no_status() {
        for text in [
            "src/a.ts:404 is wrong",
            "413 files changed",
            "took 429 ms",
            "line 503",
            "error at 12:500",
            "error_count 429",
            "ipv4: 1.2.3.4:443 {",
        ] {
            assert_eq!(seen(text).status, None, "{text}");
        }
        for (text, status) in [
            ("API Error: 401 Unauthorized", 401),
            ("402 Insufficient Balance", 402),
            ("Request rejected (429) x", 429),
            ("unexpected status 503 Service Unavailable", 503),
            ("\"HTTP/1.1 502 Bad Gateway\"", 502),
            ("API Error (529 {", 529),
        ] {
            assert_eq!(seen(text).status, Some(status), "{text}");
        }
    }

    #[test]
    fn quoted_headers_are_headers() {
        let seen = seen(r#"{"metadata":{"headers":{"X-RateLimit-Reset":"1741305600000"}}}"#);
        assert_eq!(seen.headers["x-ratelimit-reset"], "1741305600000");
    }

    #[test]
    fn what_an_error_quotes_is_no_evidence() {
        let body = r#"{"error":{"message":"Failed to call a function","failed_generation":"429 rate limit"},
            "detail":[{"loc":["body"],"msg":"missing","input":{"messages":["quota exceeded"]}}]}"#;
        let seen = seen(body);
        assert!(!seen.text.contains("rate limit") && !seen.text.contains("quota"), "{seen:?}");
        assert!(seen.text.contains("failed to call") && seen.text.contains("missing"));
    }

    #[test]
    fn what_a_gateway_echoes_of_the_request_is_no_evidence() {
        let seen = seen(
            "litellm.BadRequestError: invalid type. Received Messages=[{'role': 'user', 'content': \
             'insufficient_quota, try again in 20s'}] model_group: x",
        );
        assert!(!seen.text.contains("insufficient"), "{seen:?}");
        assert!(seen.text.contains("invalid type") && seen.text.contains("model_group: x"));
    }

    #[test]
    fn the_exception_of_a_header_is_a_typed_value() {
        let headers = [("X-Amzn-ErrorType", "ThrottlingException:http://internal.example/")];
        let headers = headers.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let seen = Evidence::new("x", Some(400), &headers, r#"{"message":"slow"}"#);
        assert!(seen.kinds.iter().any(|kind| kind == "throttlingexception"), "{seen:?}");
    }

    #[test]
    fn a_request_beyond_the_whole_limit() {
        assert!(seen("Limit 30,000, Requested 31,538.").exceeds_alone());
        assert!(seen("Limit: 6000, Used: 10, Requested: 7000").exceeds_alone());
        assert!(seen("Limit 7000, Used 0, Requested ~12903.").exceeds_alone());
        assert!(!seen("Limit 30000, Used 29937, Requested 385.").exceeds_alone());
    }
}
