//! One request to an OpenAI-compatible endpoint, streaming or not.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use eventsource_stream::Eventsource as _;
use futures_util::StreamExt as _;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use super::wire::{Completion, hidden_error};

/// Largest answer that is read, in bytes.
const MAX_ANSWER: usize = 16 * 1024 * 1024;
/// Longest event of a stream, in bytes. What is no whole event yet is read again with each piece.
const MAX_EVENT: usize = 2 * 1024 * 1024;
/// Longest error body that is kept, in bytes.
const MAX_ERROR: usize = 64 * 1024;

/// How a request failed.
#[derive(Debug)]
pub(super) enum CallError {
    /// The backend said so, or (without a status) could not be reached.
    Http { status: Option<u16>, headers: BTreeMap<String, String>, body: String },
    /// A 200 that is no answer: the rule's name and what was seen.
    Broken(&'static str, String),
}

/// A connection to one endpoint with one key.
#[derive(Debug, Clone)]
pub(super) struct Client {
    http: reqwest::Client,
    url: Url,
    headers: HeaderMap,
    /// Longest silence inside a stream.
    idle: Duration,
    /// Longest wait for the first byte.
    first: Duration,
}

/// Why an endpoint's settings are unusable.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// Not an `http` or `https` address.
    #[error("'{0}' is no http or https address")]
    Address(String),
    /// The key holds characters that no header can carry.
    #[error("the key holds characters that no HTTP header can carry (a line break at its end?)")]
    Key,
    /// Not the name of a header.
    #[error("'{0}' is not the name of an HTTP header")]
    Header(String),
    /// TLS or the client could not be set up.
    #[error("the HTTP client could not be set up: {0}")]
    Setup(String),
}

/// Installs the one TLS provider of the process, once.
pub(crate) fn install_tls() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // An error means that another part of the process has installed one already: fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}

/// An HTTP client that never follows redirects (a key must not travel) and never sends loopback
/// traffic through a proxy.
pub(crate) fn http_client(url: &Url) -> Result<reqwest::Client, EndpointError> {
    let loopback = match url.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if loopback { loopback_client() } else { build(reqwest::Client::builder()) }
}

/// The same for loopback addresses only.
pub(super) fn loopback_client() -> Result<reqwest::Client, EndpointError> {
    build(reqwest::Client::builder().no_proxy())
}

fn build(builder: reqwest::ClientBuilder) -> Result<reqwest::Client, EndpointError> {
    install_tls();
    builder
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(20))
        .user_agent(concat!("overhaul/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| EndpointError::Setup(chain(&e)))
}

impl Client {
    pub(super) fn new(
        http: reqwest::Client,
        base: &str,
        key: &SecretString,
        idle: Duration,
        first: Duration,
    ) -> Result<Self, EndpointError> {
        let url = Url::parse(&format!("{base}/chat/completions"))
            .map_err(|_| EndpointError::Address(base.to_owned()))?;
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {}", key.expose_secret()))?);
        Ok(Self { http, url, headers, idle, first })
    }

    /// Sends one request. The caller bounds it by the attempt's deadline.
    pub(super) async fn complete(&self, body: &Value) -> Result<Completion, CallError> {
        let request = self.http.post(self.url.clone()).headers(self.headers.clone()).json(body);
        let response = match timeout(self.first, request.send()).await {
            Err(_) => return Err(silent("no answer", self.first)),
            Ok(Err(e)) => return Err(unreachable(&e)),
            Ok(Ok(response)) => response,
        };
        let status = response.status();
        let headers = plain_headers(response.headers());
        if !status.is_success() {
            let body = self.read_all(response, MAX_ERROR).await.unwrap_or_default();
            return Err(CallError::Http { status: Some(status.as_u16()), headers, body });
        }
        let kind = response.headers().get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
        if kind.starts_with("text/event-stream") {
            return self.read_stream(response, &headers).await;
        }
        let text = self.read_all(response, MAX_ANSWER).await?;
        if text.trim().is_empty() {
            return Err(CallError::Broken("empty-body", "a 200 with an empty body".to_owned()));
        }
        let Ok(json) = serde_json::from_str::<Value>(&text) else {
            let start: String = text.chars().take(200).collect();
            return Err(CallError::Broken("not-json", format!("a 200 that is no JSON: {start}")));
        };
        refuse_hidden(&json, status.as_u16(), &headers)?;
        let mut all = Completion::default();
        all.absorb(&json);
        Ok(all)
    }

    async fn read_stream(
        &self,
        response: reqwest::Response,
        headers: &BTreeMap<String, String>,
    ) -> Result<Completion, CallError> {
        let status = response.status().as_u16();
        // Counted before it is cut into events: a line without an end would be kept until it ends.
        let since = AtomicUsize::new(0);
        let pieces = response.bytes_stream().take_while(|piece| {
            let more = piece.as_ref().map_or(0, |bytes| bytes.len());
            ready(since.fetch_add(more, Ordering::Relaxed) + more <= MAX_EVENT)
        });
        let mut events = Box::pin(pieces.eventsource());
        let mut all = Completion::default();
        let (mut size, mut count, mut done) = (0_usize, 0_usize, false);
        let mut wait = self.first;
        loop {
            let event = match timeout(wait, events.next()).await {
                Err(_) => return Err(silent("the stream went silent", wait)),
                Ok(None) => break,
                Ok(Some(Err(e))) => return Err(CallError::Broken("stream-cut", chain(&e))),
                Ok(Some(Ok(event))) => event,
            };
            wait = self.idle;
            since.store(0, Ordering::Relaxed);
            count += 1;
            size += event.data.len();
            if size > MAX_ANSWER {
                return Err(too_long("answer", MAX_ANSWER));
            }
            if event.data.trim() == "[DONE]" {
                done = true;
                break;
            }
            let Ok(json) = serde_json::from_str::<Value>(&event.data) else {
                let start: String = event.data.chars().take(200).collect();
                return Err(CallError::Broken(
                    "not-json",
                    format!("a chunk that is no JSON: {start}"),
                ));
            };
            refuse_hidden(&json, status, headers)?;
            all.absorb(&json);
        }
        if since.load(Ordering::Relaxed) > MAX_EVENT {
            return Err(too_long("event", MAX_EVENT));
        }
        if count == 0 {
            return Err(CallError::Broken("empty-body", "a stream without any event".to_owned()));
        }
        if !done && all.finish.is_none() {
            let seen = format!("the stream ended after {count} events without a finish");
            return Err(CallError::Broken("stream-cut", seen));
        }
        Ok(all)
    }

    async fn read_all(&self, response: reqwest::Response, max: usize) -> Result<String, CallError> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut stream = response.bytes_stream();
        loop {
            match timeout(self.first, stream.next()).await {
                Err(_) => return Err(silent("the answer stopped half way", self.first)),
                Ok(None) => break,
                Ok(Some(Err(e))) => return Err(CallError::Broken("body-cut", chain(&e))),
                Ok(Some(Ok(piece))) => {
                    let room = max.saturating_sub(bytes.len());
                    bytes.extend_from_slice(&piece[..piece.len().min(room)]);
                    if room <= piece.len() {
                        break;
                    }
                }
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

pub(crate) fn secret_header(value: &str) -> Result<HeaderValue, EndpointError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| EndpointError::Key)?;
    value.set_sensitive(true);
    Ok(value)
}

fn refuse_hidden(
    json: &Value,
    status: u16,
    headers: &BTreeMap<String, String>,
) -> Result<(), CallError> {
    match hidden_error(json) {
        Some(error) => {
            // The body is one event of a stream now, no longer the stream.
            let mut headers = headers.clone();
            headers.insert(CONTENT_TYPE.to_string(), "application/json".to_owned());
            let status = Some(error.status.unwrap_or(status));
            Err(CallError::Http { status, headers, body: error.body })
        }
        None => Ok(()),
    }
}

fn silent(what: &str, after: Duration) -> CallError {
    CallError::Broken("idle-timeout", format!("{what} for {} s", after.as_secs()))
}

fn too_long(what: &str, most: usize) -> CallError {
    CallError::Broken("too-long", format!("an {what} over {most} bytes"))
}

fn unreachable(error: &reqwest::Error) -> CallError {
    CallError::Http { status: None, headers: BTreeMap::new(), body: chain(error) }
}

/// An error with its causes; reqwest and hyper keep the reason in the innermost one.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

/// Header names in lower case with their text values; several of one name are joined.
pub(crate) fn plain_headers(headers: &HeaderMap) -> BTreeMap<String, String> {
    let mut out: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in headers {
        let Ok(value) = value.to_str() else { continue };
        out.entry(name.as_str().to_owned())
            .and_modify(|all| {
                all.push_str(", ");
                all.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use secrecy::SecretString;
    use serde_json::json;

    use super::{CallError, Client, MAX_EVENT, http_client};
    use crate::backends::scripted::{Reply, Scripted};

    #[tokio::test]
    async fn a_line_without_an_end_is_not_kept() {
        let endless = Reply::Raw {
            status: 200,
            headers: Vec::new(),
            content_type: "text/event-stream".to_owned(),
            body: "x".repeat(MAX_EVENT + 100_000),
        };
        let server = Scripted::start(move |_, _| endless.clone()).await.unwrap();
        let base = server.base_url().unwrap();
        let (http, key) = (http_client(&base).unwrap(), SecretString::from("k"));
        let wait = Duration::from_secs(60);
        let client = Client::new(http, base.as_str(), &key, wait, wait).unwrap();
        let ended = client.complete(&json!({})).await;
        assert!(matches!(ended, Err(CallError::Broken("too-long", _))), "{ended:?}");
    }
}
