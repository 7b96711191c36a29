//! Rigs that stand in for the world, shared by integration tests and examples.

pub mod github;
