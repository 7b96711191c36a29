//! The vocabulary: findings, nodes, plans, pools, outcomes, ids.
//!
//! Plain data with serde, no behaviour that touches the world. Everything else imports this;
//! this imports nothing of ours. Time is [`jiff::Timestamp`] (UTC) and is always passed in.

mod ci;
mod finding;
mod id;
mod nearest;
mod node;
mod outcome;
mod path;
mod pool;
mod scrub;
mod usage;

pub use ci::CiMode;
pub use finding::{DropReason, Finding, Level, Place, Severity, content_fingerprint, hex_digest};
pub use id::{
    AttemptNumber, CycleId, FindingId, GrantId, IdError, MeterKey, NodeId, OwnerToken, PoolId,
    RunId,
};
pub use nearest::nearest;
pub use node::{Coverage, CoveragePlace, Node, Plan, ScopeEntry, Tier, VerifyCommand};
pub use outcome::{Channel, Classification, Observation, Outcome};
pub use path::{PathError, RepoPath};
pub use pool::{Limits, Pool, Provider};
pub use scrub::{SecretKind, find_secret, scrub};
pub use usage::{MOST_TOKENS, MOST_USD, Usage};
