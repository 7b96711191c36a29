//! Nothing outside the slot is touched, and nothing in a slot outlives its reset.

use std::os::unix::fs::PermissionsExt;

use overhaul::workspace::Workspace;

use super::fixture::{Fixture, git, sh, snapshot, take};

#[test]
fn nothing_depends_on_what_is_checked_out() {
    let fixture = Fixture::new();
    sh(&fixture.user(), "echo dirty > a.txt; git checkout -q -b elsewhere; echo u > untracked");
    let before = snapshot(&fixture.user());
    let tree = fixture.worked("echo two > a.txt");
    assert_eq!(fixture.changes(tree), ["~a.txt"]);
    fixture.store().commit(tree, &[fixture.base], "x", jiff::Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(snapshot(&fixture.user()), before);
}

#[test]
fn no_links_into_the_checkout() {
    let fixture = Fixture::new();
    let slot = fixture.slot();
    let user = fixture.user().into_os_string().into_encoded_bytes();
    for (path, content) in snapshot(&slot.path()) {
        let names_user = content.windows(user.len()).any(|window| window == user);
        assert!(!names_user, "{} names the checkout", path.display());
    }
    sh(&slot.path(), "rm -rf .git/objects/* src; git -C . init -q; echo x > .git/objects/x");
    assert_eq!(git(&fixture.user(), &["fsck", "--full"]), "");
    assert!(fixture.store().has(fixture.base));
}

#[test]
fn hooks_off_our_identity() {
    let fixture = Fixture::with(|user| {
        sh(
            user,
            "mkdir -p .githooks; for h in pre-commit post-checkout pre-push post-index-change reference-transaction; do \
             printf '#!/bin/sh\\ntouch %s\\nexit 1\\n' \"$PWD/../ran-$h\" > .githooks/$h; chmod +x .githooks/$h; \
             cp .githooks/$h .git/hooks/$h; done",
        );
        git(user, &["config", "core.hooksPath", "/dev/null"]);
    });
    sh(&fixture.user(), "git config core.hooksPath .githooks");
    let mut slot = fixture.slot();
    sh(&slot.path(), "echo two > a.txt");
    let tree = take(&slot);
    let commit =
        fixture.store().commit(tree, &[fixture.base], "m", jiff::Timestamp::UNIX_EPOCH).unwrap();
    slot.reset(commit).unwrap();
    let seen = git(&slot.path(), &["log", "-1", "--format=%an <%ae> %cn"]);
    assert_eq!(seen, "overhaul[bot] <overhaul[bot]@users.noreply.github.com> overhaul[bot]");
    let ran: Vec<_> = std::fs::read_dir(fixture.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("ran-"))
        .collect();
    assert_eq!(ran, Vec::<String>::new());
}

#[test]
fn the_same_inputs_make_the_same_commit_without_any_identity() {
    let fixture = Fixture::new();
    let tree = fixture.worked("echo two > a.txt");
    let time = jiff::Timestamp::from_second(1_800_000_000).unwrap();
    let commit = || fixture.store().commit(tree, &[fixture.base], "m\n", time).unwrap();
    assert_eq!(commit(), commit());
}

#[test]
fn a_reset_slot_is_like_a_new_one_whatever_was_left_in_it() {
    let fixture = Fixture::new();
    let mut slot = fixture.slot();
    let clean = snapshot(&slot.path());
    for mess in [
        "i=0; mkdir d; cd d; while [ $i -lt 10000 ]; do : > f$i; i=$((i+1)); done",
        "mkdir -p target/x node_modules/y; echo x > target/x/o; echo x > b.log",
        "mkdir ro; echo x > ro/f; chmod 0555 ro; chmod 0 a.txt; chmod 0555 src; chmod 0444 src/lib.txt",
        "git init -q src; git init -q other; echo x > src/.git/x",
        "rm -rf .git; echo 'gitdir: /' > .git",
        "rm -rf .git; ln -s / .git",
        "rm -rf src; ln -s / src",
        "rm -rf a.txt; mkdir -p a.txt/deep; echo x > a.txt/deep/f",
        "mkfifo pipe; ln -s pipe link2; rm link; mkdir link",
        "echo one > a.tmp; touch -r a.txt a.tmp; mv a.tmp a.txt; chmod +x a.txt",
        "printf 'eno\\n' > x; touch -r a.txt x; cp -p x a.txt; rm x",
        "rm -rf * .gitignore",
        "git add -A; git rm -rqf .; git commit -qm gone; git gc -q",
    ] {
        sh(&slot.path(), mess);
        slot.reset(fixture.base).unwrap();
        let after = snapshot(&slot.path());
        let differ: Vec<_> = after
            .iter()
            .filter(|(path, content)| {
                !path.starts_with(".git/index") && clean.get(*path) != Some(content)
            })
            .map(|(path, _)| path)
            .chain(clean.keys().filter(|path| !after.contains_key(*path)))
            .collect();
        assert!(differ.is_empty(), "{mess}: {differ:?}");
        let mode = slot.path().join("a.txt").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644, "{mess}");
        assert_eq!(git(&slot.path(), &["status", "--porcelain"]), "", "{mess}");
        assert_eq!(take(&slot), fixture.base_tree(), "{mess}");
    }
}

#[test]
fn a_corrupt_slot_is_made_anew() {
    let fixture = Fixture::new();
    let mut slot = fixture.slot();
    let index = slot.path().with_file_name("index");
    std::fs::write(&index, b"DIRC garbage").unwrap();
    slot.reset(fixture.base).unwrap();
    assert_eq!(take(&slot), fixture.base_tree());
    std::fs::remove_dir_all(slot.path()).unwrap();
    std::fs::write(slot.path(), "no folder").unwrap();
    slot.reset(fixture.base).unwrap();
    assert_eq!(take(&slot), fixture.base_tree());
}

#[test]
fn slots_are_reused_and_go_with_their_process() {
    let fixture = Fixture::new();
    let first = fixture.slot();
    let path = first.path();
    let home = first.home();
    std::fs::write(home.join("left"), "x").unwrap();
    drop(first);
    let again = fixture.slot();
    assert_eq!(again.path(), path);
    assert!(!home.join("left").exists());
    let second = fixture.slot();
    assert_ne!(second.path(), path);
    let root = fixture.workspace.root().to_path_buf();
    drop((again, second));
    let Fixture { dir, workspace, .. } = fixture;
    drop(workspace);
    assert_eq!(std::fs::read_dir(root.join("slots")).unwrap().count(), 0);
    drop(dir);
}

#[test]
fn leftovers_of_a_crash_are_swept_and_live_owners_are_left_alone() {
    let fixture = Fixture::new();
    let slot = fixture.slot();
    let slots = fixture.workspace.root().join("slots");
    let dead = slots.join("4194305-deadbeef");
    std::fs::create_dir_all(dead.join("0/tree/ro")).unwrap();
    std::fs::write(dead.join("lock"), "").unwrap();
    std::fs::set_permissions(dead.join("0/tree/ro"), PermissionsExt::from_mode(0o555)).unwrap();
    let other = Workspace::open(fixture.workspace.root(), &fixture.user()).unwrap();
    assert!(!dead.exists());
    assert!(slot.path().join("a.txt").exists());
    let mut theirs = other.slot(None).unwrap();
    theirs.reset(fixture.base).unwrap();
    assert_ne!(theirs.path(), slot.path());
    sh(&theirs.path(), "echo theirs > a.txt");
    sh(&slot.path(), "echo ours > a.txt");
    assert_eq!(fixture.files(take(&slot))["a.txt"], "ours\\n");
    assert_eq!(fixture.files(take(&theirs))["a.txt"], "theirs\\n");
}

#[test]
fn many_slots_at_once_do_not_disturb_each_other() {
    let fixture = Fixture::new();
    let trees: Vec<_> = std::thread::scope(|scope| {
        let work = |n: usize| {
            let fixture = &fixture;
            move || {
                let mut trees = Vec::new();
                for round in 0..5 {
                    let mut slot = fixture.workspace.slot(Some(fixture.base)).unwrap();
                    slot.reset(fixture.base).unwrap();
                    std::fs::write(slot.path().join("a.txt"), format!("{n} {round}")).unwrap();
                    trees.push((format!("{n} {round}"), take(&slot)));
                }
                trees
            }
        };
        let threads: Vec<_> = (0..6).map(|n| scope.spawn(work(n))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    for (text, tree) in trees {
        assert_eq!(fixture.files(tree)["a.txt"], text);
    }
}

#[test]
fn a_shallow_or_linked_checkout_lends_too() {
    let fixture = Fixture::new();
    let user = fixture.user();
    sh(
        &user,
        "echo 2 > a.txt; git -c user.name=u -c user.email=u commit -qam second; git worktree add -q ../linked",
    );
    let shallow = fixture.dir.path().join("shallow");
    let url = format!("file://{}", user.display());
    git(fixture.dir.path(), &["clone", "--quiet", "--depth=1", &url, "shallow"]);
    for (root, checkout) in [("w1", fixture.dir.path().join("linked")), ("w2", shallow)] {
        let head = overhaul::git::parse_oid(&git(&checkout, &["rev-parse", "HEAD"])).unwrap();
        let workspace = Workspace::open(&fixture.dir.path().join(root), &checkout).unwrap();
        let mut slot = workspace.slot(None).unwrap();
        slot.reset(head).unwrap();
        assert_eq!(git(&slot.path(), &["status", "--porcelain"]), "");
        assert_eq!(git(&slot.path(), &["log", "-1", "--format=%s"]), "second");
        assert_eq!(take(&slot), workspace.store().tree_of(head).unwrap());
    }
}
