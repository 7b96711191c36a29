//! The one clock of a cycle. The core never reads it; it is handed times.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// Wall-clock time, monotonic within the process: an adjusted system clock moves no lease.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Timestamp,
    since: Instant,
    /// Seconds of this clock in one of the machine's.
    speed: u32,
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
        Self { start, since: Instant::now(), speed: 1 }
    }

    /// The same clock, `speed` times as fast: minutes of quota pass in seconds, for benchmarks.
    #[must_use]
    pub fn faster(self, speed: u32) -> Self {
        Self { speed: speed.max(1), ..self }
    }

    /// Now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        let elapsed = self.since.elapsed().saturating_mul(self.speed);
        let elapsed = SignedDuration::try_from(elapsed).unwrap_or_default();
        self.start.checked_add(elapsed).unwrap_or(self.start)
    }

    /// Sleeps until a time of this clock, a millisecond at least.
    pub async fn sleep_until(&self, at: Timestamp) {
        let left = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
        let left = left / self.speed;
        tokio::time::sleep(left.max(Duration::from_millis(1))).await;
    }

    /// What `work` comes to, if it does within `limit` of this clock.
    pub async fn timeout<T>(&self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(limit / self.speed, work).await.ok()
    }
}
