//! Pools at work: one file or folder per provider, and the rules that classify their failures.

pub mod agents;
pub mod classify;
pub mod command;
mod confinement;
mod factory;
pub mod gateway;
pub mod openai;
pub mod prompt;
pub mod redact;
pub mod result;
pub mod scripted;
#[cfg(test)]
pub(crate) mod testing;
mod worker;

pub use confinement::Confinement;
pub use factory::{Surroundings, WorkerError, upstream, worker_for};
pub use worker::{Attempt, Blocked, ModelSwitch, WorkReport, Worker, WorkerResult};
