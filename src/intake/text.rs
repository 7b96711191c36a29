//! Bounding and cleaning of untrusted text, and what must not be carried out of a secret scanner.

use serde_json::Value;

use crate::model::scrub;

/// Longest title, characters.
const TITLE: usize = 160;
/// Longest detail, characters.
const LONG: usize = 16_000;
/// Longest snippet or evidence line, characters.
const SNIPPET: usize = 2_000;

/// The first line with something on it, without control characters.
pub(super) fn title(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let line = scrub(line);
    let clean: String = line.chars().filter(|c| !c.is_control()).collect();
    cut(&clean, TITLE)
}

/// A long text, bounded.
pub(super) fn long(text: &str) -> String {
    cut(&scrub(text.trim()), LONG)
}

/// A snippet or an evidence line, bounded.
pub(super) fn snippet(text: &str) -> String {
    cut(&scrub(text.trim_end()), SNIPPET)
}

/// A value of the source that is kept as it is, but for secrets.
pub(super) fn kept(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(scrub(text).into_owned()),
        Value::Array(items) => items.iter().map(kept).collect(),
        Value::Object(members) => {
            members.iter().map(|(key, value)| (key.clone(), kept(value))).collect()
        }
        other => other.clone(),
    }
}

fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// True for a tool that looks for secrets: what it quotes is a secret.
pub(super) fn is_secret_scanner(tool: &str) -> bool {
    const SCANNERS: [&str; 10] = [
        "gitleaks",
        "trufflehog",
        "secret",
        "ggshield",
        "gitguardian",
        "talisman",
        "whispers",
        "git-secrets",
        "credscan",
        "betterleaks",
    ];
    let tool = tool.to_ascii_lowercase();
    SCANNERS.iter().any(|name| tool.contains(name))
}

/// True for a rule about secrets (its id, name or tags), whatever the tool.
pub(super) fn is_secret_rule(text: &str) -> bool {
    const WORDS: [&str; 12] = [
        "secret",
        "password",
        "passwd",
        "credential",
        "private-key",
        "private_key",
        "privatekey",
        "api-key",
        "api_key",
        "apikey",
        "access-key",
        "token",
    ];
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|word| text.contains(word))
}

/// Takes each secret out of a text. Very short ones would take words out by chance.
pub(super) fn redact(text: &str, secrets: &[&str]) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().map(|s| s.trim()).filter(|s| s.len() >= 4) {
        if text.contains(secret) {
            text = text.replace(secret, "[redacted]");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_clean_line() {
        assert_eq!(title("\n  a\u{1b}[31m b\r\nc"), "a[31m b");
        assert_eq!(title(&"\u{20ac}".repeat(500)).chars().count(), TITLE + 3);
    }

    #[test]
    fn secrets_leave_the_text() {
        assert_eq!(redact("found AKIA1234 here", &["AKIA1234", "a"]), "found [redacted] here");
    }
}
