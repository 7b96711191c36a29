//! Worktrees, scope, verify, proof, integration.
//!
//! # Where things are
//! ```text
//! <root>/store.git            bare, ours: every object and ref of the run; borrows the objects of
//!                             the user's repository and is unknown to it
//! <root>/slots/<owner>/lock   held by the process that owns the folder
//! <root>/slots/<owner>/<n>/   one slot: tree/ (the worktree), index, home/
//! <root>/base-checks/         what verify commands said about base trees
//! ```
//! A linked worktree would hand its worker a path into the store: whoever can write its `.git` file
//! or the shared hooks and configuration decides what the next git command runs. So a slot is no
//! linked worktree. Ours is the index *outside* the tree and the explicit pair of store and tree
//! that every git command of ours names. What the worker sees as `.git` is a disposable repository
//! of its own (detached at the base, objects borrowed, no hooks, remotes or credentials). It is
//! made anew at each reset and nothing in it is ever read back: commits, resets, a detached head, a
//! deleted or redirected `.git` change nothing about what is taken, which is the files.
//!
//! Conversions are off for every slot (line ends, filters, keyword expansion, encodings), so files
//! and blobs are the same bytes both ways. A file kept in Git LFS is seen as its pointer.

mod error;
mod fs;
mod integrate;
mod parcel;
mod pool;
mod proof;
mod scope;
mod slot;
mod symlink;
mod take;
mod tracked;
mod verify;

pub use error::WorkspaceError;
pub use integrate::{Integrated, Integration, Quarantine, integrate, quarantine, stacked_base};
pub use parcel::{ParcelError, Piece, PieceKind, pack, unpack};
pub use pool::Workspace;
pub use proof::{Recheck, recheck};
pub use scope::{Reason, ScopePolicy, Violation, check};
pub use slot::Slot;
pub use symlink::leads_outside;
pub use take::{TakeLimits, Taken};
pub use verify::{CheckResult, Verdict, Verified, Verifier, VerifySettings, toolchain_env};
