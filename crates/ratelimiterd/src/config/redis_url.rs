//! The URL of Redis, and the prefix of its keys.

use std::fmt;

use ratelimiter_redis::{ConfigError, RedisConfig, RedisSettings};
use serde::de::{Deserialize, Deserializer, Error};
use serde_json::Value;

/// The URL of a Redis server, which may have a password. `Debug` does not show that.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    text: String,
    place: String,
}

impl RedisUrl {
    /// Checks a URL.
    ///
    /// # Errors
    /// It is not one of a Redis server. The message does not quote it, because it may have a password.
    pub fn new(text: &str) -> Result<Self, ConfigError> {
        let config = RedisConfig::new(&RedisSettings::new(text))?;
        Ok(Self { text: text.to_owned(), place: config.place().to_owned() })
    }

    /// With its password.
    pub(super) fn secret(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({})", self.place)
    }
}

impl<'de> Deserialize<'de> for RedisUrl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Errors do not quote the value.
        match Value::deserialize(deserializer)? {
            Value::String(text) => Self::new(&text).map_err(|error| message_of(&error)),
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::Array(_)
            | Value::Object(_) => {
                Err(D::Error::custom("must be text, such as \"redis://host:6379\""))
            }
        }
    }
}

/// The prefix of all keys.
pub(super) fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let prefix = String::deserialize(deserializer)?;
    let url = "redis://127.0.0.1";
    let settings = RedisSettings { prefix: prefix.clone(), ..RedisSettings::new(url) };
    RedisConfig::new(&settings).map_err(|error| message_of(&error))?;
    Ok(prefix)
}

/// The message without the path of the value, which is shown before it.
fn message_of<E: Error>(error: &ConfigError) -> E {
    let message = error.to_string();
    let rest = message.strip_prefix("redis.").and_then(|rest| rest.split_once(' '));
    E::custom(rest.map_or(message.as_str(), |(_, rest)| rest))
}
