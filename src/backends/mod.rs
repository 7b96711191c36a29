//! Pools at work: one file or folder per provider, and the rules that classify their failures.

pub mod classify;
mod worker;

pub use worker::{Attempt, Blocked, WorkReport, Worker, WorkerResult};
