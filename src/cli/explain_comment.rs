//! `explain comment`: how a comment would be read. Standard output is for machines; on standard error
//! it says what a person who wonders would ask.

use std::fmt::Write as _;
use std::io::Read as _;

use serde::{Deserialize, Serialize};

use super::{Failure, note, print};
use crate::commands::{DEFAULT_PREFIX, Parsed, parse};

/// The form of input and output, for the help text.
const HELP: &str = r#"Input: {"body": "/overhaul retry N-003", "previous_body": null}; other fields are ignored.
Output: {"commands": [{"name", "args"}], "invalid": [{"line", "reason"}]}.
One wrong line makes a comment do nothing: standard error says what would be done."#;

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Args {
    /// First word of a command.
    #[arg(long, default_value = DEFAULT_PREFIX)]
    prefix: String,
    /// Print JSON (it always does).
    #[arg(long, hide = true)]
    json: bool,
}

/// Longest input in bytes: two comments of the greatest length with every character escaped.
const MAX_INPUT: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
struct Comment {
    /// Null where the event has none.
    #[serde(deserialize_with = "Option::deserialize")]
    body: Option<String>,
    #[serde(default)]
    previous_body: Option<String>,
}

#[derive(Serialize)]
struct Reading<'a> {
    commands: Vec<Command<'a>>,
    invalid: Vec<Invalid<'a>>,
}

#[derive(Serialize)]
struct Command<'a> {
    name: &'static str,
    args: &'a [String],
}

#[derive(Serialize)]
struct Invalid<'a> {
    line: usize,
    reason: &'a str,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .take(MAX_INPUT + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::usage("cannot read standard input").because(error))?;
    if text.len() as u64 > MAX_INPUT {
        return Err(Failure::usage("standard input is larger than 4 MiB")
            .because("a comment has at most 65 536 characters")
            .remedy("give one comment"));
    }
    let comment: Comment = serde_json::from_str(&text).map_err(|error| {
        Failure::usage("standard input is no comment")
            .because(error)
            .remedy("give JSON: {\"body\": \"/overhaul resume\", \"previous_body\": null}")
    })?;
    let body = comment.body.as_deref().unwrap_or("");
    let parsed = parse(body, comment.previous_body.as_deref(), &args.prefix);
    let before_an_edit = parse(body, None, &args.prefix);
    let reading = Reading {
        commands: parsed
            .commands
            .iter()
            .map(|c| Command { name: c.verb.name(), args: &c.args })
            .collect(),
        invalid: parsed
            .invalid
            .iter()
            .map(|i| Invalid { line: i.line, reason: &i.reason })
            .collect(),
    };
    let text = serde_json::to_string(&reading)
        .map_err(|error| Failure::failed("cannot write the reading").because(error))?;
    print(&format!("{text}\n"))?;
    note(&notes(&parsed, &left_aside(body, &before_an_edit, &args.prefix)));
    Ok(())
}

/// What would be done, and why not more.
fn notes(parsed: &Parsed, left_aside: &[usize]) -> String {
    let mut text = String::new();
    for line in left_aside {
        let _ = writeln!(
            text,
            "line {line} is shown, not said: it stands in a quote, code, a list, a table or HTML, or \
             below a mail's quotation"
        );
    }
    for invalid in &parsed.invalid {
        if let Some(meant) = &invalid.suggestion {
            let _ = writeln!(text, "line {}: did you mean `{meant}`?", invalid.line);
        }
    }
    let _ = match (parsed.commands.len(), parsed.invalid.len()) {
        (0, 0) => writeln!(text, "it asks for nothing"),
        (n, 0) => writeln!(text, "it would do {}", if n == 1 { "it" } else { "all of them" }),
        _ => writeln!(text, "it would do nothing: every line with a command must be right"),
    };
    text
}

/// The lines, from 1, that begin with the prefix once marks of quotes, lists and code are off, and are
/// neither commands nor wrong ones.
fn left_aside(body: &str, parsed: &Parsed, prefix: &str) -> Vec<usize> {
    let read = parsed.commands.iter().map(|c| c.line);
    let read: Vec<usize> = read.chain(parsed.invalid.iter().map(|i| i.line)).collect();
    let body = body.replace("\r\n", "\n").replace('\r', "\n");
    let is_mark = |c: char| c.is_whitespace() || ">`*-+|~_<!.)".contains(c) || c.is_ascii_digit();
    let begins = |line: &str| {
        let Some((start, rest)) = line.trim_start_matches(is_mark).split_at_checked(prefix.len())
        else {
            return false;
        };
        start.eq_ignore_ascii_case(prefix) && !rest.starts_with(|c: char| c.is_alphanumeric())
    };
    let lines = body.split('\n').zip(1..).filter(|(line, _)| begins(line));
    lines.map(|(_, number)| number).filter(|number| !read.contains(number)).collect()
}
