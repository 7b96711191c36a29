//! What we read of GitHub's objects, and nothing else: a field that is missing, null or of a new
//! kind must not make an object unreadable.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::forge::{Comment, Issue, PullRequest, State};
use crate::intake::ReportedIssue;

/// Takes a null as the default.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(super) struct User {
    #[serde(default, deserialize_with = "nullable")]
    pub login: String,
    #[serde(default, rename = "type", deserialize_with = "nullable")]
    pub kind: String,
}

impl User {
    pub(super) fn is_bot(&self) -> bool {
        self.kind == "Bot" || self.login.ends_with("[bot]")
    }
}

/// The names of labels, which are objects or plain names.
fn names(labels: &[Value]) -> Vec<String> {
    let name = |label: &Value| label.get("name").unwrap_or(label).as_str().map(str::to_owned);
    labels.iter().filter_map(name).collect()
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Repository {
    #[serde(default, deserialize_with = "nullable")]
    pub full_name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct End {
    #[serde(rename = "ref")]
    pub branch: String,
    #[serde(default, deserialize_with = "nullable")]
    pub sha: String,
    pub repo: Option<Repository>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Pull {
    pub number: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub node_id: String,
    #[serde(default, deserialize_with = "nullable")]
    pub html_url: String,
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub draft: bool,
    pub updated_at: Option<String>,
    pub merged_at: Option<String>,
    pub merge_commit_sha: Option<String>,
    pub head: End,
    pub base: End,
    #[serde(default, deserialize_with = "nullable")]
    pub labels: Vec<Value>,
}

impl Pull {
    /// Whether the head branch is in the repository itself. Anybody can open a pull request from a
    /// fork whose branch has one of our names; names differ in case after a rename.
    pub(super) fn is_internal(&self) -> bool {
        match (&self.head.repo, &self.base.repo) {
            (Some(head), Some(base)) => head.full_name.eq_ignore_ascii_case(&base.full_name),
            _ => false,
        }
    }
}

impl From<Pull> for PullRequest {
    fn from(pull: Pull) -> Self {
        let merged = pull.merged_at.is_some();
        let state = match pull.state.as_str() {
            _ if merged => State::Merged,
            "closed" => State::Closed,
            _ => State::Open,
        };
        Self {
            number: pull.number,
            url: pull.html_url,
            title: pull.title,
            body: pull.body,
            head: pull.head.branch,
            head_commit: pull.head.sha,
            base: pull.base.branch,
            state,
            // Of an open one it names a trial merge.
            merge_commit: pull.merge_commit_sha.filter(|_| merged),
            draft: pull.draft,
            labels: names(&pull.labels),
            updated_at: pull.updated_at.and_then(|at| at.parse().ok()),
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct IssueDto {
    pub number: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub html_url: String,
    #[serde(default, deserialize_with = "nullable")]
    pub title: String,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    #[serde(default, deserialize_with = "nullable")]
    pub state: String,
    #[serde(default, deserialize_with = "nullable")]
    pub user: User,
    /// Present when the "issue" is a pull request.
    pub pull_request: Option<Value>,
    #[serde(default, deserialize_with = "nullable")]
    pub author_association: String,
}

impl From<IssueDto> for Issue {
    fn from(issue: IssueDto) -> Self {
        Self {
            number: issue.number,
            url: issue.html_url,
            title: issue.title,
            body: issue.body,
            state: if issue.state == "closed" { State::Closed } else { State::Open },
        }
    }
}

impl From<IssueDto> for ReportedIssue {
    fn from(issue: IssueDto) -> Self {
        Self {
            number: issue.number,
            url: issue.html_url,
            title: issue.title,
            body: issue.body,
            author: issue.user.login,
            association: issue.author_association,
        }
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct CommentDto {
    pub id: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub body: String,
    #[serde(default, deserialize_with = "nullable")]
    pub user: User,
    pub issue_url: Option<String>,
    pub updated_at: Timestamp,
    pub created_at: Option<Timestamp>,
}

impl CommentDto {
    /// The comment, if it is known what it is on.
    pub(super) fn into_comment(self, on: Option<u64>) -> Option<Comment> {
        let last = self.issue_url.as_deref().and_then(|url| url.rsplit('/').next());
        let on = on.or_else(|| last.and_then(|number| number.parse().ok()))?;
        Some(Comment {
            id: self.id,
            on,
            by_bot: self.user.is_bot(),
            author: self.user.login,
            body: self.body,
            edited: self.created_at.is_none_or(|made| made != self.updated_at),
            updated_at: self.updated_at,
        })
    }
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Access {
    #[serde(default, deserialize_with = "nullable")]
    pub permission: String,
    /// Finer than `permission`, and the name of a custom role where there are any.
    #[serde(default, deserialize_with = "nullable")]
    pub role_name: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Run {
    #[serde(default, deserialize_with = "nullable")]
    pub status: String,
    #[serde(default, deserialize_with = "nullable")]
    pub run_attempt: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_request_survives_what_is_new_or_missing() {
        let pull: Pull = serde_json::from_str(
            r#"{"number":7,"title":null,"state":"brand-new","draft":null,"merged_at":null,
                "merge_commit_sha":"trial","mergeable_state":{"a":1},"labels":[{"name":null},"x",{"name":"y"},7],
                "head":{"ref":"overhaul/a","sha":null,"repo":null},"base":{"ref":"main","sha":"b","repo":{"full_name":"O/R"}}}"#,
        )
        .unwrap();
        assert!(!pull.is_internal());
        let pull = PullRequest::from(pull);
        assert_eq!((pull.state, pull.merge_commit), (State::Open, None));
        assert_eq!(pull.labels, ["x", "y"]);
    }

    #[test]
    fn a_comment_knows_what_it_is_on() {
        let comment: CommentDto = serde_json::from_str(
            r#"{"id":1,"user":null,"body":"b","issue_url":"https://api.github.com/repos/o/r/issues/12",
                "updated_at":"2026-01-02T03:04:05Z"}"#,
        )
        .unwrap();
        assert_eq!(comment.clone().into_comment(None).unwrap().on, 12);
        assert_eq!(comment.into_comment(Some(3)).unwrap().on, 3);
    }
}
