//! The one client for everything: limits, spacing, retries, counts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::Method;
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::auth::Auth;
use super::call::{Call, Refusal, Trouble};
use super::limits::{Said, Verdict, judge};
use super::pace::{Time, after, until};
use super::settings::GitHubSettings;
use super::transport::{Answer, Outgoing, Transport};
use crate::forge::ForgeError;

/// Times one call is repeated after trouble (5xx or network).
const TROUBLES: u32 = 3;
/// First wait after trouble; doubles.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// Limits waited for within one call.
const LIMIT_WAITS: u32 = 3;
/// Items in a page, GitHub's most.
const PER_PAGE: usize = 100;
/// Answers kept for conditional requests.
const KEPT_ANSWERS: usize = 64;

/// Requests sent, for budgets and reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    /// Requests that read.
    pub reads: u64,
    /// Requests that write; a repeated one counts again.
    pub writes: u64,
}

/// See the module's text.
pub(super) struct Client {
    transport: Transport,
    auth: Auth,
    root: String,
    graphql: String,
    owner: String,
    repository: String,
    time: Arc<dyn Time>,
    spacing: Duration,
    longest_wait: Duration,
    reads: AtomicU64,
    writes: AtomicU64,
    /// Limits met in a row.
    streak: AtomicU32,
    /// No request before this: going on during a limit prolongs it.
    blocked: Mutex<Option<(Timestamp, String)>>,
    /// End of the last write; held while one goes on.
    last_write: tokio::sync::Mutex<Option<Timestamp>>,
    answers: Mutex<HashMap<String, Answer>>,
    /// Never to be seen in a message.
    secrets: Mutex<Vec<SecretString>>,
}

impl Client {
    pub(super) fn new(settings: &GitHubSettings) -> Result<Self, ForgeError> {
        let auth = Auth::new(settings)?;
        let secrets = match &auth {
            Auth::Fixed(token) => vec![token.clone()],
            Auth::App(_) => Vec::new(),
        };
        Ok(Self {
            transport: Transport::new()?,
            auth,
            root: settings.api_url.as_str().trim_end_matches('/').to_owned(),
            graphql: settings.graphql_url.as_str().to_owned(),
            owner: settings.owner.clone(),
            repository: settings.repository.clone(),
            time: Arc::clone(&settings.time),
            spacing: settings.write_spacing,
            longest_wait: settings.longest_wait,
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            streak: AtomicU32::new(0),
            blocked: Mutex::new(None),
            last_write: tokio::sync::Mutex::new(None),
            answers: Mutex::new(HashMap::new()),
            secrets: Mutex::new(secrets),
        })
    }

    pub(super) fn now(&self) -> Timestamp {
        self.time.now()
    }

    /// The token that requests carry now.
    pub(super) async fn token(&self) -> Result<SecretString, Trouble> {
        Box::pin(self.auth.token(self)).await
    }

    /// Forgets a token that was refused, so that the next use mints one, where that can be.
    pub(super) async fn forget_token(&self) {
        self.auth.forget().await;
    }

    pub(super) async fn sleep(&self, duration: Duration) {
        self.time.sleep(duration).await;
    }

    pub(super) fn calls(&self) -> Calls {
        Calls {
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn repository_name(&self) -> &str {
        &self.repository
    }

    /// `/repos/OWNER/NAME`.
    pub(super) fn repository_path(&self) -> String {
        format!("/repos/{}/{}", self.owner, self.repository)
    }

    pub(super) fn keep_secret(&self, secret: &SecretString) {
        lock(&self.secrets).push(secret.clone());
    }

    /// Sends a call with the repository's token; writes one after the other and spaced.
    pub(super) async fn send(&self, call: &Call) -> Result<Answer, Trouble> {
        if !call.is_write() {
            return self.send_as(call, None).await;
        }
        let mut last = self.last_write.lock().await;
        if let Some(end) = *last {
            let gap = until(self.now(), after(end, self.spacing));
            if !gap.is_zero() {
                self.sleep(gap).await;
            }
        }
        let answer = self.send_as(call, None).await;
        *last = Some(self.now());
        answer
    }

    /// Sends a call, with the given token or the repository's.
    pub(super) async fn send_as(
        &self,
        call: &Call,
        token: Option<&SecretString>,
    ) -> Result<Answer, Trouble> {
        let mut url = if call.graphql {
            self.graphql.clone()
        } else {
            format!("{}{}", self.root, call.target())
        };
        let (mut troubles, mut limits, mut moves, mut minted) = (0, 0, 0, false);
        loop {
            self.wait_for_limit(&mut limits).await?;
            let current = match token {
                Some(token) => token.clone(),
                None => Box::pin(self.auth.token(self)).await?,
            };
            let answer = match self.once(call, &url, &current).await {
                Ok(answer) => answer,
                Err(told) if call.repeatable && troubles < TROUBLES => {
                    tracing::warn!("{} {}: {told}; trying again", call.method, call.path);
                    self.back_off(&mut troubles).await;
                    continue;
                }
                Err(told) => return Err(Trouble::Ambiguous(told)),
            };
            let said = if answer.status < 300 { Said::default() } else { self.said(&answer) };
            let streak = self.streak.load(Ordering::Relaxed);
            match judge(answer.status, &answer.headers, &said, self.now(), streak) {
                Verdict::Done => {
                    self.streak.store(0, Ordering::Relaxed);
                    return Ok(self.remember(&url, answer));
                }
                Verdict::Limited(end) => {
                    self.streak.fetch_add(1, Ordering::Relaxed);
                    *lock(&self.blocked) = Some((end, said.message));
                }
                Verdict::Unauthorized if token.is_none() && self.auth.can_mint() && !minted => {
                    minted = true;
                    self.auth.forget().await;
                }
                Verdict::Moved(to) if moves < 3 && !call.redirected && self.is_ours(&to) => {
                    moves += 1;
                    url = to;
                }
                Verdict::Trouble if call.repeatable && troubles < TROUBLES => {
                    self.back_off(&mut troubles).await;
                }
                Verdict::Trouble => {
                    let told = format!("{} {}: status {}", call.method, call.path, answer.status);
                    return Err(Trouble::Ambiguous(format!("{told} {}", said.message)));
                }
                Verdict::Refused if call.fresh && heals(answer.status) && troubles < TROUBLES => {
                    self.back_off(&mut troubles).await;
                }
                Verdict::Moved(_) if call.redirected => return Ok(answer),
                Verdict::Refused | Verdict::Unauthorized | Verdict::Moved(_) => {
                    let accepted = answer.header("x-accepted-github-permissions");
                    return Err(Trouble::Refused(Box::new(Refusal {
                        status: answer.status,
                        said,
                        action: call.action,
                        subject: call.subject.clone(),
                        needs: call.needs,
                        accepted: accepted.map(str::to_owned),
                    })));
                }
            }
        }
    }

    /// One request over the wire, counted.
    async fn once(&self, call: &Call, url: &str, token: &SecretString) -> Result<Answer, String> {
        let count = if call.is_write() { &self.writes } else { &self.reads };
        let number = count.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::debug!(target: "overhaul::github", "{} {} (no. {number})", call.method, call.target());
        let etag = (call.method == Method::GET)
            .then(|| lock(&self.answers).get(url).and_then(|a| a.header("etag").map(str::to_owned)))
            .flatten();
        let outgoing = Outgoing {
            method: call.method.clone(),
            url,
            token: Some(token),
            etag: etag.as_deref(),
            body: call.body.as_ref(),
        };
        self.transport.send(outgoing).await.map_err(|told| self.scrub(&told))
    }

    /// Waits for a limit that is known, or says when it ends.
    async fn wait_for_limit(&self, waits: &mut u32) -> Result<(), Trouble> {
        let known = lock(&self.blocked).clone();
        let Some((end, message)) = known else { return Ok(()) };
        let wait = until(self.now(), end);
        if wait > self.longest_wait || (*waits >= LIMIT_WAITS && !wait.is_zero()) {
            return Err(Trouble::Limited { until: end, message });
        }
        if !wait.is_zero() {
            *waits += 1;
            tracing::info!("GitHub limits requests for {} s: {message}", wait.as_secs());
            self.sleep(wait).await;
        }
        *lock(&self.blocked) = None;
        Ok(())
    }

    /// Waits longer each time.
    pub(super) async fn back_off(&self, troubles: &mut u32) {
        self.sleep(FIRST_WAIT.saturating_mul(2_u32.saturating_pow((*troubles).min(5)))).await;
        *troubles += 1;
    }

    /// Reads an address that GitHub named, without a token: it is signed.
    pub(super) async fn elsewhere(&self, address: &str, most: usize) -> Result<Vec<u8>, Trouble> {
        let outgoing =
            Outgoing { method: Method::GET, url: address, token: None, etag: None, body: None };
        let answer = self.transport.send(outgoing).await.map_err(|told| {
            Trouble::Ambiguous(self.scrub(&told.replace(address, "the signed address")))
        })?;
        if answer.status != 200 || answer.body.len() > most {
            let told = format!("status {}, {} bytes", answer.status, answer.body.len());
            return Err(Trouble::Ambiguous(told));
        }
        Ok(answer.body.to_vec())
    }

    /// A redirect is followed on our own server only: elsewhere the token has no business.
    fn is_ours(&self, url: &str) -> bool {
        url.strip_prefix(&self.root).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Keeps what may be asked for conditionally, and gives back what a 304 stands for.
    fn remember(&self, url: &str, answer: Answer) -> Answer {
        let mut answers = lock(&self.answers);
        if answer.status == 304 {
            return answers.get(url).cloned().unwrap_or(answer);
        }
        if answer.header("etag").is_some() {
            if answers.len() >= KEPT_ANSWERS {
                answers.clear();
            }
            answers.insert(url.to_owned(), answer.clone());
        }
        answer
    }

    fn said(&self, answer: &Answer) -> Said {
        let mut said = Said::read(&answer.body);
        said.message = self.scrub(&said.message);
        said
    }

    /// A server or proxy may echo what it was sent.
    fn scrub(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in lock(&self.secrets).iter().filter(|s| !s.expose_secret().is_empty()) {
            text = text.replace(secret.expose_secret(), "***");
        }
        text
    }

    /// An answer as one object.
    pub(super) async fn object<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Trouble> {
        parse(call, &self.send(call).await?)
    }

    /// All pages up to `most`, and whether that was all. Stops early when `enough` says so of the
    /// page just read. Items that are not understood are left out, not an error.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        call: &Call,
        most: usize,
        mut enough: impl FnMut(&[T]) -> bool,
    ) -> Result<(Vec<T>, bool), Trouble> {
        let mut all = Vec::new();
        for page in 1..=most {
            let call = call.clone().query("per_page", PER_PAGE.to_string());
            let call = if page > 1 { call.query("page", page.to_string()) } else { call };
            let answer = self.send(&call).await?;
            let more = answer.header("link").is_some_and(|link| link.contains("rel=\"next\""));
            let items: Vec<Value> = parse(&call, &answer)?;
            let items: Vec<T> = items.into_iter().filter_map(understood).collect();
            let stop = enough(&items);
            all.extend(items);
            if stop || !more {
                return Ok((all, true));
            }
        }
        Ok((all, false))
    }
}

/// What GitHub answers for a while about an object that was just made.
fn heals(status: u16) -> bool {
    matches!(status, 404 | 422)
}

pub(super) fn parse<T: DeserializeOwned>(call: &Call, answer: &Answer) -> Result<T, Trouble> {
    serde_json::from_slice(&answer.body).map_err(|error| {
        let line = error.to_string();
        Trouble::Ambiguous(format!("{} {}: answer not understood: {line}", call.method, call.path))
    })
}

fn understood<T: DeserializeOwned>(value: Value) -> Option<T> {
    serde_json::from_value(value)
        .inspect_err(|error| tracing::warn!("an item of a list is not understood: {error}"))
        .ok()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
