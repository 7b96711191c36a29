//! `next-step`: one cycle.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::run_options::{RunArgs, duration};
use super::{Failure, print};
use crate::actions::{ActionsError, Log, Runtime};
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
    /// Plan and look, but write nothing: no ledger, no branch, no pull request, no attempt.
    #[arg(long)]
    pub dry_run: bool,
}

pub(super) async fn run(mut args: Args) -> Result<(), Failure> {
    let runtime = Runtime::from_env(&|name| std::env::var(name).ok());
    if runtime.on_actions {
        from_inputs(&mut args, &runtime)?;
    }
    let given = Given {
        files: args.findings,
        intent: args.intent,
        source_root: args.source_root,
        fetched: Vec::new(),
    };
    let mut options = args.run.options(given, args.time_budget, args.resume).await?;
    options.dry_run = args.dry_run;
    let report = next_step(options, stop_signal()).await.map_err(failure)?;
    let text = render(&report, args.run.json)?;
    if !runtime.on_actions {
        return print(&text);
    }
    outputs(&runtime, &report)
        .map_err(|e| Failure::failed("the job's outputs can't be written").because(e))?;
    // Titles and reasons in it come from outside: the runner must read no command in them.
    let mut log = Log::new(std::io::stdout().lock(), true);
    log.untrusted(&text).map_err(|e| Failure::failed("cannot write to standard output").because(e))
}

/// Inputs of the action fill what the command line leaves open.
fn from_inputs(args: &mut Args, runtime: &Runtime) -> Result<(), Failure> {
    if let Some(workspace) = runtime.workspace.as_ref().filter(|_| args.run.repo.as_os_str() == ".")
    {
        args.run.repo.clone_from(workspace);
    }
    let repo = args.run.repo.clone();
    if args.run.config.is_none() {
        args.run.config = runtime.input("config").map(|path| repo.join(path));
    }
    if args.findings.is_empty() {
        let listed = runtime.input("findings").unwrap_or_default();
        args.findings = listed.split_whitespace().map(|path| repo.join(path)).collect();
    }
    if args.intent.is_none() {
        args.intent = runtime.input("intent").map(str::to_owned);
    }
    if args.run.run_id.is_none()
        && let Some(id) = runtime.input("run-id")
    {
        let id = id.parse().map_err(|e| Failure::usage("input run-id").because(e))?;
        args.run.run_id = Some(id);
    }
    if args.time_budget.is_none()
        && let Some(text) = runtime.input("time-budget")
    {
        let budget = duration(text).map_err(|e| Failure::usage("input time-budget").because(e))?;
        args.time_budget = Some(budget);
    }
    args.dry_run |= runtime.flag("dry-run").map_err(|text| {
        Failure::usage(format!("input dry-run: '{text}' is neither true nor false"))
    })?;
    match runtime.input("mode") {
        None | Some("cycle") => Ok(()),
        Some(other) => {
            Err(Failure::usage(format!("mode '{other}' is not supported by this version"))
                .remedy("use mode: cycle"))
        }
    }
}

/// Sets the action's outputs and appends the step summary.
fn outputs(runtime: &Runtime, report: &CycleReport) -> Result<(), ActionsError> {
    let word = |value: serde_json::Value| value.as_str().map(str::to_owned).unwrap_or_default();
    let json = |value: serde_json::Value| value.to_string();
    let status = serde_json::to_value(report.status).map(word).unwrap_or_default();
    runtime.set_output("status", &status)?;
    let at = report.not_before.map(|at| at.to_string()).unwrap_or_default();
    runtime.set_output("not-before", &at)?;
    let run = report.run_id.as_ref().map(ToString::to_string).unwrap_or_default();
    runtime.set_output("run-id", &run)?;
    runtime.set_output("pull-requests", &json(serde_json::json!(report.pull_requests)))?;
    runtime.set_output("nodes", &json(serde_json::json!(report.nodes)))?;
    if !report.summary.is_empty() {
        runtime.append_summary(&report.summary)?;
        if let Some(path) = &runtime.summary_file {
            runtime.set_output("summary-path", &path.to_string_lossy())?;
        }
    }
    Ok(())
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
        if !nodes.is_empty() {
            let _ = writeln!(text, "run {run}: {}", nodes.join(", "));
        }
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
    for failed in &report.failed {
        let why: String = failed.why.split_whitespace().collect::<Vec<_>>().join(" ");
        let why: String = why.chars().take(300).collect();
        let _ =
            writeln!(text, "  {} failed after {} attempts: {why}", failed.node, failed.attempts);
    }
    for pool in &report.pools_left_out {
        let _ = writeln!(text, "  pool left out: {pool}");
    }
    Ok(text)
}
