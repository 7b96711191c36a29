//! Keys that were written where the name of a variable belongs.

use std::sync::LazyLock;

use regex::Regex;

/// Forms of issued keys: OpenAI and look-alikes, NVIDIA, GitHub, GitLab, Google, Slack, Hugging
/// Face, Groq, xAI, Replicate, AWS, JWT, private keys. Public prefix registries of secret scanners.
static KEY: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        \b(?: sk-[A-Za-z0-9_-]{8,} | nvapi-[A-Za-z0-9_-]{8,} | gh[pousr]_[A-Za-z0-9]{8,}
          | github_pat_[A-Za-z0-9_]{8,} | glpat-[A-Za-z0-9_-]{8,} | AIza[A-Za-z0-9_-]{10,}
          | xox[abprs]-[A-Za-z0-9-]{8,} | hf_[A-Za-z0-9]{8,} | gsk_[A-Za-z0-9]{8,}
          | xai-[A-Za-z0-9]{8,} | r8_[A-Za-z0-9]{8,} | AKIA[A-Z0-9]{12,}
          | eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,} ) [A-Za-z0-9_.\-]*
        | -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY-----
        | (?i:bearer)\s+[A-Za-z0-9_.\-]{16,}
        | ://[^/\s:@]*:[^/\s@]+@",
    )
    .ok()
});

/// What a secret is replaced by in everything we print.
const MASK: &str = "(hidden)";

/// Does the text hold something that looks like an issued key or a password in a URL?
pub(super) fn looks_secret(text: &str) -> bool {
    KEY.as_ref().is_some_and(|key| key.is_match(text))
}

/// A long mixed text where a short name belongs (`key-env`): more likely a key than a name.
pub(super) fn looks_generated(text: &str) -> bool {
    looks_secret(text)
        || (text.len() >= 20
            && text.bytes().any(|b| b.is_ascii_digit())
            && text.bytes().any(|b| b.is_ascii_lowercase())
            && (text.bytes().any(|b| b.is_ascii_uppercase()) || !text.contains('_')))
}

/// Does a key's name promise a secret as its value?
pub(super) fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    !key.ends_with("-env")
        && (["secret", "password", "passwd", "authorization", "credential", "cookie"]
            .iter()
            .any(|word| key.contains(word))
            || key.split(['-', '_']).any(|part| matches!(part, "key" | "apikey" | "token")))
}

/// The text with every key masked.
pub(super) fn scrub(text: &str) -> String {
    let Some(key) = KEY.as_ref() else { return text.to_owned() };
    key.replace_all(text, |found: &regex::Captures<'_>| {
        if found[0].starts_with("://") { format!("://{MASK}@") } else { MASK.to_owned() }
    })
    .into_owned()
}

/// A source line with every key masked; from the first value on whose name promises a secret, the
/// rest of the line is.
pub(super) fn scrub_line(line: &str) -> String {
    for (colon, _) in line.match_indices(':') {
        let (before, value) = line.split_at(colon);
        let start = before
            .trim_end_matches(['"', '\''])
            .rfind(|c: char| !c.is_alphanumeric() && c != '-' && c != '_')
            .map_or(0, |i| i + 1);
        let name = before.get(start..).unwrap_or(before).trim_matches(['"', '\'']);
        if names_secret(name) && !value[1..].trim().is_empty() {
            return format!("{}: {MASK}", scrub(before));
        }
    }
    scrub(line)
}

#[cfg(test)]
mod tests {
    use super::{looks_generated, looks_secret, names_secret, scrub, scrub_line};

    #[test]
    fn issued_keys_are_seen_and_masked() {
        for text in
            ["sk-proj-abcdefgh123", "nvapi-0123456789ab", "ghp_0123456789", "https://u:pw@h/"]
        {
            assert!(looks_secret(text), "{text}");
        }
        for text in [
            "OPENAI_API_KEY",
            "sk-learn",
            "https://host:8000/v1",
            "task-force-alpha",
            "risk-assessment",
        ] {
            assert!(!looks_secret(text), "{text}");
        }
        assert_eq!(scrub("a sk-abcdefgh12 b"), "a (hidden) b");
        assert_eq!(scrub_line("    api-key: abc"), "    api-key: (hidden)");
        assert_eq!(scrub_line("    key-env: abc"), "    key-env: abc");
        assert_eq!(scrub_line("    input-tokens-per-minute: 5"), "    input-tokens-per-minute: 5");
        assert_eq!(scrub_line("- {a: b, 'api-key': x, c: d}"), "- {a: b, 'api-key': (hidden)");
        assert_eq!(scrub_line("u: https://u:pw@h/v1"), "u: https://(hidden)@h/v1");
        assert_eq!(scrub_line("é: ü: \"token\": x"), "é: ü: \"token\": (hidden)");
        assert!(looks_generated("a8f5f167f44f4964e6c998dee827110c"));
        assert!(!looks_generated("MY_VERY_LONG_KEY_NAME_2"));
        assert!(names_secret("apiKey") || names_secret("api-key"));
    }
}
