//! The simulated provider and its limits.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ratelimiter::{
    Capacity, HoldTimeout, KeyError, Limit, LimitError, LimitKey, LimitKind, Window,
};
use tokio::time::{Instant, sleep_until};

use super::metrics::CallMetrics;

/// The limits of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProviderLimits {
    /// Requests per window.
    pub requests: u64,
    /// Tokens per window.
    pub tokens: u64,
    /// Concurrent calls.
    pub slots: u64,
    /// The window.
    pub window: Duration,
}

/// How long a call takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Latency {
    /// Until its first token.
    pub base: Duration,
    /// For each token of the output.
    pub per_token: Duration,
}

impl Default for Latency {
    /// 100 ms, and 500 tokens a second: the speed of a small model.
    fn default() -> Self {
        Self { base: Duration::from_millis(100), per_token: Duration::from_millis(2) }
    }
}

/// One call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimulatedCall {
    /// The tokens of the prompt.
    pub prompt_tokens: u64,
    /// The tokens of the answer, at most `max_output_tokens`.
    pub output_tokens: u64,
    /// The most tokens of the answer.
    pub max_output_tokens: u64,
}

/// The provider's 429.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("429 too many requests: {what}")]
pub struct TooManyRequests {
    /// The exceeded limit: `requests`, `tokens` or `slots`.
    pub what: &'static str,
}

/// A provider that charges the prompt and the maximum output when a call arrives, and corrects that to the actual use when it
/// ends. Clones share it.
#[derive(Debug, Clone)]
pub struct SimulatedProvider {
    limits: ProviderLimits,
    latency: Latency,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    /// The calls of the last window, oldest first.
    recent: VecDeque<Recent>,
    /// The number of the first of `recent`.
    first: usize,
    /// The sum over `recent`.
    tokens: u64,
    slots: u64,
    metrics: CallMetrics,
}

#[derive(Debug)]
struct Recent {
    arrived: Instant,
    tokens: u64,
}

impl ProviderLimits {
    /// Limits with a window of one minute.
    pub const fn per_minute(requests: u64, tokens: u64, slots: u64) -> Self {
        Self { requests, tokens, slots, window: Duration::from_secs(60) }
    }

    /// This percentage of the requests, tokens and slots.
    ///
    /// # Panics
    /// If a product overflows 64 bits.
    #[must_use]
    pub const fn percent(self, percent: u64) -> Self {
        let Self { requests, tokens, slots, window } = self;
        Self {
            requests: requests * percent / 100,
            tokens: tokens * percent / 100,
            slots: slots * percent / 100,
            window,
        }
    }

    /// The same limits as definitions for a limiter, with the keys of `provider`/`model`.
    ///
    /// # Errors
    /// The names cannot be part of a key, or a number is out of a limit's range.
    pub fn limits(&self, provider: &str, model: &str) -> Result<[Limit; 3], ProviderLimitsError> {
        let window = Window::from_seconds(self.window.as_secs())?;
        let timeout = HoldTimeout::from_seconds(300)?;
        let rolling = LimitKind::Rolling { window };
        let slots = LimitKind::Concurrency { timeout };
        Ok([
            Limit::new(LimitKey::llm_rpm(provider, model)?, rolling, Capacity::new(self.requests)?),
            Limit::new(LimitKey::llm_tpm(provider, model)?, rolling, Capacity::new(self.tokens)?),
            Limit::new(
                LimitKey::llm_concurrency(provider, model)?,
                slots,
                Capacity::new(self.slots)?,
            ),
        ])
    }
}

/// Why a provider's limits cannot be defined at a limiter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProviderLimitsError {
    /// The names cannot be part of a key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A number is out of a limit's range.
    #[error(transparent)]
    Limit(#[from] LimitError),
}

impl SimulatedProvider {
    /// A provider with these limits and the default latency.
    pub fn new(limits: ProviderLimits) -> Self {
        Self::with_latency(limits, Latency::default())
    }

    /// A provider with these limits and this latency.
    pub fn with_latency(limits: ProviderLimits, latency: Latency) -> Self {
        let metrics = CallMetrics::new(Instant::now());
        let state = State { recent: VecDeque::new(), first: 0, tokens: 0, slots: 0, metrics };
        Self { limits, latency, state: Arc::new(Mutex::new(state)) }
    }

    /// Makes a call. Returns the tokens that it used.
    ///
    /// # Errors
    /// A limit of the provider is exceeded.
    pub async fn call(&self, call: SimulatedCall) -> Result<u64, TooManyRequests> {
        let number = self.lock().admit(&self.limits, call)?;
        let output = u32::try_from(call.output_tokens).unwrap_or(u32::MAX);
        let Latency { base, per_token } = self.latency;
        sleep_until(Instant::now() + base + per_token * output).await;
        let used = call.prompt_tokens + call.output_tokens;
        self.lock().end(number, used);
        Ok(used)
    }

    /// The metrics of its calls so far.
    pub fn metrics(&self) -> CallMetrics {
        self.lock().metrics.clone()
    }

    /// Its limits.
    pub const fn limits(&self) -> ProviderLimits {
        self.limits
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic with the lock held")
    }
}

impl State {
    fn admit(
        &mut self,
        limits: &ProviderLimits,
        call: SimulatedCall,
    ) -> Result<usize, TooManyRequests> {
        let now = Instant::now();
        self.expire(now, limits.window);
        let charged = call.prompt_tokens + call.max_output_tokens;
        let exceeded = if self.recent.len() as u64 >= limits.requests {
            Some("requests")
        } else if self.tokens + charged > limits.tokens {
            Some("tokens")
        } else if self.slots >= limits.slots {
            Some("slots")
        } else {
            None
        };
        if let Some(what) = exceeded {
            self.metrics.refused += 1;
            return Err(TooManyRequests { what });
        }
        self.slots += 1;
        self.tokens += charged;
        self.recent.push_back(Recent { arrived: now, tokens: charged });
        self.metrics.calls += 1;
        Ok(self.first + self.recent.len() - 1)
    }

    fn expire(&mut self, now: Instant, window: Duration) {
        while let Some(oldest) = self.recent.front()
            && now.duration_since(oldest.arrived) >= window
        {
            self.tokens -= oldest.tokens;
            self.recent.pop_front();
            self.first += 1;
        }
    }

    fn end(&mut self, number: usize, used: u64) {
        self.slots -= 1;
        self.metrics.add(Instant::now(), used);
        // A call that took longer than the window no longer counts.
        if let Some(recent) = number.checked_sub(self.first).and_then(|at| self.recent.get_mut(at))
        {
            self.tokens = self.tokens - recent.tokens + used;
            recent.tokens = used;
        }
    }
}
