//! The loopback gateway: one listener per attempt, with a token of its own, before one backend.
//!
//! It holds the key, so that the worker never sees one. It admits each request against the meters,
//! enforces the attempt's budgets, passes requests and streams through as they are, and keeps what
//! the backend really answered, which command-line workers hide or reword.

mod admission;
mod evidence;
mod forward;
mod hints;
mod models;
mod tap;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use admission::{Admission, Lack, Open, Permit, Refused, Seen};
pub use evidence::{Evidence, Exhausted};
pub use hints::limit_hints;
pub use models::{Listed, ModelList};

use self::evidence::Book;
use self::forward::{Shared, forward};
use super::Attempt;
use super::openai::{EndpointError, http_client};
use super::redact::Redactor;
use crate::model::Pool;

/// The rule of a reading that only says that the attempt's own time was over.
pub(super) const DEADLINE: &str = "deadline";

/// Largest request body that is passed on, in bytes.
const MAX_REQUEST: usize = 64 * 1024 * 1024;

/// The backend behind a gateway.
#[derive(Clone)]
pub struct Upstream {
    /// Base address, up to and with `/v1`.
    pub base_url: Url,
    /// The key that the backend takes.
    pub key: Option<SecretString>,
    /// Further request headers.
    pub headers: BTreeMap<String, SecretString>,
    /// Name of the backend for the classification rules.
    pub backend: String,
    /// Longest silence inside an answer.
    pub idle_timeout: Duration,
    /// Longest wait for the first byte of an answer.
    pub first_byte_timeout: Duration,
    /// Shared by all gateways before this backend, so that connections are used again.
    http: reqwest::Client,
}

impl Upstream {
    /// The defaults for an address: 120 s of silence, 600 s to the first byte.
    ///
    /// # Errors
    /// When the client cannot be set up.
    pub fn new(
        base_url: Url,
        key: Option<SecretString>,
        backend: impl Into<String>,
    ) -> Result<Self, EndpointError> {
        Ok(Self {
            http: http_client(&base_url)?,
            base_url,
            key,
            headers: BTreeMap::new(),
            backend: backend.into(),
            idle_timeout: Duration::from_secs(120),
            first_byte_timeout: Duration::from_secs(600),
        })
    }

    /// What must never be seen: the key and the values of the headers.
    pub fn secrets(&self) -> impl Iterator<Item = &SecretString> {
        self.headers.values().chain(&self.key)
    }

    /// Can it be used as it is set up?
    ///
    /// # Errors
    /// When the address is none, or the key or a header can't be sent.
    pub fn check(&self) -> Result<(), EndpointError> {
        forward::own_headers(self).map(drop)
    }
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { base_url, backend, .. } = self;
        f.debug_struct("Upstream")
            .field("base_url", &base_url.as_str())
            .field("backend", backend)
            .finish_non_exhaustive()
    }
}

/// What one attempt may consume through its gateway.
#[derive(Debug, Clone, Copy)]
pub struct Allowance {
    /// Requests.
    pub requests: u32,
    /// Tokens, input and output together.
    pub tokens: u64,
    /// US dollars; no limit where absent.
    pub usd: Option<f64>,
    /// Wall clock from the start of the gateway.
    pub time: Duration,
}

/// A running gateway. Stops when dropped.
pub struct Gateway {
    address: SocketAddr,
    token: SecretString,
    shared: Arc<Shared>,
    stop: CancellationToken,
    task: Option<JoinHandle<()>>,
}

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The backend's settings are unusable.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// No loopback port, or no randomness for the token.
    #[error("the loopback gateway could not be started: {0}")]
    Start(#[from] std::io::Error),
}

impl Gateway {
    /// Starts the gateway of an attempt before the backend of its pool.
    ///
    /// # Errors
    /// When the backend's settings are unusable or no loopback port can be had.
    pub async fn of(upstream: &Upstream, attempt: &Attempt) -> Result<Self, GatewayError> {
        let allowance = Allowance {
            requests: attempt.request_budget,
            tokens: attempt.token_budget,
            usd: attempt.money_budget,
            time: attempt.deadline,
        };
        Self::start(upstream, &attempt.pool, allowance, Arc::clone(&attempt.admission)).await
    }

    /// Starts a gateway before `upstream` for one attempt on `pool`.
    ///
    /// # Errors
    /// When the backend's settings are unusable or no loopback port can be had.
    pub async fn start(
        upstream: &Upstream,
        pool: &Pool,
        allowance: Allowance,
        admission: Arc<dyn Admission>,
    ) -> Result<Self, GatewayError> {
        let headers = forward::own_headers(upstream)?;
        let token = SecretString::from(random_token()?);
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let stop = CancellationToken::new();
        let shared = Arc::new(Shared {
            upstream: upstream.clone(),
            headers,
            token: token.clone(),
            admission,
            redactor: Arc::new(Redactor::new(upstream.secrets().cloned())),
            book: Arc::new(Book::new(pool, allowance, Instant::now())),
        });
        let app = Router::new()
            .fallback(forward)
            .layer(DefaultBodyLimit::max(MAX_REQUEST))
            .with_state(Arc::clone(&shared));
        let end = stop.clone();
        let task = tokio::spawn(async move {
            // Not graceful: when the attempt is over, an answer still running has no reader.
            tokio::select! {
                () = end.cancelled() => {}
                served = async { axum::serve(listener, app).await } => {
                    if let Err(error) = served {
                        tracing::warn!(%error, "the loopback gateway ended");
                    }
                }
            }
        });
        Ok(Self { address, token, shared, stop, task: Some(task) })
    }

    /// The address for clients that expect `/v1` in their base.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The address for clients that add `/v1` themselves.
    #[must_use]
    pub fn root(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The loopback port that it listens on.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// What the worker shows instead of a key. Worth nothing outside this attempt.
    #[must_use]
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// What was seen so far.
    #[must_use]
    pub fn evidence(&self) -> Evidence {
        self.shared.book.evidence()
    }

    /// Fires when a budget is used up: the worker can be ended, nothing more will be answered.
    #[must_use]
    pub fn exhausted(&self) -> CancellationToken {
        self.shared.book.exhausted()
    }

    /// Stops listening and gives what was seen.
    pub async fn stop(mut self) -> Evidence {
        self.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
        self.evidence()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// 128 bits of the system's randomness, as hex.
fn random_token() -> std::io::Result<String> {
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut token = "ovh-".to_owned();
    for byte in bytes {
        let _ = write!(token, "{byte:02x}");
    }
    Ok(token)
}

/// Compares without telling by its time where the difference is.
fn same(shown: &str, own: &SecretString) -> bool {
    let own = own.expose_secret().as_bytes();
    let shown = shown.as_bytes();
    shown.len() == own.len() && shown.iter().zip(own).fold(0, |acc, (a, b)| acc | (a ^ b)) == 0
}
