//! A whole run on GitHub as a series of jobs: each a fresh clone, a fresh folder for worktrees and
//! a process of the real binary; nothing but the repository and the API between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::rigs::github::world::Run;
use crate::rigs::github::{Rig, RigClock, RigOptions};
use crate::support::{config, findings, git};

mod configuration;
mod events;
mod fan_out;
mod follow;
mod jobs;
mod merging;
mod network;
mod orders;
mod people;
mod race;
mod reviews;
mod sources;
mod trouble;

const UPPER: &str =
    "shift\nfor f in \"$@\"; do tr a-z A-Z < \"$f\" > \"$f.new\" && mv \"$f.new\" \"$f\"; done\n";

/// A repository on a GitHub, with findings and a configuration in it.
struct Hub {
    rig: Rig,
    dir: TempDir,
    /// Of jobs.
    token: &'static str,
    /// Further variables of jobs.
    env: BTreeMap<&'static str, String>,
    /// What jobs check out, where it is not the default branch.
    head: Option<&'static str>,
}

/// A job at work.
struct Job {
    child: Child,
    folder: PathBuf,
    run: u64,
    calls_before: usize,
}

/// A job that ended.
struct Done {
    code: Option<i32>,
    outputs: BTreeMap<String, String>,
    summary: String,
    log: String,
    /// Requests to the API, `METHOD path status`; of all jobs at work meanwhile.
    calls: Vec<String>,
}

impl Done {
    fn output(&self, name: &str) -> &str {
        self.outputs.get(name).unwrap_or_else(|| panic!("no output {name}: {}", self.log))
    }

    fn nodes(&self, state: &str) -> u64 {
        let nodes: serde_json::Value = serde_json::from_str(self.output("nodes")).unwrap();
        nodes[state.replace('_', "-")].as_u64().unwrap_or(0)
    }
}

impl Hub {
    /// One file and one finding a letter.
    fn new(letters: &[&str], worker: &str, more: &str) -> Self {
        let clock = RigClock::system();
        let rig = Rig::start_with(RigOptions { clock, ..RigOptions::default() });
        let dir = tempfile::Builder::new().prefix("overhaul-hub-").tempdir().unwrap();
        let script = dir.path().join("worker.sh");
        std::fs::write(&script, worker).unwrap();
        let mut list = Vec::new();
        for letter in letters {
            let file = format!("{letter}.txt");
            rig.git().commit("main", &file, &format!("{letter}\n"), "More");
            list.push((letter.to_uppercase(), file, format!("fix {letter}")));
        }
        let list: Vec<(&str, &str, &str)> =
            list.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
        rig.git().commit("main", "findings.json", &findings(&list), "Findings");
        let config = config(&script, "true", more);
        rig.git().commit("main", ".github/overhaul.yml", &config, "Configuration");
        Self { rig, dir, token: "ghs_workflow", env: BTreeMap::new(), head: None }
    }

    /// Starts the job of a workflow run.
    fn start(&self, run: u64, event: &str) -> Job {
        let token = [("INPUT_TOKEN", self.token)];
        self.start_step(run, event, &format!("job-{run}"), &["next-step"], &token)
    }

    /// Starts a job of this name with a command and variables of its own.
    fn start_step(
        &self,
        run: u64,
        event: &str,
        name: &str,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Job {
        let folder = self.dir.path().join(name);
        for name in ["home", "temp"] {
            std::fs::create_dir_all(folder.join(name)).unwrap();
        }
        let token = self.token;
        let url = self.rig.git_url().replace("http://", &format!("http://x:{token}@"));
        git(&folder, &["clone", "-q", &url, "checkout"]);
        if let Some(branch) = self.head {
            let head = format!("origin/{branch}");
            git(&folder.join("checkout"), &["checkout", "-q", "--detach", &head]);
        }
        // As `persist-credentials: false` leaves it.
        git(&folder.join("checkout"), &["remote", "set-url", "origin", &self.rig.git_url()]);
        self.rig.world().runs.insert(run, Run { status: "in_progress", attempt: 1 });
        let calls_before = self.rig.world().log.len();
        let child = Command::new(env!("CARGO_BIN_EXE_overhaul"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", folder.join("home"))
            .env("RUNNER_TEMP", folder.join("temp"))
            .env("GITHUB_ACTIONS", "true")
            .env("GITHUB_REPOSITORY", self.rig.world().slug())
            .env("GITHUB_API_URL", self.rig.api_url())
            .env("GITHUB_SERVER_URL", self.rig.server_url())
            .env("GITHUB_WORKSPACE", folder.join("checkout"))
            .env("GITHUB_EVENT_NAME", event)
            .env("GITHUB_RUN_ID", run.to_string())
            .env("GITHUB_RUN_ATTEMPT", "1")
            .env("GITHUB_OUTPUT", folder.join("outputs"))
            .env("GITHUB_STEP_SUMMARY", folder.join("summary"))
            .envs(&self.env)
            .envs(env.iter().copied())
            .args(args)
            .current_dir(folder.join("checkout"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Job { child, folder, run, calls_before }
    }

    /// Waits for a job.
    fn end(&self, job: Job) -> Done {
        let output = job.child.wait_with_output().unwrap();
        self.rig.world().runs.insert(job.run, Run { status: "completed", attempt: 1 });
        let read = |name: &str| std::fs::read_to_string(job.folder.join(name)).unwrap_or_default();
        Done {
            code: output.status.code(),
            outputs: outputs(&read("outputs")),
            summary: read("summary"),
            log: format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ),
            calls: self.rig.requests().split_off(job.calls_before),
        }
    }

    /// One whole job.
    fn job(&self, run: u64) -> Done {
        let done = self.end(self.start(run, "schedule"));
        assert_eq!(done.code, Some(0), "{}", done.log);
        done
    }

    /// Numbers of the pull requests, by head branch.
    fn pulls(&self) -> Vec<(u64, String)> {
        let world = self.rig.world();
        let pulls = world.issues.iter();
        pulls.filter_map(|(n, i)| Some((*n, i.pull.as_ref()?.head.clone()))).collect()
    }

    /// Numbers of the issues that are no pull requests.
    fn issues(&self) -> Vec<u64> {
        let world = self.rig.world();
        let issues = world.issues.iter().filter(|(_, issue)| issue.pull.is_none());
        issues.map(|(n, _)| *n).collect()
    }

    /// The pull request of a node.
    fn pull_of(&self, node: &str) -> u64 {
        let pulls = self.pulls();
        let of = pulls.iter().find(|(_, head)| head.ends_with(&format!("/{node}")));
        of.unwrap_or_else(|| panic!("no pull request of {node}: {pulls:?}")).0
    }

    /// What was answered to commands, in order.
    fn replies(&self) -> Vec<String> {
        let world = self.rig.world();
        let ours = world.comments.values().filter(|c| c.body.contains("<!-- overhaul:reply"));
        ours.map(|c| c.body.clone()).collect()
    }

    fn show(&self, branch: &str, path: &str) -> String {
        self.rig.git().run(&["show", &format!("{branch}:{path}")])
    }
}

/// `name<<delimiter` blocks and `name=value` lines of the runner's output file.
fn outputs(text: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some((name, end)) = line.split_once("<<") {
            let value: Vec<&str> = lines.by_ref().take_while(|l| *l != end).collect();
            found.insert(name.to_owned(), value.join("\n"));
        } else if let Some((name, value)) = line.split_once('=') {
            found.insert(name.to_owned(), value.to_owned());
        }
    }
    found
}

fn commits(path: &Path, range: &str) -> usize {
    git(path, &["rev-list", range]).lines().count()
}
