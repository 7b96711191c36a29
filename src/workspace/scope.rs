//! The write scope, from the difference of two trees and not from anybody's word.

use std::collections::HashSet;
use std::fmt;

use crate::git::{Change, ChangeKind, Mode, Oid, Repo};
use crate::model::{ScopeEntry, SecretKind, find_secret};
use crate::planning::scope::{Protection, Scope};

use super::WorkspaceError;
use super::symlink::{Target, resolve};

/// What a node's tree may differ in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopePolicy {
    /// The node's write scope.
    pub writes: Vec<ScopeEntry>,
    /// Globs of protected paths, beside the fixed ones of [`crate::planning::scope`].
    pub protected: Vec<String>,
    /// May lockfiles change?
    pub allow_lockfiles: bool,
    /// Exceptions from what is protected. An allowed path must still be in `writes`.
    pub allow: Vec<ScopeEntry>,
    /// Largest file after the change, bytes.
    pub max_file_bytes: u64,
}

impl Default for ScopePolicy {
    /// Nothing may be written.
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            protected: Vec::new(),
            allow_lockfiles: false,
            allow: Vec::new(),
            max_file_bytes: super::TakeLimits::default().file_bytes,
        }
    }
}

/// One thing in a tree that may not land.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// From the root, `/`-separated, any bytes.
    pub path: Vec<u8>,
    /// What is wrong with it.
    pub reason: Reason,
}

/// Why a path may not land.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// Outside the node's write scope; the only reason that a policy may amend.
    OutOfScope,
    /// Protected by policy.
    Protected,
    /// Git's own files, or a name that some system takes for them.
    GitInternal,
    /// A new link that leaves the tree, or ends in no place.
    EscapingLink {
        /// Where it points, cut.
        target: String,
    },
    /// A submodule was added, moved or removed.
    Submodule,
    /// The executable bit or the type of a file changed.
    ModeChange,
    /// Over the size limit.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// Added text that looks like a credential.
    Secret {
        /// Which kind.
        kind: SecretKind,
    },
}

impl Violation {
    /// May the policy widen the node's scope over this, instead of refusing the attempt?
    #[must_use]
    pub fn is_amendable(&self) -> bool {
        self.reason == Reason::OutOfScope
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.escape_ascii();
        match &self.reason {
            Reason::OutOfScope => write!(f, "'{path}' is outside the node's write scope"),
            Reason::Protected => write!(f, "'{path}' is protected"),
            Reason::GitInternal => write!(f, "'{path}' belongs to git"),
            Reason::EscapingLink { target } => {
                write!(f, "'{path}' is a link that leaves the tree (to '{target}')")
            }
            Reason::Submodule => write!(f, "'{path}' is a submodule"),
            Reason::ModeChange => write!(f, "'{path}' changed its mode or type"),
            Reason::TooLarge { bytes } => write!(f, "'{path}' is too large ({bytes} bytes)"),
            Reason::Secret { kind } => write!(f, "'{path}' would add a secret ({})", named(*kind)),
        }
    }
}

/// Everything in `tree` that may not land over `base`, in path order; one reason a path, the
/// gravest first: what can be amended comes last.
///
/// # Errors
/// When a tree can't be read, or a glob of the policy can't.
pub fn check(
    repo: &Repo,
    base: Oid,
    tree: Oid,
    policy: &ScopePolicy,
) -> Result<Vec<Violation>, WorkspaceError> {
    let protection = Protection::new(&policy.protected, policy.allow_lockfiles)?;
    let writes = Scope::new(&policy.writes)?;
    let allow = Scope::new(&policy.allow)?;
    let mut violations = Vec::new();
    for change in repo.diff(base, tree)? {
        let path = &change.path;
        let reason = if is_git_internal(path) {
            Some(Reason::GitInternal)
        } else if is_submodule(&change) {
            Some(Reason::Submodule)
        } else if changes_mode(&change) {
            Some(Reason::ModeChange)
        } else if protection.covers(path) && !allow.matches(path) {
            Some(Reason::Protected)
        } else if let Some(reason) = content(repo, tree, &change, policy.max_file_bytes)? {
            Some(reason)
        } else if !writes.matches(path) {
            Some(Reason::OutOfScope)
        } else {
            None
        };
        violations.extend(reason.map(|reason| Violation { path: change.path.clone(), reason }));
    }
    Ok(violations)
}

fn is_submodule(change: &Change) -> bool {
    [change.old, change.new].into_iter().flatten().any(|(mode, _)| mode == Mode::Submodule)
}

fn changes_mode(change: &Change) -> bool {
    change.kind == ChangeKind::TypeChanged
        || matches!((change.old, change.new), (Some((old, _)), Some((new, _))) if old != new)
}

/// What is wrong with the new content.
fn content(
    repo: &Repo,
    tree: Oid,
    change: &Change,
    max: u64,
) -> Result<Option<Reason>, WorkspaceError> {
    let Some((mode, id)) = change.new else { return Ok(None) };
    let bytes = repo.size(id)?;
    if bytes > max {
        return Ok(Some(Reason::TooLarge { bytes }));
    }
    let new = repo.blob(id)?;
    if mode == Mode::Symlink {
        return Ok(match resolve(repo, tree, &change.path, &new)? {
            Target::Inside => None,
            Target::Outside => {
                let target: String = new.escape_ascii().to_string().chars().take(200).collect();
                Some(Reason::EscapingLink { target })
            }
        });
    }
    let old = match change.old {
        Some((Mode::File | Mode::Executable, id)) => repo.blob(id)?,
        _ => Vec::new(),
    };
    Ok(added_secret(&old, &new).map(|kind| Reason::Secret { kind }))
}

/// Looks at the lines that the old file does not have.
fn added_secret(old: &[u8], new: &[u8]) -> Option<SecretKind> {
    let known: HashSet<&[u8]> = old.split(|b| *b == b'\n').collect();
    let added: Vec<u8> = new
        .split(|b| *b == b'\n')
        .filter(|line| !known.contains(line))
        .flat_map(|line| line.iter().copied().chain([b'\n']))
        .collect();
    find_secret(&added)
}

fn named(kind: SecretKind) -> &'static str {
    match kind {
        SecretKind::ApiKey => "an API key",
        SecretKind::ForgeToken => "a forge token",
        SecretKind::CloudKey => "a cloud access key",
        SecretKind::Jwt => "a web token",
        SecretKind::PrivateKey => "a private key",
    }
}

/// Git's own names, and what Windows (short names, trailing dots and blanks, streams) and macOS
/// (invisible letters) take for them; see `is_ntfs_dotgit` in git's path.c and `is_hfs_dotgit` in
/// its utf8.c.
fn is_git_internal(path: &[u8]) -> bool {
    path.split(|b| matches!(b, b'/' | b'\\')).any(|component| {
        let name = folded(component);
        let short = |prefix: &str| {
            name.strip_prefix(prefix)
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        matches!(name.as_str(), ".git" | ".gitmodules")
            || short("git~")
            || short("gitmod~")
            || short("gitatt~")
    })
}

/// A file name as the most forgiving file systems read it.
fn folded(component: &[u8]) -> String {
    let text = String::from_utf8_lossy(component);
    let text: String = text
        .chars()
        .filter(|c| {
            !matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
        })
        .flat_map(char::to_lowercase)
        .collect();
    let text = text.split(':').next().unwrap_or_default();
    text.trim_end_matches(['.', ' ']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{added_secret, is_git_internal};

    #[test]
    fn names_that_some_system_takes_for_gits_own() {
        for path in [
            ".git/config",
            "a/.GIT/hooks/x",
            "a/.git",
            "git~1/config",
            ".git./x",
            ".git ",
            ".git::$INDEX_ALLOCATION/x",
            ".g\u{200c}it/x",
            ".gitmodules",
            "sub/.GitModules",
            "gitmod~1",
            "a\\.git\\config",
        ] {
            assert!(is_git_internal(path.as_bytes()), "{path}");
        }
        for path in
            [".gitignore", ".github/x", "git", "agit~1", ".gitkeep", "git~x", "src/[id].tsx"]
        {
            assert!(!is_git_internal(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn only_added_secrets_count() {
        let key = format!("token = ghp_{}\n", "a1B2".repeat(9));
        let old = format!("x\n{key}");
        assert_eq!(added_secret(old.as_bytes(), format!("{key}y\n").as_bytes()), None);
        assert!(added_secret(b"x\n", old.as_bytes()).is_some());
    }
}
