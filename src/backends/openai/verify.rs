//! How the tool `run_verify` reaches the node's commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use async_trait::async_trait;

use crate::backends::Attempt;
use crate::backends::command::search_path;
use crate::model::VerifyCommand;
use crate::process::{self, Spec, Status, Walls};

/// Bytes kept of each output stream of a check.
const OUTPUT_CAP: usize = 64 << 10;

/// What one check said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Whether it passed.
    pub passed: bool,
    /// Its output, capped by the runner.
    pub output: String,
}

/// Runs one of the node's commands in the attempt's worktree, walled in and bounded.
#[async_trait]
pub trait VerifyRunner: Send + Sync {
    /// Runs the command to its end; stops when the attempt is cancelled.
    async fn verify(&self, command: &VerifyCommand, attempt: &Attempt) -> Verified;
}

/// Runs checks as child processes, with a clean environment and without secrets.
#[derive(Debug, Clone, Default)]
pub struct ProcessVerify {
    /// Further variables; no secrets belong here.
    pub env: BTreeMap<String, String>,
    /// Kernel limits.
    pub walls: Walls,
}

#[async_trait]
impl VerifyRunner for ProcessVerify {
    async fn verify(&self, command: &VerifyCommand, attempt: &Attempt) -> Verified {
        let failed = |output: String| Verified { passed: false, output };
        if let Err(e) = std::fs::create_dir_all(attempt.home.join("tmp")) {
            return failed(format!("the check could not be prepared: {e}"));
        }
        let mut spec = Spec::new(command.argv.iter().cloned(), &attempt.workdir);
        spec.env = process::base_env(&attempt.home, &search_path());
        spec.env.extend(self.env.iter().map(|(n, v)| (OsString::from(n), OsString::from(v))));
        spec.walls = self.walls.naming(&command.argv).around(&[&attempt.workdir, &attempt.home]);
        spec.deadline = Duration::from_secs(command.timeout_seconds);
        spec.output_cap = OUTPUT_CAP;
        spec.cancel = attempt.cancel.clone();
        let ended = match process::run(spec).await {
            Ok(ended) => ended,
            Err(e) => return failed(e.to_string()),
        };
        let stdout = String::from_utf8_lossy(&ended.stdout.bytes);
        let stderr = String::from_utf8_lossy(&ended.stderr.bytes);
        let end = match ended.status {
            Status::Exited(code) => format!("exit code {code}"),
            Status::TimedOut => format!("stopped after {} s", command.timeout_seconds),
            other => format!("{other:?}"),
        };
        Verified { passed: ended.status.success(), output: format!("{stdout}{stderr}[{end}]") }
    }
}
