//! People, workflow runs, alerts: what the repository knows besides issues and pull requests.

use serde::Deserialize;
use serde_json::{Value, json};

use super::GitHub;
use super::call::{Call, Trouble, segment};
use super::dto::{Access, Run};
use super::sarif;
use crate::forge::{Alive, ForgeError, Permission};

/// Pages of code-scanning alerts: 5 000.
const ALERT_PAGES: usize = 50;

/// What the repository is and which rights there are, asked before anything is paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Its branch for merges.
    pub default_branch: String,
    /// Read-only for everybody.
    pub archived: bool,
    /// Without issues there is no dashboard.
    pub has_issues: bool,
    /// Visible to everybody.
    pub public: bool,
}

impl GitHub {
    /// Looks at the repository: the first call to make, and the one that tells a bad token.
    ///
    /// # Errors
    /// As any call; [`ForgeError::NotFound`] when the token cannot see it.
    pub async fn standing(&self) -> Result<Standing, ForgeError> {
        #[derive(Deserialize)]
        struct Repository {
            default_branch: String,
            #[serde(default)]
            archived: bool,
            #[serde(default)]
            has_issues: bool,
            #[serde(default)]
            private: bool,
        }
        let call = Call::get(self.client.repository_path(), "look at it", "metadata: read")
            .on(format!("repository {}", self.slug()));
        let found: Repository = self.client.object(&call).await?;
        Ok(Standing {
            default_branch: found.default_branch,
            archived: found.archived,
            has_issues: found.has_issues,
            public: !found.private,
        })
    }

    /// Asks for things that can't be made: who may not make them is told so first. GitHub says
    /// nowhere else what a job's token may do.
    pub(super) async fn probe(&self, base: &str, issues: bool) -> Result<(), ForgeError> {
        let nothing = json!({"title": "x", "head": "overhaul/no-such-branch", "base": base});
        let pull =
            Call::post(self.path("pulls"), nothing, "open pull requests", "pull-requests: write");
        self.probe_one(&pull.on("the pull requests")).await?;
        if issues {
            let issue = Call::post(
                self.path("issues"),
                json!({"title": ""}),
                "open issues",
                "issues: write",
            );
            self.probe_one(&issue.on("the issues")).await?;
        }
        Ok(())
    }

    async fn probe_one(&self, call: &Call) -> Result<(), ForgeError> {
        match self.client.send(call).await {
            Err(Trouble::Refused(refusal))
                if refusal.status == 401
                    || (refusal.status == 403 && refusal.said.has("not accessible")) =>
            {
                Err(Trouble::Refused(refusal).into())
            }
            Err(Trouble::Limited { until, message }) => Err(ForgeError::Limited { until, message }),
            // Issues that are turned off, the setting about pull requests: told, and work goes on.
            Err(Trouble::Refused(refusal)) if refusal.status != 422 => {
                let error = ForgeError::from(Trouble::Refused(refusal));
                tracing::warn!("{error}");
                Ok(())
            }
            // 422, as it should be; trouble is for the call that matters.
            _ => Ok(()),
        }
    }

    pub(super) async fn permission_of(&self, login: &str) -> Result<Permission, Trouble> {
        if login.trim().is_empty() {
            return Ok(Permission::None);
        }
        let path = self.path(&format!("collaborators/{}/permission", segment(login)));
        let call = Call::get(path, "ask for a person's permission", "metadata: read")
            .on(format!("user {login}"));
        let access: Access = match self.client.object(&call).await {
            Err(Trouble::Refused(refusal)) if refusal.status == 404 => return Ok(Permission::None),
            other => other?,
        };
        // A custom role has a name of its own; then the base it is built on counts.
        Ok(rank(&access.role_name).or_else(|| rank(&access.permission)).unwrap_or(Permission::None))
    }

    pub(super) async fn run_alive(&self, run: u64, attempt: u32) -> Alive {
        let path = self.path(&format!("actions/runs/{run}"));
        let call = Call::get(path, "look at a workflow run", "actions: read")
            .on(format!("workflow run {run}"));
        match self.client.object::<Run>(&call).await {
            // Re-running starts a new attempt once the one before has ended.
            Ok(found) if found.run_attempt > attempt => Alive::No,
            Ok(found) if found.run_attempt == attempt => match found.status.as_str() {
                "completed" => Alive::No,
                "queued" | "in_progress" | "waiting" | "pending" | "requested" => Alive::Yes,
                _ => Alive::Unknown,
            },
            // 404 also for want of permission, or of another repository's run.
            Ok(_) | Err(_) => Alive::Unknown,
        }
    }

    /// Starts a workflow, for a run that goes on at once. Events of `GITHUB_TOKEN` start none
    /// except this one. Never repeated after an unknown outcome: a second start costs money, a
    /// missed one only waits for the schedule.
    ///
    /// # Errors
    /// As any call; needs `actions: write`.
    pub async fn dispatch_workflow(
        &self,
        workflow: &str,
        branch: &str,
        inputs: &[(String, String)],
    ) -> Result<(), ForgeError> {
        let inputs: serde_json::Map<String, Value> =
            inputs.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        let path = self.path(&format!("actions/workflows/{}/dispatches", segment(workflow)));
        let content = json!({"ref": branch, "inputs": inputs});
        let call = Call::post(path, content, "start a workflow", "actions: write")
            .on(format!("workflow {workflow}"));
        self.client.send(&call).await?;
        Ok(())
    }

    /// The open code-scanning alerts of a branch as one SARIF document, the shape that findings
    /// come in. A repository that was never scanned has none.
    pub(super) async fn alerts_of(&self, branch: &str) -> Result<Value, Trouble> {
        let call = Call::get(
            self.path("code-scanning/alerts"),
            "read code-scanning alerts",
            "security-events: read",
        )
        .query("state", "open")
        .query("ref", format!("refs/heads/{branch}"))
        .on("the code-scanning alerts");
        let alerts = match self.client.pages::<Value>(&call, ALERT_PAGES, |_| false).await {
            Err(Trouble::Refused(refusal))
                if refusal.status == 404 && refusal.said.has("no analysis found") =>
            {
                Vec::new()
            }
            other => other?.0,
        };
        Ok(sarif::from_alerts(&alerts))
    }
}

fn rank(name: &str) -> Option<Permission> {
    Some(match name {
        "none" => Permission::None,
        "read" => Permission::Read,
        "triage" => Permission::Triage,
        "write" => Permission::Write,
        "maintain" => Permission::Maintain,
        "admin" => Permission::Admin,
        _ => return None,
    })
}
