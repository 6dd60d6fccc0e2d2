//! LLM calls over many models, and the limits they need.

use std::sync::Arc;

use ratelimiter::{
    Actuals, Capacity, HoldTimeout, Limit, LimitKey, LimitKind, Requirements, Window,
};

/// Most limits of one call.
pub const LIMITS_PER_CALL_MAX: usize = 4;
const DAY_SECONDS: u64 = 86_400;

/// Calls that need requests, tokens, a concurrency slot and daily tokens of a model, or only the first of these.
#[derive(Debug, Clone)]
pub struct Workload {
    /// The keys of these limits; `{model}` stands for the number of the model.
    pub keys: [String; LIMITS_PER_CALL_MAX],
    /// How many of the limits a call needs: 1 to 4.
    pub limits_per_call: usize,
    /// Of every limit.
    pub capacity: Capacity,
    /// Window of the limits on requests and tokens, in seconds.
    pub window_seconds: u64,
    /// Timeout of a concurrency slot, in seconds.
    pub hold_seconds: u64,
    /// Tokens that a call reserves.
    pub tokens_reserved: u64,
    /// Tokens that a call uses.
    pub tokens_used: u64,
}

/// What a call to one model reserves, and what it uses of its limits on tokens.
#[derive(Debug, Clone)]
#[expect(missing_docs, reason = "the types say it")]
pub struct Call {
    pub requirements: Requirements,
    pub actuals: Actuals,
}

/// The fields come from the program itself, so that a wrong one is a bug.
impl Workload {
    /// Keys of the limits that a call to a model needs.
    ///
    /// # Panics
    /// A key is invalid, or `limits_per_call` is not 1 to [`LIMITS_PER_CALL_MAX`].
    pub fn keys(&self, model: usize) -> Vec<LimitKey> {
        assert!((1..=LIMITS_PER_CALL_MAX).contains(&self.limits_per_call), "1 to 4 limits a call");
        let model = model.to_string();
        let key = |key: &String| LimitKey::new(key.replace("{model}", &model));
        let keys = self.keys.iter().take(self.limits_per_call);
        keys.map(|text| key(text).expect("a valid key")).collect()
    }

    /// The limits that a call to a model needs.
    ///
    /// # Panics
    /// A field is out of range.
    pub fn limits(&self, model: usize) -> Vec<Limit> {
        let rolling = |seconds| LimitKind::Rolling {
            window: Window::from_seconds(seconds).expect("a valid window"),
        };
        let short = rolling(self.window_seconds);
        let timeout = HoldTimeout::from_seconds(self.hold_seconds).expect("a valid timeout");
        let kinds = [short, short, LimitKind::Concurrency { timeout }, rolling(DAY_SECONDS)];
        let limits = self.keys(model).into_iter().zip(kinds);
        limits.map(|(key, kind)| Limit::new(key, kind, self.capacity)).collect()
    }

    /// A call to a model.
    ///
    /// # Panics
    /// As [`Workload::keys`].
    pub fn call(&self, model: usize) -> Call {
        let (keys, tokens) = (self.keys(model), self.tokens_reserved);
        let used = keys.iter().skip(1).step_by(2).map(|key| (key.clone(), self.tokens_used));
        let actuals = Actuals::of(used).expect("at most 2 keys, both different");
        let requirements = Requirements::of(keys.into_iter().zip([1, tokens, 1, tokens]));
        let requirements = requirements.expect("1 to 4 keys, all of them different");
        Call { requirements, actuals }
    }

    /// A call to each model.
    ///
    /// # Panics
    /// As [`Workload::keys`].
    pub fn calls(&self, model_count: usize) -> Arc<[Call]> {
        (0..model_count).map(|model| self.call(model)).collect()
    }
}
