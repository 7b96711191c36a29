//! Verify: deadline, clean environment, truncation.

use std::time::Duration;

use overhaul::git::Oid;
use overhaul::model::VerifyCommand;
use overhaul::process::Status;
use overhaul::workspace::{Verdict, Verified, Verifier, VerifySettings, WorkspaceError};
use tokio_util::sync::CancellationToken;

use super::fixture::Fixture;

fn command(line: &str) -> VerifyCommand {
    VerifyCommand {
        name: "check".into(),
        argv: ["sh", "-c", line].map(str::to_owned).to_vec(),
        timeout_seconds: 60,
    }
}

fn verifier(fixture: &Fixture) -> Verifier {
    Verifier::new(fixture.workspace.clone(), VerifySettings::default()).unwrap()
}

fn commit(fixture: &Fixture, line: &str) -> Oid {
    let tree = fixture.worked(line);
    fixture.store().commit(tree, &[fixture.base], "m", jiff::Timestamp::UNIX_EPOCH).unwrap()
}

async fn verify(fixture: &Fixture, commit: Oid, commands: &[VerifyCommand]) -> Verified {
    let cancel = CancellationToken::new();
    verifier(fixture).verify(commit, fixture.base, commands, &cancel).await.unwrap()
}

#[tokio::test]
async fn the_very_tree_that_lands_is_verified_from_a_clean_state() {
    let fixture = Fixture::new();
    let commit = commit(&fixture, "echo two > a.txt; echo junk > x.log");
    let line = "grep -q two a.txt && test ! -e x.log && test ! -e made && touch made";
    let verified = verify(&fixture, commit, &[command(line), command(line)]).await;
    assert!(verified.proves(), "{verified:?}");
}

#[tokio::test]
async fn a_failure_that_the_base_shows_too_is_the_bases() {
    let fixture = Fixture::new();
    let commit = commit(&fixture, "echo two > a.txt");
    let commands = [command("exit 3"), command("grep -q one a.txt"), command("true")];
    let verified = verify(&fixture, commit, &commands).await;
    let verdicts: Vec<_> =
        verified.checks.iter().map(|check| (check.verdict, check.status)).collect();
    assert_eq!(
        verdicts,
        [(Verdict::BaseFailsToo, Status::Exited(3)), (Verdict::Failed, Status::Exited(1))]
    );
    assert!(!verified.accepted());
}

#[tokio::test]
async fn the_base_is_asked_once() {
    let fixture = Fixture::new();
    let count = fixture.dir.path().join("count");
    let line = format!("grep -q one a.txt && echo base >> {}; exit 1", count.display());
    let commits = [commit(&fixture, "echo 2 > a.txt"), commit(&fixture, "echo 3 > a.txt")];
    for commit in commits {
        // A verifier of its own each time: the answer is kept on disk.
        assert!(verify(&fixture, commit, &[command(&line)]).await.accepted());
    }
    let asked = std::fs::read_to_string(&count).unwrap().lines().count();
    assert_eq!(asked, 2, "one failing base is tried twice, once for all nodes");
}

#[tokio::test]
async fn a_flaky_verify_is_run_once_more_and_recorded() {
    let fixture = Fixture::new();
    let seen = fixture.dir.path().join("seen");
    let line = format!("test -e {0} || {{ touch {0}; exit 1; }}", seen.display());
    let verified = verify(&fixture, fixture.base, &[command(&line)]).await;
    assert_eq!(verified.checks[0].verdict, Verdict::Flaky);
    assert!(verified.accepted() && !verified.proves());
}

#[tokio::test]
async fn fifty_megabytes_of_output_are_cut_and_no_failure() {
    let fixture = Fixture::new();
    let line = "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo last";
    let verified = verify(&fixture, fixture.base, &[command(line)]).await;
    let check = &verified.checks[0];
    assert_eq!(check.verdict, Verdict::Passed);
    assert!(check.output.starts_with("first\n") && check.output.ends_with("last\n"));
    assert!(check.output.len() < 200_000);
}

#[tokio::test]
async fn a_verify_that_hangs_is_killed() {
    let fixture = Fixture::new();
    let commit = commit(&fixture, "echo two > a.txt");
    let settings =
        VerifySettings { deadline: Duration::from_millis(300), ..VerifySettings::default() };
    let verifier = Verifier::new(fixture.workspace.clone(), settings).unwrap();
    let line = "grep -q one a.txt && exit 0; sleep 1000 & wait";
    let cancel = CancellationToken::new();
    let verified = verifier.verify(commit, fixture.base, &[command(line)], &cancel).await.unwrap();
    let check = &verified.checks[0];
    assert_eq!((check.verdict, check.status), (Verdict::Failed, Status::TimedOut));
}

#[tokio::test]
async fn a_verify_sees_no_secrets() {
    let fixture = Fixture::new();
    let verified = verify(&fixture, fixture.base, &[command("env; git config --list")]).await;
    let output = &verified.checks[0].output;
    let known = [
        "PATH",
        "HOME",
        "TMPDIR",
        "LANG",
        "LC_ALL",
        "TERM",
        "NO_COLOR",
        "CI",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
        "OVERHAUL_PROCESS",
    ];
    let toolchain = overhaul::workspace::toolchain_env();
    for name in output.lines().filter_map(|line| Some(line.split_once('=')?.0)) {
        let named = known.contains(&name)
            || toolchain.contains_key(std::ffi::OsStr::new(name))
            || name.contains('.');
        assert!(named, "{name}");
    }
    assert!(!output.contains("remote."), "{output}");
}

#[tokio::test]
async fn cancelling_is_no_verdict() {
    let fixture = Fixture::new();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let ended = verifier(&fixture)
        .verify(fixture.base, fixture.base, &[command("sleep 100")], &cancel)
        .await;
    assert!(matches!(ended, Err(WorkspaceError::Cancelled)));
}

#[tokio::test]
async fn healthy_nodes_in_parallel_lose_nothing() {
    let fixture = Fixture::new();
    let verifier = std::sync::Arc::new(verifier(&fixture));
    let tasks: Vec<_> = (0..12)
        .map(|n| {
            let commit = commit(&fixture, &format!("echo {n} > a.txt"));
            let verifier = std::sync::Arc::clone(&verifier);
            let (base, line) = (fixture.base, format!("grep -qx {n} a.txt"));
            tokio::spawn(async move {
                let cancel = CancellationToken::new();
                verifier.verify(commit, base, &[command(&line)], &cancel).await
            })
        })
        .collect();
    for task in tasks {
        assert!(task.await.unwrap().unwrap().proves());
    }
}
