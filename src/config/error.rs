//! What is wrong with a configuration, for people.

use std::fmt;

use super::secret::{scrub, scrub_line};

/// One thing that is wrong: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct ConfigError {
    /// The file's name as the caller gave it.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// What is wrong; never holds a secret.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
    /// The source line, secrets masked.
    #[serde(skip)]
    source_line: String,
}

/// Widest source line that a snippet shows.
const SNIPPET_WIDTH: usize = 120;

impl ConfigError {
    pub(super) fn new(
        file: &str,
        text: &str,
        (line, column): (usize, usize),
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let source = text.lines().nth(line.saturating_sub(1)).unwrap_or("");
        Self {
            file: file.to_owned(),
            line,
            column,
            message: scrub(&message.into()),
            remedy: scrub(&remedy.into()),
            source_line: printable(&scrub_line(source)),
        }
    }
}

/// Control characters would let a file write to the terminal or speak to the runner.
fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        let shown: String = self.source_line.chars().take(SNIPPET_WIDTH).collect();
        if !shown.trim().is_empty() && self.column <= shown.chars().count() + 1 {
            let gutter = self.line.to_string();
            let blank = " ".repeat(gutter.len());
            let before = " ".repeat(self.column - 1);
            let token = shown
                .chars()
                .skip(self.column - 1)
                .take_while(|c| !c.is_whitespace() && !matches!(c, ',' | ']' | '}'))
                .count();
            let token = match shown.chars().nth(self.column - 1 + token.saturating_sub(1)) {
                Some(':') if token > 1 => token - 1,
                _ => token.max(1),
            };
            writeln!(f, " {blank} |")?;
            writeln!(f, " {gutter} | {shown}")?;
            writeln!(f, " {blank} | {before}{}", "^".repeat(token))?;
        }
        write!(f, "  do: {}", self.remedy)
    }
}

/// Everything that is wrong with one file, in the order of the places. Never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigErrors {
    /// The errors.
    pub errors: Vec<ConfigError>,
    /// Whether the form of a section is wrong: what else is wrong with its content shows only after.
    pub more_may_follow: bool,
}

impl From<Vec<ConfigError>> for ConfigErrors {
    fn from(mut errors: Vec<ConfigError>) -> Self {
        errors.sort_by(|a, b| (a.line, a.column, &a.message).cmp(&(b.line, b.column, &b.message)));
        errors.dedup();
        Self { errors, more_may_follow: false }
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, error) in self.errors.iter().enumerate() {
            if nth > 0 {
                f.write_str("\n\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}
