//! Worktrees, scope, verify, proof, integration.
