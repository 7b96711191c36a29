//! Pools at work: one file or folder per provider, and the rules that classify their failures.

pub mod classify;
