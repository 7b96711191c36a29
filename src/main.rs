//! Process entry.

use std::io::Write;
use std::process::ExitCode;

use overhaul::process::{SANDBOX_SUBCOMMAND, enter, supervise};

fn main() -> ExitCode {
    // As process 1 of a container it only looks after the process that works.
    if let Some(code) = supervise() {
        return code;
    }
    let mut args = std::env::args_os().skip(1).peekable();
    // Before there is a runtime: this process limits itself and becomes another program.
    if args.next_if(|arg| arg == SANDBOX_SUBCOMMAND).is_some() {
        let (code, message) = enter(args);
        let _ = writeln!(std::io::stderr(), "overhaul: {message}");
        return code;
    }
    run()
}

#[tokio::main]
async fn run() -> ExitCode {
    overhaul::cli::main().await
}
