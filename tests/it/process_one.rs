//! In a container the binary is process 1: it ends as the process that works ends.

use std::process::{Command, Stdio};

use overhaul::process::INIT_SUBCOMMAND;

fn under_init(args: &[&str]) -> std::process::Output {
    Command::new(env!("CARGO_BIN_EXE_overhaul")).arg(INIT_SUBCOMMAND).args(args).output().unwrap()
}

#[test]
fn arguments_output_and_exit_code_are_those_of_the_work() {
    let version = under_init(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("overhaul "));
    assert_eq!(under_init(&["no-such-command"]).status.code(), Some(2));
}

#[test]
fn signals_reach_the_work() {
    // It waits for its standard input, which stays open.
    let mut child = Command::new(env!("CARGO_BIN_EXE_overhaul"))
        .args([INIT_SUBCOMMAND, "explain", "error"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    let status = child.wait().unwrap();
    // 143 = told by the one that looks after it; before it does, the signal ends it directly.
    use std::os::unix::process::ExitStatusExt as _;
    assert!(status.code() == Some(143) || status.signal() == Some(15), "{status:?}");
}
