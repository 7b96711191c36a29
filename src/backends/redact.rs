//! Secrets out of everything that leaves a worker: logs, details, evidence.

use secrecy::{ExposeSecret as _, SecretString};

use crate::model::scrub;

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
        scrub(&out).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::Redactor;

    #[test]
    fn known_and_likely_secrets() {
        let redactor = Redactor::new(["hunter22".into(), "hunter22-longer".into(), "ab".into()]);
        assert_eq!(redactor.apply("x hunter22-longer hunter22 ab"), "x *** *** ab");
        let key = format!("nvapi-{}", "a1B2c3D4e5".repeat(4));
        assert_eq!(redactor.apply(&format!("key {key}.")), "key ***.");
    }
}
