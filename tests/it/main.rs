//! Integration tests, one binary (linking is what costs): one module per user story.

mod ledger;
