//! Node classes and their ready sets: who waits for which pools, in which order.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::meter::MeterIx;
use super::poolset::PoolSet;
use super::scheduler::{Class, Effect, Key, NodeState, Scheduler, gate_open};
use super::{Millis, select};

impl Class {
    /// The first `most` in order, then the smallest requests.
    pub(super) fn probes(&self, most: usize) -> Vec<u32> {
        let smallest = self.by_input.first().into_iter().chain(self.by_output.first());
        self.ready.iter().take(most).map(|k| k.2).chain(smallest.map(|s| s.1)).collect()
    }
}

impl Scheduler {
    pub(super) fn classify(&mut self, ix: usize) -> usize {
        let spec = &self.specs[ix];
        let mut fit = PoolSet::empty(self.pools.len());
        let mut held = PoolSet::empty(self.pools.len());
        for (p, state) in self.pools.iter().enumerate() {
            if !self.nodes[ix].shut.contains(&p)
                && select::fits(spec, &state.pool).is_ok()
                && self.node_over_budget(ix, p).is_none()
            {
                fit.insert(p);
                let work = &self.nodes[ix];
                if work.held_by(self.meter_of[p]).is_some() || work.tired_of(p).is_some() {
                    held.insert(p);
                }
            }
        }
        let key = (fit, held, spec.tier);
        if let Some(&class) = self.class_of.get(&key) {
            return class;
        }
        let class = self.classes.len();
        self.classes.push(Class {
            fit: key.0.clone(),
            held: key.1.clone(),
            floor: key.2,
            real_floor: key.2,
            eligible: Vec::new(),
            ready: BTreeSet::new(),
            by_input: BTreeSet::new(),
            by_output: BTreeSet::new(),
        });
        self.class_of.insert(key, class);
        self.refresh(class);
        class
    }

    /// Recomputes a class's eligible pools from the pools that are left.
    fn refresh(&mut self, class: usize) {
        let left: Vec<usize> =
            self.classes[class].fit.iter().filter(|&p| !self.health[p].is_out()).collect();
        let floor =
            select::floor_for(self.classes[class].floor, left.iter().map(|&p| &self.pools[p].pool));
        let pools = &self.pools;
        let class = &mut self.classes[class];
        class.real_floor = floor;
        let free = |&p: &usize| select::meets(&pools[p].pool, floor) && !class.held.contains(p);
        class.eligible = left.into_iter().filter(free).collect();
    }

    /// A node goes to the class of the pools that it may use now.
    pub(super) fn reclassify(&mut self, ix: u32) {
        let at = ix as usize;
        let ready = self.nodes[at].state == NodeState::Ready;
        if ready {
            self.leave_ready(ix);
        }
        self.nodes[at].class = self.classify(at);
        if ready {
            self.make_ready(ix);
        }
    }

    /// A node does not ask this meter before then: it has no room for its requests.
    pub(super) fn hold(&mut self, ix: u32, meter: MeterIx, until: Millis) {
        let held = &mut self.nodes[ix as usize].held;
        held.retain(|(other, _)| *other != meter);
        held.push((meter, until));
        self.returns.insert((until, ix));
        self.reclassify(ix);
    }

    /// A node leaves a pool alone until then, if it has another one that takes it; `false` if not.
    pub(super) fn rest(&mut self, ix: u32, pool: usize, until: Millis, now: Millis) -> bool {
        let work = &self.nodes[ix as usize];
        let eligible = &self.classes[work.class].eligible;
        if !eligible.iter().any(|&p| p != pool && gate_open(&self.health[p], now)) {
            return false;
        }
        let tired = &mut self.nodes[ix as usize].tired;
        tired.retain(|(other, _)| *other != pool);
        tired.push((pool, until));
        self.returns.insert((until, ix));
        self.leave_guide();
        self.reclassify(ix);
        true
    }

    /// Is there a pool in the set that takes the node, now or later?
    pub(super) fn is_taken_anywhere(&self, ix: usize) -> bool {
        let class = &self.classes[self.nodes[ix].class];
        let rests = class.fit.iter().any(|p| class.held.contains(p) && !self.health[p].is_out());
        rests || !class.eligible.is_empty()
    }

    /// Nodes ask the meters again that had no room for them until now.
    pub(super) fn ask_again(&mut self, now: Millis) {
        while let Some(&(at, ix)) = self.returns.first() {
            if at > now {
                break;
            }
            self.returns.pop_first();
            let work = &mut self.nodes[ix as usize];
            work.held.retain(|(_, until)| *until > now);
            work.tired.retain(|(_, until)| *until > now);
            self.reclassify(ix);
        }
    }

    pub(super) fn refresh_all(&mut self) {
        for class in 0..self.classes.len() {
            self.refresh(class);
        }
    }

    fn key(&self, ix: u32) -> Key {
        let at = ix as usize;
        (Reverse(self.nodes[at].rank), Reverse(self.specs[at].severity), ix)
    }

    pub(super) fn make_ready(&mut self, ix: u32) {
        let key = self.key(ix);
        let at = ix as usize;
        self.nodes[at].state = NodeState::Ready;
        let class = &mut self.classes[self.nodes[at].class];
        class.ready.insert(key);
        class.by_input.insert((self.specs[at].input_tokens, ix));
        class.by_output.insert((self.specs[at].output_tokens, ix));
    }

    pub(super) fn leave_ready(&mut self, ix: u32) {
        let key = self.key(ix);
        let at = ix as usize;
        let class = &mut self.classes[self.nodes[at].class];
        class.ready.remove(&key);
        class.by_input.remove(&(self.specs[at].input_tokens, ix));
        class.by_output.remove(&(self.specs[at].output_tokens, ix));
    }

    pub(super) fn release_dependents(&mut self, ix: u32) {
        let graph = Arc::clone(&self.graph);
        for edge in &graph.dependents[ix as usize] {
            self.dependency_over(edge.to);
        }
    }

    fn dependency_over(&mut self, ix: u32) {
        let work = &mut self.nodes[ix as usize];
        work.deps_left = work.deps_left.saturating_sub(1);
        if work.deps_left == 0 && work.state == NodeState::Waiting {
            self.make_ready(ix);
        }
    }

    pub(super) fn block_dependents(&mut self, ix: u32, effects: &mut Vec<Effect>) {
        let graph = Arc::clone(&self.graph);
        let mut stack = vec![ix];
        while let Some(failed) = stack.pop() {
            for edge in &graph.dependents[failed as usize] {
                let waits = self.nodes[edge.to as usize].state == NodeState::Waiting;
                if edge.hard && waits {
                    self.nodes[edge.to as usize].state = NodeState::Blocked;
                    effects.push(Effect::Blocked {
                        node: self.specs[edge.to as usize].id.clone(),
                        by: self.specs[ix as usize].id.clone(),
                    });
                    stack.push(edge.to);
                } else if !edge.hard {
                    self.dependency_over(edge.to);
                }
            }
        }
    }
}
