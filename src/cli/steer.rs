//! `resume`, `pause`, `retry`, `skip`, `cancel`, `unsettle`, `adopt`, `reset`, `approve`: what the
//! comment commands do, from a shell.

use super::next_step::failure;
use super::run_options::RunArgs;
use super::{Failure, print};
use crate::cycle::{Given, Steer, steer};
use crate::ledger::BranchAsk;
use crate::model::{NodeId, PoolId};

#[derive(Debug, clap::Args)]
pub(super) struct RunOnly {
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct WithNode {
    /// The node, e.g. N-001.
    pub node: NodeId,
    #[command(flatten)]
    pub run: RunArgs,
}

#[derive(Debug, clap::Args)]
pub(super) struct WithPool {
    /// The pool's id.
    pub pool: String,
    #[command(flatten)]
    pub run: RunArgs,
}

impl WithPool {
    pub(super) fn steer(&self) -> Steer {
        Steer::Unsettle(PoolId::new(self.pool.clone()))
    }
}

pub(super) async fn branch(args: WithNode, ask: BranchAsk) -> Result<(), Failure> {
    run(&args.run, Steer::Branch(ask, args.node)).await
}

pub(super) async fn run(args: &RunArgs, what: Steer) -> Result<(), Failure> {
    args.existing_place()?;
    let options = args.options(Given::default(), None, false).await?;
    let by = std::env::var("GITHUB_ACTOR")
        .or_else(|_| std::env::var("USER"))
        .unwrap_or_else(|_| "a shell".to_owned());
    let steered = steer(options, what, &by).await.map_err(failure)?;
    if args.json {
        let text = serde_json::to_string_pretty(&steered)
            .map_err(|e| Failure::failed("the answer can't be written").because(e))?;
        return print(&(text + "\n"));
    }
    print(&format!("run {}: {}\n", steered.run_id, steered.message))
}
