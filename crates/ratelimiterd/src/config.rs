//! What an operator can set: in a file, in the environment, by flag. Every value has a default, so no file is needed.
//!
//! A [`Config`] that exists is valid value by value; [`Layers`] puts the sources together and reports every fault
//! with its path and its source.

mod fault;
mod layers;
mod listen_addr;
mod number;
mod token;

use std::path::PathBuf;
use std::time::Duration;

pub use fault::{ConfigError, ConfigFault};
pub use layers::{ENVIRONMENT_PREFIX, Layers};
pub use listen_addr::{ListenAddr, ListenAddrError};
use ratelimiter::HintPolicy;
use ratelimiter::memory::MemoryOptions;
use ratelimiter_tigerbeetle::ledger::cluster;
use serde::Deserialize;
pub use token::{Token, TokenError};

use crate::LimitsFile;

/// The most events that a TigerBeetle server takes in one batch.
pub const TIGERBEETLE_BATCH_EVENTS_MAX: u64 = cluster::MAX_BATCH_EVENTS_MAX as u64;
/// The most sessions with a cluster, of which one is enough.
pub const TIGERBEETLE_SESSIONS_MAX: u64 = cluster::SESSIONS_MAX as u64;

/// All that can be set.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where and how to serve.
    pub server: ServerConfig,
    /// Where the definitions are kept.
    pub registry: RegistryConfig,
    /// Who may call.
    pub auth: AuthConfig,
    /// What is said about the work.
    pub log: LogConfig,
    /// What is counted about the work.
    pub metrics: MetricsConfig,
    /// The constants behind the hints of denials.
    pub hints: HintsConfig,
    /// The backend in memory.
    pub memory: MemoryConfig,
    /// The backend on TigerBeetle.
    pub tigerbeetle: TigerBeetleConfig,
}

/// Where and how to serve.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Where to listen; `:8080` for all addresses.
    pub listen_addr: ListenAddr,
    /// What decides.
    pub backend: BackendChoice,
    /// For how long a request may take to arrive, and then to be decided.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub request_timeout_ms: u64,
    /// For how long a connection may take to send the head of a request.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub header_read_timeout_ms: u64,
    /// For how long a client may accept nothing of its answer.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub write_timeout_ms: u64,
    /// For how long open requests may go on after the server was told to stop.
    #[serde(deserialize_with = "number::whole::<0, 600_000, _>")]
    pub shutdown_timeout_ms: u64,
    /// How many connections are open at the most; more of them wait to be accepted.
    #[serde(deserialize_with = "number::whole::<1, 1_000_000, _>")]
    pub connections_max: u64,
    /// By which certificate the server is known; without one it speaks in clear.
    #[serde(deserialize_with = "or_default")]
    pub tls: TlsConfig,
}

/// By which certificate a server is known: both files, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the server's certificate and those that vouch for it.
    pub cert: Option<PathBuf>,
    /// A PEM file with the certificate's key.
    pub key: Option<PathBuf>,
}

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// This process.
    #[default]
    Memory,
    /// A TigerBeetle cluster.
    TigerBeetle,
}

/// Where the definitions are kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryConfig {
    /// The limits file.
    pub path: PathBuf,
    /// How many limits there are at the most.
    #[serde(deserialize_with = "number::whole::<1, 1_000_000, _>")]
    pub limits_max: u64,
}

/// Who may call.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Tokens that open reserve and complete.
    #[serde(deserialize_with = "token::list")]
    pub client_tokens: Vec<Token>,
    /// Tokens that open everything.
    #[serde(deserialize_with = "token::list")]
    pub admin_tokens: Vec<Token>,
    /// Serve without tokens on an address that others can reach.
    pub allow_anonymous: bool,
}

/// What is said about the work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// For people or for machines.
    pub format: LogFormat,
    /// From which level on.
    pub level: LogLevel,
}

/// For people or for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// From which level on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// What an operator did, and what became of it.
    #[default]
    Info,
    /// Every reserve and complete.
    Debug,
    /// Everything.
    Trace,
}

/// What is counted about the work.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// How many keys have figures of their own; the others are counted together.
    #[serde(deserialize_with = "number::whole::<0, 100_000, _>")]
    pub keys_max: u64,
}

/// The constants behind the hints of denials.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HintsConfig {
    /// Concurrency limits: the first delay.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub concurrency_base_ms: u64,
    /// Concurrency limits: how much longer after each further denial.
    #[serde(deserialize_with = "number::factor")]
    pub concurrency_factor: f64,
    /// Concurrency limits: the longest delay, before jitter.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub concurrency_max_ms: u64,
    /// Concurrency limits: the most jitter.
    #[serde(deserialize_with = "number::whole::<0, 3_600_000, _>")]
    pub concurrency_jitter_ms: u64,
    /// Rolling limits: the first delay, or a tenth of the window where that is longer.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub rolling_base_ms: u64,
    /// Rolling limits: how much longer after each further denial.
    #[serde(deserialize_with = "number::factor")]
    pub rolling_factor: f64,
    /// Rolling limits: the longest delay, before jitter.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub rolling_max_ms: u64,
    /// Rolling limits: the most jitter.
    #[serde(deserialize_with = "number::whole::<0, 3_600_000, _>")]
    pub rolling_jitter_ms: u64,
    /// While a limit is paused or decreasing.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub decreasing_ms: u64,
}

/// The backend in memory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// For how long an ended or denied lease is remembered.
    #[serde(deserialize_with = "number::whole::<1, 86_400, _>")]
    pub remember_seconds: u64,
    /// How many ended or denied leases are remembered at the most.
    #[serde(deserialize_with = "number::whole::<1, 100_000_000, _>")]
    pub remember_max: u64,
}

/// The backend on TigerBeetle.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TigerBeetleConfig {
    /// The cluster's number, 0 to 2^128-1, as text.
    #[serde(deserialize_with = "number::cluster_id")]
    pub cluster_id: u128,
    /// The replicas' addresses, in the cluster's order.
    #[serde(deserialize_with = "number::addresses")]
    pub addresses: Vec<String>,
    /// How many sessions send batches side by side. One is fastest: batches grow by themselves while it is busy. There
    /// is always one more, for reading leases back.
    #[serde(deserialize_with = "number::whole::<1, TIGERBEETLE_SESSIONS_MAX, _>")]
    pub sessions: u64,
    /// How many events a batch has at the most.
    #[serde(deserialize_with = "number::whole::<1, TIGERBEETLE_BATCH_EVENTS_MAX, _>")]
    pub max_batch_events: u64,
    /// For how long a batch waits for more events.
    #[serde(deserialize_with = "number::whole::<0, 1_000_000, _>")]
    pub flush_interval_micros: u64,
    /// For how long an answer is waited for.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub request_timeout_ms: u64,
    /// How many open leases are kept in memory; others are read back from the cluster when they complete.
    #[serde(deserialize_with = "number::whole::<0, 10_000_000, _>")]
    pub leases_cached_max: u64,
    /// How late the cluster may release what has expired before new reserves are turned away.
    #[serde(deserialize_with = "number::whole::<100, 3_600_000, _>")]
    pub expiry_lag_max_ms: u64,
}

impl AuthConfig {
    /// Whether a token is needed.
    pub const fn has_tokens(&self) -> bool {
        !self.client_tokens.is_empty() || !self.admin_tokens.is_empty()
    }
}

impl RegistryConfig {
    /// The file with its bound.
    pub fn limits_file(&self) -> LimitsFile {
        let limits_max = usize::try_from(self.limits_max).unwrap_or(usize::MAX);
        LimitsFile::new(&self.path).with_limits_max(limits_max)
    }
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen_addr: ListenAddr::default(),
            backend: BackendChoice::default(),
            request_timeout_ms: 5_000,
            header_read_timeout_ms: 10_000,
            write_timeout_ms: 10_000,
            shutdown_timeout_ms: 5_000,
            connections_max: 10_000,
            tls: TlsConfig::default(),
        }
    }
}

/// A group whose values are all commented out is a group without values.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

impl Default for RegistryConfig {
    fn default() -> Self {
        let path = PathBuf::from("./data/limits.json");
        Self { path, limits_max: LimitsFile::LIMITS_MAX_DEFAULT as u64 }
    }
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { keys_max: 1_000 }
    }
}

impl Default for HintsConfig {
    fn default() -> Self {
        let HintPolicy { concurrency, rolling, decreasing } = HintPolicy::default();
        Self {
            concurrency_base_ms: whole_ms(concurrency.base),
            concurrency_factor: concurrency.factor,
            concurrency_max_ms: whole_ms(concurrency.max),
            concurrency_jitter_ms: whole_ms(concurrency.jitter),
            rolling_base_ms: whole_ms(rolling.base),
            rolling_factor: rolling.factor,
            rolling_max_ms: whole_ms(rolling.max),
            rolling_jitter_ms: whole_ms(rolling.jitter),
            decreasing_ms: whole_ms(decreasing),
        }
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("the default hints are seconds long")
}

impl Default for MemoryConfig {
    fn default() -> Self {
        let MemoryOptions { remember_for, remember_max, .. } = MemoryOptions::default();
        Self { remember_seconds: remember_for.as_secs(), remember_max: remember_max as u64 }
    }
}

impl Default for TigerBeetleConfig {
    fn default() -> Self {
        Self {
            cluster_id: 0,
            addresses: vec!["127.0.0.1:3000".to_owned()],
            sessions: 1,
            max_batch_events: 8_000,
            flush_interval_micros: 200,
            request_timeout_ms: 2_000,
            leases_cached_max: 100_000,
            expiry_lag_max_ms: 10_000,
        }
    }
}
