//! Usage: the tokens, calls and costs of a session, and by what route they were spent.

use crate::value::{Value, value_setters};

/// What some work has used. What is not set is absent: it adds nothing, and as a total leaves what is stored.
///
/// Token counts and calls are numbers, costs are US dollars.
///
/// ```
/// use hermes_state::Usage;
/// let usage = Usage::new("large-1", "harbour-cloud").input_tokens(1200).output_tokens(80).api_call_count(1);
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Usage {
    pub(crate) model: Value,
    pub(crate) billing_provider: Value,
    pub(crate) billing_base_url: Value,
    pub(crate) billing_mode: Value,
    pub(crate) input_tokens: Value,
    pub(crate) output_tokens: Value,
    pub(crate) cache_read_tokens: Value,
    pub(crate) cache_write_tokens: Value,
    pub(crate) reasoning_tokens: Value,
    pub(crate) api_call_count: Value,
    pub(crate) estimated_cost_usd: Value,
    pub(crate) actual_cost_usd: Value,
    pub(crate) cost_status: Value,
    pub(crate) cost_source: Value,
    pub(crate) pricing_version: Value,
}

impl Usage {
    /// Of this model at this provider; either may be absent (`None::<&str>`).
    #[must_use]
    pub fn new(model: impl Into<Value>, billing_provider: impl Into<Value>) -> Self {
        Self { model: model.into(), billing_provider: billing_provider.into(), ..Self::default() }
    }

    value_setters! {
        /// The address that was billed.
        billing_base_url
        /// How it is billed: by subscription, by use, …
        billing_mode
        /// Tokens read by the model.
        input_tokens
        /// Tokens written by the model.
        output_tokens
        /// Tokens read from the provider's cache.
        cache_read_tokens
        /// Tokens written to the provider's cache.
        cache_write_tokens
        /// Tokens spent on reasoning.
        reasoning_tokens
        /// Calls of the model.
        api_call_count
        /// What it should cost.
        estimated_cost_usd
        /// What it did cost.
        actual_cost_usd
        /// How sure the cost is.
        cost_status
        /// Where the cost is from.
        cost_source
        /// By which price list the cost was estimated.
        pricing_version
    }

    /// The counters in the order of [`COUNTERS`].
    pub(crate) fn counters(&self) -> [&Value; 6] {
        [
            &self.input_tokens,
            &self.output_tokens,
            &self.cache_read_tokens,
            &self.cache_write_tokens,
            &self.reasoning_tokens,
            &self.api_call_count,
        ]
    }

    /// Whether anything was used at all.
    pub(crate) fn is_accounted(&self) -> bool {
        let costs = [&self.estimated_cost_usd, &self.actual_cost_usd];
        self.counters().into_iter().chain(costs).any(|value| !value.is_falsy())
    }
}

/// The columns that count, in the sessions table and in the table of usage by model alike.
pub(crate) const COUNTERS: [&str; 6] =
    ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "api_call_count"];
