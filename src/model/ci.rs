//! How a forge treats what we open.

/// How checks start on the pull requests that we open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CiMode {
    /// An app's token: they start by themselves.
    Automatic,
    /// `GITHUB_TOKEN` on github.com: a person approves their start.
    Approval,
    /// `GITHUB_TOKEN` on a GitHub Enterprise Server: they do not start.
    Never,
    /// Not on GitHub.
    Elsewhere,
}
