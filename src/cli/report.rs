//! `report`: a run as one HTML file.

use std::path::{Path, PathBuf};

use serde_json::json;

use super::next_step::failure;
use super::run_options::RunArgs;
use super::{Failure, print};
use crate::cycle::{Given, run_report};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    run: RunArgs,
    /// Where to write it; `-` is standard output [default: overhaul-RUN.html in this folder].
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let to_stdout = args.output.as_deref() == Some(Path::new("-"));
    if to_stdout && args.run.json {
        return Err(Failure::usage("--json and the report can't both go to standard output")
            .remedy("name a file with --output"));
    }
    args.run.existing_place()?;
    let options = args.run.options(Given::default(), None, false).await?;
    let Some((id, page)) = run_report(options).await.map_err(failure)? else {
        return Err(Failure::failed("there is no run yet").remedy("`next-step` opens one"));
    };
    if to_stdout {
        return print(&page);
    }
    let file = args.output.unwrap_or_else(|| PathBuf::from(format!("overhaul-{id}.html")));
    std::fs::write(&file, &page)
        .map_err(|e| Failure::failed(format!("{} can't be written", file.display())).because(e))?;
    if args.run.json {
        return print(&format!("{:#}\n", json!({"run-id": id, "file": file, "bytes": page.len()})));
    }
    print(&format!("{}\n", file.display()))
}
