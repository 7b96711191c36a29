//! The clock and the sleep of the client, replaceable so that no test waits.

use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

/// A clock that can be waited on.
#[async_trait]
pub trait Time: Send + Sync {
    /// Now.
    fn now(&self) -> Timestamp;

    /// Returns after `duration`.
    async fn sleep(&self, duration: Duration);
}

/// The system's clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemTime;

#[async_trait]
impl Time for SystemTime {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    async fn sleep(&self, duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// From `now` until `later`; zero when that is past.
pub(super) fn until(now: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(now)).unwrap_or(Duration::ZERO)
}

/// `duration` after `now`, saturating.
pub(super) fn after(now: Timestamp, duration: Duration) -> Timestamp {
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    now.saturating_add(duration).unwrap_or(Timestamp::MAX)
}
