//! The definitions in Redis: as the Redis backend keeps them, or in a document for another backend.

use std::io;

use ratelimiter_redis::{RedisConfig, RedisLimiter, RedisOptions};
use ratelimiter_wire::LimitsDocument;

use crate::limits_file::LoadError;

/// The definitions in Redis.
#[derive(Debug, Clone)]
pub struct RedisRegistry {
    pub(super) config: RedisConfig,
    limits_max: usize,
}

impl RedisRegistry {
    /// The definitions in this Redis.
    pub const fn new(config: RedisConfig, limits_max: usize) -> Self {
        Self { config, limits_max }
    }

    /// The URL without its user and password.
    pub fn place(&self) -> &str {
        self.config.place()
    }

    pub(super) const fn limits_max(&self) -> usize {
        self.limits_max
    }

    /// Reads the definitions that the Redis backend keeps.
    pub(super) async fn load_kept(&self) -> Result<LimitsDocument, LoadError> {
        let limiter = RedisLimiter::new(self.config.clone(), RedisOptions::default());
        let read = limiter.registry().await;
        let unreadable = |reason| LoadError::unreadable(self.place().to_owned(), reason);
        let registry =
            read.map_err(|unanswered| unreadable(io::Error::other(unanswered.reason)))?;
        Ok(LimitsDocument { registry, ..LimitsDocument::default() })
    }
}
