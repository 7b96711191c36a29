//! The run as the templates show it, filled from the fold, the plan and the configuration.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::context::Cycle;
use super::next_step::Status;
use super::pools::PoolSet;
use super::{land, names};
use crate::config::{Config, PoolConfig};
use crate::ledger::{Event, Landing, Made, NodeRecord, NodeState, PauseCause, Receipt, Run};
use crate::model::{Node, NodeId, Plan, PoolId, RunId};
use crate::report::history::{counted, moments, spans};
use crate::report::view::{
    Ceiling, NodeDetail, NodeView, PoolState, PoolView, PullRequestView, ReportView, RunView,
};
use crate::scheduling::pools::Dropped;

/// The whole run, as a cycle sees it.
pub(super) fn run(cycle: &Cycle, set: &PoolSet, status: Status) -> RunView {
    let run = cycle.journal.state().clone();
    let facts = Facts::of(cycle, &run, set);
    let status = serde_json::to_value(status).ok();
    let status = status.and_then(|v| v.as_str().map(str::to_owned)).unwrap_or_default();
    RunView {
        workflow_url: cycle.woken.url.clone(),
        ceilings: ceilings(cycle, &run),
        sandbox_missing: cycle
            .walls
            .missing(&cycle.config)
            .map(|layer| (layer.name.to_owned(), layer.detail.clone()))
            .collect(),
        timeline: moments(&cycle.journal.own_events()),
        ..facts.view(&cycle.states(), status)
    }
}

/// What a view of a run is made of.
pub(super) struct Facts<'a> {
    pub id: &'a RunId,
    pub run: &'a Run,
    pub plan: &'a Plan,
    pub config: &'a Config,
    pub base_branch: &'a str,
    pub now: Timestamp,
    /// Pools that this process can't use.
    pub dropped: &'a [(PoolId, Dropped)],
    /// Pools that this process uses; none where it only looks.
    pub ready: Option<&'a PoolSet>,
}

impl<'a> Facts<'a> {
    /// As a cycle knows them.
    pub(super) fn of(cycle: &'a Cycle, run: &'a Run, set: &'a PoolSet) -> Self {
        Self {
            id: cycle.run_id(),
            run,
            plan: &cycle.plan,
            config: &cycle.config,
            base_branch: &cycle.base.branch,
            now: cycle.clock.now(),
            dropped: &set.dropped,
            ready: Some(set),
        }
    }

    /// The run.
    pub(super) fn view(&self, states: &BTreeMap<NodeId, NodeState>, status: String) -> RunView {
        let run = self.run;
        let coverage = &self.plan.coverage;
        let nodes = self.plan.nodes.iter();
        let nodes = nodes.map(|node| node_view(run, node, states.get(&node.id).copied()));
        RunView {
            run: self.id.clone(),
            status,
            base_branch: self.base_branch.to_owned(),
            now: self.now,
            heartbeat: run.heartbeat,
            next_cycle: None,
            workflow_url: None,
            nodes: nodes.collect(),
            pools: pools(self),
            paused_by: run
                .pause
                .as_ref()
                .filter(|p| p.cause == PauseCause::Operator)
                .and_then(|p| p.by.clone()),
            pause: run.pause.clone(),
            findings: (coverage.total, coverage.in_nodes, coverage.dropped),
            usage: run.usage,
            budget_usd: self.config.dispatch.budget.usd.map(|usd| usd + run.extra_budget_usd),
            friction: run.friction.clone(),
            ceilings: Vec::new(),
            sandbox_missing: Vec::new(),
            timeline: Vec::new(),
        }
    }

    /// Everything, for the HTML report.
    pub(super) fn report(
        &self,
        states: &BTreeMap<NodeId, NodeState>,
        status: String,
        events: Vec<Event>,
    ) -> ReportView {
        let events = counted(events);
        let detail = |node: &Node| {
            let record = self.run.nodes.get(&node.id);
            let landed = record.map(|r| &r.landing);
            NodeDetail {
                findings: node
                    .findings
                    .iter()
                    .filter_map(|id| self.plan.finding(id))
                    .cloned()
                    .collect(),
                receipt: match landed {
                    Some(Landing::Accepted { receipt, .. }) => Some((**receipt).clone()),
                    _ => None,
                },
                failures: record.map(|r| r.failures.clone()).unwrap_or_default(),
                usage: record.map(|r| r.usage).unwrap_or_default(),
            }
        };
        // A run that has ended knows no later time than its last event.
        let ended = self.run.closed.is_some() || self.run.cancelled.is_some();
        let last = events.last().map(|e| e.at).filter(|_| ended);
        ReportView {
            run: RunView { timeline: moments(&events), ..self.view(states, status) },
            spans: spans(&events, last.unwrap_or(self.now)),
            details: self.plan.nodes.iter().map(detail).collect(),
        }
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
pub(super) fn noise_day(now: Timestamp) -> Timestamp {
    now.checked_sub(jiff::SignedDuration::from_hours(24)).unwrap_or(Timestamp::MIN)
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

fn pools(facts: &Facts<'_>) -> Vec<PoolView> {
    let now = facts.now;
    facts
        .config
        .pools()
        .iter()
        .map(|declared| {
            let pool = declared.to_pool();
            let record = facts.run.pools.get(&pool.id).cloned().unwrap_or_default();
            let dropped = facts.dropped.iter().find(|(id, _)| *id == pool.id).map(|(_, why)| why);
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
                note: facts.ready.and_then(|set| note(set, &pool.id, declared)),
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
