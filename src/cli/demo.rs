//! `demo`: the whole product on this machine alone. A sample repository, a forge of files, and a
//! pool served by a scripted endpoint inside this process: no model, no network, no account.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::next_step::{failure, render, stop_signal};
use super::run_options::env;
use super::{Failure, print};
use crate::backends::scripted::{self, Scripted};
use crate::config::Config;
use crate::cycle::{Clock, Given, Options, Place, next_step};
use crate::git::{Expect, GitError, Repo};
use crate::ledger::Holder;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where the demo lives; running it again there goes on where it was [default: a folder
    /// `overhaul-demo` among the temporary files].
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The sample repository.
const SAMPLE: &[(&str, &str)] = &[
    ("bin/backup.sh", include_str!("../../examples/demo/bin/backup.sh")),
    ("bin/clean.sh", include_str!("../../examples/demo/bin/clean.sh")),
    ("docs/restore.md", include_str!("../../examples/demo/docs/restore.md")),
    ("docs/usage.md", include_str!("../../examples/demo/docs/usage.md")),
    ("findings/audit.json", include_str!("../../examples/demo/findings/audit.json")),
    ("findings/check.sarif", include_str!("../../examples/demo/findings/check.sarif")),
    ("lib/log.sh", include_str!("../../examples/demo/lib/log.sh")),
    ("lib/retry.sh", include_str!("../../examples/demo/lib/retry.sh")),
    ("tools/check.sh", include_str!("../../examples/demo/tools/check.sh")),
    ("tools/verify.sh", include_str!("../../examples/demo/tools/verify.sh")),
];

/// The demo's configuration; the endpoint's port is filled in.
const CONFIG: &str = include_str!("../../examples/demo/overhaul.yml");

pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let dir = args.dir.unwrap_or_else(|| std::env::temp_dir().join("overhaul-demo"));
    let repository = prepare(&dir)?;
    let endpoint = Scripted::start(scripted::fixer)
        .await
        .map_err(|e| Failure::failed("the scripted endpoint could not start").because(e))?;
    let url = endpoint
        .base_url()
        .map_err(|e| Failure::failed("the scripted endpoint has no address").because(e))?;
    let text = CONFIG.replace("http://127.0.0.1:1/v1", url.as_str());
    let config = Config::load(&text, "examples/demo/overhaul.yml")
        .map_err(|e| Failure::failed("the demo's configuration is broken").because(e))?;
    let options = Options {
        repo: repository.clone(),
        config,
        remote: None,
        place: Place::Local(dir.join("forge")),
        work_root: dir.join("work"),
        given: Given::default(),
        run_id: None,
        time_budget: None,
        resume: false,
        dry_run: false,
        holder: Holder::default(),
        woken: crate::cycle::Woken::default(),
        artifacts: None,
        env: env(),
        clock: Clock::system(),
    };
    let report = next_step(options, stop_signal()).await.map_err(failure)?;
    let mut text = render(&report, args.json)?;
    if !args.json {
        let clone = dir.join("clone");
        let _ = write!(
            text,
            "\nThis was a demo: the pool `scripted` is a script inside this program, not a model.\n\
             repository and state branch  {}\n\
             pull requests                {}\n\
             Run it again: nothing is done twice. To merge a pull request, merge its branch with git:\n  \
             git clone -b main {} {}\n  \
             git -C {} merge origin/{}\n  \
             git -C {} push\n\
             and set `state: merged` in its file; `state: closed` rejects it. When all are merged or\n\
             closed, the next run closes.\n",
            repository.display(),
            dir.join("forge/pulls").display(),
            repository.display(),
            clone.display(),
            clone.display(),
            report.run_id.as_ref().map_or_else(String::new, |run| format!("overhaul/{run}/N-001")),
            clone.display(),
        );
    }
    print(&text)
}

/// Makes the sample repository once: built aside and renamed, so that an interrupted start leaves
/// nothing half made.
fn prepare(dir: &Path) -> Result<PathBuf, Failure> {
    let broken = |what: &str, e: &dyn std::fmt::Display| {
        Failure::failed(format!("{what} {}", dir.display())).because(e).remedy("name another --dir")
    };
    let plain = |text: &str| !text.chars().any(char::is_control);
    if !dir.to_str().is_some_and(plain) {
        return Err(Failure::usage(format!("the folder {} has an odd name", dir.display()))
            .because("addresses of repositories are text in one line")
            .remedy("name another --dir"));
    }
    std::fs::create_dir_all(dir).map_err(|e| broken("cannot make the folder", &e))?;
    claim(dir).map_err(|e| broken("cannot use", &e))?;
    let repository = dir.join("repository.git");
    if repository.exists() {
        return Ok(repository);
    }
    let aside = tempfile::Builder::new()
        .prefix("new-")
        .tempdir_in(dir)
        .map_err(|e| broken("cannot write to", &e))?;
    let fresh = aside.path().join("repository.git");
    fill(&fresh).map_err(|e| broken("cannot make the sample repository in", &e))?;
    match std::fs::rename(&fresh, &repository) {
        // Somebody else made it at the same moment: theirs is as good.
        Err(_) if repository.exists() => Ok(repository),
        Err(e) => Err(broken("cannot write to", &e)),
        Ok(()) => Ok(repository),
    }
}

/// A file that says whose folder it is.
const MARK: &str = ".overhaul-demo";

/// Takes an empty folder, or one that the demo took before; never mixes with what others keep.
fn claim(dir: &Path) -> std::io::Result<()> {
    let mark = dir.join(MARK);
    if mark.is_file() {
        return Ok(());
    }
    if std::fs::read_dir(dir)?.next().is_some() {
        return Err(std::io::Error::other("it holds something that the demo did not put there"));
    }
    std::fs::write(mark, "made by `overhaul demo`\n")
}

fn fill(path: &Path) -> Result<(), GitError> {
    let repo = Repo::create(path, None)?;
    let files: Vec<(&[u8], &[u8])> =
        SAMPLE.iter().map(|(path, text)| (path.as_bytes(), text.as_bytes())).collect();
    let tree = repo.edit_files(None, files)?;
    let commit = repo.commit(tree, &[], "Sample repository\n", jiff::Timestamp::UNIX_EPOCH)?;
    repo.update_ref("refs/heads/main", Some(commit), Expect::Absent)?;
    Ok(())
}
