//! `plan`: findings in, the plan they would become out. Changes nothing.

mod checkout;
mod render;

use std::path::{Path, PathBuf};

use self::checkout::Checkout;
use super::next_step::failure;
use super::{Failure, validate};
use crate::config::{Config, FindingsFormat, Origin};
use crate::cycle;
use crate::intake::{self, IntakeContext, IntakeError, PathKind};
use crate::planning::{PlanContext, PlanError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Files with findings: SARIF 2.1.0 or audit findings JSON; the format is told from the content
    /// [default: the configured ones, as the checkout has them].
    #[arg(long, value_name = "FILE", num_args = 1..)]
    findings: Vec<PathBuf>,
    /// A sentence that says what to change.
    #[arg(long, value_name = "TEXT")]
    intent: Vec<String>,
    /// The checkout that the findings are about [default: the current folder, if it is a git
    /// repository].
    #[arg(long, value_name = "DIR", alias = "root")]
    repo: Option<PathBuf>,
    /// Where the tool that made the findings had its checkout, e.g. `/home/runner/work/app/app` or
    /// `D:\a\app\app`.
    #[arg(long, value_name = "PATH")]
    source_root: Option<String>,
    /// The configuration that plans are made by [default: .github/overhaul.yml in the checkout, if
    /// it is there].
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let config = configuration(&args)?;
    let checkout = find_checkout(args.repo.as_deref())?;
    let none = |_: &str| PathKind::Missing;
    let lookup = |path: &str| checkout.as_ref().map_or(PathKind::Missing, |c| c.kind(path));
    let ctx = IntakeContext {
        source_root: args.source_root.clone(),
        checkout: checkout.as_ref().map(Checkout::location),
        lookup: if checkout.is_some() { &lookup } else { &none },
    };
    let mut sources = Vec::with_capacity(args.findings.len() + args.intent.len());
    for file in &args.findings {
        sources.push(read_findings(file, &ctx, FindingsFormat::Auto)?);
    }
    for text in &args.intent {
        let finding = intake::intent(text).map_err(intake_failure)?;
        let finding = finding.ok_or_else(|| {
            Failure::usage("the intent is blank").remedy("say what to change with --intent")
        })?;
        sources.push(vec![finding]);
    }
    if sources.is_empty() {
        sources = configured(&config, args.repo.as_deref().unwrap_or(Path::new(".")), &ctx)?;
    }
    let combined = intake::combine(sources)
        .map_err(|error| Failure::usage("the findings cannot be numbered").because(error))?;
    let context = checkout.as_ref().map(Checkout::context).unwrap_or_default();
    let plan = cycle::plan_for(&config, combined.findings, context).map_err(plan_failure)?;
    let text = if args.json {
        render::json(&plan, combined.not_problems)
    } else {
        render::text(&plan, combined.not_problems)
    };
    super::print(&text)
}

/// The named folder has to exist; the current one counts when it is a git repository. A checkout
/// without a single file says nothing about where files are.
fn find_checkout(root: Option<&Path>) -> Result<Option<Checkout>, Failure> {
    let root = match root {
        Some(root) if !root.is_dir() => {
            return Err(Failure::usage(format!("--repo {} is no folder", root.display()))
                .remedy("name the folder of the checkout"));
        }
        Some(root) => root,
        None if Path::new(".git").exists() => Path::new("."),
        None => return Ok(None),
    };
    let checkout = Checkout::read(root).map_err(|error| {
        Failure::usage(format!("the checkout {} cannot be listed", root.display())).because(error)
    })?;
    Ok(Some(checkout).filter(|checkout| !checkout.is_empty()))
}

fn read_findings(
    file: &Path,
    ctx: &IntakeContext,
    said: FindingsFormat,
) -> Result<Vec<crate::model::Finding>, Failure> {
    let bytes = cycle::read_file(file).map_err(failure)?;
    intake::read_as(&bytes, &file.display().to_string(), ctx, said).map_err(intake_failure)
}

/// The configured sources that need no forge, as the checkout has them.
fn configured(
    config: &Config,
    root: &Path,
    ctx: &IntakeContext,
) -> Result<Vec<Vec<crate::model::Finding>>, Failure> {
    let mut sources = Vec::with_capacity(config.findings.len());
    let mut elsewhere = false;
    for source in &config.findings {
        match source.origin() {
            Some(Origin::File(file)) => {
                let source_root = ctx.source_root.clone().or_else(|| source.source_root.clone());
                let ctx = IntakeContext { source_root, checkout: ctx.checkout.clone(), ..*ctx };
                sources.push(read_findings(&root.join(file), &ctx, source.format)?);
            }
            Some(Origin::Intent(text)) => {
                sources.push(intake::intent(text).map_err(intake_failure)?.into_iter().collect());
            }
            Some(Origin::CodeScanning(_) | Origin::Issues(_)) | None => elsewhere = true,
        }
    }
    let whole = "`overhaul next-step --dry-run` looks at the configured alerts and issues too";
    match (sources.is_empty(), elsewhere) {
        (true, false) => Err(Failure::usage("there is nothing to plan").remedy(
            "name a file with --findings, say what to change with --intent, or configure `findings`",
        )),
        (true, true) => Err(Failure::usage("the configured findings are not in the checkout")
            .remedy(format!("{whole}; or name a file with --findings"))),
        (false, true) => {
            tracing::warn!("{whole}");
            Ok(sources)
        }
        (false, false) => Ok(sources),
    }
}

/// The configuration that a run would have: the named one, else the checkout's, else the defaults.
fn configuration(args: &Args) -> Result<Config, Failure> {
    let root = args.repo.as_deref().unwrap_or(Path::new("."));
    let own = root.join(crate::config::DEFAULT_PATH);
    match &args.config {
        Some(file) => validate::load(Some(file)),
        None if own.is_file() => validate::load(Some(&own)),
        None => Ok(Config::minimal()),
    }
}

fn intake_failure(error: IntakeError) -> Failure {
    let remedy = error.remedy();
    Failure::usage(error.to_string()).remedy(remedy)
}

fn plan_failure(error: PlanError) -> Failure {
    Failure::usage("there is no valid plan for these findings").because(error).remedy(
        "correct the dependencies (`depends_on`) in the findings, or the globs in the configuration",
    )
}

impl Checkout {
    fn context(&self) -> PlanContext {
        PlanContext { files: Some(self.files().to_vec()), build_files: self.build_files() }
    }
}
