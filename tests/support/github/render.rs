//! The world's objects as GitHub's JSON: the published schema's shape with what the world knows.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::contract::Contract;
use super::world::{Comment, Issue, Pull, World};

fn shape(component: &str, own: Value) -> Value {
    Contract::get().shape(component, own)
}

/// Renders for one base address, e.g. `http://127.0.0.1:4000`.
pub struct Renderer<'a> {
    pub world: &'a World,
    pub server: &'a str,
    pub api: &'a str,
}

impl Renderer<'_> {
    pub fn user(&self, login: &str) -> Value {
        let user = self.world.users.get(login);
        let bot = user.map_or(login.ends_with("[bot]"), |user| user.bot);
        shape(
            "simple-user",
            json!({
                "login": login,
                "id": user.map_or(99, |user| user.id),
                "type": if bot { "Bot" } else { "User" },
                "html_url": format!("{}/{login}", self.server),
            }),
        )
    }

    /// Commands are never decided on this: it is wrong for private members of organisations.
    fn association(&self, login: &str) -> &'static str {
        match self.world.users.get(login).map(|user| user.role) {
            Some("admin") => "OWNER",
            Some("none") | None => "NONE",
            _ => "CONTRIBUTOR",
        }
    }

    fn labels(&self, labels: &[String]) -> Value {
        labels.iter().map(|name| self.label(name)).collect()
    }

    pub fn label(&self, name: &str) -> Value {
        shape("label", json!({"name": name, "description": "", "color": "ededed"}))
    }

    pub fn issue(&self, number: u64, issue: &Issue) -> Value {
        let kind = if issue.pull.is_some() { "pull" } else { "issues" };
        let mut own = json!({
            "id": 10_000 + number,
            "number": number,
            "title": issue.title,
            "body": issue.body,
            "state": state(issue.open),
            "locked": issue.locked,
            "user": self.user(&issue.author),
            "author_association": self.association(&issue.author),
            "labels": self.labels(&issue.labels),
            "created_at": issue.created,
            "updated_at": issue.updated,
            "closed_at": (!issue.open).then_some(issue.updated),
            "html_url": format!("{}/{}/{kind}/{number}", self.server, self.world.slug()),
            "url": format!("{}/repos/{}/issues/{number}", self.api, self.world.slug()),
        });
        if let Some(pull) = &issue.pull {
            own["pull_request"] = json!({
                "url": format!("{}/repos/{}/pulls/{number}", self.api, self.world.slug()),
                "html_url": own["html_url"], "diff_url": own["html_url"], "patch_url": own["html_url"],
                "merged_at": pull.merged.as_ref().map(|(at, _)| at),
            });
        }
        shape("issue", own)
    }

    pub fn pull(&self, number: u64, issue: &Issue, whole: bool) -> Value {
        let pull = issue.pull.as_ref().expect("a pull request");
        let mut own = json!({
            "id": 20_000 + number,
            "node_id": format!("PR_{number}"),
            "number": number,
            "title": issue.title,
            "body": issue.body,
            "state": state(issue.open),
            "locked": issue.locked,
            "draft": pull.draft,
            "user": self.user(&issue.author),
            "author_association": self.association(&issue.author),
            "labels": self.labels(&issue.labels),
            "created_at": issue.created,
            "updated_at": issue.updated,
            "closed_at": (!issue.open).then_some(issue.updated),
            "merged_at": pull.merged.as_ref().map(|(at, _)| at),
            // A trial merge as long as it is open.
            "merge_commit_sha": pull.merged.as_ref().map_or("7".repeat(40), |(_, c)| c.clone()),
            "html_url": format!("{}/{}/pull/{number}", self.server, self.world.slug()),
            "requested_reviewers":
                pull.reviewers.iter().map(|login| self.user(login)).collect::<Vec<_>>(),
            "head": self.end(pull, true, whole),
            "base": self.end(pull, false, whole),
        });
        if whole {
            own["merged"] = json!(pull.merged.is_some());
            own["mergeable_state"] = json!(pull.mergeable_state);
            own["commits"] = json!(self.world.git.ahead(&pull.base, &pull.head));
        }
        shape(if whole { "pull-request" } else { "pull-request-simple" }, own)
    }

    fn end(&self, pull: &Pull, head: bool, _whole: bool) -> Value {
        let (branch, sha) =
            if head { (&pull.head, &pull.head_commit) } else { (&pull.base, &pull.base_commit) };
        let full_name = match &pull.fork {
            Some(fork) if head => fork.clone(),
            _ => self.world.slug(),
        };
        let owner = full_name.split('/').next().unwrap_or_default();
        json!({
            "ref": branch,
            "sha": sha,
            "label": format!("{owner}:{branch}"),
            "user": self.user(owner),
            "repo": shape("repository", json!({
                "full_name": full_name, "name": self.world.name, "owner": self.user(owner),
            })),
        })
    }

    pub fn comment(&self, id: u64, comment: &Comment) -> Value {
        let slug = self.world.slug();
        shape(
            "issue-comment",
            json!({
                "id": id,
                "body": comment.body,
                "user": self.user(&comment.author),
                "author_association": self.association(&comment.author),
                "created_at": comment.created,
                "updated_at": comment.updated,
                "issue_url": format!("{}/repos/{slug}/issues/{}", self.api, comment.on),
                "html_url": format!("{}/{slug}/issues/{}#issuecomment-{id}", self.server, comment.on),
                "url": format!("{}/repos/{slug}/issues/comments/{id}", self.api),
            }),
        )
    }

    pub fn reaction(&self, id: usize, login: &str, content: &str) -> Value {
        shape("reaction", json!({"id": id, "user": self.user(login), "content": content}))
    }

    pub fn repository(&self) -> Value {
        let world = self.world;
        shape(
            "full-repository",
            json!({
                "name": world.name,
                "full_name": world.slug(),
                "owner": self.user(&world.owner),
                "default_branch": world.default_branch,
                "private": world.private,
                "archived": world.archived,
                "has_issues": world.has_issues,
            }),
        )
    }

    pub fn permission(&self, login: &str, role: &str) -> Value {
        // The older field knows four words only.
        let coarse = match role {
            "maintain" => "write",
            "triage" => "read",
            other => other,
        };
        let mut user = self.user(login);
        user["role_name"] = json!(role);
        let own = json!({"permission": coarse, "role_name": role, "user": user});
        shape("repository-collaborator-permission", own)
    }

    pub fn run(&self, id: u64, status: &str, attempt: u32) -> Value {
        let conclusion = (status == "completed").then_some("success");
        let own = json!({
            "id": id, "status": status, "conclusion": conclusion, "run_attempt": attempt,
        });
        shape("workflow-run", own)
    }

    pub fn branch_ref(&self, branch: &str, commit: &str) -> Value {
        let own = json!({
            "ref": format!("refs/heads/{branch}"),
            "object": {"type": "commit", "sha": commit.to_owned(), "url": self.api},
        });
        shape("git-ref", own)
    }

    pub fn installation(&self, id: u64) -> Value {
        shape("installation", json!({"id": id, "app_slug": "overhaul-app"}))
    }

    pub fn installation_token(&self, token: &str, expires: Timestamp) -> Value {
        shape("installation-token", json!({"token": token, "expires_at": expires}))
    }
}

fn state(open: bool) -> &'static str {
    if open { "open" } else { "closed" }
}
