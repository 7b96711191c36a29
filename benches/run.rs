//! What a run costs besides its work: folding its log, planning its findings, an idle cycle.
//! `cargo bench --bench run` prints a table; nothing is asserted.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a program for people")]

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use overhaul::ledger::{Burn, Event, EventKind, Holder, fold};
use overhaul::model::{AttemptNumber, CycleId, NodeId, Outcome, OwnerToken, PoolId, Usage};

fn main() {
    println!("{:<44} {:>12} {:>14}", "what", "time", "beside");
    folding();
    planning();
    idle();
}

fn row(what: &str, time: Duration, beside: &str) {
    println!("{what:<44} {:>9.1} ms {beside:>14}", time.as_secs_f64() * 1e3);
}

/// The best of five.
fn best(mut work: impl FnMut()) -> Duration {
    (0..5)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .min()
        .unwrap()
}

fn folding() {
    let mut lines = String::new();
    for n in 0..25_000u32 {
        let node = NodeId::new(format!("N-{:05}", n % 2_000)).unwrap();
        let attempt = AttemptNumber(n / 2_000 + 1);
        let owner = OwnerToken::new(format!("o{n}")).unwrap();
        let pool = PoolId::new("p");
        let kinds = [
            EventKind::Claimed {
                node: node.clone(),
                attempt,
                owner: owner.clone(),
                lease_until: jiff::Timestamp::UNIX_EPOCH,
                holder: Holder::default(),
            },
            EventKind::AttemptStarted {
                node: node.clone(),
                attempt,
                owner: owner.clone(),
                pool: pool.clone(),
                base: "0123456789012345678901234567890123456789".into(),
                expected: Default::default(),
            },
            EventKind::LeaseRenewed {
                node: node.clone(),
                owner: owner.clone(),
                lease_until: jiff::Timestamp::UNIX_EPOCH,
            },
            EventKind::AttemptEnded {
                node,
                attempt,
                owner,
                pool,
                outcome: Outcome::InvalidResult,
                burn: Burn::Contract,
                detail: "the check failed".into(),
                usage: Usage::default(),
                evidence: None,
                quarantine: None,
                conflicts_with: vec![],
            },
        ];
        for kind in kinds {
            let at = jiff::Timestamp::UNIX_EPOCH;
            let event = Event { v: 1, at, cycle: CycleId::new("c").unwrap(), kind };
            lines.push_str(&serde_json::to_string(&event).unwrap());
            lines.push('\n');
        }
    }
    let megabytes = lines.len() >> 20;
    let parse = || lines.lines().map(|l| serde_json::from_str::<Event>(l).unwrap());
    let events: Vec<Event> = parse().collect();
    let time = best(|| {
        black_box(fold(&events));
    });
    row("fold 100 000 events", time, "aim 1 000 ms");
    let time = best(|| {
        let events: Vec<Event> = parse().collect();
        black_box(fold(&events));
    });
    row("parse and fold 100 000 events", time, &format!("{megabytes} MB"));
}

fn planning() {
    let dir = tempfile::tempdir().unwrap();
    let findings: Vec<serde_json::Value> = (0..3_000)
        .map(|n| {
            serde_json::json!({
                "id": format!("COR-{n:04x}"),
                "title": format!("Finding {n} about a thing that is wrong somewhere"),
                "severity": (["low", "medium", "high"][n % 3]),
                "category": "correctness",
                "summary": "A neutral sentence about what is wrong here. ".repeat(8),
                "affected_files": [
                    {"path": format!("src/m{}/file_{}.rs", n % 40, n % 900), "line_start": n % 500 + 1},
                    {"path": format!("src/m{}/other_{}.rs", n % 40, n % 700), "line_start": 1},
                ],
                "evidence": [format!("src/m{}/file_{}.rs:{} - a fact. {}", n % 40, n % 900, n, "More of it. ".repeat(24))],
            })
        })
        .collect();
    let report = serde_json::json!({
        "contract_version": "audit-tools/audit-findings/v1",
        "findings": findings,
    });
    let file = dir.path().join("findings.json");
    let text = report.to_string();
    std::fs::write(&file, &text).unwrap();
    let read = best(|| {
        let bytes = std::fs::read(&file).unwrap();
        black_box(serde_json::from_slice::<serde_json::Value>(&bytes).unwrap());
    });
    let time = best(|| {
        let done = Command::new(env!("CARGO_BIN_EXE_overhaul"))
            .args(["plan", "--json", "--root"])
            .arg(dir.path())
            .arg("--findings")
            .arg(&file)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    });
    let beside = format!("parse {:.0} ms", read.as_secs_f64() * 1e3);
    row(
        &format!("plan 3 000 findings ({:.1} MB), process", text.len() as f64 / 1e6),
        time,
        &beside,
    );
}

fn idle() {
    let dir = tempfile::tempdir().unwrap();
    let demo = |dir: &std::path::Path| {
        let done = Command::new(env!("CARGO_BIN_EXE_overhaul"))
            .arg("demo")
            .arg("--dir")
            .arg(dir)
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    demo(dir.path());
    let version = best(|| {
        Command::new(env!("CARGO_BIN_EXE_overhaul")).arg("--version").output().unwrap();
    });
    let time = best(|| demo(dir.path()));
    let beside = format!("start {:.1} ms", version.as_secs_f64() * 1e3);
    row("cycle with nothing to do (demo, branch store)", time, &beside);
}
