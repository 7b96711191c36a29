//! Which version of an agent is installed.

use std::ffi::OsStr;
use std::time::Duration;

use crate::backends::command::search_path;
use crate::process::{self, Spec};

/// How long an agent may take to say its version; some unpack themselves first.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longest version that is taken, in characters.
const LONGEST: usize = 64;

/// Why a version is not known.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// No temporary home.
    #[error("no temporary folder: {0}")]
    Home(#[from] std::io::Error),
    /// It does not start.
    #[error(transparent)]
    Process(#[from] process::ProcessError),
    /// It does not answer as expected.
    #[error("`{program} --version` ended with {status} and said `{said}`")]
    Unclear {
        /// The program.
        program: String,
        /// How it ended.
        status: String,
        /// The start of what it printed.
        said: String,
    },
}

/// Asks `launcher` for its version, with a home of its own and without any variable of ours.
///
/// # Errors
/// When it does not start, or prints nothing that looks like a version.
pub async fn installed(launcher: &[String]) -> Result<String, VersionError> {
    let home = tempfile::Builder::new().prefix("overhaul-version-").tempdir()?;
    std::fs::create_dir_all(home.path().join("tmp"))?;
    let argv = launcher.iter().map(String::as_str).chain(["--version"]);
    let mut spec = Spec::new(argv.map(OsStr::new), home.path());
    spec.env = process::base_env(home.path(), &search_path());
    spec.deadline = DEADLINE;
    spec.output_cap = 16 << 10;
    let ended = process::run(spec).await?;
    let said = ended.stdout.text();
    match version_in(&said).filter(|_| ended.status.success()) {
        Some(version) => Ok(version.to_owned()),
        None => Err(VersionError::Unclear {
            program: launcher.join(" "),
            status: crate::backends::command::ending(ended.status),
            said: said.trim().chars().take(LONGEST).collect(),
        }),
    }
}

/// The first word that is a version: digits, a dot, and what may follow.
fn version_in(text: &str) -> Option<&str> {
    text.split_whitespace().map(|word| word.strip_prefix('v').unwrap_or(word)).find(|word| {
        let mut parts = word.splitn(3, '.');
        let digits = |part: Option<&str>| {
            part.is_some_and(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
        };
        word.len() <= LONGEST
            && digits(parts.next())
            && digits(parts.next())
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b".-+_".contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn versions_as_agents_say_them() {
        assert_eq!(version_in("codex-cli 0.171.0\n"), Some("0.171.0"));
        assert_eq!(version_in("1.18.33\n"), Some("1.18.33"));
        assert_eq!(version_in("2.1.197 (Claude Code)"), Some("2.1.197"));
        assert_eq!(version_in("agy v1.2.3-rc.1"), Some("1.2.3-rc.1"));
        assert_eq!(version_in("usage: x [options] 3 of 4."), None);
        assert_eq!(version_in(&format!("1.{}", "9".repeat(100))), None);
    }
}
