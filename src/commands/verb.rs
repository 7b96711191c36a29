//! The verbs and what each of them takes.

use serde::{Deserialize, Serialize};

/// What a command asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    /// Go on after a pause, at once.
    Resume,
    /// Start nothing new.
    Pause,
    /// Say how the run stands.
    Status,
    /// Try a failed or rejected node again.
    Retry,
    /// Give a node up.
    Skip,
    /// Approve a node at the head commit the approval was given for.
    Approve,
    /// Raise the run's budget by so many US dollars.
    Budget,
    /// Use a settled pool again.
    Unsettle,
    /// Take a human's commits on the branch into the node.
    Adopt,
    /// Take a human's commits off the node's branch; they are kept under another name.
    Reset,
    /// End the run.
    Cancel,
    /// List the commands.
    Help,
}

/// What a verb takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Takes {
    /// Nothing; further words are for people.
    Nothing,
    /// One node.
    Node,
    /// One node, or none on a node's own pull request.
    NodeOrNone,
    /// An amount.
    Amount,
    /// One pool.
    Pool,
}

/// How near a word must be to a verb to be offered as "did you mean".
const NEAR: usize = 2;

/// Words people use for a verb of ours; only ever offered, never acted on.
const OTHER_WORDS: &[(&str, Verb)] = &[
    ("abort", Verb::Cancel),
    ("accept", Verb::Approve),
    ("continue", Verb::Resume),
    ("ignore", Verb::Skip),
    ("lgtm", Verb::Approve),
    ("rerun", Verb::Retry),
    ("restart", Verb::Retry),
    ("run", Verb::Resume),
    ("start", Verb::Resume),
    ("stop", Verb::Pause),
    ("unpause", Verb::Resume),
];

impl Verb {
    /// Every verb, in the order of the help text.
    pub const ALL: [Self; 12] = [
        Self::Resume,
        Self::Pause,
        Self::Status,
        Self::Retry,
        Self::Skip,
        Self::Approve,
        Self::Budget,
        Self::Unsettle,
        Self::Adopt,
        Self::Reset,
        Self::Cancel,
        Self::Help,
    ];

    /// The word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Resume => "resume",
            Self::Pause => "pause",
            Self::Status => "status",
            Self::Retry => "retry",
            Self::Skip => "skip",
            Self::Approve => "approve",
            Self::Budget => "budget",
            Self::Unsettle => "unsettle",
            Self::Adopt => "adopt",
            Self::Reset => "reset",
            Self::Cancel => "cancel",
            Self::Help => "help",
        }
    }

    /// One line for the help text: arguments and meaning.
    #[must_use]
    pub const fn usage(self) -> (&'static str, &'static str) {
        match self {
            Self::Resume => ("resume", "go on after a pause, at once"),
            Self::Pause => ("pause", "start nothing new"),
            Self::Status => ("status", "say how the run stands"),
            Self::Retry => ("retry NODE", "try a failed or rejected node again"),
            Self::Skip => ("skip NODE", "give a node up"),
            Self::Approve => ("approve [NODE]", "approve the head of a node's branch as it is now"),
            Self::Budget => ("budget +N", "raise the budget by N US dollars"),
            Self::Unsettle => ("unsettle POOL", "use a settled pool again"),
            Self::Adopt => ("adopt [NODE]", "take the commits on the branch into the node"),
            Self::Reset => ("reset [NODE]", "take the commits of people off the branch again"),
            Self::Cancel => ("cancel", "end the run"),
            Self::Help => ("help", "show this list"),
        }
    }

    /// Only reads: anyone who can read the repository may ask.
    #[must_use]
    pub const fn only_reads(self) -> bool {
        matches!(self, Self::Status | Self::Help)
    }

    pub(super) const fn takes(self) -> Takes {
        match self {
            Self::Retry | Self::Skip => Takes::Node,
            Self::Approve | Self::Adopt | Self::Reset => Takes::NodeOrNone,
            Self::Budget => Takes::Amount,
            Self::Unsettle => Takes::Pool,
            Self::Resume | Self::Pause | Self::Status | Self::Cancel | Self::Help => Takes::Nothing,
        }
    }

    /// The verb of a word, case ignored.
    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.name().eq_ignore_ascii_case(word))
    }

    /// The verb that was probably meant.
    pub(super) fn near(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        if let Some((_, verb)) = OTHER_WORDS.iter().find(|(other, _)| *other == word) {
            return Some(*verb);
        }
        Self::ALL
            .into_iter()
            .map(|verb| (strsim::damerau_levenshtein(&word, verb.name()), verb))
            .filter(|(distance, verb)| *distance <= NEAR && *distance * 2 < verb.name().len())
            .min()
            .map(|(_, verb)| verb)
    }
}
