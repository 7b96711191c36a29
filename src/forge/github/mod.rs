//! GitHub: github.com, GitHub Enterprise Cloud and Server.
//!
//! One client for everything, so that limits, spacing and counts have one place. Creating looks
//! for the marker first and, when the outcome is unknown, again before it writes again. What this
//! module asks of the API per call is in `docs/github.md`.

mod artifacts;
mod auth;
mod call;
mod client;
mod dto;
mod graphql;
mod issues;
mod jwt;
mod limits;
mod pace;
mod pulls;
mod repository;
mod reviews;
mod sarif;
mod settings;
mod text;
mod transport;

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use secrecy::ExposeSecret;

pub use self::client::Calls;
use self::client::Client;
pub use self::pace::{SystemTime, Time};
pub use self::repository::Standing;
pub use self::settings::{Credentials, GitHubSettings};
use super::{
    Alive, Comment, Edit, Forge, ForgeError, Issue, NewPullRequest, Permission, PullRequest,
    PullRequestPatch, Reviews, State,
};
use crate::git::{Remote, Tokens};
use crate::intake::ReportedIssue;
use crate::model::CiMode;

/// A repository on GitHub.
pub struct GitHub {
    settings: GitHubSettings,
    client: Arc<Client>,
    /// Held from the look to the write, so that two tasks never create the same thing.
    creating: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for GitHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GitHub").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl GitHub {
    /// Prepares the client; nothing is sent yet. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// [`ForgeError::Forbidden`] for credentials that cannot work.
    pub fn connect(settings: GitHubSettings) -> Result<Self, ForgeError> {
        let client = Arc::new(Client::new(&settings)?);
        Ok(Self { settings, client, creating: tokio::sync::Mutex::new(()) })
    }

    /// Requests sent so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.client.calls()
    }

    /// The repository for git, with the right to push.
    ///
    /// # Errors
    /// When no token can be had.
    pub async fn git_remote(&self) -> Result<Remote, ForgeError> {
        // Said now if there is none; later ones are asked for as git needs them.
        self.client.token().await?;
        let server = self.settings.server_url.as_str().trim_end_matches('/');
        let url = format!("{server}/{}.git", self.slug());
        let (client, runtime) = (Arc::clone(&self.client), tokio::runtime::Handle::current());
        let tokens = Tokens::new(move |refused| {
            let token = async {
                if refused {
                    client.forget_token().await;
                }
                client.token().await.map_err(|trouble| ForgeError::from(trouble).to_string())
            };
            // git is called from threads of any kind; this one may wait.
            std::thread::scope(|scope| scope.spawn(|| runtime.block_on(token)).join())
                .unwrap_or_else(|_| Err("the token could not be asked for".to_owned()))
        });
        Remote::with_tokens(&url, tokens).map_err(|e| ForgeError::Invalid(e.to_string()))
    }

    /// `owner/repository`.
    #[must_use]
    pub fn slug(&self) -> String {
        format!("{}/{}", self.settings.owner, self.settings.repository)
    }

    fn path(&self, rest: &str) -> String {
        format!("{}/{rest}", self.client.repository_path())
    }

    /// Tokens of apps, `GITHUB_TOKEN` among them, begin with `ghs_`.
    fn acts_as_bot(&self) -> bool {
        match &self.settings.credentials {
            Credentials::App { .. } => true,
            Credentials::Workflow(token) | Credentials::Token(token) => {
                token.expose_secret().starts_with("ghs_")
            }
        }
    }
}

/// GitHub's word for a state that can be set.
fn state_word(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Closed | State::Merged => "closed",
    }
}

#[async_trait]
impl Forge for GitHub {
    fn name(&self) -> String {
        format!("GitHub {}", self.slug())
    }

    fn blob_url(&self) -> Option<String> {
        let server = self.settings.server_url.as_str().trim_end_matches('/');
        Some(format!("{server}/{}/blob/", self.slug()))
    }

    fn ci_mode(&self) -> CiMode {
        self.settings.ci_mode()
    }

    async fn pull_requests(&self, head_prefix: &str) -> Result<Vec<PullRequest>, ForgeError> {
        Ok(self.pulls_with_prefix(head_prefix).await?)
    }

    async fn find_pull_request(&self, number: u64) -> Result<Option<PullRequest>, ForgeError> {
        match self.pull_request(number).await {
            Ok(found) => Ok(Some(found)),
            Err(ForgeError::NotFound(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn open_pull_request(&self, new: NewPullRequest) -> Result<PullRequest, ForgeError> {
        self.open_pull(new).await
    }

    async fn pull_requests_onto(&self, base_prefix: &str) -> Result<Vec<PullRequest>, ForgeError> {
        Ok(self.open_pulls_onto(base_prefix).await?)
    }

    async fn enable_auto_merge(&self, number: u64, head: &str) -> Result<(), ForgeError> {
        self.auto_merge(number, head).await
    }

    async fn reviews(&self, pulls: &[u64]) -> Result<Vec<Reviews>, ForgeError> {
        Ok(self.reviews_of(pulls).await?)
    }

    async fn update_pull_request(
        &self,
        number: u64,
        patch: PullRequestPatch,
    ) -> Result<PullRequest, ForgeError> {
        Self::settable(patch.state)?;
        Ok(self.patch_pull(number, patch).await?)
    }

    async fn find_issue(&self, marker: &str) -> Result<Option<Issue>, ForgeError> {
        Ok(self.issue_with(marker).await?.map(Issue::from))
    }

    async fn open_issue(
        &self,
        title: &str,
        body: &str,
        marker: &str,
        labels: &[String],
    ) -> Result<Issue, ForgeError> {
        self.create_issue(title, body, marker, labels).await
    }

    async fn update_issue(
        &self,
        number: u64,
        body: Option<&str>,
        state: Option<State>,
    ) -> Result<Issue, ForgeError> {
        Self::settable(state)?;
        Ok(self.patch_issue(number, body, state).await?)
    }

    async fn comment(&self, on: u64, body: &str, marker: &str) -> Result<Comment, ForgeError> {
        self.create_comment(on, body, marker).await
    }

    async fn comments_since(&self, since: Timestamp) -> Result<Vec<Comment>, ForgeError> {
        Ok(self.list_comments(since).await?)
    }

    async fn react(&self, comment: u64, reaction: &str) -> Result<(), ForgeError> {
        self.add_reaction(comment, reaction).await
    }

    async fn permission(&self, login: &str) -> Result<Permission, ForgeError> {
        Ok(self.permission_of(login).await?)
    }

    async fn check_rights(&self, base: &str, issues: bool) -> Result<(), ForgeError> {
        self.probe(base, issues).await
    }

    async fn issue_edit(&self, number: u64) -> Result<Option<Edit>, ForgeError> {
        Ok(self.last_edit(number).await?)
    }

    async fn start_workflow(&self, workflow: &str, branch: &str) -> Result<(), ForgeError> {
        self.dispatch_workflow(workflow, branch, &[]).await
    }

    async fn code_scanning_alerts(&self, branch: &str) -> Result<serde_json::Value, ForgeError> {
        Ok(self.alerts_of(branch).await?)
    }

    async fn labelled_issues(&self, label: &str) -> Result<Vec<ReportedIssue>, ForgeError> {
        Ok(self.issues_labelled(label).await?)
    }

    async fn workflow_run_alive(&self, run: u64, attempt: u32) -> Alive {
        self.run_alive(run, attempt).await
    }
}
