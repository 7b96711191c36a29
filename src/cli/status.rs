//! `status`: the run, for a person or as JSON. Changes nothing.

use std::fmt::Write as _;

use super::next_step::{failure, reason};
use super::run_options::RunArgs;
use super::{Failure, print};
use crate::cycle::{Given, RunStatus, run_status};
use crate::report::{pause_remedies, pause_words};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(args: Args) -> Result<(), Failure> {
    args.run.existing_place()?;
    let options = args.run.options(Given::default(), None, false).await?;
    let status = run_status(options).await.map_err(failure)?;
    if args.run.json {
        let text = serde_json::to_string_pretty(&status)
            .map_err(|e| Failure::failed("the status can't be written").because(e))?;
        return print(&(text + "\n"));
    }
    print(&render(&status))
}

fn render(status: &RunStatus) -> String {
    let Some(run) = &status.run_id else {
        return "there is no run yet\n".to_owned();
    };
    let mut text = String::new();
    let counts: Vec<String> = status
        .counts
        .iter()
        .map(|(state, n)| format!("{n} {}", state.replace(['_', '-'], " ")))
        .collect();
    let _ = writeln!(text, "run {run} ({}): {}", status.state, counts.join(", "));
    for node in &status.nodes {
        let state = node.state.replace(['_', '-'], " ");
        let _ = write!(text, "  {:<10} {:<10} {}", node.id.to_string(), state, node.title);
        if let Some(url) = &node.pull_request {
            let _ = write!(text, "  {url}");
        }
        let _ = writeln!(text);
        if let Some(note) = &node.branch {
            let _ = writeln!(text, "             {note}");
        }
        if let Some(why) = &node.last_failure {
            let attempt = node.failed_attempt.unwrap_or(node.attempts);
            let _ = writeln!(text, "             attempt {attempt}: {}", reason(why));
        }
    }
    if let Some(pause) = &status.pause {
        let cause = pause_words(pause.cause);
        let _ = match (pause.not_before, &pause.by) {
            (Some(at), _) => writeln!(text, "paused ({cause}), not before {at}"),
            (None, Some(by)) => writeln!(text, "paused by {by} at {}", pause.first_seen),
            (None, None) => writeln!(text, "paused ({cause})"),
        };
        for node in &pause.nodes {
            let _ = writeln!(text, "  {}: {}", node.node, node.reason);
        }
        for remedy in pause_remedies(pause, "overhaul") {
            let _ = writeln!(text, "  do: {remedy}");
        }
    }
    for pool in &status.pools {
        let _ = writeln!(text, "pool {}: {}", pool.id, pool.state);
    }
    for warning in &status.warnings {
        let _ = writeln!(text, "warning: {} ({})", warning.text, warning.remedy);
    }
    for friction in &status.friction {
        let _ = writeln!(text, "friction: {} ({})", friction.text, friction.remedy);
    }
    text
}
