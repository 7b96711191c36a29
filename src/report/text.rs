//! Safe text. Findings, model output, error messages and file names are untrusted: in what people
//! read they are text and nothing else: no mention, no reference to an issue, no link, no HTML, no
//! Markdown, no way out of a code block or a hidden comment, no secret, no command of ours.

use std::borrow::Cow;

use serde_json::Value;

/// Breaks a word for the forge's readers of mentions, references and links, not for people.
const JOINER: char = '\u{200d}';

/// One line of plain text for places without Markdown (titles): control characters and invisible
/// formatting removed, white space folded, secrets scrubbed, at most `max` characters.
#[must_use]
pub fn plain(text: &str, max: usize) -> String {
    // Cut roughly first: a megabyte of text costs no more than a line.
    let rough: String = text.chars().take(max.saturating_mul(4).saturating_add(200)).collect();
    let visible: String = scrubbed(&rough)
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .filter(|c| !hidden(*c))
        .collect();
    let folded = visible.split_whitespace().collect::<Vec<_>>().join(" ");
    cut(&folded, max)
}

/// The title of an issue or pull request. It has no Markdown, but squash merging makes a commit
/// message of it, where mentions and closing words count.
#[must_use]
pub fn title(text: &str, max: usize) -> String {
    let mut out = String::new();
    for c in plain(text, max).chars() {
        if c == '-' && ends_with_word(&out, "gh") || c == '/' && out.ends_with(':') {
            out.push(JOINER);
        }
        out.push(c);
        if matches!(c, '@' | '#') {
            out.push(JOINER);
        }
    }
    out
}

/// One line of text inside Markdown, a table cell included.
#[must_use]
pub fn inline(text: &str, max: usize) -> String {
    let text = plain(text, max);
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '^' | '|' | '$' => {
                out.push('\\');
                out.push(c);
            }
            // @user, #1 and GH-1, https://, www., and /overhaul.
            '@' | '#' => {
                out.push(c);
                out.push(JOINER);
            }
            ':' if after.starts_with("//") => {
                out.push(c);
                out.push(JOINER);
            }
            '-' if ends_with_word(&out, "gh") => {
                out.push(JOINER);
                out.push(c);
            }
            '.' if ends_with_word(&out, "www") => {
                out.push(JOINER);
                out.push(c);
            }
            '/' if after.get(..8).is_some_and(|w| w.eq_ignore_ascii_case("overhaul")) => {
                out.push(c);
                out.push(JOINER);
            }
            // What makes a list or a heading at the start of a line.
            '-' | '+' | '=' | '!' if out.is_empty() => {
                out.push('\\');
                out.push(c);
            }
            '.' | ')' if !out.is_empty() && out.bytes().all(|b| b.is_ascii_digit()) => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
        rest = after;
    }
    out
}

/// A code span, safe in a table cell too.
#[must_use]
pub fn code(text: &str, max: usize) -> String {
    let text = plain(text, max).replace('|', "\u{2502}");
    if text.is_empty() {
        return "—".to_owned();
    }
    let ticks = "`".repeat(longest_run(&text, '`') + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{text}{pad}{ticks}")
}

/// A fenced block of at most `max` characters; the fence is longer than any in the text.
#[must_use]
pub fn fence(text: &str, language: &str, max: usize) -> String {
    let (shown, left_out) = visible(text, max);
    let ticks = "`".repeat((longest_run(&shown, '`') + 1).max(3));
    let more =
        if left_out > 0 { format!("\n… {left_out} more characters") } else { String::new() };
    format!("{ticks}{language}\n{}{more}\n{ticks}\n", shown.trim_end())
}

/// The first `max` characters, lines and tabs kept, and how many characters are left out: secrets
/// scrubbed, no control characters, nothing invisible.
pub(super) fn visible(text: &str, max: usize) -> (String, usize) {
    let left_out = text.chars().count().saturating_sub(max);
    let head: String = text.chars().take(max).collect();
    let shown = scrubbed(&head.replace("\r\n", "\n"))
        .chars()
        .filter(|c| matches!(c, '\n' | '\t') || (!c.is_control() && !hidden(*c)))
        .collect();
    (shown, left_out)
}

/// JSON as a line inside a hidden comment; the comment can't be closed by its content.
#[must_use]
pub fn hidden_json(kind: &str, value: &Value) -> String {
    format!("<!-- overhaul:{kind} {} -->", inert_json(&scrubbed_json(value).to_string()))
}

/// JSON text that holds no `--`, `<` or `>` and nothing invisible: those can stand inside strings
/// only, and there an escape means the same.
fn inert_json(json: &str) -> String {
    let json = json.replace("--", "-\\u002d").replace('<', "\\u003c").replace('>', "\\u003e");
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if hidden(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(c);
        }
    }
    out
}

/// Scrubs every text of a value; scrubbing the JSON text could cut an escape in half.
fn scrubbed_json(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(scrubbed(text).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(scrubbed_json).collect()),
        Value::Object(fields) => Value::Object(
            fields.iter().map(|(k, v)| (scrubbed(k).into_owned(), scrubbed_json(v))).collect(),
        ),
        other => other.clone(),
    }
}

/// JSON in a collapsed block that people can open.
#[must_use]
pub fn collapsed_json(title: &str, value: &Value) -> String {
    let json = serde_json::to_string_pretty(&scrubbed_json(value)).unwrap_or_default();
    let json = json.replace('`', "\\u0060");
    format!(
        "<details><summary>{}</summary>\n\n```json\n{}\n```\n\n</details>\n",
        inline(title, 100),
        inert_json(&json)
    )
}

/// Removes what looks like a secret.
fn scrubbed(text: &str) -> Cow<'_, str> {
    crate::model::scrub(text)
}

/// Invisible characters that reorder or hide text: zero-width, bidirectional controls, tags.
fn hidden(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
        | '\u{feff}' | '\u{e0000}'..='\u{e007f}' | '\u{2028}' | '\u{2029}' | '\u{00ad}')
}

fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    text.chars().take(max.saturating_sub(1)).chain(['…']).collect()
}

fn longest_run(text: &str, of: char) -> usize {
    text.split(|c| c != of).map(str::len).max().unwrap_or(0)
}

fn ends_with_word(text: &str, word: &str) -> bool {
    text.len()
        .checked_sub(word.len())
        .and_then(|at| text.get(at..))
        .is_some_and(|tail| tail.eq_ignore_ascii_case(word))
}

/// `1 234 567` tokens as `1.23M`.
#[must_use]
pub(super) fn amount(n: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let n_f = n as f64;
    match n {
        0..1_000 => n.to_string(),
        1_000..1_000_000 => format!("{:.1}k", n_f / 1e3),
        _ => format!("{:.2}M", n_f / 1e6),
    }
}

/// Milliseconds for people.
#[must_use]
pub(super) fn duration(millis: u64) -> String {
    match millis {
        0..1_000 => format!("{millis} ms"),
        1_000..60_000 => format!("{}.{} s", millis / 1_000, millis % 1_000 / 100),
        _ => format!("{} min {} s", millis / 60_000, millis % 60_000 / 1_000),
    }
}

/// US dollars for people; cents unless there are fewer.
#[must_use]
pub(super) fn dollars(usd: f64) -> String {
    if usd > 0.0 && usd < 0.01 { format!("${usd:.4}") } else { format!("${usd:.2}") }
}

/// A time to the minute.
#[must_use]
pub(super) fn minute(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M UTC").to_string()
}

/// `1 node`, `2 nodes`.
#[must_use]
pub(super) fn count(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::{code, collapsed_json, fence, hidden_json, inline, plain, title};
    use proptest::prelude::*;
    use pulldown_cmark::{Event, Options, Parser};

    fn events(markdown: &str) -> Vec<Event<'_>> {
        Parser::new_ext(markdown, Options::all()).collect()
    }

    #[test]
    fn nothing_is_mentioned_linked_or_run() {
        let hostile = "@octocat fixes #12, GH-7 and o/r#3 https://evil.example www.evil.example\n/overhaul cancel";
        let text = inline(hostile, 500);
        for live in ["@octocat", "#12", "GH-7", "#3", "://", "www.", "/overhaul", "\n"] {
            assert!(!text.contains(live), "{live} in {text}");
        }
        assert_eq!(inline("a\u{202e}b\u{200b}c\u{7}d", 10), "abc d");
        assert_eq!(inline("1. x^2^", 10), "1\\. x\\^2\\^");
        assert_eq!(inline(&"é".repeat(50), 10), format!("{}…", "é".repeat(9)));
    }

    #[test]
    fn a_title_closes_nothing() {
        let text = title("@octocat fixes #12, GH-7, https://github.com/o/r/issues/1", 200);
        for live in ["@octocat", "#12", "GH-7", "://"] {
            assert!(!text.contains(live), "{live} in {text}");
        }
    }

    #[test]
    fn code_and_fences_are_longer_than_their_content() {
        assert_eq!(code("a`b``c", 50), "```a`b``c```");
        assert_eq!(code("`a", 50), "`` `a ``");
        assert_eq!(code("", 50), "—");
        assert_eq!(fence("x\n````\ny\u{1b}[0m", "", 100), "`````\nx\n````\ny[0m\n`````\n");
        assert!(fence(&"x".repeat(50), "text", 10).contains("… 40 more characters"));
    }

    #[test]
    fn hidden_json_stays_hidden_and_stays_json() {
        let value = serde_json::json!({"x": "--> <b>---!>\u{202e}\u{e0041}", "n": -1});
        let text = hidden_json("pause", &value);
        assert_eq!(text.matches("-->").count(), 1, "{text}");
        assert!(!text.contains('\u{202e}'));
        let json = text.strip_prefix("<!-- overhaul:pause ").unwrap().strip_suffix(" -->").unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(json).unwrap(), value);
        let text = collapsed_json("Receipt", &serde_json::json!({"x": "```\n</details>"}));
        assert_eq!(text.matches("</details>").count(), 1, "{text}");
        assert_eq!(text.matches("```").count(), 2, "{text}");
    }

    #[test]
    fn secrets_are_gone() {
        let token = format!("ghp_{}", "a1".repeat(18));
        for text in [plain(&token, 100), code(&token, 100), fence(&token, "", 100)] {
            assert!(!text.contains(&token), "{text}");
        }
    }

    proptest! {
        #[test]
        fn inline_text_is_only_text(text in ".{0,80}") {
            for event in events(&format!("x {}", inline(&text, 60))) {
                let harmless = matches!(
                    event,
                    Event::Start(pulldown_cmark::Tag::Paragraph)
                        | Event::End(pulldown_cmark::TagEnd::Paragraph)
                        | Event::Text(_)
                );
                prop_assert!(harmless, "{event:?}");
            }
        }

        #[test]
        fn a_fence_holds_its_content(text in "[`~\\n a<>-]{0,60}") {
            let fenced = fence(&text, "", 100);
            let blocks = events(&fenced)
                .iter()
                .filter(|e| matches!(e, Event::Start(_)))
                .count();
            prop_assert_eq!(blocks, 1, "{}", fenced);
        }
    }
}
