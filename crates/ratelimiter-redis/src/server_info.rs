//! What Redis says of itself.

use redis::aio::MultiplexedConnection;
use redis::{ErrorKind, Pipeline, RedisError, Value, cmd};

use crate::reply::text;

/// The only policy with which nothing of ours is evicted.
const NO_EVICTION: &str = "noeviction";
const MAJOR_VERSION_MIN: u32 = 7;
/// How the error of an old version begins.
pub(crate) const TOO_OLD: &str = "Redis 7 or later is needed";

/// What Redis said of itself, when a connection was opened or at a tick.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServerInfo {
    /// As `7.0.15`; of Valkey the version of Redis that it is compatible with.
    pub version: String,
    /// Names the running process.
    pub run_id: String,
    /// Whether it is a node of a cluster.
    pub is_in_cluster: bool,
    /// The memory that it uses for everything in it.
    pub used_memory_bytes: u64,
    /// The most memory that it may use; 0 if there is no bound.
    pub maxmemory_bytes: u64,
    /// What it does when that is reached. Only `noeviction` keeps what is counted.
    pub maxmemory_policy: String,
}

impl ServerInfo {
    /// Whether it may forget reservations.
    pub fn may_evict(&self) -> bool {
        self.maxmemory_policy != NO_EVICTION
    }

    /// Asks Redis. `None` if the user may not ask.
    ///
    /// # Errors
    /// There is no answer, or the version is too old.
    pub(crate) async fn read(
        connection: &mut MultiplexedConnection,
    ) -> Result<Option<Self>, RedisError> {
        let mut questions = Pipeline::with_capacity(2);
        for section in ["server", "memory"] {
            questions.add_command(cmd("INFO").arg(section).take());
        }
        let answers = connection.send_packed_commands(&questions, 0, 2).await?;
        let is_error = |answer: &Value| matches!(answer, Value::ServerError(_));
        if answers.iter().any(is_error) {
            return Ok(None);
        }
        let lines = |answer| text(Some(answer)).unwrap_or_default().lines();
        let info = Self::of(answers.iter().flat_map(lines));
        match info.is_too_old() {
            true => Err((ErrorKind::InvalidClientConfig, TOO_OLD, info.version).into()),
            false => Ok(Some(info)),
        }
    }

    fn of<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut info = Self::default();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            match name {
                "redis_version" => value.clone_into(&mut info.version),
                "run_id" => value.clone_into(&mut info.run_id),
                // Of Redis, and of Valkey.
                "redis_mode" | "server_mode" => info.is_in_cluster = value == "cluster",
                "used_memory" => info.used_memory_bytes = value.parse().unwrap_or_default(),
                "maxmemory" => info.maxmemory_bytes = value.parse().unwrap_or_default(),
                "maxmemory_policy" => value.clone_into(&mut info.maxmemory_policy),
                _ => {}
            }
        }
        info
    }

    /// A version that is not understood may be any.
    fn is_too_old(&self) -> bool {
        let major = self.version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        major.is_some_and(|major| major < MAJOR_VERSION_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn info_has_the_version_and_the_memory() {
        let text = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n# Memory\r\n\
                    used_memory:1048576\r\nused_memory_human:1M\r\nmaxmemory:2097152\r\n\
                    maxmemory_policy:allkeys-lru\r\n";
        let info = ServerInfo::of(text.lines());
        assert_eq!((info.used_memory_bytes, info.maxmemory_bytes), (1_048_576, 2_097_152));
        assert!(info.may_evict() && !info.is_too_old() && !info.is_in_cluster);
        let info = ServerInfo::of("server_mode:cluster\nmaxmemory_policy:noeviction".lines());
        assert!(!info.may_evict() && !info.is_too_old() && info.is_in_cluster);
    }

    /// RDS-06
    #[test]
    fn rds_06_a_version_before_7_is_too_old() {
        for (version, is_too_old) in
            [("6.2.14", true), ("2.8", true), ("7.0.0", false), ("7.2.4", false), ("10.1", false)]
        {
            let info = ServerInfo { version: version.to_owned(), ..ServerInfo::default() };
            assert_eq!(info.is_too_old(), is_too_old, "{version}");
        }
    }
}
