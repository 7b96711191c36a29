//! The write scope, from the difference of two trees and not from anybody's word.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::git::{Change, ChangeKind, Mode, Oid, Repo};
use crate::model::ScopeEntry;

use super::WorkspaceError;
use super::symlink::{Target, resolve};

/// Paths that no node may change unless a person allowed it: what runs with the repository's
/// rights, who must review, and what pins other people's code. Letter case does not matter.
pub const DEFAULT_PROTECTED: &[&str] = &[
    ".github/**",
    "**/CODEOWNERS",
    "**/Cargo.lock",
    "**/package-lock.json",
    "**/npm-shrinkwrap.json",
    "**/yarn.lock",
    "**/pnpm-lock.yaml",
    "**/bun.lock",
    "**/bun.lockb",
    "**/deno.lock",
    "**/poetry.lock",
    "**/uv.lock",
    "**/pdm.lock",
    "**/Pipfile.lock",
    "**/composer.lock",
    "**/Gemfile.lock",
    "**/go.sum",
    "**/mix.lock",
    "**/flake.lock",
    "**/pubspec.lock",
    "**/Podfile.lock",
    "**/Package.resolved",
    "**/packages.lock.json",
    "**/gradle.lockfile",
];

/// What a node's tree may differ in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScopePolicy {
    /// The node's write scope.
    pub writes: Vec<ScopeEntry>,
    /// Globs of protected paths; see [`DEFAULT_PROTECTED`].
    pub protected: Vec<String>,
    /// Exceptions from `protected` that the policy makes (a lockfile, say). Still in scope only
    /// where `writes` says so.
    pub allow: Vec<ScopeEntry>,
    /// Largest file after the change, bytes.
    pub max_file_bytes: u64,
}

impl Default for ScopePolicy {
    /// Nothing may be written.
    fn default() -> Self {
        Self {
            writes: Vec::new(),
            protected: DEFAULT_PROTECTED.iter().map(|glob| (*glob).to_owned()).collect(),
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
        kind: String,
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
            Reason::Secret { kind } => write!(f, "'{path}' would add a secret ({kind})"),
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
    let protected = globs(&policy.protected, true)?;
    let writes = Matcher::new(&policy.writes)?;
    let allow = Matcher::new(&policy.allow)?;
    let mut violations = Vec::new();
    for change in repo.diff(base, tree)? {
        let path = &change.path;
        let reason = if is_git_internal(path, &policy.writes) {
            Some(Reason::GitInternal)
        } else if is_submodule(&change) {
            Some(Reason::Submodule)
        } else if changes_mode(&change) {
            Some(Reason::ModeChange)
        } else if protected.is_match(as_path(path)) && !allow.matches(path) {
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
fn added_secret(old: &[u8], new: &[u8]) -> Option<String> {
    let known: HashSet<&[u8]> = old.split(|b| *b == b'\n').collect();
    let added: Vec<u8> = new
        .split(|b| *b == b'\n')
        .filter(|line| !known.contains(line))
        .flat_map(|line| line.iter().copied().chain([b'\n']))
        .collect();
    find_secret(&String::from_utf8_lossy(&added))
}

/// The kind of credential that a text seems to hold.
fn find_secret(text: &str) -> Option<String> {
    // Shapes that their issuers document and that nothing else has.
    const SHAPES: &[(&str, &str)] = &[
        ("private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----"),
        ("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{60,})\b"),
        ("AWS access key", r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
        ("Slack token", r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
        ("OpenAI or Anthropic key", r"\bsk-(?:ant-|proj-)?[A-Za-z0-9_-]{32,}"),
        ("NVIDIA key", r"\bnvapi-[A-Za-z0-9_-]{32,}"),
        ("Google API key", r"\bAIza[A-Za-z0-9_-]{35}\b"),
    ];
    static COMPILED: std::sync::LazyLock<Vec<(&str, regex::Regex)>> =
        std::sync::LazyLock::new(|| {
            let compile = |(kind, shape): &(&'static str, &'static str)| {
                Some((*kind, regex::Regex::new(shape).ok()?))
            };
            SHAPES.iter().filter_map(compile).collect()
        });
    COMPILED.iter().find(|(_, shape)| shape.is_match(text)).map(|(kind, _)| (*kind).to_owned())
}

/// Git's own names, and what Windows (short names, trailing dots and blanks, streams) and macOS
/// (invisible letters) take for them; see `is_ntfs_dotgit` and `is_hfs_dotgit` in git's path.c and
/// utf8.c. `.gitattributes` can name filters, so only a scope that names it exactly may touch it.
fn is_git_internal(path: &[u8], writes: &[ScopeEntry]) -> bool {
    path.split(|b| matches!(b, b'/' | b'\\')).any(|component| {
        let name = folded(component);
        let short = |prefix: &str| {
            name.strip_prefix(prefix).is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let named = |scope: &ScopeEntry| matches!(scope, ScopeEntry::Path(p) if p.as_str().as_bytes() == path);
        match name.as_str() {
            ".git" | ".gitmodules" => true,
            ".gitattributes" => !writes.iter().any(named),
            _ => short("git~") || short("gitmod~") || short("gitatt~"),
        }
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

fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn globs(patterns: &[String], fold_case: bool) -> Result<GlobSet, WorkspaceError> {
    let failed = |pattern: &str, error: globset::Error| WorkspaceError::Pattern {
        pattern: pattern.to_owned(),
        reason: error.to_string(),
    };
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let glob = GlobBuilder::new(pattern)
            .literal_separator(true)
            .case_insensitive(fold_case)
            .build()
            .map_err(|error| failed(pattern, error))?;
        set.add(glob);
    }
    set.build().map_err(|error| failed("", error))
}

/// A write scope made ready.
struct Matcher {
    exact: HashSet<Vec<u8>>,
    folders: Vec<Vec<u8>>,
    globs: GlobSet,
}

impl Matcher {
    fn new(entries: &[ScopeEntry]) -> Result<Self, WorkspaceError> {
        let mut matcher =
            Self { exact: HashSet::new(), folders: Vec::new(), globs: GlobSet::empty() };
        let mut patterns = Vec::new();
        for entry in entries {
            match entry {
                ScopeEntry::Path(path) => {
                    matcher.exact.insert(path.as_str().as_bytes().to_vec());
                }
                ScopeEntry::Folder(path) => {
                    matcher.folders.push(format!("{}/", path.as_str()).into_bytes());
                }
                ScopeEntry::Glob(glob) => patterns.push(glob.clone()),
            }
        }
        matcher.globs = globs(&patterns, false)?;
        Ok(matcher)
    }

    fn matches(&self, path: &[u8]) -> bool {
        self.exact.contains(path)
            || self.folders.iter().any(|folder| path.starts_with(folder))
            || self.globs.is_match(as_path(path))
    }
}

#[cfg(test)]
mod tests {
    use super::{added_secret, is_git_internal};
    use crate::model::{RepoPath, ScopeEntry};

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
            ".gitattributes",
        ] {
            assert!(is_git_internal(path.as_bytes(), &[]), "{path}");
        }
        for path in
            [".gitignore", ".github/x", "git", "agit~1", ".gitkeep", "git~x", "src/[id].tsx"]
        {
            assert!(!is_git_internal(path.as_bytes(), &[]), "{path}");
        }
        let named = [ScopeEntry::Path(RepoPath::new("a/.gitattributes").unwrap())];
        assert!(!is_git_internal(b"a/.gitattributes", &named));
        assert!(is_git_internal(b"b/.gitattributes", &named));
    }

    #[test]
    fn only_added_secrets_count() {
        let key = format!("token = ghp_{}\n", "a1B2".repeat(9));
        let old = format!("x\n{key}");
        assert_eq!(added_secret(old.as_bytes(), format!("{key}y\n").as_bytes()), None);
        assert!(added_secret(b"x\n", old.as_bytes()).is_some());
    }
}
