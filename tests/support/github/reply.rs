//! Requests and answers inside the rig.

use std::collections::HashMap;

use serde_json::{Value, json};

/// A request that has a place in the contract.
pub struct Asked {
    pub method: String,
    pub template: String,
    pub parameters: HashMap<String, String>,
    pub query: HashMap<String, String>,
    pub body: Value,
    pub login: String,
    /// Path with prefix, for links to other pages.
    pub full_path: String,
}

impl Asked {
    pub fn number(&self, name: &str) -> u64 {
        self.parameters.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    pub fn text(&self, name: &str) -> &str {
        self.body[name].as_str().unwrap_or_default()
    }

    pub fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub body: Value,
    pub headers: Vec<(&'static str, String)>,
}

impl Reply {
    pub fn new(status: u16, body: Value) -> Self {
        Self { status, body, headers: Vec::new() }
    }

    pub fn empty(status: u16) -> Self {
        Self::new(status, Value::Null)
    }

    pub fn error(status: u16, message: &str) -> Self {
        let docs = "https://docs.github.com/rest";
        let body =
            json!({"message": message, "documentation_url": docs, "status": status.to_string()});
        Self::new(status, body)
    }

    /// 422 with one detail, which has a message of its own when the code is `custom`.
    pub fn invalid(resource: &str, field: &str, code: &str, message: &str) -> Self {
        let mut detail = json!({"resource": resource, "field": field, "code": code});
        if !message.is_empty() {
            detail["message"] = json!(message);
        }
        let mut reply = Self::error(422, "Validation Failed");
        reply.body["errors"] = json!([detail]);
        reply
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// One page of a list, with links.
    pub fn page(asked: &Asked, server: &str, items: Vec<Value>) -> Self {
        let number = |name: &str, default: usize| {
            asked.query.get(name).and_then(|text| text.parse().ok()).unwrap_or(default)
        };
        let (size, page) = (number("per_page", 30).clamp(1, 100), number("page", 1).max(1));
        let rest = items.len().saturating_sub(page * size);
        let slice: Vec<Value> = items.into_iter().skip((page - 1) * size).take(size).collect();
        let mut reply = Self::new(200, Value::Array(slice));
        if rest > 0 {
            let query = asked.query.iter().filter(|(name, _)| *name != "page");
            let query: Vec<String> = query.map(|(name, value)| format!("{name}={value}")).collect();
            let (path, query, next) = (&asked.full_path, query.join("&"), page + 1);
            let link = format!("<{server}{path}?{query}&page={next}>; rel=\"next\"");
            reply = reply.header("link", link);
        }
        reply
    }
}
