//! Fetch and push by compare-and-swap.

use overhaul::git::{Expect, GitError, PushResult, RefUpdate, Remote, Repo};

use super::fixture::{Fixture, git};

struct World {
    fixture: Fixture,
    remote: Remote,
}

fn world() -> World {
    let fixture = Fixture::new();
    let bare = fixture.dir.path().join("remote.git");
    git(&fixture.user(), &["clone", "--quiet", "--bare", ".", bare.to_str().unwrap()]);
    let remote = Remote::new(bare.to_str().unwrap(), None).unwrap();
    World { fixture, remote }
}

fn update(name: &str, new: overhaul::git::Oid, expected: Expect) -> RefUpdate {
    RefUpdate { name: format!("refs/heads/{name}"), new: Some(new), expected }
}

#[test]
fn the_first_writer_wins_and_the_second_is_told() {
    let World { fixture, remote } = world();
    let store = fixture.store();
    let base = fixture.base;
    let time = jiff::Timestamp::UNIX_EPOCH;
    let next = store.commit(fixture.base_tree(), &[base], "next", time).unwrap();
    let push = |updates: &[RefUpdate], atomic| remote.push(store, updates, atomic).unwrap();
    assert_eq!(push(&[update("state", base, Expect::Absent)], true), PushResult::Done);
    let PushResult::Rejected(rejected) = push(&[update("state", next, Expect::Absent)], true)
    else {
        panic!("a second creation was accepted");
    };
    assert_eq!(rejected[0].name, "refs/heads/state");
    assert!(matches!(
        push(&[update("state", next, Expect::At(next))], true),
        PushResult::Rejected(_)
    ));
    // All or none.
    let both = [update("state", next, Expect::At(base)), update("main", next, Expect::Absent)];
    assert!(matches!(push(&both, true), PushResult::Rejected(_)));
    assert_eq!(remote.ls_remote(store, &["refs/heads/state"]).unwrap()["refs/heads/state"], base);
    assert_eq!(push(&[update("state", next, Expect::At(base))], true), PushResult::Done);
    let gone = RefUpdate { name: "refs/heads/state".into(), new: None, expected: Expect::At(next) };
    assert_eq!(push(&[gone], false), PushResult::Done);
    assert_eq!(
        remote.ls_remote(store, &[]).unwrap().keys().collect::<Vec<_>>(),
        ["HEAD", "refs/heads/main"]
    );
    let main = fixture.base;
    assert_eq!(remote.default_branch(store).unwrap(), Some(("refs/heads/main".into(), main)));
}

#[test]
fn fetching_brings_what_the_remote_has() {
    let World { fixture, remote } = world();
    let empty = Repo::create(&fixture.dir.path().join("fresh.git"), None).unwrap();
    assert!(!empty.has(fixture.base));
    remote.fetch(&empty, &["+refs/heads/main:refs/remotes/origin/main"]).unwrap();
    assert_eq!(empty.find_ref("refs/remotes/origin/main").unwrap(), Some(fixture.base));
    assert_eq!(empty.message_of(fixture.base).unwrap(), "first\n");
}

#[test]
fn hooks_of_the_pushing_side_do_not_run() {
    let World { fixture, remote } = world();
    let hook = fixture.store().dir().join("hooks/pre-push");
    std::fs::create_dir_all(hook.parent().unwrap()).unwrap();
    std::fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let updates = [update("x", fixture.base, Expect::Absent)];
    assert_eq!(remote.push(fixture.store(), &updates, false).unwrap(), PushResult::Done);
}

#[test]
fn failures_say_their_cause() {
    let World { fixture, .. } = world();
    let missing = Remote::new("/nonexistent/r.git", None).unwrap();
    assert!(missing.fetch(fixture.store(), &["refs/heads/main"]).is_err());
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = Remote::new(&format!("http://u:pw@127.0.0.1:{port}/r.git"), None).unwrap();
    let error = dead.fetch(fixture.store(), &["refs/heads/main"]).unwrap_err();
    assert!(matches!(error, GitError::Network { .. }), "{error:?}");
    assert!(error.is_transient());
}
