//! The sections of `overhaul.yml` and their defaults.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Dial, HumanDuration};
use crate::model::Severity;

/// One source of findings: exactly one of `file`, `intent`, `code-scanning` and `issues`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct FindingsSource {
    /// A SARIF or audit-findings file, relative to the repository's root.
    pub file: Option<String>,
    /// The file's format.
    pub format: FindingsFormat,
    /// Prefix that the tool put before paths and that is not in the repository.
    pub source_root: Option<String>,
    /// One sentence: what to do.
    pub intent: Option<String>,
    /// Open code-scanning alerts of the repository.
    pub code_scanning: Option<CodeScanning>,
    /// Open issues with a label.
    pub issues: Option<Issues>,
    /// A command that prints findings (SARIF on standard output): the proof that a finding of this
    /// source is gone. `{paths}` stands for the touched paths, one argument each.
    pub recheck: Vec<String>,
}

/// What a findings source is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// A file.
    File(&'a str),
    /// A sentence.
    Intent(&'a str),
    /// Code-scanning alerts.
    CodeScanning(&'a CodeScanning),
    /// Labelled issues.
    Issues(&'a Issues),
}

impl FindingsSource {
    /// What this source is; `None` only for a source that was not checked by `Config::load`.
    #[must_use]
    pub fn origin(&self) -> Option<Origin<'_>> {
        let mut all = self.origins();
        if all.len() == 1 { all.pop() } else { None }
    }

    /// By what findings of this source are known as its own, so that its re-check proves them.
    #[must_use]
    pub fn key(&self) -> Option<String> {
        match self.origin()? {
            Origin::File(file) => Some(file.to_owned()),
            Origin::CodeScanning(_) => Some("code-scanning".to_owned()),
            Origin::Issues(issues) => Some(format!("issues:{}", issues.label)),
            Origin::Intent(_) => None,
        }
    }

    /// Everything this source claims to be.
    pub(super) fn origins(&self) -> Vec<Origin<'_>> {
        [
            self.file.as_deref().map(Origin::File),
            self.intent.as_deref().map(Origin::Intent),
            self.code_scanning.as_ref().map(Origin::CodeScanning),
            self.issues.as_ref().map(Origin::Issues),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The format of a findings file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FindingsFormat {
    /// From the content.
    #[default]
    Auto,
    /// SARIF 2.1.0.
    Sarif,
    /// Audit findings JSON.
    Audit,
}

/// Code-scanning alerts as findings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct CodeScanning {
    /// Leave out alerts below this.
    pub min_severity: Option<Severity>,
}

/// Issues as findings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Issues {
    /// The label an issue must carry.
    pub label: String,
}

/// How findings become nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Planning {
    /// Most findings of one node.
    pub max_findings_per_node: u32,
    /// Most nodes of one plan; the rest waits for the next run. No limit where absent.
    pub max_nodes: Option<u32>,
    /// Leave out findings below this.
    pub min_severity: Option<Severity>,
    /// May nodes change lockfiles?
    pub allow_lockfiles: bool,
}

impl Default for Planning {
    fn default() -> Self {
        Self {
            max_findings_per_node: 8,
            max_nodes: None,
            min_severity: None,
            allow_lockfiles: false,
        }
    }
}

/// How nodes meet pools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Dispatch {
    /// `cost`, `speed`, or a number between: 0 = cheapest first, 1 = fastest first.
    pub dial: Dial,
    /// Most attempts at once in this process.
    pub concurrent: u32,
    /// How long one cycle may take. Where absent, the job's own limit less a reserve.
    pub time_budget: Option<HumanDuration>,
    /// How long one attempt may take.
    pub attempt_timeout: HumanDuration,
    /// May `subprocess-template` and `worker-command` pools run in this process?
    pub command_workers: bool,
    /// Ceilings; reaching one pauses the run.
    pub budget: Budget,
    /// Attempts per node before it has failed.
    pub max_attempts: MaxAttempts,
    /// How long a claim lives without a sign of life.
    pub lease: HumanDuration,
    /// Whether a cycle whose time is up starts the next one.
    pub continuation: Continuation,
}

impl Default for Dispatch {
    fn default() -> Self {
        Self {
            dial: Dial::default(),
            concurrent: 8,
            time_budget: None,
            attempt_timeout: HumanDuration::minutes(20),
            command_workers: false,
            budget: Budget::default(),
            max_attempts: MaxAttempts::default(),
            lease: HumanDuration::minutes(45),
            continuation: Continuation::None,
        }
    }
}

/// What starts the next cycle when ready work is left at the deadline.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Continuation {
    /// The schedule, or a person.
    #[default]
    None,
    /// This cycle: it starts its own workflow again. Needs `actions: write` and `on:
    /// workflow_dispatch` in the workflow.
    WorkflowDispatch,
}

/// Ceilings in money, tokens and requests; none where absent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Budget {
    /// US dollars of the whole run.
    #[schemars(range(min = 0))]
    pub usd: Option<f64>,
    /// Tokens (input + output) of the whole run.
    pub tokens: Option<u64>,
    /// Requests of the whole run.
    pub requests: Option<u64>,
    /// US dollars of one cycle.
    #[schemars(range(min = 0))]
    pub cycle_usd: Option<f64>,
    /// Tokens of one cycle.
    pub cycle_tokens: Option<u64>,
    /// Requests of one cycle.
    pub cycle_requests: Option<u64>,
    /// US dollars of one node, all its attempts.
    #[schemars(range(min = 0))]
    pub node_usd: Option<f64>,
    /// Tokens of one node, all its attempts.
    pub node_tokens: Option<u64>,
    /// Requests of one node, all its attempts.
    pub node_requests: Option<u64>,
    /// US dollars of one attempt.
    #[schemars(range(min = 0))]
    pub attempt_usd: Option<f64>,
    /// Tokens of one attempt; where absent, twenty times what the node is estimated at, and 200 000
    /// at least.
    pub attempt_tokens: Option<u64>,
    /// Requests of one attempt.
    #[schemars(range(min = 1))]
    pub attempt_requests: u32,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            usd: None,
            tokens: None,
            requests: None,
            cycle_usd: None,
            cycle_tokens: None,
            cycle_requests: None,
            node_usd: None,
            node_tokens: None,
            node_requests: None,
            attempt_usd: None,
            attempt_tokens: None,
            attempt_requests: 60,
        }
    }
}

/// Attempts per node, by whose fault the failure was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct MaxAttempts {
    /// Attempts that ended without an acceptable change.
    #[schemars(range(min = 1))]
    pub contract: u32,
    /// Attempts that the network, the backend or the machine ended.
    #[schemars(range(min = 1))]
    pub infrastructure: u32,
}

impl Default for MaxAttempts {
    fn default() -> Self {
        Self { contract: 2, infrastructure: 5 }
    }
}

/// What must pass before a change is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Verify {
    /// The repository's own commands.
    pub commands: Vec<VerifyRule>,
    /// Add commands for detected build files where no configured one applies.
    pub detect: bool,
    /// Why nodes without any verify command are fine. Without a reason they are worked on all the
    /// same, and never silently: `doctor`, `next-step` and `status` warn, and their pull requests say
    /// that no command verified them.
    pub waive: Option<String>,
    /// Run a failed command once more, and record it as flaky when it then passes.
    pub flaky_retry: bool,
    /// May the commands, and re-checks, connect to anything by TCP, this machine included?
    pub network: bool,
}

impl Default for Verify {
    fn default() -> Self {
        Self { commands: Vec::new(), detect: true, waive: None, flaky_retry: true, network: false }
    }
}

/// One verify command and the paths it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct VerifyRule {
    /// Short and unique; workers may ask for the command by it.
    pub name: String,
    /// Program and arguments; no shell.
    #[schemars(length(min = 1))]
    pub argv: Vec<String>,
    /// How long it may take.
    #[serde(default = "ten_minutes")]
    pub timeout: HumanDuration,
    /// Only for nodes that may write one of these globs; all nodes where empty.
    #[serde(default)]
    pub paths: Vec<String>,
}

fn ten_minutes() -> HumanDuration {
    HumanDuration::minutes(10)
}

impl VerifyRule {
    /// The command without its paths.
    #[must_use]
    pub fn command(&self) -> crate::model::VerifyCommand {
        crate::model::VerifyCommand {
            name: self.name.clone(),
            argv: self.argv.clone(),
            timeout_seconds: self.timeout.as_secs().max(1),
        }
    }
}

/// What a change may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Policy {
    /// Globs that no node may write, beside the built-in ones (`.github/**`, CODEOWNERS, lockfiles).
    pub protected: Vec<String>,
    /// Globs that are allowed although they are protected. `.git` internals never are.
    pub allow: Vec<String>,
    /// What happens to a change outside the node's write scope.
    pub scope_amend: ScopeAmend,
    /// Largest file a change may add or leave, in bytes.
    #[schemars(range(min = 1))]
    pub max_file_bytes: u64,
    /// How much one attempt may make its worktree and home grow on disk, in bytes.
    #[schemars(range(min = 1))]
    pub max_worker_disk_bytes: u64,
    /// What happens when a re-check shows new findings in the touched files.
    pub new_findings: NewFindings,
    /// When nodes that depend on another may start.
    pub dependencies: Dependencies,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            protected: Vec::new(),
            allow: Vec::new(),
            scope_amend: ScopeAmend::Refuse,
            max_file_bytes: 1024 * 1024,
            // The build folder of a large project fits; a runaway loop does not fill the machine.
            max_worker_disk_bytes: 4 << 30,
            new_findings: NewFindings::Report,
            dependencies: Dependencies::Accepted,
        }
    }
}

/// What happens to a change outside the write scope.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ScopeAmend {
    /// The attempt is refused.
    #[default]
    Refuse,
    /// The scope grows, when no other unfinished node owns the path.
    Amend,
}

/// What happens when a re-check shows new findings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NewFindings {
    /// The attempt is refused.
    Refuse,
    /// They are reported.
    #[default]
    Report,
}

/// When nodes that depend on another may start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dependencies {
    /// When it is accepted; their pull requests are stacked.
    #[default]
    Accepted,
    /// When its pull request is merged.
    Landed,
}

/// How accepted nodes become pull requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct PullRequests {
    /// One per node, or one for the run.
    pub mode: PullRequestMode,
    /// Labels to put on them.
    pub labels: Vec<String>,
    /// Reviewers to ask: logins, or `org/team`.
    pub reviewers: Vec<String>,
    /// Open them as drafts.
    pub draft: bool,
    /// Turn on auto-merge.
    pub auto_merge: bool,
    /// When a branch is rebuilt on a base that moved. One that a person pushed to never is.
    pub rebuild: Rebuild,
    /// Most open at once; accepted nodes wait for room.
    #[schemars(range(min = 1))]
    pub max_open: u32,
    /// First part of every branch name.
    pub branch_prefix: String,
    /// Delete node branches when the run closes.
    pub delete_branches: bool,
}

impl Default for PullRequests {
    fn default() -> Self {
        Self {
            mode: PullRequestMode::PerNode,
            labels: vec!["overhaul".to_owned()],
            reviewers: Vec::new(),
            draft: false,
            auto_merge: false,
            rebuild: Rebuild::Conflicted,
            max_open: 10,
            branch_prefix: "overhaul".to_owned(),
            delete_branches: true,
        }
    }
}

/// One pull request per node, or one for the run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PullRequestMode {
    /// One per accepted node.
    #[default]
    PerNode,
    /// One for all.
    Single,
}

/// When a branch is rebuilt on a base that moved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Rebuild {
    /// When it no longer merges, or what it is stacked on changed or landed.
    #[default]
    Conflicted,
    /// Whenever its base moved.
    Behind,
    /// By people only.
    Never,
}

/// Where a pause is announced.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pauses {
    /// On the dashboard issue, with one comment when it begins.
    #[default]
    Dashboard,
    /// In an issue per cause.
    Issue,
}

/// Comment commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Commands {
    /// First word of a command.
    pub prefix: String,
    /// The least permission of who commands.
    pub permission: Permission,
    /// Ceilings against storms.
    pub fuse: Fuse,
}

impl Default for Commands {
    fn default() -> Self {
        Self {
            prefix: "/overhaul".to_owned(),
            permission: Permission::Write,
            fuse: Fuse::default(),
        }
    }
}

/// A collaborator's permission on the repository, as the API names it. Ordered.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Permission {
    /// Push.
    #[default]
    Write,
    /// Manage without administration.
    Maintain,
    /// Everything.
    Admin,
}

/// Ceilings of commands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Fuse {
    /// Commands of one person in an hour.
    #[schemars(range(min = 1))]
    pub commands_per_hour: u32,
    /// Cycles that comments start in an hour.
    #[schemars(range(min = 1))]
    pub cycles_per_hour: u32,
}

impl Default for Fuse {
    fn default() -> Self {
        Self { commands_per_hour: 30, cycles_per_hour: 20 }
    }
}

/// What people see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Report {
    /// Keep a dashboard issue per run.
    pub dashboard: bool,
    /// Title of the dashboard issue, before the id of its run.
    pub title: String,
    /// Write the HTML report when the run closes.
    pub html: bool,
    /// Ceilings of what we write.
    pub noise: Noise,
}

impl Default for Report {
    fn default() -> Self {
        Self {
            dashboard: true,
            title: "Overhaul dashboard".to_owned(),
            html: false,
            noise: Noise::default(),
        }
    }
}

/// Ceilings of what we write where people are notified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Noise {
    /// Comments in a day.
    pub comments_per_day: u32,
    /// Issues in a day.
    pub issues_per_day: u32,
    /// Pull requests in a day.
    #[schemars(range(min = 1))]
    pub pull_requests_per_day: u32,
    /// Pull requests in an hour.
    #[schemars(range(min = 1))]
    pub pull_requests_per_hour: u32,
}

impl Default for Noise {
    fn default() -> Self {
        Self {
            comments_per_day: 50,
            issues_per_day: 5,
            pull_requests_per_day: 40,
            pull_requests_per_hour: 20,
        }
    }
}
