//! Templates: everything that people read on the forge, in the step summary and in the report. Small pure
//! functions from plain views to text, each pinned by a snapshot; [`text`] makes untrusted text
//! safe, `page` keeps every page within what the forge takes.

mod branch;
mod combined;
mod dashboard;
pub mod history;
mod html;
pub mod marker;
pub mod notes;
mod page;
mod pause;
mod pull_request;
mod reply;
#[cfg(test)]
mod sample;
mod sarif;
mod summary;
pub mod text;
pub mod view;

pub use branch::{changes_comment, left_alone_comment, needless_comment};
pub use combined::{combined_body, combined_title};
pub use dashboard::{dashboard, dashboard_title};
pub use html::html_report;
pub use page::{BODY_BUDGET, SUMMARY_BUDGET};
pub use pause::{
    pause_comment, pause_issue, pause_issue_title, remedies as pause_remedies, words as pause_words,
};
pub use pull_request::{pull_request_body, pull_request_title};
pub use reply::reply;
pub use sarif::{Remaining, remaining_sarif};
pub use summary::step_summary;
