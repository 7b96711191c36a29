//! How the tool `run_verify` reaches the node's commands.

use async_trait::async_trait;

use crate::backends::Attempt;
use crate::model::VerifyCommand;

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
