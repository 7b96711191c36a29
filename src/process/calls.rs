//! System calls that a child is kept from: ways out that Landlock has no rights for. It holds TCP by
//! address; every other kind of socket is held here, by kind.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::UdpSocket;

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter, sock_filter,
};

/// What a child is let do with sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Allowed {
    /// Every kind of socket of the internet, not only TCP, which Landlock holds.
    pub internet: bool,
    /// Sockets of the machine, not only pairs.
    pub machine: bool,
}

/// Kinds of sockets (socket(2): `type` without its flags).
const KINDS: std::ops::Range<i32> = 0..16;

/// Ways around the walls, and into the kernel, that neither compilers nor runtimes need; programs take
/// the answer for that of a kernel without them. `io_uring` makes and connects sockets past any filter
/// of calls; keys belong to the user and not to the child; the rest wants rights that a child has not.
const CLOSED: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_bpf,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_setns,
];

/// Restricts this thread, and what it becomes or starts, for good.
pub(super) fn keep(allowed: Allowed) -> Result<(), seccompiler::Error> {
    let closed = CLOSED.iter().map(|call| (*call, Vec::new())).collect();
    apply_filter(&program(closed, libc::ENOSYS)?)?;
    apply_filter(&program(sockets(allowed)?, libc::EACCES)?)
}

/// Whether this kernel holds it: tried in a thread of its own, which ends with it.
pub(super) fn held() -> bool {
    let tried = std::thread::spawn(|| {
        let kept = keep(Allowed { internet: false, machine: false });
        let refused = UdpSocket::bind("127.0.0.1:0").map_err(|error| error.kind());
        kept.is_ok() && refused.err() == Some(ErrorKind::PermissionDenied)
    });
    tried.join().unwrap_or(false)
}

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// The calls that are refused, by what makes them so.
fn sockets(allowed: Allowed) -> Result<Rules, seccompiler::Error> {
    let families: &[i32] = if allowed.machine {
        &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
    } else {
        &[libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK]
    };
    let mut socket = vec![
        // Of hypervisors, radios, drivers, ciphers, packets.
        all(families.iter().map(|family| arg(0, SeccompCmpOp::Ne, *family)))?,
        // Which addresses this machine has is what runtimes ask for, and the kernel answers alone.
        all([
            arg(0, SeccompCmpOp::Eq, libc::AF_NETLINK),
            arg(2, SeccompCmpOp::Ne, libc::NETLINK_ROUTE),
        ])?,
    ];
    let mut refused = Rules::new();
    if !allowed.internet {
        for family in [libc::AF_INET, libc::AF_INET6] {
            let of = || arg(0, SeccompCmpOp::Eq, family);
            for kind in KINDS.filter(|kind| *kind != libc::SOCK_STREAM) {
                socket.push(all([of(), arg(1, SeccompCmpOp::MaskedEq(0xf), kind)])?);
            }
            // Other streams (MPTCP, SCTP) are not TCP to Landlock.
            let other = [0, libc::IPPROTO_TCP].map(|it| arg(2, SeccompCmpOp::Ne, it));
            socket.push(all([of()].into_iter().chain(other))?);
        }
        // A message that opens the connection which carries it never asks for one.
        for (call, at) in [(libc::SYS_sendto, 3), (libc::SYS_sendmsg, 2), (libc::SYS_sendmmsg, 3)] {
            let opens = SeccompCmpOp::MaskedEq(libc::MSG_FASTOPEN.unsigned_abs().into());
            refused.insert(call, vec![all([arg(at, opens, libc::MSG_FASTOPEN)])?]);
        }
    }
    refused.insert(libc::SYS_socket, socket);
    let other = all([arg(0, SeccompCmpOp::Ne, libc::AF_UNIX)])?;
    refused.insert(libc::SYS_socketpair, vec![other]);
    Ok(refused)
}

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

/// Compares an argument, all of which are 32 bits wide here.
fn arg(at: u8, how: SeccompCmpOp, with: i32) -> Condition {
    SeccompCondition::new(at, SeccompCmpArgLen::Dword, how, with.unsigned_abs().into())
}

fn all(conditions: impl IntoIterator<Item = Condition>) -> Result<SeccompRule, seccompiler::Error> {
    let conditions = conditions.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

/// Refuses what matches, with this error.
fn program(refused: Rules, errno: i32) -> Result<BpfProgram, seccompiler::Error> {
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(refused, SeccompAction::Allow, answer, arch)?;
    let checked: BpfProgram = filter.try_into()?;
    Ok(other_numbers().into_iter().chain(checked).collect())
}

/// x86-64 knows each call by a second number (x32, from bit 30 on), which would pass by every rule:
/// there are none of these. Calls of 32 bits, which have numbers of their own, end the process.
fn other_numbers() -> [sock_filter; 3] {
    let step = |code: u32, jf, k| sock_filter { code: code as u16, jt: 0, jf, k };
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, 0x4000_0000),
        step(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs()),
    ]
}
