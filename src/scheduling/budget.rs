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
        Self {
            requests: usage.requests.into(),
            tokens: usage.tokens(),
            usd: usage.cost_usd,
        }
    }
}

impl Ceiling {
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
}

impl OverBudget {
    #[cfg(test)]
    pub(super) fn of(scope: Scope) -> Self {
        Self { scope, dimension: 0 }
    }

    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        const WORDS: [[&str; 3]; 3] = [
            [
                "the run's budget of requests is used up",
                "the run's budget of tokens is used up",
                "the run's budget of money is used up",
            ],
            [
                "the cycle's budget of requests is used up; the next cycle has a new one",
                "the cycle's budget of tokens is used up; the next cycle has a new one",
                "the cycle's budget of money is used up; the next cycle has a new one",
            ],
            [
                "the node's budget of requests is used up",
                "the node's budget of tokens is used up",
                "the node's budget of money is used up",
            ],
        ];
        let row = match self.scope {
            Scope::Run => 0,
            Scope::Cycle => 1,
            Scope::Node => 2,
        };
        WORDS[row].get(self.dimension).copied().unwrap_or(WORDS[row][0])
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
    /// The budget of run or cycle that an attempt on this pool does not fit into.
    pub(super) fn over_budget(&self, pool: usize, need: Estimate) -> Option<OverBudget> {
        let more = expected(&self.pools[pool], need);
        let lack = |(purse, scope): (&Purse, Scope)| {
            purse.lack_for_start(more).map(|dimension| OverBudget { scope, dimension })
        };
        self.purses.0.iter().zip(SCOPES).find_map(lack)
    }

    /// Do run and cycle afford it?
    pub(super) fn affordable(&self, pool: usize, need: Estimate) -> bool {
        self.over_budget(pool, need).is_none()
    }

    /// The node's own budget, where an attempt on this pool does not fit into it.
    pub(super) fn node_over_budget(&self, node: usize, pool: usize) -> Option<OverBudget> {
        let need = select::estimate(&self.specs[node], &self.pools[pool].pool);
        let dimension = self.nodes[node].purse.lack_for_start(expected(&self.pools[pool], need))?;
        Some(OverBudget { scope: Scope::Node, dimension })
    }

    /// Takes a request's expected consumption from every budget, or says which one has too little
    /// left; nothing new is started on that one then.
    pub(super) fn take_request(&mut self, node: usize, more: Spent) -> Result<(), OverBudget> {
        let over = |purse: &mut Purse, scope| match purse.lack(more) {
            None => Ok(()),
            Some(dimension) => {
                purse.gone[dimension] = true;
                Err(OverBudget { scope, dimension })
            }
        };
        for (purse, scope) in self.purses.0.iter_mut().zip(SCOPES) {
            over(purse, scope)?;
        }
        over(&mut self.nodes[node].purse, Scope::Node)?;
        self.take(node, more);
        Ok(())
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
