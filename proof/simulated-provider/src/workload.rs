//! Calls of mixed size.

use ratelimiter_client::LlmRequest;

use super::provider::SimulatedCall;

/// The bytes per token of English text, approximately.
const BYTES_PER_TOKEN: usize = 4;

/// Calls of mixed size to one model: many small ones, some large ones. The same seed makes the same calls.
#[derive(Debug, Clone)]
pub struct Workload {
    provider: String,
    tenants: usize,
    random: fastrand::Rng,
    made: usize,
}

impl Workload {
    /// Calls to the model `m` of this provider, for `tenants` tenants.
    ///
    /// # Panics
    /// If `tenants` is 0.
    pub fn new(provider: &str, tenants: usize, seed: u64) -> Self {
        assert!(tenants > 0, "every call has a tenant");
        let random = fastrand::Rng::with_seed(seed);
        Self { provider: provider.to_owned(), tenants, random, made: 0 }
    }
}

impl Iterator for Workload {
    type Item = (LlmRequest, SimulatedCall);

    fn next(&mut self) -> Option<Self::Item> {
        let random = &mut self.random;
        let prompt_tokens = match random.u8(..10) {
            0 => random.u64(800..3_000),
            1..4 => random.u64(200..800),
            _ => random.u64(20..200),
        };
        let max_output_tokens = random.u64(64..512);
        let output_tokens = random.u64(max_output_tokens / 3..=max_output_tokens);
        let bytes = usize::try_from(prompt_tokens).expect("a small number") * BYTES_PER_TOKEN;
        let request = LlmRequest {
            tenant: format!("tenant-{}", self.made % self.tenants),
            provider: self.provider.clone(),
            model: "m".to_owned(),
            prompt: "x".repeat(bytes),
            max_output_tokens,
            want_daily_budget: false,
        };
        self.made += 1;
        Some((request, SimulatedCall { prompt_tokens, output_tokens, max_output_tokens }))
    }
}
