//! The URL of one server.

use redis::{
    Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion, RedisError,
};

use crate::config_error::ConfigError;
use crate::tls::TlsSettings;

/// A client for a URL of one server.
pub(crate) fn client_of(url: &str, tls: &TlsSettings) -> Result<Client, ConfigError> {
    let info = url.into_connection_info().map_err(|error| url_error(&error))?;
    // Answers look the same in every version of Redis.
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2);
    let info = info.set_redis_settings(settings);
    let is_encrypted = is_encrypted(&info);
    if !is_encrypted && !tls.is_empty() {
        let setting = if tls.ca.is_some() { "ca" } else { "cert" };
        let reason = "needs a URL that begins with rediss:// or rediss+sentinel://";
        return Err(ConfigError::Tls { setting, reason });
    }
    let client = match is_encrypted {
        true => Client::build_with_tls(info, tls.certificates()?),
        false => Client::open(info),
    };
    client.map_err(|error| url_error(&error))
}

pub(crate) fn is_encrypted(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}

fn url_error(error: &RedisError) -> ConfigError {
    ConfigError::Url { reason: error.detail().map_or_else(|| error.to_string(), str::to_owned) }
}
