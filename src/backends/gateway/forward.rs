//! One request through the gateway.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use futures_util::Stream;
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::admission::{Admission, Lack, Permit, Refused, Seen};
use super::evidence::{Book, Exhausted};
use super::tap::Tap;
use super::{DEADLINE, Upstream, same};
use crate::backends::classify::classify_http;
use crate::backends::openai::{EndpointError, chain, plain_headers, reading, secret_header};
use crate::backends::redact::Redactor;
use crate::model::{Classification, Outcome};

/// Longest error body that is kept and passed on, in bytes.
const MAX_ERROR: usize = 256 * 1024;
/// What an answer is expected to need where the request sets no limit, in tokens.
const USUAL_OUTPUT: u64 = 1_024;

/// What every request of one attempt shares.
pub(super) struct Shared {
    pub(super) upstream: Upstream,
    pub(super) headers: HeaderMap,
    pub(super) token: SecretString,
    pub(super) admission: Arc<dyn Admission>,
    pub(super) book: Arc<Book>,
    pub(super) redactor: Arc<Redactor>,
}

/// The headers that the gateway adds: the configured ones, and the key in both customary forms.
pub(super) fn own_headers(upstream: &Upstream) -> Result<HeaderMap, EndpointError> {
    let base = &upstream.base_url;
    if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() {
        return Err(EndpointError::Address(upstream.base_url.to_string()));
    }
    let mut headers = HeaderMap::new();
    for (name, value) in &upstream.headers {
        let name = HeaderName::try_from(name).map_err(|_| EndpointError::Header(name.clone()))?;
        headers.insert(name, secret_header(value.expose_secret())?);
    }
    if let Some(key) = upstream.key.as_ref().map(|k| k.expose_secret()).filter(|k| !k.is_empty()) {
        // Anthropic's own endpoint takes a bearer for the token of a login; others take either form.
        let anthropic = upstream.base_url.host_str().is_some_and(|h| h.ends_with(".anthropic.com"));
        if !anthropic {
            headers.insert(AUTHORIZATION, secret_header(&format!("Bearer {key}"))?);
        }
        headers.insert(HeaderName::from_static("x-api-key"), secret_header(key)?);
    }
    Ok(headers)
}

pub(super) async fn forward(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !authorised(&headers, &shared.token) {
        return problem(StatusCode::UNAUTHORIZED, "this gateway belongs to another attempt", None);
    }
    let Some(route) = route(&method, uri.path()) else {
        return problem(StatusCode::NOT_FOUND, "the gateway does not pass this path on", None);
    };
    if route == Route::Free {
        return free(&shared, &method, &uri, &headers, body).await;
    }
    if let Err(over) = shared.book.spend_request() {
        return exhausted(over);
    }
    let Asked { input, output, model } = Asked::read(&body);
    let permit = match timeout(shared.book.remaining(), shared.admission.admit(input, output)).await
    {
        Ok(Ok(permit)) => permit,
        Ok(Err(refused)) => {
            shared.book.refused(refused.clone());
            return no_room(&refused);
        }
        Err(_) => return exhausted(shared.book.out_of_time()),
    };
    let mut exchange = Exchange::new(&shared, permit, input + output, model);
    let request = outgoing(&shared, &method, &uri, &headers, body);
    let wait = shared.upstream.first_byte_timeout.min(shared.book.remaining());
    let response = match timeout(wait, request.send()).await {
        Err(_) => {
            let what = format!("no answer for {} s", wait.as_secs());
            exchange.failed(transient("idle-timeout", what.clone()));
            return problem(StatusCode::GATEWAY_TIMEOUT, &what, None);
        }
        Ok(Err(e)) => {
            let text = chain(&e);
            exchange.failed(classify_http(
                &shared.upstream.backend,
                None,
                &BTreeMap::new(),
                &text,
                Timestamp::now(),
            ));
            return problem(StatusCode::BAD_GATEWAY, "the backend cannot be reached", None);
        }
        Ok(Ok(response)) => response,
    };
    if let Some(permit) = &exchange.permit {
        permit.answered();
    }
    exchange.seen.status = Some(response.status().as_u16());
    exchange.seen.headers = plain_headers(response.headers());
    if response.status().is_success() && is_page(&exchange.seen.headers) {
        return page(exchange);
    }
    if response.status().is_success() {
        pass(response, exchange, shared.upstream.idle_timeout)
    } else {
        refuse(response, exchange, &shared.upstream).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Costs quota.
    Metered,
    /// Lists and counts.
    Free,
}

/// What the gateway passes on; everything else of the backend stays out of a worker's reach.
fn route(method: &Method, path: &str) -> Option<Route> {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    match (method, path) {
        (&Method::POST, "/chat/completions" | "/responses" | "/messages") => Some(Route::Metered),
        (&Method::POST, "/messages/count_tokens") => Some(Route::Free),
        (&Method::GET, path) if path == "/models" || path.starts_with("/models/") => {
            Some(Route::Free)
        }
        _ => None,
    }
}

fn authorised(headers: &HeaderMap, token: &SecretString) -> bool {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("");
    let bearer = text("authorization").strip_prefix("Bearer ").unwrap_or("");
    same(bearer, token) || same(text("x-api-key"), token)
}

/// The worker's request with our key, otherwise as it came.
fn outgoing(
    shared: &Shared,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> reqwest::RequestBuilder {
    let mut url = shared.upstream.base_url.clone();
    let rest = uri.path().strip_prefix("/v1").unwrap_or(uri.path());
    let path = format!("{}{rest}", url.path().trim_end_matches('/'));
    url.set_path(&path);
    url.set_query(uri.query());
    let mut out = headers.clone();
    // Our own answer is read as it passes by, so it must come unpacked.
    for name in [HOST, CONTENT_LENGTH, AUTHORIZATION, ACCEPT_ENCODING] {
        out.remove(name);
    }
    out.remove("x-api-key");
    drop_hop_by_hop(&mut out);
    out.extend(shared.headers.clone());
    shared.upstream.http.request(method.clone(), url).headers(out).body(body)
}

/// RFC 9110 §7.6.1: of one connection only.
fn drop_hop_by_hop(headers: &mut HeaderMap) {
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
}

/// A list or a count: passed on, not metered.
async fn free(
    shared: &Shared,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    body: Bytes,
) -> Response {
    let request = outgoing(shared, method, uri, headers, body);
    let wait = Duration::from_secs(30).min(shared.book.remaining());
    match timeout(wait, request.send()).await {
        Ok(Ok(response)) => {
            let head = head_of(&response);
            built(head, Body::from_stream(response.bytes_stream()))
        }
        _ => problem(StatusCode::BAD_GATEWAY, "the backend cannot be reached", None),
    }
}

/// What a request asks for.
struct Asked {
    /// Input tokens, at four bytes each.
    input: u64,
    /// The output limit that it sets.
    output: u64,
    model: String,
}

impl Asked {
    fn read(body: &Bytes) -> Self {
        let parsed: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
        let limits = ["max_tokens", "max_completion_tokens", "max_output_tokens"];
        let output = limits.iter().find_map(|name| parsed.get(*name)).and_then(Value::as_u64);
        Self {
            input: body.len() as u64 / 4 + 1,
            output: output.unwrap_or(USUAL_OUTPUT),
            model: parsed.get("model").and_then(Value::as_str).unwrap_or("").to_owned(),
        }
    }
}

/// An error of the backend: kept as evidence, passed on as it is.
async fn refuse(
    response: reqwest::Response,
    mut exchange: Exchange,
    upstream: &Upstream,
) -> Response {
    let head = head_of(&response);
    let body = match timeout(upstream.idle_timeout, response.bytes()).await {
        Ok(Ok(bytes)) => bytes.slice(..bytes.len().min(MAX_ERROR)),
        _ => Bytes::new(),
    };
    let text = String::from_utf8_lossy(&body);
    let reading = exchange.classify(exchange.seen.status, &text);
    exchange.failed(reading);
    built(head, Body::from(body))
}

/// A page for people, where a model's answer was asked for.
fn is_page(headers: &BTreeMap<String, String>) -> bool {
    let kind = headers.get(CONTENT_TYPE.as_str()).map_or("", String::as_str).trim_start();
    kind.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("text/html"))
}

/// A sign-in, or another server than the one that was meant: asking again gives it again.
fn page(mut exchange: Exchange) -> Response {
    let what = "the endpoint answers text/html, a page for people; is `base-url` right?";
    exchange.failed(reading(Outcome::ModelUnavailable, "page", what.to_owned()));
    problem(StatusCode::NOT_FOUND, what, None)
}

/// An answer: passed on piece by piece, and listened to.
fn pass(response: reqwest::Response, mut exchange: Exchange, idle: Duration) -> Response {
    let head = head_of(&response);
    let kind = head.1.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or("");
    exchange.tap = Tap::new(kind.starts_with("text/event-stream"));
    let deadline = Instant::now() + exchange.book.remaining();
    let stream = Listening {
        inner: Box::pin(response.bytes_stream()),
        exchange,
        idle,
        silence: Box::pin(sleep(idle)),
        end: Box::pin(tokio::time::sleep_until(deadline)),
        over: false,
    };
    built(head, Body::from_stream(stream))
}

fn head_of(response: &reqwest::Response) -> (StatusCode, HeaderMap) {
    let mut headers = response.headers().clone();
    drop_hop_by_hop(&mut headers);
    headers.remove(CONTENT_LENGTH);
    (response.status(), headers)
}

fn built((status, headers): (StatusCode, HeaderMap), body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// An answer of the gateway itself, in a form that every client reads.
fn problem(status: StatusCode, message: &str, retry_after: Option<Duration>) -> Response {
    let kind =
        if status == StatusCode::TOO_MANY_REQUESTS { "rate_limit_error" } else { "gateway_error" };
    let body = json!({"type": "error", "error": {"type": kind, "message": message, "code": null}});
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(wait) = retry_after {
        headers.insert("retry-after", HeaderValue::from(wait.as_secs().max(1)));
    }
    response
}

/// 403, because clients retry a 429 and a 5xx.
fn exhausted(over: Exhausted) -> Response {
    let mut response = problem(StatusCode::FORBIDDEN, over.text(), None);
    response.headers_mut().insert("x-should-retry", HeaderValue::from_static("false"));
    response
}

fn no_room(refused: &Refused) -> Response {
    match refused.lack {
        Lack::Room => problem(StatusCode::TOO_MANY_REQUESTS, &refused.reason, refused.retry_after),
        Lack::Fit => problem(StatusCode::PAYLOAD_TOO_LARGE, &refused.reason, None),
        Lack::Budget => exhausted(Exhausted::Refused(Lack::Budget)),
    }
}

fn transient(rule: &str, evidence: String) -> Classification {
    reading(Outcome::Transient, rule, evidence)
}

/// One request and its answer, booked when it is over, however it ends.
struct Exchange {
    book: Arc<Book>,
    redactor: Arc<Redactor>,
    backend: String,
    permit: Option<Box<dyn Permit>>,
    estimate: u64,
    /// The model that was asked for.
    asked: String,
    seen: Seen,
    tap: Tap,
    failure: Option<Classification>,
    finished: bool,
}

impl Exchange {
    fn new(shared: &Shared, permit: Box<dyn Permit>, estimate: u64, asked: String) -> Self {
        Self {
            book: Arc::clone(&shared.book),
            redactor: Arc::clone(&shared.redactor),
            backend: shared.upstream.backend.clone(),
            permit: Some(permit),
            estimate,
            asked,
            seen: Seen::default(),
            tap: Tap::new(false),
            failure: None,
            finished: false,
        }
    }

    fn classify(&self, status: Option<u16>, body: &str) -> Classification {
        classify_http(&self.backend, status, &self.seen.headers, body, Timestamp::now())
    }

    fn failed(&mut self, reading: Classification) {
        self.failure = Some(reading);
    }

    /// The answer ended by itself.
    fn ended(&mut self) {
        if self.finished {
            return;
        }
        self.finished = true;
        self.tap.end();
        if let Some((status, body)) = self.tap.error.take() {
            // One event of a stream stands for itself.
            let mut headers = self.seen.headers.clone();
            headers.insert(CONTENT_TYPE.to_string(), "application/json".to_owned());
            let status = status.or(self.seen.status);
            let reading = classify_http(&self.backend, status, &headers, &body, Timestamp::now());
            self.failure = Some(reading);
        } else if !self.tap.complete && self.failure.is_none() {
            let bytes = self.tap.bytes;
            self.failure = Some(if bytes == 0 {
                transient("empty-body", "a 200 with an empty body".to_owned())
            } else {
                let what = format!("the answer ended after {bytes} bytes without being complete");
                transient("stream-cut", what)
            });
        }
        self.close();
    }
}

impl Exchange {
    /// Books it, once. Before its last piece is passed on: the attempt may be over then.
    fn close(&mut self) {
        let Some(permit) = self.permit.take() else { return };
        if let Some(reading) = &mut self.failure {
            // Backends repeat keys.
            reading.evidence = self.redactor.apply(&reading.evidence);
        }
        self.seen.usage = self.tap.usage;
        self.seen.cost_usd = self.tap.cost_usd.or_else(|| charged(&self.seen.headers));
        self.seen.failure.clone_from(&self.failure);
        self.book.count(&self.seen, &self.asked, self.tap.model.take(), self.estimate);
        match self.failure.take() {
            Some(reading) => self.book.failed(reading),
            // A client that goes away half way proves nothing about the backend.
            None if self.finished => self.book.succeeded(),
            None => {}
        }
        permit.settle(&self.seen);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.close();
    }
}

/// What a LiteLLM proxy says that the answer cost.
fn charged(headers: &BTreeMap<String, String>) -> Option<f64> {
    let cost: f64 = headers.get("x-litellm-response-cost")?.trim().parse().ok()?;
    (cost.is_finite() && cost >= 0.0).then_some(cost)
}

type Pieces = Pin<Box<dyn Stream<Item = reqwest::Result<Bytes>> + Send>>;

/// The passing answer. Ends early by an error when the backend falls silent or time is over.
struct Listening {
    inner: Pieces,
    exchange: Exchange,
    idle: Duration,
    silence: Pin<Box<Sleep>>,
    end: Pin<Box<Sleep>>,
    over: bool,
}

impl Listening {
    fn broken(&mut self, rule: &str, what: String) -> Poll<Option<std::io::Result<Bytes>>> {
        self.over = true;
        self.exchange.failed(transient(rule, what.clone()));
        self.exchange.close();
        Poll::Ready(Some(Err(std::io::Error::other(what))))
    }
}

impl Stream for Listening {
    type Item = std::io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        if this.over {
            return Poll::Ready(None);
        }
        match this.inner.as_mut().poll_next(cx) {
            Poll::Ready(Some(Ok(piece))) => {
                this.exchange.tap.hear(&piece);
                if this.exchange.tap.over {
                    this.exchange.ended();
                }
                let next = Instant::now() + this.idle;
                this.silence.as_mut().reset(next);
                Poll::Ready(Some(Ok(piece)))
            }
            Poll::Ready(Some(Err(e))) => this.broken("stream-cut", chain(&e)),
            Poll::Ready(None) => {
                this.over = true;
                this.exchange.ended();
                Poll::Ready(None)
            }
            Poll::Pending => {
                if this.end.as_mut().poll(cx).is_ready() {
                    return this.broken(DEADLINE, "the attempt's time is over".to_owned());
                }
                if this.silence.as_mut().poll(cx).is_ready() {
                    let what = format!("the answer went silent for {} s", this.idle.as_secs());
                    return this.broken("idle-timeout", what);
                }
                Poll::Pending
            }
        }
    }
}
