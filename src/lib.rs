//! `overhaul` turns findings about a repository into verified pull requests.
//!
//! A pure core that decides ([`model`], [`config`], [`ledger`], [`intake`], [`planning`],
//! [`scheduling`], [`commands`]), edges that act ([`backends`], [`workspace`], [`forge`],
//! [`store`], [`actions`], [`report`]) on a small base ([`git`], [`process`]), and one thin storey
//! that joins them ([`cycle`], [`cli`]). Imports run downward only; `tests/it/architecture.rs`
//! walks them and fails on an upward arrow.

pub mod actions;
pub mod backends;
pub mod cli;
pub mod commands;
pub mod config;
pub mod cycle;
pub mod failpoint;
pub mod forge;
pub mod git;
pub mod intake;
pub mod ledger;
pub mod model;
pub mod planning;
pub mod process;
pub mod report;
pub mod scheduling;
pub mod store;
pub mod workspace;
