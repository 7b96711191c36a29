//! `openai-compatible`: a bounded tool loop in this process, over chat completions.

mod caller;
mod client;
mod dialect;
mod edit;
mod history;
mod jail;
mod session;
mod tools;
mod tree;
mod verify;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use secrecy::SecretString;
use tokio::time::{Instant, sleep_until};
use url::Url;

pub use caller::Retry;
pub(super) use caller::reading;
pub use client::EndpointError;
use client::loopback_client;
pub(crate) use client::{chain, http_client, plain_headers};
pub use dialect::Dialect;
pub use verify::{ProcessVerify, Verified, VerifyRunner};
pub(super) use wire::hidden_error;

use self::caller::{Budget, Caller};
use self::client::Client;
use self::session::{End, Session};
use self::tools::Tools;
use super::gateway::{Admission, Allowance, Evidence, Gateway, Upstream};
use super::redact::Redactor;
use super::{Attempt, WorkReport, Worker, prompt};
use crate::model::{Outcome, Usage};

/// Longest log in a report, in characters.
const MAX_LOG: usize = 60_000;
/// Longest detail in a report, in characters.
const MAX_DETAIL: usize = 2_000;

/// How to reach an endpoint, and how to speak to it.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// Base address, up to and with `/v1`: the endpoint itself, or a gateway before it.
    pub base_url: Url,
    /// Key, sent as bearer token.
    pub key: Option<SecretString>,
    /// Further request headers.
    pub headers: BTreeMap<String, SecretString>,
    /// Name of the backend for the classification rules, e.g. `nim`.
    pub backend: String,
    /// Speak this dialect only; `None` starts with tools and steps down.
    pub dialect: Option<Dialect>,
    /// Ask for streams.
    pub stream: bool,
    /// Longest silence inside a stream.
    pub idle_timeout: Duration,
    /// Longest wait for the first byte of an answer.
    pub first_byte_timeout: Duration,
    /// Retries of transient failures.
    pub retry: Retry,
    /// Whose meters admit each request, through a gateway of the attempt's own; without it, requests
    /// go out directly.
    pub admission: Option<Arc<dyn Admission>>,
    /// Runs the node's checks for the model; without it, the tool is not offered.
    pub verify: Option<Arc<dyn VerifyRunner>>,
}

impl OpenAiSettings {
    /// The defaults for an address: streams, 120 s of silence, 600 s to the first byte.
    #[must_use]
    pub fn new(base_url: Url, key: Option<SecretString>, backend: impl Into<String>) -> Self {
        Self {
            base_url,
            key,
            headers: BTreeMap::new(),
            backend: backend.into(),
            dialect: None,
            stream: true,
            idle_timeout: Duration::from_secs(120),
            first_byte_timeout: Duration::from_secs(600),
            retry: Retry::default(),
            admission: None,
            verify: None,
        }
    }
}

/// The worker.
pub struct OpenAiWorker {
    settings: OpenAiSettings,
    route: Route,
    redactor: Redactor,
}

/// How requests reach the endpoint.
enum Route {
    Direct(Client),
    /// Through a gateway for each attempt, which this client speaks to.
    Gated(Box<Upstream>, Arc<dyn Admission>, reqwest::Client),
}

impl OpenAiWorker {
    /// Prepares the connection; nothing is sent yet.
    ///
    /// # Errors
    /// When the address or the key cannot be used.
    pub fn new(settings: OpenAiSettings) -> Result<Self, EndpointError> {
        let (idle, first) = (settings.idle_timeout, settings.first_byte_timeout);
        let (base, key, headers) = (&settings.base_url, &settings.key, &settings.headers);
        // Checks the settings in either case.
        let direct = Client::new(http_client(base)?, base, key.as_ref(), headers, idle, first)?;
        let route = match &settings.admission {
            None => Route::Direct(direct),
            Some(admission) => {
                let mut upstream = Upstream::new(base.clone(), key.clone(), &settings.backend)?;
                upstream.headers.clone_from(headers);
                upstream.idle_timeout = idle;
                upstream.first_byte_timeout = first;
                let local = loopback_client()?;
                Route::Gated(Box::new(upstream), Arc::clone(admission), local)
            }
        };
        let redactor = Redactor::new(headers.values().chain(key).cloned());
        Ok(Self { settings, route, redactor })
    }

    /// The client of one attempt, and its gateway where the pool has meters.
    async fn reach(&self, attempt: &Attempt) -> Result<(Client, Option<Gateway>), String> {
        let (upstream, admission, local) = match &self.route {
            Route::Direct(client) => return Ok((client.clone(), None)),
            Route::Gated(upstream, admission, local) => (upstream, admission, local),
        };
        let allowance = Allowance {
            requests: attempt.request_budget,
            tokens: attempt.token_budget,
            time: attempt.deadline,
        };
        let start = Gateway::start(upstream, &attempt.pool, allowance, Arc::clone(admission));
        let gateway = start.await.map_err(|e| e.to_string())?;
        let base = gateway.base_url().map_err(|e| e.to_string())?;
        let (idle, first) = (self.settings.idle_timeout, self.settings.first_byte_timeout);
        let (key, none) = (Some(gateway.token()), BTreeMap::new());
        let client = Client::new(local.clone(), &base, key, &none, idle, first);
        Ok((client.map_err(|e| e.to_string())?, Some(gateway)))
    }

    fn report(&self, end: End, usage: Usage, model_seen: Option<String>, log: &str) -> WorkReport {
        let clean = |text: &str, max: usize| prompt::cut(&self.redactor.apply(text), max);
        let log = clean(log, MAX_LOG);
        match end {
            End::Done(mut result) => {
                result.summary = self.redactor.apply(&result.summary);
                WorkReport {
                    outcome: Outcome::Success,
                    detail: clean(&result.summary, MAX_DETAIL),
                    result: Some(result),
                    classification: None,
                    usage,
                    model_seen,
                    log,
                }
            }
            End::Failed(outcome, classification, detail) => WorkReport {
                outcome,
                result: None,
                classification: classification.map(|mut c| {
                    c.evidence = clean(&c.evidence, MAX_DETAIL);
                    c
                }),
                detail: clean(&detail, MAX_DETAIL),
                usage,
                model_seen,
                log,
            },
        }
    }
}

#[async_trait]
impl Worker for OpenAiWorker {
    async fn work(&self, attempt: Attempt) -> WorkReport {
        let tools = match Tools::new(attempt.workdir.clone(), attempt.node.clone()) {
            Ok(tools) => tools,
            Err(e) => {
                let end = End::Failed(Outcome::Error, None, e.to_string());
                return self.report(end, Usage::default(), None, "");
            }
        };
        let deadline = Instant::now() + attempt.deadline;
        let (client, gateway) = match self.reach(&attempt).await {
            Ok(reached) => reached,
            Err(detail) => {
                let end = End::Failed(Outcome::Error, None, detail);
                return self.report(end, Usage::default(), None, "");
            }
        };
        let caller = Caller::new(
            client,
            &self.settings.backend,
            &attempt.pool,
            self.settings.retry,
            self.settings.stream,
            Budget { deadline, requests: attempt.request_budget, tokens: attempt.token_budget },
        );
        let verify = self.settings.verify.clone();
        let mut session = Session::new(&attempt, caller, tools, verify, self.settings.dialect);
        let end = tokio::select! {
            biased;
            () = attempt.cancel.cancelled() => {
                End::Failed(Outcome::Timeout, None, "stopped because the cycle ends".to_owned())
            }
            end = session.run() => end,
            () = sleep_until(deadline) => {
                let seconds = attempt.deadline.as_secs();
                End::Failed(Outcome::Timeout, None, format!("the attempt's {seconds} s are over"))
            }
        };
        let evidence = match gateway {
            Some(gateway) => gateway.stop().await,
            None => Evidence::default(),
        };
        let end = match (end, evidence.ending()) {
            (End::Failed(_, reading, _), Some((outcome, detail))) => {
                End::Failed(outcome, reading.filter(|r| r.outcome == outcome), detail)
            }
            (end, _) => end,
        };
        let (usage, model_seen) = (session.caller.usage, session.caller.model_seen.clone());
        let log = std::mem::take(&mut session.log);
        self.report(end, usage, model_seen, &log)
    }
}
