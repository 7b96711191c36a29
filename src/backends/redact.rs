//! Secrets out of everything that leaves a worker: logs, details, evidence.

use std::sync::LazyLock;

use regex::Regex;
use secrecy::{ExposeSecret as _, SecretString};

/// Shapes of well-known credentials.
#[expect(clippy::expect_used, reason = "a constant pattern, compiled in a test")]
static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?x)
        \b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}
        | \bnvapi-[A-Za-z0-9_-]{8,}
        | \bgh[pousr]_[A-Za-z0-9]{20,} | \bgithub_pat_[A-Za-z0-9_]{20,}
        | \bglpat-[A-Za-z0-9_-]{16,} | \bhf_[A-Za-z0-9]{20,} | \bxox[abprs]-[A-Za-z0-9-]{10,}
        | \bAKIA[0-9A-Z]{16}\b | \bAIza[A-Za-z0-9_-]{30,}
        | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}
        | (?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}",
    )
    .expect("the pattern is valid")
});

/// Replaces known secrets, and what looks like one.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    secrets: Vec<SecretString>,
}

impl Redactor {
    /// Takes the secrets that this attempt knows. Values under eight characters are left alone:
    /// replacing them would tear ordinary text apart.
    #[must_use]
    pub fn new(secrets: impl IntoIterator<Item = SecretString>) -> Self {
        let mut secrets: Vec<SecretString> =
            secrets.into_iter().filter(|s| s.expose_secret().trim().len() >= 8).collect();
        // The longest first, so that no secret survives as the rest of a shorter one.
        secrets.sort_by_key(|s| std::cmp::Reverse(s.expose_secret().len()));
        Self { secrets }
    }

    /// The text without secrets.
    #[must_use]
    pub fn apply(&self, text: &str) -> String {
        let mut out = text.to_owned();
        for secret in &self.secrets {
            let value = secret.expose_secret().trim();
            if out.contains(value) {
                out = out.replace(value, "***");
            }
        }
        KNOWN.replace_all(&out, "***").into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::Redactor;

    #[test]
    fn known_and_likely_secrets() {
        let redactor = Redactor::new(["hunter22".into(), "hunter22-longer".into(), "ab".into()]);
        assert_eq!(redactor.apply("x hunter22-longer hunter22 ab"), "x *** *** ab");
        assert_eq!(redactor.apply("key nvapi-abcdefgh1234, Bearer abcdefghij."), "key ***, ***");
        let plain = "the sk-learn package, ghp_short, a bearer of news";
        assert_eq!(redactor.apply(plain), plain);
    }
}
