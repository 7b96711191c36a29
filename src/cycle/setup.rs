//! From options to the parts of a cycle: configuration, repository, remote, store, forge.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::context::{BaseHead, Cycle, ReadyPool, Recheck};
use super::error::blocking;
use super::open::Given;
use super::pools::Env;
use super::walls::{self, AllWalls};
use super::{Clock, CycleError, Journal, holder, names};
use crate::config::{Config, Pauses, StateStore};
use crate::forge::{Forge, ForgeError, LocalForge};
use crate::git::{GitError, Oid, Remote, parse_oid};
use crate::ledger::{EventKind, Holder, Landing};
use crate::model::{CycleId, Plan, PoolId, RunId};
use crate::store::{ArtifactStore, Artifacts, BranchStore, DirectoryStore, Store, Traced};
use crate::workspace::{Verifier, VerifySettings, Workspace};

/// Time kept free at the end of a job for the checkpoint.
const CHECKPOINT_RESERVE: SignedDuration = SignedDuration::from_secs(30);

/// How long a cycle works where neither option nor configuration says: below the six hours of a
/// hosted job.
const DEFAULT_TIME_BUDGET: Duration = Duration::from_secs(5 * 3_600);

/// Where pull requests, issues and comments live.
#[derive(Clone)]
pub enum Place {
    /// A folder of this machine.
    Local(PathBuf),
    /// Something that the caller connected.
    Forge(Arc<dyn Forge>),
}

/// What woke a cycle up, as far as it matters: what is done is read from the API.
#[derive(Debug, Clone, Default)]
pub struct Woken {
    /// A comment or a review did.
    pub by_comment: bool,
    /// Who edited which comment, when an edit did.
    pub editor: Option<(u64, String)>,
    /// The file of the workflow that runs, and the branch that it runs on.
    pub workflow: Option<(String, String)>,
    /// Address of the workflow run.
    pub url: Option<String>,
}

/// What a cycle is told.
#[derive(Clone)]
pub struct Options {
    /// The checkout.
    pub repo: PathBuf,
    /// The configuration.
    pub config: Config,
    /// Where to push; the checkout's `origin`, else the checkout itself, where absent.
    pub remote: Option<Remote>,
    /// Where pull requests go.
    pub place: Place,
    /// Folder for object store, worktrees and scratch files, outside the checkout.
    pub work_root: PathBuf,
    /// Findings beside the configured ones.
    pub given: Given,
    /// Go on with this run only.
    pub run_id: Option<RunId>,
    /// How long the cycle may work.
    pub time_budget: Option<Duration>,
    /// Go on although a pause says to wait.
    pub resume: bool,
    /// Plan and look, but write nothing.
    pub dry_run: bool,
    /// The workflow run, on Actions.
    pub holder: Holder,
    /// What woke the cycle up.
    pub woken: Woken,
    /// Workflow artifacts, for `state: artifact`.
    pub artifacts: Option<Arc<dyn Artifacts>>,
    /// Reads environment variables.
    pub env: Arc<Env>,
    /// The time at the start.
    pub clock: Clock,
}

/// Everything that does not depend on the run.
pub(super) struct Parts {
    pub options: Options,
    pub config: Config,
    pub clock: Clock,
    pub cycle_id: CycleId,
    pub store: Arc<dyn Store>,
    pub forge: Arc<dyn Forge>,
    pub workspace: Workspace,
    pub remote: Remote,
    pub base: BaseHead,
    pub scratch: TempDir,
    pub walls: AllWalls,
    pub deadline: Timestamp,
}

pub(super) async fn prepare(options: Options) -> Result<Parts, CycleError> {
    let clock = options.clock.clone();
    let config = options.config.clone();
    refuse_unsupported(&config)?;
    check_places(&options.repo, &options.place, &options.work_root)?;
    walls::check_required(&config)?;
    let (root, repo) = (options.work_root.clone(), options.repo.clone());
    let (given_remote, base) = (options.remote.clone(), config.base.clone());
    let (workspace, remote, base) = blocking(move || {
        let workspace = Workspace::open(&root, &repo)?;
        let remote = match given_remote {
            Some(remote) => remote,
            None => Remote::origin_of(workspace.repository())?,
        };
        let base = fetch_base(&workspace, &remote, base.as_deref())?;
        Ok::<_, CycleError>((workspace, remote, base))
    })
    .await?;
    let store: Arc<dyn Store> = match config.state.store {
        StateStore::Branch => Arc::new(Traced(BranchStore::new(
            workspace.store().clone(),
            remote.clone(),
            &config.state.branch,
        ))),
        StateStore::Directory => {
            let path = config
                .state
                .path
                .as_deref()
                .map_or_else(|| options.work_root.join("state"), |p| options.repo.join(p));
            Arc::new(Traced(DirectoryStore::new(path)))
        }
        StateStore::Artifact => {
            let artifacts = options.artifacts.clone().ok_or_else(|| {
                CycleError::input(
                    "`state: artifact` works in an action's job on GitHub only",
                    "keep the state on a branch: `state: branch`",
                )
            })?;
            let folder = options.work_root.join("artifacts");
            std::fs::create_dir_all(&folder)
                .map_err(|e| CycleError::io("cannot make a folder for the state", e))?;
            let store = workspace.store().clone();
            let kept =
                ArtifactStore::new(artifacts, store, &folder, &config.state.branch, base.commit)
                    .map_err(Arc::new)
                    .map_err(super::JournalError::from)?;
            Arc::new(Traced(kept))
        }
    };
    let forge: Arc<dyn Forge> = match &options.place {
        Place::Local(folder) => Arc::new(LocalForge::new(folder.clone())),
        Place::Forge(forge) => forge.clone(),
    };
    let forge: Arc<dyn Forge> = Arc::new(crate::forge::Traced(forge));
    let scratch = tempfile::Builder::new()
        .prefix("cycle-")
        .tempdir_in(&options.work_root)
        .map_err(|e| CycleError::io("cannot make a scratch folder", e))?;
    let deadline = deadline(&options, clock.now());
    let mut closed = vec![options.repo.clone(), options.work_root.clone()];
    if let Place::Local(folder) = &options.place {
        closed.push(folder.clone());
    }
    let mut walls = walls::of(&config, &*options.env, &closed, &workspace.readable_by_workers());
    walls.separate_users(&workspace);
    let cycle_id = CycleId::new(format!("c-{:016x}", fastrand::u64(..)))
        .map_err(|e| CycleError::Internal(e.to_string()))?;
    Ok(Parts {
        options,
        config,
        clock,
        cycle_id,
        store,
        forge,
        workspace,
        remote,
        base,
        scratch,
        walls,
        deadline,
    })
}

impl Parts {
    /// Whether the token may open what a run will open.
    pub(super) async fn check_rights(&self) -> Result<(), ForgeError> {
        let issues = self.config.report.dashboard || self.config.pauses == Pauses::Issue;
        self.forge.check_rights(&self.base.branch, issues).await
    }
}

fn short_branch(full: String) -> String {
    full.strip_prefix("refs/heads/").map_or(full.clone(), str::to_owned)
}

/// Places that can't work are named before anything is spent on them.
fn check_places(repo: &Path, place: &Place, work_root: &Path) -> Result<(), CycleError> {
    // A bare repository has no working tree to keep clean.
    let has_tree = repo.join(".git").exists();
    let work = std::path::absolute(work_root).ok();
    let checkouts = [std::path::absolute(repo).ok(), repo.canonicalize().ok()];
    let inside = work
        .is_some_and(|work| checkouts.iter().flatten().any(|checkout| work.starts_with(checkout)));
    if has_tree && inside {
        return Err(CycleError::input(
            format!("{} is inside the checkout", work_root.display()),
            "name a folder outside of it with --work-dir: the working tree is never touched",
        ));
    }
    let writable = |folder: &Path, what: &str, option: &str| {
        std::fs::create_dir_all(folder).map_err(|e| {
            CycleError::input(
                format!("{what} can't be kept in {}: {e}", folder.display()),
                format!("name a folder that can be written with {option}"),
            )
        })
    };
    if let Place::Local(folder) = place {
        writable(&folder.join("pulls"), "pull requests", "--local")?;
    }
    writable(work_root, "worktrees", "--work-dir")
}

/// A verify command whose program is not there would refuse every attempt: said before one is paid.
pub(super) fn check_verify_programs(
    commands: &[crate::model::VerifyCommand],
    env: &Env,
) -> Result<(), CycleError> {
    for command in commands {
        let Some(program) = command.argv.first() else { continue };
        // A relative path is inside the worktree, and may be made by a node.
        let elsewhere = program.contains('/') && !program.starts_with('/');
        if elsewhere {
            continue;
        }
        if let crate::scheduling::pools::Reach::Unreached(why) =
            super::pools::launcher(program, env)
        {
            return Err(CycleError::input(
                format!("verify command `{}` can't run: {why}", command.name),
                "install the program, correct `verify` in the configuration, or set verify.detect: false",
            ));
        }
    }
    Ok(())
}

fn unsupported(setting: &str) -> CycleError {
    CycleError::input(
        format!("`{setting}` is not supported by this version"),
        "remove the setting; `overhaul schema` describes the others",
    )
}

/// A setting that would be silently ignored is an error: nobody should believe in a ceiling that
/// is not there.
fn refuse_unsupported(config: &Config) -> Result<(), CycleError> {
    let settings = [("planning.max-nodes", config.planning.max_nodes.is_some())];
    match settings.into_iter().find(|(_, used)| *used) {
        Some((setting, _)) => Err(unsupported(setting)),
        None => Ok(()),
    }
}

fn deadline(options: &Options, now: Timestamp) -> Timestamp {
    let configured = options.config.dispatch.time_budget.map(|d| d.get());
    let budget = options.time_budget.or(configured).unwrap_or(DEFAULT_TIME_BUDGET);
    let budget = SignedDuration::try_from(budget).unwrap_or(SignedDuration::from_hours(5));
    // The reserve never eats more than a tenth of a short budget.
    let reserve = CHECKPOINT_RESERVE.min(budget / 10);
    now.checked_add(budget - reserve).unwrap_or(now)
}

/// Looks up the base branch on the remote and brings its head here.
fn fetch_base(
    workspace: &Workspace,
    remote: &Remote,
    wanted: Option<&str>,
) -> Result<BaseHead, CycleError> {
    let store = workspace.store();
    let (full, commit) = match wanted {
        Some(branch) => {
            let full = names::full(branch);
            let there = remote.ls_remote(store, &[&full])?;
            let Some(commit) = there.get(&full).copied() else {
                return Err(CycleError::input(
                    format!("the base branch '{branch}' does not exist on the remote"),
                    "correct `base` in the configuration, or push the branch",
                ));
            };
            (full, commit)
        }
        None => remote.default_branch(store)?.ok_or_else(|| {
            CycleError::input(
                "the remote has no default branch",
                "push a branch first, or name it as `base` in the configuration",
            )
        })?,
    };
    let branch = short_branch(full.clone());
    if !store.has(commit) {
        remote.fetch(store, &[&format!("+{full}:refs/overhaul/base/{branch}")])?;
    }
    Ok(BaseHead { branch, commit })
}

/// A file of the remote's default branch, whatever is checked out, and the branch's name. `None`
/// where the branch has no such file.
///
/// # Errors
/// When a place can't be used, or the remote does not answer.
pub async fn on_default_branch(
    repo: &Path,
    place: &Place,
    remote: Option<Remote>,
    work_root: &Path,
    file: &str,
) -> Result<(String, Option<Vec<u8>>), CycleError> {
    check_places(repo, place, work_root)?;
    let (repo, root, file) = (repo.to_owned(), work_root.to_owned(), file.to_owned());
    blocking(move || {
        let workspace = Workspace::open(&root, &repo)?;
        let remote = match remote {
            Some(remote) => remote,
            None => Remote::origin_of(workspace.repository())?,
        };
        let head = fetch_base(&workspace, &remote, None)?;
        let store = workspace.store();
        let bytes = store.read_path(store.tree_of(head.commit)?, file.as_bytes())?;
        Ok::<_, CycleError>((head.branch, bytes))
    })
    .await
}

impl Parts {
    /// Opens the ledger of a run.
    pub(super) async fn journal(&self, run: RunId) -> Result<Journal, CycleError> {
        Ok(Journal::open(self.store.clone(), run, self.cycle_id.clone(), self.clock.clone())
            .await?)
    }

    /// Joins the parts and a run.
    pub(super) async fn cycle(
        &self,
        journal: Journal,
        plan: Plan,
        pools: BTreeMap<PoolId, ReadyPool>,
        cancel: CancellationToken,
    ) -> Result<Cycle, CycleError> {
        let own = self.options.holder.clone();
        let this = holder::this_process(own.workflow_run, own.workflow_attempt);
        let rechecks = self
            .config
            .findings
            .iter()
            .filter(|s| !s.recheck.is_empty())
            .filter_map(|s| Some(Recheck { source: s.key()?, argv: s.recheck.clone() }))
            .collect();
        Ok(Cycle {
            config: self.config.clone(),
            clock: self.clock.clone(),
            holder: this,
            journal,
            plan: Arc::new(plan),
            base: self.base.clone(),
            remote: self.remote.clone(),
            verifier: Verifier::new(
                self.workspace.clone(),
                VerifySettings {
                    retry: self.config.verify.flaky_retry,
                    walls: self.walls.checks.clone(),
                    ..VerifySettings::default()
                },
            )?,
            workspace: self.workspace.clone(),
            forge: self.forge.clone(),
            pools,
            walls: self.walls.clone(),
            rechecks,
            scratch: self.scratch.path().to_path_buf(),
            env: self.options.env.clone(),
            deadline: self.deadline,
            woken: self.options.woken.clone(),
            cancel,
            integration: tokio::sync::Mutex::new(self.base.commit),
        })
    }
}

/// Brings the commits of accepted nodes here. One that is nowhere any more was lost with its
/// machine before it was kept anywhere: its node goes back to work, and never counts as done.
pub(super) async fn restore_commits(cycle: &Cycle) -> Result<(), CycleError> {
    let run = cycle.journal.state().clone();
    let (repo, remote, run_id) =
        (cycle.repo().clone(), cycle.remote.clone(), cycle.run_id().clone());
    let wanted: Vec<(crate::model::NodeId, Oid)> = run
        .nodes
        .iter()
        .filter(|(_, n)| n.pr.as_ref().is_none_or(|pr| pr.end.is_none()))
        .filter_map(|(id, n)| match &n.landing {
            Landing::Accepted { receipt, .. } => Some((id.clone(), receipt.commit.clone())),
            _ => None,
        })
        .map(|(id, commit)| Ok((id, parse_oid(&commit)?)))
        .collect::<Result<_, GitError>>()?;
    let branches = names::run_prefix(&cycle.config.pull_requests.branch_prefix, &run_id);
    let lost = blocking(move || {
        if wanted.iter().all(|(_, commit)| repo.has(*commit)) {
            return Ok::<_, GitError>(Vec::new());
        }
        let keep = format!("refs/overhaul/keep/{run_id}/");
        let heads = names::full(&branches);
        remote.fetch(
            &repo,
            &[
                &format!("+{keep}*:{keep}*"),
                &format!("+{heads}*:refs/overhaul/branches/{branches}*"),
            ],
        )?;
        Ok(wanted.into_iter().filter(|(_, c)| !repo.has(*c)).map(|(id, _)| id).collect())
    })
    .await?;
    if lost.is_empty() {
        return Ok(());
    }
    let events = lost
        .into_iter()
        .map(|node| EventKind::Reopened {
            node,
            reason: "Its accepted commit was lost with the machine that made it.".to_owned(),
        })
        .collect();
    cycle.journal.write(events).await?;
    Ok(())
}

/// Work on a base that moved needs the history between the two, which a shallow checkout lacks.
pub(super) async fn deepen(cycle: &Cycle) -> Result<(), CycleError> {
    let head = cycle.base.commit.to_string();
    let needed = cycle.journal.state().nodes.values().any(|n| {
        let open = n.pr.as_ref().is_none_or(|pr| !pr.is_over());
        let moved = match &n.landing {
            Landing::Accepted { receipt, .. } => receipt.base != head,
            _ => false,
        };
        open && (moved || n.foreign_head().is_some())
    });
    if !needed || !cycle.repo().is_shallow() {
        return Ok(());
    }
    tracing::info!("the checkout is shallow; the history of the base branch is fetched");
    let (repo, remote) = (cycle.repo().clone(), cycle.remote.clone());
    let branch = &cycle.base.branch;
    let refspec = format!("+{}:refs/overhaul/base/{branch}", names::full(branch));
    blocking(move || remote.deepen(&repo, &refspec)).await
}

/// The default folder for worktrees: outside the checkout, one per checkout.
#[must_use]
pub fn default_work_root(repo: &Path, env: &Env) -> PathBuf {
    let canonical = repo.canonicalize().unwrap_or_else(|_| repo.to_path_buf());
    let digest = crate::model::hex_digest([canonical.as_os_str().as_encoded_bytes()]);
    let short = digest.get(..16).unwrap_or(&digest).to_owned();
    let cache = env("RUNNER_TEMP")
        .or_else(|| env("XDG_CACHE_HOME"))
        .or_else(|| env("HOME").map(|home| format!("{home}/.cache")))
        .unwrap_or_else(|| "/tmp".to_owned());
    Path::new(&cache).join("overhaul").join(short)
}
