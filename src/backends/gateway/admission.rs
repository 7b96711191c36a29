//! How each request is admitted against the meters.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;

/// Whoever owns the meters.
#[async_trait]
pub trait Admission: Send + Sync {
    /// Asks for room for one request, with its estimated input and output tokens. May wait a
    /// moment for a slot; must not wait for a reset.
    ///
    /// # Errors
    /// When there is no room now.
    async fn admit(&self, input: u64, output: u64) -> Result<Box<dyn Permit>, Refused>;
}

/// Room that one request holds. Dropped without [`Permit::settle`], it counts as estimated.
pub trait Permit: Send {
    /// Gives back what was not used, and shows what the backend said of its limits.
    fn settle(self: Box<Self>, seen: &Seen);
}

/// What one request came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// HTTP status; `None` when the backend was not reached.
    pub status: Option<u16>,
    /// Response headers, lower-case names.
    pub headers: BTreeMap<String, String>,
    /// Reported input and output tokens.
    pub usage: Option<(u64, u64)>,
}

/// No room now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// When it may be worth asking again.
    pub retry_after: Option<Duration>,
    /// Why, for the evidence.
    pub reason: String,
}

/// Admits everything: for pools without meters, and for tests.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

#[async_trait]
impl Admission for Open {
    async fn admit(&self, _input: u64, _output: u64) -> Result<Box<dyn Permit>, Refused> {
        Ok(Box::new(Open))
    }
}

impl Permit for Open {
    fn settle(self: Box<Self>, _seen: &Seen) {}
}
