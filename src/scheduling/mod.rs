//! Frontier, meters, selection, admission, partition, walls; [`simulate`] drives the same state
//! machine with a virtual clock.
//!
//! Pure: no clock, no I/O, no randomness. Time is an argument, [`Millis`].

pub mod bound;
pub mod budget;
mod finish;
mod frontier;
mod graph;
pub mod health;
mod lookahead;
pub mod meter;
pub mod outcome;
pub mod partition;
mod pass;
pub mod pools;
pub mod poolset;
mod requests;
mod scheduler;
pub mod select;
pub mod simulate;
pub mod spec;
pub mod wall;
mod window;

pub use budget::{Budgets, Ceiling, OverBudget, Spent};
pub use graph::ScheduleError;
pub use health::Settled;
pub use meter::{Admission, Dimension, Estimate, LimitHint, MeterIx, Meters, Reservation};
pub use outcome::{AttemptLimits, Finish, burn, refused_here, settles, settles_across_cycles};
pub use requests::{Asked, FAR, Request, Used};
pub use scheduler::{Decision, Effect, Finished, NodeState, Scheduler};
pub use spec::{NodeSpec, NodeStatus, Options, PoolState, ServiceEstimate};
pub use wall::{NodeWall, Obstacle};

/// Milliseconds since the Unix epoch, or a length in milliseconds. The virtual clock starts at 0.
pub type Millis = i64;

/// The same instant for the ledger and for people; times beyond the calendar are cut to its end.
#[must_use]
pub fn timestamp(at: Millis) -> jiff::Timestamp {
    jiff::Timestamp::from_millisecond(at).unwrap_or(if at < 0 {
        jiff::Timestamp::MIN
    } else {
        jiff::Timestamp::MAX
    })
}
