//! The command line: clap definitions, one file per command; text and `--json` renderings.

mod failure;

mod demo;
mod doctor;
mod explain_comment;
mod explain_error;
mod grant;
mod logging;
mod merge_results;
mod next_step;
mod plan;
mod report;
mod run_options;
mod schema;
mod simulate;
mod status;
mod steer;
mod trust;
mod validate;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use failure::{ExitKind, Failure};
pub use trust::trust_bundle;

use crate::cycle::Steer;
use crate::ledger::BranchAsk;

/// Findings in, verified pull requests out.
#[derive(Debug, Parser)]
#[command(name = "overhaul", version, about, max_term_width = 100)]
pub struct Cli {
    /// What to log on standard error: error, warn, info, debug or trace.
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        hide_possible_values = true,
        ignore_case = true,
        value_parser = ["error", "warn", "info", "debug", "trace"]
    )]
    log_level: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run one cycle: observe, grant, work, land, report.
    NextStep(next_step::Args),
    /// Hand nodes out to jobs of their own: observe, decide, claim.
    Grant(grant::GrantArgs),
    /// Do one handed-out node and leave its result as a file; writes nothing else.
    Work(work::WorkArgs),
    /// Take what another agent left in the checkout as the result of a handed-out node.
    AcceptNode(work::AcceptArgs),
    /// Take results of handed-out nodes in: judge, integrate, push, open pull requests.
    MergeResults(merge_results::Args),
    /// Look whether a cycle would work here, and say what to do where not; starts nothing.
    Doctor(doctor::Args),
    /// Show the run.
    Status(status::Args),
    /// Write the run as one HTML file: timeline, nodes, receipts, pools.
    Report(report::Args),
    /// Go on with a paused run now.
    Resume(steer::RunOnly),
    /// Pause the run until it is resumed.
    Pause(steer::RunOnly),
    /// Try a failed or rejected node again.
    Retry(steer::WithNode),
    /// Leave a node out.
    Skip(steer::WithNode),
    /// Call the run off; nothing more is started.
    Cancel(steer::RunOnly),
    /// Use a settled pool again.
    Unsettle(steer::WithPool),
    /// Take a person's commits on a node's branch into the node; the next cycle checks them.
    Adopt(steer::WithNode),
    /// Take a person's commits off a node's branch; they are kept under another name.
    Reset(steer::WithNode),
    /// Approve the head of a node's branch as it is now; another head makes it void.
    Approve(steer::WithNode),
    /// The whole product on this machine alone: sample repository, local forge, scripted pool.
    Demo(demo::Args),
    /// Print the plan that findings would become; changes nothing.
    Plan(plan::Args),
    /// Predict timeline, makespan and cost of a plan on a set of pools.
    Simulate(simulate::Args),
    /// Ask how overhaul would read something.
    #[command(subcommand)]
    Explain(Explain),
    /// Check the configuration.
    Validate(validate::Args),
    /// Print the JSON Schema of a format.
    Schema(schema::Args),
}

#[derive(Debug, Subcommand)]
enum Explain {
    /// Classify one backend failure; JSON on standard input.
    Error(explain_error::Args),
    /// Read the commands of one comment; JSON on standard input.
    Comment(explain_comment::Args),
}

/// Parses the process arguments, runs the command, renders a failure.
pub async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // clap prints help and version to standard output, mistakes to standard error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    logging::start(cli.log_level.as_deref());
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

async fn run(cli: Cli) -> Result<(), Failure> {
    match cli.command {
        Command::NextStep(args) => next_step::run(args).await,
        Command::Grant(args) => grant::run(args).await,
        Command::Work(args) => work::run(args).await,
        Command::AcceptNode(args) => work::accept(args).await,
        Command::MergeResults(args) => merge_results::run(args).await,
        Command::Doctor(args) => doctor::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Report(args) => report::run(args).await,
        Command::Resume(args) => steer::run(&args.run, Steer::Resume).await,
        Command::Pause(args) => steer::run(&args.run, Steer::Pause).await,
        Command::Retry(args) => steer::run(&args.run, Steer::Retry(args.node)).await,
        Command::Skip(args) => steer::run(&args.run, Steer::Skip(args.node)).await,
        Command::Cancel(args) => steer::run(&args.run, Steer::Cancel).await,
        Command::Unsettle(args) => steer::run(&args.run, args.steer()).await,
        Command::Adopt(args) => steer::branch(args, BranchAsk::Adopt).await,
        Command::Reset(args) => steer::branch(args, BranchAsk::Reset).await,
        Command::Approve(args) => steer::branch(args, BranchAsk::Approve).await,
        Command::Demo(args) => demo::run(args).await,
        Command::Plan(args) => plan::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Explain(Explain::Error(args)) => explain_error::run(args),
        Command::Explain(Explain::Comment(args)) => explain_comment::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Schema(args) => schema::run(args),
    }
}

/// Writes to standard output; a closed pipe is the reader's choice, not an error.
///
/// # Errors
/// When standard output cannot be written for any other reason.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed("cannot write to standard output").because(error))
        }
        _ => Ok(()),
    }
}

/// Says something to a person beside what is for machines.
pub(crate) fn note(text: &str) {
    use std::io::Write as _;
    // Nobody there to read it is no failure.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn an_unknown_log_level_is_refused() {
        let parse = |level| Cli::try_parse_from(["overhaul", "--log-level", level, "schema"]);
        assert!(parse("DEBUG").is_ok());
        let said = parse("loud").unwrap_err().to_string();
        assert!(said.contains("loud") && said.contains("warn, info"), "{said}");
    }

    /// The names of all commands and long options below a command.
    fn names(command: &clap::Command, found: &mut BTreeSet<String>) {
        let options = command.get_arguments().filter(|a| !a.is_hide_set());
        found.extend(options.filter_map(|a| a.get_long()).map(|long| format!("--{long}")));
        for inner in command.get_subcommands().filter(|c| c.get_name() != "help") {
            let parent = command.get_name();
            let prefix = if parent == "overhaul" { String::new() } else { format!("{parent} ") };
            found.insert(format!("`{prefix}{}", inner.get_name()));
            names(inner, found);
        }
    }

    #[test]
    fn every_command_and_option_is_on_the_page_about_them() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/command-line.md");
        let page = std::fs::read_to_string(path).unwrap();
        let mut found = BTreeSet::new();
        names(&Cli::command(), &mut found);
        assert!(found.len() > 40, "{found:?}");
        for name in found {
            assert!(page.contains(&name), "{name} is not in docs/command-line.md");
        }
    }
}
