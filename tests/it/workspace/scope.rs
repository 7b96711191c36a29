//! What of a worker's tree may land.

use overhaul::model::{RepoPath, ScopeEntry};
use overhaul::workspace::{ScopePolicy, check};

use super::fixture::{Fixture, git, sh};

fn policy(writes: &[ScopeEntry]) -> ScopePolicy {
    ScopePolicy { writes: writes.to_vec(), ..ScopePolicy::default() }
}

fn path(text: &str) -> ScopeEntry {
    ScopeEntry::Path(RepoPath::new(text).unwrap())
}

fn folder(text: &str) -> ScopeEntry {
    ScopeEntry::Folder(RepoPath::new(text).unwrap())
}

fn all() -> ScopeEntry {
    ScopeEntry::Glob("**".to_owned())
}

/// The violations of what a shell line leaves, as text.
fn violations(fixture: &Fixture, line: &str, policy: &ScopePolicy) -> Vec<String> {
    let tree = fixture.worked(line);
    let found = check(fixture.store(), fixture.base_tree(), tree, policy).unwrap();
    found.iter().map(ToString::to_string).collect()
}

#[test]
fn one_matcher_both_sides_of_a_rename_bytes() {
    let fixture =
        Fixture::with(|user| sh(user, "mkdir app; echo t > 'app/[id].tsx'; echo t > app/i.tsx"));
    let scope =
        policy(&[path("app/[id].tsx"), folder("docs"), ScopeEntry::Glob("src/*.txt".into())]);
    let none: [&str; 0] = [];
    let line = "echo x > 'app/[id].tsx'; mkdir docs; echo x > 'docs/ä\nb'; echo y > src/lib.txt";
    assert_eq!(violations(&fixture, line, &scope), none);
    assert_eq!(
        violations(&fixture, "echo x > app/i.tsx", &scope),
        ["'app/i.tsx' is outside the node's write scope"]
    );
    // Moving out of the scope and moving into it are both refused on the side that is outside.
    assert_eq!(
        violations(&fixture, "mv src/lib.txt out.txt", &scope),
        ["'out.txt' is outside the node's write scope"]
    );
    assert_eq!(
        violations(&fixture, "mv a.txt src/a.txt", &scope),
        ["'a.txt' is outside the node's write scope"]
    );
    assert_eq!(
        violations(
            &fixture,
            "mkdir src/deep docsx; echo x > src/deep/a.txt; echo x > docsx/f; printf x > \"$(printf 'caf\\351')\"",
            &scope
        ),
        [
            "'caf\\xe9' is outside the node's write scope",
            "'docsx/f' is outside the node's write scope",
            "'src/deep/a.txt' is outside the node's write scope",
        ]
    );
}

#[test]
fn protected_paths_need_a_person() {
    let fixture = Fixture::with(|user| {
        sh(user, "mkdir -p .github docs; echo x > .github/CODEOWNERS; echo 1 > Cargo.lock")
    });
    let line = "mkdir -p .github/workflows .GitHub x docs; echo x > .github/workflows/ci.yml; rm .github/CODEOWNERS; \
                echo x > .GitHub/a; echo x > docs/codeowners; echo 2 > Cargo.lock; echo 1 > x/yarn.lock";
    let everything = policy(&[all()]);
    assert_eq!(
        violations(&fixture, line, &everything),
        [
            "'.GitHub/a' is protected",
            "'.github/CODEOWNERS' is protected",
            "'.github/workflows/ci.yml' is protected",
            "'Cargo.lock' is protected",
            "'docs/codeowners' is protected",
            "'x/yarn.lock' is protected",
        ]
    );
    let lenient = ScopePolicy { allow: vec![path("Cargo.lock")], ..everything };
    assert!(!violations(&fixture, line, &lenient).iter().any(|v| v.contains("Cargo.lock")));
    let lockfiles = ScopePolicy { allow_lockfiles: true, ..policy(&[all()]) };
    assert_eq!(violations(&fixture, line, &lockfiles).len(), 4);
    // Allowed is not in scope.
    let narrow = ScopePolicy { writes: vec![path("a.txt")], ..lenient };
    assert_eq!(
        violations(&fixture, "echo 2 > Cargo.lock", &narrow),
        ["'Cargo.lock' is outside the node's write scope"]
    );
}

#[test]
fn new_escaping_links_are_refused() {
    let fixture = Fixture::with(|user| sh(user, "ln -s / root; ln -s ../.. src/up"));
    let line = "ln -s /etc/passwd abs; ln -s ../x up; ln -s src/../../x up2; ln -s .git/config g; ln -s root/etc via; \
                ln -s src/up/x via2; ln -s loop loop; ln -sf ../../a.txt src/l; \
                ln -s src ok; ln -s ../a.txt src/ok; ln -s nowhere ok2; ln -s ok/lib.txt ok3; ln -s . ok4";
    let found = violations(&fixture, line, &policy(&[all()]));
    let expected = ["abs", "g", "loop", "src/l", "up", "up2", "via", "via2"];
    let names: Vec<_> = found.iter().map(|v| v.split('\'').nth(1).unwrap()).collect();
    assert_eq!(names, expected);
    assert!(found.iter().all(|v| v.contains("is a link that leaves the tree")), "{found:?}");
}

#[test]
fn a_dependency_link_in_place_of_the_real_folder_is_refused() {
    let fixture = Fixture::with(|user| sh(user, "mkdir node_modules; echo x > node_modules/keep"));
    let line = "rm -r node_modules; ln -s /usr/lib/node_modules node_modules";
    assert_eq!(
        violations(&fixture, line, &policy(&[all()])),
        ["'node_modules' is a link that leaves the tree (to '/usr/lib/node_modules')"]
    );
}

#[test]
fn modes_types_and_git_files_are_refused() {
    let fixture = Fixture::new();
    let line = "chmod +x a.txt; chmod -x run.sh; rm src/lib.txt; ln -s ../a.txt src/lib.txt; \
                echo '[submodule]' > .gitmodules; echo '* filter=x' > src/.gitattributes; echo x > .gitignore; \
                echo n > new.sh; chmod +x new.sh; echo x > git~1; mkdir ..git; echo x > ..git/x";
    assert_eq!(
        violations(&fixture, line, &policy(&[all()])),
        [
            "'.gitmodules' belongs to git",
            "'a.txt' changed its mode or type",
            "'git~1' belongs to git",
            "'run.sh' changed its mode or type",
            "'src/.gitattributes' is protected",
            "'src/lib.txt' changed its mode or type",
        ]
    );
}

#[test]
fn submodule_changes_are_refused() {
    let fixture = Fixture::with(|user| {
        sh(
            user,
            "git init -q dep; git -C dep -c user.name=u -c user.email=u commit -q --allow-empty -m d",
        );
        git(user, &["-c", "advice.addEmbeddedRepo=false", "add", "dep"]);
    });
    assert_eq!(fixture.files(fixture.base_tree())["dep"], "submodule");
    let everything = policy(&[all()]);
    let none: [&str; 0] = [];
    assert_eq!(violations(&fixture, "rmdir dep; echo x > a.txt", &everything), none);
    let line = "rmdir dep; echo x > dep";
    assert_eq!(violations(&fixture, line, &everything), ["'dep' is a submodule"]);
    let line = "cd dep; git init -q .; git config user.name w; git config user.email w; git commit -q --allow-empty -m other";
    assert_eq!(violations(&fixture, line, &everything), ["'dep' is a submodule"]);
    let mut slot = fixture.slot();
    sh(&slot.path(), "echo left > dep/behind");
    slot.reset(fixture.base).unwrap();
    assert!(!slot.path().join("dep/behind").exists());
}

#[test]
fn large_files_and_secrets_are_refused() {
    let fixture = Fixture::new();
    let small = ScopePolicy { max_file_bytes: 100, ..policy(&[all()]) };
    let line = "yes | head -c 101 > big; printf 'k=ghp_%s\\n' aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3hJ6 >> a.txt";
    assert_eq!(
        violations(&fixture, line, &small),
        ["'a.txt' would add a secret (a forge token)", "'big' is too large (101 bytes)"]
    );
}

#[test]
fn only_what_is_out_of_scope_can_be_amended() {
    let fixture = Fixture::new();
    let tree = fixture.worked("echo x > elsewhere; echo x > .gitmodules");
    let found = check(fixture.store(), fixture.base_tree(), tree, &policy(&[])).unwrap();
    let amendable: Vec<_> = found.iter().map(|v| v.is_amendable()).collect();
    assert_eq!(amendable, [false, true]);
}
