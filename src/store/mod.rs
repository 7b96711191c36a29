//! Where the ledger is kept: on a git branch, in a directory, in workflow artifacts.
