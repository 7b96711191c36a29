//! Write scopes: the one matcher, overlap, and what is protected whatever a plan says.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use globset::{Glob, GlobBuilder, GlobMatcher, GlobSet, GlobSetBuilder};

use crate::model::{RepoPath, ScopeEntry};

/// Longest glob, bytes: longer ones are refused, so that a plan cannot cost compile time.
const MAX_GLOB: usize = 1024;

/// Needs a person, always: workflows run with the repository's rights, owners decide who reviews,
/// attributes and submodules can run or fetch code.
pub const ALWAYS_PROTECTED: &[&str] =
    &[".github/**", "**/CODEOWNERS", "**/.gitmodules", "**/.gitattributes"];

/// Lockfiles: protected unless the policy allows them.
pub const LOCKFILES: &[&str] = &[
    "**/Cargo.lock",
    "**/package-lock.json",
    "**/npm-shrinkwrap.json",
    "**/yarn.lock",
    "**/pnpm-lock.yaml",
    "**/bun.lock",
    "**/bun.lockb",
    "**/deno.lock",
    "**/poetry.lock",
    "**/Pipfile.lock",
    "**/uv.lock",
    "**/pdm.lock",
    "**/pixi.lock",
    "**/Gemfile.lock",
    "**/composer.lock",
    "**/go.sum",
    "**/go.work.sum",
    "**/mix.lock",
    "**/pubspec.lock",
    "**/Podfile.lock",
    "**/Package.resolved",
    "**/packages.lock.json",
    "**/gradle.lockfile",
    "**/flake.lock",
    "**/.terraform.lock.hcl",
];

/// A glob that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the glob '{glob}' is not valid: {reason}")]
pub struct GlobError {
    /// As written.
    pub glob: String,
    /// What is wrong with it.
    pub reason: String,
}

fn glob(text: &str, case_insensitive: bool) -> Result<Glob, GlobError> {
    let error = |reason: String| GlobError { glob: text.to_owned(), reason };
    if text.is_empty() || text.len() > MAX_GLOB {
        return Err(error(format!("it has {} bytes; 1 to {MAX_GLOB} are allowed", text.len())));
    }
    GlobBuilder::new(text)
        .literal_separator(true)
        .backslash_escape(true)
        .case_insensitive(case_insensitive)
        .build()
        .map_err(|e| error(e.kind().to_string()))
}

/// A compiled scope. Compile once, ask for many paths.
#[derive(Debug, Clone)]
pub struct Scope {
    entries: Vec<Compiled>,
}

#[derive(Debug, Clone)]
enum Compiled {
    Path(RepoPath),
    Folder(RepoPath),
    Glob(GlobMatcher),
}

impl Scope {
    /// Compiles the entries.
    ///
    /// # Errors
    /// When a glob is not valid.
    pub fn new(entries: &[ScopeEntry]) -> Result<Self, GlobError> {
        let compiled = entries.iter().map(|entry| {
            Ok(match entry {
                ScopeEntry::Path(path) => Compiled::Path(path.clone()),
                ScopeEntry::Folder(path) => Compiled::Folder(path.clone()),
                ScopeEntry::Glob(text) => Compiled::Glob(glob(text, false)?.compile_matcher()),
            })
        });
        Ok(Self { entries: compiled.collect::<Result<_, _>>()? })
    }

    /// True when `path` (relative to the repository, as git prints it, any bytes) may be written.
    /// Paths that no tree can hold (`..`, `.git`, absolute, empty) match nothing.
    #[must_use]
    pub fn matches(&self, path: &[u8]) -> bool {
        is_sane(path)
            && self.entries.iter().any(|entry| match entry {
                Compiled::Path(own) => own.as_str().as_bytes() == path,
                Compiled::Folder(own) => is_below(path, own.as_str().as_bytes()),
                Compiled::Glob(glob) => glob.is_match(Path::new(OsStr::from_bytes(path))),
            })
    }
}

/// Whether one of the entries lets `path` be written; an invalid glob lets nothing.
#[must_use]
pub fn matches(entries: &[ScopeEntry], path: &[u8]) -> bool {
    entries
        .iter()
        .any(|entry| Scope::new(std::slice::from_ref(entry)).is_ok_and(|scope| scope.matches(path)))
}

/// True when some path could be written under both. Two globs, and a glob and a folder, overlap as
/// soon as their fixed leading folders do: rather one order too many than two writers of one file.
#[must_use]
pub fn overlaps(a: &[ScopeEntry], b: &[ScopeEntry]) -> bool {
    a.iter().any(|x| b.iter().any(|y| entries_overlap(x, y)))
}

fn entries_overlap(a: &ScopeEntry, b: &ScopeEntry) -> bool {
    match (a, b) {
        (ScopeEntry::Path(x), ScopeEntry::Path(y)) => x == y,
        (ScopeEntry::Glob(_), ScopeEntry::Path(path)) => matches_or_broken(a, path),
        (ScopeEntry::Path(path), ScopeEntry::Glob(_)) => matches_or_broken(b, path),
        (ScopeEntry::Path(path), ScopeEntry::Folder(folder))
        | (ScopeEntry::Folder(folder), ScopeEntry::Path(path)) => {
            path == folder || is_below(path.as_str().as_bytes(), folder.as_str().as_bytes())
        }
        _ => {
            let (x, y) = (fixed_folder(a).as_bytes(), fixed_folder(b).as_bytes());
            x == y || is_below(x, y) || is_below(y, x)
        }
    }
}

/// A glob that does not compile is ordered after everything it might have meant.
fn matches_or_broken(entry: &ScopeEntry, path: &RepoPath) -> bool {
    Scope::new(std::slice::from_ref(entry))
        .map_or(true, |scope| scope.matches(path.as_str().as_bytes()))
}

/// The folder that holds everything an entry can match; empty is the repository.
#[must_use]
pub fn fixed_folder(entry: &ScopeEntry) -> &str {
    match entry {
        ScopeEntry::Path(path) | ScopeEntry::Folder(path) => path.as_str(),
        ScopeEntry::Glob(text) => {
            let special = text.find(['*', '?', '[', '{', '\\']).unwrap_or(text.len());
            text[..special].rfind('/').map_or("", |end| &text[..end])
        }
    }
}

fn is_below(path: &[u8], folder: &[u8]) -> bool {
    folder.is_empty()
        || path.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest[0] == b'/')
}

fn is_sane(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').all(|part| {
        !part.is_empty() && part != b"." && part != b".." && !part.eq_ignore_ascii_case(b".git")
    }) && !path.contains(&0)
}

/// What no node may write.
#[derive(Debug, Clone)]
pub struct Protection {
    set: GlobSet,
}

impl Protection {
    /// The fixed list, lockfiles unless allowed, and the policy's own globs. Case does not count,
    /// because some checkouts do not tell `.GitHub` from `.github`.
    ///
    /// # Errors
    /// When a glob is not valid.
    pub fn new(globs: &[String], allow_lockfiles: bool) -> Result<Self, GlobError> {
        let fixed =
            ALWAYS_PROTECTED.iter().chain(if allow_lockfiles { &[][..] } else { LOCKFILES });
        let mut builder = GlobSetBuilder::new();
        for text in fixed.copied().chain(globs.iter().map(String::as_str)) {
            builder.add(glob(text, true)?);
        }
        let set = builder.build().map_err(|e| GlobError {
            glob: e.glob().unwrap_or_default().to_owned(),
            reason: e.kind().to_string(),
        })?;
        Ok(Self { set })
    }

    /// True when a person has to change `path`. So is everything inside `.git`, and every path that
    /// no tree can hold.
    #[must_use]
    pub fn covers(&self, path: &[u8]) -> bool {
        !is_sane(path) || self.set.is_match(Path::new(OsStr::from_bytes(path)))
    }

    /// True when the whole entry is protected: a path, or a folder with nothing else in it.
    #[must_use]
    pub fn covers_entry(&self, entry: &ScopeEntry) -> bool {
        match entry {
            ScopeEntry::Path(path) => self.covers(path.as_str().as_bytes()),
            ScopeEntry::Folder(path) => {
                let inside = format!("{}/any/file", path.as_str());
                self.covers(path.as_str().as_bytes()) || self.covers(inside.as_bytes())
            }
            ScopeEntry::Glob(text) => {
                self.covers(text.as_bytes()) && fixed_folder(entry).starts_with('.')
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ScopeEntry {
        ScopeEntry::Path(RepoPath::new(text).unwrap())
    }

    fn folder(text: &str) -> ScopeEntry {
        ScopeEntry::Folder(RepoPath::new(text).unwrap())
    }

    fn pattern(text: &str) -> ScopeEntry {
        ScopeEntry::Glob(text.to_owned())
    }

    #[test]
    fn odd_file_names_are_exact_paths() {
        let scope = [path("a[1].c"), path("b*.c"), folder("x{y}")];
        assert!(matches(&scope, b"a[1].c"));
        assert!(!matches(&scope, b"a1.c"));
        assert!(!matches(&scope, b"bb.c"));
        assert!(matches(&scope, b"x{y}/z"));
        assert!(matches(&scope, b"x{y}/\xff\xfe"));
    }

    #[test]
    fn nothing_hostile_matches_even_everything() {
        let all = [pattern("**")];
        assert!(matches(&all, b"a/b/.hidden"));
        for bad in
            [&b"../a"[..], b"/a", b"a/../b", b".git/config", b"a/.GIT/x", b"", b"a//b", b"a/"]
        {
            assert!(!matches(&all, bad), "{bad:?}");
        }
    }

    #[test]
    fn stars_stay_within_a_folder() {
        assert!(matches(&[pattern("src/*.rs")], b"src/a.rs"));
        assert!(!matches(&[pattern("src/*.rs")], b"src/a/b.rs"));
        assert!(matches(&[pattern("src/**/*.rs")], b"src/a/b.rs"));
        assert!(!matches(&[pattern("src/[")], b"src/["));
    }

    #[test]
    fn overlap_is_symmetric_and_conservative() {
        for (a, b, expected) in [
            (path("a/b"), path("a/b"), true),
            (path("a/b"), path("a/bc"), false),
            (folder("a"), path("a/b"), true),
            (folder("a"), path("ab"), false),
            (folder("a"), folder("a/b"), true),
            (folder("a"), folder("b"), false),
            (pattern("**"), folder("b"), true),
            (pattern("a/*.c"), path("a/x.c"), true),
            (pattern("a/*.c"), path("a/x.h"), false),
            (pattern("a/*.c"), pattern("a/*.h"), true),
            (pattern("a/*.c"), pattern("b/*.c"), false),
            (pattern("a/["), path("b"), true),
        ] {
            let (a, b) = ([a], [b]);
            assert_eq!(overlaps(&a, &b), expected, "{a:?} {b:?}");
            assert_eq!(overlaps(&b, &a), expected, "{b:?} {a:?}");
        }
    }

    #[test]
    fn protected_paths() {
        let protection = Protection::new(&["deploy/**".to_owned()], false).unwrap();
        for covered in [
            ".github/workflows/ci.yml",
            ".GitHub/x",
            "CODEOWNERS",
            "docs/CODEOWNERS",
            "Cargo.lock",
            "web/package-lock.json",
            ".gitmodules",
            ".git/config",
            "deploy/a",
        ] {
            assert!(protection.covers(covered.as_bytes()), "{covered}");
        }
        for free in ["src/a.rs", ".gitignore", "github/x", "deployed"] {
            assert!(!protection.covers(free.as_bytes()), "{free}");
        }
        assert!(protection.covers_entry(&folder(".github/workflows")));
        assert!(protection.covers_entry(&folder(".github")));
        assert!(!protection.covers_entry(&folder("src")));
        assert!(!Protection::new(&[], true).unwrap().covers(b"Cargo.lock"));
        assert!(Protection::new(&["[".to_owned()], true).is_err());
    }
}
