//! `schema`: the JSON Schema of a format.

use super::{Failure, print};
use crate::config::config_schema;
use crate::ledger::event_schema;
use crate::scheduling::simulate::input::{plan_schema, pools_schema};
use crate::scheduling::simulate::prediction_schema;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Which format.
    #[arg(value_enum, default_value = "config")]
    format: Format,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Format {
    /// `overhaul.yml`.
    Config,
    /// A plan: what `plan --json` prints and `simulate --plan` reads.
    #[value(alias = "simulate-plan")]
    Plan,
    /// Pools and how they behave: what `simulate --pools` reads.
    #[value(alias = "simulate-pools")]
    Pools,
    /// A prediction: what `simulate --json` prints.
    Prediction,
    /// One event of the ledger: a line of a run's log.
    Event,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let schema = match args.format {
        Format::Config => config_schema(),
        Format::Plan => plan_schema(),
        Format::Pools => pools_schema(),
        Format::Prediction => prediction_schema(),
        Format::Event => event_schema(),
    };
    let text = serde_json::to_string_pretty(&schema)
        .map_err(|error| Failure::failed("cannot write the schema").because(error))?;
    print(&format!("{text}\n"))
}
