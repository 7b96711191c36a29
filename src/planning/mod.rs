//! From findings to a validated plan. Pure and deterministic: the same findings, files and policy
//! give the same plan.

mod estimate;
mod group;
mod order;
mod place;
pub mod scope;
mod validate;
mod verify;

use std::collections::BTreeMap;

use crate::model::{
    Coverage, CoveragePlace, Finding, IdError, NodeId, Plan, RepoPath, Severity, VerifyCommand,
};

pub use validate::validate;
pub use verify::VERIFY_TIMEOUT_SECONDS;

/// One tracked file of the checkout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrackedFile {
    /// Where.
    pub path: RepoPath,
    /// How large.
    pub bytes: u64,
}

/// A build file of the checkout that tells how the code is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildFile {
    /// Where, e.g. `web/package.json`.
    pub path: RepoPath,
    /// Names of the scripts in a `package.json` that do something; empty for other build files.
    pub scripts: Vec<String>,
}

/// What planning knows of the checkout.
#[derive(Debug, Clone, Default)]
pub struct PlanContext {
    /// Every tracked file; `None` when no checkout is at hand (then nothing is dropped as missing).
    pub files: Option<Vec<TrackedFile>>,
    /// Build files, see [`is_build_file`].
    pub build_files: Vec<BuildFile>,
}

/// True for the name of a file that belongs in [`PlanContext::build_files`].
#[must_use]
pub fn is_build_file(path: &str) -> bool {
    verify::Language::of_build_file(path).is_some()
}

/// True for a build file that commands are detected for.
#[must_use]
pub fn tells_commands(build: &BuildFile) -> bool {
    let scripts = &build.scripts;
    !build.path.as_str().ends_with("package.json")
        || verify::SCRIPTS.iter().any(|known| scripts.iter().any(|script| script == known))
}

/// Which commands check which paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyRule {
    /// Globs of the paths it is for.
    pub paths: Vec<String>,
    /// What has to pass; none = these paths need no check.
    pub commands: Vec<VerifyCommand>,
}

/// What the repository wants of its plans.
#[derive(Debug, Clone)]
pub struct PlanPolicy {
    /// Globs that no node may write, besides the fixed ones ([`scope::ALWAYS_PROTECTED`]).
    pub protected: Vec<String>,
    /// Lockfiles may be written.
    pub allow_lockfiles: bool,
    /// Most findings in one node, at least 1.
    pub max_findings_per_node: usize,
    /// Largest prompt, tokens: the window of the largest pool.
    pub budget_tokens: u64,
    /// Findings below are dropped as filtered.
    pub min_severity: Severity,
    /// In order; every rule that fits counts. Where none fits, build files decide.
    pub verify: Vec<VerifyRule>,
}

impl Default for PlanPolicy {
    fn default() -> Self {
        Self {
            protected: Vec::new(),
            allow_lockfiles: false,
            max_findings_per_node: 8,
            budget_tokens: 128_000,
            min_severity: Severity::Info,
            verify: Vec::new(),
        }
    }
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A configured or planned glob is broken.
    #[error(transparent)]
    Glob(#[from] scope::GlobError),
    /// A finding or a node waits for one that is not there.
    #[error("{dependent} depends on '{missing}', which does not exist")]
    UnknownDependency {
        /// Who waits.
        dependent: String,
        /// For whom.
        missing: String,
    },
    /// More explicit dependencies than any real report has.
    #[error("the findings have more than {0} dependencies")]
    TooManyDependencies(usize),
    /// Nodes wait for each other.
    #[error("the dependencies form a cycle: {}", cycle.join(" -> "))]
    Cycle {
        /// The nodes in order; the first is repeated at the end.
        cycle: Vec<String>,
    },
    /// Two nodes or two findings with one id.
    #[error("the id {0} is used twice")]
    DuplicateId(String),
    /// A finding is nowhere, or in several places.
    #[error("finding {finding} is in {places}; each finding has exactly one place")]
    Coverage {
        /// The finding.
        finding: String,
        /// Where it is.
        places: String,
    },
    /// The coverage table does not add up.
    #[error("the coverage counts are wrong: {0}")]
    Counts(String),
    /// A node has nothing to do or nowhere to write.
    #[error("node {node} has no {what}")]
    Empty {
        /// The node.
        node: String,
        /// What it lacks.
        what: &'static str,
    },
    /// A node may write what needs a person.
    #[error("node {node} may write {path}, which is protected")]
    Protected {
        /// The node.
        node: String,
        /// The entry.
        path: String,
    },
    /// A node creates a file that it may not write.
    #[error("node {node} creates {path}, which is outside its write scope")]
    CreatesOutside {
        /// The node.
        node: String,
        /// The file.
        path: String,
    },
    /// A node has neither verify commands nor a reason for that.
    #[error("node {0} has no verify command, and that is not waived")]
    Unverified(String),
    /// Nodes that may write one file are not ordered.
    #[error("nodes {0} and {1} may write the same file, but neither waits for the other")]
    Unordered(String, String),
    /// A version of the format that we do not read.
    #[error("the plan has version {0}; version 1 is read")]
    Version(u32),
    /// More nodes than an id can count.
    #[error(transparent)]
    Id(#[from] IdError),
}

/// Makes the plan: places every finding, groups, splits, orders, and validates the result.
///
/// # Errors
/// When a dependency is unknown or cyclic, or a configured glob is broken.
pub fn plan(
    mut findings: Vec<Finding>,
    ctx: &PlanContext,
    policy: &PlanPolicy,
) -> Result<Plan, PlanError> {
    let checkout = estimate::Checkout::new(ctx);
    let protection = scope::Protection::new(&policy.protected, policy.allow_lockfiles)?;
    let works = place::place(&mut findings, &checkout, &protection, policy)?;
    let groups = group::group(works, &findings, &checkout, policy);
    let verify = verify::Verifier::new(ctx, policy)?;
    let nodes = order::order(groups, &findings, &checkout, &verify)?;
    let plan =
        Plan { version: 1, revision: 1, coverage: coverage(&findings, &nodes), findings, nodes };
    validate(&plan)?;
    Ok(plan)
}

fn coverage(findings: &[Finding], nodes: &[crate::model::Node]) -> Coverage {
    let home: BTreeMap<_, &NodeId> =
        nodes.iter().flat_map(|node| node.findings.iter().map(move |f| (f, &node.id))).collect();
    let mut places = BTreeMap::new();
    let mut in_nodes = 0;
    let mut dropped = 0;
    for finding in findings {
        if let Some(reason) = &finding.dropped {
            dropped += 1;
            places.insert(finding.id.clone(), CoveragePlace::Dropped(reason.clone()));
        } else if let Some(node) = home.get(&finding.id) {
            in_nodes += 1;
            places.insert(finding.id.clone(), CoveragePlace::Node((*node).clone()));
        }
    }
    Coverage { total: findings.len(), in_nodes, dropped, places }
}
