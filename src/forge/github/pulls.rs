//! Pull requests.

use serde_json::{Value, json};

use super::GitHub;
use super::call::{Call, Refusal, Trouble, segments};
use super::client::parse;
use super::dto::Pull;
use super::text::{bounded, has_marker, marked};
use crate::forge::{ForgeError, NewPullRequest, PullRequest, PullRequestPatch, State};

const READ: &str = "pull-requests: read";
const WRITE: &str = "pull-requests: write";
/// Pages of the newest pull requests that are looked through: 1 000.
const PAGES: usize = 10;
/// Times a creation is tried when its branch, pushed a moment ago, is not seen yet.
const UNSEEN_HEADS: u32 = 3;

impl GitHub {
    /// One pull request.
    ///
    /// # Errors
    /// As any call; [`ForgeError::NotFound`] when there is none.
    pub async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError> {
        Ok(self.client.object::<Pull>(&self.pull_call(number)).await?.into())
    }

    fn pull_call(&self, number: u64) -> Call {
        Call::get(self.path(&format!("pulls/{number}")), "read a pull request", READ)
            .on(format!("pull request {number}"))
    }

    fn list_pulls(&self) -> Call {
        Call::get(self.path("pulls"), "list pull requests", READ).on("the pull requests")
    }

    /// All of the newest thousand, whatever their state, then all open ones if there are more:
    /// nothing that can still change is missed.
    pub(super) async fn pulls_with_prefix(
        &self,
        head_prefix: &str,
    ) -> Result<Vec<PullRequest>, Trouble> {
        let recent = self
            .list_pulls()
            .query("state", "all")
            .query("sort", "updated")
            .query("direction", "desc");
        let (mut all, complete) = self.client.pages::<Pull>(&recent, PAGES, |_| false).await?;
        if !complete {
            let open = self.list_pulls().query("state", "open");
            all.extend(self.client.pages::<Pull>(&open, PAGES, |_| false).await?.0);
        }
        all.retain(|pull| pull.is_internal() && pull.head.branch.starts_with(head_prefix));
        all.sort_by_key(|pull| pull.number);
        all.dedup_by_key(|pull| pull.number);
        Ok(all.into_iter().map(PullRequest::from).collect())
    }

    /// The pull request of this head. An open one is ours even without the marker: the branch is,
    /// and somebody may have opened it by the compare link. A finished one only for the same
    /// commit: new work on an old branch name is a new pull request.
    async fn find_pull(&self, new: &NewPullRequest) -> Result<Option<Pull>, Trouble> {
        let call = self
            .list_pulls()
            .query("state", "all")
            .query("head", format!("{}:{}", self.settings.owner, new.head));
        let (found, _) = self.client.pages::<Pull>(&call, 2, |_| false).await?;
        let mut found: Vec<Pull> = found
            .into_iter()
            .filter(|pull| pull.is_internal() && pull.head.branch == new.head)
            .collect();
        found.sort_by_key(|pull| (pull.state != "open", std::cmp::Reverse(pull.number)));
        Ok(found.into_iter().find(|pull| {
            pull.state == "open"
                || (pull.head.sha == new.head_commit && has_marker(&pull.body, &new.marker))
        }))
    }

    pub(super) async fn open_pull(&self, new: NewPullRequest) -> Result<PullRequest, ForgeError> {
        let _one = self.creating.lock().await;
        let body = marked(&new.body, &new.marker);
        if let Some(found) = self.find_pull(&new).await? {
            return self.bring_up_to_date(found, &new, &body).await;
        }
        let pull = self.create_pull(&new, &body).await?;
        self.dress(&pull, &new).await;
        Ok(pull.into())
    }

    /// A found pull request with title, body and base as wanted; a finished one is left alone.
    async fn bring_up_to_date(
        &self,
        found: Pull,
        new: &NewPullRequest,
        body: &str,
    ) -> Result<PullRequest, ForgeError> {
        if found.state != "open" {
            return Ok(found.into());
        }
        let same_body = found.body.replace("\r\n", "\n").trim_end() == body.trim_end();
        let patch = PullRequestPatch {
            title: (found.title != new.title).then(|| new.title.clone()),
            body: (!same_body).then(|| body.to_owned()),
            base: (found.base.branch != new.base).then(|| new.base.clone()),
            state: None,
        };
        let number = found.number;
        let there = PullRequest::from(found);
        let missing: Vec<String> =
            new.labels.iter().filter(|label| !there.labels.contains(label)).cloned().collect();
        self.add_labels(number, &missing, false).await;
        if patch == PullRequestPatch::default() {
            return Ok(there);
        }
        Ok(self.patch_pull(number, patch).await?)
    }

    async fn create_pull(&self, new: &NewPullRequest, body: &str) -> Result<Pull, ForgeError> {
        let mut draft = new.draft;
        let mut unseen = 0;
        loop {
            let content = json!({
                "title": new.title, "body": body, "head": new.head, "base": new.base, "draft": draft,
            });
            let call = Call::post(self.path("pulls"), content, "open a pull request", WRITE)
                .on(format!("branch {}", new.head));
            let trouble = match self.create(&call, || Box::pin(self.find_pull(new))).await {
                Ok(pull) => return Ok(pull),
                Err(trouble) => trouble,
            };
            let Trouble::Refused(refusal) = trouble else { return Err(trouble.into()) };
            let said = &refusal.said;
            if refusal.status == 422 && said.has("already exists") {
                if let Some(found) = self.find_pull(new).await? {
                    return Ok(found);
                }
            } else if refusal.status == 422 && draft && said.has("draft") {
                // Private repositories of free plans have no drafts.
                draft = false;
                continue;
            } else if refusal.status != 422 || !said.names("head", "invalid") {
                return Err(self.no_pull(refusal, new));
            }
            if unseen == UNSEEN_HEADS {
                return Err(self.no_pull(refusal, new));
            }
            self.client.back_off(&mut unseen).await;
        }
    }

    /// A refused creation keeps the work: the branch is there and the link opens it by hand.
    fn no_pull(&self, refusal: Box<Refusal>, new: &NewPullRequest) -> ForgeError {
        let link = self.compare_link(&new.base, &new.head);
        if refusal.said.has("not permitted to create or approve pull requests") {
            return ForgeError::Forbidden {
                action: refusal.action.to_owned(),
                message: refusal.said.message,
                remedy: format!(
                    "turn on \"Allow GitHub Actions to create and approve pull requests\" under \
                     Settings, Actions, General (of the organisation first, if it is greyed out), \
                     or give an app's credentials; until then open it by hand: {link}"
                ),
            };
        }
        match ForgeError::from(Trouble::Refused(refusal)) {
            ForgeError::Invalid(message) => {
                ForgeError::Invalid(format!("{message}; the branch is kept: {link}"))
            }
            ForgeError::Forbidden { action, message, remedy } => ForgeError::Forbidden {
                action,
                message,
                remedy: format!("{remedy}; until then open it by hand: {link}"),
            },
            other => other,
        }
    }

    /// Labels and reviewers: best effort, they never fail the work.
    async fn dress(&self, pull: &Pull, new: &NewPullRequest) {
        self.add_labels(pull.number, &new.labels, true).await;
        if new.reviewers.is_empty() {
            return;
        }
        let (teams, people): (Vec<&String>, Vec<&String>) =
            new.reviewers.iter().partition(|name| name.contains('/'));
        let teams: Vec<&str> = teams.iter().filter_map(|t| t.split('/').next_back()).collect();
        let call = Call::post(
            self.path(&format!("pulls/{}/requested_reviewers", pull.number)),
            json!({"reviewers": people, "team_reviewers": teams}),
            "ask for reviews",
            WRITE,
        );
        let call = call.on(format!("pull request {}", pull.number)).repeatable().fresh();
        if let Err(trouble) = self.client.send(&call).await {
            let error = ForgeError::from(trouble);
            tracing::warn!("no reviewers for pull request {}: {error}", pull.number);
        }
    }

    pub(super) async fn patch_pull(
        &self,
        number: u64,
        patch: PullRequestPatch,
    ) -> Result<PullRequest, Trouble> {
        let mut content = serde_json::Map::new();
        let mut set = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                content.insert(name.to_owned(), Value::String(value));
            }
        };
        set("title", patch.title);
        set("body", patch.body.as_deref().map(bounded));
        set("base", patch.base);
        set("state", patch.state.map(|state| super::state_word(state).to_owned()));
        if content.is_empty() {
            return Ok(self.client.object::<Pull>(&self.pull_call(number)).await?.into());
        }
        let path = self.path(&format!("pulls/{number}"));
        let call = Call::patch(path, Value::Object(content), "change a pull request", WRITE)
            .on(format!("pull request {number}"));
        let answer = self.client.send(&call).await?;
        Ok(parse::<Pull>(&call, &answer)?.into())
    }

    /// Open ones of anybody, forks too, onto our branches.
    pub(super) async fn open_pulls_onto(
        &self,
        base_prefix: &str,
    ) -> Result<Vec<PullRequest>, Trouble> {
        let open = self.list_pulls().query("state", "open");
        let (mut found, _) = self.client.pages::<Pull>(&open, PAGES, |_| false).await?;
        found.retain(|pull| pull.base.branch.starts_with(base_prefix));
        Ok(found.into_iter().map(PullRequest::from).collect())
    }

    /// Auto-merge exists in GraphQL only. GitHub refuses it where the head is another one by now.
    pub(super) async fn auto_merge(&self, number: u64, head: &str) -> Result<(), ForgeError> {
        const TURN_ON: &str = "mutation($id: ID!, $head: GitObjectID!) { \
             enablePullRequestAutoMerge(input: {pullRequestId: $id, expectedHeadOid: $head}) { \
             clientMutationId } }";
        let pull = self.client.object::<Pull>(&self.pull_call(number)).await?;
        let variables = json!({"id": pull.node_id, "head": head});
        let call = Call::graphql(TURN_ON, variables, "turn on auto-merge", WRITE)
            .on(format!("pull request {number}"));
        let answer = self.client.send(&call).await?;
        let answer: Value = parse(&call, &answer)?;
        let told = answer.get("errors").and_then(Value::as_array);
        let told = told.into_iter().flatten().filter_map(|e| e.get("message")?.as_str());
        let told: Vec<&str> = told.take(3).collect();
        if told.is_empty() {
            return Ok(());
        }
        let told: String = told.join("; ").chars().take(300).collect();
        if told.contains("not allowed for this repository") {
            return Err(ForgeError::Forbidden {
                action: "turn on auto-merge".to_owned(),
                message: told,
                remedy: "turn on \"Allow auto-merge\" under Settings, General".to_owned(),
            });
        }
        Err(ForgeError::Invalid(told))
    }

    /// Where a person opens the pull request by hand.
    #[must_use]
    pub fn compare_link(&self, base: &str, head: &str) -> String {
        let base = segments(base);
        format!("{}/compare/{base}...{}?expand=1", self.web(), segments(head))
    }

    /// The repository's page.
    pub(super) fn web(&self) -> String {
        let settings = &self.settings;
        let server = settings.server_url.as_str().trim_end_matches('/');
        format!("{server}/{}/{}", settings.owner, settings.repository)
    }

    /// Refuses a state that only merging reaches.
    pub(super) fn settable(state: Option<State>) -> Result<(), ForgeError> {
        match state {
            Some(State::Merged) => {
                Err(ForgeError::Invalid("nothing is merged by setting its state".to_owned()))
            }
            _ => Ok(()),
        }
    }
}
