//! Why Redis does not answer (`RDS-06`).

use ratelimiter::Unanswered;
use redis::{ErrorKind, RedisError, ServerErrorKind};
use rustls::CertificateError;

use crate::config::RedisConfig;
use crate::io_error::io_error_in;
use crate::reply::RETRY_AFTER;
use crate::server_info::TOO_OLD;

/// Why Redis does not answer (`RDS-06`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Redis at {place}: {reason}")]
pub struct RedisProblem {
    /// Where it is, without the password.
    pub place: String,
    /// The name of the reason, for metrics: `away`, `timeout`, `tls`, `sentinel`, `cluster`, `version`, `loading`, `read_only`, `replicas`, `memory`, `disk`, `auth`, `permission` or `other`.
    pub kind: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// What Redis 7.0, and later ones, say of a command inside a script.
const NOT_PERMITTED: [&str; 2] = ["The user executing the script", "ACL failure in script"];
/// How the error of a server begins that is none of a cluster, though the URL says so.
pub(crate) const NO_CLUSTER: &str = "this server is not known to be a node of a cluster";
const WRONG_PASSWORD: &str = "the user or password in redis.url is wrong, or missing";

impl RedisProblem {
    pub(crate) fn of(error: &RedisError, config: &RedisConfig) -> Self {
        let text = error.to_string();
        let (kind, advice) = match tls_error_in(error) {
            Some(error) => ("tls", tls_advice(error)),
            None => kind_and_advice(error, &text),
        };
        let place = config.place().to_owned();
        Self { place, kind, reason: format!("{advice}: {text}") }
    }

    /// Reads are answered all the same.
    pub(crate) fn is_of_writes(&self) -> bool {
        matches!(self.kind, "read_only" | "replicas" | "memory" | "disk" | "permission")
    }
}

impl From<RedisProblem> for Unanswered {
    fn from(problem: RedisProblem) -> Self {
        Self { reason: problem.to_string(), retry_after: RETRY_AFTER }
    }
}

fn kind_and_advice(error: &RedisError, text: &str) -> (&'static str, &'static str) {
    let code = error.code().unwrap_or_default();
    match error.kind() {
        _ if error.is_timeout() => ("timeout", "no answer in time (redis.request_timeout_ms)"),
        ErrorKind::Server(ServerErrorKind::BusyLoading) => ("loading", "it loads its data"),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
            ("read_only", "it is a read-only replica; redis.url names the primary")
        }
        _ if code == "NOPERM" || NOT_PERMITTED.iter().any(|part| text.contains(part)) => (
            "permission",
            "the user may not do this; docs/operations/redis.md lists the rights it needs",
        ),
        ErrorKind::InvalidClientConfig if text.starts_with(TOO_OLD) => ("version", "it is too old"),
        ErrorKind::InvalidClientConfig if text.starts_with(NO_CLUSTER) => (
            "cluster",
            "a server without cluster has a redis.url with redis://, and in a cluster the user needs the right to INFO",
        ),
        ErrorKind::Server(ServerErrorKind::Moved) => (
            "cluster",
            "another node of the cluster has the keys; it is found if redis.url begins with redis+cluster://",
        ),
        ErrorKind::Server(ServerErrorKind::Ask | ServerErrorKind::TryAgain) => {
            ("cluster", "the slot of the keys is being moved to another node of the cluster")
        }
        ErrorKind::Server(ServerErrorKind::ClusterDown) => {
            ("cluster", "the cluster does not serve the slot of the keys")
        }
        ErrorKind::MasterNameNotFoundBySentinel => ("sentinel", "no sentinel names a primary"),
        ErrorKind::AuthenticationFailed => ("auth", WRONG_PASSWORD),
        _ if code == "NOAUTH" || code == "WRONGPASS" => ("auth", WRONG_PASSWORD),
        _ if code == "NOREPLICAS" => ("replicas", "too few replicas (min-replicas-to-write)"),
        _ if code == "MISCONF" => ("disk", "it cannot write to its disk, and refuses changes"),
        _ if code == "OOM" || text.contains("OOM") => {
            ("memory", "maxmemory is reached; give it more, nothing of ours may be evicted")
        }
        ErrorKind::Io => ("away", "it cannot be reached"),
        _ => ("other", "it refused a request"),
    }
}

/// What the TLS library said, inside the I/O error that the client shows.
fn tls_error_in(error: &RedisError) -> Option<&rustls::Error> {
    io_error_in(error)?.get_ref()?.downcast_ref()
}

const fn tls_advice(error: &rustls::Error) -> &'static str {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "its certificate is of an authority that is not trusted; redis.tls.ca names its CA"
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => {
            "its certificate is for another name than the one in redis.url, or that its sentinels or nodes tell"
        }
        rustls::Error::InvalidCertificate(_) => "its certificate is not valid",
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS there; use its tls-port, or redis:// without encryption"
        }
        rustls::Error::AlertReceived(_) => {
            "it ended the handshake; it may want a certificate (redis.tls.cert, redis.tls.key)"
        }
        _ => "the connection cannot be encrypted",
    }
}
