//! `merge-results`: takes the results of handed-out nodes in.

use std::path::PathBuf;
use std::time::Duration;

use super::Failure;
use super::next_step;
use super::run_options::{RunArgs, duration};
use crate::actions::Runtime;
use crate::cycle::{CycleReport, Fate, Given, Options, TakeInOptions, merge_results};
use crate::model::GrantId;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    pub run: RunArgs,
    /// Folder that the results were downloaded to.
    #[arg(long, value_name = "DIR")]
    pub bundles: PathBuf,
    /// The grant; what no result came for is given back. Without one, the grants of the results
    /// that are there.
    #[arg(long, value_name = "ID")]
    pub grant: Option<GrantId>,
    /// How long to work, e.g. 50m.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub time_budget: Option<Duration>,
}

pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let options = args.run.options(Given::default(), args.time_budget, false).await?;
    let how = TakeInOptions { bundles: args.bundles, grant: args.grant };
    take_in(options, how, args.run.json).await
}

/// Takes in and shows; results that are nobody's are an error once everything else is done.
pub(super) async fn take_in(
    options: Options,
    how: TakeInOptions,
    json: bool,
) -> Result<(), Failure> {
    let runtime = Runtime::from_env(&|name| std::env::var(name).ok());
    let report =
        merge_results(options, how, next_step::stop_signal()).await.map_err(next_step::failure)?;
    next_step::show(&runtime, &report, json)?;
    let refused = refused(&report);
    if refused.is_empty() {
        return Ok(());
    }
    Err(Failure::refused(format!("{} results were refused; the others count", refused.len()))
        .because(refused.join("; "))
        .remedy("look at the jobs that made them; their nodes were given back"))
}

/// What was refused, a line each; the first few.
fn refused(report: &CycleReport) -> Vec<String> {
    let refused = report.results.iter().filter(|r| r.fate == Fate::Refused);
    refused
        .take(20)
        .map(|r| format!("{}: {}", r.file.as_deref().unwrap_or("the folder"), r.why))
        .collect()
}
