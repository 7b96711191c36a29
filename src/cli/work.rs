//! `work` and `accept-node`: handed-out nodes, in a job of their own.

use std::io::Read as _;
use std::path::PathBuf;

use super::next_step::{failure, stop_signal};
use super::run_options::RunArgs;
use super::{Failure, print};
use crate::actions::{Log, Runtime};
use crate::cycle::{Delivered, Given, GrantedNode, Left, accept_node, work};
use crate::model::Usage;

/// The variable that holds the hand-out.
const VARIABLE: &str = "OVERHAUL_GRANT";

/// Largest hand-out that is read, bytes.
const MAX_HAND_OUT: u64 = 1 << 20;

#[derive(Debug, clap::Args)]
pub(super) struct WorkArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// File with the node's entry of the matrix, or with a list of entries to do one after the other;
    /// `-` for standard input [default: the variable OVERHAUL_GRANT].
    #[arg(long, value_name = "FILE")]
    pub grant: Option<PathBuf>,
    /// Folder for the result, outside the checkout.
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct AcceptArgs {
    #[command(flatten)]
    pub work: WorkArgs,
    /// File with the agent's last message; without one, every finding of the node counts as claimed.
    #[arg(long, value_name = "FILE")]
    pub result: Option<PathBuf>,
    /// The model that worked.
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// Requests that the agent sent, as its account counts them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub requests: u32,
    /// Input tokens that the agent consumed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub input_tokens: u64,
    /// Output tokens that the agent consumed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub output_tokens: u64,
    /// What the agent cost, US dollars.
    #[arg(long, value_name = "USD", default_value_t = 0.0)]
    pub cost_usd: f64,
}

pub(super) async fn run(args: WorkArgs) -> Result<(), Failure> {
    let granted = hand_outs(&args)?;
    let options = args.run.options(Given::default(), None, false).await?;
    let all = granted.entries();
    let done = work(options, all, &args.out, stop_signal()).await.map_err(failure)?;
    let mut refused = None;
    let mut left = Vec::new();
    for (granted, done) in all.iter().zip(done) {
        match done {
            Ok(done) => left.push(done),
            Err(error) => {
                if all.len() > 1 {
                    tracing::error!(node = %granted.node, %error, "nothing is left of it");
                }
                refused = Some(error);
            }
        }
    }
    match (&granted, left.first()) {
        (HandOuts::One(_), Some(only)) => show(only, &as_text(only), args.run.json)?,
        (HandOuts::One(_), None) => {}
        (HandOuts::Several(_), _) => {
            let text: String = left.iter().map(as_text).collect();
            show(&left, &text, args.run.json)?;
        }
    }
    refused.map_or(Ok(()), |error| Err(failure(error)))
}

/// What a job is to do.
enum HandOuts {
    One(Box<GrantedNode>),
    Several(Vec<GrantedNode>),
}

impl HandOuts {
    fn entries(&self) -> &[GrantedNode] {
        match self {
            Self::One(only) => std::slice::from_ref(only),
            Self::Several(all) => all,
        }
    }
}

pub(super) async fn accept(args: AcceptArgs) -> Result<(), Failure> {
    if !(args.cost_usd.is_finite() && args.cost_usd >= 0.0) {
        return Err(Failure::usage("--cost-usd is no amount of money"));
    }
    let HandOuts::One(granted) = hand_outs(&args.work)? else {
        return Err(Failure::usage("which node?").because("what an agent left is of one node"));
    };
    let options = args.work.run.options(Given::default(), None, false).await?;
    let delivered = Delivered {
        result: args.result,
        usage: Usage {
            requests: args.requests,
            input_tokens: args.input_tokens,
            output_tokens: args.output_tokens,
            cost_usd: args.cost_usd,
        },
        model: args.model,
    };
    let left = accept_node(options, *granted, delivered, &args.work.out, stop_signal())
        .await
        .map_err(failure)?;
    show(&left, &as_text(&left), args.work.run.json)?;
    if left.acceptable {
        return Ok(());
    }
    Err(Failure::failed("the result is not acceptable")
        .because(left.detail)
        .remedy("hand the result in all the same: it counts as a failed attempt, whose reason the next one is told"))
}

/// The node's entry of the matrix, or several. They hold keys: they are never shown.
fn hand_outs(args: &WorkArgs) -> Result<HandOuts, Failure> {
    let problem = |why: String| {
        Failure::usage("which node?").because(why).remedy(format!(
            "set {VARIABLE} to the node's entry of the grant's matrix, or name a file with --grant"
        ))
    };
    let text = match &args.grant {
        None => std::env::var(VARIABLE).map_err(|_| problem(format!("{VARIABLE} is not set")))?,
        Some(path) => {
            let file: Box<dyn std::io::Read> = if path.as_os_str() == "-" {
                Box::new(std::io::stdin())
            } else {
                Box::new(std::fs::File::open(path).map_err(|e| problem(e.to_string()))?)
            };
            let mut text = String::new();
            let read = file.take(MAX_HAND_OUT).read_to_string(&mut text);
            read.map_err(|e| problem(e.to_string()))?;
            text
        }
    };
    let read = if text.trim_start().starts_with('[') {
        serde_json::from_str(&text).map(HandOuts::Several)
    } else {
        serde_json::from_str(&text).map(|only| HandOuts::One(Box::new(only)))
    };
    // The text is not quoted in the error: it holds the key.
    read.map_err(|e| {
        problem(format!("line {}, column {}: it is no entry of a matrix", e.line(), e.column()))
    })
}

fn as_text(left: &Left) -> String {
    let bundle = left.bundle.display();
    if left.acceptable {
        format!("acceptable: {bundle}\n")
    } else {
        format!("not acceptable: {bundle}\n{}\n", left.detail)
    }
}

fn show(left: &impl serde::Serialize, text: &str, json: bool) -> Result<(), Failure> {
    let text = if json {
        serde_json::to_string_pretty(left)
            .map(|text| text + "\n")
            .map_err(|e| Failure::failed("the result can't be shown").because(e))?
    } else {
        text.to_owned()
    };
    let runtime = Runtime::from_env(&|name| std::env::var(name).ok());
    if !runtime.on_actions {
        return print(&text);
    }
    let mut log = Log::new(std::io::stdout().lock(), true);
    log.untrusted(&text).map_err(|e| Failure::failed("cannot write to standard output").because(e))
}
