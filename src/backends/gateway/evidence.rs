//! What a gateway has seen, and the attempt's budgets.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Allowance, Lack, Refused, Seen};
use crate::backends::ModelSwitch;
use crate::model::{Classification, Outcome, Pool, Usage};

/// Most pairs of models that are kept.
const MAX_MODELS: usize = 16;

/// Which budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exhausted {
    /// The attempt's requests.
    Requests,
    /// The attempt's tokens.
    Tokens,
    /// The attempt's money.
    Money,
    /// The attempt's time.
    Time,
    /// The meters or a wider budget let nothing more through.
    Refused(Lack),
}

impl Exhausted {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Requests => "the attempt's request budget is used up",
            Self::Tokens => "the attempt's token budget is used up",
            Self::Money => "the attempt's budget of money is used up",
            Self::Time => "the attempt's time is over",
            Self::Refused(Lack::Room) => "the backend's windows have no room:",
            Self::Refused(Lack::Fit) => "the request exceeds the backend's window:",
            Self::Refused(Lack::Budget) => "a budget is used up:",
        }
    }
}

/// What was seen of an attempt's traffic.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Consumption; where an answer reported no tokens, what it was let through with.
    pub usage: Usage,
    /// The model that answered last, where the backend says.
    pub model_seen: Option<String>,
    /// Models as (asked for, answered), each pair once; the answer is empty where it names none.
    pub models: BTreeSet<(String, String)>,
    /// The reading of the last failure that no later success followed.
    pub failure: Option<Classification>,
    /// Failures of any kind.
    pub failures: u32,
    /// Answers without an error.
    pub successes: u32,
    /// The refusal of the meters or of a wider budget that ended it.
    pub refused: Option<Refused>,
    /// The budget that ended it.
    pub exhausted: Option<Exhausted>,
}

impl Evidence {
    /// How an attempt without a result ended, if a budget ended it. To be asked before the worker's
    /// own words, which only know that the gateway refused.
    #[must_use]
    pub fn ending(&self) -> Option<(Outcome, String)> {
        let over = self.exhausted?;
        let outcome = match over {
            Exhausted::Requests | Exhausted::Tokens | Exhausted::Money => Outcome::Error,
            Exhausted::Time => Outcome::Timeout,
            Exhausted::Refused(Lack::Fit) => Outcome::PacketTooLarge,
            // The caller knows that it refused; nothing is concluded from this outcome.
            Exhausted::Refused(Lack::Room | Lack::Budget) => Outcome::RateLimited,
        };
        let reason = self.refused.as_ref().map_or("", |r| r.reason.as_str());
        Some((outcome, format!("{} {reason}", over.text()).trim_end().to_owned()))
    }

    /// Whether another model than `pool`'s was asked for, or answered.
    #[must_use]
    pub fn switch(&self, pool: &str) -> Option<ModelSwitch> {
        self.models.iter().find_map(|(asked, answered)| ModelSwitch::between(pool, asked, answered))
    }

    /// What an attempt without a result ended by: a budget, else the failure that the backend
    /// really answered, else what the worker made of it.
    #[must_use]
    pub fn judge(
        &self,
        outcome: Outcome,
        reading: Option<Classification>,
        detail: String,
    ) -> (Outcome, Option<Classification>, String) {
        if let Some((outcome, detail)) = self.ending() {
            return (outcome, reading.filter(|r| r.outcome == outcome), detail);
        }
        match self.verdict() {
            // Our own deadline is no word of the backend.
            Some(seen) if outcome != Outcome::Timeout => {
                let detail = format!("the backend failed ({}): {}", seen.rule, seen.evidence);
                (seen.outcome, Some(seen.clone()), detail)
            }
            _ => (outcome, reading, detail),
        }
    }

    /// The reading that an attempt without a result should carry: a failure that the backend ended
    /// on, if it is one of the backend's making.
    #[must_use]
    pub fn verdict(&self) -> Option<&Classification> {
        self.failure.as_ref().filter(|c| !matches!(c.outcome, Outcome::Success))
    }
}

/// The evidence while it is being gathered.
#[derive(Debug)]
pub(super) struct Book {
    state: Mutex<State>,
    exhausted: CancellationToken,
    cost_per_mtok: f64,
    allowance: Allowance,
    deadline: Instant,
}

#[derive(Debug, Default)]
struct State {
    evidence: Evidence,
    /// Tokens counted against the budget: reported, else estimated.
    tokens: u64,
}

impl Book {
    pub(super) fn new(pool: &Pool, allowance: Allowance, now: Instant) -> Self {
        Self {
            state: Mutex::new(State::default()),
            exhausted: CancellationToken::new(),
            cost_per_mtok: pool.cost_per_mtok.unwrap_or(0.0),
            allowance,
            deadline: now + allowance.time,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn evidence(&self) -> Evidence {
        self.state().evidence.clone()
    }

    pub(super) fn exhausted(&self) -> CancellationToken {
        self.exhausted.clone()
    }

    /// The time that is left.
    pub(super) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Takes one request from the budget.
    pub(super) fn spend_request(&self) -> Result<(), Exhausted> {
        let mut state = self.state();
        let over = if self.remaining().is_zero() {
            Some(Exhausted::Time)
        } else if let Some(over) = state.evidence.exhausted {
            Some(over)
        } else if state.evidence.usage.requests >= self.allowance.requests {
            Some(Exhausted::Requests)
        } else if state.tokens >= self.allowance.tokens {
            Some(Exhausted::Tokens)
        } else {
            None
        };
        if let Some(over) = over {
            self.end(&mut state, over);
            return Err(over);
        }
        state.evidence.usage.requests += 1;
        Ok(())
    }

    fn end(&self, state: &mut State, over: Exhausted) {
        state.evidence.exhausted.get_or_insert(over);
        self.exhausted.cancel();
    }

    /// Time ran out while the request waited for room.
    pub(super) fn out_of_time(&self) -> Exhausted {
        let mut state = self.state();
        state.evidence.usage.requests = state.evidence.usage.requests.saturating_sub(1);
        self.end(&mut state, Exhausted::Time);
        Exhausted::Time
    }

    /// The meters had no room; the request was not sent.
    pub(super) fn refused(&self, refused: Refused) {
        let mut state = self.state();
        state.evidence.usage.requests = state.evidence.usage.requests.saturating_sub(1);
        let lack = refused.lack;
        state.evidence.refused = Some(refused);
        self.end(&mut state, Exhausted::Refused(lack));
    }

    pub(super) fn failed(&self, reading: Classification) {
        let mut state = self.state();
        state.evidence.failures += 1;
        state.evidence.failure = Some(reading);
    }

    /// An answer without an error is over.
    pub(super) fn succeeded(&self) {
        let mut state = self.state();
        state.evidence.successes += 1;
        state.evidence.failure = None;
    }

    /// Counts what an exchange used. Where an answer reports nothing it is taken to have used what it
    /// was let through with: nobody shall pass a budget by saying nothing.
    pub(super) fn count(
        &self,
        seen: &Seen,
        asked: &str,
        model: Option<String>,
        estimate: (u64, u64),
    ) {
        let mut state = self.state();
        if seen.status.is_some_and(|s| s < 400) && state.evidence.models.len() < MAX_MODELS {
            let answered = model.clone().unwrap_or_default();
            state.evidence.models.insert((asked.to_owned(), answered));
        }
        if model.is_some() {
            state.evidence.model_seen = model;
        }
        let silent = seen.failure.is_none() && seen.status.is_some_and(|s| s < 400);
        if let Some((input, output)) = seen.usage.or(silent.then_some(estimate)) {
            let mut more = Usage { input_tokens: input, output_tokens: output, ..Usage::default() };
            let declared = more.tokens() as f64 * self.cost_per_mtok / 1e6;
            more.cost_usd = seen.cost_usd.unwrap_or(declared);
            state.evidence.usage += more;
            state.tokens = state.tokens.saturating_add(more.tokens());
        } else if seen.status.is_some_and(|s| s < 400) {
            state.tokens = state.tokens.saturating_add(estimate.0.saturating_add(estimate.1));
        }
        if state.tokens >= self.allowance.tokens {
            self.end(&mut state, Exhausted::Tokens);
        } else if self.allowance.usd.is_some_and(|usd| state.evidence.usage.cost_usd >= usd) {
            self.end(&mut state, Exhausted::Money);
        }
    }
}
