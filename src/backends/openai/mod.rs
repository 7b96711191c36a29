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

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep_until};

pub use caller::Retry;
pub(super) use caller::reading;
pub use client::EndpointError;
use client::loopback_client;
pub(crate) use client::{chain, http_client, plain_headers, secret_header};
pub use dialect::Dialect;
pub use verify::{ProcessVerify, Verified, VerifyRunner};
pub(super) use wire::hidden_error;

use self::caller::{Budget, Caller};
use self::client::Client;
use self::session::{End, Session};
use self::tools::Tools;
use super::gateway::{Gateway, Upstream};
use super::redact::Redactor;
use super::{Attempt, ModelSwitch, WorkReport, Worker};
use crate::model::{Outcome, Usage};

/// How to reach an endpoint, and how to speak to it.
#[derive(Clone)]
pub struct OpenAiSettings {
    /// The endpoint and its key.
    pub upstream: Upstream,
    /// Speak this dialect only; `None` starts with tools and steps down.
    pub dialect: Option<Dialect>,
    /// Ask for streams.
    pub stream: bool,
    /// Retries of transient failures.
    pub retry: Retry,
    /// Runs the node's checks for the model; without it, the tool is not offered.
    pub verify: Option<Arc<dyn VerifyRunner>>,
}

impl OpenAiSettings {
    /// The defaults for an endpoint: tools where it has them, streams.
    #[must_use]
    pub fn new(upstream: Upstream) -> Self {
        Self { upstream, dialect: None, stream: true, retry: Retry::default(), verify: None }
    }
}

/// The worker.
pub struct OpenAiWorker {
    settings: OpenAiSettings,
    /// Speaks to the gateway of each attempt.
    local: reqwest::Client,
    redactor: Redactor,
}

impl OpenAiWorker {
    /// Prepares the connection; nothing is sent yet.
    ///
    /// # Errors
    /// When the address or the key cannot be used.
    pub fn new(settings: OpenAiSettings) -> Result<Self, EndpointError> {
        let upstream = &settings.upstream;
        upstream.check()?;
        let redactor = Redactor::new(upstream.secrets().cloned());
        Ok(Self { local: loopback_client()?, redactor, settings })
    }

    /// The gateway of one attempt, and the client that speaks to it.
    async fn reach(&self, attempt: &Attempt) -> Result<(Client, Gateway), String> {
        let upstream = &self.settings.upstream;
        let gateway = Gateway::of(upstream, attempt).await.map_err(|e| e.to_string())?;
        // The gateway judges the silence and says so; waiting a little longer than it hears that.
        let longer = |wait: Duration| wait + Duration::from_secs(5);
        // A request may wait for the windows before it is sent.
        let first = longer(upstream.first_byte_timeout).max(attempt.deadline);
        let idle = longer(upstream.idle_timeout);
        let client =
            Client::new(self.local.clone(), &gateway.base_url(), gateway.token(), idle, first);
        Ok((client.map_err(|e| e.to_string())?, gateway))
    }

    fn report(
        &self,
        model: &str,
        end: End,
        usage: Usage,
        model_seen: Option<String>,
        log: &str,
    ) -> WorkReport {
        let mut report = match end {
            End::Done(result) => WorkReport::success(result),
            End::Failed(outcome, classification, detail) => {
                WorkReport { classification, ..WorkReport::ended(outcome, detail) }
            }
        };
        report.usage = usage;
        report.model_switch =
            model_seen.as_deref().and_then(|seen| ModelSwitch::between(model, model, seen));
        report.model_seen = model_seen;
        log.clone_into(&mut report.log);
        self.redactor.report(report)
    }
}

#[async_trait]
impl Worker for OpenAiWorker {
    async fn work(&self, attempt: Attempt) -> WorkReport {
        let tools = match Tools::new(attempt.workdir.clone(), attempt.node.clone()) {
            Ok(tools) => tools,
            Err(e) => {
                let end = End::Failed(Outcome::Error, None, e.to_string());
                return self.report(&attempt.pool.model, end, Usage::default(), None, "");
            }
        };
        let deadline = Instant::now() + attempt.deadline;
        let (client, gateway) = match self.reach(&attempt).await {
            Ok(reached) => reached,
            Err(detail) => {
                let end = End::Failed(Outcome::Error, None, detail);
                return self.report(&attempt.pool.model, end, Usage::default(), None, "");
            }
        };
        let caller = Caller::new(
            client,
            &self.settings.upstream.backend,
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
        let evidence = gateway.stop().await;
        let end = match end {
            End::Failed(outcome, reading, detail) => {
                let (outcome, reading, detail) = evidence.judge(outcome, reading, detail);
                End::Failed(outcome, reading, detail)
            }
            done @ End::Done(_) => done,
        };
        let (usage, model_seen) = (evidence.usage, session.caller.model_seen.clone());
        let log = std::mem::take(&mut session.log);
        self.report(&attempt.pool.model, end, usage, model_seen, &log)
    }
}
