//! The append-only event log that is a run's only state, and the fold that makes a [`Run`] of it.

mod event;
mod questions;
mod record;
mod run;
mod state;

pub use event::{
    BranchAsk, Burn, CheckRecord, EVENT_VERSION, Event, EventKind, Evidence, FrictionType,
    GrantedClaim, Holder, PauseCause, PausedNode, Receipt, Share, Used, event_schema,
};
pub use record::{
    Approval, Asked, Claim, Failure, FrictionRecord, Gate, GrantRecord, HeadRecord, Landing, Made,
    NodeRecord, PauseRecord, PoolPause, PoolRecord, PoolSettle, PrEnd, PrRecord, Received, Served,
    ShownRecord, SizeBan,
};
pub use run::{Applied, Run, fold};
pub use state::{AttemptBudget, DependsOn, NodeState, node_states};
