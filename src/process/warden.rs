//! The process between us and a child, which outlives neither.
//!
//! It does nothing but wait. As a subreaper it inherits every orphan of the child, so nothing that
//! the child starts leaves its tree: a double fork, `setsid`, a cleared environment change nothing.
//! It ends the whole tree when the child has ended, when it is asked to, and when we die, however
//! that happens: the kernel tells it.

use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};

use super::table;
use super::walls::SANDBOX_SUBCOMMAND;

/// "End all that you watch, and yourself."
pub(super) const END_ALL: Signal = Signal::SIGUSR1;

/// What the kernel sends when the thread that started the warden ends.
const PARENT_DIED: Signal = Signal::SIGUSR2;

/// Signals that the warden hears. Polite ones are for the child, which gets them itself.
const HEARD: [Signal; 7] = [
    END_ALL,
    PARENT_DIED,
    Signal::SIGCHLD,
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
];

/// How long the kernel gets to end what was killed; only a process that hangs in the kernel takes
/// longer.
const KILL_GRACE: Duration = Duration::from_secs(8);

/// Watches over `overhaul __sandbox <args>` for the process `parent`. The error says why it could
/// not begin.
pub(super) fn watch(parent: i32, args: &[OsString]) -> Result<ExitCode, String> {
    let failed = |what: &str, error: Errno| format!("{what} was refused: {error}");
    let heard: SigSet = HEARD.into_iter().collect();
    heard.thread_block().map_err(|e| failed("waiting for signals", e))?;
    prctl::set_child_subreaper(true).map_err(|e| failed("adopting orphans", e))?;
    prctl::set_pdeathsig(PARENT_DIED).map_err(|e| failed("ending with the parent", e))?;
    if getppid().as_raw() != parent {
        return Err("the process that wanted this is gone".to_owned());
    }
    // Nobody traces what watches over him. It ends as the child did, but leaves no picture of itself.
    let _ = prctl::set_dumpable(false);
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let child = std::env::current_exe()
        .and_then(|me| Command::new(me).arg(SANDBOX_SUBCOMMAND).args(args).spawn())
        .map_err(|error| format!("the child could not be started: {error}"))?;
    let child = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    let ended = loop {
        match heard.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(status) = reap(child) {
                    break Some(status);
                }
            }
            Ok(END_ALL) => break None,
            // The thread may have ended alone; then another one is our parent, of the same process.
            Ok(PARENT_DIED) if getppid().as_raw() != parent => break None,
            _ => {}
        }
    };
    end_all();
    Ok(end_as(ended))
}

/// Reaps whatever has ended; tells how the child did, if it was among them.
fn reap(child: Pid) -> Option<WaitStatus> {
    let mut ended = None;
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(status @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..)))
                if pid == child =>
            {
                ended = Some(status);
            }
            Ok(WaitStatus::StillAlive) => return ended,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return ended,
        }
    }
}

/// Kills everything below this process, until there is nothing.
fn end_all() {
    let me = i32::try_from(std::process::id()).unwrap_or(i32::MAX);
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    while !is_childless() && start.elapsed() < KILL_GRACE {
        // Stopped first: what is stopped forks no more, so the next look finds fewer new ones.
        let mut stopped = table::family(me);
        for _ in 0..50 {
            for pid in &stopped {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGSTOP);
            }
            let again = table::family(me);
            if again.is_subset(&stopped) {
                break;
            }
            stopped.extend(again);
        }
        for pid in stopped {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if is_childless() {
            return;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

/// Reaps what has ended; is there no child left? As orphans become our children, there is then
/// nothing left of the tree. The kernel knows, without a look at every process.
fn is_childless() -> bool {
    loop {
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => return true,
            Ok(WaitStatus::StillAlive) | Err(_) => return false,
            Ok(_) => {}
        }
    }
}

/// Ends this process as the child ended, so that whoever waits sees the child's own end.
fn end_as(ended: Option<WaitStatus>) -> ExitCode {
    match ended {
        Some(WaitStatus::Exited(_, code)) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        Some(WaitStatus::Signaled(_, signal, _)) => {
            let _ = SigSet::empty().thread_set_mask();
            // The language's own handler of a fault only steps aside for the first one.
            for _ in 0..2 {
                let _ = raise(signal);
            }
            // Only for a signal that does not end a process.
            ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1))
        }
        _ => ExitCode::from(137), // as a shell tells of SIGKILL
    }
}
