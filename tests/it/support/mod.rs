//! A repository, a configuration and the real binary, for tests that drive whole cycles.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

pub mod jobs;

/// One world: a bare repository that is checkout and remote in one, a forge of files, a ledger.
pub struct World {
    pub dir: TempDir,
    env: BTreeMap<String, String>,
}

/// What one cycle printed.
#[derive(Debug)]
pub struct Cycle {
    pub code: Option<i32>,
    pub report: Value,
    pub stderr: String,
}

impl Cycle {
    /// The status, e.g. `waiting`.
    pub fn status(&self) -> &str {
        self.report["status"].as_str().unwrap_or_else(|| panic!("no status: {}", self.stderr))
    }

    /// Nodes in a state.
    pub fn nodes(&self, state: &str) -> u64 {
        self.report["nodes"][state.replace('_', "-")].as_u64().unwrap_or(0)
    }
}

impl World {
    /// A repository on branch `main` that holds these files.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let dir = tempfile::Builder::new().prefix("overhaul-test-").tempdir().unwrap();
        let world = Self { dir, env: BTreeMap::new() };
        let checkout = world.path("checkout");
        std::fs::create_dir_all(&checkout).unwrap();
        git(&checkout, &["init", "-q", "-b", "main"]);
        for (path, text) in files {
            write(&checkout.join(path), text);
        }
        git(&checkout, &["add", "-A"]);
        git(&checkout, &["commit", "-q", "-m", "start"]);
        git(world.dir.path(), &["clone", "-q", "--bare", "checkout", "remote.git"]);
        let remote = world.path("remote.git").display().to_string();
        git(&checkout, &["remote", "add", "origin", &remote]);
        world
    }

    /// A path in this world.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file of this world and gives its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        write(&path, text);
        path
    }

    /// A variable for every following call.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    /// Removes such a variable.
    pub fn unset(&mut self, name: &str) {
        self.env.remove(name);
    }

    /// A call of the binary with the world's places filled in.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overhaul"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .envs(&self.env)
            .current_dir(self.dir.path())
            .args(args);
        command
    }

    /// Options that name the places of this world.
    pub fn places(&self) -> Vec<String> {
        let of = |name: &str| self.path(name).display().to_string();
        vec![
            "--repo".into(),
            of("checkout"),
            "--config".into(),
            of("overhaul.yml"),
            "--local".into(),
            of("forge"),
            "--work-dir".into(),
            of("work"),
        ]
    }

    /// Runs a subcommand on this world's run.
    pub fn run(&self, args: &[&str]) -> Output {
        let places = self.places();
        let mut all = args.to_vec();
        all.extend(places.iter().map(String::as_str));
        self.command(&all).output().unwrap()
    }

    /// Runs one cycle.
    pub fn next_step(&self) -> Cycle {
        self.next_step_with(&[])
    }

    /// Runs one cycle with more options.
    pub fn next_step_with(&self, more: &[&str]) -> Cycle {
        let mut args = vec!["next-step", "--json"];
        args.extend(more);
        let output = self.run(&args);
        Cycle {
            code: output.status.code(),
            report: serde_json::from_slice(&output.stdout).unwrap_or(Value::Null),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// The run as `status --json` shows it.
    pub fn status(&self) -> Value {
        let output = self.run(&["status", "--json"]);
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// A node of [`Self::status`].
    pub fn node(&self, id: &str) -> Value {
        let status = self.status();
        let nodes = status["nodes"].as_array().cloned().unwrap_or_default();
        nodes.into_iter().find(|n| n["id"] == id).unwrap_or_else(|| panic!("no {id}: {status}"))
    }

    /// Branches of the remote with their commits.
    pub fn branches(&self) -> BTreeMap<String, String> {
        let out = git(&self.path("remote.git"), &["for-each-ref", "refs/heads"]);
        out.lines()
            .filter_map(|line| {
                let (commit, rest) = line.split_once(' ')?;
                Some((rest.split_once('\t')?.1.to_owned(), commit.to_owned()))
            })
            .collect()
    }

    /// A file on a branch of the remote.
    pub fn show(&self, branch: &str, path: &str) -> String {
        git(&self.path("remote.git"), &["show", &format!("{branch}:{path}")])
    }

    /// The pull request files of the local forge, by name.
    pub fn pulls(&self) -> BTreeMap<String, String> {
        let Ok(folder) = std::fs::read_dir(self.path("forge/pulls")) else {
            return BTreeMap::new();
        };
        folder
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(path).unwrap())
            })
            .filter(|(name, _)| name.ends_with(".md"))
            .collect()
    }
}

/// Audit findings: (id, path, what), one finding a file.
pub fn findings(list: &[(&str, &str, &str)]) -> String {
    let findings: Vec<Value> = list
        .iter()
        .map(|(id, path, what)| {
            json!({
                "id": id,
                "title": what,
                "severity": "medium",
                "category": "correctness",
                "summary": what,
                "affected_files": [{"path": path, "line_start": 1}],
                "evidence": [],
            })
        })
        .collect();
    json!({"contract_version": "audit-tools/audit-findings/v1", "findings": findings}).to_string()
}

/// A configuration with one `worker-command` pool that runs a shell script of this world in the
/// worktree and may write to the world's folder (to tell what it saw), findings from `findings.json` in the checkout, and a verify command.
pub fn config(worker: &Path, verify: &str, more: &str) -> String {
    format!(
        "version: 1\nbase: main\nfindings:\n  - file: findings.json\npools:\n  - id: worker\n    \
         provider: worker-command\n    command: [sh, {worker}, \"{{node}}\", \"{{paths}}\"]\n    \
         cost-per-mtok: 0\n    limits:\n      concurrent: 4\ndispatch:\n  command-workers: true\n\
         sandbox:\n  write: [{world}]\nverify:\n  commands:\n    - name: check\n      argv: [sh, -c, {verify:?}]\n      timeout: \
         20s\n{more}",
        worker = worker.display(),
        world = worker.parent().unwrap().display(),
    )
}

/// Runs git and gives what it printed.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let output = Command::new("git")
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}
