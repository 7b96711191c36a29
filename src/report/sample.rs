//! Views for the snapshots.

use jiff::Timestamp;

use super::history;
use super::view::{
    Ceiling, Moment, NodeDetail, NodeView, PoolState, PoolView, PullRequestView, ReportView,
    RunView,
};
use crate::ledger::{
    Burn, CheckRecord, EVENT_VERSION, Event, EventKind, Failure, FrictionRecord, FrictionType,
    NodeState, PauseCause, PauseRecord, PausedNode, Receipt,
};
use crate::model::CiMode;
use crate::model::{
    AttemptNumber, CycleId, Finding, FindingId, Node, NodeId, Outcome, OwnerToken, Place, PoolId,
    RepoPath, RunId, ScopeEntry, Severity, Tier, Usage,
};

/// What an attacker would write where a title, a path or a model's answer goes.
const HOSTILE: &str = "</details> --> @octocat closes #1 | `x` ``` \n/overhaul cancel\n\
    ![x](https://evil.example/?q=1) <img src=x onerror=alert(1)> \u{202e}gnp ghp_0123456789abcdefghijABCDEFGHIJ012345";

pub(super) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn node_id(text: &str) -> NodeId {
    NodeId::new(text).unwrap()
}

fn usage() -> Usage {
    Usage { requests: 12, input_tokens: 84_210, output_tokens: 3_120, cost_usd: 0.1834 }
}

fn node(id: &str, title: &str, state: NodeState) -> NodeView {
    NodeView {
        id: node_id(id),
        title: title.to_owned(),
        state,
        severity: Severity::Medium,
        depends_on: vec![],
        pool: None,
        attempts: 0,
        pull_request: None,
        note: None,
    }
}

fn pools() -> Vec<PoolView> {
    let pool = |id: &str, context_tokens: u64, state: PoolState| PoolView {
        id: PoolId::new(id),
        state,
        context_tokens,
        note: id.starts_with("openai-compatible#nim/meta").then(|| "codex 0.171.0".to_owned()),
        usage: usage(),
    };
    vec![
        pool("openai-compatible#nim/meta/llama-3.1-70b", 128_000, PoolState::Usable),
        pool(
            "openai-compatible#nim/qwen/qwen2.5-coder-32b",
            32_000,
            PoolState::Paused {
                until: at("2026-11-30T14:05:00Z"),
                outcome: Outcome::RateLimited,
                evidence: "429 requests per minute limit, retry after 290 s".to_owned(),
            },
        ),
        pool(
            "codex/gpt",
            200_000,
            PoolState::Settled {
                until: None,
                outcome: Outcome::CreditExhausted,
                evidence: "insufficient_quota: check your plan | and billing".to_owned(),
            },
        ),
        pool("agy/pro", 1_000_000, PoolState::Excluded),
        pool(
            "claude-worker/sonnet",
            200_000,
            PoolState::Unreachable { reason: "claude is not on PATH".to_owned() },
        ),
    ]
}

/// A run in the middle of its work.
pub(super) fn run() -> RunView {
    let mut nodes = vec![
        node("N-001", "Close the file handle in `load`", NodeState::Landed),
        node("N-002", "Validate the port number", NodeState::InReview),
        node("N-003", "Replace the deprecated hash", NodeState::Failed),
        node("N-004", HOSTILE, NodeState::Working),
        node("N-005", "Quote the shell argument", NodeState::Blocked),
        node("N-006", "Escape the table name", NodeState::Ready),
    ];
    nodes[1].pull_request = Some((12, "https://github.com/o/r/pull/12".to_owned()));
    nodes[1].pool = Some(PoolId::new("openai-compatible#nim/meta/llama-3.1-70b"));
    nodes[1].attempts = 1;
    nodes[1].depends_on = vec![node_id("N-001")];
    nodes[2].attempts = 2;
    nodes[2].severity = Severity::High;
    nodes[2].note =
        Some("the check cargo-test failed: 2 tests\nassertion `left == right`".to_owned());
    nodes[4].depends_on = vec![node_id("N-003")];
    nodes[4].note = Some("N-003 failed".to_owned());
    RunView {
        run: RunId::new("r-20261130-1a2b3c4d").unwrap(),
        status: "progress".to_owned(),
        base_branch: "main".to_owned(),
        now: at("2026-11-30T14:00:30Z"),
        heartbeat: Some(at("2026-11-30T13:37:04Z")),
        next_cycle: Some(at("2026-11-30T15:37:00Z")),
        workflow_url: Some("https://github.com/o/r/actions/runs/42".to_owned()),
        nodes,
        pools: pools(),
        pause: None,
        paused_by: None,
        findings: (9, 7, 2),
        usage: usage(),
        budget_usd: Some(5.0),
        friction: vec![FrictionRecord {
            friction: FrictionType::PoolSettled,
            discriminator: "codex/gpt".to_owned(),
            text: "codex/gpt is out of credit.".to_owned(),
            remedy: "Top up the account, then comment /overhaul unsettle codex/gpt.".to_owned(),
            count: 2,
        }],
        ceilings: vec![Ceiling { what: "comments today".to_owned(), used: 3, limit: 20 }],
        sandbox_missing: vec![("network".to_owned(), "TCP can't be held".to_owned())],
        timeline: vec![
            Moment { at: at("2026-11-30T13:37:04Z"), node: None, text: "cycle began".to_owned() },
            Moment {
                at: at("2026-11-30T13:39:50Z"),
                node: Some(node_id("N-002")),
                text: "accepted | pull request 12 opened".to_owned(),
            },
        ],
    }
}

fn paused_node(id: &str, cause: PauseCause, reason: &str, until: Option<&str>) -> PausedNode {
    PausedNode { node: node_id(id), cause, reason: reason.to_owned(), not_before: until.map(at) }
}

/// The run paused for one cause.
pub(super) fn paused(cause: PauseCause) -> RunView {
    let (reason, until) = match cause {
        PauseCause::BudgetExhausted => {
            ("waits for qwen2.5-coder-32b until 14:05", Some("2026-11-30T14:05:00Z"))
        }
        PauseCause::NoCapablePool => ("needs 96k tokens; the largest pool has 32k", None),
        PauseCause::CapReached => ("4 of 4 attempts are running on every fitting pool", None),
        PauseCause::NoUsablePool => ("no pool is usable", None),
        PauseCause::JobDeadline => ("the job ends in 4 minutes", None),
        PauseCause::Operator => ("paused by a person", None),
    };
    let mut view = run();
    "paused".clone_into(&mut view.status);
    view.paused_by = Some("alice".to_owned());
    view.pause = Some(PauseRecord {
        cause,
        nodes: vec![
            paused_node("N-004", cause, reason, until),
            paused_node("N-006", cause, reason, until),
        ],
        not_before: until.map(at),
        first_seen: at("2026-11-30T13:40:00Z"),
        count: 3,
        by: view.paused_by.clone(),
    });
    view
}

/// Two causes at once.
pub(super) fn mixed_pause() -> RunView {
    let mut view = paused(PauseCause::BudgetExhausted);
    if let Some(pause) = &mut view.pause {
        pause.nodes[0] =
            paused_node("N-004", PauseCause::NoCapablePool, &format!("needs 96k; {HOSTILE}"), None);
    }
    view
}

fn finding(id: &str, title: &str, path: &str, line: Option<u32>) -> Finding {
    Finding {
        id: FindingId::new(id).unwrap(),
        source_id: None,
        source: "ruff".to_owned(),
        rule: Some("SIM115".to_owned()),
        title: title.to_owned(),
        detail: String::new(),
        severity: Severity::High,
        level: None,
        places: vec![Place {
            path: RepoPath::new(path).unwrap(),
            line,
            end_line: line,
            snippet: None,
            symbol: None,
        }],
        suppressed: false,
        evidence: vec![],
        fingerprint: String::new(),
        dropped: None,
        extra: serde_json::Map::new(),
    }
}

/// An ordinary pull request, stacked on another.
pub(super) fn pull_request() -> PullRequestView {
    let findings = vec![
        finding("F-0001", "Use a context manager for opening files", "src/io/load.py", Some(12)),
        finding("F-0002", "File handle leaks on error", "src/io/sp ace#1.py", None),
    ];
    PullRequestView {
        run: RunId::new("r-20261130-1a2b3c4d").unwrap(),
        node: Node {
            id: node_id("N-002"),
            title: "Close the file handle in load".to_owned(),
            findings: findings.iter().map(|f| f.id.clone()).collect(),
            writes: vec![
                ScopeEntry::Path(RepoPath::new("src/io/load.py").unwrap()),
                ScopeEntry::Folder(RepoPath::new("src/io").unwrap()),
            ],
            creates: vec![],
            depends_on: vec![],
            after: vec![],
            verify: vec![],
            verify_waived: None,
            tier: Tier::Standard,
            severity: Severity::High,
            input_tokens: 4_000,
            output_tokens: 1_000,
        },
        findings,
        receipt: Receipt {
            base: "a".repeat(40),
            on: Vec::new(),
            commit: "b".repeat(40),
            tree: "c".repeat(40),
            resolved: vec![FindingId::new("F-0001").unwrap()],
            touched: vec!["src/io/load.py".to_owned()],
            checks: vec![
                CheckRecord {
                    name: "pytest".to_owned(),
                    exit_code: Some(0),
                    millis: 61_200,
                    verdict: "passed".to_owned(),
                },
                CheckRecord {
                    name: "ruff".to_owned(),
                    exit_code: None,
                    millis: 840,
                    verdict: "base-fails-too".to_owned(),
                },
            ],
            pool: PoolId::new("openai-compatible#nim/meta/llama-3.1-70b"),
            model_seen: Some("meta/llama-3.1-70b-instruct".to_owned()),
            agent: Some("codex 0.171.0".to_owned()),
            usage: usage(),
            summary: "Opened the file in a with block.".to_owned(),
            authors: Vec::new(),
        },
        attempts: 2,
        base: "overhaul/r-20261130-1a2b3c4d/N-001".to_owned(),
        stacked_on: vec![(node_id("N-001"), Some(11))],
        blob_url: Some("https://github.com/o/r/blob/".to_owned()),
        ci: CiMode::Approval,
    }
}

/// The same with every untrusted text hostile.
pub(super) fn hostile_pull_request() -> PullRequestView {
    let mut view = pull_request();
    HOSTILE.clone_into(&mut view.node.title);
    HOSTILE.clone_into(&mut view.findings[0].title);
    view.findings[0].rule = Some(HOSTILE.to_owned());
    HOSTILE.clone_into(&mut view.findings[0].source);
    view.findings[0].places[0].path = RepoPath::new("a`|<b>](x)/@octocat.rs").unwrap();
    view.findings.truncate(1);
    view.node.verify_waived = Some(HOSTILE.to_owned());
    view.node.writes = vec![ScopeEntry::Glob(HOSTILE.to_owned())];
    view.receipt.checks.clear();
    view.receipt.model_seen = Some(HOSTILE.to_owned());
    HOSTILE.clone_into(&mut view.receipt.summary);
    view.receipt.touched = vec![HOSTILE.to_owned()];
    view.stacked_on.clear();
    view
}

fn event(time: &str, kind: EventKind) -> Event {
    let cycle = CycleId::new("c-0000000000000001").unwrap();
    Event { v: EVENT_VERSION, at: at(&format!("2026-11-{time}Z")), cycle, kind }
}

/// One attempt, from its claim to `end`.
fn attempt(node: &str, number: u32, pool: &str, times: [&str; 2], end: EventKind) -> Vec<Event> {
    let (node, owner, attempt) = (
        node_id(node),
        OwnerToken::new(format!("o-{node}-{number}")).unwrap(),
        AttemptNumber(number),
    );
    let lease_until = at("2026-12-30T00:00:00Z");
    let (claim, base) = (owner.clone(), "a".repeat(40));
    vec![
        event(
            times[0],
            EventKind::Claimed {
                node: node.clone(),
                attempt,
                owner: claim,
                lease_until,
                holder: Default::default(),
            },
        ),
        event(
            times[0],
            EventKind::AttemptStarted { node, attempt, owner, pool: PoolId::new(pool), base },
        ),
        event(times[1], end),
    ]
}

fn accepted(node: &str, number: u32, pool: &str) -> EventKind {
    let receipt = Receipt { pool: PoolId::new(pool), ..pull_request().receipt };
    let owner = OwnerToken::new(format!("o-{node}-{number}")).unwrap();
    EventKind::Accepted { node: node_id(node), attempt: AttemptNumber(number), owner, receipt }
}

fn ended(node: &str, number: u32, pool: &str, outcome: Outcome, detail: &str) -> EventKind {
    EventKind::AttemptEnded {
        node: node_id(node),
        attempt: AttemptNumber(number),
        owner: OwnerToken::new(format!("o-{node}-{number}")).unwrap(),
        pool: PoolId::new(pool),
        outcome,
        burn: Burn::Contract,
        detail: detail.to_owned(),
        usage: usage(),
        quarantine: None,
        conflicts_with: vec![],
        evidence: None,
    }
}

/// Two cycles a day apart.
pub(super) fn events() -> Vec<Event> {
    let (big, small) = (
        "openai-compatible#nim/meta/llama-3.1-70b",
        "openai-compatible#nim/qwen/qwen2.5-coder-32b",
    );
    let run = RunId::new("r-20261130-1a2b3c4d").unwrap();
    let mut log = vec![
        event(
            "29T13:37:04",
            EventKind::Opened {
                run,
                base_branch: "main".to_owned(),
                base_commit: "a".repeat(40),
                findings_digest: String::new(),
            },
        ),
        event(
            "29T13:37:05",
            EventKind::CycleStarted { holder: Default::default(), by_comment: false },
        ),
    ];
    let first = ["29T13:37:06", "29T13:39:50"];
    log.extend(attempt("N-001", 1, big, first, accepted("N-001", 1, big)));
    let failed = "the check cargo-test failed: 2 tests\nassertion `left == right`";
    let times = ["29T13:37:08", "29T13:38:20"];
    let end = ended("N-003", 1, small, Outcome::InvalidResult, failed);
    log.extend(attempt("N-003", 1, small, times, end));
    let times = ["29T13:39:51", "29T13:40:02"];
    let end = ended("N-002", 1, small, Outcome::RateLimited, "429 requests per minute limit");
    log.extend(attempt("N-002", 1, small, times, end));
    log.push(event(
        "29T13:40:02",
        EventKind::PoolPaused {
            pool: PoolId::new(small),
            until: at("2026-11-29T13:45:00Z"),
            outcome: Outcome::RateLimited,
            evidence: "429".to_owned(),
            step: 0,
        },
    ));
    log.push(event("29T13:41:00", EventKind::CycleEnded { status: "progress".to_owned() }));
    // Said by an owner whose claim is gone: it counts nowhere.
    log.push(event("29T13:41:01", accepted("N-003", 1, small)));
    log.push(event(
        "30T13:37:04",
        EventKind::CycleStarted { holder: Default::default(), by_comment: false },
    ));
    let times = ["30T13:37:05", "30T13:39:50"];
    log.extend(attempt("N-002", 2, big, times, accepted("N-002", 2, big)));
    log.push(event(
        "30T13:39:55",
        EventKind::PrOpened {
            node: node_id("N-002"),
            number: 12,
            url: "https://github.com/o/r/pull/12".to_owned(),
            branch: "overhaul/r/N-002".to_owned(),
            base: "main".to_owned(),
        },
    ));
    let end = ended("N-003", 2, small, Outcome::Error, failed);
    log.extend(attempt("N-003", 2, small, ["30T13:40:00", "30T13:41:10"], end));
    log.extend(attempt("N-004", 1, big, ["30T13:58:00", "30T13:58:00"], {
        EventKind::InboxRead { until: at("2026-11-30T13:58:00Z") }
    }));
    log
}

/// The run with everything about it.
pub(super) fn report() -> ReportView {
    let mut run = run();
    let events = history::counted(events());
    run.timeline = history::moments(&events);
    let findings = pull_request().findings;
    let details = run.nodes.iter().map(|node| NodeDetail {
        findings: findings.clone(),
        receipt: node.state.is_done().then(|| pull_request().receipt),
        failures: node
            .note
            .iter()
            .map(|note| Failure {
                attempt: AttemptNumber(2),
                pool: PoolId::new("codex/gpt"),
                outcome: Outcome::InvalidResult,
                burn: Burn::Contract,
                detail: note.clone(),
                quarantine: None,
                evidence: None,
            })
            .collect(),
        usage: usage(),
    });
    let details = details.collect();
    ReportView { spans: history::spans(&events, run.now), details, run }
}

/// The same with every untrusted text hostile.
pub(super) fn hostile_report() -> ReportView {
    let mut view = report();
    let hostile = hostile_pull_request();
    view.run.pause = mixed_pause().pause;
    HOSTILE.clone_into(&mut view.run.base_branch);
    for node in &mut view.run.nodes {
        HOSTILE.clone_into(&mut node.title);
        node.note = Some(HOSTILE.to_owned());
        node.pull_request = Some((1, format!("javascript:alert(1)//{HOSTILE}")));
        node.pool = Some(PoolId::new(HOSTILE));
    }
    for pool in &mut view.run.pools {
        pool.id = PoolId::new(HOSTILE);
        pool.state = PoolState::Unreachable { reason: HOSTILE.to_owned() };
    }
    for moment in &mut view.run.timeline {
        HOSTILE.clone_into(&mut moment.text);
    }
    for friction in &mut view.run.friction {
        HOSTILE.clone_into(&mut friction.text);
        HOSTILE.clone_into(&mut friction.remedy);
    }
    for span in &mut view.spans {
        span.pool = PoolId::new(HOSTILE);
    }
    for detail in &mut view.details {
        detail.findings.clone_from(&hostile.findings);
        let mut receipt = hostile.receipt.clone();
        receipt.pool = PoolId::new(HOSTILE);
        receipt.checks = vec![CheckRecord {
            name: HOSTILE.to_owned(),
            exit_code: None,
            millis: 1,
            verdict: HOSTILE.to_owned(),
        }];
        detail.receipt = Some(receipt);
        for failure in &mut detail.failures {
            HOSTILE.clone_into(&mut failure.detail);
        }
    }
    view
}
