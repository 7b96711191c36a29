//! Listing and searching a worktree, bounded, without following links.

use std::fmt::Write as _;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use regex::{Regex, RegexBuilder};

use super::jail::Jail;
use crate::model::RepoPath;

/// Directory entries visited in one call.
const MAX_VISITED: usize = 50_000;
/// Files named in one listing.
const MAX_LISTED: usize = 500;
/// Matches shown by one search.
const MAX_MATCHES: usize = 100;
/// Bytes read by one search.
const MAX_SEARCHED: usize = 64 * 1024 * 1024;
/// Characters shown of a matching line.
const MAX_LINE: usize = 300;
/// Folders nested deeper are not entered.
const MAX_DEPTH: usize = 64;

/// What to walk.
pub(super) struct Walk<'a> {
    pub(super) root: &'a Path,
    pub(super) jail: &'a Jail,
    pub(super) folder: Option<RepoPath>,
    pub(super) glob: Option<&'a str>,
}

impl Walk<'_> {
    /// Calls `visit` with each regular file in byte order until it returns false; returns whether
    /// everything was seen.
    fn run(&self, mut visit: impl FnMut(&RepoPath) -> bool) -> Result<bool, String> {
        if let Some(folder) = &self.folder {
            self.jail.check_folder(folder).map_err(|e| e.to_string())?;
        }
        let matcher = self.glob.map(glob).transpose()?;
        let mut visited = 0;
        let start = self.folder.as_ref().map_or(String::new(), ToString::to_string);
        let mut stack = vec![start];
        while let Some(at) = stack.pop() {
            let here = self.root.join(&at);
            let Ok(meta) = here.symlink_metadata() else { continue };
            if meta.is_dir() {
                if at.matches('/').count() >= MAX_DEPTH {
                    continue;
                }
                let mut names = names(&here, &mut visited);
                if visited > MAX_VISITED {
                    return Ok(false);
                }
                // Caches of build tools mark themselves (bford.info/cachedir); dependencies do not.
                if names.iter().any(|n| n == "CACHEDIR.TAG") || at.ends_with("node_modules") {
                    continue;
                }
                names.sort_unstable_by(|a, b| b.cmp(a));
                stack.extend(
                    names
                        .into_iter()
                        .filter(|n| n != ".git")
                        .map(|name| if at.is_empty() { name } else { format!("{at}/{name}") }),
                );
            } else if meta.is_file() {
                let Ok(path) = RepoPath::new(&at) else { continue };
                let fits = matcher.as_ref().is_none_or(|(m, whole)| {
                    let name = at.rsplit('/').next().unwrap_or(&at);
                    m.is_match(if *whole { at.as_str() } else { name })
                });
                if fits && !visit(&path) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// The files, one a line.
    pub(super) fn list(&self) -> Result<String, String> {
        let mut out = String::new();
        let mut count = 0;
        let complete = self.run(|path| {
            count += 1;
            if count <= MAX_LISTED {
                let _ = writeln!(out, "{path}");
            }
            count <= MAX_LISTED
        })?;
        if count == 0 {
            return Ok("no files".to_owned());
        }
        if !complete {
            out.push_str("[more files exist; give a path or a narrower glob]\n");
        }
        Ok(out)
    }

    /// Matching lines as `path:line: text`.
    pub(super) fn search(&self, pattern: &str, is_regex: bool) -> Result<String, String> {
        let wanted = regex(pattern, is_regex)?;
        let mut out = String::new();
        let (mut matches, mut read) = (0, 0);
        let complete = self.run(|path| {
            let Ok(text) = self.jail.read(path) else { return true };
            read += text.len();
            for (number, line) in text.lines().enumerate() {
                if wanted.is_match(line) {
                    matches += 1;
                    if matches > MAX_MATCHES {
                        return false;
                    }
                    let shown: String = line.trim_end().chars().take(MAX_LINE).collect();
                    let _ = writeln!(out, "{path}:{}: {shown}", number + 1);
                }
            }
            read <= MAX_SEARCHED
        })?;
        if !complete {
            out.push_str(
                "[not everything was searched; give a path, a glob or a narrower pattern]\n",
            );
        }
        if matches == 0 {
            out.insert_str(0, "no matches\n");
        }
        Ok(out)
    }
}

fn names(folder: &Path, visited: &mut usize) -> Vec<String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        *visited += 1;
        if *visited > MAX_VISITED {
            break;
        }
        // Names that are not UTF-8 cannot be addressed by a model.
        if let Ok(name) = entry.file_name().into_string() {
            names.push(name);
        }
    }
    names
}

/// A glob, and whether it is matched against the whole path (it has a slash) or the name alone.
fn glob(text: &str) -> Result<(GlobMatcher, bool), String> {
    if text.len() > 500 {
        return Err("the glob is longer than 500 characters".to_owned());
    }
    let built = GlobBuilder::new(text).literal_separator(true).build();
    built.map(|g| (g.compile_matcher(), text.contains('/'))).map_err(|e| e.to_string())
}

fn regex(pattern: &str, is_regex: bool) -> Result<Regex, String> {
    if pattern.is_empty() || pattern.len() > 1_000 {
        return Err("the pattern must have 1 to 1000 characters".to_owned());
    }
    let text = if is_regex { pattern.to_owned() } else { regex::escape(pattern) };
    let built = RegexBuilder::new(&text).size_limit(1 << 20).build();
    built.map_err(|e| format!("not a regular expression: {e}"))
}
