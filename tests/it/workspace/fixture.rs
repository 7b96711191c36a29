//! A user's repository with one commit, and a workspace beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use overhaul::git::{Mode, Oid, Repo, parse_oid};
use overhaul::workspace::{Slot, TakeLimits, Workspace};
use tempfile::TempDir;

pub struct Fixture {
    pub dir: TempDir,
    pub workspace: Workspace,
    pub base: Oid,
}

/// Runs git as a user without any configuration would.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_NAME"), "someone")))
        .envs(["AUTHOR", "COMMITTER"].map(|who| (format!("GIT_{who}_EMAIL"), "s@example.com")))
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a shell line in a folder, as a worker would, with no git configuration.
pub fn sh(dir: &Path, line: &str) {
    let status = Command::new("sh")
        .args(["-ec", line])
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", "/nonexistent")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .status()
        .unwrap();
    assert!(status.success(), "{line}");
}

impl Fixture {
    /// The user's repository holds `a.txt`, `src/lib.txt`, an executable, a link, and an ignore rule.
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    /// As [`Fixture::new`], with more in the first commit.
    pub fn with(prepare: impl FnOnce(&Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user");
        std::fs::create_dir_all(&user).unwrap();
        git(&user, &["init", "--quiet", "--initial-branch=main"]);
        sh(
            &user,
            "mkdir src; echo one > a.txt; echo lib > src/lib.txt; echo 'echo hi' > run.sh; \
             chmod +x run.sh; ln -s a.txt link; printf 'target/\\n*.log\\n' > .gitignore",
        );
        prepare(&user);
        git(&user, &["add", "--all"]);
        git(&user, &["commit", "--quiet", "--message=first"]);
        let base = parse_oid(&git(&user, &["rev-parse", "HEAD"])).unwrap();
        let workspace = Workspace::open(&dir.path().join("work"), &user).unwrap();
        Self { dir, workspace, base }
    }

    pub fn user(&self) -> PathBuf {
        self.dir.path().join("user")
    }

    pub fn store(&self) -> &Repo {
        self.workspace.store()
    }

    /// A slot that shows the base.
    pub fn slot(&self) -> Slot {
        let mut slot = self.workspace.slot(None).unwrap();
        slot.reset(self.base).unwrap();
        slot
    }

    /// The tree after a worker ran this shell line in a fresh slot.
    pub fn worked(&self, line: &str) -> Oid {
        let slot = self.slot();
        sh(&slot.path(), line);
        take(&slot)
    }

    pub fn base_tree(&self) -> Oid {
        self.store().tree_of(self.base).unwrap()
    }

    /// Every file of a tree, as text.
    pub fn files(&self, tree: Oid) -> BTreeMap<String, String> {
        self.store()
            .list(tree, b"")
            .unwrap()
            .into_iter()
            .map(|entry| {
                let text = match entry.mode {
                    Mode::Submodule => "submodule".to_owned(),
                    _ => {
                        let text = self.store().blob(entry.id).unwrap().escape_ascii().to_string();
                        match entry.mode {
                            Mode::Symlink => format!("-> {text}"),
                            Mode::Executable => format!("x {text}"),
                            _ => text,
                        }
                    }
                };
                (entry.path.escape_ascii().to_string(), text)
            })
            .collect()
    }

    /// Paths that differ from the base, each with `+`, `-` or `~`.
    pub fn changes(&self, tree: Oid) -> Vec<String> {
        use overhaul::git::ChangeKind::{Added, Deleted, Modified, TypeChanged};
        self.store()
            .diff(self.base_tree(), tree)
            .unwrap()
            .into_iter()
            .map(|change| {
                let sign = match change.kind {
                    Added => '+',
                    Deleted => '-',
                    Modified => '~',
                    TypeChanged => 'T',
                };
                format!("{sign}{}", change.path.escape_ascii())
            })
            .collect()
    }
}

/// The tree of a slot, nothing refused.
pub fn take(slot: &Slot) -> Oid {
    let taken = slot.take_tree(&TakeLimits::default()).unwrap();
    assert_eq!(taken.refused, []);
    taken.tree
}

/// Every path below a folder with its kind and content, to compare folders by.
pub fn snapshot(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut stack = vec![root.to_path_buf()];
    while let Some(folder) = stack.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let entry = entry.unwrap();
            let kind = entry.file_type().unwrap();
            let content = if kind.is_dir() {
                stack.push(entry.path());
                b"folder".to_vec()
            } else if kind.is_symlink() {
                std::fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes()
            } else {
                std::fs::read(entry.path()).unwrap()
            };
            found.insert(entry.path().strip_prefix(root).unwrap().to_path_buf(), content);
        }
    }
    found
}
