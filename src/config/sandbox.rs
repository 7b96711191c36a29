//! The `sandbox` section.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What workers and checks may reach beside their own worktree and home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default, deny_unknown_fields)]
pub struct Sandbox {
    /// What happens where the kernel lacks a layer.
    pub mode: SandboxMode,
    /// Further files and folders that may be read and run: absolute, or `~/` for our home.
    pub read: Vec<String>,
    /// Further files and folders that may be written, such as a shared cache: absolute, or `~/`.
    pub write: Vec<String>,
    /// Which Unix sockets workers and checks may open.
    pub unix_sockets: UnixSockets,
    /// Most memory of one worker or check, with all that it starts, in bytes.
    #[schemars(range(min = 1))]
    pub memory_bytes: u64,
    /// Most processes and threads of one worker or check.
    #[schemars(range(min = 1))]
    pub processes: u64,
}

impl Default for Sandbox {
    fn default() -> Self {
        Self {
            mode: SandboxMode::BestEffort,
            read: Vec::new(),
            write: Vec::new(),
            unix_sockets: UnixSockets::Own,
            // A large compiler or a bundler fits; a runaway loop does not take the machine with it.
            memory_bytes: 8 << 30,
            processes: 4_096,
        }
    }
}

/// What happens where the kernel lacks a layer of the sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SandboxMode {
    /// Nothing runs.
    Required,
    /// It is left out, and named.
    #[default]
    BestEffort,
    /// No sandbox; the limits and the clean environment stay.
    Off,
}

/// Which Unix sockets workers and checks may open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnixSockets {
    /// Those that they make themselves where the kernel can tell; else pairs only.
    #[default]
    Own,
    /// All that the user may open: Docker's too, and with it the machine.
    Any,
}

/// Where a pool's worker may connect to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PoolNetwork {
    /// Anywhere.
    #[default]
    Any,
    /// Nowhere but to the gateway of its own `base-url`.
    None,
}
