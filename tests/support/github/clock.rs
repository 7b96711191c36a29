//! The rig's clock: one that moves only when somebody waits on it, or the system's.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use overhaul::forge::github::Time;

/// A shared clock. Handed to the client under test, its sleeps move it and take no time.
#[derive(Debug, Clone)]
pub struct RigClock {
    virtual_now: Option<Arc<Mutex<Timestamp>>>,
}

impl RigClock {
    /// Starts at a fixed time and moves by [`RigClock::advance`] and sleeps alone.
    pub fn virtual_from(start: &str) -> Self {
        let start = start.parse().expect("a timestamp");
        Self { virtual_now: Some(Arc::new(Mutex::new(start))) }
    }

    /// The system's clock.
    pub fn system() -> Self {
        Self { virtual_now: None }
    }

    pub fn read(&self) -> Timestamp {
        match &self.virtual_now {
            Some(now) => *now.lock().expect("no poison"),
            None => Timestamp::now(),
        }
    }

    pub fn advance(&self, duration: Duration) {
        let now = self.virtual_now.as_ref().expect("the system's clock is not ours to move");
        let mut now = now.lock().expect("no poison");
        *now += SignedDuration::try_from(duration).expect("a duration");
    }
}

#[async_trait::async_trait]
impl Time for RigClock {
    fn now(&self) -> Timestamp {
        self.read()
    }

    async fn sleep(&self, duration: Duration) {
        if self.virtual_now.is_some() {
            self.advance(duration);
        } else {
            tokio::time::sleep(duration).await;
        }
    }
}
