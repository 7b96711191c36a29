//! `next-step`: one cycle.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::run_options::{RunArgs, duration};
use super::{Failure, print};
use crate::cycle::{CycleError, CycleReport, Given, next_step};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub run: RunArgs,
    /// Findings files; they replace the configured sources.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub findings: Vec<PathBuf>,
    /// What to do, in one sentence.
    #[arg(long, value_name = "TEXT")]
    pub intent: Option<String>,
    /// Where the tool that made the findings had its checkout.
    #[arg(long, value_name = "PATH")]
    pub source_root: Option<String>,
    /// How long to work, e.g. 50m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_budget: Option<Duration>,
    /// Go on although a pause says to wait.
    #[arg(long)]
    pub resume: bool,
}

pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let given = Given {
        files: args.findings,
        intent: args.intent,
        source_root: args.source_root,
        fetched: Vec::new(),
    };
    let options = args.run.options(given, args.time_budget, args.resume)?;
    let report = next_step(options, stop_signal()).await.map_err(failure)?;
    print(&render(&report, args.run.json)?)
}

/// A token that fires on SIGINT and SIGTERM: the runner sends both, 7.5 s apart, before it kills.
pub(super) fn stop_signal() -> CancellationToken {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let fire = token.clone();
    tokio::spawn(async move {
        let (Ok(mut interrupt), Ok(mut terminate)) =
            (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::warn!("stopping: attempts are stopped and the state is written");
        fire.cancel();
    });
    token
}

/// What a person reads of a cycle's failure.
pub(super) fn failure(error: CycleError) -> Failure {
    match error {
        CycleError::Input { what, remedy } => Failure::usage(what).remedy(remedy),
        CycleError::Forge(crate::forge::ForgeError::Forbidden { action, message, remedy }) => {
            Failure::refused(format!("not permitted to {action}")).because(message).remedy(remedy)
        }
        CycleError::Journal(crate::cycle::JournalError::Newer(_)) => {
            Failure::refused(error.to_string())
                .remedy("update overhaul to the version that wrote it")
        }
        other => Failure::failed("the cycle could not go on").because(other),
    }
}

/// The report as text or JSON.
pub(super) fn render(report: &CycleReport, json: bool) -> Result<String, Failure> {
    if json {
        return serde_json::to_string_pretty(report)
            .map(|text| text + "\n")
            .map_err(|e| Failure::failed("the report can't be written").because(e));
    }
    let mut text = String::new();
    let status = serde_json::to_value(report.status).ok();
    let status = status.as_ref().and_then(|v| v.as_str()).unwrap_or("unknown");
    let _ = writeln!(text, "{status}: {}", report.message);
    if let Some(run) = &report.run_id {
        let nodes: Vec<String> = report
            .nodes
            .iter()
            .map(|(state, n)| format!("{n} {}", state.replace('_', " ")))
            .collect();
        let _ = writeln!(text, "run {run}: {}", nodes.join(", "));
    }
    for url in &report.pull_requests {
        let _ = writeln!(text, "  pull request {url}");
    }
    if let Some(at) = report.not_before {
        let _ = writeln!(text, "  not before {at}");
    }
    if let Some(pause) = &report.pause {
        for node in &pause.nodes {
            let _ = writeln!(text, "  {}: {}", node.node, node.reason);
        }
    }
    for pool in &report.pools_left_out {
        let _ = writeln!(text, "  pool left out: {pool}");
    }
    Ok(text)
}
