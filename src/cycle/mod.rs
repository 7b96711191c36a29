//! One `next-step` cycle: observe, grant, work, land, report.

mod accept;
mod attempt;
mod bases;
mod clock;
mod close;
mod context;
pub mod doctor;
mod drive;
mod error;
mod holder;
mod inbox;
mod journal;
mod land;
mod names;
mod next_step;
mod open;
mod pause;
mod pools;
mod proof;
mod reconcile;
mod setup;
mod show;
mod status;
mod steer;
mod view;

pub use clock::Clock;
pub use close::{OUTCOMES_BLOB, state_word};
pub use context::{BaseHead, Cycle, ReadyPool, Recheck};
pub use error::CycleError;
pub use journal::{Journal, JournalError, Written};
pub use next_step::{CycleReport, FailedNode, Status, next_step};
pub use open::{Given, package_scripts, policy};
pub use pools::{Env, PoolSet};
pub use setup::{Options, Place, default_work_root};
pub use status::{NodeStatus, PoolStatus, RunStatus, run_status};
pub use steer::{Steer, Steered, steer};
