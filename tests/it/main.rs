//! Integration tests, one binary (linking is what costs): one module per user story.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panic")]

#[path = "../support/mod.rs"]
mod rigs;
#[path = "../support/seeded.rs"]
mod seeded;

mod agents;
mod architecture;
mod attempts;
mod branches;
mod classify;
mod command_workers;
mod comments;
mod config;
mod crash;
mod desk;
mod dispatch;
mod docs;
mod doctor;
mod fan_out;
mod gateway;
mod github_forge;
mod github_run;
mod hostile;
mod hostile_input;
mod hostile_walls;
mod ledger;
mod local_forge;
mod next_step;
mod nim;
mod orders;
mod packaging;
mod plan;
mod process;
mod process_one;
mod promises;
mod real_answers;
mod scheduling;
mod simulate;
mod store;
mod support;
mod tool_loop;
mod workspace;
