//! The run as the templates show it, filled from the fold, the plan and the configuration.

use super::context::Cycle;
use super::next_step::Status;
use super::pools::PoolSet;
use super::{land, names};
use crate::config::PoolConfig;
use crate::ledger::{Made, NodeRecord, NodeState, PauseCause, Receipt, Run};
use crate::model::{Node, NodeId, PoolId};
use crate::report::view::{Ceiling, NodeView, PoolState, PoolView, PullRequestView, RunView};
use crate::scheduling::pools::Dropped;

/// The whole run.
pub(super) fn run(cycle: &Cycle, set: &PoolSet, status: Status) -> RunView {
    let run = cycle.journal.state().clone();
    let states = cycle.states();
    let nodes = cycle
        .plan
        .nodes
        .iter()
        .map(|node| node_view(&run, node, states.get(&node.id).copied()))
        .collect();
    let coverage = &cycle.plan.coverage;
    let budget = cycle.config.dispatch.budget.usd.map(|usd| usd + run.extra_budget_usd);
    RunView {
        run: cycle.run_id().clone(),
        status: serde_json::to_value(status)
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default(),
        base_branch: cycle.base.branch.clone(),
        now: cycle.clock.now(),
        heartbeat: run.heartbeat,
        next_cycle: None,
        workflow_url: cycle.woken.url.clone(),
        nodes,
        pools: pools(cycle, set, &run),
        paused_by: run
            .pause
            .as_ref()
            .filter(|p| p.cause == PauseCause::Operator)
            .map(|_| "a person".to_owned()),
        pause: run.pause.clone(),
        findings: (coverage.total, coverage.in_nodes, coverage.dropped),
        usage: run.usage,
        budget_usd: budget,
        friction: run.friction.clone(),
        ceilings: ceilings(cycle, &run),
        sandbox_missing: cycle
            .walls
            .missing(&cycle.config)
            .map(|layer| (layer.name.to_owned(), layer.detail.clone()))
            .collect(),
        timeline: Vec::new(),
    }
}

/// How far the ceilings of pull requests are used, and what is used up of the others.
fn ceilings(cycle: &Cycle, run: &Run) -> Vec<Ceiling> {
    let noise = &cycle.config.report.noise;
    let since = noise_day(cycle.clock.now());
    let used = land::Used::of(run, cycle.clock.now());
    let it = |what: &str, used, limit| Ceiling { what: what.to_owned(), used, limit };
    let others = [
        ("comments in a day", Made::Comment, noise.comments_per_day),
        ("issues in a day", Made::Issue, noise.issues_per_day),
    ]
    .into_iter()
    .map(|(what, made, limit)| Ceiling {
        what: what.to_owned(),
        used: u32::try_from(run.made_since(since, made)).unwrap_or(u32::MAX),
        limit,
    })
    // What is far away is no news, and would change the page with every comment.
    .filter(|ceiling| ceiling.used >= ceiling.limit);
    [
        it("open pull requests", used.open, cycle.config.pull_requests.max_open),
        it("new pull requests in an hour", used.hour, noise.pull_requests_per_hour),
        it("new pull requests in a day", used.day, noise.pull_requests_per_day),
    ]
    .into_iter()
    .chain(others)
    .collect()
}

/// The start of the day that noise is counted in.
pub(super) fn noise_day(now: jiff::Timestamp) -> jiff::Timestamp {
    now.checked_sub(jiff::SignedDuration::from_hours(24)).unwrap_or(jiff::Timestamp::MIN)
}

fn node_view(run: &Run, node: &Node, state: Option<NodeState>) -> NodeView {
    let record = run.nodes.get(&node.id);
    let state = state.unwrap_or(NodeState::Waiting);
    let note = match state {
        NodeState::Landed | NodeState::Satisfied => None,
        NodeState::InReview | NodeState::Accepted => record.and_then(|r| branch_note(run, r)),
        _ => record.and_then(|r| r.failures.last()).map(|f| f.detail.clone()),
    };
    NodeView {
        id: node.id.clone(),
        title: node.title.clone(),
        state,
        severity: node.severity,
        depends_on: node.depends_on.iter().chain(&node.after).cloned().collect(),
        pool: record.and_then(|r| r.last_pool.clone()),
        attempts: record.map_or(0, |r| r.attempts),
        pull_request: record.and_then(|r| r.pr.as_ref()).map(|pr| (pr.number, pr.url.clone())),
        note,
    }
}

/// What people should know of an accepted node's branch.
pub(super) fn branch_note(run: &Run, record: &NodeRecord) -> Option<String> {
    let short = |commit: &str| commit.chars().take(12).collect::<String>();
    if let Some(head) = record.foreign_head() {
        let head = short(head);
        return Some(format!("a person pushed {head}: left alone until `adopt` or `reset`"));
    }
    if let Some(approval) = record.approval() {
        return Some(format!("approved at {} by {}", short(&approval.commit), approval.by));
    }
    let auto_merge = run.shown.get(&names::auto_merge(record.pr.as_ref()?.number))?;
    auto_merge.digest.strip_prefix("off: ").map(|why| format!("auto-merge is off: {why}"))
}

fn pools(cycle: &Cycle, set: &PoolSet, run: &Run) -> Vec<PoolView> {
    let now = cycle.clock.now();
    cycle
        .config
        .pools()
        .iter()
        .map(|declared| {
            let pool = declared.to_pool();
            let record = run.pools.get(&pool.id).cloned().unwrap_or_default();
            let dropped = set.dropped.iter().find(|(id, _)| *id == pool.id).map(|(_, why)| why);
            let state = match (dropped, record.settled, record.paused) {
                (Some(Dropped::Excluded(_)), ..) => PoolState::Excluded,
                (_, Some(settle), _) if settle.until.is_none_or(|u| u > now) => {
                    PoolState::Settled {
                        until: settle.until,
                        outcome: settle.outcome,
                        evidence: settle.evidence,
                    }
                }
                (Some(why), ..) => PoolState::Unreachable { reason: why.to_string() },
                (_, _, Some(pause)) if pause.until > now => PoolState::Paused {
                    until: pause.until,
                    outcome: pause.outcome,
                    evidence: pause.evidence,
                },
                _ => PoolState::Usable,
            };
            PoolView {
                note: note(set, &pool.id, declared),
                id: pool.id,
                state,
                context_tokens: pool.context_tokens,
                usage: record.usage,
            }
        })
        .collect()
}

/// An agent's version, and whether its meter only learns of limits when they are hit.
fn note(set: &PoolSet, id: &PoolId, declared: &PoolConfig) -> Option<String> {
    let agent = set.ready.get(id)?.agent.clone()?;
    Some(if declared.address().is_some() {
        agent
    } else {
        format!("{agent}; it signs in by itself, so its limits are only seen when they are hit")
    })
}

/// One node's pull request.
pub(super) fn pull_request(
    cycle: &Cycle,
    run: &Run,
    node: &Node,
    receipt: &Receipt,
    base: &str,
    stacked_on: &[NodeId],
) -> PullRequestView {
    let number = |id: &NodeId| run.nodes.get(id).and_then(|n| n.pr.as_ref()).map(|pr| pr.number);
    PullRequestView {
        run: cycle.run_id().clone(),
        node: node.clone(),
        findings: node.findings.iter().filter_map(|id| cycle.plan.finding(id)).cloned().collect(),
        receipt: receipt.clone(),
        attempts: run.nodes.get(&node.id).map_or(1, |n| n.attempts),
        base: base.to_owned(),
        stacked_on: stacked_on.iter().map(|id| (id.clone(), number(id))).collect(),
        blob_url: cycle.forge.blob_url(),
        ci: cycle.forge.ci_mode(),
    }
}
