//! Where Redis is, and how to talk to it.

use std::time::Duration;

use redis::{Client, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

/// The most connections of one limiter. Requests share them, so few are enough.
pub const CONNECTIONS_MAX: u32 = 64;
/// The longest time to wait for an answer: one minute.
pub const REQUEST_TIMEOUT_MS_MAX: u64 = 60_000;
/// The most bytes of a prefix.
pub const PREFIX_BYTES_MAX: usize = 64;
/// How the URL of a Redis server begins.
const SCHEMES: [&str; 1] = ["redis://"];

/// Settings of a Redis server that were not checked yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// `redis://[user:password@]host[:port][/database]`.
    pub url: String,
    /// Begins the name of every key. Two installations with different prefixes share one Redis.
    pub prefix: String,
    /// The number of connections.
    pub connections: u32,
    /// How long to wait for an answer.
    pub request_timeout_ms: u64,
}

/// Checked settings of a Redis server.
#[derive(Debug, Clone)]
pub struct RedisConfig {
    pub(crate) client: Client,
    /// With the hash tag, so that all keys are in one slot of a cluster, and a colon.
    pub(crate) prefix: String,
    pub(crate) connections: u32,
    pub(crate) request_timeout: Duration,
    place: String,
}

/// Why settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum ConfigError {
    /// The URL cannot be understood.
    #[error("redis.url is redis://[user:password@]host[:port][/database]: {reason}")]
    Url { reason: String },
    /// Not 1 to 64 bytes of printable ASCII without braces.
    #[error(
        "redis.prefix has 1 to {PREFIX_BYTES_MAX} letters, digits and signs, without spaces and braces, not {prefix:?}"
    )]
    Prefix { prefix: String },
    /// Not 1 to 64 connections.
    #[error("redis.connections is 1 to {CONNECTIONS_MAX}, not {connections}")]
    Connections { connections: u32 },
    /// Not 1 to 60 000 milliseconds.
    #[error("redis.request_timeout_ms is 1 to {REQUEST_TIMEOUT_MS_MAX}, not {ms}")]
    RequestTimeout { ms: u64 },
}

impl RedisSettings {
    /// A server with the default prefix, number of connections and timeout.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "ratelimiter".to_owned(),
            connections: 2,
            request_timeout_ms: 1_000,
        }
    }
}

impl RedisConfig {
    /// Checks settings.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub fn new(settings: &RedisSettings) -> Result<Self, ConfigError> {
        let RedisSettings { url, prefix, connections, request_timeout_ms } = settings;
        let info = info_of(url)?;
        let place = place_of(&info);
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"{}".contains(&byte);
        if !(1..=PREFIX_BYTES_MAX).contains(&prefix.len()) || !prefix.bytes().all(is_plain) {
            return Err(ConfigError::Prefix { prefix: prefix.clone() });
        }
        if !(1..=CONNECTIONS_MAX).contains(connections) {
            return Err(ConfigError::Connections { connections: *connections });
        }
        if !(1..=REQUEST_TIMEOUT_MS_MAX).contains(request_timeout_ms) {
            return Err(ConfigError::RequestTimeout { ms: *request_timeout_ms });
        }
        Ok(Self {
            client: Client::open(info).map_err(|error| url_error(&error))?,
            prefix: format!("{{{prefix}}}:"),
            connections: *connections,
            request_timeout: Duration::from_millis(*request_timeout_ms),
            place,
        })
    }

    /// Where Redis is, without the password.
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// Whether a URL is one of a Redis server, by its scheme. The rest of it may be invalid.
pub fn is_redis_url(url: &str) -> bool {
    SCHEMES.iter().any(|scheme| url.starts_with(scheme))
}

fn info_of(url: &str) -> Result<ConnectionInfo, ConfigError> {
    if !is_redis_url(url) {
        let reason = "it begins with redis://".to_owned();
        return Err(ConfigError::Url { reason });
    }
    let info = url.into_connection_info().map_err(|error| url_error(&error))?;
    // Answers look the same in every version of Redis.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    Ok(info.set_redis_settings(settings))
}

fn url_error(error: &redis::RedisError) -> ConfigError {
    ConfigError::Url { reason: error.detail().map_or_else(|| error.to_string(), str::to_owned) }
}

fn place_of(info: &ConnectionInfo) -> String {
    format!("redis://{}/{}", info.addr(), info.redis_settings().db())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut RedisSettings)) -> Result<RedisConfig, String> {
        let mut settings = RedisSettings::new("redis://127.0.0.1");
        change(&mut settings);
        RedisConfig::new(&settings).map_err(|error| error.to_string())
    }

    /// RDS-04
    #[test]
    fn rds_04_all_keys_have_the_prefix_as_their_hash_tag() {
        assert_eq!(check(|_| {}).unwrap().prefix, "{ratelimiter}:");
        for prefix in ["", "a b", "a{b}", "é", &"x".repeat(65)] {
            let error = check(|settings| settings.prefix = prefix.to_owned()).unwrap_err();
            assert!(error.contains("redis.prefix has 1 to 64"), "{error}");
        }
        assert!(check(|settings| settings.prefix = "x".repeat(64)).is_ok());
    }

    /// RDS-04
    #[test]
    fn rds_04_a_number_out_of_range_is_refused_by_name() {
        for connections in [0, 65] {
            let error = check(|settings| settings.connections = connections).unwrap_err();
            assert_eq!(error, format!("redis.connections is 1 to 64, not {connections}"));
        }
        for ms in [0, 60_001] {
            let error = check(|settings| settings.request_timeout_ms = ms).unwrap_err();
            assert_eq!(error, format!("redis.request_timeout_ms is 1 to 60000, not {ms}"));
        }
    }

    /// RDS-08
    #[test]
    fn rds_08_a_url_has_a_user_a_password_and_a_database() {
        let config = check(|settings| settings.url = "redis://me:secret@host:7000/3".to_owned());
        let config = config.unwrap();
        assert_eq!(config.place(), "redis://host:7000/3");
        for url in ["", "host:6379", "http://host", "redis://host/x"] {
            let error = check(|settings| settings.url = url.to_owned()).unwrap_err();
            assert!(error.starts_with("redis.url is redis://"), "{error}");
        }
    }
}
