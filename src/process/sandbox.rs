//! Putting up the sandbox in a child, and finding out what this kernel has for it.

use std::path::Path;

use caps::CapSet;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope, make_bitflags,
    path_beneath_rules,
};
use nix::sys::prctl;
use serde::Serialize;

use super::calls::{self, Allowed};
use super::{Sandbox, users};

/// The newest access rights that we know; an older kernel leaves out what it lacks.
const NEWEST: ABI = ABI::V9;

/// The oldest Landlock that is of use: before, no file could be moved between folders.
const OLDEST: ABI = ABI::V2;

/// Devices that programs need, and that hold nothing.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Among the processes that the kernel kills when memory runs out, a child comes before us
/// (proc_pid_oom_score_adj(5): up to 1000).
const OOM_SCORE: &str = "900";

/// Restricts this process for good.
pub(super) fn put_up(it: &Sandbox, tasks: Option<u64>) -> Result<(), String> {
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    prctl::set_no_new_privs().map_err(|e| format!("no-new-privileges was refused: {e}"))?;
    let held = restrict(it).map_err(|e| format!("the sandbox was refused: {e}"))?;
    if it.required && !held {
        return Err("the sandbox is required, and this kernel has no Landlock".to_owned());
    }
    let separate = users::become_owner(tasks)?;
    drop_capabilities();
    let allowed = Allowed {
        internet: it.connect.is_none(),
        // Whose sockets they are is told apart by the kernel, or by their owners; else there are none.
        machine: it.any_sockets || separate || own_sockets_held(),
    };
    match calls::keep(allowed) {
        Err(why) if it.required => Err(format!("the wall around sockets was refused: {why}")),
        _ => Ok(()),
    }
}

/// Tells whether the kernel holds the file wall.
fn restrict(it: &Sandbox) -> Result<bool, landlock::RulesetError> {
    if !files_held() {
        return Ok(false);
    }
    let read = AccessFs::from_read(NEWEST);
    // No device nodes, whoever runs us.
    let all = AccessFs::from_all(NEWEST) & !make_bitflags!(AccessFs::{MakeChar | MakeBlock});
    let (mut handled, mut scopes) = (AccessFs::from_all(NEWEST), Scope::from_all(NEWEST));
    if it.any_sockets {
        handled.remove(AccessFs::ResolveUnix);
        scopes.remove(Scope::AbstractUnixSocket);
    }
    let device = make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate | IoctlDev});
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)?
        .scope(scopes)?;
    if it.connect.is_some() {
        rules = rules.handle_access(AccessNet::ConnectTcp)?;
    }
    let mut rules = rules.create()?;
    for (paths, access) in [(&it.read, read & handled), (&it.write, all & handled)] {
        rules = allow(rules, paths, access)?;
    }
    rules = allow(rules, DEVICES, device)?;
    for port in it.connect.iter().flatten() {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(rules.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

fn allow(
    rules: RulesetCreated,
    paths: &[impl AsRef<Path>],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, landlock::RulesetError> {
    // What is not there is passed over: there is nothing to allow.
    rules.add_rules(path_beneath_rules(paths, access))
}

/// Best effort: without the right to do so there is nothing to drop.
fn drop_capabilities() {
    // The bounding set first: it decides what a program that root starts gets again.
    for set in [CapSet::Bounding, CapSet::Ambient, CapSet::Inheritable, CapSet::Effective] {
        let _ = caps::clear(None, set);
    }
    let _ = caps::clear(None, CapSet::Permitted);
}

/// One layer of the sandbox, and whether this kernel holds it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Layer {
    /// `files`, `network`, `sockets`, `signals`, `unix-sockets`.
    pub name: &'static str,
    /// Does it hold?
    pub held: bool,
    /// What it keeps children from, or what they can do without it.
    pub detail: String,
}

/// The layers that depend on the kernel.
#[must_use]
pub fn layers() -> Vec<Layer> {
    let layer = |name, held: bool, with: &str, without: &str| Layer {
        name,
        held,
        detail: if held { with } else { without }.to_owned(),
    };
    let by_kind = calls::held();
    vec![
        layer(
            "files",
            files_held(),
            "workers and checks reach their own worktree, home and the system's programs only",
            "no Landlock (Linux 5.19): workers and checks can read and write what the user can, and \
             read the environment of other workers",
        ),
        layer(
            "network",
            hard().handle_access(AccessNet::ConnectTcp).and_then(Ruleset::create).is_ok(),
            "TCP connections are refused where none are allowed",
            "no Landlock of Linux 6.7: TCP can't be kept from workers and checks",
        ),
        layer(
            "sockets",
            by_kind,
            "UDP, raw and all other sockets are refused where no network is allowed",
            "no filter of system calls (seccomp): UDP and other sockets can't be kept from workers and \
             checks",
        ),
        layer(
            "signals",
            hard().scope(Scope::Signal).and_then(Ruleset::create).is_ok(),
            "workers and checks can't signal other processes",
            "no Landlock of Linux 6.12: workers and checks can signal processes of the same user",
        ),
        if own_sockets_held() || !by_kind {
            layer(
                UNIX_SOCKETS,
                own_sockets_held(),
                "sockets of the machine (such as Docker's) are out of reach",
                "neither Landlock of Linux 7.1 nor a filter of system calls: sockets that the user may \
                 open (such as Docker's) are within reach of workers and checks",
            )
        } else {
            layer(
                UNIX_SOCKETS,
                true,
                "sockets of the machine (such as Docker's) are out of reach; without Landlock of Linux \
                 7.1 programs make none of their own either, pairs excepted (`sandbox: {unix-sockets: \
                 any}` opens all)",
                "",
            )
        },
    ]
}

/// Name of the layer around the machine's own sockets.
pub const UNIX_SOCKETS: &str = "unix-sockets";

/// Can the kernel tell a child's own sockets from those of others?
fn own_sockets_held() -> bool {
    hard().handle_access(AccessFs::ResolveUnix).and_then(Ruleset::create).is_ok()
}

fn files_held() -> bool {
    hard().handle_access(AccessFs::from_all(OLDEST)).and_then(Ruleset::create).is_ok()
}

fn hard() -> Ruleset {
    Ruleset::default().set_compatibility(CompatLevel::HardRequirement)
}
