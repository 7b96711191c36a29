//! The end of an attempt: what it does to the pool, to the node and to its dependents.

use super::budget::{Spent, expected};
use super::outcome::{Finish, PoolEffect, burn, pool_effect, refused_here};
use super::pass::ASTRAY;
use super::scheduler::{Effect, Finished, NodeState, Running, Scheduler};
use super::{Estimate, Millis};
use crate::ledger::Burn;
use crate::model::{NodeId, Outcome, Usage};

/// Delay before a node that failed twice in a row by the world's fault is tried again; doubles.
const RETRY_DELAY: Millis = 60_000;

/// Failed probes that do not count against the node; beyond, it may be the node after all.
const FREE_PROBES: u32 = 3;

impl Scheduler {
    /// Takes a node off its pool. Without an end that is known, a probe has said nothing and what was
    /// booked at its start is free again, as in the ledger; the windows keep the estimate.
    fn stop(&mut self, ix: u32, finish: Option<&Finish>) -> Option<Running> {
        let work = &mut self.nodes[ix as usize];
        let running = work.running.take()?;
        self.room = None;
        let meter = self.meter_of[running.pool];
        self.ends[meter.0].remove(&(running.expected_end, ix));
        self.running -= usize::from(!running.adopted);
        self.meters.release(meter);
        let usage = finish.and_then(|f| f.usage);
        let used = usage
            .map(|u| Estimate { input_tokens: u.input_tokens, output_tokens: u.output_tokens });
        if let Some(reservation) = running.reservation {
            self.meters.settle(reservation, used);
            if let (Some(usage), Some(used)) = (usage, used) {
                let priced = expected(&self.pools[running.pool], used).usd;
                let real = Spent { usd: usage.cost_usd.max(priced), ..Spent::from(usage) };
                self.give_back(ix as usize, running.booked);
                self.take(ix as usize, real);
                self.charges(running.pool, real.tokens, usage.cost_usd);
            }
        }
        // What its requests did not take of what was promised; above, the rest was given back.
        if finish.is_none() || running.reservation.is_none() {
            self.give_back(ix as usize, running.booked);
        }
        if finish.is_none() && running.probe {
            self.health[running.pool].probe_over();
        }
        Some(running)
    }

    /// An attempt ended. An unknown node, or one that does not run, changes nothing: only what was
    /// dispatched can fail.
    pub fn finished(&mut self, node: &NodeId, finish: &Finish, now: Millis) -> Option<Finished> {
        let ix = self.node_ix(node)?;
        let running = self.stop(ix, Some(finish))?;
        // One that no gateway admitted was booked as one request; it may have sent more.
        if running.reservation.is_some() {
            let more = finish.usage.map_or(0, |u| u64::from(u.requests).saturating_sub(1));
            self.meters.sent(self.meter_of[running.pool], now, more);
        }
        let mut effects = Vec::new();
        self.judge_pool(&running, finish, now, &mut effects);
        let burn = match burn(finish.outcome) {
            // A probe's failure tells about the pool.
            Burn::Infrastructure
                if running.probe && self.nodes[ix as usize].free_probes < FREE_PROBES =>
            {
                self.nodes[ix as usize].free_probes += 1;
                Burn::None
            }
            burn => burn,
        };
        let at = ix as usize;
        let elsewhere = finish.outcome == Outcome::PacketTooLarge || refused_here(finish.outcome);
        let pool_is_out =
            effects.iter().any(|e| matches!(e, Effect::Paused { .. } | Effect::Settled { .. }));
        if elsewhere || pool_is_out {
            self.leave_guide();
        }
        if finish.outcome == Outcome::Success {
            if !running.adopted {
                // The time of another job tells more of its queue than of the pool.
                let (expected, real) = (self.declared(at, running.pool), now - running.started_at);
                if real.saturating_mul(ASTRAY) < expected || expected.saturating_mul(ASTRAY) < real
                {
                    self.leave_guide();
                }
                self.pace[running.pool].add(expected, real);
            }
            self.nodes[at].infra_row = 0;
            self.nodes[at].state = NodeState::Landing;
        } else {
            if finish.outcome == Outcome::PacketTooLarge {
                effects.push(Effect::Banned {
                    node: node.clone(),
                    pool: self.pools[running.pool].pool.id.clone(),
                    tokens: self.specs[at].input_tokens,
                });
            }
            if elsewhere {
                self.nodes[at].shut.push(running.pool);
                self.nodes[at].class = self.classify(at);
            }
            self.requeue(ix, Some(running.pool), burn, now, &mut effects);
        }
        Some(Finished { state: self.nodes[at].state, burn, effects })
    }

    /// Looks again which pools the node's own budget affords; true when it affords fewer than fit.
    fn reckon(&mut self, ix: u32) -> bool {
        let at = ix as usize;
        let short = (0..self.pools.len()).any(|p| self.node_over_budget(at, p).is_some());
        if short {
            self.nodes[at].class = self.classify(at);
        }
        short
    }

    /// Back to the queue, or out when its budget is used up.
    fn requeue(
        &mut self,
        ix: u32,
        pool: Option<usize>,
        burn: Burn,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let at = ix as usize;
        let work = &mut self.nodes[at];
        match burn {
            Burn::None => {}
            Burn::Contract => {
                work.contract += 1;
                work.infra_row = 0;
            }
            Burn::Infrastructure => {
                work.infra += 1;
                work.infra_row += 1;
            }
        }
        let out_of_budget = self.reckon(ix);
        // A pool that is settled or has no room now has not refused it.
        let refused_everywhere = burn == Burn::Contract
            && !out_of_budget
            && self.classes[self.nodes[at].class].fit.is_empty()
            && !self.is_taken_anywhere(at);
        let work = &mut self.nodes[at];
        let limits = self.options.attempts;
        if work.contract >= limits.contract
            || work.infra >= limits.infrastructure
            || refused_everywhere
        {
            work.state = NodeState::Failed;
            self.block_dependents(ix, effects);
            return;
        }
        let row = if burn == Burn::Infrastructure { work.infra_row } else { 0 };
        let until = now + (RETRY_DELAY << row.saturating_sub(2).min(6));
        // The delay belongs to the pool that failed: another one may take the node at once.
        let may_rest = row > 1 || (row == 1 && self.guide.is_none());
        let elsewhere = may_rest && pool.is_some_and(|pool| self.rest(ix, pool, until, now));
        let work = &mut self.nodes[at];
        if row > 1 && !elsewhere {
            work.state = NodeState::Delayed(until);
            self.delayed.insert((until, ix));
        } else {
            self.make_ready(ix);
        }
    }

    fn judge_pool(
        &mut self,
        running: &Running,
        finish: &Finish,
        now: Millis,
        effects: &mut Vec<Effect>,
    ) {
        let (ix, meter) = (running.pool, self.meter_of[running.pool]);
        let pool = self.pools[ix].pool.id.clone();
        let outcome = finish.outcome;
        match pool_effect(outcome) {
            PoolEffect::Healthy => {
                self.meters.succeeded(meter, running.started_at, now);
                if self.health[ix].succeeded(running.started_at) {
                    effects.push(Effect::Restored { pool });
                    self.refresh_all();
                }
            }
            PoolEffect::Untouched => self.health[ix].probe_over(),
            PoolEffect::Paused => {
                let known = finish.reset_at.is_some();
                if let Some(limits) = self.meters.limit_hit(meter, running.started_at, now, known) {
                    effects.push(Effect::Learned { pool: pool.clone(), limits });
                }
                if let Some((until, step)) =
                    self.health[ix].limited(outcome, running.started_at, finish.reset_at, now)
                {
                    effects.push(Effect::Paused { pool, until, step, outcome });
                }
            }
            PoolEffect::Settled => {
                // Several attempts in flight settle the pool once.
                let health = &self.health[ix];
                if !(health.is_out() || (finish.temporary && health.is_settled(now))) {
                    let settled =
                        self.health[ix].settle(outcome, finish.temporary, finish.reset_at, now);
                    effects.push(Effect::Settled { pool, settled });
                    self.refresh_all();
                }
            }
            PoolEffect::Suspect => {
                if let Some(until) = self.health[ix].failed(outcome, now) {
                    effects.push(Effect::Paused { pool, until, step: 0, outcome });
                }
            }
        }
    }

    /// The node was accepted or is satisfied: its dependents may run.
    pub fn landed(&mut self, node: &NodeId) {
        if let Some(ix) = self.node_ix(node)
            && !matches!(self.nodes[ix as usize].state, NodeState::Done | NodeState::Running)
        {
            self.withdraw(ix);
            self.nodes[ix as usize].state = NodeState::Done;
            self.release_dependents(ix);
        }
    }

    /// The attempt was stopped by us: nothing is learned, nothing is burnt.
    pub fn cancelled(&mut self, node: &NodeId) {
        self.again(node, None);
    }

    /// The attempt ended well and in vain: the world had moved on. What it used counts.
    pub fn in_vain(&mut self, node: &NodeId, usage: Usage) {
        let finish = Finish { usage: Some(usage), ..Finish::new(Outcome::Success) };
        self.again(node, Some(&finish));
    }

    fn again(&mut self, node: &NodeId, finish: Option<&Finish>) {
        if let Some(ix) = self.node_ix(node)
            && let Some(running) = self.stop(ix, finish)
        {
            if running.probe {
                self.health[running.pool].probe_over();
            }
            self.reckon(ix);
            self.make_ready(ix);
        }
    }

    /// There was no room for the attempt's next request: nothing is learned, nothing is burnt, and
    /// the node does not ask the pools of that meter before then. Others may take it at once.
    pub fn held_back(&mut self, node: &NodeId, until: Millis) {
        let Some(ix) = self.node_ix(node) else { return };
        let pool = self.nodes[ix as usize].running.map(|running| running.pool);
        self.cancelled(node);
        if let Some(pool) = pool {
            self.leave_guide();
            self.hold(ix, self.meter_of[pool], until);
        }
    }

    /// Another owner has it, or a person took it out: never started here. `failed` blocks its hard
    /// dependents.
    pub fn take_out(&mut self, node: &NodeId, failed: bool) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.leave_guide();
        if let Some(ix) = self.node_ix(node) {
            self.withdraw(ix);
            if failed {
                self.nodes[ix as usize].state = NodeState::Failed;
                self.block_dependents(ix, &mut effects);
            } else {
                self.nodes[ix as usize].state = NodeState::Elsewhere;
            }
        }
        effects
    }

    fn withdraw(&mut self, ix: u32) {
        match self.nodes[ix as usize].state {
            NodeState::Ready => self.leave_ready(ix),
            NodeState::Delayed(until) => {
                self.delayed.remove(&(until, ix));
            }
            NodeState::Running => {
                self.stop(ix, None);
            }
            _ => {}
        }
    }
}
