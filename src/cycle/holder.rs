//! Who holds a claim, and whether that process still lives.
//!
//! On Actions a holder is a workflow run, and the forge is asked. Elsewhere it is a process of one
//! boot of one machine in one pid namespace, and `/proc` is asked. Whatever can't be told is
//! `Unknown`, and then only the lease decides.

use std::fs;

use crate::forge::{Alive, Forge};
use crate::ledger::Holder;

/// This process as a holder.
#[must_use]
pub fn this_process(workflow_run: Option<u64>, workflow_attempt: Option<u32>) -> Holder {
    Holder { workflow_run, workflow_attempt, process: describe(std::process::id()) }
}

/// `boot/namespace/pid/start-time`: the pid alone is used again by the kernel.
fn describe(pid: u32) -> Option<String> {
    let place = place()?;
    let start = start_time(pid)?;
    Some(format!("{place}/{pid}/{start}"))
}

fn place() -> Option<String> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{}/{}", boot.trim(), namespace.to_string_lossy()))
}

/// Field 22 of `/proc/<pid>/stat` (proc_pid_stat(5)): clock ticks after boot.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces and parentheses; fields count from the last one.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // A zombie has ended.
    if fields.first() == Some(&"Z") {
        return None;
    }
    fields.get(19)?.parse().ok()
}

/// Whether the holder lives.
pub async fn alive(holder: &Holder, forge: &dyn Forge) -> Alive {
    if let Some(run) = holder.workflow_run {
        return forge.workflow_run_alive(run, holder.workflow_attempt.unwrap_or(1)).await;
    }
    let Some(process) = &holder.process else { return Alive::Unknown };
    let Some((there, rest)) = process.rsplit_once('/').and_then(|(head, start)| {
        let (there, pid) = head.rsplit_once('/')?;
        Some((there, (pid.parse::<u32>().ok()?, start.parse::<u64>().ok()?)))
    }) else {
        return Alive::Unknown;
    };
    if place().as_deref() != Some(there) {
        return Alive::Unknown;
    }
    let (pid, start) = rest;
    if start_time(pid) == Some(start) { Alive::Yes } else { Alive::No }
}

#[cfg(test)]
mod tests {
    use super::{describe, place, start_time};

    #[test]
    fn this_process_is_described_and_found() {
        let me = std::process::id();
        let text = describe(me).expect("Linux has /proc");
        assert!(text.starts_with(&place().expect("Linux has /proc")));
        assert!(text.ends_with(&format!("/{me}/{}", start_time(me).expect("we live"))));
        assert_eq!(start_time(u32::MAX), None);
    }
}
