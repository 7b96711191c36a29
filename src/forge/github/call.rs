//! What the client is asked to do, and how that can fail.

use axum::http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::limits::Said;
use crate::forge::ForgeError;
use jiff::Timestamp;

/// Characters that stay as they are in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Text as one segment of a path.
pub(super) fn segment(text: &str) -> String {
    // A segment of dots would climb.
    if text.chars().all(|c| c == '.') {
        return text.replace('.', "%2E");
    }
    utf8_percent_encode(text, SEGMENT).to_string()
}

/// A branch name as the rest of a path: its slashes stay.
pub(super) fn segments(text: &str) -> String {
    text.split('/').map(segment).collect::<Vec<_>>().join("/")
}

/// One call of the API.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub method: Method,
    /// Below the REST root, with a leading slash, encoded.
    pub path: String,
    pub query: Vec<(&'static str, String)>,
    pub body: Option<Value>,
    /// For people, after "to": `open a pull request`.
    pub action: &'static str,
    /// For people: `pull request 7`.
    pub subject: String,
    /// The permission it needs, as a line of `permissions:`.
    pub needs: &'static str,
    /// Whether repeating it after an unknown outcome changes nothing.
    pub repeatable: bool,
    /// A query of GraphQL, which has an address of its own and changes nothing.
    pub graphql: bool,
    /// Whether its answer is an address elsewhere.
    pub redirected: bool,
    /// Whether its object was made a moment ago, so that 404 and 422 may heal.
    pub fresh: bool,
}

impl Call {
    fn new(method: Method, path: String, action: &'static str, needs: &'static str) -> Self {
        let repeatable = method != Method::POST;
        let (query, body, subject) = (Vec::new(), None, path.clone());
        Self {
            method,
            path,
            query,
            body,
            action,
            subject,
            needs,
            repeatable,
            graphql: false,
            redirected: false,
            fresh: false,
        }
    }

    pub(super) fn get(path: String, action: &'static str, needs: &'static str) -> Self {
        Self::new(Method::GET, path, action, needs)
    }

    pub(super) fn post(
        path: String,
        body: Value,
        action: &'static str,
        needs: &'static str,
    ) -> Self {
        Self { body: Some(body), ..Self::new(Method::POST, path, action, needs) }
    }

    /// A query; a mutation writes.
    pub(super) fn graphql(
        query: &str,
        variables: Value,
        action: &'static str,
        needs: &'static str,
    ) -> Self {
        let body = serde_json::json!({"query": query, "variables": variables});
        let call = Self::post("/graphql".to_owned(), body, action, needs);
        Self { graphql: true, repeatable: true, ..call }
    }

    pub(super) fn patch(
        path: String,
        body: Value,
        action: &'static str,
        needs: &'static str,
    ) -> Self {
        Self { body: Some(body), ..Self::new(Method::PATCH, path, action, needs) }
    }

    pub(super) fn on(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    pub(super) fn query(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.query.push((name, value.into()));
        self
    }

    pub(super) fn repeatable(mut self) -> Self {
        self.repeatable = true;
        self
    }

    pub(super) fn redirected(mut self) -> Self {
        self.redirected = true;
        self
    }

    pub(super) fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    fn is_mutation(&self) -> bool {
        let query = self.body.as_ref().and_then(|body| body.get("query")?.as_str());
        query.is_some_and(|query| query.starts_with("mutation"))
    }

    pub(super) fn is_write(&self) -> bool {
        self.method != Method::GET && (!self.graphql || self.is_mutation())
    }

    /// Path and query.
    pub(super) fn target(&self) -> String {
        if self.query.is_empty() {
            return self.path.clone();
        }
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(self.query.iter().map(|(name, value)| (*name, value.as_str())))
            .finish();
        format!("{}?{query}", self.path)
    }
}

/// Why a call failed.
#[derive(Debug, Clone)]
pub(super) enum Trouble {
    /// A limit that is not waited for.
    Limited { until: Timestamp, message: String },
    /// 4xx: nothing was done.
    Refused(Box<Refusal>),
    /// Unknown whether it was done.
    Ambiguous(String),
}

/// A refusal and where it came from.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub status: u16,
    pub said: Said,
    pub action: &'static str,
    pub subject: String,
    pub needs: &'static str,
    /// `x-accepted-github-permissions`, e.g. `issues=write; pull_requests=write`.
    pub accepted: Option<String>,
}

impl Refusal {
    fn remedy(&self) -> String {
        let said = &self.said;
        if self.status == 401 {
            "give a valid token: this one is expired, revoked or mistyped".to_owned()
        } else if self.status == 410 {
            "turn on Issues under Settings, General, Features".to_owned()
        } else if said.has("locked") {
            format!("unlock the conversation of {}", self.subject)
        } else if said.has("code scanning") || said.has("advanced security") {
            "turn on code scanning under Settings, Advanced Security, or remove \
             `code-scanning` from `findings`"
                .to_owned()
        } else if said.has("archived") {
            "unarchive the repository".to_owned()
        } else if said.has("saml") {
            "authorise the token for the organisation's single sign-on".to_owned()
        } else {
            format!(
                "add `{}` to `permissions:` of the job, or grant it to the app or token",
                self.line()
            )
        }
    }

    /// The permission to add: ours, unless the server names only others.
    fn line(&self) -> String {
        let named: Vec<String> = self
            .accepted
            .iter()
            .flat_map(|text| text.split([';', ',']))
            .filter_map(|pair| pair.trim().split_once('='))
            .map(|(name, level)| format!("{}: {level}", name.replace('_', "-")))
            .collect();
        if named.iter().any(|line| line == self.needs) {
            return self.needs.to_owned();
        }
        named.into_iter().next().unwrap_or_else(|| self.needs.to_owned())
    }
}

impl From<Trouble> for ForgeError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Limited { until, message } => Self::Limited { until, message },
            Trouble::Ambiguous(message) => Self::Unavailable(message),
            Trouble::Refused(refusal) => match refusal.status {
                401 | 403 | 410 => Self::Forbidden {
                    action: format!("{} ({})", refusal.action, refusal.subject),
                    remedy: refusal.remedy(),
                    message: refusal.said.message,
                },
                404 => Self::NotFound(refusal.subject),
                status => {
                    let Refusal { said, action, subject, .. } = *refusal;
                    Self::Invalid(format!("{action} ({subject}): {} ({status})", said.message))
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_stay_one_segment() {
        assert_eq!(segment("dependabot[bot]"), "dependabot%5Bbot%5D");
        assert_eq!(segment("../x?y#z"), "..%2Fx%3Fy%23z");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segments("overhaul/run/../n 1"), "overhaul/run/%2E%2E/n%201");
    }

    #[test]
    fn the_line_to_add_is_ours_or_the_servers() {
        let refusal = |accepted: Option<&str>| Refusal {
            status: 403,
            said: Said::default(),
            action: "comment",
            subject: String::new(),
            needs: "issues: write",
            accepted: accepted.map(str::to_owned),
        };
        assert_eq!(refusal(None).line(), "issues: write");
        assert_eq!(refusal(Some("pull_requests=write; issues=write")).line(), "issues: write");
        assert_eq!(refusal(Some("pull_requests=write")).line(), "pull-requests: write");
        assert_eq!(refusal(Some("garbage")).line(), "issues: write");
    }
}
