//! A GitHub on this machine, to point the binary at: `cargo run --example fake-github -- 8080`.
//! See `docs/testing.md`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "test support")]
#![allow(clippy::print_stdout, reason = "a program for people")]

#[path = "../tests/support/mod.rs"]
mod support;

use support::github::artifacts::runtime_token;
use support::github::{Rig, RigClock, RigOptions};

fn main() {
    let port = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let prefix = if std::env::args().any(|text| text == "--ghes") { "/api/v3" } else { "" };
    let rig = Rig::start_with(RigOptions { clock: RigClock::system(), prefix, port });
    println!("GITHUB_SERVER_URL={}", rig.server_url());
    println!("GITHUB_API_URL={}", rig.api_url());
    println!("GITHUB_REPOSITORY=octo/hello");
    println!("GITHUB_TOKEN=ghs_workflow");
    println!("# For jobs that keep their state in artifacts, of the workflow run run-1:");
    println!("ACTIONS_RESULTS_URL={}/", rig.server_url());
    println!("ACTIONS_RUNTIME_TOKEN={}", runtime_token("run-1"));
    println!("# git clone http://x:ghs_workflow@{}", rig.git_url().trim_start_matches("http://"));
    println!("# Requests and what breaks GitHub's description are shown until you end it.");
    let (mut shown, mut told) = (0, 0);
    loop {
        std::thread::park_timeout(std::time::Duration::from_millis(200));
        for line in rig.requests().iter().skip(shown) {
            println!("{line}");
            shown += 1;
        }
        for line in rig.violations().iter().skip(told) {
            println!("BROKEN: {line}");
            told += 1;
        }
    }
}
