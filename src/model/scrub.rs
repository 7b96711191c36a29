//! Keeps secrets out of everything that is shown, stored or sent on.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

/// What kind of secret a text holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretKind {
    /// A provider's API key with its public prefix (`sk-`, `nvapi-`, `AIza`, ...).
    ApiKey,
    /// A GitHub or GitLab token.
    ForgeToken,
    /// A cloud access key id.
    CloudKey,
    /// A JSON web token.
    Jwt,
    /// A PEM private key.
    PrivateKey,
}

/// Prefixes are the providers' own; the lengths are the shortest seen in their documentation.
const KEYS: &[(SecretKind, &str)] = &[
    (SecretKind::PrivateKey, r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[A-Za-z0-9+/=\s\\]*"),
    (SecretKind::Jwt, r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}"),
    (SecretKind::ApiKey, r"\b(?:sk|nvapi|xai|pplx|csk)-[A-Za-z0-9_-]{16,}"),
    (SecretKind::ApiKey, r"\bAIza[A-Za-z0-9_-]{30,}"),
    (SecretKind::ApiKey, r"\b(?:gsk|hf|r8|tgp_v1)_[A-Za-z0-9_-]{20,}"),
    (SecretKind::ForgeToken, r"\bgh[pousr]_[A-Za-z0-9]{20,}"),
    (SecretKind::ForgeToken, r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    (SecretKind::ForgeToken, r"\bglpat-[A-Za-z0-9_-]{20,}"),
    (SecretKind::ApiKey, r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    (SecretKind::CloudKey, r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
];

/// Values that are secret only for what stands before them; too weak for refusing a tree.
const KEYED: &[&str] = &[
    r"(?i)\b(bearer\s+)[A-Za-z0-9._~+/=-]{12,}",
    r#"(?i)\b((?:x-)?(?:api|access|auth|secret|client|private)[-_ ]?(?:key|token|secret)["']?\s*[:=]\s*["']?)[A-Za-z0-9+/_=.-]{16,}"#,
    r#"(?i)\b((?:password|passwd|secret|authorization|cookie)["']?\s*[:=]\s*["']?)[A-Za-z0-9+/_=.-]{8,}"#,
    r"(://)[^\s/@:]{1,200}:[^\s/@]{1,200}@",
];

static KEY_PATTERNS: LazyLock<Vec<(SecretKind, Regex)>> = LazyLock::new(|| {
    KEYS.iter().filter_map(|(kind, text)| Some((*kind, Regex::new(text).ok()?))).collect()
});

static BYTE_PATTERNS: LazyLock<Vec<(SecretKind, regex::bytes::Regex)>> = LazyLock::new(|| {
    KEYS.iter()
        .filter_map(|(kind, text)| Some((*kind, regex::bytes::Regex::new(text).ok()?)))
        .collect()
});

static KEYED_PATTERNS: LazyLock<Vec<Regex>> =
    LazyLock::new(|| KEYED.iter().filter_map(|text| Regex::new(text).ok()).collect());

/// Replaces what looks like a secret with `***`; borrows when there is nothing to hide.
#[must_use]
pub fn scrub(text: &str) -> Cow<'_, str> {
    let mut clean = Cow::Borrowed(text);
    for (_, pattern) in KEY_PATTERNS.iter() {
        if let Cow::Owned(changed) = pattern.replace_all(&clean, "***") {
            clean = Cow::Owned(changed);
        }
    }
    for pattern in KEYED_PATTERNS.iter() {
        if let Cow::Owned(changed) = pattern.replace_all(&clean, "${1}***") {
            clean = Cow::Owned(changed);
        }
    }
    clean
}

/// Says whether a file holds a secret that can be told by its own shape.
#[must_use]
pub fn find_secret(text: &[u8]) -> Option<SecretKind> {
    BYTE_PATTERNS.iter().find(|(_, pattern)| pattern.is_match(text)).map(|(kind, _)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_compiles() {
        assert_eq!(KEY_PATTERNS.len(), KEYS.len());
        assert_eq!(BYTE_PATTERNS.len(), KEYS.len());
        assert_eq!(KEYED_PATTERNS.len(), KEYED.len());
    }

    #[test]
    fn secrets_vanish_and_their_surroundings_stay() {
        // Built from halves, so that no scanner takes this file for a leak.
        let key = |prefix: &str| format!("{prefix}{}", "a1B2c3D4e5".repeat(4));
        for secret in [
            key("sk-"),
            key("sk-ant-"),
            key("nvapi-"),
            key("AIza"),
            key("ghp_"),
            key("github_pat_"),
        ] {
            let text = format!("Incorrect API key provided: {secret}. See docs");
            assert_eq!(scrub(&text), "Incorrect API key provided: ***. See docs");
            assert!(find_secret(text.as_bytes()).is_some(), "{secret}");
        }
        let jwt = format!("eyJ{0}.{0}.{0}", "abcdEFGH12");
        assert_eq!(scrub(&format!("Authorization: Bearer {jwt}")), "Authorization: Bearer ***");
        assert_eq!(scrub("https://me:hunter22@example.com/x"), "https://***example.com/x");
        assert_eq!(scrub(r#"{"api_key": "0123456789abcdef0123"}"#), r#"{"api_key": "***"}"#);
    }

    #[test]
    fn ordinary_text_is_borrowed() {
        let text = "This model's maximum context length is 8192 tokens; task sk-1 of ticket AB-12";
        assert!(matches!(scrub(text), Cow::Borrowed(_)));
        assert_eq!(find_secret(text.as_bytes()), None);
        assert_eq!(find_secret(&[0xff, 0x00, 0x9f]), None);
    }
}
