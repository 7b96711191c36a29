//! Finding and killing everything that a child started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// The variable that marks every process of one child: it is inherited across `setsid` and any
/// number of forks.
pub(super) const MARKER: &str = "OVERHAUL_PROCESS";

/// How often a sweep looks again: a fork in flight shows up in the next round.
const ROUNDS: usize = 20;

/// Kills the child's whole family when dropped, unless it is known to be gone.
pub(super) struct Family {
    group: Pid,
    marker: Vec<u8>,
    /// Processes that were seen below the leader, with their start times against reuse of ids.
    known: BTreeMap<i32, u64>,
    done: bool,
}

impl Family {
    pub(super) fn new(leader: u32, marker: &str) -> Self {
        Self {
            group: Pid::from_raw(i32::try_from(leader).unwrap_or(i32::MAX)),
            marker: format!("{MARKER}={marker}").into_bytes(),
            known: BTreeMap::new(),
            done: false,
        }
    }

    /// Sends `signal` to the group, and to members that left it.
    pub(super) fn signal(&mut self, signal: Signal) {
        self.remember();
        let _ = killpg(self.group, signal);
        for pid in self.strays() {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }

    /// Kills all that is left, until nothing is; tells whether anything was.
    pub(super) fn sweep(&mut self) -> bool {
        let mut found = false;
        for round in 0..ROUNDS {
            let group = self.group_alive();
            if group {
                let _ = killpg(self.group, Signal::SIGKILL);
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
            found = true;
            std::thread::sleep(Duration::from_millis(1 << round.min(4)));
        }
        self.done = true;
        found
    }

    /// Notes who descends from the leader, while the ancestry still shows.
    pub(super) fn remember(&mut self) {
        let all = processes();
        let mut family: BTreeSet<i32> = BTreeSet::from([self.group.as_raw()]);
        loop {
            let before = family.len();
            family.extend(
                all.iter()
                    .filter(|(_, p)| family.contains(&p.parent))
                    .map(|(id, _)| *id)
                    .collect::<Vec<_>>(),
            );
            if family.len() == before {
                break;
            }
        }
        family.remove(&self.group.as_raw());
        for id in family {
            if let Some(process) = all.get(&id) {
                self.known.insert(id, process.started);
            }
        }
    }

    /// Does the group have a member that is no zombie?
    fn group_alive(&self) -> bool {
        processes().values().any(|p| p.group == self.group.as_raw() && !p.zombie)
    }

    /// Living members by marker or by former ancestry, whatever their group.
    fn strays(&self) -> Vec<i32> {
        let me = i32::try_from(std::process::id()).unwrap_or(0);
        processes()
            .into_iter()
            .filter(|(id, process)| {
                *id != me
                    && !process.zombie
                    && *id != self.group.as_raw()
                    && (self.known.get(id) == Some(&process.started) || self.marked(*id))
            })
            .map(|(id, _)| id)
            .collect()
    }

    fn marked(&self, id: i32) -> bool {
        std::fs::read(format!("/proc/{id}/environ"))
            .is_ok_and(|environ| environ.split(|b| *b == 0).any(|var| var == self.marker))
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        if !self.done {
            self.remember();
            self.sweep();
        }
    }
}

struct Process {
    parent: i32,
    group: i32,
    zombie: bool,
    started: u64,
}

/// Every process that `/proc` shows.
fn processes() -> BTreeMap<i32, Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(entry.path().join("stat")).ok()?;
            Some((id, parse_stat(&stat)?))
        })
        .collect()
}

/// proc(5): `pid (comm) state ppid pgrp ...`, start time is field 22; the name may hold anything.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let close = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::parse_stat;

    #[test]
    fn names_with_brackets_and_spaces() {
        let line = b"12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1 2 3";
        let process = parse_stat(line).unwrap();
        assert_eq!((process.parent, process.group, process.zombie), (1, 12, false));
        assert_eq!(process.started, 777);
    }
}
