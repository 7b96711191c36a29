//! A forge that reports its effects to the crash points.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::{
    Alive, Comment, Edit, Forge, ForgeError, Issue, NewPullRequest, Permission, PullRequest,
    PullRequestPatch, Reviews, State,
};
use crate::failpoint;
use crate::intake::ReportedIssue;
use crate::model::CiMode;

/// Reports every write that took effect; otherwise the forge inside.
pub struct Traced(pub Arc<dyn Forge>);

#[async_trait]
impl Forge for Traced {
    fn name(&self) -> String {
        self.0.name()
    }

    fn blob_url(&self) -> Option<String> {
        self.0.blob_url()
    }

    fn ci_mode(&self) -> CiMode {
        self.0.ci_mode()
    }

    fn is_written_by_hand(&self) -> bool {
        self.0.is_written_by_hand()
    }

    async fn pull_requests(&self, head_prefix: &str) -> Result<Vec<PullRequest>, ForgeError> {
        self.0.pull_requests(head_prefix).await
    }

    async fn find_pull_request(&self, number: u64) -> Result<Option<PullRequest>, ForgeError> {
        self.0.find_pull_request(number).await
    }

    async fn open_pull_request(&self, new: NewPullRequest) -> Result<PullRequest, ForgeError> {
        let opened = self.0.open_pull_request(new).await?;
        failpoint::reached("open pull request");
        Ok(opened)
    }

    async fn pull_requests_onto(&self, base_prefix: &str) -> Result<Vec<PullRequest>, ForgeError> {
        self.0.pull_requests_onto(base_prefix).await
    }

    async fn enable_auto_merge(&self, number: u64, head: &str) -> Result<(), ForgeError> {
        self.0.enable_auto_merge(number, head).await?;
        failpoint::reached("auto-merge");
        Ok(())
    }

    async fn reviews(&self, pulls: &[u64]) -> Result<Vec<Reviews>, ForgeError> {
        self.0.reviews(pulls).await
    }

    async fn update_pull_request(
        &self,
        number: u64,
        patch: PullRequestPatch,
    ) -> Result<PullRequest, ForgeError> {
        let updated = self.0.update_pull_request(number, patch).await?;
        failpoint::reached("update pull request");
        Ok(updated)
    }

    async fn find_issue(&self, marker: &str) -> Result<Option<Issue>, ForgeError> {
        self.0.find_issue(marker).await
    }

    async fn open_issue(
        &self,
        title: &str,
        body: &str,
        marker: &str,
        labels: &[String],
    ) -> Result<Issue, ForgeError> {
        let opened = self.0.open_issue(title, body, marker, labels).await?;
        failpoint::reached("open issue");
        Ok(opened)
    }

    async fn update_issue(
        &self,
        number: u64,
        body: Option<&str>,
        state: Option<State>,
    ) -> Result<Issue, ForgeError> {
        let updated = self.0.update_issue(number, body, state).await?;
        failpoint::reached("update issue");
        Ok(updated)
    }

    async fn comment(&self, on: u64, body: &str, marker: &str) -> Result<Comment, ForgeError> {
        let comment = self.0.comment(on, body, marker).await?;
        failpoint::reached("comment");
        Ok(comment)
    }

    async fn comments_since(&self, since: Timestamp) -> Result<Vec<Comment>, ForgeError> {
        self.0.comments_since(since).await
    }

    async fn react(&self, comment: u64, reaction: &str) -> Result<(), ForgeError> {
        self.0.react(comment, reaction).await?;
        failpoint::reached("reaction");
        Ok(())
    }

    async fn permission(&self, login: &str) -> Result<Permission, ForgeError> {
        self.0.permission(login).await
    }

    async fn check_rights(&self, base: &str, issues: bool) -> Result<(), ForgeError> {
        self.0.check_rights(base, issues).await
    }

    async fn issue_edit(&self, number: u64) -> Result<Option<Edit>, ForgeError> {
        self.0.issue_edit(number).await
    }

    async fn start_workflow(&self, workflow: &str, branch: &str) -> Result<(), ForgeError> {
        self.0.start_workflow(workflow, branch).await?;
        failpoint::reached("start workflow");
        Ok(())
    }

    async fn code_scanning_alerts(&self, branch: &str) -> Result<serde_json::Value, ForgeError> {
        self.0.code_scanning_alerts(branch).await
    }

    async fn labelled_issues(&self, label: &str) -> Result<Vec<ReportedIssue>, ForgeError> {
        self.0.labelled_issues(label).await
    }

    async fn workflow_run_alive(&self, run: u64, attempt: u32) -> Alive {
        self.0.workflow_run_alive(run, attempt).await
    }
}
