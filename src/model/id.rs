//! Identifiers. All are ours (never chosen by a model or a person's file) and safe in a ref name,
//! a file name and a comment command.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Why a text is no identifier.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is not a valid {kind}: use 1 to 80 letters, digits, '-', '_' or '.', starting with a letter or digit",
    text.chars().take(80).flat_map(char::escape_debug).collect::<String>()
)]
pub struct IdError {
    kind: &'static str,
    text: String,
}

/// True for texts that are safe as one component of a git ref and of a file name.
fn is_slug(text: &str) -> bool {
    text.len() <= 80
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !text.contains("..")
        && !text.ends_with('.')
        && !text.ends_with(".lock")
}

macro_rules! slug_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(try_from = "String", into = "String")]
        #[schemars(with = "String")]
        pub struct $name(String);

        impl $name {
            #[doc = concat!("Checks and wraps a ", $kind, ".\n\n# Errors\nWhen the text is not a safe slug.")]
            pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
                let text = text.into();
                if is_slug(&text) { Ok(Self(text)) } else { Err(IdError { kind: $kind, text }) }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;
            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }
    };
}

slug_id!(
    /// One remediation from its findings to its close, e.g. `r-20261130-1a2b3c4d`.
    RunId, "run id"
);
slug_id!(
    /// One unit of work of a plan, e.g. `N-001`. Unique in its plan.
    NodeId, "node id"
);
slug_id!(
    /// One `next-step` invocation.
    CycleId, "cycle id"
);
slug_id!(
    /// One finding; unique within a plan whatever the source called it, e.g. `F-0001`.
    FindingId, "finding id"
);
slug_id!(
    /// One hand-out of nodes to jobs of their own, e.g. `g-1a2b3c4d5e6f7081`.
    GrantId, "grant id"
);
slug_id!(
    /// Secret-free random token that fences a claim: only its holder may land the node.
    OwnerToken, "owner token"
);

/// The number of one try at a node, counted from 1.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct AttemptNumber(pub u32);

impl fmt::Display for AttemptNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A pool's id: `provider[#account]/model`, or what the configuration calls it. The key of quota,
/// claims and settling. Free text (models contain slashes and colons), never used in a path.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct PoolId(pub String);

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PoolId {
    /// Wraps the id.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// Whose quota a pool draws on. Two pools with one (backend, account) are one meter, whatever
/// their transports.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
pub struct MeterKey {
    /// The real service behind the transport, e.g. an endpoint host.
    pub backend: String,
    /// The account there; derived from the variable name, never from a key's value.
    pub account: String,
}
