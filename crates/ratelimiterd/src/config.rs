//! The server's configuration: file, environment and flags.
//!
//! Every value has a default, so no file is needed. Each value of a [`Config`] is valid by itself; [`Layers`] merges the
//! sources, checks the combinations, and reports every error with its path and source.

mod caller;
mod error;
mod gateway;
mod layers;
mod listen_addr;
mod number;
mod redis_tls;
mod redis_url;
mod secrets;
mod token;

use std::path::PathBuf;
use std::time::Duration;

pub use caller::{
    CALLER_KEYS_MAX, CALLER_NAME_CHARACTERS_MAX, CALLERS_MAX, CallerConfig, CallerName,
    CallerNameError, Permission,
};
pub use error::{ConfigError, SettingError, ValueError};
pub use gateway::{
    ApiChoice, BackendErrorChoice, GatewayConfig, ModelConfig, ProviderConfig, RateCountsChoice,
    TenantConfig,
};
pub use layers::{ENVIRONMENT_PREFIX, Layers};
pub use listen_addr::{ListenAddr, ListenAddrError};
use ratelimiter::HintPolicy;
use ratelimiter::memory::MemoryOptions;
use ratelimiter_redis::{
    CONNECTIONS_MAX, REQUEST_TIMEOUT_MS_MAX as REDIS_TIMEOUT_MS_MAX, RedisSettings,
};
use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterSettings, FLUSH_INTERVAL_MICROS_MAX, MAX_BATCH_EVENTS_MAX, REQUEST_TIMEOUT_MS_MAX,
    SESSIONS_MAX,
};
pub use redis_tls::{PemFile, RedisTlsConfig};
pub use redis_url::RedisUrl;
pub(crate) use secrets::TokenHolder;
use serde::Deserialize;
pub use token::{Token, TokenError};

use crate::medium::RegistryDatabase;
use crate::{LimitsFile, PostgresRegistry, RedisRegistry, RegistryPlace, RegistryUrl};

/// The most events that TigerBeetle accepts in one batch.
pub const TIGERBEETLE_BATCH_EVENTS_MAX: u64 = MAX_BATCH_EVENTS_MAX as u64;
/// The most sessions with a cluster; one is enough.
pub const TIGERBEETLE_SESSIONS_MAX: u64 = SESSIONS_MAX as u64;
/// The most connections to Redis; a few are enough.
pub const REDIS_CONNECTIONS_MAX: u64 = CONNECTIONS_MAX as u64;

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Address, timeouts and TLS.
    pub server: ServerConfig,
    /// The limits file, or the database in its place.
    pub registry: RegistryConfig,
    /// Tokens.
    pub auth: AuthConfig,
    /// Logging.
    pub log: LogConfig,
    /// Metrics.
    pub metrics: MetricsConfig,
    /// Retry hints of denials.
    pub hints: HintsConfig,
    /// The memory backend.
    pub memory: MemoryConfig,
    /// The TigerBeetle backend.
    pub tigerbeetle: TigerBeetleConfig,
    /// The Redis backend, or the registry in Redis.
    pub redis: RedisConfig,
    /// The reverse proxy for LLM providers.
    pub gateway: GatewayConfig,
}

/// Address, timeouts and TLS of the server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address to listen on; `:8080` for all addresses.
    pub listen_addr: ListenAddr,
    /// Where reservations are kept.
    pub backend: BackendChoice,
    /// Time for a request to arrive, and then for the backend to answer.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub request_timeout_ms: u64,
    /// Time for a connection to send the head of a request.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub header_read_timeout_ms: u64,
    /// Time in which a client may accept no byte of its response.
    #[serde(deserialize_with = "number::whole::<1, 600_000, _>")]
    pub write_timeout_ms: u64,
    /// Time for open requests to finish during a shutdown.
    #[serde(deserialize_with = "number::whole::<0, 600_000, _>")]
    pub shutdown_timeout_ms: u64,
    /// Most open connections; further ones wait to be accepted.
    #[serde(deserialize_with = "number::whole::<1, 1_000_000, _>")]
    pub connections_max: u64,
    /// Most reserves that wait for room at a time.
    #[serde(deserialize_with = "number::whole::<0, 1_000_000, _>")]
    pub waiters_max: u64,
    /// TLS certificate and key; without them the server speaks plain HTTP.
    #[serde(deserialize_with = "or_default")]
    pub tls: TlsConfig,
}

/// TLS certificate and key: both files, or none.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// A PEM file with the server's certificate chain.
    pub cert: Option<PathBuf>,
    /// A PEM file with the certificate's key.
    pub key: Option<PathBuf>,
}

/// Where reservations are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendChoice {
    /// In this process.
    #[default]
    Memory,
    /// In a TigerBeetle cluster.
    TigerBeetle,
    /// In Redis or Valkey, and the definitions too.
    Redis,
}

/// Where the definitions of limits are stored.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RegistryConfig {
    /// Path of the limits file, unless there is a URL.
    pub path: PathBuf,
    /// Database that stores the limits instead of a file.
    #[serde(deserialize_with = "not_empty")]
    pub url: Option<RegistryUrl>,
    /// Most limits that can be defined.
    #[serde(deserialize_with = "number::whole::<1, 1_000_000, _>")]
    pub limits_max: u64,
    /// Most limits that are made from templates.
    #[serde(deserialize_with = "number::whole::<0, 100_000_000, _>")]
    pub instances_max: u64,
    /// Most limits that are made from templates in a second.
    #[serde(deserialize_with = "number::whole::<0, 100_000_000, _>")]
    pub new_instances_per_second_max: u64,
}

/// Tokens that callers need.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// Tokens for reserve, renew and complete.
    #[serde(deserialize_with = "token::list")]
    pub client_tokens: Vec<Token>,
    /// Tokens for every route.
    #[serde(deserialize_with = "token::list")]
    pub admin_tokens: Vec<Token>,
    /// Callers with names, each with its token and what it may do.
    #[serde(deserialize_with = "caller::list")]
    pub tokens: Vec<CallerConfig>,
    /// Allow serving without tokens on an address that other machines can reach.
    pub allow_anonymous: bool,
}

/// Logging to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// Text or JSON.
    pub format: LogFormat,
    /// The least severe level that is logged.
    pub level: LogLevel,
}

/// Format of log events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// Level of log events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Possible problems.
    Warn,
    /// Actions of operators, with their outcome.
    #[default]
    Info,
    /// Every reserve, renew and complete.
    Debug,
    /// Everything.
    Trace,
}

/// Bounds of the metrics.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsConfig {
    /// Most keys with their own metrics; the others are counted together.
    #[serde(deserialize_with = "number::whole::<0, 100_000, _>")]
    pub keys_max: u64,
}

/// Constants of the retry hints in denials.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HintsConfig {
    /// Concurrency limits: the first delay.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub concurrency_base_ms: u64,
    /// Concurrency limits: growth of the delay with each further denial.
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
    /// Rolling limits: growth of the delay with each further denial.
    #[serde(deserialize_with = "number::factor")]
    pub rolling_factor: f64,
    /// Rolling limits: the longest delay, before jitter.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub rolling_max_ms: u64,
    /// Rolling limits: the most jitter.
    #[serde(deserialize_with = "number::whole::<0, 3_600_000, _>")]
    pub rolling_jitter_ms: u64,
    /// The delay while a limit is paused or decreasing.
    #[serde(deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub decreasing_ms: u64,
}

/// The memory backend.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemoryConfig {
    /// How long an ended or denied lease is remembered.
    #[serde(deserialize_with = "number::whole::<1, 86_400, _>")]
    pub remember_seconds: u64,
    /// Most ended or denied leases that are remembered.
    #[serde(deserialize_with = "number::whole::<1, 100_000_000, _>")]
    pub remember_max: u64,
}

/// The TigerBeetle backend.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TigerBeetleConfig {
    /// The cluster ID, 0 to 2^128-1, as text.
    #[serde(deserialize_with = "number::cluster_id")]
    pub cluster_id: u128,
    /// The replicas' addresses, in the cluster's order.
    #[serde(deserialize_with = "number::addresses")]
    pub addresses: Vec<String>,
    /// Sessions that send batches concurrently. One is fastest, because batches grow while it is busy. One more session
    /// always exists, for reading leases back.
    #[serde(deserialize_with = "number::whole::<1, TIGERBEETLE_SESSIONS_MAX, _>")]
    pub sessions: u64,
    /// Most events in a batch.
    #[serde(deserialize_with = "number::whole::<1, TIGERBEETLE_BATCH_EVENTS_MAX, _>")]
    pub max_batch_events: u64,
    /// How long a batch waits for more events.
    #[serde(deserialize_with = "number::whole::<0, FLUSH_INTERVAL_MICROS_MAX, _>")]
    pub flush_interval_micros: u64,
    /// How long to wait for a reply.
    #[serde(deserialize_with = "number::whole::<1, REQUEST_TIMEOUT_MS_MAX, _>")]
    pub request_timeout_ms: u64,
    /// Most open leases in the cache; others are read back from the cluster when they complete.
    #[serde(deserialize_with = "number::whole::<0, 10_000_000, _>")]
    pub leases_cached_max: u64,
    /// The expiry lag of the cluster above which new reserves are rejected.
    #[serde(deserialize_with = "number::whole::<100, 3_600_000, _>")]
    pub expiry_lag_max_ms: u64,
}

/// The Redis backend. A registry in Redis has the prefix and the timeout of this section.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// Where Redis is, with user, password and database.
    pub url: RedisUrl,
    /// The CA to trust, and a certificate of the server's own, for an encrypted URL.
    #[serde(deserialize_with = "or_default")]
    pub tls: RedisTlsConfig,
    /// Begins the name of every key, so that two installations can share a Redis.
    #[serde(deserialize_with = "redis_url::prefix")]
    pub prefix: String,
    /// Connections, which all requests share.
    #[serde(deserialize_with = "number::whole::<1, REDIS_CONNECTIONS_MAX, _>")]
    pub connections: u64,
    /// How long to wait for an answer, including the time to connect.
    #[serde(deserialize_with = "number::whole::<1, REDIS_TIMEOUT_MS_MAX, _>")]
    pub request_timeout_ms: u64,
}

impl Config {
    /// Where the definitions are stored, with the bound on limits: the limits file, the database, or the backend.
    ///
    /// # Panics
    /// The settings of Redis are invalid; those of a config that was read never are.
    pub fn registry_place(&self) -> RegistryPlace {
        let Self { server, registry, redis, .. } = self;
        let limits_max = usize::try_from(registry.limits_max).unwrap_or(usize::MAX);
        match (server.backend, &registry.url) {
            (BackendChoice::Redis, _) => {
                RegistryPlace::Redis(RedisRegistry::new(redis.checked(), limits_max))
            }
            (_, Some(url)) => match url.database() {
                RegistryDatabase::Postgres(url) => {
                    RegistryPlace::Postgres(PostgresRegistry::new(url.clone(), limits_max))
                }
                RegistryDatabase::Redis { text, .. } => {
                    let config = redis.check_at(text).expect("a config that exists is valid");
                    RegistryPlace::RedisDocument(RedisRegistry::new(config, limits_max))
                }
            },
            (_, None) => LimitsFile::new(&registry.path).with_limits_max(limits_max).into(),
        }
    }
}

impl RedisConfig {
    /// The settings as the backend needs them.
    ///
    /// # Panics
    /// They are invalid; those of a config that was read never are.
    pub(crate) fn checked(&self) -> ratelimiter_redis::RedisConfig {
        self.check_at(self.url.secret()).expect("a config that exists is valid")
    }

    /// Checks the settings together, with the URL of the backend or of the registry.
    pub(crate) fn check_at(&self, url: &str) -> Result<ratelimiter_redis::RedisConfig, ValueError> {
        let Self { url: _, tls, prefix, connections, request_timeout_ms } = self;
        let settings = RedisSettings {
            url: url.to_owned(),
            tls: tls.settings(),
            prefix: prefix.clone(),
            connections: u32::try_from(*connections).unwrap_or(u32::MAX),
            request_timeout_ms: *request_timeout_ms,
        };
        ratelimiter_redis::RedisConfig::new(&settings).map_err(|error| {
            let message = error.to_string();
            let (path, message) = message.split_once(' ').unwrap_or(("redis", &message));
            ValueError { path: path.to_owned(), message: message.to_owned() }
        })
    }
}

impl AuthConfig {
    /// True if callers need a token.
    pub const fn has_tokens(&self) -> bool {
        let Self { client_tokens, admin_tokens, tokens, allow_anonymous: _ } = self;
        !client_tokens.is_empty() || !admin_tokens.is_empty() || !tokens.is_empty()
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
            waiters_max: 10_000,
            tls: TlsConfig::default(),
        }
    }
}

/// A section whose keys are all commented out is null in YAML; it means the defaults.
fn or_default<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de> + Default,
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A value that is given must not be null: it would silently mean the default.
fn not_empty<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: serde::Deserializer<'de>,
{
    T::deserialize(deserializer).map(Some)
}

impl Default for RegistryConfig {
    fn default() -> Self {
        let MemoryOptions { instances_max, new_instances_per_second_max, .. } =
            MemoryOptions::default();
        Self {
            path: PathBuf::from("./data/limits.json"),
            url: None,
            limits_max: LimitsFile::LIMITS_MAX_DEFAULT as u64,
            instances_max: instances_max as u64,
            new_instances_per_second_max: new_instances_per_second_max as u64,
        }
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
        let ClusterSettings {
            cluster_id,
            addresses,
            sessions,
            max_batch_events,
            flush_interval_micros,
            request_timeout_ms,
        } = ClusterSettings::new(0, ["127.0.0.1:3000"]);
        Self {
            cluster_id,
            addresses,
            sessions: sessions.into(),
            max_batch_events: max_batch_events.into(),
            flush_interval_micros,
            request_timeout_ms,
            leases_cached_max: 100_000,
            expiry_lag_max_ms: 10_000,
        }
    }
}

impl Default for RedisConfig {
    fn default() -> Self {
        let RedisSettings { url, tls: _, prefix, connections, request_timeout_ms } =
            RedisSettings::new("redis://127.0.0.1:6379");
        let url = RedisUrl::new(&url).expect("the default is valid");
        let (tls, connections) = (RedisTlsConfig::default(), connections.into());
        Self { url, tls, prefix, connections, request_timeout_ms }
    }
}
