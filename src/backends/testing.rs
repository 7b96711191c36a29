//! One small attempt for the unit tests of the backends.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Attempt;
use super::gateway::Open;
use crate::model::{
    AttemptNumber, Finding, FindingId, Limits, MeterKey, Node, NodeId, Place, Pool, PoolId,
    Provider, RepoPath, RunId, ScopeEntry, Severity, Tier, VerifyCommand,
};

fn finding(id: &str, path: &str) -> Finding {
    Finding {
        id: FindingId::new(id).unwrap(),
        source_id: None,
        source: "ruff".to_owned(),
        rule: Some("E711".to_owned()),
        title: "Comparison to `None`".to_owned(),
        detail: "Use `is None` instead of `== None`.".to_owned(),
        severity: Severity::Medium,
        level: None,
        places: vec![Place {
            path: RepoPath::new(path).unwrap(),
            line: Some(3),
            end_line: Some(3),
            snippet: Some("if x == None:".to_owned()),
            symbol: Some("main".to_owned()),
        }],
        suppressed: false,
        evidence: vec!["seen at import".to_owned()],
        fingerprint: "f".to_owned(),
        dropped: None,
        extra: serde_json::Map::new(),
    }
}

/// Two findings in `src/a.py` and `src/b.py`; scope: the first file and the folder `docs`.
pub(crate) fn attempt(
    workdir: impl Into<std::path::PathBuf>,
    home: impl Into<std::path::PathBuf>,
) -> Attempt {
    let findings = vec![finding("F-1", "src/a.py"), finding("F-2", "src/b.py")];
    Attempt {
        run: RunId::new("r-1").unwrap(),
        node: Node {
            id: NodeId::new("N-001").unwrap(),
            title: "Compare with None by identity".to_owned(),
            findings: findings.iter().map(|f| f.id.clone()).collect(),
            writes: vec![
                ScopeEntry::Path(RepoPath::new("src/a.py").unwrap()),
                ScopeEntry::Folder(RepoPath::new("docs").unwrap()),
                ScopeEntry::Glob("tests/*.py".to_owned()),
            ],
            creates: vec![RepoPath::new("docs/notes.md").unwrap()],
            depends_on: Vec::new(),
            after: Vec::new(),
            verify: vec![VerifyCommand {
                name: "test".to_owned(),
                argv: vec!["python3".to_owned(), "-m".to_owned(), "pytest".to_owned()],
                timeout_seconds: 60,
            }],
            verify_waived: None,
            tier: Tier::Small,
            severity: Severity::Medium,
            input_tokens: 1_000,
            output_tokens: 500,
        },
        findings,
        number: AttemptNumber(1),
        base: "0".repeat(40),
        pool: Pool {
            id: PoolId::new("scripted/fixer"),
            provider: Provider::OpenaiCompatible,
            model: "fixer".to_owned(),
            meter: MeterKey { backend: "scripted".to_owned(), account: "local".to_owned() },
            tier: None,
            context_tokens: 32_000,
            output_tokens: 4_096,
            limits: Limits::default(),
            cost_per_mtok: Some(0.0),
            input_scale: 1.0,
        },
        workdir: workdir.into(),
        home: home.into(),
        previous_failure: None,
        repair: None,
        deadline: Duration::from_secs(30),
        token_budget: 200_000,
        request_budget: 30,
        money_budget: None,
        admission: Arc::new(Open),
        cancel: CancellationToken::new(),
    }
}
