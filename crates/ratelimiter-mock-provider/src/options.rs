//! How a mock provider behaves.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::fault::Fault;

/// The most tokens that one answer can be told to have.
pub const OUTPUT_TOKENS_MAX: u64 = 200_000;

/// How a mock provider behaves.
#[derive(Debug, Clone)]
pub struct MockOptions {
    /// Port 0 takes a free one; see [`MockProvider::local_addr`](crate::MockProvider::local_addr).
    pub listen: SocketAddr,
    /// The IDs, and which calls are hit by which fault, follow from this and the number of the call.
    pub seed: u64,
    /// Time from the whole request to the first byte of the answer.
    pub latency: Duration,
    /// Time between two chunks of a stream.
    pub chunk_interval: Duration,
    /// Tokens of an answer, unless the request wants fewer; at most [`OUTPUT_TOKENS_MAX`].
    pub output_tokens: u64,
    /// `None` sets no limit, and answers have no headers about one.
    pub requests_per_minute: Option<u64>,
    /// As `requests_per_minute`, of input and output tokens together.
    pub tokens_per_minute: Option<u64>,
    /// Which tokens count.
    pub rate_counts: RateCounts,
    /// Calls with another key get 401. `None` takes every key, and none.
    pub api_key: Option<String>,
    /// A call that is hit gets one of these.
    pub faults: Vec<Fault>,
    /// The share of calls that are hit, 0 to 1.
    pub fault_rate: f64,
    /// How long [`Fault::Slow`] takes.
    pub slow_for: Duration,
    /// What [`Fault::TooManyRequests`] tells the client to wait.
    pub retry_after: Duration,
    /// Larger requests get 413.
    pub body_bytes_max: usize,
}

/// Which tokens count towards `tokens_per_minute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateCounts {
    /// Those used, when the call ends; its prompt must fit when it starts.
    #[default]
    Actual,
    /// The prompt and the greatest output that the request allows, when the call starts. None comes back.
    Reserved,
}

impl Default for MockOptions {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9900)),
            seed: 0,
            latency: Duration::ZERO,
            chunk_interval: Duration::ZERO,
            output_tokens: 16,
            requests_per_minute: None,
            tokens_per_minute: None,
            rate_counts: RateCounts::Actual,
            api_key: None,
            faults: Vec::new(),
            fault_rate: 1.0,
            slow_for: Duration::from_secs(30),
            retry_after: Duration::from_secs(1),
            body_bytes_max: 32 << 20,
        }
    }
}

impl MockOptions {
    pub(crate) fn check(&self) -> io::Result<()> {
        let error = |reason: String| Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        if !(0.0..=1.0).contains(&self.fault_rate) {
            return error(format!("the share of faults is {}, not 0 to 1", self.fault_rate));
        }
        if self.output_tokens > OUTPUT_TOKENS_MAX {
            return error(format!("an answer has at most {OUTPUT_TOKENS_MAX} tokens"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_faults_is_between_0_and_1() {
        for (fault_rate, is_valid) in [(0.0, true), (1.0, true), (1.01, false), (f64::NAN, false)] {
            let options = MockOptions { fault_rate, ..MockOptions::default() };
            assert_eq!(options.check().is_ok(), is_valid, "{fault_rate}");
        }
    }

    #[test]
    fn an_answer_has_a_most_number_of_tokens() {
        for (output_tokens, is_valid) in [(OUTPUT_TOKENS_MAX, true), (OUTPUT_TOKENS_MAX + 1, false)]
        {
            let options = MockOptions { output_tokens, ..MockOptions::default() };
            assert_eq!(options.check().is_ok(), is_valid);
        }
    }
}
