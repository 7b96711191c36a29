//! `explain comment`: how a comment would be read.

use std::io::Read as _;

use serde::{Deserialize, Serialize};

use super::{Failure, print};
use crate::commands::{DEFAULT_PREFIX, parse};

/// JSON on standard input: `{"body": "...", "previous_body": "..."}`; other fields are ignored.
/// Prints `{"commands": [{"name", "args"}], "invalid": [{"line", "reason"}]}`.
#[derive(Debug, clap::Args)]
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
    let parsed = parse(
        comment.body.as_deref().unwrap_or(""),
        comment.previous_body.as_deref(),
        &args.prefix,
    );
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
    print(&format!("{text}\n"))
}
