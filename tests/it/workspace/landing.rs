//! Integration, stacking, quarantine, proof.

use jiff::Timestamp;
use overhaul::git::{Expect, Oid};
use overhaul::model::{AttemptNumber, NodeId, RunId};
use overhaul::workspace::{
    Integrated, Integration, Quarantine, integrate, quarantine, stacked_base,
};

use super::fixture::{Fixture, sh};

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn landed(fixture: &Fixture, onto: Oid, tree: Oid) -> Integrated {
    let it = Integration { onto, base: fixture.base, tree, message: "node\n", time: time(9) };
    let first = integrate(fixture.store(), &it).unwrap();
    assert_eq!(integrate(fixture.store(), &it).unwrap(), first, "deterministic");
    first
}

fn commit_of(landed: Integrated) -> Oid {
    match landed {
        Integrated::Merged { commit, .. } => commit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_that_touch_different_files_merge() {
    let fixture = Fixture::new();
    let one = fixture.worked("echo two > a.txt");
    let two = fixture.worked("mv src/lib.txt src/moved.txt; echo new > new.txt");
    let tip = commit_of(landed(&fixture, fixture.base, one));
    assert_eq!(fixture.store().tree_of(tip).unwrap(), one);
    let tip = commit_of(landed(&fixture, tip, two));
    let tree = fixture.store().tree_of(tip).unwrap();
    assert_eq!(fixture.changes(tree), ["~a.txt", "+new.txt", "-src/lib.txt", "+src/moved.txt"]);
}

#[test]
fn an_identical_change_already_on_the_base_is_satisfied() {
    let fixture = Fixture::new();
    let tree = fixture.worked("echo two > a.txt");
    let tip = commit_of(landed(&fixture, fixture.base, tree));
    assert_eq!(landed(&fixture, tip, tree), Integrated::AlreadyThere);
    assert_eq!(landed(&fixture, tip, fixture.base_tree()), Integrated::AlreadyThere);
}

#[test]
fn a_conflict_names_its_paths_and_moves_nothing() {
    let fixture = Fixture::with(|user| sh(user, "printf '1\\n2\\n3\\n' > n.txt"));
    let tip =
        commit_of(landed(&fixture, fixture.base, fixture.worked("echo ours > a.txt; rm n.txt")));
    let other = fixture.worked("echo theirs > a.txt; printf '1\\n2\\nthree\\n' > n.txt");
    assert_eq!(
        landed(&fixture, tip, other),
        Integrated::Conflict(vec![b"a.txt".to_vec(), b"n.txt".to_vec()])
    );
}

#[test]
fn several_dependencies_become_one_deterministic_base() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let commit = |line: &str| {
        let tree = fixture.worked(line);
        store.commit(tree, &[fixture.base], line, time(1)).unwrap()
    };
    let deps = [commit("echo two > a.txt"), commit("echo b > b.txt"), commit("echo c > c.txt")];
    let first = stacked_base(store, &deps, "base", time(2)).unwrap();
    assert_eq!(stacked_base(store, &deps, "base", time(2)).unwrap(), first);
    let tree = store.tree_of(commit_of(first)).unwrap();
    assert_eq!(fixture.changes(tree), ["~a.txt", "+b.txt", "+c.txt"]);
    let one = stacked_base(store, &[deps[0], deps[0]], "base", time(2)).unwrap();
    assert_eq!(commit_of(one), deps[0]);
    let clash = [deps[0], commit("echo three > a.txt")];
    let clash = stacked_base(store, &clash, "base", time(2)).unwrap();
    assert_eq!(clash, Integrated::Conflict(vec![b"a.txt".to_vec()]));
}

#[test]
fn refused_attempts_are_kept_within_a_limit() {
    let fixture = Fixture::new();
    let run = RunId::new("r-1").unwrap();
    let mut names = Vec::new();
    for n in 1..=5 {
        let node = NodeId::new(format!("N-{n}")).unwrap();
        let it = Quarantine {
            run: &run,
            node: &node,
            attempt: AttemptNumber(1),
            base: fixture.base,
            tree: fixture.base_tree(),
            reason: "scope",
            time: time(i64::from(n)),
        };
        names.push(quarantine(fixture.store(), &it, 3).unwrap());
    }
    assert_eq!(names[0], "refs/overhaul/quarantine/r-1/N-1/1");
    let kept = fixture.store().refs("refs/overhaul/quarantine/").unwrap();
    assert_eq!(kept.keys().cloned().collect::<Vec<_>>(), names[2..]);
}

#[test]
fn a_ref_moves_only_from_where_it_was_seen() {
    let fixture = Fixture::new();
    let store = fixture.store();
    let next = store.commit(fixture.base_tree(), &[fixture.base], "n", time(1)).unwrap();
    let name = "refs/heads/overhaul/x";
    assert!(store.update_ref(name, Some(fixture.base), Expect::Absent).unwrap());
    assert!(!store.update_ref(name, Some(next), Expect::Absent).unwrap());
    assert!(!store.update_ref(name, Some(next), Expect::At(next)).unwrap());
    assert!(store.update_ref(name, Some(next), Expect::At(fixture.base)).unwrap());
    assert_eq!(store.find_ref(name).unwrap(), Some(next));
    assert!(store.update_ref(name, None, Expect::At(next)).unwrap());
    assert_eq!(store.find_ref(name).unwrap(), None);
    assert!(store.update_ref("../x", Some(next), Expect::Any).is_err());
}
