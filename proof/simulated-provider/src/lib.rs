//! A simulated LLM provider, to test schedulers without a key or a network.
//!
//! [`SimulatedProvider`] takes time, uses tokens, and enforces its own limits with 429s, all on tokio's clock: on paused time
//! an hour of calls takes seconds. [`Workload`] makes calls of mixed size, [`CallMetrics`] measures them, and [`TwoProviders`]
//! is a scenario with all of these.
//!
//! ```
//! use simulated_provider::{ProviderLimits, SimulatedCall, SimulatedProvider};
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let provider = SimulatedProvider::new(ProviderLimits::per_minute(1, 1_000_000, 100));
//! let call = SimulatedCall { prompt_tokens: 20, output_tokens: 50, max_output_tokens: 100 };
//! assert_eq!(provider.call(call).await, Ok(70));
//! assert!(provider.call(call).await.is_err(), "one request per minute");
//! # }
//! ```

mod metrics;
mod provider;
mod scenario;
mod workload;

pub use metrics::{CallMetrics, Waits};
pub use provider::{
    Latency, ProviderLimits, ProviderLimitsError, SimulatedCall, SimulatedProvider, TooManyRequests,
};
pub use scenario::{Comparison, ProviderResult, TwoProviders, UTILISATION_MIN};
pub use workload::Workload;
