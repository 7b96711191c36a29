//! `simulate`: the real scheduler under a virtual clock.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{Failure, print};
use crate::scheduling::simulate::input::{InputError, read_plan, read_pools};
use crate::scheduling::simulate::{Simulation, simulate};
use crate::scheduling::{Options, ScheduleError};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The plan: JSON with `nodes`, as `overhaul plan --json` prints it; `-` = standard input.
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// The pools and how they behave: YAML or JSON with `pools`, or a configuration, whose pools
    /// then take the default time; `-` = standard input.
    #[arg(long, value_name = "FILE")]
    pools: PathBuf,
    /// Seed of jitter and outcomes.
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        allow_negative_numbers = true,
        value_parser = seed
    )]
    seed: u64,
    /// 0 or `cost` = cheapest first, 1 or `speed` = fastest first.
    #[arg(
        long,
        value_name = "X",
        default_value = "0",
        allow_negative_numbers = true,
        value_parser = dial
    )]
    dial: f64,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("use a whole number from 0 to {}", u64::MAX))
}

fn dial(text: &str) -> Result<f64, String> {
    match text {
        "cost" => Ok(0.0),
        "speed" => Ok(1.0),
        _ => text
            .parse::<f64>()
            .ok()
            .filter(|d| (0.0..=1.0).contains(d))
            .ok_or_else(|| "use `cost`, `speed`, or a number from 0 to 1".to_owned()),
    }
}

/// Largest plan or pools file, bytes: a plan of 10 000 nodes has about a tenth.
const MAX_BYTES: u64 = 64 << 20;

/// What a person calls it.
fn name(path: &Path) -> String {
    if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() }
}

fn read(path: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let failure = || {
        Failure::usage(format!("cannot read {}", name(path)))
            .remedy("name an existing, readable file in UTF-8")
    };
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|f| f.take(MAX_BYTES + 1).read_to_string(&mut text))
    };
    read.map_err(|error| failure().because(error))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(failure().because(format!("it has more than {MAX_BYTES} bytes")));
    }
    Ok(text)
}

/// `format` is the name of the file's format to `overhaul schema`.
fn bad_input(path: &Path, format: &str, error: &InputError) -> Failure {
    let failure = Failure::usage(format!("cannot use {}", name(path))).because(error);
    match error {
        InputError::Format { nearest: Some(nearest), .. } => {
            failure.remedy(format!("did you mean `{nearest}`?"))
        }
        _ => failure.remedy(format!("`overhaul schema {format}` prints what belongs there")),
    }
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    if args.plan == args.pools && args.plan == Path::new("-") {
        return Err(Failure::usage("standard input cannot be the plan and the pools")
            .remedy("name a file for one of them"));
    }
    let nodes = read_plan(&read(&args.plan)?).map_err(|e| bad_input(&args.plan, "plan", &e))?;
    let pools = read_pools(&read(&args.pools)?).map_err(|e| bad_input(&args.pools, "pools", &e))?;
    let options = Options { dial: args.dial, ..Options::default() };
    let simulation = simulate(nodes, pools, options, args.seed).map_err(|error| {
        let file = match error {
            ScheduleError::DuplicatePool(_) => &args.pools,
            _ => &args.plan,
        };
        Failure::usage(format!("cannot use {}", name(file)))
            .because(error)
            .remedy("correct the ids and dependencies in that file")
    })?;
    if args.json {
        let text = serde_json::to_string(&simulation)
            .map_err(|error| Failure::failed("cannot write JSON").because(error))?;
        print(&format!("{text}\n"))
    } else {
        print(&render(&simulation))
    }
}

/// What it costs, as far as that is known.
fn price(s: &Simulation) -> String {
    let unpriced = match s.unpriced {
        0 => return format!("{:>10} USD", dollars(s.cost)),
        1 => "1 attempt on a pool that declares no price".to_owned(),
        n => format!("{n} attempts on pools that declare no price"),
    };
    if s.cost > 0.0 {
        format!("{:>10} USD   and {unpriced}", dollars(s.cost))
    } else {
        format!("{:>10}       {unpriced}", "unknown")
    }
}

/// With four decimals, or as many as a small sum needs.
fn dollars(usd: f64) -> String {
    if usd == 0.0 || usd >= 0.001 { format!("{usd:.4}") } else { format!("{usd:.9}") }
}

/// For a person.
fn render(s: &Simulation) -> String {
    let mut out = String::new();
    let ratio = if s.lower_bound_s > 0.0 { s.makespan_s / s.lower_bound_s } else { 1.0 };
    let _ = writeln!(out, "makespan       {:>10.1} s", s.makespan_s);
    let _ = writeln!(out, "lower bound    {:>10.1} s   ({ratio:.3} x)", s.lower_bound_s);
    let _ = writeln!(out, "critical path  {:>10.1} s", s.critical_path_s);
    let _ = writeln!(out, "cost           {}", price(s));
    let counts: Vec<String> = s.nodes.iter().map(|(state, n)| format!("{n} {state}")).collect();
    let _ = writeln!(out, "nodes          {}", counts.join(", "));
    let _ = writeln!(out, "\npool utilisation");
    for (pool, share) in &s.utilisation {
        let _ = writeln!(out, "  {:>5.1} %  {pool}", share * 100.0);
    }
    if !s.pauses.is_empty() {
        let _ = writeln!(out, "\npauses");
        for pause in &s.pauses {
            let until = pause.until_s.map_or("the end".to_owned(), |u| format!("{u:.1} s"));
            let cause = serde_json::to_string(&pause.cause).unwrap_or_default();
            let cause = cause.trim_matches('"');
            let _ = writeln!(out, "  {:.1} s to {until}: {cause}", pause.at_s);
            for node in pause.nodes.iter().take(10) {
                let _ = writeln!(out, "    {}: {}", node.node, node.reason);
            }
            if pause.nodes.len() > 10 {
                let _ = writeln!(out, "    and {} more", pause.nodes.len() - 10);
            }
        }
    }
    let _ = writeln!(out, "\n{:>10} {:>10}  {:<20} {:<24} outcome", "start", "end", "node", "pool");
    for e in &s.timeline {
        let outcome = serde_json::to_string(&e.outcome).unwrap_or_default();
        let outcome = outcome.trim_matches('"');
        let node =
            if e.attempt > 1 { format!("{} #{}", e.node, e.attempt) } else { e.node.to_string() };
        let _ = writeln!(
            out,
            "{:>10.1} {:>10.1}  {node:<20} {:<24} {outcome}",
            e.start_s, e.end_s, e.pool.0
        );
    }
    out
}
