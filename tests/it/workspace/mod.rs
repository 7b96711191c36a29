//! A node's worktree: what a worker may do to it, and what lands of it.

mod boundary;
mod fixture;
mod landing;
mod remote;
mod scope;
mod taking;
mod verify;
