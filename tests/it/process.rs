//! Child processes end, whole, whatever they do.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::Duration;

use overhaul::process::{DiskWatch, Ended, ProcessError, Spec, Status, Walls, base_env, run};
use tempfile::TempDir;

fn spec(dir: &TempDir, line: &str) -> Spec {
    let mut spec = Spec::new(["sh", "-c", line], dir.path());
    spec.env = base_env(dir.path(), &std::env::var_os("PATH").unwrap());
    spec.grace = Duration::from_millis(200);
    spec
}

async fn ended(dir: &TempDir, line: &str) -> Ended {
    run(spec(dir, line)).await.unwrap()
}

/// Is the process whose id a child wrote there gone, or a zombie?
fn gone(file: &Path) -> bool {
    let id = std::fs::read_to_string(file).unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", id.trim())).unwrap_or_default();
    stat.is_empty() || stat.rsplit(')').next().unwrap().trim().starts_with('Z')
}

async fn written(file: &Path) {
    while std::fs::read_to_string(file).map_or(true, |text| !text.ends_with('\n')) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn output_exit_and_input() {
    let dir = tempfile::tempdir().unwrap();
    let mut it = spec(&dir, "cat; echo err >&2; exit 7");
    it.stdin = Some(b"in".repeat(100_000));
    let ended = run(it).await.unwrap();
    assert_eq!(ended.status, Status::Exited(7));
    assert_eq!((ended.stdout.total, ended.stderr.text().as_str()), (200_000, "err\n"));
    assert!(!ended.stdout.truncated);
    let ignored = Spec { stdin: Some(vec![0; 1 << 20]), ..spec(&dir, "exit 0") };
    assert_eq!(run(ignored).await.unwrap().status, Status::Exited(0));
    assert_eq!(self::ended(&dir, "kill -SEGV $$").await.status, Status::Signalled(11));
}

#[tokio::test]
async fn nothing_is_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let mut it = Spec::new([OsStr::new("/usr/bin/env")], dir.path());
    it.env.insert("A".into(), "b".into());
    let out = run(it).await.unwrap().stdout.text();
    let names: Vec<_> = out.lines().filter_map(|line| line.split('=').next()).collect();
    assert_eq!(names, ["A", "OVERHAUL_PROCESS"]);
}

#[tokio::test]
async fn a_grandchild_that_holds_the_output_delays_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pid");
    let ended = ended(&dir, "sleep 1000 & echo $! > pid; echo done").await;
    assert_eq!((ended.status, ended.stdout.text().as_str()), (Status::Exited(0), "done\n"));
    assert!(ended.elapsed < Duration::from_secs(100));
    assert!(gone(&file));
}

#[tokio::test]
async fn a_child_that_hangs_and_ignores_signals_ends_at_its_deadline() {
    let dir = tempfile::tempdir().unwrap();
    let mut it = spec(&dir, "trap '' TERM INT HUP; echo up; while :; do sleep 1000; done");
    it.deadline = Duration::from_millis(300);
    let ended = run(it).await.unwrap();
    assert_eq!((ended.status, ended.stdout.text().as_str()), (Status::TimedOut, "up\n"));
}

#[tokio::test]
async fn what_forks_away_is_killed_too() {
    let dir = tempfile::tempdir().unwrap();
    let line = "setsid sh -c 'echo $$ > one; exec sleep 1000' & \
                (setsid sh -c '(trap \"\" TERM; echo $$ > two; while :; do sleep 1000; done) & exit' &) ; \
                while ! [ -s one ] || ! [ -s two ]; do :; done";
    for hang in ["exit 0", "sleep 1000"] {
        for name in ["one", "two"] {
            let _ = std::fs::remove_file(dir.path().join(name));
        }
        let mut it = spec(&dir, &format!("{line}; {hang}"));
        it.deadline =
            if hang == "exit 0" { Duration::from_secs(60) } else { Duration::from_secs(2) };
        run(it).await.unwrap();
        assert!(gone(&dir.path().join("one")) && gone(&dir.path().join("two")), "{hang}");
    }
}

#[tokio::test]
async fn a_session_without_our_marker_is_found_by_its_ancestry() {
    let dir = tempfile::tempdir().unwrap();
    let path = std::env::var("PATH").unwrap();
    let line = format!("env -i PATH='{path}' setsid sh -c 'echo $$ > one; exec sleep 1000' & wait");
    let mut it = spec(&dir, &line);
    let cancel = it.cancel.clone();
    it.deadline = Duration::from_secs(60);
    let file = dir.path().join("one");
    let task = tokio::spawn(run(it));
    written(&file).await;
    cancel.cancel();
    assert_eq!(task.await.unwrap().unwrap().status, Status::Cancelled);
    assert!(gone(&file));
}

#[tokio::test]
async fn dropping_the_future_kills_the_family() {
    let dir = tempfile::tempdir().unwrap();
    let line = "sleep 1000 & echo $! > one; setsid sh -c 'echo $$ > two; exec sleep 1000' & wait";
    let task = tokio::spawn(run(spec(&dir, line)));
    let files = ["one", "two"].map(|name| dir.path().join(name));
    for file in &files {
        written(file).await;
    }
    task.abort();
    let _ = task.await;
    assert!(files.iter().all(|file| gone(file)));
}

#[tokio::test]
async fn a_worker_that_fills_the_disk_is_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let mut it =
        spec(&dir, "i=0; while :; do head -c 1000000 /dev/urandom > f$i; i=$((i+1)); done");
    it.disk = Some(DiskWatch { folders: vec![dir.path().to_path_buf()], growth: 5_000_000 });
    it.deadline = Duration::from_secs(60);
    assert_eq!(run(it).await.unwrap().status, Status::OverDisk);
}

#[tokio::test]
async fn kernel_limits_hold() {
    let dir = tempfile::tempdir().unwrap();
    let walls = Walls {
        helper: Some(env!("CARGO_BIN_EXE_overhaul").into()),
        file_size: Some(100_000),
        open_files: Some(20),
        ..Walls::default()
    };
    let limited = |line: &str| Spec { walls: walls.clone(), ..spec(&dir, line) };
    let ended = run(limited("ulimit -n; echo out; exit 5")).await.unwrap();
    assert_eq!((ended.status, ended.stdout.text().as_str()), (Status::Exited(5), "20\nout\n"));
    let ended = run(limited("exec head -c 200000 /dev/zero > big")).await.unwrap();
    assert!(!ended.status.success());
    assert!(dir.path().join("big").metadata().unwrap().len() <= 100_000);
    let missing = Spec { argv: vec!["no-such-program".into()], ..limited("") };
    let ended = run(missing).await.unwrap();
    assert_eq!(ended.status, Status::Exited(126));
    assert!(ended.stderr.text().contains("'no-such-program' could not be started"));
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let none = Spec::new(Vec::<OsString>::new(), dir.path());
    assert!(matches!(run(none).await, Err(ProcessError::Empty)));
    let mut missing = spec(&dir, "");
    missing.argv = vec!["no-such-program".into()];
    let error = run(missing).await.unwrap_err().to_string();
    assert!(
        error.starts_with("the program 'no-such-program' was not found on the path '"),
        "{error}"
    );
    let nowhere = Spec { cwd: dir.path().join("nowhere"), ..spec(&dir, "true") };
    assert!(matches!(run(nowhere).await, Err(ProcessError::Spawn { .. })));
}
