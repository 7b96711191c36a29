//! In a container the binary is process 1: it ends as the process that works ends.

use std::process::Command;

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
