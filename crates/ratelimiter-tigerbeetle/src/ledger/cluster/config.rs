//! Cluster settings and their validation.

use std::time::Duration;

use thiserror::Error;

use super::address::Address;

/// The most events that a production server accepts in one request.
pub const MAX_BATCH_EVENTS_MAX: u32 = 8189;
/// The most replicas that TigerBeetle's client accepts.
pub const ADDRESSES_MAX: usize = 6;
/// A cluster has 64 sessions and, by default, 32 connections for all its clients.
pub const SESSIONS_MAX: u32 = 16;
/// One second; a longer interval only adds latency.
pub const FLUSH_INTERVAL_MICROS_MAX: u64 = 1_000_000;
/// Ten minutes.
pub const REQUEST_TIMEOUT_MS_MAX: u64 = 600_000;

/// The most queries in flight. A server takes 10 ms for this many; writes that arrive in the
/// meantime wait for them there.
pub const WAVE_QUERIES_MAX: usize = 512;

/// Keep-alive interval of an idle session. It keeps the session from becoming the oldest of the
/// cluster, and detects an unreachable cluster before a caller does.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_millis(500);
/// Sixteen full requests: less than half a second of work for a fast server.
const QUEUE_EVENTS_MAX: usize = 16 * MAX_BATCH_EVENTS_MAX as usize;
/// Thirty-two full waves, which take about as long.
const QUEUE_READS_MAX: usize = 32 * WAVE_QUERIES_MAX;

/// The settings as an operator writes them; [`ClusterConfig::new`] validates them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterSettings {
    /// The number that the cluster was formatted with.
    pub cluster_id: u128,
    /// `host:port` of each replica, in the replicas' order.
    pub addresses: Vec<String>,
    /// The most requests in flight, without queries, which have their own session. One is best
    /// unless measured otherwise.
    pub sessions: u32,
    /// The most events in one request. A smaller limit of the server is detected automatically.
    pub max_batch_events: u32,
    /// How long an item may wait for others to join its batch, if the previous batch had several.
    pub flush_interval_micros: u64,
    /// How long a caller waits for an answer.
    pub request_timeout_ms: u64,
}

/// Valid settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterConfig {
    pub(super) cluster_id: u128,
    /// `1..=ADDRESSES_MAX`.
    pub(super) addresses: Vec<Address>,
    /// `1..=SESSIONS_MAX`.
    pub(super) sessions: usize,
    /// `1..=MAX_BATCH_EVENTS_MAX`.
    pub(super) max_batch_events: usize,
    pub(super) flush_interval: Duration,
    pub(super) request_timeout: Duration,
    pub(super) keep_alive_interval: Duration,
    /// At least `max_batch_events`, so that any item that fits a request fits an empty queue.
    pub(super) queue_events_max: usize,
    /// At least 1. The most queries that may wait for the reader.
    pub(super) queue_reads_max: usize,
}

/// An invalid setting, with its name and range.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[expect(missing_docs, reason = "the message says what each field is")]
pub enum ConfigError {
    /// No replica, or too many.
    #[error("addresses: 1..={ADDRESSES_MAX} replicas, not {count}")]
    AddressCount { count: usize },
    /// Not `host:port`.
    #[error("addresses[{index}]: `host:port` with a port in 1..=65535, not {value:?}")]
    AddressInvalid { index: usize, value: String },
    /// No session, or too many.
    #[error("sessions: 1..={SESSIONS_MAX}, not {value}")]
    Sessions { value: u32 },
    /// No event, or more than any server accepts.
    #[error("max_batch_events: 1..={MAX_BATCH_EVENTS_MAX}, not {value}")]
    MaxBatchEvents { value: u32 },
    /// Too long.
    #[error("flush_interval_micros: 0..={FLUSH_INTERVAL_MICROS_MAX}, not {value}")]
    FlushIntervalMicros { value: u64 },
    /// Zero, or too long.
    #[error("request_timeout_ms: 1..={REQUEST_TIMEOUT_MS_MAX}, not {value}")]
    RequestTimeoutMs { value: u64 },
}

impl ClusterSettings {
    /// The defaults for this cluster.
    pub fn new(cluster_id: u128, addresses: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            cluster_id,
            addresses: addresses.into_iter().map(Into::into).collect(),
            sessions: 1,
            max_batch_events: 8000,
            flush_interval_micros: 200,
            request_timeout_ms: 2000,
        }
    }
}

impl ClusterConfig {
    /// Validates the settings.
    ///
    /// # Errors
    /// The first invalid setting, with its name and range.
    pub fn new(settings: &ClusterSettings) -> Result<Self, ConfigError> {
        let ClusterSettings {
            cluster_id,
            ref addresses,
            sessions,
            max_batch_events,
            flush_interval_micros,
            request_timeout_ms,
        } = *settings;
        if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
            return Err(ConfigError::AddressCount { count: addresses.len() });
        }
        if !(1..=SESSIONS_MAX).contains(&sessions) {
            return Err(ConfigError::Sessions { value: sessions });
        }
        if !(1..=MAX_BATCH_EVENTS_MAX).contains(&max_batch_events) {
            return Err(ConfigError::MaxBatchEvents { value: max_batch_events });
        }
        if flush_interval_micros > FLUSH_INTERVAL_MICROS_MAX {
            return Err(ConfigError::FlushIntervalMicros { value: flush_interval_micros });
        }
        if !(1..=REQUEST_TIMEOUT_MS_MAX).contains(&request_timeout_ms) {
            return Err(ConfigError::RequestTimeoutMs { value: request_timeout_ms });
        }
        let parse = |(index, value): (usize, &String)| {
            let invalid = || ConfigError::AddressInvalid { index, value: value.clone() };
            Address::parse(value).ok_or_else(invalid)
        };
        Ok(Self {
            cluster_id,
            addresses: addresses.iter().enumerate().map(parse).collect::<Result<_, _>>()?,
            sessions: sessions as usize,
            max_batch_events: max_batch_events as usize,
            flush_interval: Duration::from_micros(flush_interval_micros),
            request_timeout: Duration::from_millis(request_timeout_ms),
            keep_alive_interval: KEEP_ALIVE_INTERVAL,
            queue_events_max: QUEUE_EVENTS_MAX,
            queue_reads_max: QUEUE_READS_MAX,
        })
    }

    /// Sets the keep-alive interval of idle sessions; tests of eviction need it long.
    #[must_use]
    pub fn with_keep_alive_interval(mut self, keep_alive_interval: Duration) -> Self {
        self.keep_alive_interval = keep_alive_interval;
        self
    }

    /// Sets the bound on queued events, at least one full request.
    #[must_use]
    pub fn with_queue_events_max(mut self, queue_events_max: usize) -> Self {
        self.queue_events_max = queue_events_max.max(self.max_batch_events);
        self
    }

    /// Sets the bound on queued queries, at least one.
    #[must_use]
    pub fn with_queue_reads_max(mut self, queue_reads_max: usize) -> Self {
        self.queue_reads_max = queue_reads_max.max(1);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl Fn(&mut ClusterSettings), expected: Option<&str>) {
        let mut settings = ClusterSettings::new(0, ["127.0.0.1:3000"]);
        change(&mut settings);
        let error = ClusterConfig::new(&settings).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), expected);
    }

    #[test]
    fn every_range_is_refused_one_outside_and_named() {
        check(|_| {}, None);
        check(|s| s.sessions = 0, Some("sessions: 1..=16, not 0"));
        check(|s| s.sessions = 16, None);
        check(|s| s.sessions = 17, Some("sessions: 1..=16, not 17"));
        check(|s| s.max_batch_events = 0, Some("max_batch_events: 1..=8189, not 0"));
        check(|s| s.max_batch_events = 8189, None);
        check(|s| s.max_batch_events = 8190, Some("max_batch_events: 1..=8189, not 8190"));
        check(|s| s.flush_interval_micros = 0, None);
        check(
            |s| s.flush_interval_micros = 1_000_001,
            Some("flush_interval_micros: 0..=1000000, not 1000001"),
        );
        check(|s| s.request_timeout_ms = 0, Some("request_timeout_ms: 1..=600000, not 0"));
        check(
            |s| s.request_timeout_ms = 600_001,
            Some("request_timeout_ms: 1..=600000, not 600001"),
        );
        check(|s| s.addresses.clear(), Some("addresses: 1..=6 replicas, not 0"));
        check(
            |s| s.addresses = vec!["127.0.0.1:3000".into(); 7],
            Some("addresses: 1..=6 replicas, not 7"),
        );
        check(
            |s| s.addresses.push("db".into()),
            Some("addresses[1]: `host:port` with a port in 1..=65535, not \"db\""),
        );
    }
}
