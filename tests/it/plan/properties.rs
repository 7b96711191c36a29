//! What holds for every input.

use std::collections::{HashMap, HashSet};

use overhaul::intake::{IntakeContext, read};
use overhaul::model::{Node, NodeId, Plan, RepoPath, ScopeEntry};
use overhaul::planning::{PlanContext, PlanPolicy, TrackedFile, plan, scope, validate};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::findings;

/// True when `later` waits for `earlier`, through others or directly.
fn waits(nodes: &HashMap<&NodeId, &Node>, later: &NodeId, earlier: &NodeId) -> bool {
    let mut open = vec![later];
    let mut seen = HashSet::new();
    while let Some(id) = open.pop() {
        if id == earlier {
            return true;
        }
        if seen.insert(id) {
            open.extend(nodes[id].after.iter().chain(&nodes[id].depends_on));
        }
    }
    false
}

fn check(plan: &Plan) {
    validate(plan).unwrap();
    assert_eq!(plan.coverage.total, plan.coverage.in_nodes + plan.coverage.dropped);
    assert_eq!(plan.coverage.places.len(), plan.findings.len());
    let nodes: HashMap<_, _> = plan.nodes.iter().map(|n| (&n.id, n)).collect();
    for (i, a) in plan.nodes.iter().enumerate() {
        for b in &plan.nodes[i + 1..] {
            if scope::overlaps(&a.writes, &b.writes) {
                assert!(waits(&nodes, &b.id, &a.id), "{} {}", a.id, b.id);
            }
        }
    }
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", ".github"]), 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn finding() -> impl Strategy<Value = Value> {
    (
        prop::collection::vec(path(), 0..4),
        prop::collection::vec(0..12_usize, 0..2),
        prop::sample::select(vec!["low", "high", "critical"]),
        any::<bool>(),
        0..30_u32,
    )
        .prop_map(|(paths, depends, severity, create, line)| {
            let files: Vec<Value> =
                paths.iter().map(|p| json!({"path": p, "line_start": line})).collect();
            let depends: Vec<String> = depends.iter().map(|d| format!("X{d}")).collect();
            json!({"title": "t", "severity": severity, "create": create, "affected_files": files, "depends_on": depends})
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn plans_cover_everything_and_order_every_overlap(
        list in prop::collection::vec(finding(), 12..40),
        files in prop::collection::vec(path(), 0..30),
        known in any::<bool>(),
        acyclic in any::<bool>(),
    ) {
        let list: Vec<Value> = list.into_iter().enumerate().map(|(i, mut f)| {
            f["id"] = json!(format!("X{i}"));
            if acyclic {
                // Only earlier findings are waited for.
                let earlier = |d: &Value| d.as_str().unwrap()[1..].parse::<usize>().unwrap() < i;
                let depends: Vec<Value> = f["depends_on"].as_array().unwrap().iter().filter(|d| earlier(d)).cloned().collect();
                f["depends_on"] = depends.into();
            }
            f
        }).collect();
        let found = findings(&json!({"contract_version": "audit-findings/v1alpha1", "findings": list}));
        let tracked = files.iter().filter_map(|p| RepoPath::new(p).ok())
            .map(|path| TrackedFile { path, bytes: 100 }).collect();
        let ctx = PlanContext { files: known.then_some(tracked), build_files: Vec::new() };
        match plan(found, &ctx, &PlanPolicy { max_findings_per_node: 2, ..PlanPolicy::default() }) {
            Ok(made) => check(&made),
            Err(error) => prop_assert!(!acyclic, "{error}"),
        }
    }

    #[test]
    fn the_matcher_agrees_with_a_naive_reading(
        entries in prop::collection::vec((0..3_u8, "[ab*?/]{1,6}"), 0..4),
        path in "[ab/]{0,6}",
    ) {
        let entries: Vec<ScopeEntry> = entries.into_iter().filter_map(|(kind, text)| match kind {
            0 => RepoPath::new(&text).ok().map(ScopeEntry::Path),
            1 => RepoPath::new(&text).ok().map(ScopeEntry::Folder),
            // `**` has rules of its own; single stars and question marks are the naive part.
            _ => (!text.contains("**") && !text.contains("//")).then_some(ScopeEntry::Glob(text)),
        }).collect();
        let sane = !path.is_empty() && path.split('/').all(|part| !part.is_empty());
        let naive = sane && entries.iter().any(|entry| match entry {
            ScopeEntry::Path(own) => own.as_str() == path,
            ScopeEntry::Folder(own) => path.starts_with(&format!("{own}/")),
            ScopeEntry::Glob(glob) => naive_glob(glob.as_bytes(), path.as_bytes()),
        });
        prop_assert_eq!(scope::matches(&entries, path.as_bytes()), naive);
    }

    #[test]
    fn reading_never_panics(text in "\\PC{0,200}", cut in 0..6_000_usize, flip in 0..6_000_usize) {
        let _ = read(text.as_bytes(), "x", &IntakeContext::blind());
        let file = super::data("sarif").join("10-uri-oddities.sarif");
        let mut bytes = std::fs::read(file).unwrap();
        let at = flip.min(bytes.len() - 1);
        bytes[at] ^= 0x15;
        let _ = read(&bytes, "x", &IntakeContext::blind());
        bytes.truncate(cut);
        let _ = read(&bytes, "x", &IntakeContext::blind());
    }
}

fn naive_glob(glob: &[u8], path: &[u8]) -> bool {
    match (glob, path) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            naive_glob(rest, path)
                || matches!(path, [first, tail @ ..] if *first != b'/' && naive_glob(glob, tail))
        }
        ([b'?', rest @ ..], [first, tail @ ..]) => *first != b'/' && naive_glob(rest, tail),
        ([a, rest @ ..], [b, tail @ ..]) => a == b && naive_glob(rest, tail),
        _ => false,
    }
}
