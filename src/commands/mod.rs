//! Comment commands: what a comment asks for, read from its CommonMark text only. Pure.
//!
//! A command is one line of a top-level paragraph that begins with the prefix: `/overhaul VERB
//! [argument]`. Arguments are kept as written, less the quotes and the closing punctuation around
//! them. One wrong line makes the whole comment act on nothing (see [`decide`]): a reader must never
//! have to guess which half of it was done.

mod authorise;
mod mail;
mod markdown;
mod verb;

#[cfg(test)]
mod tests;

pub use authorise::{Access, Decision, Occasion, Reply, Sender, SenderKind, decide};
pub use verb::Verb;

use crate::model::{NodeId, PoolId};
use verb::Takes;

/// The prefix where the configuration names no other.
pub const DEFAULT_PREFIX: &str = "/overhaul";
/// Longest comment that is read, in characters: GitHub's own limit for bodies.
pub const MAX_CHARS: usize = 65_536;
/// Most commands of one comment.
pub const MAX_COMMANDS: usize = 20;
/// Most complaints about one comment.
const MAX_INVALID: usize = 20;
/// Largest budget raise, US dollars; more is a slip of the keyboard.
const MAX_BUDGET: f64 = 100_000.0;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// What it asks for.
    pub verb: Verb,
    /// Its arguments, checked, as written.
    pub args: Vec<String>,
    /// Its line in the comment, from 1.
    pub line: usize,
}

impl Command {
    /// The node it is about, where it names one.
    #[must_use]
    pub fn node(&self) -> Option<NodeId> {
        match self.verb.takes() {
            Takes::Node | Takes::NodeOrNone => NodeId::new(self.args.first()?.as_str()).ok(),
            _ => None,
        }
    }

    /// The US dollars it adds to the budget.
    #[must_use]
    pub fn amount(&self) -> Option<f64> {
        match self.verb.takes() {
            Takes::Amount => self.args.first()?.trim_start_matches('+').parse().ok(),
            _ => None,
        }
    }

    /// The pool it is about.
    #[must_use]
    pub fn pool(&self) -> Option<PoolId> {
        match self.verb.takes() {
            Takes::Pool => self.args.first().map(PoolId::new),
            _ => None,
        }
    }
}

/// One line that was meant as a command and is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Its line in the comment, from 1.
    pub line: usize,
    /// Why, in words that hold no markup and no mention of the comment.
    pub reason: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
    /// Only the form of the prefix is wrong, so that a hint is enough.
    pub hint: bool,
}

/// What a comment asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parsed {
    /// In the order of their lines.
    pub commands: Vec<Command>,
    /// In the order of their lines.
    pub invalid: Vec<Invalid>,
}

impl Parsed {
    /// Neither a command nor an attempt at one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.invalid.is_empty()
    }
}

/// Reads a comment. With `previous_body` (an edit) the result holds only what the edit adds.
/// Comments that carry our own marker ask for nothing.
#[must_use]
pub fn parse(body: &str, previous_body: Option<&str>, prefix: &str) -> Parsed {
    let mut parsed = parse_one(body, prefix);
    if let Some(previous) = previous_body {
        let old = parse_one(previous, prefix);
        let mut said = old.commands;
        parsed.commands.retain(|c| take(&mut said, |s| (s.verb, &s.args) == (c.verb, &c.args)));
        let mut said = old.invalid;
        parsed.invalid.retain(|i| take(&mut said, |s| s.reason == i.reason));
    }
    parsed
}

/// False, and one fewer in `said`, when it was said before.
fn take<T>(said: &mut Vec<T>, same: impl Fn(&T) -> bool) -> bool {
    let before = said.iter().position(same);
    if let Some(at) = before {
        said.swap_remove(at);
    }
    before.is_none()
}

fn parse_one(body: &str, prefix: &str) -> Parsed {
    let mut parsed = Parsed::default();
    // Characters never outnumber bytes, so short bodies need no count.
    if body.len() > MAX_CHARS && body.chars().count() > MAX_CHARS {
        parsed
            .invalid
            .push(invalid(1, format!("the comment is longer than {MAX_CHARS} characters")));
        return parsed;
    }
    // CommonMark §2.1: a line ends with LF, CR or CR LF.
    let text = body.replace("\r\n", "\n").replace('\r', "\n");
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    for line in markdown::said(text).unwrap_or_default() {
        match read_line(&line, prefix) {
            None => {}
            Some(Ok(_)) if parsed.commands.len() == MAX_COMMANDS => {
                parsed
                    .invalid
                    .push(invalid(line.number, format!("more than {MAX_COMMANDS} commands")));
                break;
            }
            Some(Ok(command)) => parsed.commands.push(command),
            Some(Err(complaint)) => parsed.invalid.push(complaint),
        }
        if parsed.invalid.len() == MAX_INVALID {
            break;
        }
    }
    parsed
}

fn invalid(line: usize, reason: impl Into<String>) -> Invalid {
    Invalid { line, reason: reason.into(), suggestion: None, hint: false }
}

/// `None`: no command was meant.
fn read_line(line: &markdown::Line<'_>, prefix: &str) -> Option<Result<Command, Invalid>> {
    strip_prefix(line.source, prefix)?;
    let rendered =
        line.rendered.trim_start_matches(|c: char| c.is_whitespace() || markdown::is_invisible(c));
    let rest = strip_prefix(rendered, prefix)?;
    let after = rest.chars().next();
    if !after.is_none_or(is_blank) {
        let punctuation = rest.trim_start_matches([':', ',', ';', '.', '!', '?']);
        return (punctuation.len() < rest.len() && punctuation.chars().next().is_none_or(is_blank))
            .then(|| {
                Err(Invalid {
                    suggestion: Some(format!("{prefix} VERB")),
                    hint: true,
                    ..invalid(line.number, "unknown prefix form")
                })
            });
    }
    let words: Vec<String> = rest.split(is_blank).map(clean).filter(|w| !w.is_empty()).collect();
    Some(read_words(&words, line.number, prefix))
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || markdown::is_invisible(c)
}

/// The rest after the prefix, case ignored.
fn strip_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| text.get(prefix.len()..))?
}

/// A word without the quotes around it and the punctuation after it, dashes made plain: editors
/// and phones put them there.
fn clean(word: &str) -> String {
    const QUOTES: &[char] = &['"', '\'', '`', '‘', '’', '‚', '“', '”', '„', '«', '»'];
    const CLOSING: &[char] = &['.', ',', ';', ':', '!', '?', '…', '\\'];
    let word = word.trim_end_matches(CLOSING).trim_matches(QUOTES).trim_end_matches(CLOSING);
    // Hyphens and dashes U+2010 to U+2015, minus, small and fullwidth hyphen, non-breaking ones.
    let dash = |c| {
        matches!(c, '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{fe58}' | '\u{fe63}' | '\u{ff0d}')
    };
    word.chars().map(|c| if dash(c) { '-' } else { c }).collect()
}

fn read_words(words: &[String], line: usize, prefix: &str) -> Result<Command, Invalid> {
    let Some((first, rest)) = words.split_first() else {
        // The bare prefix.
        return Ok(Command { verb: Verb::Help, args: Vec::new(), line });
    };
    let Some(verb) = Verb::of(first) else {
        let suggestion = Verb::near(first).map(|verb| format!("{prefix} {}", verb.usage().0));
        return Err(Invalid {
            suggestion,
            ..invalid(line, format!("unknown command {}", echo(first)).trim_end())
        });
    };
    if rest.iter().any(|word| word.eq_ignore_ascii_case(prefix)) {
        return Err(invalid(line, "one command per line"));
    }
    match read_args(verb, rest) {
        Ok(args) => Ok(Command { verb, args, line }),
        Err(reason) => {
            let suggestion = Some(format!("{prefix} {}", verb.usage().0));
            Err(Invalid { suggestion, ..invalid(line, reason) })
        }
    }
}

/// The checked arguments, or why they are none.
fn read_args(verb: Verb, words: &[String]) -> Result<Vec<String>, String> {
    let takes = verb.takes();
    let arg = match (takes, words) {
        (Takes::Nothing, _) | (Takes::NodeOrNone, []) => return Ok(Vec::new()),
        (_, []) => return Err(format!("{} needs {}", verb.name(), noun(takes))),
        (Takes::Amount, [number, currency]) if is_currency(currency) => amount(number),
        (Takes::Amount, [currency, number]) if is_currency(currency) => amount(number),
        (Takes::Amount, [number]) => amount(number),
        (Takes::Pool, [word]) => pool(word),
        (_, [word]) => node(word),
        (Takes::Node | Takes::NodeOrNone, many) if many.iter().all(|word| numbered(word)) => {
            return Err(format!("{} takes one node", verb.name()));
        }
        _ => return Err("too many arguments".to_owned()),
    };
    arg.map(|arg| vec![arg])
}

/// Looks like a node id, not like a word of a sentence.
fn numbered(word: &str) -> bool {
    word.bytes().any(|b| b.is_ascii_digit()) && NodeId::new(word).is_ok()
}

fn noun(takes: Takes) -> &'static str {
    match takes {
        Takes::Amount => "an amount",
        Takes::Pool => "a pool",
        _ => "a node",
    }
}

fn node(word: &str) -> Result<String, String> {
    NodeId::new(word).map(String::from).map_err(|_| "bad node id".to_owned())
}

/// Pool ids are free text; these are the characters of providers, accounts and model names.
fn pool(word: &str) -> Result<String, String> {
    let safe = |b: u8| b.is_ascii_alphanumeric() || b"-_./:#@+".contains(&b);
    if word.len() <= 200 && word.bytes().all(safe) {
        Ok(word.to_owned())
    } else {
        Err("bad pool id".to_owned())
    }
}

fn is_currency(word: &str) -> bool {
    word == "$" || word.eq_ignore_ascii_case("usd") || word.eq_ignore_ascii_case("dollars")
}

/// `5`, `+5`, `2.5`, `$5`, `5$`; without the currency, otherwise as written.
fn amount(word: &str) -> Result<String, String> {
    let positive = || Err("budget must be positive".to_owned());
    let number: String = word.replacen('$', "", 1);
    let digits = number.strip_prefix(['+', '-']).unwrap_or(&number);
    let plain = digits.bytes().any(|b| b.is_ascii_digit())
        && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        && digits.bytes().filter(|b| *b == b'.').count() <= 1;
    match digits.parse::<f64>() {
        Ok(_) if !plain => Err("budget takes a number".to_owned()),
        Err(_) => Err("budget takes a number".to_owned()),
        Ok(_) if number.starts_with('-') => positive(),
        Ok(0.0) => positive(),
        Ok(value) if value > MAX_BUDGET => Err("budget is too large".to_owned()),
        Ok(_) => Ok(number),
    }
}

/// A word of a comment that may be repeated: nothing in it can be markup or a mention.
fn echo(word: &str) -> String {
    word.chars().filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_')).take(40).collect()
}
