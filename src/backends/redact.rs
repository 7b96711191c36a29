//! Secrets out of everything that leaves a worker: logs, details, evidence.

use secrecy::{ExposeSecret as _, SecretString};

use super::{WorkReport, prompt};
use crate::model::scrub;

/// Longest log in a report, in characters.
const MAX_LOG: usize = 60_000;
/// Longest detail in a report, in characters.
pub(super) const MAX_DETAIL: usize = 2_000;

/// Longest name of a model, in characters.
const MAX_NAME: usize = 200;

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

    /// The name of a model without secrets: an answer says what it likes there.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        let beginning: String = name.chars().take(10 * MAX_NAME).collect();
        self.apply(&beginning).chars().take(MAX_NAME).collect()
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
        let switch = report.model_switch.as_mut();
        let switched = switch.into_iter().flat_map(|s| [&mut s.asked, &mut s.answered]);
        for name in switched.chain(report.model_seen.as_mut()) {
            *name = self.name(name);
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
    use crate::backends::{ModelSwitch, WorkReport};
    use crate::model::Outcome;

    #[test]
    fn the_name_of_a_model_is_cut_and_gives_no_key_away() {
        let mut report = WorkReport::ended(Outcome::Success, "");
        let long = format!("hunter22-{}", "x".repeat(3_000));
        report.model_seen = Some(long.clone());
        report.model_switch = Some(ModelSwitch { asked: "m".to_owned(), answered: long });
        let report = Redactor::new(["hunter22".into()]).report(report);
        let (seen, switch) = (report.model_seen.unwrap(), report.model_switch.unwrap());
        assert_eq!((seen.as_str(), switch.asked.as_str()), (switch.answered.as_str(), "m"));
        assert!(seen.starts_with("***-x") && seen.len() == 200, "{seen}");
    }

    #[test]
    fn known_and_likely_secrets() {
        let redactor = Redactor::new(["hunter22".into(), "hunter22-longer".into(), "ab".into()]);
        assert_eq!(redactor.apply("x hunter22-longer hunter22 ab"), "x *** *** ab");
        let key = format!("nvapi-{}", "a1B2c3D4e5".repeat(4));
        assert_eq!(redactor.apply(&format!("key {key}.")), "key ***.");
    }
}
