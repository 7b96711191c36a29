//! Checking again whether a finding is still there.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::RepoPath;
use crate::process::{Ended, Spec, Walls, run};

use super::{Slot, WorkspaceError};

/// A command that reports a tool's findings on standard output.
#[derive(Debug, Clone)]
pub struct Recheck {
    /// Program and arguments; an argument that is exactly `{paths}` becomes the paths.
    pub argv: Vec<String>,
    /// Where to look.
    pub paths: Vec<RepoPath>,
    /// The whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// Wall clock.
    pub deadline: Duration,
    /// Largest report that is read whole, bytes.
    pub output_cap: usize,
    /// Kernel limits.
    pub walls: Walls,
    /// Stops it.
    pub cancel: CancellationToken,
}

/// Runs the command in a worktree. What it prints is the caller's to parse; linters end with 1 when
/// they found something, so the exit code says nothing here.
///
/// # Errors
/// When the command can't be started.
pub async fn recheck(slot: &Slot, it: &Recheck) -> Result<Ended, WorkspaceError> {
    let argv: Vec<OsString> = it
        .argv
        .iter()
        .flat_map(|arg| match arg.as_str() {
            // A leading `./` keeps a file name from being read as an option.
            "{paths}" => it.paths.iter().map(|path| format!("./{path}").into()).collect(),
            _ => vec![OsString::from(arg)],
        })
        .collect();
    let mut spec = Spec::new(argv, slot.path());
    spec.env = it.env.clone();
    spec.deadline = it.deadline;
    spec.output_cap = it.output_cap;
    spec.walls = it.walls.naming(&it.argv).around(&[&slot.path(), &slot.home()]);
    spec.cancel = it.cancel.clone();
    Ok(run(spec).await?)
}
