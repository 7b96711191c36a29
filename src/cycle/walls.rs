//! The walls of workers and checks, from the configuration and this machine.

use std::ffi::OsStr;
use std::path::PathBuf;

use super::CycleError;
use super::pools::Env;
use crate::config::{Config, PoolNetwork, SandboxMode, UnixSockets};
use crate::process::{Layer, Reach, Sandbox, UNIX_SOCKETS, Walls, can_separate, layers};
use crate::workspace::{Workspace, toolchain_env};

/// Largest single file that a worker or check may write, bytes.
const FILE_BYTES: u64 = 4 << 30;

/// Open files of each process.
const OPEN_FILES: u64 = 65_536;

/// The walls around everything that this cycle starts.
#[derive(Debug, Clone, Default)]
pub(super) struct AllWalls {
    /// Of workers.
    pub workers: Walls,
    /// Of verify commands and re-checks.
    pub checks: Walls,
    /// The layers of the sandbox as they are here; none where it is off.
    pub layers: Vec<Layer>,
}

/// `closed` are the checkout, the work folder and the local forge; `readable` is what worktrees need of
/// them all the same.
pub(super) fn of(config: &Config, env: &Env, closed: &[PathBuf], readable: &[PathBuf]) -> AllWalls {
    let home = env("HOME").map(PathBuf::from);
    let named = |path: &String| match (path.strip_prefix("~/"), &home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    };
    let settings = &config.sandbox;
    let sandbox = (settings.mode != SandboxMode::Off).then(|| {
        let reach = Reach::new(closed.iter().cloned().chain(home.clone()));
        let mut read = reach.system();
        for (name, value) in toolchain_env() {
            if name == OsStr::new("PATH") {
                read.extend(reach.search_path(&value));
            } else {
                let folders = std::env::split_paths(&value).collect::<Vec<_>>();
                read.extend(folders.iter().flat_map(|folder| reach.tools(folder)));
            }
        }
        read.extend(readable.iter().cloned());
        read.extend(settings.read.iter().map(named));
        read.sort();
        read.dedup();
        Sandbox {
            read,
            write: settings.write.iter().map(named).collect(),
            connect: None,
            any_sockets: settings.unix_sockets == UnixSockets::Any,
            required: settings.mode == SandboxMode::Required,
            reach,
        }
    });
    let workers = Walls {
        helper: std::env::current_exe().ok(),
        file_size: Some(FILE_BYTES),
        open_files: Some(OPEN_FILES),
        cpu_seconds: None,
        memory: Some(settings.memory_bytes),
        tasks: Some(settings.processes),
        sandbox,
    };
    let checks = workers.connecting(if config.verify.network { None } else { Some(Vec::new()) });
    AllWalls { workers, checks, layers: kernel(config) }
}

/// The layers that the kernel holds or lacks; none where the sandbox is off.
pub(super) fn kernel(config: &Config) -> Vec<Layer> {
    if config.sandbox.mode == SandboxMode::Off {
        return Vec::new();
    }
    let mut layers = layers();
    if config.sandbox.unix_sockets == UnixSockets::Any {
        for layer in layers.iter_mut().filter(|layer| layer.name == UNIX_SOCKETS) {
            layer.held = false;
            layer.detail =
                "`sandbox: {unix-sockets: any}`: sockets that the user may open (such as \
                            Docker's) are within reach of workers and checks"
                    .to_owned();
        }
    }
    layers
}

impl AllWalls {
    /// Gives each worktree a user of its own where that is possible, which is a layer for itself and
    /// stands in for what the kernel lacks.
    pub(super) fn separate_users(&mut self, workspace: &Workspace) {
        let Some(sandbox) = &self.workers.sandbox else { return };
        let possible = can_separate(workspace.slots(), &sandbox.read, &sandbox.write);
        if possible.is_ok() {
            workspace.separate_users();
            for layer in &mut self.layers {
                if layer.name == UNIX_SOCKETS || (layer.name == "signals" && !layer.held) {
                    layer.held = true;
                    layer.detail =
                        "other users' processes and sockets (such as Docker's) are out of \
                                    reach of the worktrees' own users"
                            .to_owned();
                }
            }
        }
        let detail = match &possible {
            Ok(()) => "each worktree belongs to a user of its own".to_owned(),
            Err(why) => format!("workers and checks run as the same user as overhaul: {why}"),
        };
        self.layers.push(Layer { name: "users", held: possible.is_ok(), detail });
    }

    /// The layers that people should know to be missing.
    pub(super) fn missing(&self, config: &Config) -> impl Iterator<Item = &Layer> {
        self.layers.iter().filter(|layer| !layer.held && wanted(layer, config))
    }
}

/// Does the configuration need it? A user of its own for each worktree is for root.
pub(super) fn wanted(layer: &Layer, config: &Config) -> bool {
    match layer.name {
        "network" | "sockets" => {
            !config.verify.network
                || config.pools().iter().any(|pool| pool.network == PoolNetwork::None)
        }
        UNIX_SOCKETS => config.sandbox.unix_sockets == UnixSockets::Own,
        "users" => nix::unistd::geteuid().is_root(),
        _ => true,
    }
}

/// `sandbox.mode: required` is a promise: without the walls around files, network and sockets nothing
/// runs.
pub(super) fn check_required(config: &Config) -> Result<(), CycleError> {
    if config.sandbox.mode != SandboxMode::Required {
        return Ok(());
    }
    let missing = |layer: &Layer| is_needed(layer) && !layer.held && wanted(layer, config);
    match kernel(config).into_iter().find(missing) {
        Some(layer) => Err(CycleError::input(
            format!(
                "the sandbox is required, and its layer `{}` is missing: {}",
                layer.name, layer.detail
            ),
            "run on a newer kernel, or set `sandbox: {mode: best-effort}`",
        )),
        None => Ok(()),
    }
}

/// Is it one of the layers that `required` insists on?
pub(super) fn is_needed(layer: &Layer) -> bool {
    matches!(layer.name, "files" | "network" | "sockets")
}
