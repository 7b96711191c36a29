//! What an attempt consumed.

use serde::{Deserialize, Serialize};

/// Reported (or, where nothing was reported, zero) consumption of one attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct Usage {
    /// Requests to the backend.
    pub requests: u32,
    /// Input tokens.
    pub input_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
    /// US dollars, where the backend or the pool's declared cost says.
    pub cost_usd: f64,
}

/// More tokens than any request has; what is said beyond, by a backend or by a worker, is cut there.
pub const MOST_TOKENS: u64 = 1 << 32;
/// The same for US dollars.
pub const MOST_USD: f64 = 1e6;

impl Usage {
    /// Input and output tokens together.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The greater of both in each dimension.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            requests: self.requests.max(other.requests),
            input_tokens: self.input_tokens.max(other.input_tokens),
            output_tokens: self.output_tokens.max(other.output_tokens),
            cost_usd: self.cost_usd.max(other.cost_usd),
        }
    }
}

/// Sums end at the top and never begin anew below: what was used is said by others.
impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        // No ledger could hold infinity.
        self.cost_usd = (self.cost_usd + other.cost_usd).min(f64::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::Usage;

    #[test]
    fn a_sum_does_not_begin_anew() {
        let absurd = Usage {
            requests: u32::MAX,
            input_tokens: 1 << 63,
            output_tokens: u64::MAX,
            cost_usd: f64::MAX,
        };
        let mut sum = absurd;
        sum += absurd;
        sum += absurd;
        assert_eq!((sum.requests, sum.input_tokens), (u32::MAX, u64::MAX));
        assert!(sum.cost_usd.is_finite());
        assert_eq!((sum.output_tokens, sum.tokens()), (u64::MAX, u64::MAX));
    }
}
