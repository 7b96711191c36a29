//! The files of a checkout, as git lists them or as they lie there.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::intake::PathKind;
use crate::model::RepoPath;
use crate::planning::{BuildFile, TrackedFile, is_build_file};

/// Most files that are listed; a larger checkout is cut there.
const MAX_FILES: usize = 2_000_000;
/// A `package.json` larger than this is not read, bytes.
const MAX_BUILD_FILE: u64 = 1024 * 1024;
/// This many leading bytes tell text from binary, as git does it.
const SNIFF: u64 = 8_000;

/// What is tracked, and answers about it.
pub(super) struct Checkout {
    root: PathBuf,
    files: Vec<TrackedFile>,
    names: HashSet<String>,
    folders: HashSet<String>,
    kinds: RefCell<HashMap<String, PathKind>>,
}

impl Checkout {
    pub fn read(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        let paths = match git_files(&root) {
            Some(paths) => paths,
            None => walk(&root)?,
        };
        let mut checkout = Self {
            files: Vec::with_capacity(paths.len()),
            names: HashSet::with_capacity(paths.len()),
            folders: HashSet::new(),
            kinds: RefCell::default(),
            root,
        };
        for path in paths {
            let Ok(path) = RepoPath::new(&path) else { continue };
            // Submodules are listed as folders, and a deleted file may still be in the index.
            let Ok(meta) = checkout.root.join(path.as_str()).symlink_metadata() else { continue };
            if meta.is_dir() {
                continue;
            }
            for (end, _) in path.as_str().match_indices('/') {
                if !checkout.folders.contains(&path.as_str()[..end]) {
                    checkout.folders.insert(path.as_str()[..end].to_owned());
                }
            }
            checkout.names.insert(path.as_str().to_owned());
            checkout.files.push(TrackedFile { path, bytes: meta.len() });
        }
        Ok(checkout)
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub fn files(&self) -> &[TrackedFile] {
        &self.files
    }

    /// Where it lies.
    pub fn location(&self) -> String {
        self.root.to_string_lossy().into_owned()
    }

    /// What is at a path; a file is looked into once.
    pub fn kind(&self, path: &str) -> PathKind {
        if self.folders.contains(path) {
            return PathKind::Folder;
        }
        if !self.names.contains(path) {
            let there = RepoPath::new(path)
                .is_ok_and(|p| self.root.join(p.as_str()).symlink_metadata().is_ok());
            return if there { PathKind::Untracked } else { PathKind::Missing };
        }
        if let Some(kind) = self.kinds.borrow().get(path) {
            return *kind;
        }
        let kind = if self.leads_outside(path) {
            PathKind::Elsewhere
        } else if self.is_binary(path) {
            PathKind::Binary
        } else {
            PathKind::File
        };
        self.kinds.borrow_mut().insert(path.to_owned(), kind);
        kind
    }

    /// Only plain files are opened: a link may lead anywhere, a pipe may block.
    fn open(&self, path: &str) -> Option<std::fs::File> {
        let file = self.root.join(path);
        let plain = file.symlink_metadata().is_ok_and(|meta| meta.is_file());
        if plain { std::fs::File::open(file).ok() } else { None }
    }

    /// A link that leads out of the checkout, into `.git`, or nowhere.
    fn leads_outside(&self, path: &str) -> bool {
        let file = self.root.join(path);
        let link = file.symlink_metadata().is_ok_and(|meta| meta.is_symlink());
        let git = self.root.join(".git");
        link && !file
            .canonicalize()
            .is_ok_and(|end| end.starts_with(&self.root) && !end.starts_with(&git))
    }

    fn is_binary(&self, path: &str) -> bool {
        let mut head = Vec::new();
        let read = self.open(path).and_then(|file| file.take(SNIFF).read_to_end(&mut head).ok());
        read.is_some() && head.contains(&0)
    }

    pub fn build_files(&self) -> Vec<BuildFile> {
        let files = self.files.iter().filter(|file| is_build_file(file.path.as_str()));
        files
            .map(|file| BuildFile {
                scripts: self.scripts(file).unwrap_or_default(),
                path: file.path.clone(),
            })
            .collect()
    }

    /// The scripts of a `package.json`, without the placeholder that `npm init` writes.
    fn scripts(&self, file: &TrackedFile) -> Option<Vec<String>> {
        if !file.path.as_str().ends_with("package.json") || file.bytes > MAX_BUILD_FILE {
            return None;
        }
        let mut text = String::new();
        self.open(file.path.as_str())?.take(MAX_BUILD_FILE).read_to_string(&mut text).ok()?;
        let manifest: serde_json::Value = serde_json::from_str(&text).ok()?;
        let scripts = manifest.get("scripts")?.as_object()?;
        let real = |command: &serde_json::Value| {
            command
                .as_str()
                .is_some_and(|c| !c.trim().is_empty() && !c.contains("no test specified"))
        };
        Some(scripts.iter().filter(|(_, c)| real(c)).map(|(name, _)| name.clone()).collect())
    }
}

/// `git ls-files` below `root`; `None` where git or the repository is not there. Names that are no
/// UTF-8 cannot be named by a finding and are left out.
fn git_files(root: &Path) -> Option<Vec<String>> {
    if !root.join(".git").exists() {
        return None;
    }
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["ls-files", "-z", "--cached"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let names = output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let texts = names.filter_map(|name| std::str::from_utf8(name).ok()).map(str::to_owned);
    Some(texts.take(MAX_FILES).collect())
}

/// Every file below, without `.git`, in a stable order; links are not followed.
fn walk(root: &Path) -> io::Result<Vec<String>> {
    let mut files = Vec::new();
    let mut open = vec![(root.to_path_buf(), String::new())];
    while let Some((folder, prefix)) = open.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if name.eq_ignore_ascii_case(".git") || files.len() >= MAX_FILES {
                continue;
            }
            let path = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
            if entry.file_type()?.is_dir() {
                open.push((entry.path(), path));
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}
