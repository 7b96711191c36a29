//! One small attempt in a worktree of its own, for the tests of workers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use overhaul::backends::Attempt;
use overhaul::backends::gateway::{Open, Upstream};
use overhaul::backends::openai::OpenAiSettings;
use overhaul::backends::scripted::Scripted;
use overhaul::model::{
    AttemptNumber, Finding, FindingId, Limits, MeterKey, Node, NodeId, Place, Pool, PoolId,
    Provider, RepoPath, RunId, ScopeEntry, Severity, Tier, VerifyCommand,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

/// The file that the findings are in.
pub const SOURCE: &str = "def f(x):\n    if x == None:\n        return 1\n    return x   \n";

/// A worktree with `src/a.py`, a private home, and the attempt on it.
pub struct Bench {
    pub tree: TempDir,
    #[expect(dead_code, reason = "kept until the attempt is over")]
    home: TempDir,
    pub attempt: Attempt,
}

impl Bench {
    pub fn new() -> Self {
        let tree = tempfile::tempdir().unwrap();
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("src")).unwrap();
        std::fs::write(tree.path().join("src/a.py"), SOURCE).unwrap();
        std::fs::write(tree.path().join("README.md"), "# sample\n").unwrap();
        let attempt = attempt(tree.path(), home.path());
        Self { tree, home, attempt }
    }

    pub fn text(&self, path: &str) -> String {
        std::fs::read_to_string(self.tree.path().join(path)).unwrap()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.tree.path().join(path).exists()
    }
}

/// How the tool loop reaches a scripted endpoint.
pub fn settings(server: &Scripted, key: Option<&str>, backend: &str) -> OpenAiSettings {
    let address = server.base_url().unwrap();
    OpenAiSettings::new(Upstream::new(address, key.map(Into::into), backend).unwrap())
}

fn finding(id: &str, rule: &str, line: u32) -> Finding {
    Finding {
        id: FindingId::new(id).unwrap(),
        source_id: None,
        source: "ruff".to_owned(),
        rule: Some(rule.to_owned()),
        title: format!("{rule} in line {line}"),
        detail: String::new(),
        severity: Severity::Medium,
        level: None,
        places: vec![Place {
            path: RepoPath::new("src/a.py").unwrap(),
            line: Some(line),
            end_line: Some(line),
            snippet: None,
            symbol: None,
        }],
        suppressed: false,
        evidence: Vec::new(),
        fingerprint: "f".to_owned(),
        dropped: None,
        extra: serde_json::Map::new(),
    }
}

fn attempt(tree: &Path, home: &Path) -> Attempt {
    let findings = vec![finding("F-1", "E711", 2), finding("F-2", "W291", 4)];
    Attempt {
        run: RunId::new("r-1").unwrap(),
        node: Node {
            id: NodeId::new("N-001").unwrap(),
            title: "Tidy src/a.py".to_owned(),
            findings: findings.iter().map(|f| f.id.clone()).collect(),
            writes: vec![ScopeEntry::Folder(RepoPath::new("src").unwrap())],
            creates: Vec::new(),
            depends_on: Vec::new(),
            after: Vec::new(),
            verify: vec![VerifyCommand {
                name: "check".to_owned(),
                argv: vec!["grep".to_owned(), "is None".to_owned(), "src/a.py".to_owned()],
                timeout_seconds: 20,
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
            model: "scripted/fixer".to_owned(),
            meter: MeterKey { backend: "scripted".to_owned(), account: "local".to_owned() },
            tier: None,
            context_tokens: 32_000,
            output_tokens: 4_096,
            limits: Limits::default(),
            cost_per_mtok: Some(2.0),
            input_scale: 1.0,
        },
        workdir: tree.to_path_buf(),
        home: home.to_path_buf(),
        previous_failure: None,
        repair: None,
        deadline: Duration::from_secs(60),
        token_budget: 1_000_000,
        request_budget: 40,
        money_budget: None,
        admission: Arc::new(Open),
        cancel: CancellationToken::new(),
    }
}
