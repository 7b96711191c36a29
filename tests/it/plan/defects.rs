//! Promises about plans, each under its own name.

use overhaul::model::{DropReason, Finding, Plan, RepoPath, VerifyCommand};
use overhaul::planning::{
    BuildFile, PlanContext, PlanError, PlanPolicy, TrackedFile, VerifyRule, plan, validate,
};
use serde_json::{Value, json};

use super::findings;

fn audit_findings(list: Value) -> Vec<Finding> {
    findings(&json!({"contract_version": "audit-tools/audit-findings/v1", "findings": list}))
}

fn checkout(files: &[&str]) -> PlanContext {
    let tracked = |path: &&str| TrackedFile { path: RepoPath::new(path).unwrap(), bytes: 4_000 };
    let build = |path: &&&str| overhaul::planning::is_build_file(path);
    PlanContext {
        files: Some(files.iter().map(tracked).collect()),
        build_files: files
            .iter()
            .filter(build)
            .map(|path| BuildFile { path: RepoPath::new(path).unwrap(), scripts: Vec::new() })
            .collect(),
    }
}

fn make(list: Value) -> Result<Plan, PlanError> {
    plan(audit_findings(list), &PlanContext::default(), &PlanPolicy::default())
}

#[test]
fn files_to_be_created_are_declared() {
    let list = json!([
        {"id": "N", "title": "new", "action": "create", "affected_files": [{"path": "src/new.rs"}]},
        {"id": "U", "title": "use it", "depends_on": ["N"], "affected_files": [{"path": "src/a.rs"}]},
        {"id": "G", "title": "gone", "affected_files": [{"path": "src/gone.rs"}]},
    ]);
    let made =
        plan(audit_findings(list), &checkout(&["src/a.rs"]), &PlanPolicy::default()).unwrap();
    assert_eq!(made.nodes[0].creates, [RepoPath::new("src/new.rs").unwrap()]);
    assert_eq!(made.nodes[1].depends_on, [made.nodes[0].id.clone()]);
    assert_eq!(made.findings[2].dropped, Some(DropReason::Missing));
}

#[test]
fn dependencies_fail_closed() {
    let unknown = make(json!([
        {"id": "A", "title": "a", "depends_on": ["ghost"], "affected_files": ["a"]},
    ]));
    assert!(
        matches!(unknown, Err(PlanError::UnknownDependency { missing, .. }) if missing == "ghost")
    );

    let list = json!([
        {"id": "A", "title": "a", "affected_files": [".github/workflows/x.yml"]},
        {"id": "B", "title": "b", "depends_on": ["A"], "affected_files": ["b"]},
        {"id": "C", "title": "c", "dependencies": ["B"], "affected_files": ["c"]},
        {"id": "D", "title": "d", "affected_files": ["d"]},
    ]);
    let made = make(list).unwrap();
    let dropped: Vec<_> = made.findings.iter().map(|f| json!(f.dropped)).collect();
    assert_eq!(
        json!(dropped),
        json!(["protected", {"prerequisite": "F-0001"}, {"prerequisite": "F-0002"}, null])
    );
}

#[test]
fn dependencies_are_bounded() {
    let list: Vec<Value> = (0..1_000)
        .map(|i| json!({"id": "same", "title": format!("{i}"), "depends_on": ["same"], "affected_files": ["a"]}))
        .collect();
    assert!(matches!(make(list.into()), Err(PlanError::TooManyDependencies(_))));
}

#[test]
fn a_path_of_any_depth_is_survived() {
    let deep = "d/".repeat(200_000) + "f";
    let mut made = make(json!([{"title": "a", "affected_files": ["a"]}])).unwrap();
    made.nodes[0].writes = vec![overhaul::model::ScopeEntry::Path(RepoPath::new(&deep).unwrap())];
    assert_eq!(validate(&made), Ok(()));
}

#[test]
fn the_plan_is_validated_as_a_graph_before_any_attempt() {
    let cycle = make(json!([
        {"id": "A", "title": "a", "depends_on": ["C"], "affected_files": ["a"]},
        {"id": "B", "title": "b", "depends_on": ["A"], "affected_files": ["b"]},
        {"id": "C", "title": "c", "depends_on": ["B"], "affected_files": ["c"]},
    ]))
    .unwrap_err();
    assert_eq!(
        cycle.to_string(),
        "the dependencies form a cycle: F-0001 (A) -> F-0003 (C) -> F-0002 (B) -> F-0001 (A)"
    );

    let good = make(json!([
        {"id": "A", "title": "a", "affected_files": ["a"]},
        {"id": "B", "title": "b", "affected_files": ["b", "a"]},
    ]))
    .unwrap();
    assert_eq!(validate(&good), Ok(()));
    // Plans come back as JSON.
    let text = serde_json::to_string(&good).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), good);

    type Spoil = fn(&mut Plan);
    let spoils: [(Spoil, &str); 12] = [
        (|p| p.version = 2, "version 2"),
        (|p| p.nodes[1].id = p.nodes[0].id.clone(), "used twice"),
        (|p| p.nodes[0].after = vec![p.nodes[1].id.clone()], "N-001 -> N-002 -> N-001"),
        (|p| p.nodes[0].depends_on = vec!["N-9".parse().unwrap()], "'N-9'"),
        (|p| p.nodes[1].after.clear(), "neither waits"),
        (|p| p.nodes[0].findings.clear(), "no finding"),
        (|p| p.nodes[0].writes.clear(), "no write scope"),
        (|p| p.nodes[0].verify_waived = None, "not waived"),
        (|p| p.coverage.dropped = 1, "counts"),
        (|p| p.nodes[0].creates = vec![RepoPath::new("z").unwrap()], "outside its write scope"),
        (|p| p.nodes[0].writes.push(overhaul::model::ScopeEntry::Glob("[".into())), "not valid"),
        (
            |p| {
                let path = RepoPath::new(".github/workflows/x.yml").unwrap();
                p.nodes[0].writes.push(overhaul::model::ScopeEntry::Path(path));
            },
            "protected",
        ),
    ];
    for (spoil, words) in spoils {
        let mut bad = good.clone();
        spoil(&mut bad);
        let error = validate(&bad).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn coverage_counts_in_equal_counts_out() {
    let made = make(json!([
        {"title": "a", "affected_files": ["a"]},
        {"title": "a", "affected_files": ["a"]},
        {"title": "b", "affected_files": ["CODEOWNERS"]},
        {"title": "c"},
    ]))
    .unwrap();
    assert_eq!((made.coverage.total, made.coverage.in_nodes, made.coverage.dropped), (4, 1, 3));
    let mut lost = made.clone();
    lost.nodes.clear();
    assert!(matches!(validate(&lost), Err(PlanError::Coverage { .. })));
    let mut twice = made;
    let mut copy = twice.nodes[0].clone();
    copy.id = "N-777".parse().unwrap();
    twice.nodes.push(copy);
    assert!(matches!(validate(&twice), Err(PlanError::Coverage { .. })));
}

#[test]
fn a_split_keeps_commands_and_divides_scope() {
    let list: Vec<Value> = (1..=20)
        .map(|line| json!({"title": format!("t{line}"), "affected_files": [{"path": "src/a.rs", "line_start": line}]}))
        .chain([json!({"title": "other", "affected_files": ["src/b.rs"]})])
        .collect();
    let ctx = checkout(&["Cargo.toml", "src/a.rs", "src/b.rs"]);
    let made = plan(audit_findings(list.into()), &ctx, &PlanPolicy::default()).unwrap();
    let sizes: Vec<usize> = made.nodes.iter().map(|n| n.findings.len()).collect();
    assert_eq!(sizes, [8, 8, 4, 1]);
    assert!(made.nodes.iter().all(|n| n.verify[0].argv == ["cargo", "check"]));
    assert!(made.nodes.iter().all(|n| n.writes.len() == 1));
    assert_eq!(made.nodes[1].after, [made.nodes[0].id.clone()]);
    assert_eq!(made.nodes[2].after, [made.nodes[1].id.clone()]);
    assert!(made.nodes[3].after.is_empty());

    // The window splits too, and estimates are not one flat number.
    let policy = PlanPolicy { budget_tokens: 2_530, ..PlanPolicy::default() };
    let list: Vec<Value> = (1..=4)
        .map(|line| json!({"title": "x".repeat(40), "summary": format!("{line}"), "affected_files": [{"path": "src/a.rs", "line_start": line}]}))
        .collect();
    let made = plan(audit_findings(list.into()), &ctx, &policy).unwrap();
    assert!(made.nodes.len() > 1);
    assert!(made.nodes.iter().all(|n| n.input_tokens <= 2_530));
}

#[test]
fn overlapping_scopes_never_run_side_by_side() {
    let list = json!([
        {"title": "one", "affected_files": ["src/a.rs"]},
        {"title": "two", "affected_files": ["src/a.rs", "src/b.rs"]},
        {"title": "folder", "affected_files": ["src"]},
        {"title": "three", "affected_files": ["src/b.rs"]},
        {"title": "apart", "affected_files": ["docs/x.md"]},
    ]);
    let made = plan(
        audit_findings(list),
        &checkout(&["src/a.rs", "src/b.rs", "docs/x.md"]),
        &PlanPolicy::default(),
    )
    .unwrap();
    let after: Vec<_> = made.nodes.iter().map(|n| json!(n.after)).collect();
    assert_eq!(json!(after), json!([[], ["N-001"], ["N-002"], ["N-003"], []]));
}

#[test]
fn shared_files_never_grow_a_giant_node() {
    // A chain of two-file findings: closing over shared files would merge all of them.
    let list: Vec<Value> = (0..2_000)
        .map(|i| json!({"title": format!("t{i}"), "affected_files": [format!("f{i}"), format!("f{}", i + 1)]}))
        .collect();
    let made = make(list.into()).unwrap();
    assert_eq!(made.nodes.len(), 2_000);
    assert!(made.nodes.iter().all(|n| n.after.len() <= 2));
}

#[test]
fn verify_comes_from_the_repository() {
    let ctx = checkout(&[
        "go.mod",
        "a.go",
        "py/setup.py",
        "py/a.py",
        "README.md",
        "x/Cargo.toml",
        "x/y/a.rs",
    ]);
    let list = json!([
        {"title": "1", "affected_files": ["a.go"]},
        {"title": "2", "affected_files": ["py/a.py"]},
        {"title": "3", "affected_files": ["README.md"]},
        {"title": "4", "affected_files": ["x/y/a.rs"]},
    ]);
    let made = plan(audit_findings(list.clone()), &ctx, &PlanPolicy::default()).unwrap();
    let commands: Vec<Vec<String>> =
        made.nodes.iter().map(|n| n.verify.iter().map(|c| c.argv.join(" ")).collect()).collect();
    assert_eq!(
        json!(commands),
        json!([
            ["go build ./...", "go vet ./..."],
            ["python3 -m compileall -q ./py"],
            [],
            ["cargo check --manifest-path ./x/Cargo.toml"]
        ])
    );
    assert!(made.nodes[2].verify_waived.is_some());

    let own = VerifyCommand { name: "own".into(), argv: vec!["make".into()], timeout_seconds: 5 };
    let policy = PlanPolicy {
        verify: vec![
            VerifyRule { paths: vec!["**/*.go".into()], commands: vec![own.clone()] },
            VerifyRule { paths: vec!["*.md".into()], commands: Vec::new() },
        ],
        ..PlanPolicy::default()
    };
    let made = plan(audit_findings(list), &ctx, &policy).unwrap();
    assert_eq!(made.nodes[0].verify, [own]);
    assert!(made.nodes[2].verify_waived.as_ref().is_some_and(|why| why.contains("rule")));
}

#[test]
fn ten_thousand_nodes_are_planned() {
    let list: Vec<Value> = (0..10_000)
        .map(|i| json!({"title": format!("t{i}"), "affected_files": [format!("d{}/f{i}.rs", i % 100)]}))
        .chain((0..100).map(|d| json!({"title": format!("folder {d}"), "affected_files": [format!("d{d}")]})))
        .collect();
    let files: Vec<String> = (0..10_000).map(|i| format!("d{}/f{i}.rs", i % 100)).collect();
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let made =
        plan(audit_findings(list.into()), &checkout(&files), &PlanPolicy::default()).unwrap();
    assert_eq!(made.nodes.len(), 10_100);
    assert_eq!(made.nodes[10_099].after.len(), 100);
}
