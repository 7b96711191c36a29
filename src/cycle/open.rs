//! From the configured findings to an open run with a plan.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::BaseHead;
use super::error::blocking;
use super::proof::SOURCE_KEY;
use super::setup::Parts;
use super::{Clock, CycleError, Journal, memory};
use crate::config::{Config, Origin};
use crate::forge::{Forge, ForgeError};
use crate::git::{GitError, Mode, Oid, Repo};
use crate::intake::{self, IntakeContext, IntakeError, PathKind, ReportedIssue};
use crate::ledger::{EventKind, Run, fold};
use crate::model::{
    CycleId, DropReason, Finding, Plan, RepoPath, RunId, Severity, VerifyCommand, hex_digest,
};
use crate::planning::{
    self, BuildFile, PlanContext, PlanError, PlanPolicy, TrackedFile, VerifyRule,
};
use crate::report::marker;
use crate::store::Store;
use crate::workspace::leads_outside;

/// Where findings come from, beside the configuration.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Files named on the command line or by the action's input.
    pub files: Vec<PathBuf>,
    /// One sentence.
    pub intent: Option<String>,
    /// Where the producing tool had its checkout.
    pub source_root: Option<String>,
}

impl Given {
    /// What was given by hand replaces the configured sources.
    fn replaces_configured(&self) -> bool {
        !self.files.is_empty() || self.intent.is_some()
    }
}

/// What the forge says for one configured source; nothing for the others.
enum Fetched {
    Nothing,
    Alerts(Vec<u8>),
    Issues(Vec<ReportedIssue>),
}

/// Asks the forge for the configured sources that live there, in their order.
async fn fetch(
    config: &Config,
    base: &BaseHead,
    forge: &dyn Forge,
) -> Result<Vec<Fetched>, CycleError> {
    let mut all = Vec::with_capacity(config.findings.len());
    for source in &config.findings {
        all.push(match source.origin() {
            Some(Origin::CodeScanning(_)) => {
                let sarif = forge.code_scanning_alerts(&base.branch).await;
                Fetched::Alerts(sarif.map_err(unfetched)?.to_string().into_bytes())
            }
            Some(Origin::Issues(issues)) => {
                Fetched::Issues(forge.labelled_issues(&issues.label).await.map_err(unfetched)?)
            }
            _ => Fetched::Nothing,
        });
    }
    Ok(all)
}

/// A place that can have no such findings is the configuration's mistake.
fn unfetched(error: ForgeError) -> CycleError {
    match error {
        ForgeError::Invalid(what) => {
            CycleError::input(what, "remove that source from `findings`, or run on GitHub")
        }
        other => other.into(),
    }
}

/// The run that this cycle goes on with.
pub enum Chosen {
    /// An open run.
    Open(RunId),
    /// None is open, and the findings are those of a run that has ended.
    AlreadyDone(RunId),
    /// None is open, and there are no findings.
    NoFindings,
    /// A new run, to be written.
    New(Box<NewRun>),
}

/// A run that is not written yet.
pub struct NewRun {
    /// Its id.
    pub id: RunId,
    /// Its plan.
    pub plan: Plan,
    /// Digest of its findings.
    pub digest: String,
    /// Digest of everything that its work depends on, see [`has_dealt_with`].
    pub settings: String,
    /// What is known of the pools' quota from the run before.
    pub known: Vec<EventKind>,
}

/// The newest open run, if there is one. Only the newest few are looked at: a run is opened only
/// when none is open.
///
/// # Errors
/// When the store fails.
pub async fn open_run(
    store: &Arc<dyn Store>,
) -> Result<(Option<RunId>, Vec<RunId>, Vec<Run>), CycleError> {
    let store = store.clone();
    blocking(move || {
        let runs = store.runs().map_err(Arc::new).map_err(super::JournalError::from)?;
        let mut recent = Vec::new();
        let mut open = None;
        for id in runs.iter().rev().take(3) {
            let loaded = store.load(id).map_err(Arc::new).map_err(super::JournalError::from)?;
            let run = fold(&loaded.events);
            // A run without its opening (a torn beginning) is no run yet.
            if run.id.is_some() && run.closed.is_none() {
                open = Some(id.clone());
            }
            recent.push(run);
        }
        Ok::<_, CycleError>((open, runs, recent))
    })
    .await
}

/// # Errors
/// When there is no such run: one that was asked for by name is never made up.
pub fn known_run(runs: &[RunId], id: &RunId) -> Result<(), CycleError> {
    if runs.contains(id) {
        return Ok(());
    }
    let known: Vec<&str> = runs.iter().rev().take(10).map(RunId::as_str).collect();
    let remedy = if known.is_empty() {
        "there is no run yet; `next-step` opens one".to_owned()
    } else {
        format!("the newest runs are: {}", known.join(", "))
    };
    Err(CycleError::input(format!("there is no run {id}"), remedy))
}

/// Chooses or plans the run.
///
/// # Errors
/// When findings can't be read or planned, or the store or git fails.
pub(super) async fn choose(parts: &Parts) -> Result<Chosen, CycleError> {
    let (store, config, given) = (&parts.store, &parts.config, &parts.options.given);
    let (base, wanted) = (&parts.base, parts.options.run_id.as_ref());
    let (open, runs, recent) = open_run(store).await?;
    if let Some(id) = wanted {
        known_run(&runs, id)?;
        let closed = recent.iter().any(|r| r.id.as_ref() == Some(id) && r.closed.is_some());
        let id = id.clone();
        return Ok(if closed { Chosen::AlreadyDone(id) } else { Chosen::Open(id) });
    }
    if let Some(id) = open {
        return Ok(Chosen::Open(id));
    }
    let fetched = if given.replaces_configured() {
        Vec::new()
    } else {
        fetch(config, base, &*parts.forge).await?
    };
    let (config, given) = (config.clone(), given.clone());
    let root = parts.options.repo.clone();
    let (repo, commit) = (parts.workspace.store().clone(), base.commit);
    let now = parts.clock.now();
    blocking(move || {
        let sources = read_sources(&config, &given, fetched, &root, &repo, commit)?;
        if sources.iter().all(Vec::is_empty) {
            return Ok::<_, CycleError>(Chosen::NoFindings);
        }
        let combined = intake::combine(sources)
            .map_err(|e| CycleError::input(e.to_string(), "split the report"))?;
        let findings = findings_digest(&combined.findings);
        let digest = work_digest(&findings, &config);
        let settings = settings_digest(&config);
        if let Some(done) = recent.iter().find(|r| has_dealt_with(r, &digest, &settings))
            && let Some(id) = &done.id
        {
            return Ok(Chosen::AlreadyDone(id.clone()));
        }
        let plan = make_plan(&config, combined.findings, &repo, commit)?;
        // The same store state and findings give the same id: two jobs that open at once open one
        // run.
        let short: String = findings.chars().take(8).collect();
        let id = RunId::new(format!("r-{:04}-{short}", runs.len() + 1))
            .map_err(|e| CycleError::Internal(e.to_string()))?;
        let known = memory::carry(&config, recent.first(), now);
        Ok(Chosen::New(Box::new(NewRun { id, plan, digest, settings, known })))
    })
    .await
}

/// Writes a new run's opening and plan; when another job was first, its opening counts.
///
/// # Errors
/// When the store fails.
pub async fn write_opening(
    store: Arc<dyn Store>,
    new: &NewRun,
    base: &BaseHead,
    cycle: CycleId,
    clock: Clock,
) -> Result<Journal, CycleError> {
    let journal = Journal::open(store, new.id.clone(), cycle, clock).await?;
    let bytes = serde_json::to_vec_pretty(&new.plan)
        .map_err(|e| CycleError::Internal(format!("the plan can't be written: {e}")))?;
    let digest = hex_digest([bytes.as_slice()]);
    let blob = (plan_blob(&digest), bytes);
    let mut events = vec![
        EventKind::Opened {
            run: new.id.clone(),
            base_branch: base.branch.clone(),
            base_commit: base.commit.to_string(),
            findings_digest: new.digest.clone(),
            settings_digest: new.settings.clone(),
        },
        EventKind::Planned { revision: new.plan.revision, digest },
    ];
    events.extend(new.known.iter().cloned());
    journal.write_batch(events, vec![blob], Vec::new()).await?;
    Ok(journal)
}

/// Name of the plan's blob.
fn plan_blob(digest: &str) -> String {
    format!("plan-{}.json", digest.get(..32).unwrap_or(digest))
}

/// Reads the run's plan; its digest and its rules are checked before it is believed.
///
/// # Errors
/// When it is missing, changed or not valid.
pub async fn load_plan(journal: &Journal) -> Result<Plan, CycleError> {
    let planned = journal.state().plan.clone();
    let Some((_, digest)) = planned else {
        return Err(CycleError::Internal(format!("run {} has no plan", journal.run_id())));
    };
    let name = plan_blob(&digest);
    let broken = |why: String| {
        CycleError::input(
            format!("the plan of run {} can't be used: {why}", journal.run_id()),
            format!("restore {name} on the state branch, or cancel the run"),
        )
    };
    let bytes = journal.blob(&name).await?.ok_or_else(|| broken("it is missing".to_owned()))?;
    if hex_digest([bytes.as_slice()]) != digest {
        return Err(broken("its content was changed".to_owned()));
    }
    let plan: Plan = serde_json::from_slice(&bytes).map_err(|e| broken(e.to_string()))?;
    planning::validate(&plan).map_err(|e| broken(e.to_string()))?;
    Ok(plan)
}

/// What a run is about: its findings, and the settings that decide what becomes of them. A mended
/// configuration makes a closed run's findings new work; the address of a pool does so only where
/// nodes failed, see [`has_dealt_with`].
fn work_digest(findings: &str, config: &Config) -> String {
    let pools: Vec<_> = config
        .pools()
        .iter()
        .map(|pool| (pool.pool_id(), &pool.command, &pool.env, pool.tools))
        .collect();
    let rechecks: Vec<_> = config.findings.iter().map(|source| &source.recheck).collect();
    let settings = serde_json::to_vec(&(
        pools,
        rechecks,
        &config.planning,
        &config.verify,
        &config.policy,
        &config.sandbox,
    ));
    // These types have no form that JSON lacks.
    let settings = settings.unwrap_or_default();
    hex_digest([findings.as_bytes(), settings.as_slice()])
}

/// Everything that can decide whether a node fails. Not the base commit: each push would pay for the
/// same failures again.
fn settings_digest(config: &Config) -> String {
    let settings = serde_json::to_vec(&(config.pools(), &config.exclude, &config.dispatch));
    hex_digest([settings.unwrap_or_default().as_slice()])
}

/// Whether a run is the answer to these findings. One that left failures is the answer only while
/// nothing is different that may have been their cause: a mended address is tried.
fn has_dealt_with(run: &Run, digest: &str, settings: &str) -> bool {
    let failed = run.closed.as_ref().is_some_and(|counts| counts.contains_key("failed"));
    let changed = !run.settings_digest.is_empty() && run.settings_digest != settings;
    run.findings_digest == digest && !(failed && changed)
}

fn findings_digest(findings: &[Finding]) -> String {
    let set: BTreeSet<&str> = findings.iter().map(|f| f.fingerprint.as_str()).collect();
    hex_digest(set.into_iter().map(str::as_bytes))
}

fn read_sources(
    config: &Config,
    given: &Given,
    fetched: Vec<Fetched>,
    root: &Path,
    repo: &Repo,
    commit: Oid,
) -> Result<Vec<Vec<Finding>>, CycleError> {
    let tree = repo.tree_of(commit)?;
    let lookup = |path: &str| match kind_of(repo, tree, path) {
        PathKind::Missing => missing_or_untracked(root, path),
        kind => kind,
    };
    let context = |source_root: Option<String>| IntakeContext {
        source_root,
        checkout: Some(root.to_string_lossy().into_owned()),
        lookup: &lookup,
    };
    let mut sources = Vec::new();
    for file in &given.files {
        let name = file.to_string_lossy().into_owned();
        let bytes = read_file(file)?;
        sources.push(read_one(&bytes, &name, &context(given.source_root.clone()))?);
    }
    if let Some(intent) = given.intent.as_deref().filter(|i| !i.trim().is_empty()) {
        sources.push(read_intent(intent)?);
    }
    if given.replaces_configured() {
        for findings in &mut sources {
            mark_source(config, findings);
        }
        return Ok(sources);
    }
    for (source, fetched) in config.findings.iter().zip(fetched) {
        let mut findings = match (source.origin(), fetched) {
            (Some(Origin::File(file)), _) => {
                let bytes = match read_tracked(repo, tree, file)? {
                    Some(bytes) => bytes,
                    None => read_file(&root.join(file))?,
                };
                read_one(&bytes, file, &context(source.source_root.clone()))?
            }
            (Some(Origin::Intent(text)), _) => read_intent(text)?,
            (Some(Origin::CodeScanning(alerts)), Fetched::Alerts(sarif)) => {
                let mut findings = read_one(&sarif, "code-scanning alerts", &context(None))?;
                let least = alerts.min_severity.unwrap_or(Severity::Info);
                for finding in findings.iter_mut().filter(|f| f.severity < least) {
                    finding.dropped.get_or_insert(DropReason::Filtered);
                }
                findings
            }
            (Some(Origin::Issues(_)), Fetched::Issues(issues)) => {
                // Our own dashboard may carry the label too.
                let others = issues.iter().filter(|issue| !marker::is_ours(&issue.body));
                let read = |issue| intake::issue(issue, &context(None));
                others.map(read).collect::<Result<_, _>>().map_err(intake_error)?
            }
            _ => Vec::new(),
        };
        if let Some(key) = source.key() {
            for finding in &mut findings {
                finding.extra.insert(SOURCE_KEY.to_owned(), key.clone().into());
            }
        }
        sources.push(findings);
    }
    Ok(sources)
}

/// Findings of a file that was given by hand are proven by the configured re-check of their tool,
/// when there is exactly one.
fn mark_source(config: &Config, findings: &mut [Finding]) {
    let mut with_recheck =
        config.findings.iter().filter(|s| !s.recheck.is_empty()).filter_map(|s| s.file.clone());
    if let (Some(only), None) = (with_recheck.next(), with_recheck.next()) {
        for finding in findings {
            finding.extra.insert(SOURCE_KEY.to_owned(), only.clone().into());
        }
    }
}

fn read_one(
    bytes: &[u8],
    name: &str,
    context: &IntakeContext<'_>,
) -> Result<Vec<Finding>, CycleError> {
    intake::read(bytes, name, context).map_err(intake_error)
}

fn read_intent(text: &str) -> Result<Vec<Finding>, CycleError> {
    match intake::intent(text) {
        Ok(finding) => Ok(finding.into_iter().collect()),
        Err(e) => Err(intake_error(e)),
    }
}

fn intake_error(error: IntakeError) -> CycleError {
    CycleError::input(error.to_string(), error.remedy())
}

/// The bytes of a findings file; one byte more than allowed at most, which the reader refuses. A
/// pipe or a device is no file: it could wait for ever, and it reads differently the next time.
///
/// # Errors
/// When it is not there, not readable, or no regular file.
pub fn read_file(path: &Path) -> Result<Vec<u8>, CycleError> {
    let problem = |why: String| {
        CycleError::input(
            format!("the findings file {} can't be read: {why}", path.display()),
            "name an existing, readable file, or make the report first",
        )
    };
    let mut options = std::fs::OpenOptions::new();
    // Opening a pipe that nobody writes to must not wait either.
    options.read(true).custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits());
    let file = options.open(path).map_err(|e| problem(e.to_string()))?;
    if !file.metadata().map_err(|e| problem(e.to_string()))?.is_file() {
        return Err(problem("it is no regular file".to_owned()));
    }
    let mut bytes = Vec::new();
    file.take(intake::MAX_SOURCE_BYTES as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| problem(e.to_string()))?;
    Ok(bytes)
}

fn read_tracked(repo: &Repo, tree: Oid, file: &str) -> Result<Option<Vec<u8>>, CycleError> {
    let Ok(path) = RepoPath::new(file) else { return Ok(None) };
    Ok(repo.read_path(tree, path.as_str().as_bytes())?)
}

fn kind_of(repo: &Repo, tree: Oid, path: &str) -> PathKind {
    match repo.entry(tree, path.as_bytes()) {
        Ok(Some(entry)) if entry.mode == Mode::Symlink => {
            match leads_outside(repo, tree, path.as_bytes(), entry.id) {
                Ok(false) => PathKind::File,
                _ => PathKind::Elsewhere,
            }
        }
        Ok(Some(entry)) => match repo.blob(entry.id) {
            // As git does: a NUL among the first 8 000 bytes.
            Ok(bytes) if bytes.iter().take(8_000).any(|b| *b == 0) => PathKind::Binary,
            _ => PathKind::File,
        },
        _ => match repo.list(tree, path.as_bytes()) {
            Ok(below) if !below.is_empty() => PathKind::Folder,
            _ => PathKind::Missing,
        },
    }
}

/// What is not in the base may lie in the checkout all the same: a person wants to know that.
fn missing_or_untracked(root: &Path, path: &str) -> PathKind {
    let there = RepoPath::new(path).is_ok_and(|p| root.join(p.as_str()).symlink_metadata().is_ok());
    if there { PathKind::Untracked } else { PathKind::Missing }
}

/// Plans on what the base commit holds; nothing depends on what is checked out.
///
/// # Errors
/// When git or planning fails.
pub fn make_plan(
    config: &Config,
    findings: Vec<Finding>,
    repo: &Repo,
    commit: Oid,
) -> Result<Plan, CycleError> {
    plan_for(config, findings, what_is_there(repo, commit)?)
        .map_err(|e| CycleError::input(e.to_string(), "correct the findings or the configuration"))
}

/// The files of a commit, and its build files among them.
///
/// # Errors
/// When git fails.
pub(super) fn what_is_there(repo: &Repo, commit: Oid) -> Result<PlanContext, GitError> {
    let tree = repo.tree_of(commit)?;
    let mut context = PlanContext::default();
    let mut files = Vec::new();
    for entry in repo.list(tree, b"")? {
        if entry.mode == Mode::Submodule {
            continue;
        }
        let Some(path) =
            std::str::from_utf8(&entry.path).ok().and_then(|text| RepoPath::new(text).ok())
        else {
            continue;
        };
        if planning::is_build_file(path.as_str()) {
            let scripts = if path.as_str().ends_with("package.json") {
                package_scripts(&repo.blob(entry.id)?)
            } else {
                Vec::new()
            };
            context.build_files.push(BuildFile { path: path.clone(), scripts });
        }
        let bytes = repo.size(entry.id)?;
        files.push(TrackedFile { path, bytes });
    }
    context.files = Some(files);
    Ok(context)
}

/// The plan that a configuration makes of findings.
///
/// # Errors
/// When a dependency is unknown or cyclic, or a configured glob is broken.
pub fn plan_for(
    config: &Config,
    findings: Vec<Finding>,
    mut context: PlanContext,
) -> Result<Plan, PlanError> {
    if !config.verify.detect {
        context.build_files.clear();
    }
    let mut plan = planning::plan(findings, &context, &policy(config))?;
    if let Some(reason) = &config.verify.waive {
        for node in plan.nodes.iter_mut().filter(|n| n.verify.is_empty()) {
            node.verify_waived = Some(reason.clone());
        }
    }
    Ok(plan)
}

/// The planning policy that the configuration describes.
#[must_use]
pub fn policy(config: &Config) -> PlanPolicy {
    let window = config
        .pools()
        .iter()
        .map(|p| p.to_pool().context_tokens)
        .max()
        .unwrap_or(PlanPolicy::default().budget_tokens);
    let rules = config
        .verify
        .commands
        .iter()
        .map(|rule| VerifyRule {
            paths: if rule.paths.is_empty() { vec!["**".to_owned()] } else { rule.paths.clone() },
            commands: vec![rule.command()],
        })
        .collect();
    PlanPolicy {
        protected: config.policy.protected.clone(),
        allow_lockfiles: config.planning.allow_lockfiles,
        max_findings_per_node: usize::try_from(config.planning.max_findings_per_node)
            .unwrap_or(usize::MAX)
            .max(1),
        budget_tokens: window,
        min_severity: config.planning.min_severity.unwrap_or(Severity::Info),
        verify: rules,
    }
}

/// Names of the scripts of a `package.json` that hold a command.
#[must_use]
pub fn package_scripts(bytes: &[u8]) -> Vec<String> {
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(bytes) else { return Vec::new() };
    value
        .get("scripts")
        .and_then(serde_json::Value::as_object)
        .map(|scripts| {
            scripts
                .iter()
                .filter(|(_, v)| v.as_str().is_some_and(|s| !s.trim().is_empty()))
                .map(|(k, _)| k.clone())
                .collect()
        })
        .unwrap_or_default()
}

/// All verify commands of a plan, each once: what the close gate runs.
#[must_use]
pub fn all_verify(plan: &Plan) -> Vec<VerifyCommand> {
    let set: BTreeSet<&VerifyCommand> = plan.nodes.iter().flat_map(|n| n.verify.iter()).collect();
    set.into_iter().cloned().collect()
}
