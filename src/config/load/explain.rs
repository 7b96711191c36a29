//! The parser's messages in the words of the configuration, each with a remedy.

use super::super::ConfigError;
use super::super::secret::names_secret;
use crate::model::nearest;

/// What people write, and what it is called here.
const SYNONYMS: &[(&str, &str)] = &[
    ("api-key", "key-env"),
    ("apikey", "key-env"),
    ("api-key-env", "key-env"),
    ("key", "key-env"),
    ("token", "key-env"),
    ("url", "base-url"),
    ("endpoint", "base-url"),
    ("api-base", "base-url"),
    ("rpm", "limits.requests-per-minute"),
    ("rpd", "limits.requests-per-day"),
    ("tpm", "limits.input-tokens-per-minute"),
    ("tpd", "limits.tokens-per-day"),
    ("concurrency", "concurrent"),
    ("parallel", "concurrent"),
    ("max-parallel", "concurrent"),
    ("max-concurrent", "concurrent"),
    ("parallelism", "concurrent"),
    ("context", "context-tokens"),
    ("context-window", "context-tokens"),
    ("max-tokens", "output-tokens"),
    ("max-output-tokens", "output-tokens"),
    ("args", "argv"),
    ("run", "argv"),
    ("cmd", "command"),
    ("argv", "command"),
    ("branch", "base"),
    ("prs", "pull-requests"),
    ("providers", "pools"),
    ("models", "pools"),
];

pub(super) fn explain(file: &str, text: &str, error: &serde_yaml::Error) -> ConfigError {
    let at = error.location().map_or((1, 1), |at| (at.line(), at.column()));
    let whole = error.to_string();
    let message = without_position(&whole);
    let (place, message) = split_place(message);
    let inside =
        |place: &str| if place.is_empty() { String::new() } else { format!(" in {place}") };
    let (message, remedy) = if let Some((key, known)) = parse_list(message, "unknown field `") {
        unknown_key(key, &known, &inside(parent_of(place, key)))
    } else if let Some((value, known)) = parse_list(message, "unknown variant `") {
        let remedy = nearest(value, &known).map_or_else(
            || format!("use one of {}{}", listed(&known), ranks(place)),
            |n| format!("did you mean `{n}`?"),
        );
        (format!("`{value}` is not known{}", inside(place)), remedy)
    } else if let Some(key) = between(message, "missing field `", "`") {
        (format!("`{key}` is missing{}", inside(place)), missing_remedy(key))
    } else if let Some(rest) = message.strip_prefix("invalid type: ") {
        expected(rest, place)
    } else if let Some(rest) = message.strip_prefix("invalid value: ") {
        expected(rest, place)
    } else if indented_by_tab(text, at.0) {
        (message.to_owned(), "indent with spaces, never with tabs".to_owned())
    } else {
        other(message, place)
    };
    ConfigError::new(file, text, at, message, remedy)
}

/// What a tier may be besides its words.
fn ranks(place: &str) -> &'static str {
    if place.ends_with(".tier") { ", or a rank: 1, 2, 3" } else { "" }
}

fn indented_by_tab(text: &str, line: usize) -> bool {
    let line = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    line.chars().take_while(|c| c.is_whitespace()).any(|c| c == '\t')
}

fn without_position(message: &str) -> &str {
    match message.rfind(" at line ") {
        Some(cut) => message.get(..cut).unwrap_or(message),
        None => message,
    }
}

/// `pools[0].limits: message` to its place and message.
fn split_place(message: &str) -> (&str, &str) {
    match message.split_once(": ") {
        Some((place, rest))
            if !place.is_empty()
                && !matches!(place, "invalid type" | "invalid value")
                && place.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.[]?".contains(&b)) =>
        {
            (place.trim_end_matches(['?', '.']), rest)
        }
        _ => ("", message),
    }
}

/// The parser sometimes names the refused key itself as the place.
fn parent_of<'p>(place: &'p str, key: &str) -> &'p str {
    place.strip_suffix(key).map_or(place, |p| p.trim_end_matches('.'))
}

fn between<'m>(message: &'m str, before: &str, after: &str) -> Option<&'m str> {
    message.strip_prefix(before)?.split(after).next()
}

/// "unknown field `x`, expected one of `a`, `b`" to (x, [a, b]).
fn parse_list<'m>(message: &'m str, before: &str) -> Option<(&'m str, Vec<&'m str>)> {
    let rest = message.strip_prefix(before)?;
    // The refused text may hold a backtick, so the list is taken from the end.
    let (value, list) = match rest.rfind("`, expected ") {
        Some(cut) => (rest.get(..cut)?, rest.get(cut + 1..)?),
        None => (rest.split('`').next()?, ""),
    };
    let known = list.split('`').skip(1).step_by(2).collect();
    Some((value, known))
}

/// The known key that somebody means who writes this one.
pub(crate) fn meant<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    let plain = plain(key);
    nearest(&plain, known).or_else(|| synonym(&plain, known))
}

fn plain(key: &str) -> String {
    key.to_ascii_lowercase().replace('_', "-")
}

/// What is called otherwise here: a key of this place, or one below it.
fn synonym<'k>(plain: &str, known: &[&'k str]) -> Option<&'k str> {
    let below = |ours: &'static str| {
        let first = ours.split('.').next().unwrap_or(ours);
        known.contains(&first).then_some(ours)
    };
    let last = |ours: &'static str| {
        let last = ours.rsplit('.').next().unwrap_or(ours);
        known.contains(&last).then_some(last)
    };
    let mut same = SYNONYMS.iter().filter(|(name, _)| *name == plain).map(|(_, ours)| *ours);
    same.find_map(|ours| below(ours).or_else(|| last(ours)))
}

fn unknown_key(key: &str, known: &[&str], inside: &str) -> (String, String) {
    let message = format!("unknown key `{}`{inside}", cut(key));
    let plain = plain(key);
    if key == "<<" {
        return (message, "merge keys are not supported; repeat the settings".to_owned());
    }
    if let Some(nearest) = nearest(&plain, known) {
        return (message, format!("did you mean `{nearest}`?"));
    }
    let remedy = match synonym(&plain, known) {
        Some(ours) => format!("did you mean `{ours}`?"),
        None => format!("the keys here are {}", listed(known)),
    };
    if names_secret(&plain) && known.contains(&"key-env") {
        return (
            message,
            "name the environment variable that holds the key: `key-env: NAME`; the key itself \
             never belongs in this file"
                .to_owned(),
        );
    }
    (message, remedy)
}

fn missing_remedy(key: &str) -> String {
    match key {
        "version" => "add `version: 1` as the first line".to_owned(),
        "pools" => "add at least one pool: `pools: [{provider: openai-compatible, model: NAME, \
                    base-url: URL, key-env: VARIABLE}]`"
            .to_owned(),
        "provider" => "add `provider:`, for example `openai-compatible` or `codex`".to_owned(),
        "argv" => "add the program and its arguments: `argv: [cargo, test]`".to_owned(),
        _ => format!("add `{key}:`"),
    }
}

/// "string \"x\", expected y" to words for people.
fn expected(rest: &str, place: &str) -> (String, String) {
    let (got, wanted) = rest.rsplit_once(", expected ").unwrap_or((rest, "something else"));
    let wanted = match wanted {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "f64" | "f32" => "a number",
        "a boolean" => "`true` or `false`",
        "a sequence" => "a list",
        "a map" => "a mapping",
        other if other.starts_with("struct ") => "a mapping",
        other => other,
    };
    let got = match got {
        "unit value" => "nothing",
        "map" => "a mapping",
        "sequence" => "a list",
        other => ["integer ", "floating point ", "boolean ", "string ", "character "]
            .iter()
            .find_map(|kind| other.strip_prefix(kind))
            .unwrap_or(other),
    };
    let subject = if place.is_empty() { "the file" } else { place };
    let remedy = match (wanted, got) {
        ("a string", _) if !matches!(got, "a mapping" | "a list" | "nothing") => {
            "put quotes around it".to_owned()
        }
        (_, "nothing") => format!("give it {wanted}, or leave the key out"),
        _ => sample(place, wanted, got).unwrap_or_else(|| format!("write {wanted}")),
    };
    (format!("{subject} must be {wanted}, not {}", cut(got)), remedy)
}

/// The setting as it should stand there, from what was written.
fn sample(place: &str, wanted: &str, got: &str) -> Option<String> {
    let key = place.rsplit('.').next().filter(|key| !key.is_empty())?;
    let key = key.split('[').next()?;
    let quoted = got.strip_prefix('"').and_then(|got| got.strip_suffix('"'));
    match (wanted, quoted) {
        ("a list", Some(text)) if matches!(key, "argv" | "command" | "args" | "recheck") => {
            let words: Vec<&str> = text.split_whitespace().collect();
            Some(format!("write each argument by itself: `{key}: [{}]`", words.join(", ")))
        }
        ("a list", Some(text)) => Some(format!("put it into brackets: `{key}: [{text}]`")),
        ("a list", None) => Some(format!("put brackets around it: `{key}: [...]`")),
        ("`true` or `false`", Some("true" | "false")) => {
            Some(format!("write it without quotes: `{key}: {}`", quoted?))
        }
        (_, Some(text)) if wanted.contains("number") && text.parse::<f64>().is_ok() => {
            Some(format!("write it without quotes: `{key}: {text}`"))
        }
        ("a mapping", _) => {
            Some(format!("write its settings below it, each with its key: `{key}:`"))
        }
        _ => None,
    }
}

fn other(message: &str, place: &str) -> (String, String) {
    let prefix = if place.is_empty() { String::new() } else { format!("{place}: ") };
    let (what, remedy) = if message.contains("recursion limit") {
        ("the file is nested too deeply", "flatten it; no setting is deeper than six levels")
    } else if message.contains("repetition limit") || message.contains("aliases are unfolded") {
        ("its aliases unfold to too many values", "write the values out instead of using aliases")
    } else if message.contains("more than one document") {
        ("the file holds more than one YAML document", "keep one document: remove the `---` inside")
    } else if message.contains("unknown anchor") {
        (
            "an alias (`*name`) has no anchor (`&name`) before it",
            "define it first, or quote the text",
        )
    } else if message.contains("is repeated") {
        (message, "keep one of the two")
    } else if message.contains("YAML tags") {
        (message, "remove the tag, or quote the text when it starts with `!`")
    } else if message.contains("found character that cannot start any token") {
        (message, "quote the text; indent with spaces, never with tabs")
    } else {
        (message, "mend the YAML at this place; quote texts that hold `: `, `#`, `*`, `&` or `{`")
    };
    (format!("{prefix}{what}"), remedy.to_owned())
}

fn listed(known: &[&str]) -> String {
    known.iter().map(|k| format!("`{k}`")).collect::<Vec<_>>().join(", ")
}

fn cut(text: &str) -> String {
    let clean: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(80).collect();
    if text.chars().count() > 80 { format!("{clean}...") } else { clean }
}
