//! Where pull requests, issues and comments live: the forge trait and its implementations.
//!
//! Every object of ours carries a hidden marker, by which it is found again; a repeated call
//! updates and never duplicates.

pub mod github;
mod local;
mod traced;

pub use local::LocalForge;
pub use traced::Traced;

use async_trait::async_trait;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::intake::ReportedIssue;
use crate::model::CiMode;

/// Why a forge call failed.
#[derive(Debug, thiserror::Error)]
pub enum ForgeError {
    /// A limit of the forge; time heals it.
    #[error("the forge limits requests until {until}: {message}")]
    Limited {
        /// When it may work again.
        until: Timestamp,
        /// What it said.
        message: String,
    },
    /// The token may not do this.
    #[error("not permitted to {action}: {message}; {remedy}")]
    Forbidden {
        /// What was tried.
        action: String,
        /// What it said.
        message: String,
        /// The exact line to add or setting to change.
        remedy: String,
    },
    /// The object is not there.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The forge refused the content.
    #[error("refused: {0}")]
    Invalid(String),
    /// Network or server trouble; unknown whether a write took effect.
    #[error("the forge did not answer: {0}")]
    Unavailable(String),
}

/// State of a pull request or an issue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Open.
    Open,
    /// Closed unmerged (issues: closed).
    Closed,
    /// Merged (pull requests only).
    Merged,
}

/// A pull request as we need it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PullRequest {
    /// Its number.
    pub number: u64,
    /// Address for people.
    pub url: String,
    /// Title.
    pub title: String,
    /// Body with our marker.
    pub body: String,
    /// Head branch, short name.
    pub head: String,
    /// Head commit.
    pub head_commit: String,
    /// Base branch, short name.
    pub base: String,
    /// Open, closed or merged.
    pub state: State,
    /// The commit that merging made.
    pub merge_commit: Option<String>,
    /// Whether it is a draft.
    pub draft: bool,
    /// Labels.
    pub labels: Vec<String>,
    /// Last change of anything about it, reviews included, where the forge says.
    pub updated_at: Option<Timestamp>,
}

/// What reviews ask of a pull request: of each person who may write, the latest one with a verdict.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reviews {
    /// The pull request.
    pub number: u64,
    /// As of this change of it.
    pub updated_at: Timestamp,
    /// The ones that ask for changes.
    pub asking: Vec<Review>,
}

/// A review that asks for changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Review {
    /// The forge's id.
    pub id: String,
    /// Login of the person.
    pub by: String,
    /// What it says; untrusted.
    pub body: String,
    /// What it says of lines; untrusted.
    pub remarks: Vec<Remark>,
}

/// What a review says of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The file.
    pub path: String,
    /// The line, where it is still there.
    pub line: Option<u64>,
    /// Text.
    pub body: String,
}

/// What a new pull request is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPullRequest {
    /// Title.
    pub title: String,
    /// Body; holds `marker`.
    pub body: String,
    /// The hidden marker line.
    pub marker: String,
    /// Head branch, already pushed.
    pub head: String,
    /// Head commit.
    pub head_commit: String,
    /// Base branch.
    pub base: String,
    /// As a draft.
    pub draft: bool,
    /// Best effort: never fail the work.
    pub labels: Vec<String>,
    /// Best effort.
    pub reviewers: Vec<String>,
}

/// Changes to a pull request; `None` leaves a field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PullRequestPatch {
    /// New title.
    pub title: Option<String>,
    /// New body.
    pub body: Option<String>,
    /// New base branch.
    pub base: Option<String>,
    /// Close or reopen.
    pub state: Option<State>,
}

/// An issue of ours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Issue {
    /// Its number.
    pub number: u64,
    /// Address for people.
    pub url: String,
    /// Title.
    pub title: String,
    /// Body.
    pub body: String,
    /// Open or closed.
    pub state: State,
}

/// A comment on an issue or pull request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Comment {
    /// Its id.
    pub id: u64,
    /// The issue or pull request it is on.
    pub on: u64,
    /// Login of the author.
    pub author: String,
    /// Whether the author is a bot or an app.
    pub by_bot: bool,
    /// Text.
    pub body: String,
    /// Whether the text was changed after it was first written, by its author or by somebody else.
    pub edited: bool,
    /// Last change.
    pub updated_at: Timestamp,
}

/// A change of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Login of who changed it.
    pub by: String,
    /// Whether that is a bot or an app.
    pub by_bot: bool,
    /// When.
    pub at: Timestamp,
}

/// What a person may do in the repository. Ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Nothing, or unknown.
    None,
    /// Read.
    Read,
    /// Triage.
    Triage,
    /// Write.
    Write,
    /// Maintain.
    Maintain,
    /// Admin.
    Admin,
}

/// Whether the holder of a claim still lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alive {
    /// Seen running.
    Yes,
    /// Seen ended.
    No,
    /// Can't be told: wait for the lease.
    Unknown,
}

/// Where pull requests, issues and comments live.
#[async_trait]
pub trait Forge: Send + Sync {
    /// A short name for people, e.g. `GitHub o/r` or the folder.
    fn name(&self) -> String;

    /// Where files of a commit are shown, up to the commit: `https://github.com/o/r/blob/`.
    fn blob_url(&self) -> Option<String> {
        None
    }

    /// How checks start on the pull requests that this token opens.
    fn ci_mode(&self) -> CiMode {
        CiMode::Elsewhere
    }

    /// Whether a merged pull request is only what a person wrote, and no deed of the forge.
    fn is_written_by_hand(&self) -> bool {
        false
    }

    /// Pull requests, open or not, whose head branch starts with `head_prefix`.
    async fn pull_requests(&self, head_prefix: &str) -> Result<Vec<PullRequest>, ForgeError>;

    /// One pull request; `None` when there is no such one any more.
    async fn find_pull_request(&self, number: u64) -> Result<Option<PullRequest>, ForgeError>;

    /// Opens a pull request, or finds the one that already has this head and marker and updates it.
    async fn open_pull_request(&self, new: NewPullRequest) -> Result<PullRequest, ForgeError>;

    /// Open pull requests of anybody onto branches that start with `base_prefix`.
    async fn pull_requests_onto(&self, base_prefix: &str) -> Result<Vec<PullRequest>, ForgeError>;

    /// Has a pull request merged as soon as its checks allow, if its head is `head`.
    async fn enable_auto_merge(&self, number: u64, head: &str) -> Result<(), ForgeError>;

    /// What people who may write ask to be changed in these pull requests. One that can't be looked
    /// at now is left out; a forge that has no reviews says nothing of any.
    async fn reviews(&self, pulls: &[u64]) -> Result<Vec<Reviews>, ForgeError> {
        let _ = pulls;
        Ok(Vec::new())
    }

    /// Changes a pull request.
    async fn update_pull_request(
        &self,
        number: u64,
        patch: PullRequestPatch,
    ) -> Result<PullRequest, ForgeError>;

    /// The issue with this marker in its body; `Ok(None)` only when the look-up worked.
    async fn find_issue(&self, marker: &str) -> Result<Option<Issue>, ForgeError>;

    /// Opens an issue, or finds the one that has the marker.
    async fn open_issue(
        &self,
        title: &str,
        body: &str,
        marker: &str,
        labels: &[String],
    ) -> Result<Issue, ForgeError>;

    /// Changes body and state of an issue; `None` leaves a field.
    async fn update_issue(
        &self,
        number: u64,
        body: Option<&str>,
        state: Option<State>,
    ) -> Result<Issue, ForgeError>;

    /// Comments on an issue or pull request, unless a comment with this marker is there already.
    async fn comment(&self, on: u64, body: &str, marker: &str) -> Result<Comment, ForgeError>;

    /// Comments anywhere in the repository changed at or after `since`, oldest first.
    async fn comments_since(&self, since: Timestamp) -> Result<Vec<Comment>, ForgeError>;

    /// Adds a reaction (`eyes`, `rocket`, `confused`, ...) to a comment; repeating changes nothing.
    async fn react(&self, comment: u64, reaction: &str) -> Result<(), ForgeError>;

    /// What `login` may do.
    async fn permission(&self, login: &str) -> Result<Permission, ForgeError>;

    /// Whether the token may do what a run needs, asked before anything is paid for: a missing
    /// permission is an error that names it. `issues`: whether there will be issues of ours.
    async fn check_rights(&self, base: &str, issues: bool) -> Result<(), ForgeError> {
        let _ = (base, issues);
        Ok(())
    }

    /// The last edit of an issue's text; `None` when it stands as it was first written.
    async fn issue_edit(&self, number: u64) -> Result<Option<Edit>, ForgeError>;

    /// Starts a workflow on a branch. Never repeated after an unknown outcome.
    async fn start_workflow(&self, workflow: &str, branch: &str) -> Result<(), ForgeError> {
        Err(ForgeError::Invalid(format!("{} cannot start {workflow} on {branch}", self.name())))
    }

    /// Open code-scanning alerts of a branch as one SARIF document.
    async fn code_scanning_alerts(&self, branch: &str) -> Result<serde_json::Value, ForgeError> {
        Err(ForgeError::Invalid(format!("{} has no code-scanning alerts of {branch}", self.name())))
    }

    /// Open issues with a label, oldest first.
    async fn labelled_issues(&self, label: &str) -> Result<Vec<ReportedIssue>, ForgeError> {
        Err(ForgeError::Invalid(format!("{} has no issues labelled {label}", self.name())))
    }

    /// Whether a workflow run still goes on.
    async fn workflow_run_alive(&self, run: u64, attempt: u32) -> Alive;
}
