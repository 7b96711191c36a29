//! What a rule is. The tables beside this file hold the rules themselves.

use regex::Regex;

use super::evidence::Evidence;
use crate::model::Outcome;

/// One line of a table: under these conditions, this outcome, because of this source.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rule {
    /// Its name, as `explain error` prints it.
    pub name: &'static str,
    /// All parts that are given must hold.
    pub when: When,
    /// What it means.
    pub outcome: Outcome,
    /// Where the wording or code comes from.
    pub source: &'static str,
    /// What is not available comes back by itself: it is degraded, or at capacity.
    pub heals: bool,
}

impl Rule {
    /// A rule for what comes back by itself.
    pub(super) const fn heals(mut self) -> Self {
        self.heals = true;
        self
    }
}

/// Conditions; an empty part asks nothing.
#[derive(Debug, Clone, Copy)]
pub(super) struct When {
    status: &'static [u16],
    kind: &'static [&'static str],
    says: &'static [&'static str],
    unless: &'static [&'static str],
    backend: &'static [&'static str],
    header: &'static [&'static str],
    exit: &'static [i32],
    exceeds_alone: bool,
}

/// Starts a condition.
pub(super) const fn when() -> When {
    When {
        status: &[],
        kind: &[],
        says: &[],
        unless: &[],
        backend: &[],
        header: &[],
        exit: &[],
        exceeds_alone: false,
    }
}

impl When {
    /// The HTTP status, from the wire or stated in an anchored form.
    pub(super) const fn status(mut self, any: &'static [u16]) -> Self {
        self.status = any;
        self
    }
    /// A typed value: the error's type, code, status word, reason, title or name; lower case.
    pub(super) const fn kind(mut self, any: &'static [&'static str]) -> Self {
        self.kind = any;
        self
    }
    /// Patterns over the normalised text (lower case, one line, scrubbed).
    pub(super) const fn says(mut self, any: &'static [&'static str]) -> Self {
        self.says = any;
        self
    }
    /// Patterns that forbid the rule.
    pub(super) const fn unless(mut self, any: &'static [&'static str]) -> Self {
        self.unless = any;
        self
    }
    /// The backend's name contains one of these.
    pub(super) const fn backend(mut self, any: &'static [&'static str]) -> Self {
        self.backend = any;
        self
    }
    /// One of these response headers is present and not empty.
    pub(super) const fn header(mut self, any: &'static [&'static str]) -> Self {
        self.header = any;
        self
    }
    /// The exit code of the command-line worker.
    pub(super) const fn exit(mut self, any: &'static [i32]) -> Self {
        self.exit = any;
        self
    }
    /// The text states a limit and a request that is larger than the whole limit.
    pub(super) const fn exceeds_alone(mut self) -> Self {
        self.exceeds_alone = true;
        self
    }
}

/// Shorthand for a table line.
pub(super) const fn rule(
    name: &'static str,
    outcome: Outcome,
    when: When,
    source: &'static str,
) -> Rule {
    Rule { name, when, outcome, source, heals: false }
}

/// A rule with its patterns compiled.
#[derive(Debug)]
pub(super) struct Compiled {
    pub rule: &'static Rule,
    says: Option<Regex>,
    unless: Option<Regex>,
}

impl Compiled {
    /// None where a pattern does not compile; a test pins that all do.
    pub(super) fn new(rule: &'static Rule) -> Option<Self> {
        let compile = |patterns: &[&str]| {
            (!patterns.is_empty()).then(|| Regex::new(&patterns.join("|"))).transpose().ok()
        };
        Some(Self { rule, says: compile(rule.when.says)?, unless: compile(rule.when.unless)? })
    }

    /// The part of the text that shows why the rule holds; empty where the type or status did.
    pub(super) fn holds(&self, seen: &Evidence) -> Option<std::ops::Range<usize>> {
        let when = &self.rule.when;
        let asked = |empty: bool, holds: bool| empty || holds;
        let typed =
            asked(when.status.is_empty(), seen.status.is_some_and(|s| when.status.contains(&s)))
                && asked(
                    when.kind.is_empty(),
                    when.kind.iter().any(|k| seen.kinds.iter().any(|s| s == k)),
                )
                && asked(
                    when.backend.is_empty(),
                    when.backend.iter().any(|b| seen.backend.contains(b)),
                )
                && asked(
                    when.header.is_empty(),
                    when.header
                        .iter()
                        .any(|h| seen.headers.get(*h).is_some_and(|v| !v.trim().is_empty())),
                )
                && asked(
                    when.exit.is_empty(),
                    seen.exit_code.is_some_and(|code| when.exit.contains(&code)),
                )
                && (!when.exceeds_alone || seen.exceeds_alone());
        if !typed || self.unless.as_ref().is_some_and(|pattern| pattern.is_match(&seen.text)) {
            return None;
        }
        match &self.says {
            None => Some(0..0),
            Some(pattern) => pattern.find(&seen.text).map(|found| found.range()),
        }
    }
}
