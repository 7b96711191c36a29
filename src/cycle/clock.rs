//! The one clock of a cycle. The core never reads it; it is handed times.

use std::time::Instant;

use jiff::{SignedDuration, Timestamp};

/// Wall-clock time, monotonic within the process: an adjusted system clock moves no lease.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Timestamp,
    since: Instant,
}

impl Clock {
    /// Starts at the system's time.
    #[must_use]
    pub fn system() -> Self {
        Self::starting_at(Timestamp::now())
    }

    /// Starts at `start` and goes on from there.
    #[must_use]
    pub fn starting_at(start: Timestamp) -> Self {
        Self { start, since: Instant::now() }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = SignedDuration::try_from(self.since.elapsed()).unwrap_or_default();
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }
}
