//! One request out, one bounded answer back. No policy: no retry, no redirect, no credentials of
//! its own.
//!
//! octocrab builds and runs the requests; below it is our HTTP client, because octocrab's own
//! knows no proxies. Its typed models are not used (a new word in an
//! enum makes a whole pull request unreadable), its retries neither (they repeat writes).

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{ACCEPT, AUTHORIZATION, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response};
use octocrab::{AuthState, OctoBody, Octocrab, OctocrabBuilder};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use crate::forge::ForgeError;

/// Largest answer that is read. 100 pull requests with the longest bodies are about 20 MB.
const LARGEST_ANSWER: usize = 32 * 1024 * 1024;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// From the first byte sent to the last one read.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// An answer, read whole.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// One request.
#[derive(Debug)]
pub(super) struct Outgoing<'a> {
    pub method: Method,
    pub url: &'a str,
    pub token: Option<&'a SecretString>,
    pub etag: Option<&'a str>,
    pub body: Option<&'a Value>,
}

/// The connection to one server.
#[derive(Clone)]
pub(super) struct Transport {
    crab: Octocrab,
}

impl Transport {
    /// # Errors
    /// When the client cannot be built.
    pub(super) fn new() -> Result<Self, ForgeError> {
        let client = http_client()?;
        let service = tower::service_fn(move |request: Request<OctoBody>| {
            let client = client.clone();
            async move { exchange(&client, request).await }
        });
        let built: Result<Octocrab, Infallible> =
            OctocrabBuilder::new_empty().with_service(service).with_auth(AuthState::None).build();
        match built {
            Ok(crab) => Ok(Self { crab }),
        }
    }

    /// Sends it. The error is what went wrong on the way: it is unknown whether the request took
    /// effect.
    pub(super) async fn send(&self, outgoing: Outgoing<'_>) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(outgoing.method)
            .uri(outgoing.url)
            .header(ACCEPT, "application/vnd.github+json");
        if let Some(token) = outgoing.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose_secret()))
                .map_err(|_| "the token has characters that no token has".to_owned())?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        if let Some(etag) = outgoing.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let request =
            self.crab.build_request(request, outgoing.body).map_err(|error| causes(&error))?;
        let response = self.crab.execute(request).await.map_err(|error| causes(&error))?;
        let (parts, body) = response.into_parts();
        let body = to_bytes(Body::new(body), LARGEST_ANSWER).await.map_err(|e| causes(&e))?;
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body })
    }
}

fn http_client() -> Result<reqwest::Client, ForgeError> {
    // A provider that is installed already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder()
        .user_agent(concat!("overhaul/", env!("CARGO_PKG_VERSION")))
        // Followed by the client, which keeps method and body and never leaves the server.
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .build()
        .map_err(|error| ForgeError::Invalid(causes(&error)))
}

async fn exchange(
    client: &reqwest::Client,
    request: Request<OctoBody>,
) -> Result<Response<reqwest::Body>, axum::BoxError> {
    let (parts, body) = request.into_parts();
    let body = to_bytes(Body::new(body), LARGEST_ANSWER).await?;
    let request = reqwest::Request::try_from(Request::from_parts(parts, body))?;
    Ok(client.execute(request).await?.into())
}

/// An error with what caused it; libraries keep the telling part at the bottom.
fn causes(error: &dyn std::error::Error) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        // octocrab prints backtraces below the first line.
        let line = error.to_string().lines().next().unwrap_or_default().trim().to_owned();
        if !line.is_empty() && told.last() != Some(&line) && told.len() < 8 {
            told.push(line);
        }
        next = error.source();
    }
    told.join(": ")
}
