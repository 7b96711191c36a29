//! One `next-step` cycle: observe, grant, work, land, report.

mod clock;
mod journal;

pub use clock::Clock;
pub use journal::{Journal, JournalError, Written};
