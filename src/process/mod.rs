//! Child processes with walls: own group killed whole, clean environment, deadlines, output caps.
//!
//! A child gets exactly the environment it is given. All that it starts is gone when [`run`]
//! returns, when its future is dropped, and when this process dies: a warden between us and the
//! child adopts and ends whatever leaves the process group. Should the warden itself be killed, its
//! flock is found by a marker in the environment and by ancestry. Output beyond the cap is dropped
//! from its middle, never a failure.

mod calls;
mod capture;
mod disk;
mod group;
mod init;
mod reach;
mod run;
mod sandbox;
mod table;
mod users;
mod walls;
mod warden;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

pub use group::end_below;
pub use init::{INIT_SUBCOMMAND, supervise};
pub use reach::Reach;
pub use run::run;
pub use sandbox::{Layer, UNIX_SOCKETS, layers};
pub use users::{can_separate, hand_over};
pub use walls::{SANDBOX_SUBCOMMAND, Sandbox, Walls, enter};

/// What to run, and within which walls.
#[derive(Debug, Clone)]
pub struct Spec {
    /// Program and arguments; never empty.
    pub argv: Vec<OsString>,
    /// Working directory.
    pub cwd: PathBuf,
    /// The whole environment; nothing is inherited. See [`base_env`].
    pub env: BTreeMap<OsString, OsString>,
    /// Standard input; `None` = empty.
    pub stdin: Option<Vec<u8>>,
    /// Wall clock.
    pub deadline: Duration,
    /// Between the polite and the final signal.
    pub grace: Duration,
    /// Bytes kept of each stream; the rest is read and dropped.
    pub output_cap: usize,
    /// What it must not do.
    pub walls: Walls,
    /// Stops the child when these folders together outgrow a cap.
    pub disk: Option<DiskWatch>,
    /// Stops the child.
    pub cancel: CancellationToken,
}

impl Spec {
    /// A child with an empty input, an hour, 1 MiB of each stream, and no other walls.
    #[must_use]
    pub fn new<A: Into<OsString>>(
        argv: impl IntoIterator<Item = A>,
        cwd: impl Into<PathBuf>,
    ) -> Self {
        Self {
            argv: argv.into_iter().map(Into::into).collect(),
            cwd: cwd.into(),
            env: BTreeMap::new(),
            stdin: None,
            deadline: Duration::from_secs(3_600),
            grace: Duration::from_secs(2),
            output_cap: 1 << 20,
            walls: Walls::default(),
            disk: None,
            cancel: CancellationToken::new(),
        }
    }
}

/// A cap on what a child may write below some folders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskWatch {
    /// Measured together, links not followed.
    pub folders: Vec<PathBuf>,
    /// Bytes that they may grow beyond their size at the start.
    pub growth: u64,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// By itself, with this code.
    Exited(i32),
    /// By a signal that was not ours (a crash, the kernel's memory killer, a file over its limit).
    Signalled(i32),
    /// At its deadline, by us.
    TimedOut,
    /// Cancelled, by us.
    Cancelled,
    /// Over its disk cap, by us.
    OverDisk,
    /// Over its memory, by us.
    OverMemory,
    /// Too many processes and threads, by us.
    OverTasks,
}

impl Status {
    /// Ended by itself with code 0.
    #[must_use]
    pub fn success(self) -> bool {
        self == Self::Exited(0)
    }
}

/// A stream's text as far as it was kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    /// Head and tail, with a line between that says how much is missing.
    pub bytes: Vec<u8>,
    /// Bytes that the child wrote in all.
    pub total: u64,
    /// Was something dropped?
    pub truncated: bool,
}

impl Captured {
    /// The text, bytes that are no UTF-8 replaced.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// A child's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// Standard output.
    pub stdout: Captured,
    /// Standard error.
    pub stderr: Captured,
    /// Wall clock.
    pub elapsed: Duration,
}

/// Keeps other processes of the same user from reading this one's memory and environment, where the
/// tokens are (`PR_SET_DUMPABLE`; root can read all the same, which is why children of root keep no
/// capability).
pub fn hide() {
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// A child that could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// No program was named.
    #[error("no program was named")]
    Empty,
    /// The program is not there.
    #[error("the program '{program}' was not found on the path '{path}'")]
    NotFound {
        /// As it was named.
        program: String,
        /// The child's own search path.
        path: String,
    },
    /// The system refused.
    #[error("'{program}' could not be started: {source}")]
    Spawn {
        /// As it was named.
        program: String,
        /// Why.
        source: std::io::Error,
    },
}

/// The environment that a child needs to work at all and nothing more: where to find programs, a
/// home and a temporary folder of its own, a plain UTF-8 locale.
#[must_use]
pub fn base_env(home: &Path, path: &OsStr) -> BTreeMap<OsString, OsString> {
    let tmp = home.join("tmp");
    [
        ("PATH", path),
        ("HOME", home.as_os_str()),
        ("TMPDIR", tmp.as_os_str()),
        ("LANG", OsStr::new("C.UTF-8")),
        ("LC_ALL", OsStr::new("C.UTF-8")),
        ("TERM", OsStr::new("dumb")),
        ("NO_COLOR", OsStr::new("1")),
        ("CI", OsStr::new("true")),
    ]
    .into_iter()
    .map(|(name, value)| (name.into(), value.to_owned()))
    .collect()
}
