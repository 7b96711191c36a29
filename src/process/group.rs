//! Finding and killing everything that a child started.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use super::table;
use super::warden::END_ALL;

/// The variable that marks every process of one child: it is inherited across `setsid` and any
/// number of forks.
pub(super) const MARKER: &str = "OVERHAUL_PROCESS";

/// How often a sweep looks again: a fork in flight shows up in the next round.
const ROUNDS: usize = 20;

/// How long a warden gets to end what it watches.
const WARDEN_GRACE: Duration = Duration::from_secs(10);

/// Kills the child's whole family when dropped, unless it is known to be gone.
pub(super) struct Family {
    /// The child, which leads a group of its own.
    leader: Pid,
    /// Is the child a warden, which ends its family itself when asked?
    warden: bool,
    marker: Vec<u8>,
    /// Processes that were seen below the leader, with their start times against reuse of ids.
    known: BTreeMap<i32, u64>,
    done: bool,
}

impl Family {
    pub(super) fn new(leader: u32, warden: bool, marker: &str) -> Self {
        Self {
            leader: Pid::from_raw(i32::try_from(leader).unwrap_or(i32::MAX)),
            warden,
            marker: format!("{MARKER}={marker}").into_bytes(),
            known: BTreeMap::new(),
            done: false,
        }
    }

    /// The child's id.
    pub(super) fn leader(&self) -> i32 {
        self.leader.as_raw()
    }

    /// Asks all of them to end: the group, and members that left it.
    pub(super) fn ask(&mut self) {
        self.remember();
        let _ = killpg(self.leader, Signal::SIGTERM);
        for pid in self.strays() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }

    /// Ends the leader; a warden ends all that it watches first.
    pub(super) fn end(&mut self) {
        self.remember();
        if self.warden {
            let _ = kill(self.leader, END_ALL);
        } else {
            let _ = killpg(self.leader, Signal::SIGKILL);
        }
    }

    /// Kills all that is left, until nothing is.
    pub(super) fn sweep(&mut self) {
        for round in 0..ROUNDS {
            let group = self.group_alive();
            if group {
                let _ = killpg(self.leader, Signal::SIGKILL);
            }
            let strays = self.strays();
            for pid in &strays {
                let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
                // Ours to reap where we are the init of a container; an error elsewhere.
                let _ = waitpid(Pid::from_raw(*pid), Some(WaitPidFlag::WNOHANG));
            }
            if !group && strays.is_empty() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1 << round.min(4)));
        }
        self.done = true;
    }

    /// Somebody else has seen that nothing is left.
    pub(super) fn is_gone(&mut self) {
        self.done = true;
    }

    /// Notes who descends from the leader, while the ancestry still shows.
    fn remember(&mut self) {
        let all = table::all();
        for id in table::descendants(&all, self.leader.as_raw()) {
            if let Some(process) = all.get(&id) {
                self.known.insert(id, process.started);
            }
        }
    }

    /// Does the group have a member that is no zombie?
    fn group_alive(&self) -> bool {
        table::all().values().any(|p| p.group == self.leader.as_raw() && !p.zombie)
    }

    /// Living members by marker or by former ancestry, whatever their group.
    fn strays(&self) -> Vec<i32> {
        let me = i32::try_from(std::process::id()).unwrap_or(0);
        table::all()
            .into_iter()
            .filter(|(id, process)| {
                *id != me
                    && !process.zombie
                    && *id != self.leader.as_raw()
                    && (self.known.get(id) == Some(&process.started) || self.marked(*id))
            })
            .map(|(id, _)| id)
            .collect()
    }

    fn marked(&self, id: i32) -> bool {
        std::fs::read(format!("/proc/{id}/environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|var| var == self.marker))
    }

    fn leader_alive(&self) -> bool {
        table::one(self.leader.as_raw()).is_some_and(|process| !process.zombie)
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.end();
        let mut waited = Duration::ZERO;
        while self.warden && waited < WARDEN_GRACE && self.leader_alive() {
            let step = Duration::from_millis(5);
            std::thread::sleep(step);
            waited += step;
        }
        self.sweep();
    }
}

/// Ends every process of our user that still lives below `folder`, whose owner is dead; gives how
/// many were killed.
#[must_use]
pub fn end_below(folder: &Path) -> usize {
    let mut killed = std::collections::BTreeSet::new();
    for round in 0..ROUNDS {
        let living = table::living_below(folder);
        if living.is_empty() {
            break;
        }
        for (pid, started) in living {
            // The id may have been given to another process since.
            let same = table::one(pid).is_some_and(|now| now.started == started);
            if same && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
                killed.insert((pid, started));
            }
        }
        std::thread::sleep(Duration::from_millis(1 << round.min(4)));
    }
    killed.len()
}
