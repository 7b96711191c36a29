//! Paths inside the repository.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A path relative to the repository's root: `/`-separated, no `.`/`..` components, no leading or
/// trailing slash, no NUL, never empty, and never inside a `.git` folder.
#[derive(
    Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct RepoPath(String);

/// Why a text is no path inside the repository.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Empty, or only dots and slashes.
    #[error("the path is empty")]
    Empty,
    /// Starts at a root or a drive.
    #[error("'{0}' is absolute; paths are relative to the repository root")]
    Absolute(String),
    /// Leaves the repository.
    #[error("'{0}' leaves the repository")]
    Escapes(String),
    /// Contains a NUL byte or a line break.
    #[error("the path contains a control character")]
    Control,
    /// Lies in a `.git` folder.
    #[error("'{0}' lies inside a .git folder")]
    GitInternal(String),
}

impl RepoPath {
    /// Normalises (drops `.` and doubled or trailing slashes, resolves inner `..`) and checks.
    ///
    /// # Errors
    /// When the path is empty, absolute, leaves the repository, or is inside `.git`.
    pub fn new(text: &str) -> Result<Self, PathError> {
        if text.chars().any(|c| matches!(c, '\0' | '\n' | '\r')) {
            return Err(PathError::Control);
        }
        if text.starts_with('/') {
            return Err(PathError::Absolute(text.to_owned()));
        }
        let mut parts: Vec<&str> = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return Err(PathError::Escapes(text.to_owned()));
                    }
                }
                other => parts.push(other),
            }
        }
        if parts.iter().any(|p| p.eq_ignore_ascii_case(".git")) {
            return Err(PathError::GitInternal(text.to_owned()));
        }
        if parts.is_empty() { Err(PathError::Empty) } else { Ok(Self(parts.join("/"))) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RepoPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RepoPath {
    type Error = PathError;
    fn try_from(text: String) -> Result<Self, PathError> {
        Self::new(&text)
    }
}

impl From<RepoPath> for String {
    fn from(path: RepoPath) -> String {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::{PathError, RepoPath};

    #[test]
    fn normal_forms_and_refusals() {
        assert_eq!(RepoPath::new("./a//b/../c/").map(String::from), Ok("a/c".to_owned()));
        assert!(matches!(RepoPath::new("../x"), Err(PathError::Escapes(_))));
        assert!(matches!(RepoPath::new("/etc/passwd"), Err(PathError::Absolute(_))));
        assert!(matches!(RepoPath::new("a/.GIT/config"), Err(PathError::GitInternal(_))));
        assert_eq!(RepoPath::new("."), Err(PathError::Empty));
        assert_eq!(RepoPath::new("a\nb"), Err(PathError::Control));
    }
}
