//! The append-only event log that is a run's only state, and the fold that makes a [`Run`] of it.

mod event;

pub use event::{
    Burn, CheckRecord, EVENT_VERSION, Event, EventKind, FrictionType, Holder, PauseCause,
    PausedNode, Receipt,
};
