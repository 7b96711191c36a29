//! The final tree is what counts, whatever the worker did with git.

use std::os::unix::ffi::OsStrExt;

use overhaul::workspace::{Reason, TakeLimits, WorkspaceError};

use super::fixture::{Fixture, git, sh, take};

const EDITS: &[&str] = &["~a.txt", "+new.txt", "-src/lib.txt"];
const DO_EDITS: &str = "echo two > a.txt; echo new > new.txt; rm src/lib.txt";

#[test]
fn the_final_tree_is_what_counts() {
    let fixture = Fixture::new();
    for how in [
        DO_EDITS.to_owned(),
        format!("{DO_EDITS}; git add -A; git commit -qm x"),
        "echo 1 > new.txt; git add -A; git commit -qm a; echo two > a.txt; git commit -qam b; \
         rm src/lib.txt; echo new > new.txt"
            .to_owned(),
        format!("{DO_EDITS}; git add -A; git commit -qm x; git reset -q --soft HEAD~1"),
        format!("{DO_EDITS}; git checkout -q -b other; git add -A; git commit -qm x"),
        format!(
            "{DO_EDITS}; git add -A; git commit -qm x; git checkout -q --orphan o; git rm -rq --cached ."
        ),
        format!("{DO_EDITS}; rm -rf .git"),
        format!("{DO_EDITS}; rm -rf .git; git init -q; git add -A; git commit -qm all"),
        format!("{DO_EDITS}; rm -rf .git; echo 'gitdir: {}/.git' > .git", fixture.user().display()),
        format!("{DO_EDITS}; rm -rf .git; ln -s {}/.git .git", fixture.user().display()),
    ] {
        let how = format!(
            "export GIT_AUTHOR_NAME=w GIT_AUTHOR_EMAIL=w GIT_COMMITTER_NAME=w GIT_COMMITTER_EMAIL=w; {how}"
        );
        let tree = fixture.worked(&how);
        assert_eq!(fixture.changes(tree), EDITS, "{how}");
    }
    assert_eq!(git(&fixture.user(), &["status", "--porcelain"]), "");
}

#[test]
fn a_worker_sees_an_ordinary_clean_repository_without_remotes() {
    let fixture = Fixture::with(|user| {
        sh(user, "git config remote.origin.url https://secret@h/; git config core.hooksPath hooks");
    });
    let slot = fixture.slot();
    let path = slot.path();
    assert_eq!(git(&path, &["status", "--porcelain"]), "");
    assert_eq!(git(&path, &["rev-parse", "HEAD"]), fixture.base.to_string());
    assert_eq!(git(&path, &["log", "--format=%s"]), "first");
    assert_eq!(git(&path, &["remote"]), "");
    assert!(!git(&path, &["config", "--list"]).contains("hook"));
    sh(&path, "echo x >> a.txt; git commit -qam 'with an identity of its own'");
}

#[test]
fn nothing_changed_is_the_base_tree() {
    let fixture = Fixture::new();
    assert_eq!(fixture.worked("touch a.txt; mkdir empty; echo x > build.log"), fixture.base_tree());
}

#[test]
fn every_kind_of_file_is_taken_as_it_is() {
    let fixture = Fixture::new();
    let tree = fixture.worked(
        "printf 'a\\r\\nb\\n' > crlf; chmod +x a.txt; ln -sf src/lib.txt link; ln -s /etc/passwd out; \
         mkfifo pipe; printf 'x' > 'new\nline'; mkdir 'app'; echo t > 'app/[id].tsx'; echo q > 'ä\"q'; \
         rm run.sh; mkdir run.sh; echo in > run.sh/in; rm -r src; echo file > src; chmod 0444 crlf",
    );
    let files = fixture.files(tree);
    let expected = [
        (".gitignore", "target/\\n*.log\\n"),
        ("a.txt", "x one\\n"),
        ("app/[id].tsx", "t\\n"),
        ("crlf", "a\\r\\nb\\n"),
        ("link", "-> src/lib.txt"),
        ("new\\nline", "x"),
        ("out", "-> /etc/passwd"),
        ("run.sh/in", "in\\n"),
        ("src", "file\\n"),
        ("\\xc3\\xa4\\\"q", "q\\n"),
    ];
    let expected = expected.map(|(path, text)| (path.to_owned(), text.to_owned()));
    assert_eq!(files, expected.into_iter().collect());
}

#[test]
fn names_that_are_no_utf8_survive() {
    let fixture = Fixture::new();
    let slot = fixture.slot();
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    std::fs::write(slot.path().join(name), "x").unwrap();
    assert_eq!(fixture.changes(take(&slot)), ["+caf\\xe9.txt"]);
}

#[test]
fn a_folder_replaced_by_a_link_takes_nothing_from_behind_it() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("lib.txt"), "stolen").unwrap();
    let tree = fixture.worked(&format!("rm -r src; ln -s {} src", outside.display()));
    assert_eq!(fixture.changes(tree), ["+src", "-src/lib.txt"]);
}

#[test]
fn a_repository_inside_is_taken_as_plain_files() {
    let fixture = Fixture::new();
    let tree = fixture.worked(
        "git init -q dep; cd dep; echo d > d.txt; git config user.name w; git config user.email w; \
         git add -A; git commit -qm d; git init -q inner; echo i > inner/i.txt",
    );
    assert_eq!(fixture.changes(tree), ["+dep/d.txt", "+dep/inner/i.txt"]);
}

#[test]
fn filters_of_the_repository_do_not_run_and_bytes_are_kept() {
    let fixture = Fixture::with(|user| {
        sh(
            user,
            "printf '* text=auto eol=crlf\\n*.enc working-tree-encoding=UTF-16\\n*.f filter=evil\\n*.id ident\\n' > .gitattributes; \
             printf '\\377\\376t\\000' > x.enc; echo data > x.f; echo '$Id$' > x.id; \
             git config filter.evil.clean 'touch ../ran; cat'; git config filter.evil.smudge 'touch ../ran; cat'; \
             git config filter.evil.required true",
        );
    });
    let slot = fixture.slot();
    let read = |name: &str| std::fs::read_to_string(slot.path().join(name)).unwrap();
    assert_eq!(
        (read("x.enc").as_str(), read("x.f").as_str(), read("x.id").as_str()),
        ("t", "data\n", "$Id$\n")
    );
    assert_eq!(take(&slot), fixture.base_tree());
    assert_eq!(git(&slot.path(), &["status", "--porcelain"]), "");
    sh(&slot.path(), "printf 'a\\r\\n' > y.f; printf 'a\\r\\n' > a.txt");
    let files = fixture.files(take(&slot));
    assert_eq!((files["y.f"].as_str(), files["a.txt"].as_str()), ("a\\r\\n", "a\\r\\n"));
    // The user's own commit in the fixture may have run it; a slot must not.
    std::fs::remove_file(fixture.dir.path().join("ran")).ok();
    drop(slot);
    take(&fixture.slot());
    assert!(!fixture.dir.path().join("ran").exists());
}

#[test]
fn a_huge_file_is_refused_before_it_is_read() {
    let fixture = Fixture::new();
    let slot = fixture.slot();
    // Sparse: ten gigabytes that no disk holds and that nobody could hash in a test's time.
    for name in ["huge.bin", "a.txt"] {
        let file = std::fs::File::create(slot.path().join(name)).unwrap();
        file.set_len(10 << 30).unwrap();
    }
    std::fs::write(slot.path().join("ok"), "ok").unwrap();
    let taken = slot.take_tree(&TakeLimits::default()).unwrap();
    assert_eq!(fixture.changes(taken.tree), ["+ok"]);
    let refused: Vec<_> = taken.refused.iter().map(|v| (v.path.as_slice(), &v.reason)).collect();
    let large = Reason::TooLarge { bytes: 10 << 30 };
    assert_eq!(refused, [(&b"a.txt"[..], &large), (b"huge.bin", &large)]);
}

#[test]
fn too_many_files_or_bytes_end_the_attempt() {
    let fixture = Fixture::new();
    let slot = fixture.slot();
    for n in 0..30 {
        std::fs::write(slot.path().join(format!("f{n}")), "0123456789").unwrap();
    }
    let few = TakeLimits { files: 20, ..TakeLimits::default() };
    assert!(matches!(slot.take_tree(&few), Err(WorkspaceError::TooManyFiles { found: 30, .. })));
    let little = TakeLimits { total_bytes: 100, ..TakeLimits::default() };
    assert!(matches!(slot.take_tree(&little), Err(WorkspaceError::TooMuchData { limit: 100 })));
}
