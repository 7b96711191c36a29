//! Running a node's commands on the very tree that would land.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;
use tokio_util::sync::CancellationToken;

use crate::git::Oid;
use crate::model::{VerifyCommand, hex_digest};
use crate::process::{DiskWatch, Ended, Spec, Status, Walls, base_env, run};

use super::fs::make_dir;
use super::{Slot, Workspace, WorkspaceError};

/// How the commands are run.
#[derive(Debug, Clone)]
pub struct VerifySettings {
    /// Added to the base environment; see [`toolchain_env`]. No secrets.
    pub env: BTreeMap<OsString, OsString>,
    /// Bytes kept of each output stream.
    pub output_cap: usize,
    /// Kernel limits.
    pub walls: Walls,
    /// Bytes that a command may write to its worktree and home.
    pub disk: u64,
    /// Longest that any command may run, whatever its own timeout.
    pub deadline: Duration,
    /// Run a failed command once more, to tell flaky from broken.
    pub retry: bool,
}

impl Default for VerifySettings {
    /// 64 KiB of each stream, 20 GiB of disk, an hour.
    fn default() -> Self {
        Self {
            env: toolchain_env(),
            output_cap: 64 << 10,
            walls: Walls::default(),
            disk: 20 << 30,
            deadline: Duration::from_secs(3_600),
            retry: true,
        }
    }
}

/// What one command means for the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed once and passed at once afterwards: friction, not a failure.
    Flaky,
    /// It fails on the base as well: not this node's doing.
    BaseFailsToo,
    /// It failed, and passes on the base.
    Failed,
}

/// One command's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The command's name.
    pub name: String,
    /// How its last run on the tree ended.
    pub status: Status,
    /// What that means.
    pub verdict: Verdict,
    /// Wall clock of that run, milliseconds.
    pub millis: u64,
    /// Both streams of that run, cut in the middle.
    pub output: String,
}

/// Every command's result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verified {
    /// In the order of the commands.
    pub checks: Vec<CheckResult>,
}

impl Verified {
    /// No command failed by the node's doing.
    #[must_use]
    pub fn accepted(&self) -> bool {
        self.checks.iter().all(|check| check.verdict != Verdict::Failed)
    }

    /// At least one command passed on this very tree, and none failed: evidence, not its absence.
    #[must_use]
    pub fn proves(&self) -> bool {
        self.accepted() && self.checks.iter().any(|check| check.verdict == Verdict::Passed)
    }
}

/// Runs verify commands in worktrees of a workspace, and remembers how bases did.
#[derive(Debug)]
pub struct Verifier {
    workspace: Workspace,
    settings: VerifySettings,
    bases: Mutex<HashMap<String, Arc<OnceCell<bool>>>>,
    kept: PathBuf,
}

impl Verifier {
    /// A verifier over `workspace`.
    ///
    /// # Errors
    /// When the folder for base results can't be made.
    pub fn new(workspace: Workspace, settings: VerifySettings) -> Result<Self, WorkspaceError> {
        let kept = workspace.root().join("base-checks");
        make_dir(&kept)?;
        Ok(Self { workspace, settings, bases: Mutex::default(), kept })
    }

    /// Runs every command on `commit` in a clean worktree, each from the same clean state. A command
    /// that fails is run once more, and on `base` as well, where its result is remembered. Stops at
    /// the first failure that is the node's.
    ///
    /// # Errors
    /// When a command can't be started, the disk refuses, or the cycle is cancelled.
    pub async fn verify(
        &self,
        commit: Oid,
        base: Oid,
        commands: &[VerifyCommand],
        cancel: &CancellationToken,
    ) -> Result<Verified, WorkspaceError> {
        let mut verified = Verified::default();
        if commands.is_empty() {
            return Ok(verified);
        }
        let mut slot = self.slot(commit).await?;
        for command in commands {
            slot = reset(slot, commit).await?;
            let mut ended = self.execute(&slot, command, cancel).await?;
            let mut verdict = Verdict::Passed;
            if !ended.status.success() {
                verdict = Verdict::Failed;
                // A second run of what hung or filled the disk would cost as much again.
                let ended_itself = matches!(ended.status, Status::Exited(_) | Status::Signalled(_));
                if self.settings.retry && ended_itself {
                    slot = reset(slot, commit).await?;
                    let again = self.execute(&slot, command, cancel).await?;
                    if again.status.success() {
                        verdict = Verdict::Flaky;
                        ended = again;
                    }
                }
                if verdict == Verdict::Failed && !self.base_passes(base, command, cancel).await? {
                    verdict = Verdict::BaseFailsToo;
                }
            }
            verified.checks.push(result(command, ended, verdict));
            if verdict == Verdict::Failed {
                break;
            }
        }
        Ok(verified)
    }

    /// Does the command pass on the base? Each (tree, command, environment) is asked once, whoever
    /// asks.
    async fn base_passes(
        &self,
        base: Oid,
        command: &VerifyCommand,
        cancel: &CancellationToken,
    ) -> Result<bool, WorkspaceError> {
        let tree = self.workspace.store().tree_of(base)?;
        let surroundings = self.surroundings();
        let mut parts: Vec<&[u8]> = vec![tree.as_bytes(), &surroundings];
        parts.extend(command.argv.iter().map(String::as_bytes));
        let key = hex_digest(parts);
        let cell = {
            let mut bases = self.bases.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(bases.entry(key.clone()).or_default())
        };
        let file = self.kept.join(key);
        let passes = cell.get_or_try_init(|| async {
            match std::fs::read(&file).as_deref() {
                Ok(b"passes") => return Ok(true),
                Ok(b"fails") => return Ok(false),
                _ => {}
            }
            let passes = self.try_base(base, command, cancel).await?;
            // Written whole or not at all; a lost note only costs another run.
            let text: &[u8] = if passes { b"passes" } else { b"fails" };
            let draft = file.with_extension(format!("{:08x}", fastrand::u32(..)));
            let _ = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &file));
            Ok::<bool, WorkspaceError>(passes)
        });
        passes.await.copied()
    }

    /// What else decides how a command ends: a base that failed without a tool, a variable or the
    /// network says nothing about one that has them.
    fn surroundings(&self) -> Vec<u8> {
        let mut text = Vec::new();
        for (name, value) in &self.settings.env {
            text.extend_from_slice(name.as_encoded_bytes());
            text.push(b'=');
            text.extend_from_slice(value.as_encoded_bytes());
            text.push(0);
        }
        // What may be read follows from the machine and the variables; the rest is configured.
        let mut walls = self.settings.walls.clone();
        if let Some(sandbox) = &mut walls.sandbox {
            sandbox.read.clear();
        }
        text.extend_from_slice(format!("{walls:?}").as_bytes());
        text
    }

    /// A base that fails once must fail twice: a flaky base excuses nothing.
    async fn try_base(
        &self,
        base: Oid,
        command: &VerifyCommand,
        cancel: &CancellationToken,
    ) -> Result<bool, WorkspaceError> {
        let mut slot = self.slot(base).await?;
        for _ in 0..2 {
            slot = reset(slot, base).await?;
            let ended = self.execute(&slot, command, cancel).await?;
            if ended.status.success() {
                return Ok(true);
            }
            if matches!(
                ended.status,
                Status::TimedOut | Status::OverDisk | Status::OverMemory | Status::OverTasks
            ) {
                return Ok(false);
            }
        }
        Ok(false)
    }

    async fn slot(&self, near: Oid) -> Result<Slot, WorkspaceError> {
        let workspace = self.workspace.clone();
        blocking(move || workspace.slot(Some(near))).await
    }

    async fn execute(
        &self,
        slot: &Slot,
        command: &VerifyCommand,
        cancel: &CancellationToken,
    ) -> Result<Ended, WorkspaceError> {
        let settings = &self.settings;
        let mut spec = Spec::new(&command.argv, slot.path());
        let path = settings.env.get(Path::new("PATH").as_os_str()).cloned().unwrap_or_default();
        spec.env = base_env(&slot.home(), &path);
        spec.env.extend(settings.env.clone());
        spec.deadline = settings.deadline.min(Duration::from_secs(command.timeout_seconds.max(1)));
        spec.output_cap = settings.output_cap;
        spec.walls = settings.walls.naming(&command.argv).around(&[&slot.path(), &slot.home()]);
        spec.disk =
            Some(DiskWatch { folders: vec![slot.path(), slot.home()], growth: settings.disk });
        spec.cancel = cancel.clone();
        let ended = run(spec).await?;
        if ended.status == Status::Cancelled {
            return Err(WorkspaceError::Cancelled);
        }
        Ok(ended)
    }
}

/// [`Slot::reset`] off the runtime's threads.
async fn reset(mut slot: Slot, commit: Oid) -> Result<Slot, WorkspaceError> {
    blocking(move || slot.reset(commit).map(|()| slot)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| WorkspaceError::Lost(error.to_string()))?
}

fn result(command: &VerifyCommand, ended: Ended, verdict: Verdict) -> CheckResult {
    let mut output = ended.stdout.text();
    if !ended.stderr.bytes.is_empty() {
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        output.push_str(&ended.stderr.text());
    }
    CheckResult {
        name: command.name.clone(),
        status: ended.status,
        verdict,
        millis: u64::try_from(ended.elapsed.as_millis()).unwrap_or(u64::MAX),
        output,
    }
}

/// What build tools need to be found and to find their caches; copied from our own environment.
/// Nothing here carries a credential.
#[must_use]
pub fn toolchain_env() -> BTreeMap<OsString, OsString> {
    const NAMES: &[&str] = &[
        "PATH",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "RUSTUP_TOOLCHAIN",
        "GOROOT",
        "GOPATH",
        "GOMODCACHE",
        "GOTOOLCHAIN",
        "JAVA_HOME",
        "GRADLE_HOME",
        "MAVEN_HOME",
        "NVM_DIR",
        "NODE_PATH",
        "PYENV_ROOT",
        "VIRTUAL_ENV",
        "GEM_HOME",
        "GEM_PATH",
        "DOTNET_ROOT",
        "ANDROID_HOME",
        "PKG_CONFIG_PATH",
        "LD_LIBRARY_PATH",
        "SOURCE_DATE_EPOCH",
    ];
    let mut env: BTreeMap<OsString, OsString> = NAMES
        .iter()
        .filter_map(|name| Some((OsString::from(name), std::env::var_os(name)?)))
        .collect();
    // The child's home is another, so what these find by the home must be said.
    if let Some(home) = std::env::var_os("HOME").map(PathBuf::from) {
        for (name, folder) in [("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")] {
            let folder = home.join(folder);
            if folder.is_dir() {
                env.entry(name.into()).or_insert_with(|| folder.into_os_string());
            }
        }
    }
    env
}
