//! Issues and comments.

use futures_util::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::GitHub;
use super::call::{Call, Trouble};
use super::client::parse;
use super::dto::{CommentDto, IssueDto, User};
use super::text::{bounded, has_marker, marked};
use crate::forge::{Comment, ForgeError, Issue, State};
use crate::intake::ReportedIssue;

const READ: &str = "issues: read";
const WRITE: &str = "issues: write";
/// Pages of the last changed issues that are looked through: 1 000.
const ISSUE_PAGES: usize = 10;
/// Pages of comments read at once: 1 000; the rest is for the next cycle.
const COMMENT_PAGES: usize = 10;
/// Pages of one conversation: GitHub allows 2 500 comments.
const CONVERSATION_PAGES: usize = 25;

/// The reactions GitHub knows.
const REACTIONS: [&str; 8] = ["+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"];

impl GitHub {
    /// Whether an object with our marker can be ours: what a bot's token made, a bot made. Else
    /// anybody could plant a marker and have us write into an issue of theirs.
    fn may_be_ours(&self, author: &User) -> bool {
        !self.acts_as_bot() || author.is_bot()
    }

    fn list_issues(&self) -> Call {
        Call::get(self.path("issues"), "list issues", READ).on("the issues")
    }

    /// Looks through the last changed issues: ours change with every cycle. When there are more
    /// than a thousand and it is not among them, the search has to know.
    pub(super) async fn issue_with(&self, marker: &str) -> Result<Option<IssueDto>, Trouble> {
        let matches = |issue: &IssueDto| {
            issue.pull_request.is_none()
                && has_marker(&issue.body, marker)
                && self.may_be_ours(&issue.user)
        };
        let call = self
            .list_issues()
            .query("state", "all")
            .query("sort", "updated")
            .query("direction", "desc");
        let (mut issues, complete) = self
            .client
            .pages::<IssueDto>(&call, ISSUE_PAGES, |page| page.iter().any(matches))
            .await?;
        if !complete {
            issues.extend(self.search_issues(marker).await?);
        }
        issues.retain(matches);
        issues.sort_by_key(|issue| (issue.state == "closed", issue.number));
        Ok(issues.into_iter().next())
    }

    async fn search_issues(&self, marker: &str) -> Result<Vec<IssueDto>, Trouble> {
        #[derive(serde::Deserialize)]
        struct Hits {
            items: Vec<IssueDto>,
        }
        let words: String = marker.chars().filter(|c| *c != '"').collect();
        let (owner, repository) = (&self.settings.owner, &self.settings.repository);
        let query = format!("repo:{owner}/{repository} is:issue in:body \"{}\"", words.trim());
        let call = Call::get("/search/issues".to_owned(), "search issues", READ)
            .query("q", query)
            .query("per_page", "100")
            .on("the issues");
        Ok(self.client.object::<Hits>(&call).await?.items)
    }

    pub(super) async fn create_issue(
        &self,
        title: &str,
        body: &str,
        marker: &str,
        labels: &[String],
    ) -> Result<Issue, ForgeError> {
        let _one = self.creating.lock().await;
        if let Some(found) = self.issue_with(marker).await? {
            return Ok(found.into());
        }
        let content = json!({"title": title, "body": marked(body, marker)});
        let call =
            Call::post(self.path("issues"), content, "open an issue", WRITE).on("the issues");
        let issue = self.create(&call, || Box::pin(self.issue_with(marker))).await?;
        // On their own: an unknown label or a missing right to label must not lose the issue.
        self.add_labels(issue.number, labels, true).await;
        Ok(issue.into())
    }

    pub(super) async fn patch_issue(
        &self,
        number: u64,
        body: Option<&str>,
        state: Option<State>,
    ) -> Result<Issue, Trouble> {
        let subject = format!("issue {number}");
        let path = self.path(&format!("issues/{number}"));
        let mut content = serde_json::Map::new();
        if let Some(body) = body {
            content.insert("body".to_owned(), Value::String(bounded(body)));
        }
        if let Some(state) = state {
            content.insert("state".to_owned(), super::state_word(state).into());
        }
        let call = if content.is_empty() {
            Call::get(path, "read an issue", READ)
        } else {
            Call::patch(path, Value::Object(content), "change an issue", WRITE)
        };
        Ok(self.client.object::<IssueDto>(&call.on(subject)).await?.into())
    }

    /// Open issues that have the label, oldest first; pull requests are none.
    pub(super) async fn issues_labelled(&self, label: &str) -> Result<Vec<ReportedIssue>, Trouble> {
        let call = self
            .list_issues()
            .query("state", "open")
            .query("labels", label.to_owned())
            .query("sort", "created")
            .query("direction", "asc");
        let (issues, _) = self.client.pages::<IssueDto>(&call, ISSUE_PAGES, |_| false).await?;
        let issues = issues.into_iter().filter(|issue| issue.pull_request.is_none());
        Ok(issues.map(ReportedIssue::from).collect())
    }

    /// Adds labels to an issue or pull request: best effort.
    pub(super) async fn add_labels(&self, number: u64, labels: &[String], fresh: bool) {
        if labels.is_empty() {
            return;
        }
        let path = self.path(&format!("issues/{number}/labels"));
        let call = Call::post(path, json!({"labels": labels}), "add labels", WRITE)
            .on(format!("number {number}"))
            .repeatable();
        let call = if fresh { call.fresh() } else { call };
        if let Err(trouble) = self.client.send(&call).await {
            tracing::warn!("no labels for number {number}: {}", ForgeError::from(trouble));
        }
    }

    /// The comment with this marker in one conversation.
    async fn comment_with(&self, on: u64, marker: &str) -> Result<Option<CommentDto>, Trouble> {
        let matches = |comment: &CommentDto| {
            has_marker(&comment.body, marker) && self.may_be_ours(&comment.user)
        };
        let path = self.path(&format!("issues/{on}/comments"));
        let call = Call::get(path, "read comments", READ).on(format!("number {on}"));
        let (comments, complete) = self
            .client
            .pages::<CommentDto>(&call, CONVERSATION_PAGES, |page| page.iter().any(matches))
            .await?;
        match comments.into_iter().find(matches) {
            None if !complete => {
                let told = format!("number {on} has more comments than can be looked through");
                Err(Trouble::Ambiguous(told))
            }
            found => Ok(found),
        }
    }

    pub(super) async fn create_comment(
        &self,
        on: u64,
        body: &str,
        marker: &str,
    ) -> Result<Comment, ForgeError> {
        let _one = self.creating.lock().await;
        let comment = match self.comment_with(on, marker).await? {
            Some(found) => found,
            None => {
                let path = self.path(&format!("issues/{on}/comments"));
                let content = json!({"body": marked(body, marker)});
                let call =
                    Call::post(path, content, "comment", WRITE).on(format!("number {on}")).fresh();
                self.create(&call, || Box::pin(self.comment_with(on, marker))).await?
            }
        };
        comment
            .into_comment(Some(on))
            .ok_or_else(|| ForgeError::Unavailable("a comment that is on nothing".to_owned()))
    }

    pub(super) async fn list_comments(&self, since: Timestamp) -> Result<Vec<Comment>, Trouble> {
        // Whole seconds: what GitHub compares.
        let since = since.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let call = Call::get(self.path("issues/comments"), "read comments", READ)
            .query("sort", "updated")
            .query("direction", "asc")
            .query("since", since)
            .on("the comments");
        let (comments, _) =
            self.client.pages::<CommentDto>(&call, COMMENT_PAGES, |_| false).await?;
        let mut comments: Vec<Comment> =
            comments.into_iter().filter_map(|comment| comment.into_comment(None)).collect();
        comments.sort_by_key(|comment| (comment.updated_at, comment.id));
        // A comment edited between two pages is on both.
        comments.dedup_by_key(|comment| comment.id);
        Ok(comments)
    }

    pub(super) async fn add_reaction(
        &self,
        comment: u64,
        reaction: &str,
    ) -> Result<(), ForgeError> {
        if !REACTIONS.contains(&reaction) {
            return Err(ForgeError::Invalid(format!("{reaction:?} is no reaction of GitHub")));
        }
        let path = self.path(&format!("issues/comments/{comment}/reactions"));
        let call = Call::post(path, json!({"content": reaction}), "react to a comment", WRITE)
            .on(format!("comment {comment}"))
            .repeatable();
        self.client.send(&call).await?;
        Ok(())
    }

    /// Sends a call that creates something. After an unknown outcome it looks, several times
    /// because new objects show late, before it writes again.
    pub(super) async fn create<'a, T, F>(&self, call: &Call, find: F) -> Result<T, Trouble>
    where
        T: serde::de::DeserializeOwned,
        F: Fn() -> BoxFuture<'a, Result<Option<T>, Trouble>> + Sync,
    {
        /// Writes of one creation.
        const WRITES: u32 = 3;
        /// Looks after each unknown outcome.
        const LOOKS: u32 = 2;
        let (mut writes, mut waits) = (0, 0);
        loop {
            writes += 1;
            let outcome = match self.client.send(call).await {
                Ok(answer) => parse(call, &answer),
                Err(trouble) => Err(trouble),
            };
            let Err(Trouble::Ambiguous(told)) = outcome else { return outcome };
            tracing::warn!("unknown whether it worked to {}: {told}", call.action);
            for _ in 0..LOOKS {
                self.client.back_off(&mut waits).await;
                if let Some(found) = find().await? {
                    return Ok(found);
                }
            }
            if writes == WRITES {
                return Err(Trouble::Ambiguous(told));
            }
        }
    }
}
