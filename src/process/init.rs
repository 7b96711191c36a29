//! The duties of process 1.
//!
//! In a container action the binary is process 1: the kernel gives it no default action for
//! signals, and orphans of tools become its children and stay as zombies. So process 1 only starts
//! the real process, passes signals on, reaps whatever ends, and ends as its child did.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// The hidden first argument that asks for the same duties in any process.
pub const INIT_SUBCOMMAND: &str = "__init";

/// Signals that are passed on.
const PASSED_ON: [Signal; 6] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
];

/// Does the duties if they are this process's; `None` when they are not and the caller goes on.
/// Call it before any thread exists.
pub fn supervise() -> Option<ExitCode> {
    let mut args: Vec<OsString> = std::env::args_os().skip(1).collect();
    if args.first().is_some_and(|first| first == INIT_SUBCOMMAND) {
        args.remove(0);
        // Orphans come to us as they would to process 1.
        let _ = nix::sys::prctl::set_child_subreaper(true);
    } else if std::process::id() != 1 {
        // The real process inherits the mask of the one that looks after it.
        let _ = watched().thread_unblock();
        return None;
    }
    // A failure to supervise must not keep the work from being done.
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.args(args);
    serve(&mut command)
}

fn watched() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

fn serve(command: &mut Command) -> Option<ExitCode> {
    // Blocked before the child exists, so that no signal falls between; the child unblocks them
    // when it comes here itself.
    let signals = watched();
    signals.thread_block().ok()?;
    let child = match command.spawn() {
        Ok(child) => Pid::from_raw(i32::try_from(child.id()).ok()?),
        Err(_) => {
            let _ = signals.thread_unblock();
            return None;
        }
    };
    loop {
        match signals.wait() {
            Ok(Signal::SIGCHLD) => {
                if let Some(code) = reap(child) {
                    return Some(code);
                }
            }
            Ok(signal) => {
                let _ = kill(child, signal);
            }
            Err(_) => {}
        }
    }
}

/// Reaps everything that has ended; the exit code when the child itself has.
fn reap(child: Pid) -> Option<ExitCode> {
    let mut code = None;
    loop {
        // -1: any child, the orphans that came to us too.
        match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == child => {
                code = Some(ExitCode::from(u8::try_from(status).unwrap_or(1)));
            }
            // As a shell tells it.
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                code = Some(ExitCode::from(u8::try_from(128 + signal as i32).unwrap_or(1)));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return code,
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return code,
        }
    }
}
