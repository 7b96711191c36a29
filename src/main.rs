//! Process entry.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    overhaul::cli::main().await
}
