//! `grant`: hands nodes out to jobs of their own.

use std::path::PathBuf;
use std::time::Duration;

use super::Failure;
use super::next_step;
use super::run_options::duration;
use crate::actions::{ActionsError, Runtime};
use crate::cycle::{Grant, GrantOptions, GrantedNode, MAX_NODES, grant};
use crate::ledger::Share;

#[derive(Debug, clap::Args)]
pub(super) struct GrantArgs {
    #[command(flatten)]
    pub cycle: next_step::Args,
    /// Most nodes to hand out; a matrix has at most 256 jobs.
    #[arg(long, value_name = "N", default_value_t = MAX_NODES)]
    pub max_nodes: usize,
    /// Jobs of a host that run at once (the matrix' max-parallel), where its pool declares nothing.
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub width: u32,
    /// How long the claims stand where nobody can say whether their jobs live [default: the lease
    /// of the configuration, or 6h].
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub expires: Option<Duration>,
    /// Folder for the prompts of the nodes [default: below the folder for worktrees].
    #[arg(long, value_name = "DIR")]
    pub prompts: Option<PathBuf>,
}

pub(super) async fn run(args: GrantArgs) -> Result<(), Failure> {
    let how = GrantOptions {
        max_nodes: args.max_nodes,
        width: args.width,
        expires: args.expires,
        prompts: args.prompts,
    };
    let mut cycle = args.cycle;
    let runtime = Runtime::from_env(&|name| std::env::var(name).ok());
    if runtime.on_actions {
        next_step::from_inputs(&mut cycle, &runtime)?;
    }
    let json = cycle.run.json;
    let options = next_step::options(cycle).await?;
    let report = grant(options, how, next_step::stop_signal()).await.map_err(next_step::failure)?;
    next_step::show(&runtime, &report, json)
}

/// The grant's outputs; all of them also when nothing was handed out.
pub(super) fn outputs(runtime: &Runtime, grant: Option<&Grant>) -> Result<(), ActionsError> {
    let nodes = grant.map(|g| g.nodes.as_slice()).unwrap_or_default();
    for (share, prefix) in [(Share::Work, ""), (Share::Host, "host-")] {
        let include: Vec<&GrantedNode> = nodes.iter().filter(|n| n.share == share).collect();
        runtime.set_output(&format!("{prefix}granted"), &include.len().to_string())?;
        let matrix = serde_json::json!({ "include": include });
        runtime.set_output(&format!("{prefix}matrix"), &matrix.to_string())?;
    }
    runtime.set_output("grant", grant.map_or("", |g| g.id.as_str()))?;
    let prompts = grant.map(|g| g.prompts.display().to_string()).unwrap_or_default();
    runtime.set_output("prompts", &prompts)
}
