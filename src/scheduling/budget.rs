//! Budgets: ceilings in requests, tokens and money, and what was taken from them.

use super::Estimate;
use super::scheduler::Scheduler;
use super::select;
use super::spec::PoolState;
use crate::model::Usage;

/// A ceiling in each dimension; none where absent.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ceiling {
    /// Requests.
    pub requests: Option<u64>,
    /// Tokens, input and output together.
    pub tokens: Option<u64>,
    /// US dollars.
    pub usd: Option<f64>,
}

/// The ceilings of a cycle.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Budgets {
    /// What is left of the run's.
    pub run: Ceiling,
    /// The cycle's.
    pub cycle: Ceiling,
    /// Each node's, all its attempts.
    pub node: Ceiling,
}

/// Consumption, or what is expected of it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Requests.
    pub requests: u64,
    /// Tokens, input and output together.
    pub tokens: u64,
    /// US dollars.
    pub usd: f64,
}

impl From<Usage> for Spent {
    fn from(usage: Usage) -> Self {
        Self { requests: usage.requests.into(), tokens: usage.tokens(), usd: usage.cost_usd }
    }
}

impl Spent {
    /// What is left of it without `other`.
    #[must_use]
    pub fn less(self, other: Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(other.requests),
            tokens: self.tokens.saturating_sub(other.tokens),
            usd: (self.usd - other.usd).max(0.0),
        }
    }

    /// The greater of both in each dimension.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            tokens: self.tokens.max(other.tokens),
            usd: self.usd.max(other.usd),
        }
    }

    fn get(self, dimension: usize) -> u64 {
        match dimension {
            0 => self.requests,
            1 => self.tokens,
            _ => cents(self.usd),
        }
    }
}

/// Money in hundredths of a cent, so that figures of any dimension are whole numbers.
fn cents(usd: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let cents = (usd * 10_000.0).round() as u64;
    cents
}

impl Ceiling {
    fn get(self, dimension: usize) -> u64 {
        match dimension {
            0 => self.requests,
            1 => self.tokens,
            _ => self.usd.map(cents),
        }
        .unwrap_or(u64::MAX)
    }

    /// What is left of it.
    #[must_use]
    pub fn less(self, spent: Spent) -> Self {
        Self {
            requests: self.requests.map(|r| r.saturating_sub(spent.requests)),
            tokens: self.tokens.map(|t| t.saturating_sub(spent.tokens)),
            usd: self.usd.map(|usd| (usd - spent.usd).max(0.0)),
        }
    }
}

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The run's.
    Run,
    /// The cycle's.
    Cycle,
    /// The node's.
    Node,
}

/// A budget that does not let something through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverBudget {
    /// Whose.
    pub scope: Scope,
    dimension: usize,
    need: u64,
    spent: u64,
    ceiling: u64,
}

impl OverBudget {
    #[cfg(test)]
    pub(super) fn of(scope: Scope) -> Self {
        Self { scope, dimension: 0, need: 1, spent: 1, ceiling: 1 }
    }

    /// More is needed than the whole of it: time does not help.
    #[must_use]
    pub fn is_too_small(self) -> bool {
        self.need > self.ceiling
    }

    /// In words, with the figures.
    #[must_use]
    pub fn text(self) -> String {
        let whose = match self.scope {
            Scope::Run => "run",
            Scope::Cycle => "cycle",
            Scope::Node => "node",
        };
        let what = ["requests", "tokens", "money"][self.dimension.min(2)];
        let (need, ceiling) = (self.figure(self.need), self.figure(self.ceiling));
        let spent_by_it = self.scope != Scope::Cycle && self.spent > 0;
        if self.is_too_small() && self.scope != Scope::Run && !spent_by_it {
            return format!(
                "needs {need} at least, and the {whose}'s budget of {what} is {ceiling}: \
                 waiting will not help, raise `dispatch.budget.{whose}-{}`",
                ["requests", "tokens", "usd"][self.dimension.min(2)]
            );
        }
        let again = if self.scope == Scope::Cycle { "; the next cycle has a new one" } else { "" };
        let text = format!("the {whose}'s budget of {what} is used up{again}");
        match self.ceiling.saturating_sub(self.spent) {
            0 => text,
            left => format!("{text} ({need} needed, {} left)", self.figure(left)),
        }
    }

    fn figure(self, amount: u64) -> String {
        if self.dimension < 2 {
            return amount.to_string();
        }
        #[expect(clippy::cast_precision_loss, reason = "for people")]
        let usd = amount as f64 / 10_000.0;
        format!("{usd:.4} US dollars")
    }
}

/// One ceiling and what was taken from it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purse {
    ceiling: Ceiling,
    spent: Spent,
    /// By dimension: something was refused. Nothing new is started then, lest it is started again
    /// and again for what does not fit.
    gone: [bool; 3],
}

impl Purse {
    pub(super) fn new(ceiling: Ceiling, spent: Spent) -> Self {
        Self { ceiling, spent, gone: [false; 3] }
    }

    /// The dimension in which `more` does not fit. Money that is gone keeps nothing free out.
    fn lack(&self, more: Spent) -> Option<usize> {
        let over = |limit: Option<u64>, spent: u64, more: u64| {
            limit.is_some_and(|limit| spent.saturating_add(more) > limit)
        };
        let c = &self.ceiling;
        if over(c.requests, self.spent.requests, more.requests) {
            Some(0)
        } else if over(c.tokens, self.spent.tokens, more.tokens) {
            Some(1)
        } else if more.usd > 0.0 && c.usd.is_some_and(|usd| self.spent.usd + more.usd > usd) {
            Some(2)
        } else {
            None
        }
    }

    /// The same with the figures, for people.
    fn over(&self, dimension: usize, more: Spent, scope: Scope) -> OverBudget {
        OverBudget {
            scope,
            dimension,
            need: more.get(dimension),
            spent: self.spent.get(dimension),
            ceiling: self.ceiling.get(dimension),
        }
    }

    /// The same for something new.
    fn lack_for_start(&self, more: Spent) -> Option<usize> {
        let gone = |dimension: usize| self.gone[dimension] && (dimension != 2 || more.usd > 0.0);
        (0..3).find(|d| gone(*d)).or_else(|| self.lack(more))
    }

    fn take(&mut self, more: Spent) {
        self.spent.requests = self.spent.requests.saturating_add(more.requests);
        self.spent.tokens = self.spent.tokens.saturating_add(more.tokens);
        self.spent.usd += more.usd;
    }

    fn give_back(&mut self, less: Spent) {
        self.spent.requests = self.spent.requests.saturating_sub(less.requests);
        self.spent.tokens = self.spent.tokens.saturating_sub(less.tokens);
        self.spent.usd -= less.usd;
    }
}

/// The purses of the cycle: the run's and its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Purses([Purse; 2]);

impl Purses {
    pub(super) fn new(budgets: &Budgets) -> Self {
        Self([budgets.run, budgets.cycle].map(|ceiling| Purse::new(ceiling, Spent::default())))
    }
}

const SCOPES: [Scope; 2] = [Scope::Run, Scope::Cycle];

/// What one request is expected to take.
pub(super) fn expected(pool: &PoolState, need: Estimate) -> Spent {
    Spent {
        requests: 1,
        tokens: need.input_tokens.saturating_add(need.output_tokens),
        usd: select::cost(pool, need).unwrap_or(0.0),
    }
}

impl Scheduler {
    /// What an attempt of the node on this pool is expected to take at least.
    pub(super) fn price(&self, node: usize, pool: usize) -> Spent {
        let (spec, state) = (&self.specs[node], &self.pools[pool]);
        let first = expected(state, select::estimate(spec, &state.pool));
        let took = spec.took;
        // What was paid elsewhere is no price of a free pool.
        let usd = if first.usd > 0.0 { took.usd } else { 0.0 };
        first.max(Spent { usd, ..took })
    }

    /// The budget of run or cycle that an attempt of the node on this pool does not fit into.
    pub(super) fn over_budget(&self, node: usize, pool: usize) -> Option<OverBudget> {
        let more = self.price(node, pool);
        let lack = |(purse, scope): (&Purse, Scope)| {
            purse.lack_for_start(more).map(|dimension| purse.over(dimension, more, scope))
        };
        self.purses.0.iter().zip(SCOPES).find_map(lack)
    }

    /// Do run and cycle afford it?
    pub(super) fn affordable(&self, node: usize, pool: usize) -> bool {
        self.over_budget(node, pool).is_none()
    }

    /// The node's own budget, where an attempt on this pool does not fit into it.
    pub(super) fn node_over_budget(&self, node: usize, pool: usize) -> Option<OverBudget> {
        let (more, purse) = (self.price(node, pool), &self.nodes[node].purse);
        let dimension = purse.lack_for_start(more)?;
        Some(purse.over(dimension, more, Scope::Node))
    }

    /// The budget that has too little left for a request.
    pub(super) fn lacks(&self, node: usize, more: Spent) -> Option<OverBudget> {
        let wider = self.purses.0.iter().zip(SCOPES);
        let mut all = wider.chain([(&self.nodes[node].purse, Scope::Node)]);
        all.find_map(|(purse, scope)| {
            purse.lack(more).map(|dimension| purse.over(dimension, more, scope))
        })
    }

    /// A request was refused for want of this: nothing new is started on it. One that is larger than
    /// the whole of it says nothing about what is left for others.
    pub(super) fn used_up(&mut self, node: usize, over: OverBudget) {
        if over.is_too_small() && over.scope != Scope::Node {
            return;
        }
        let purse = match over.scope {
            Scope::Run => &mut self.purses.0[0],
            Scope::Cycle => &mut self.purses.0[1],
            Scope::Node => &mut self.nodes[node].purse,
        };
        purse.gone[over.dimension] = true;
    }

    pub(super) fn take(&mut self, node: usize, more: Spent) {
        for purse in &mut self.purses.0 {
            purse.take(more);
        }
        self.nodes[node].purse.take(more);
    }

    pub(super) fn give_back(&mut self, node: usize, less: Spent) {
        for purse in &mut self.purses.0 {
            purse.give_back(less);
        }
        self.nodes[node].purse.give_back(less);
    }

    /// A pool that was declared free charges this much per million tokens: it counts as that dear
    /// from here on.
    pub(super) fn charges(&mut self, pool: usize, tokens: u64, usd: f64) {
        let state = &self.pools[pool];
        if state.pool.cost_per_mtok != Some(0.0) || usd <= 0.0 || tokens == 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "a price")]
        let per_mtok = usd * 1.0e6 / tokens as f64;
        let id = state.pool.id.clone();
        std::sync::Arc::make_mut(&mut self.pools)[pool].pool.cost_per_mtok = Some(per_mtok);
        self.leave_guide();
        self.drifts.push((id, per_mtok));
    }

    /// Pools that were declared free and have charged since the last call, with their price in US
    /// dollars per million tokens.
    pub fn drifts(&mut self) -> Vec<(crate::model::PoolId, f64)> {
        std::mem::take(&mut self.drifts)
    }
}
