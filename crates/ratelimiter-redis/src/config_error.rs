//! Why settings are invalid, and their bounds.

/// The most connections of one limiter. Requests share them, so few are enough.
pub const CONNECTIONS_MAX: u32 = 64;
/// The longest time to wait for an answer: one minute.
pub const REQUEST_TIMEOUT_MS_MAX: u64 = 60_000;
/// The most bytes of a prefix.
pub const PREFIX_BYTES_MAX: usize = 64;

/// Why settings are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum ConfigError {
    /// The URL cannot be understood.
    #[error(
        "redis.url is redis://[user:password@]host[:port][/database], rediss://…, redis+sentinel://… or redis+cluster://…: {reason}"
    )]
    Url { reason: String },
    /// A certificate or key cannot be used, or is not needed.
    #[error("redis.tls.{setting} {reason}")]
    Tls { setting: &'static str, reason: &'static str },
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

pub(crate) fn invalid_url(reason: &str) -> ConfigError {
    ConfigError::Url { reason: reason.to_owned() }
}
