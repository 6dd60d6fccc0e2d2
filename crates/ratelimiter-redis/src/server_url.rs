//! The URL of one server, and the parts of a URL of several.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError,
};

use crate::config_error::{ConfigError, invalid_url};
use crate::tls::TlsSettings;

/// The most hosts in a URL.
const HOSTS_MAX: usize = 16;

/// The parts of `[user:password@]host[:port][,host[:port]…][/path]`.
#[derive(Debug)]
pub(crate) struct SeveralHosts<'a> {
    /// With the `@`, or empty.
    pub(crate) credentials: &'a str,
    /// At least one.
    pub(crate) hosts: Vec<&'a str>,
    pub(crate) path: &'a str,
}

impl<'a> SeveralHosts<'a> {
    /// # Errors
    /// It has too many hosts, or an `@` in its path.
    pub(crate) fn of(rest: &'a str) -> Result<Self, ConfigError> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts_from = authority.rfind('@').map_or(0, |at| at + 1);
        let (credentials, hosts) = authority.split_at(hosts_from);
        if path.contains('@') {
            // A password that was cut there would be shown as the names of a host and a service.
            return Err(invalid_url(
                "it has an @ after the first /; in a password, write / as %2F and @ as %40",
            ));
        }
        if credentials.contains(',') && credentials.trim_end_matches('@').contains('@') {
            return Err(invalid_url(
                "user and password stand before the first host only; in a password, write @ as %40",
            ));
        }
        let hosts: Vec<_> = hosts.split(',').collect();
        match hosts.len() <= HOSTS_MAX {
            true => Ok(Self { credentials, hosts, path }),
            false => Err(invalid_url("it has more than 16 hosts")),
        }
    }
}

/// A client for a URL of one server.
pub(crate) fn client_of(url: &str, tls: &TlsSettings) -> Result<Client, ConfigError> {
    let info = url.into_connection_info().map_err(|error| url_error(&error))?;
    // Answers look the same in every version of Redis.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    let info = info.set_redis_settings(settings);
    let is_encrypted = is_encrypted(&info);
    if !is_encrypted && !tls.is_empty() {
        let setting = if tls.ca.is_some() { "ca" } else { "cert" };
        let reason =
            "needs a URL that begins with rediss://, rediss+sentinel:// or rediss+cluster://";
        return Err(ConfigError::Tls { setting, reason });
    }
    let client = match is_encrypted {
        true => Client::build_with_tls(info, tls.certificates()?),
        false => Client::open(info),
    };
    client.map_err(|error| url_error(&error))
}

/// A client for another server, reached in the same way.
pub(crate) fn client_at(client: &Client, host: String, port: u16) -> Result<Client, RedisError> {
    let info = client.get_connection_info().clone();
    let address = match info.addr() {
        ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
            let (insecure, tls_params) = (*insecure, tls_params.clone());
            ConnectionAddr::TcpTls { host, port, insecure, tls_params }
        }
        _ => ConnectionAddr::Tcp(host, port),
    };
    Client::open(info.set_addr(address))
}

/// Several URLs in one, without users and passwords.
pub(crate) fn addresses_of(clients: &[Client]) -> String {
    let address = |client: &Client| client.get_connection_info().addr().to_string();
    clients.iter().map(address).collect::<Vec<_>>().join(",")
}

pub(crate) fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

fn url_error(error: &RedisError) -> ConfigError {
    ConfigError::Url { reason: error.detail().map_or_else(|| error.to_string(), str::to_owned) }
}
