//! The Actions results service: uploads workflow artifacts, as GitHub's own client does. Its wire
//! protocol is Twirp with JSON; files go to a signed address in blocks.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Bytes of one block, as GitHub's client cuts them.
const BLOCK: usize = 8 * 1024 * 1024;
/// Times a call is repeated after a passing failure.
const RETRIES: u32 = 5;
/// First wait before a repetition; it grows by half each time.
const FIRST_WAIT: Duration = Duration::from_secs(3);
/// One request.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Version of the protocol; 7 takes files of any type as they are.
const VERSION: u32 = 7;

/// Why an upload failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultsError {
    /// The workflow run has an artifact of this name already, or another upload of this name took
    /// the place of ours before it was finished.
    #[error("the workflow run has an artifact of that name")]
    Taken,
    /// The service does not take the request; asking again would not help.
    #[error("refused: {0}")]
    Refused(String),
    /// The job has no right to write artifacts.
    #[error("not permitted: {0}")]
    Forbidden(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// The service, for this job.
pub struct Results {
    origin: String,
    token: SecretString,
    /// Backend ids of the workflow run and the job.
    run: String,
    job: String,
    client: reqwest::Client,
    first_wait: Duration,
}

impl fmt::Debug for Results {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Results").field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Results {
    /// From `ACTIONS_RESULTS_URL` and `ACTIONS_RUNTIME_TOKEN`, which the runner gives to actions
    /// and not to `run:` steps.
    ///
    /// # Errors
    /// What is missing or not understood.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, String> {
        let need = |name: &str| {
            env(name).filter(|v| !v.trim().is_empty()).ok_or_else(|| format!("{name} is not set"))
        };
        let url = need("ACTIONS_RESULTS_URL")?;
        let url = url::Url::parse(&url).map_err(|e| format!("ACTIONS_RESULTS_URL: {e}"))?;
        let token = SecretString::from(need("ACTIONS_RUNTIME_TOKEN")?);
        let (run, job) = backend_ids(&token).ok_or("ACTIONS_RUNTIME_TOKEN names no job")?;
        // A provider that is installed already is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .user_agent(concat!("overhaul/", env!("CARGO_PKG_VERSION")))
            .timeout(TIMEOUT)
            .build()
            .map_err(|e| e.to_string())?;
        let origin = url.origin().ascii_serialization();
        Ok(Self { origin, token, run, job, client, first_wait: FIRST_WAIT })
    }

    /// Waits less before repetitions.
    #[must_use]
    pub fn with_first_wait(self, first_wait: Duration) -> Self {
        Self { first_wait, ..self }
    }

    /// Uploads a file as an artifact of this workflow run; its id.
    ///
    /// # Errors
    /// [`ResultsError::Taken`] when the name is used.
    pub async fn upload(&self, name: &str, bytes: &[u8]) -> Result<u64, ResultsError> {
        let created = self
            .call(
                "CreateArtifact",
                json!({
                    "workflow_run_backend_id": self.run,
                    "workflow_job_run_backend_id": self.job,
                    "name": name,
                    "version": VERSION,
                    "mime_type": "application/octet-stream",
                }),
            )
            .await?;
        let url = field(&created, "signed_upload_url", "signedUploadUrl")
            .and_then(Value::as_str)
            .ok_or_else(|| ResultsError::Failed("no address to upload to".to_owned()))?;
        self.put(url, bytes).await.map_err(replaced)?;
        let digest: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
        let finished = self
            .call(
                "FinalizeArtifact",
                json!({
                    "workflow_run_backend_id": self.run,
                    "workflow_job_run_backend_id": self.job,
                    "name": name,
                    "size": bytes.len().to_string(),
                    "hash": format!("sha256:{digest}"),
                }),
            )
            .await
            .map_err(replaced)?;
        let id = field(&finished, "artifact_id", "artifactId");
        let id = id.and_then(|id| id.as_u64().or_else(|| id.as_str()?.parse().ok()));
        id.ok_or_else(|| ResultsError::Failed("the artifact has no id".to_owned()))
    }

    /// Removes an artifact of this workflow run.
    ///
    /// # Errors
    /// When it is not there, or the service fails.
    pub async fn remove(&self, name: &str) -> Result<(), ResultsError> {
        let body = json!({
            "workflow_run_backend_id": self.run,
            "workflow_job_run_backend_id": self.job,
            "name": name,
        });
        self.call("DeleteArtifact", body).await.map(drop)
    }

    /// The file in blocks, then their list. The address is signed as it is: only appended to.
    async fn put(&self, url: &str, bytes: &[u8]) -> Result<(), ResultsError> {
        let mut list = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            let id = STANDARD.encode(format!("overhaul-{number:08}"));
            let encoded: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
            let address = format!("{url}&comp=block&blockid={encoded}");
            let block = block.to_vec();
            self.repeat(|| {
                self.client
                    .put(&address)
                    .header("x-ms-version", "2025-11-05")
                    .header("content-type", "application/octet-stream")
                    .body(block.clone())
            })
            .await?;
            list.push_str(&format!("<Latest>{id}</Latest>"));
        }
        list.push_str("</BlockList>");
        let address = format!("{url}&comp=blocklist");
        self.repeat(|| {
            self.client
                .put(&address)
                .header("x-ms-version", "2025-11-05")
                .header("x-ms-blob-content-type", "application/octet-stream")
                .header("content-type", "application/xml")
                .body(list.clone())
        })
        .await
        .map(drop)
    }

    async fn call(&self, method: &str, body: Value) -> Result<Value, ResultsError> {
        let address =
            format!("{}/twirp/github.actions.results.api.v1.ArtifactService/{method}", self.origin);
        let bytes = self
            .repeat(|| {
                self.client.post(&address).bearer_auth(self.token.expose_secret()).json(&body)
            })
            .await?;
        serde_json::from_slice(&bytes)
            .map_err(|e| ResultsError::Failed(format!("{method}: answer not understood: {e}")))
    }

    /// Sends a request, again after what passes by itself.
    async fn repeat(
        &self,
        request: impl Fn() -> reqwest::RequestBuilder,
    ) -> Result<Vec<u8>, ResultsError> {
        let mut wait = self.first_wait;
        let mut last = String::new();
        for attempt in 0..=RETRIES {
            if attempt > 0 {
                let jitter = fastrand::f64().mul_add(0.5, 0.75);
                tokio::time::sleep(wait.mul_f64(jitter)).await;
                wait = wait.mul_f64(1.5);
            }
            // Without the address: it is signed.
            let answer = match request().send().await {
                Ok(answer) => answer,
                Err(error) => {
                    last = error.without_url().to_string();
                    continue;
                }
            };
            let status = answer.status().as_u16();
            let body = match answer.bytes().await {
                Ok(body) => body.to_vec(),
                Err(error) => {
                    last = error.without_url().to_string();
                    continue;
                }
            };
            let told: Value = serde_json::from_slice(&body).unwrap_or_default();
            let told = told.get("msg").and_then(Value::as_str).unwrap_or_default();
            let told: String = told.chars().take(300).collect();
            match status {
                200..=299 => return Ok(body),
                409 => return Err(ResultsError::Taken),
                401 | 403 => return Err(ResultsError::Forbidden(format!("{told} ({status})"))),
                429 | 500 | 502 | 503 | 504 => last = format!("{told} ({status})"),
                _ => return Err(ResultsError::Refused(format!("{told} ({status})"))),
            }
        }
        Err(ResultsError::Failed(format!("the results service does not answer: {last}")))
    }
}

/// An upload that was granted a moment ago and is refused now: another one of the name replaced it.
fn replaced(error: ResultsError) -> ResultsError {
    match error {
        ResultsError::Refused(reason) => {
            tracing::warn!(reason, "another upload of the name took the place of this one");
            ResultsError::Taken
        }
        other => other,
    }
}

/// GitHub answers in snake case, other implementations in camel case.
fn field<'a>(value: &'a Value, snake: &str, camel: &str) -> Option<&'a Value> {
    value.get(snake).or_else(|| value.get(camel))
}

/// `scp` of the token holds `Actions.Results:RUN:JOB`.
fn backend_ids(token: &SecretString) -> Option<(String, String)> {
    let claims = token.expose_secret().split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Value = serde_json::from_slice(&claims).ok()?;
    let scopes = claims.get("scp")?.as_str()?;
    let ids = scopes.split(' ').find_map(|scope| scope.strip_prefix("Actions.Results:"))?;
    let (run, job) = ids.split_once(':')?;
    Some((run.to_owned(), job.to_owned()))
}
