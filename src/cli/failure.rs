//! The one translation from typed errors to what a person reads and the process returns.

use std::io::Write;
use std::process::ExitCode;

use crate::actions::{Annotation, Level, Log};

/// Exit codes: 0 done or paused, 1 failed, 2 wrong usage or configuration, 3 refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExitKind {
    /// 1
    Failed,
    /// 2
    Usage,
    /// 3
    Refused,
}

/// What happened, why, what to do.
#[derive(Debug)]
pub struct Failure {
    kind: ExitKind,
    what: String,
    why: Option<String>,
    remedy: Option<String>,
}

impl Failure {
    fn new(kind: ExitKind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), why: None, remedy: None }
    }

    /// Exit 1.
    pub fn failed(what: impl Into<String>) -> Self {
        Self::new(ExitKind::Failed, what)
    }

    /// Exit 2: wrong usage, input or configuration.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(ExitKind::Usage, what)
    }

    /// Exit 3: permission or claim.
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(ExitKind::Refused, what)
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(mut self, why: impl std::fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// What happened with its reason, and what to do.
    #[must_use]
    pub fn parts(&self) -> (String, Option<&str>) {
        let why = self.why.as_ref().map(|why| format!(": {}", why.trim())).unwrap_or_default();
        (format!("{}{why}", self.what), self.remedy.as_deref())
    }

    /// Renders to standard error, on Actions as an annotation, and gives the exit code.
    #[must_use]
    pub fn report(&self) -> ExitCode {
        let on_actions = std::env::var("GITHUB_ACTIONS").is_ok_and(|it| it == "true");
        let _ = self.write(&mut Log::new(std::io::stderr().lock(), on_actions), on_actions);
        ExitCode::from(match self.kind {
            ExitKind::Failed => 1,
            ExitKind::Usage => 2,
            ExitKind::Refused => 3,
        })
    }

    /// Causes may come from outside: on Actions no line of them becomes a command.
    fn write(&self, log: &mut Log<impl Write>, on_actions: bool) -> std::io::Result<()> {
        // A list of its own needs no label.
        let label = |why: &str| if why.starts_with('\n') { "" } else { "  why: " };
        let why = self.why.as_ref().map(|why| format!("{}{why}\n", label(why))).unwrap_or_default();
        let remedy = self.remedy.as_ref().map(|it| format!("  do:  {it}\n")).unwrap_or_default();
        if !on_actions {
            return log.line(&visible(&format!("error: {}\n{why}{remedy}", self.what)));
        }
        let message = visible(&format!("{}\n{why}{remedy}", self.what));
        let title = Some("overhaul".to_owned());
        log.annotate(Level::Error, &Annotation { title, message, ..Annotation::default() })
    }
}

/// Control characters come from the files and answers that a failure quotes; they are shown, not
/// sent to the terminal. Lines and tabs are ours.
fn visible(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if (c.is_control() && !matches!(c, '\n' | '\t')) || is_direction(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Marks that reorder what a person reads.
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::{Failure, Log, visible};

    fn written(on_actions: bool) -> String {
        let failure =
            Failure::usage("bad").because("line\n::set-output name=x::y").remedy("mend it");
        let mut out = Vec::new();
        failure.write(&mut Log::new(&mut out, on_actions), on_actions).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_cause_commands_nothing() {
        let text = written(true);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            text.starts_with("::error title=overhaul::bad%0A  why: line%0A::set-output"),
            "{text}"
        );
        let text = written(false);
        assert!(text.starts_with("error: bad\n  why: line\n"), "{text}");
        assert!(text.ends_with("  do:  mend it\n"), "{text}");
    }

    #[test]
    fn what_a_file_says_never_reaches_the_terminal_as_control() {
        assert_eq!(visible("a\u{1b}[31m\u{202e}\nb"), "a\\u{1b}[31m\\u{202e}\nb");
    }
}
