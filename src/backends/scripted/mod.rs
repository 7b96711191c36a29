//! An OpenAI-compatible endpoint that plays a script: the local pool of `demo`, and the other end of
//! the tool loop in tests. It is no model, and its answers say so.

mod fixer;
mod reply;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use url::Url;

pub use fixer::fixer;
pub use reply::{Answer, Reply};

use super::openai::plain_headers;

/// The model's name, wherever one is asked for.
pub const MODEL: &str = "scripted/fixer";
/// Largest request body that is taken, in bytes.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// One request as the script sees it.
#[derive(Debug, Clone)]
pub struct Request {
    /// Path, e.g. `/v1/chat/completions`.
    pub path: String,
    /// Headers, lower-case names.
    pub headers: BTreeMap<String, String>,
    /// Body; null when it is no JSON.
    pub body: Value,
}

impl Request {
    /// Whether the client asks for a stream.
    #[must_use]
    pub fn wants_stream(&self) -> bool {
        self.body.get("stream").and_then(Value::as_bool).unwrap_or(false)
    }

    /// The text of the last message.
    #[must_use]
    pub fn last_text(&self) -> &str {
        let messages = self.body.get("messages").and_then(Value::as_array);
        messages
            .and_then(|m| m.last())
            .and_then(|m| m.get("content"))
            .and_then(Value::as_str)
            .unwrap_or("")
    }
}

type Script = dyn Fn(&Request, usize) -> Reply + Send + Sync;

struct Shared {
    script: Box<Script>,
    count: AtomicUsize,
    seen: Mutex<Vec<Request>>,
    stop: CancellationToken,
}

/// A running endpoint on a loopback port of its own. Stops when dropped.
pub struct Scripted {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Starts the endpoint. The script gets each POST and its number, from 0.
    ///
    /// # Errors
    /// When no loopback port can be had.
    pub async fn start(
        script: impl Fn(&Request, usize) -> Reply + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            script: Box::new(script),
            count: AtomicUsize::new(0),
            seen: Mutex::new(Vec::new()),
            stop: CancellationToken::new(),
        });
        let app = Router::new()
            .fallback(answer)
            .layer(axum::extract::DefaultBodyLimit::max(MAX_BODY))
            .with_state(Arc::clone(&shared));
        let stop = shared.stop.clone();
        let task = tokio::spawn(async move {
            let serve = axum::serve(listener, app).with_graceful_shutdown(stop.cancelled_owned());
            if let Err(error) = serve.await {
                tracing::warn!(%error, "the scripted endpoint ended");
            }
        });
        Ok(Self { address, shared, task: Some(task) })
    }

    /// Its address up to `/v1`.
    ///
    /// # Errors
    /// Never in practice: the text is built from a socket address.
    pub fn base_url(&self) -> Result<Url, url::ParseError> {
        Url::parse(&format!("http://{}/v1", self.address))
    }

    /// The POSTs seen so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops listening, lets running answers end (hanging ones are cut), and waits for that.
    pub async fn stop(mut self) {
        self.shared.stop.cancel();
        if let Some(task) = self.task.take() {
            let _ = task.await;
        }
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if method == Method::GET && uri.path().ends_with("/models") {
        let list = json!({"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "scripted"}]});
        return Reply::json(200, &list).respond(false, MODEL, &shared.stop);
    }
    if method != Method::POST {
        return Reply::json(404, &json!({"detail": "Not Found"})).respond(
            false,
            MODEL,
            &shared.stop,
        );
    }
    let request = Request {
        path: uri.path().to_owned(),
        headers: plain_headers(&headers),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let number = shared.count.fetch_add(1, Ordering::SeqCst);
    let reply = (shared.script)(&request, number);
    let stream = request.wants_stream();
    let model = request.body.get("model").and_then(Value::as_str).unwrap_or(MODEL).to_owned();
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    reply.respond(stream, &model, &shared.stop)
}
