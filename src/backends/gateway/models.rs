//! The list of models that a backend gives out: the one question that tells of key and model and
//! costs nothing.

use std::time::Duration;

use futures_util::StreamExt as _;
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::timeout;

use super::Upstream;
use super::forward::own_headers;
use crate::backends::classify::classify_http;
use crate::backends::openai::{chain, plain_headers};
use crate::backends::redact::Redactor;
use crate::model::Outcome;

/// How long the answer may take.
const PATIENCE: Duration = Duration::from_secs(20);
/// Largest list that is read, in bytes.
const MAX_LIST: usize = 8 * 1024 * 1024;
/// Longest part of a refusal that is told, in characters.
const MAX_TOLD: usize = 160;

/// One model on the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name in requests.
    pub id: String,
    /// Its context window in tokens, where the list has it.
    pub context_tokens: Option<u64>,
}

impl Listed {
    /// Whether a request for `model` means this one. Lists leave out what routes a request
    /// (`:nitro`), the default tag (`:latest`), or every name behind a `*`.
    #[must_use]
    pub fn is(&self, model: &str) -> bool {
        let id = self.id.strip_prefix("models/").unwrap_or(&self.id);
        let model = model.strip_prefix("models/").unwrap_or(model);
        id.eq_ignore_ascii_case(model)
            || model.rsplit_once(':').is_some_and(|(name, _)| id.eq_ignore_ascii_case(name))
            || id.strip_suffix(":latest").is_some_and(|name| name.eq_ignore_ascii_case(model))
            || id.strip_suffix('*').is_some_and(|start| model.starts_with(start))
    }
}

/// What a backend answers when it is asked for its models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelList {
    /// These, one at least; `whole` unless it says that there are more.
    Models {
        /// In its order.
        models: Vec<Listed>,
        /// Nothing is left out.
        whole: bool,
    },
    /// The key is refused, or one is asked for.
    Refused(String),
    /// It gives out no list, or none to this key.
    NoList(String),
    /// It does not speak HTTP, or not in time.
    Unreached(String),
}

impl Upstream {
    /// Asks for the list of models: as a worker's requests are sent or, `bare`, without key and
    /// headers of ours.
    pub async fn models(&self, bare: bool) -> ModelList {
        match timeout(PATIENCE, self.ask(bare)).await {
            Ok(answer) => answer,
            Err(_) => ModelList::Unreached(format!("no answer for {} s", PATIENCE.as_secs())),
        }
    }

    async fn ask(&self, bare: bool) -> ModelList {
        let anthropic = self.base_url.host_str().is_some_and(|h| h.ends_with(".anthropic.com"));
        let mut url = self.base_url.clone();
        url.set_path(&format!("{}/models", url.path().trim_end_matches('/')));
        url.set_query(anthropic.then_some("limit=1000"));
        let mut request = self.http.get(url);
        if anthropic {
            request = request.header("anthropic-version", "2023-06-01");
        }
        if !bare {
            match own_headers(self) {
                Ok(headers) => request = request.headers(headers),
                Err(error) => return ModelList::NoList(error.to_string()),
            }
        }
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => return ModelList::Unreached(self.told(&chain(&error))),
        };
        let (status, headers) = (response.status(), plain_headers(response.headers()));
        let text = body(response).await;
        if status.is_success() {
            let none = || ModelList::NoList("no list in its answer".to_owned());
            return read(&text).unwrap_or_else(none);
        }
        let said = format!("it answers {}: {}", status.as_u16(), self.told(&text));
        let said = said.trim_end_matches([':', ' ']).to_owned();
        let status = Some(status.as_u16());
        let reading = classify_http(&self.backend, status, &headers, &text, Timestamp::now());
        // A key can be good for work and not for lists.
        let of_lists = text.to_ascii_lowercase().contains("missing scope");
        if reading.outcome == Outcome::Auth && !of_lists {
            ModelList::Refused(said)
        } else {
            ModelList::NoList(said)
        }
    }

    /// The beginning of the other side's words in one line, without secrets.
    fn told(&self, text: &str) -> String {
        let clean = Redactor::new(self.secrets().cloned()).apply(text);
        let line = clean.split_whitespace().collect::<Vec<_>>().join(" ");
        line.chars().take(MAX_TOLD).collect()
    }
}

/// As much of the body as is read.
async fn body(response: reqwest::Response) -> String {
    let mut bytes: Vec<u8> = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(Ok(piece)) = stream.next().await {
        let room = MAX_LIST.saturating_sub(bytes.len());
        bytes.extend_from_slice(piece.get(..room.min(piece.len())).unwrap_or_default());
        if room <= piece.len() {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The customary `{"data": [...]}`, and the forms of those who do otherwise.
fn read(text: &str) -> Option<ModelList> {
    let value: Value = serde_json::from_str(text).ok()?;
    let named = || ["data", "models"].iter().find_map(|name| value.get(name)?.as_array());
    let models: Vec<Listed> = value.as_array().or_else(named)?.iter().filter_map(listed).collect();
    let whole = value.get("has_more").and_then(Value::as_bool) != Some(true);
    (!models.is_empty()).then_some(ModelList::Models { models, whole })
}

fn listed(entry: &Value) -> Option<Listed> {
    const WINDOWS: &[&str] =
        &["max_model_len", "context_length", "context_window", "max_context_length"];
    let id = ["id", "name"].iter().find_map(|name| entry.get(name)?.as_str())?;
    let context_tokens = WINDOWS.iter().find_map(|name| entry.get(name)?.as_u64());
    Some(Listed { id: id.to_owned(), context_tokens: context_tokens.filter(|tokens| *tokens > 0) })
}

#[cfg(test)]
mod tests {
    use super::{Listed, ModelList, read};

    #[test]
    fn lists_of_all_forms_are_read() {
        let names = |text: &str| match read(text) {
            Some(ModelList::Models { models, whole }) => {
                (models.into_iter().map(|m| (m.id, m.context_tokens)).collect::<Vec<_>>(), whole)
            }
            _ => (Vec::new(), false),
        };
        let one = |window| (vec![("m".to_owned(), window)], true);
        assert_eq!(names(r#"{"data": [{"id": "m", "max_model_len": 9}]}"#), one(Some(9)));
        assert_eq!(names(r#"[{"id": "m", "context_length": 7}, 5]"#), one(Some(7)));
        assert_eq!(names(r#"{"models": [{"name": "m"}]}"#), one(None));
        assert!(!names(r#"{"data": [{"id": "m"}], "has_more": true}"#).1);
        for no_list in ["", "<html>", r#"{"data": []}"#, r#"{"data": "m"}"#, "{}"] {
            assert_eq!(read(no_list), None, "{no_list}");
        }
    }

    #[test]
    fn a_name_is_found_in_the_forms_that_lists_have() {
        let is =
            |id: &str, model: &str| Listed { id: id.to_owned(), context_tokens: None }.is(model);
        assert!(is("qwen/Qwen3-Coder", "qwen/qwen3-coder"));
        assert!(is("models/gemini-2.5-pro", "gemini-2.5-pro"));
        assert!(is("openai/gpt-oss", "openai/gpt-oss:nitro"));
        assert!(is("llama3:latest", "llama3") && !is("llama3:8b", "llama3:70b"));
        assert!(is("nvidia_nim/*", "nvidia_nim/meta/llama") && !is("nvidia_nim/*", "other/llama"));
        assert!(!is("gpt-5", "gpt-5-mini"));
    }
}
