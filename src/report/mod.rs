//! Templates: comments, pull request bodies, dashboard, step summary, HTML report.
