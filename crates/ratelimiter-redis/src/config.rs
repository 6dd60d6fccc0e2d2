//! Where Redis is, and how to talk to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis::AsyncConnectionConfig;

use crate::address::Address;
use crate::config_error::{CONNECTIONS_MAX, ConfigError, PREFIX_BYTES_MAX, REQUEST_TIMEOUT_MS_MAX};
use crate::tls::TlsSettings;

/// How the URL of Redis, of its sentinels, or of nodes of a cluster begins.
const SCHEMES: [&str; 6] = [
    "redis://",
    "rediss://",
    "redis+sentinel://",
    "rediss+sentinel://",
    "redis+cluster://",
    "rediss+cluster://",
];

/// Settings of a Redis server that were not checked yet. `Debug` does not show the URL, which may have a password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// `redis://[user:password@]host[:port][/database]`, or the addresses of sentinels:
    /// `redis+sentinel://[user:password@]host[:port][,host[:port]…]/service[/database]`, or those of nodes of a cluster:
    /// `redis+cluster://[user:password@]host[:port][,host[:port]…]`. `rediss` in place of `redis` encrypts.
    pub url: String,
    /// For an encrypted URL.
    pub tls: TlsSettings,
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
    pub(crate) address: Arc<Address>,
    /// With the hash tag, so that all keys are in one slot of a cluster, and a colon.
    pub(crate) prefix: String,
    pub(crate) connections: u32,
    pub(crate) request_timeout: Duration,
    place: String,
}

impl RedisSettings {
    /// A server with the default prefix, number of connections and timeout.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: TlsSettings::default(),
            prefix: "ratelimiter".to_owned(),
            connections: 2,
            request_timeout_ms: 1_000,
        }
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { url: _, tls, prefix, connections, request_timeout_ms } = self;
        f.debug_struct("RedisSettings")
            .field("tls", tls)
            .field("prefix", prefix)
            .field("connections", connections)
            .field("request_timeout_ms", request_timeout_ms)
            .finish_non_exhaustive()
    }
}

impl RedisConfig {
    /// Checks settings.
    ///
    /// # Errors
    /// The first setting that is invalid.
    pub fn new(settings: &RedisSettings) -> Result<Self, ConfigError> {
        let RedisSettings { url, tls, prefix, connections, request_timeout_ms } = settings;
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
        let prefix = format!("{{{prefix}}}:");
        let address = Address::new(url, tls, &prefix)?;
        Ok(Self {
            place: address.place(),
            address: Arc::new(address),
            prefix,
            connections: *connections,
            request_timeout: Duration::from_millis(*request_timeout_ms),
        })
    }

    /// The response timeout is ours: it includes the time to connect.
    pub(crate) fn connection_settings(&self) -> AsyncConnectionConfig {
        let timeout = Some(self.request_timeout);
        AsyncConnectionConfig::new().set_connection_timeout(timeout).set_response_timeout(timeout)
    }

    /// Where Redis is, without the password.
    pub fn place(&self) -> &str {
        &self.place
    }
}

/// Whether a URL is one of Redis, of its sentinels or of a cluster, by its scheme. The rest of it may be invalid.
pub fn is_redis_url(url: &str) -> bool {
    SCHEMES.iter().any(|scheme| url.starts_with(scheme))
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
        for url in ["", "host:6379", "http://host", "redis://host/x", "rediss://host/0#insecure"] {
            let error = check(|settings| settings.url = url.to_owned()).unwrap_err();
            assert!(error.starts_with("redis.url is redis://"), "{error}");
        }
    }

    /// RDS-08
    #[test]
    fn rds_08_a_password_is_not_shown() {
        let settings = RedisSettings::new("redis://me:s3cret@host/3");
        assert!(!format!("{settings:?}").contains("s3cret"), "{settings:?}");
        for url in
            ["redis://me:12/s3cret@host", "redis://12/s3cret@host", "redis://12/3?s3cret@host"]
        {
            let told = match check(|settings| settings.url = url.to_owned()) {
                Ok(config) => format!("{config:?}"),
                Err(error) => error,
            };
            assert!(!told.contains("s3cret"), "{url}: {told}");
        }
    }

    /// RDS-08
    #[test]
    fn rds_08_a_url_says_whether_to_encrypt() {
        let config = check(|settings| settings.url = "rediss://me:secret@host/3".to_owned());
        let config = config.unwrap();
        assert!(config.address.is_encrypted());
        assert_eq!(config.place(), "rediss://host:6379/3");
        assert!(!format!("{config:?}").contains("secret"));
        assert!(!check(|_| {}).unwrap().address.is_encrypted());
    }

    /// RDS-08
    #[test]
    fn rds_08_a_url_names_sentinels_and_their_service() {
        let with_url = |url: &str| check(|settings| settings.url = url.to_owned());
        for (url, place) in [
            ("redis+sentinel://one/mymaster", "redis+sentinel://one:26379/mymaster/0"),
            (
                "redis+sentinel://me:secret@one:1,[::1],10.0.0.3/mymaster/2?sentinel_password=secret",
                "redis+sentinel://one:1,::1:26379,10.0.0.3:26379/mymaster/2",
            ),
            ("rediss+sentinel://:secret@one/my", "rediss+sentinel://one:26379/my/0"),
        ] {
            let config = with_url(url).unwrap();
            assert_eq!(config.place(), place);
            assert_eq!(config.address.is_encrypted(), url.starts_with("rediss"));
            assert!(!format!("{config:?}").contains("secret"), "{config:?}");
        }
        let many = format!("redis+sentinel://{}/mymaster", ["one"; 17].join(","));
        for (url, told) in [
            ("redis+sentinel://one", "the name of the service is missing"),
            ("redis+sentinel://one/", "the name of the service is missing"),
            ("redis+sentinel:///mymaster", "did not parse"),
            ("redis+sentinel://one,/mymaster", "did not parse"),
            ("redis+sentinel://me:12/secret@one/mymaster", "in a password, write / as %2F"),
            ("redis+sentinel://me:12/secret@one", "in a password, write / as %2F"),
            ("redis+sentinel://one/mymaster/x", "Invalid database number"),
            ("redis+sentinel://one/my?password=secret", "its parameters are sentinel_username"),
            (many.as_str(), "more than 16 hosts"),
        ] {
            let error = with_url(url).unwrap_err();
            assert!(error.contains(told) && !error.contains("secret"), "{url}: {error}");
        }
        assert!(with_url(&many.replace("one,", "")).is_ok());
    }

    /// RDS-04
    #[test]
    fn rds_04_a_url_names_nodes_of_a_cluster() {
        let with_url = |url: &str| check(|settings| settings.url = url.to_owned());
        for (url, place) in [
            ("redis+cluster://one", "redis+cluster://one:6379"),
            ("redis+cluster://me:secret@one:1,[::1]:2/0", "redis+cluster://one:1,::1:2"),
            ("rediss+cluster://:secret@one,two/", "rediss+cluster://one:6379,two:6379"),
        ] {
            let config = with_url(url).unwrap();
            assert_eq!(config.place(), place);
            assert_eq!(config.address.is_encrypted(), url.starts_with("rediss"));
            assert!(!format!("{config:?}").contains("secret"), "{config:?}");
        }
        let many = format!("redis+cluster://{}", ["one"; 17].join(","));
        for (url, told) in [
            ("redis+cluster://", "Missing hostname"),
            ("redis+cluster://one,", "Missing hostname"),
            ("redis+cluster://one/1", "a cluster has no databases"),
            ("redis+cluster://one?protocol=resp3", "parameters"),
            ("redis+cluster://me:12/secret@one", "in a password, write / as %2F"),
            ("redis+cluster://me:12?secret@one", "in a password, write ? as %3F"),
            ("redis+cluster://:secret@one,:secret@two", "before the first host only"),
            (many.as_str(), "more than 16 hosts"),
        ] {
            let error = with_url(url).unwrap_err();
            assert!(error.contains(told) && !error.contains("secret"), "{url}: {error}");
        }
        assert!(with_url(&many.replacen("one,", "", 1)).is_ok());
    }

    /// RDS-08
    #[test]
    fn rds_08_certificates_that_cannot_be_used_are_refused_by_name() {
        let pem = || Some(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n".to_vec());
        let tls = |url: &str, ca, cert, key| {
            let change = |settings: &mut RedisSettings| {
                settings.url = url.to_owned();
                settings.tls = TlsSettings { ca, cert, key };
            };
            check(change).unwrap_err()
        };
        for (error, told) in [
            (tls("redis://host", pem(), None, None), "redis.tls.ca needs a URL that begins with"),
            (tls("redis://host", None, pem(), pem()), "redis.tls.cert needs a URL that begins"),
            (tls("rediss://host", Some(vec![]), None, None), "redis.tls.ca has no certificate"),
            (tls("rediss://host", pem(), None, None), "redis.tls.ca has a block that is not"),
            (tls("rediss://host", None, pem(), None), "redis.tls.cert needs its key"),
            (tls("rediss://host", None, None, pem()), "redis.tls.key needs its certificate"),
            (tls("rediss://host", None, pem(), pem()), "redis.tls.key has no private key"),
        ] {
            assert!(error.starts_with(told), "{error}");
        }
    }
}
