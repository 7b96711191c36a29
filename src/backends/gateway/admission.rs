//! How each request is admitted against the meters.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

use crate::model::Classification;

/// The meters and budgets, as the requests of one attempt meet them.
#[async_trait]
pub trait Admission: Debug + Send + Sync {
    /// Asks for room for one request, with its estimated input and output tokens. Waits its turn
    /// for a window that slides on; does not wait for a reset that is far away. It may be let through
    /// with less output than it asks for: [`Permit::output`].
    ///
    /// # Errors
    /// When there is no room in time.
    async fn admit(&self, input: u64, output: u64) -> Result<Box<dyn Permit>, Refused>;
}

/// Room that one request holds. Dropped without [`Permit::settle`], it counts as estimated.
pub trait Permit: Send {
    /// The output that the request may have, where that is known; it may have asked for more.
    fn output(&self) -> Option<u64> {
        None
    }

    /// The backend begins to answer: it has counted the request.
    fn answered(&self) {}

    /// Gives back what was not used, and shows what the backend said of its limits.
    fn settle(self: Box<Self>, seen: &Seen);
}

/// What one request came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// HTTP status; `None` when the backend was not reached.
    pub status: Option<u16>,
    /// Response headers, lower-case names.
    pub headers: BTreeMap<String, String>,
    /// Reported input and output tokens.
    pub usage: Option<(u64, u64)>,
    /// What the backend says that it charged, US dollars.
    pub cost_usd: Option<f64>,
    /// The reading of a failure.
    pub failure: Option<Classification>,
}

/// Why a request was not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// The windows have no room before long.
    Room,
    /// The request alone exceeds a window: waiting cannot help.
    Fit,
    /// A budget beyond the attempt's own is used up.
    Budget,
}

/// No room. It ends the attempt, which is nobody's failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// What is missing.
    pub lack: Lack,
    /// When it may be worth asking again.
    pub retry_after: Option<Duration>,
    /// Why, for the evidence.
    pub reason: String,
}

/// Admits everything: for tests, and where nothing is metered.
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
