//! Secrets out of everything that leaves a worker: logs, details, evidence.

use secrecy::{ExposeSecret as _, SecretString};

use super::{WorkReport, prompt};
use crate::model::scrub;

/// Longest log in a report, in characters.
const MAX_LOG: usize = 60_000;
/// Longest detail in a report, in characters.
pub(super) const MAX_DETAIL: usize = 2_000;

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

    /// The report without secrets, its texts cut to what is kept.
    #[must_use]
    pub fn report(&self, mut report: WorkReport) -> WorkReport {
        let clean = |text: &str, max: usize| prompt::cut(&self.apply(text), max);
        report.detail = clean(&report.detail, MAX_DETAIL);
        report.log = clean(&report.log, MAX_LOG);
        if let Some(result) = &mut report.result {
            result.summary = self.apply(&result.summary);
            for blocked in &mut result.blocked {
                blocked.reason = self.apply(&blocked.reason);
            }
        }
        if let Some(reading) = &mut report.classification {
            reading.evidence = clean(&reading.evidence, MAX_DETAIL);
        }
        report
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
