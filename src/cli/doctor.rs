//! `doctor`: whether a cycle would work here, and what to do where not. Starts nothing.

use std::fmt::Write as _;

use serde_json::json;

use super::run_options::{RunArgs, env};
use super::{Failure, print};
use crate::cycle::Given;
use crate::cycle::doctor::{self, Check, Health};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    run: RunArgs,
}

pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let mut checks = doctor::machine();
    checks.push(doctor::repository(&args.run.repo));
    let loaded = args.run.configuration().await;
    let configured = loaded.is_ok();
    match loaded {
        Err(failure) => checks.push(of_failure("configuration", &failure)),
        Ok(config) => {
            checks.extend(doctor::configured(&config, &args.run.repo, &*env()).await);
            match args.run.options(Given::default(), None, false).await {
                Ok(options) => checks.extend(doctor::places(options).await),
                Err(failure) => {
                    checks.push(of_failure("forge", &failure));
                    checks.extend(doctor::kernel(&config));
                }
            }
        }
    }
    let worst = checks.iter().map(|c| c.health).max().unwrap_or(Health::Ok);
    if args.run.json {
        print(&format!("{:#}\n", json!({ "health": worst, "checks": checks })))?;
    } else {
        print(&render(&checks))?;
    }
    let failed = checks.iter().filter(|c| c.health == Health::Failure).count();
    match (worst, configured) {
        (_, false) => Err(Failure::usage("the configuration can't be used")
            .remedy("mend what is shown, and ask again")),
        (Health::Failure, true) => {
            Err(Failure::failed(format!("a cycle would not work here: {failed} failed"))
                .remedy("mend what is shown, and ask again"))
        }
        _ => Ok(()),
    }
}

fn of_failure(area: &'static str, failure: &Failure) -> Check {
    let (detail, remedy) = failure.parts();
    Check::failure(area, "", detail, remedy.unwrap_or("mend what is named, and ask again"))
}

fn render(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let word = match check.health {
            Health::Ok => "ok     ",
            Health::Warning => "warning",
            Health::Failure => "FAILED ",
        };
        let subject =
            if check.subject.is_empty() { String::new() } else { format!(" {}", check.subject) };
        let _ = writeln!(text, "{word}  {}{subject}: {}", check.area, check.detail.trim());
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(text, "         do: {remedy}");
        }
    }
    text
}
