//! The address to listen on.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

/// An address to listen on: a host name or an IP address, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddr {
    host: String,
    port: u16,
}

/// The text is not an address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an address; write host:port, :port for all addresses, or [ipv6]:port")]
pub struct ListenAddrError {
    text: String,
}

impl ListenAddr {
    /// A free port on loopback, for tests.
    pub fn free_port() -> Self {
        Self { port: 0, ..Self::default() }
    }

    /// The host and the port, as the system's resolver expects them.
    pub fn host_and_port(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// True if only this machine can connect. A name other than `localhost` may resolve to any address.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host == "localhost",
        }
    }
}

impl Default for ListenAddr {
    fn default() -> Self {
        Self { host: "127.0.0.1".to_owned(), port: 8080 }
    }
}

impl FromStr for ListenAddr {
    type Err = ListenAddrError;

    fn from_str(text: &str) -> Result<Self, ListenAddrError> {
        let error = || ListenAddrError { text: text.to_owned() };
        let (host, port) = text.rsplit_once(':').ok_or_else(error)?;
        let port = port.parse().map_err(|_| error())?;
        let host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(inner) => inner.parse::<std::net::Ipv6Addr>().map_err(|_| error())?.to_string(),
            None if host.is_empty() => "0.0.0.0".to_owned(),
            None if host.contains(|c: char| c == ':' || c == '/' || c.is_whitespace()) => {
                return Err(error());
            }
            None => host.to_owned(),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl<'de> Deserialize<'de> for ListenAddr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port_and_may_be_loopback() {
        for (text, written, loopback) in [
            (":8080", "0.0.0.0:8080", false),
            ("127.0.0.1:0", "127.0.0.1:0", true),
            ("127.9.9.9:1", "127.9.9.9:1", true),
            ("0.0.0.0:8080", "0.0.0.0:8080", false),
            ("[::1]:8080", "[::1]:8080", true),
            ("[::]:8080", "[::]:8080", false),
            ("localhost:8080", "localhost:8080", true),
            ("localhost.example:8080", "localhost.example:8080", false),
        ] {
            let address: ListenAddr = text.parse().unwrap();
            assert_eq!(address.to_string(), written);
            assert_eq!(address.is_loopback(), loopback, "{text}");
        }
        for text in [
            "",
            "8080",
            "localhost",
            "host:",
            "host:65536",
            "::1:8080",
            "[::1:80",
            "http://h:80",
            "a b:80",
        ] {
            let error = text.parse::<ListenAddr>().unwrap_err();
            assert!(error.to_string().contains("host:port"), "{error}");
        }
    }
}
