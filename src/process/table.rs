//! The process table, as `/proc` shows it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nix::unistd::SysconfVar;

/// One process.
pub(super) struct Process {
    pub(super) parent: i32,
    pub(super) group: i32,
    pub(super) zombie: bool,
    /// Clock ticks after boot: tells a process from a later one with the same id.
    pub(super) started: u64,
    /// Threads, the first one too.
    pub(super) threads: u64,
    /// Resident memory, pages.
    pub(super) pages: u64,
}

/// Every process that `/proc` shows.
pub(super) fn all() -> BTreeMap<i32, Process> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .flatten()
        .filter_map(|entry| {
            let id: i32 = entry.file_name().to_str()?.parse().ok()?;
            Some((id, one(id)?))
        })
        .collect()
}

/// One process, if it is there.
pub(super) fn one(id: i32) -> Option<Process> {
    parse_stat(&std::fs::read(format!("/proc/{id}/stat")).ok()?)
}

/// Everything below `ancestor`, itself left out.
pub(super) fn descendants(all: &BTreeMap<i32, Process>, ancestor: i32) -> BTreeSet<i32> {
    let mut children: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for (id, process) in all {
        children.entry(process.parent).or_default().push(*id);
    }
    let mut family = BTreeSet::new();
    let mut next = vec![ancestor];
    while let Some(parent) = next.pop() {
        for child in children.get(&parent).into_iter().flatten() {
            if family.insert(*child) {
                next.push(*child);
            }
        }
    }
    family
}

/// Threads and resident bytes below `ancestor`; pages that processes share count for each.
pub(super) fn weight(ancestor: i32) -> (u64, u64) {
    let page = nix::unistd::sysconf(SysconfVar::PAGE_SIZE).ok().flatten().unwrap_or(4_096);
    let page = u64::try_from(page).unwrap_or(4_096);
    family(ancestor).iter().filter_map(|id| one(*id)).fold((0, 0), |(threads, bytes), process| {
        (threads + process.threads, bytes + process.pages.saturating_mul(page))
    })
}

/// Everything below `ancestor`, itself left out. The cost lies in the family where the kernel lists
/// children, else in all processes.
pub(super) fn family(ancestor: i32) -> BTreeSet<i32> {
    listed_family(ancestor).unwrap_or_else(|| descendants(&all(), ancestor))
}

/// As [`descendants`], from the kernel's own lists (`CONFIG_PROC_CHILDREN`); `None` without them.
fn listed_family(ancestor: i32) -> Option<BTreeSet<i32>> {
    let mut family = BTreeSet::new();
    let mut next = vec![ancestor];
    while let Some(parent) = next.pop() {
        // Gone since it was listed.
        let Ok(threads) = std::fs::read_dir(format!("/proc/{parent}/task")) else { continue };
        for thread in threads.flatten() {
            let list = match std::fs::read_to_string(thread.path().join("children")) {
                Ok(list) => list,
                Err(_) if parent == ancestor => return None,
                Err(_) => continue,
            };
            let children = list.split_ascii_whitespace().filter_map(|id| id.parse().ok());
            next.extend(children.filter(|id| family.insert(*id)));
        }
    }
    Some(family)
}

/// Processes of our own user that live below `folder`: they work there, or it is their home. With
/// their start times.
pub(super) fn living_below(folder: &Path) -> Vec<(i32, u64)> {
    let me = i32::try_from(std::process::id()).unwrap_or(0);
    all()
        .into_iter()
        .filter(|(id, process)| *id != me && !process.zombie && lives_below(*id, folder))
        .map(|(id, process)| (id, process.started))
        .collect()
}

/// What can't be read is another user's, and not ours to judge.
fn lives_below(id: i32, folder: &Path) -> bool {
    let home = |name: &[u8]| [name, folder.as_os_str().as_encoded_bytes(), b"/"].concat();
    let (home, tmp) = (home(b"HOME="), home(b"TMPDIR="));
    ["cwd", "root"].iter().any(|link| {
        std::fs::read_link(format!("/proc/{id}/{link}")).is_ok_and(|at| at.starts_with(folder))
    }) || std::fs::read(format!("/proc/{id}/environ")).is_ok_and(|environ| {
        environ.split(|b| *b == 0).any(|v| v.starts_with(&home) || v.starts_with(&tmp))
    })
}

/// proc_pid_stat(5): `pid (comm) state ppid pgrp ...`; the name may hold anything. Field numbers of
/// the manual less 3: 4 parent, 5 group, 20 threads, 22 start time, 24 resident pages.
fn parse_stat(stat: &[u8]) -> Option<Process> {
    let close = stat.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(stat.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Process {
        zombie: matches!(*fields.first()?, "Z" | "X"),
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        threads: fields.get(17)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        pages: fields.get(21)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::{living_below, one, parse_stat, weight};

    #[test]
    fn names_with_brackets_and_spaces() {
        let line = b"12 (a) b (c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 777 1 2 3";
        let process = parse_stat(line).unwrap();
        assert_eq!((process.parent, process.group, process.zombie), (1, 12, false));
        assert_eq!((process.started, process.threads, process.pages), (777, 3, 2));
    }

    #[test]
    fn children_are_weighed_and_found_by_where_they_live() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("slot");
        std::fs::create_dir(&home).unwrap();
        let mut by_folder =
            std::process::Command::new("sleep").arg("1000").current_dir(&home).spawn().unwrap();
        let mut by_home = std::process::Command::new("sleep")
            .arg("1000")
            .env("HOME", home.join("home"))
            .current_dir("/")
            .spawn()
            .unwrap();
        let id = |child: &std::process::Child| i32::try_from(child.id()).unwrap();
        let (threads, bytes) = weight(i32::try_from(std::process::id()).unwrap());
        assert!(threads >= 2 && bytes > 0);
        let found = living_below(&home);
        let elsewhere = living_below(&dir.path().join("slot-2"));
        for child in [&by_folder, &by_home] {
            let started = one(id(child)).unwrap().started;
            assert!(found.contains(&(id(child), started)), "{found:?}");
        }
        assert!(elsewhere.is_empty(), "{elsewhere:?}");
        for child in [&mut by_folder, &mut by_home] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
