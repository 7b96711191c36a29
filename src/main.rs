//! Process entry.

use std::io::Write;
use std::process::ExitCode;

use overhaul::process::{SANDBOX_SUBCOMMAND, enter, hide, supervise};

fn main() -> ExitCode {
    // Before there is anything to read, and for every role.
    hide();
    // As process 1 of a container it only looks after the process that works.
    if let Some(code) = supervise() {
        return code;
    }
    let mut args = std::env::args_os().skip(1).peekable();
    // Before there is a runtime: this process watches over a child, or limits itself and becomes
    // one.
    if args.next_if(|arg| arg == SANDBOX_SUBCOMMAND).is_some() {
        let (code, message) = enter(args);
        if let Some(message) = message {
            let _ = writeln!(std::io::stderr(), "overhaul: {message}");
        }
        return code;
    }
    if let Err(failure) = overhaul::cli::trust_bundle() {
        return failure.report();
    }
    run()
}

#[tokio::main]
async fn run() -> ExitCode {
    overhaul::cli::main().await
}
