//! `next-step`: one cycle.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::run_options::{RunArgs, duration};
use super::{Failure, merge_results, print};
use crate::actions::{ActionsError, Annotation, Level, Log, Runtime};
use crate::cycle::{
    CycleError, CycleReport, Given, GrantOptions, Options, Status, TakeInOptions, grant, next_step,
};
use crate::ledger::{PauseCause, PauseRecord};
use crate::report::pause_remedies;

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
    /// Write the findings that the base branch still has to this file, as SARIF for an upload to
    /// code scanning. A cycle that finds nothing to look at writes nothing.
    #[arg(long, value_name = "FILE")]
    pub sarif: Option<PathBuf>,
    /// Plan and look, but write nothing: no ledger, no branch, no pull request, no attempt.
    #[arg(long)]
    pub dry_run: bool,
}

pub(super) async fn run(mut args: Args) -> Result<(), Failure> {
    let runtime = Runtime::from_env(&|name| std::env::var(name).ok());
    if runtime.on_actions {
        from_inputs(&mut args, &runtime)?;
        let wakeup = runtime.wakeup();
        if wakeup.from_fork {
            return leave_fork_alone(&runtime, wakeup.trouble.as_deref());
        }
    }
    let json = args.run.json;
    let sarif = args.sarif.clone();
    let mode = if runtime.on_actions { runtime.input("mode") } else { None };
    let report = match mode {
        None | Some("cycle") => next_step(options(args).await?, stop_signal()).await,
        Some("grant") => {
            let prompts = runtime.input("prompts").map(|path| args.run.repo.join(path));
            let how = GrantOptions { prompts, ..GrantOptions::default() };
            grant(options(args).await?, how, stop_signal()).await
        }
        Some("land") if sarif.is_some() => {
            return Err(Failure::usage("mode: land writes no SARIF")
                .remedy("take the input `sarif` away; the next cycle writes it"));
        }
        Some("land") => {
            let bundles = runtime.input("bundles").ok_or_else(|| {
                Failure::usage("mode: land needs the folder of the results")
                    .remedy("set the input `bundles`")
            })?;
            let grant = runtime.input("grant").map(str::parse).transpose();
            let grant = grant.map_err(|e| Failure::usage("input grant").because(e))?;
            let how = TakeInOptions { bundles: args.run.repo.join(bundles), grant };
            return merge_results::take_in(options(args).await?, how, json).await;
        }
        Some(other) => {
            return Err(Failure::usage(format!("mode '{other}' is not known"))
                .remedy("use mode: cycle, grant or land"));
        }
    };
    let report = report.map_err(failure)?;
    if let Some(path) = sarif.filter(|_| !report.remaining.is_empty()) {
        std::fs::write(&path, &report.remaining).map_err(|e| {
            Failure::failed(format!("{} can't be written", path.display())).because(e)
        })?;
    }
    show(&runtime, &report, json)
}

/// What the arguments come to.
pub(super) async fn options(args: Args) -> Result<Options, Failure> {
    let given = Given { files: args.findings, intent: args.intent, source_root: args.source_root };
    let mut options = args.run.options(given, args.time_budget, args.resume).await?;
    options.dry_run = args.dry_run;
    Ok(options)
}

/// Shows the report to people, and on Actions to the jobs that come after.
pub(super) fn show(runtime: &Runtime, report: &CycleReport, json: bool) -> Result<(), Failure> {
    if !runtime.on_actions {
        print(&render(report, json)?)?;
        return outcome(report);
    }
    // What was handed out holds keys: it is an output for the next job and never a line of the log.
    let text = render(report, json && report.grant.is_none())?;
    outputs(runtime, report)
        .map_err(|e| Failure::failed("the job's outputs can't be written").because(e))?;
    // Titles and reasons in it come from outside: the runner must read no command in them.
    let mut log = Log::new(std::io::stdout().lock(), true);
    log.untrusted(&text)
        .and_then(|()| annotate(&mut log, report))
        .map_err(|e| Failure::failed("cannot write to standard output").because(e))?;
    outcome(report)
}

/// Whether no waiting ends the pause, of a part of it at least.
fn needs_a_person(pause: &PauseRecord) -> bool {
    let is = |cause| matches!(cause, PauseCause::NoUsablePool | PauseCause::NoCapablePool);
    is(pause.cause) || pause.nodes.iter().any(|node| is(node.cause))
}

/// Marks on the workflow run what nobody should have to open a log for: the job is green.
fn annotate(log: &mut Log<impl std::io::Write>, report: &CycleReport) -> std::io::Result<()> {
    if let Some(pause) = report.pause.as_ref().filter(|pause| needs_a_person(pause)) {
        let mut lines = vec![report.message.clone()];
        lines.extend(pause.nodes.iter().take(10).map(|it| format!("{}: {}", it.node, it.reason)));
        lines.extend(report.pools_left_out.iter().map(|pool| format!("pool left out: {pool}")));
        let remedies = pause_remedies(pause, "/overhaul").into_iter();
        lines.extend(remedies.map(|remedy| format!("do: {remedy}")));
        let title = Some("overhaul".to_owned());
        let message = lines.join("\n");
        log.annotate(Level::Warning, &Annotation { title, message, ..Annotation::default() })?;
    }
    for warning in &report.warnings {
        let message = format!("{}\ndo: {}", warning.text, warning.remedy);
        let title = Some("overhaul".to_owned());
        log.annotate(Level::Warning, &Annotation { title, message, ..Annotation::default() })?;
    }
    Ok(())
}

/// A run that closes with nothing but failures is a failure: nobody would look at it otherwise.
fn outcome(report: &CycleReport) -> Result<(), Failure> {
    let only_failed =
        !report.nodes.is_empty() && report.nodes.keys().all(|state| state == "failed");
    if report.status != Status::Complete || !only_failed {
        return Ok(());
    }
    Err(Failure::failed("the run is closed, and every node failed").remedy(
        "mend what the reasons name; `overhaul retry <node>` works on a node again, and with changed \
         `findings`, `planning`, `pools`, `dispatch`, `verify`, `policy` or `sandbox` the next cycle \
         tries the same findings anew",
    ))
}

/// Nothing is worked on for a pull request of a fork: it would bring its own files to a job that
/// may write.
fn leave_fork_alone(runtime: &Runtime, trouble: Option<&str>) -> Result<(), Failure> {
    let message = match trouble {
        None => "this pull request comes from a fork: overhaul leaves it alone; nothing is wrong \
                 with it"
            .to_owned(),
        Some(why) => format!(
            "whether this pull request comes from a fork can't be told from the event's payload \
             ({why}): overhaul leaves it alone"
        ),
    };
    let report = CycleReport::without_run(Status::Idle, message);
    let cannot = |e| Failure::failed("the job's outputs can't be written").because(e);
    outputs(runtime, &report).map_err(cannot)?;
    runtime.append_summary(&format!("{}\n", report.message)).map_err(cannot)?;
    print(&render(&report, false)?)
}

/// Inputs of the action fill what the command line leaves open.
pub(super) fn from_inputs(args: &mut Args, runtime: &Runtime) -> Result<(), Failure> {
    if let Some(workspace) = runtime.workspace.as_ref().filter(|_| args.run.repo.as_os_str() == ".")
    {
        args.run.repo.clone_from(workspace);
    }
    let repo = args.run.repo.clone();
    if args.run.config.is_none()
        && let Some(path) = runtime.input("config")
    {
        // A file of the runner is the workflow's own word; a path is one of the repository.
        if path.starts_with('/') {
            args.run.config = Some(path.into());
        } else {
            args.run.committed = Some(path.trim_start_matches("./").to_owned());
        }
    }
    if args.findings.is_empty() {
        let listed = runtime.input("findings").unwrap_or_default();
        args.findings = listed.split_whitespace().map(|path| repo.join(path)).collect();
    }
    if args.intent.is_none() {
        args.intent = runtime.input("intent").map(str::to_owned);
    }
    if args.sarif.is_none() {
        args.sarif = runtime.input("sarif").map(|path| repo.join(path));
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
    Ok(())
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
    super::grant::outputs(runtime, report.grant.as_ref())?;
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
        CycleError::Journal(crate::cycle::JournalError::Store(store))
            if matches!(*store, crate::store::StoreError::Forbidden { .. }) =>
        {
            Failure::refused("the state can't be written").because(store).remedy(
                "add `contents: write` to `permissions:` of the job, or grant it to the app or \
                 token; a rule that protects branches must leave out overhaul's",
            )
        }
        CycleError::Journal(crate::cycle::JournalError::Newer(_)) => {
            Failure::refused(error.to_string())
                .remedy("update overhaul to the version that wrote it")
        }
        CycleError::Refused(what) => {
            Failure::refused(what).remedy("throw the work away: the node is done anew by its owner")
        }
        other => {
            let remedy = remedy(&other);
            Failure::failed("the cycle could not go on").because(other).remedy(remedy)
        }
    }
}

/// A cause in one line: its first words say what it is of, its last ones what is wrong.
pub(super) fn in_one_line(text: &str) -> String {
    const HEAD: usize = 120;
    const TAIL: usize = 240;
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let length = line.chars().count();
    if length <= HEAD + TAIL {
        return line;
    }
    let head: String = line.chars().take(HEAD).collect();
    let tail: String = line.chars().skip(length - TAIL).collect();
    format!("{} … {}", head.trim_end(), tail.trim_start())
}

/// Why an attempt failed, in one line, and where to look when it was kept from something.
pub(super) fn reason(text: &str) -> String {
    let walled = ["permission denied", "eacces", "eperm", "operation not permitted"];
    let lower = text.to_lowercase();
    let hint = if walled.iter().any(|word| lower.contains(word)) {
        " (docs/sandbox.md says what workers and checks may reach, and how to allow more)"
    } else {
        ""
    };
    format!("{}{hint}", in_one_line(text))
}

/// What to do about a failure of the machine or of what lies around it.
fn remedy(error: &CycleError) -> &'static str {
    let text = error.to_string().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if says(&["no space left", "disk quota", "enospc"]) {
        "free space on the disk, or name other folders with --work-dir and --local, and run it again"
    } else if says(&["permission denied", "read-only file system"]) {
        "make the place that is named writable for this user, or name another one"
    } else if says(&["the git program was not found", "is too old: "]) {
        "install git 2.34 or newer and put it on PATH"
    } else {
        match error {
            CycleError::Git(_) => {
                "check that `origin` (or --remote) answers and that the token may read and push; \
                 `overhaul doctor` looks at each"
            }
            CycleError::Journal(_) => {
                "nothing was overwritten; look at the place of `state` in the configuration, or give \
                 `state.branch` another name if the branch is not overhaul's"
            }
            CycleError::Forge(_) => {
                "mend or remove what is named (with --local, the file), and run it again: nothing is \
                 done twice"
            }
            CycleError::Workspace(_) | CycleError::Io { .. } => {
                "look at the folder that is named (--work-dir may name another one), and run it again"
            }
            CycleError::Input { .. } | CycleError::Refused(_) | CycleError::Internal(_) => {
                "run it again; if it comes back, report it with the output of --log-level debug"
            }
        }
    }
}

/// Results that the text names; JSON holds all.
const SHOWN_RESULTS: usize = 300;

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
            .map(|(state, n)| format!("{n} {}", state.replace(['_', '-'], " ")))
            .collect();
        if !nodes.is_empty() {
            let _ = writeln!(text, "run {run}: {}", nodes.join(", "));
        }
    }
    for url in &report.pull_requests {
        let _ = writeln!(text, "  pull request {url}");
    }
    for warning in &report.warnings {
        let _ = writeln!(text, "  warning: {}", warning.text);
        let _ = writeln!(text, "    do: {}", warning.remedy);
    }
    if let Some(at) = report.not_before {
        let _ = writeln!(text, "  not before {at}");
    }
    if let Some(pause) = &report.pause {
        for node in &pause.nodes {
            let _ = writeln!(text, "  {}: {}", node.node, node.reason);
        }
        for remedy in pause_remedies(pause, "overhaul") {
            let _ = writeln!(text, "  do: {remedy}");
        }
    }
    for failed in &report.failed {
        let why = reason(&failed.why);
        let attempts = if failed.attempts == 1 { "attempt" } else { "attempts" };
        let _ =
            writeln!(text, "  {} failed after {} {attempts}: {why}", failed.node, failed.attempts);
    }
    if let Some(grant) = &report.grant {
        let _ = writeln!(text, "  handed out as {}, until {}:", grant.id, grant.expires);
        for node in &grant.nodes {
            let _ = writeln!(text, "    {} (attempt {}) to {}", node.node, node.attempt, node.pool);
        }
    }
    for result in report.results.iter().take(SHOWN_RESULTS) {
        let node = result.node.as_ref().map(ToString::to_string);
        let what = node.or_else(|| result.file.clone()).unwrap_or_default();
        let fate = serde_json::to_value(result.fate).ok();
        let fate = fate.as_ref().and_then(|v| v.as_str()).unwrap_or_default();
        let why = in_one_line(&result.why);
        let _ = writeln!(text, "  {what} {fate}{}{why}", if why.is_empty() { "" } else { ": " });
    }
    for pool in &report.pools_left_out {
        let _ = writeln!(text, "  pool left out: {pool}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::{annotate, in_one_line, reason, render};
    use crate::actions::Log;
    use crate::cycle::{CycleReport, Status};
    use crate::ledger::{PauseCause, PauseRecord, PausedNode};
    use crate::model::NodeId;

    #[test]
    fn a_long_reason_keeps_its_end() {
        let text = format!("Verify command `t` failed:\n{}\nassert 1 == 2", "noise\n".repeat(200));
        let line = in_one_line(&text);
        assert!(line.starts_with("Verify command `t` failed: noise"), "{line}");
        assert!(line.ends_with("noise assert 1 == 2") && line.contains(" … "), "{line}");
        assert!(line.chars().count() < 400);
        assert_eq!(in_one_line("short\n one"), "short one");
    }

    #[test]
    fn what_a_wall_refused_names_the_page_about_walls() {
        assert!(reason("touch: /x: Permission denied").contains("docs/sandbox.md"));
        assert_eq!(reason("exit code 7"), "exit code 7");
    }

    fn stuck(cause: PauseCause) -> CycleReport {
        let at = jiff::Timestamp::UNIX_EPOCH;
        let node = PausedNode {
            node: NodeId::new("N-001").unwrap(),
            cause,
            reason: "no pool".to_owned(),
            not_before: None,
        };
        let pause = PauseRecord {
            cause,
            not_before: None,
            nodes: vec![node],
            first_seen: at,
            count: 1,
            by: None,
        };
        let message = crate::report::pause_words(cause);
        let mut report = CycleReport::without_run(Status::Paused, message);
        report.pause = Some(pause);
        report.pools_left_out = vec!["nim: the environment variable K is not set".to_owned()];
        report
    }

    #[test]
    fn a_pause_says_what_ends_it_and_says_quota_where_no_budget_is_set() {
        let text = render(&stuck(PauseCause::NoUsablePool), false).unwrap();
        assert!(text.contains("  do: ") && text.contains("`overhaul unsettle <pool>`"), "{text}");
        let text = render(&stuck(PauseCause::BudgetExhausted), false).unwrap();
        assert!(text.starts_with("paused: waiting for quota"), "{text}");
    }

    #[test]
    fn a_green_job_that_can_use_no_pool_is_marked() {
        let marked = |cause| {
            let mut bytes = Vec::new();
            annotate(&mut Log::new(&mut bytes, true), &stuck(cause)).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        let text = marked(PauseCause::NoUsablePool);
        assert!(text.starts_with("::warning title=overhaul::no usable pool"), "{text}");
        assert!(text.contains("variable K is not set"), "{text}");
        assert_eq!(marked(PauseCause::CapReached), "");
    }
}
