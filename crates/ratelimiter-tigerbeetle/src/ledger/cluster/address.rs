//! Replica addresses: name resolution and reachability.
//!
//! TigerBeetle's client accepts IP addresses only, so names are resolved here.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::ledger::SessionProblem;

/// How long a connection attempt may take before the address counts as unreachable.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// `host:port`; the host is a name, an IPv4 address, or an IPv6 address in brackets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Address {
    text: String,
}

/// The configured addresses, resolved and tried.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct AddressProbe {
    pub(super) resolved: Vec<SocketAddr>,
    pub(super) reachable: Vec<SocketAddr>,
    pub(super) unreachable: Vec<SocketAddr>,
}

impl Address {
    /// `None` unless it is a host, a colon, and a port other than 0.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let bare_ipv6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
        let valid = !host.is_empty() && port != 0 && !bare_ipv6;
        valid.then(|| Self { text: text.to_owned() })
    }

    /// The first IPv4 address, because servers listen on one address and `localhost` is often two.
    fn resolve(&self) -> io::Result<SocketAddr> {
        let found: Vec<SocketAddr> = self.text.to_socket_addrs()?.collect();
        let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
        first.copied().ok_or_else(|| io::Error::other("the name has no address"))
    }
}

/// Resolves every address, in order. Calls the system's resolver, so it may block for long.
pub(super) fn resolve(addresses: &[Address]) -> Result<Vec<SocketAddr>, SessionProblem> {
    let resolve = |address: &Address| {
        address.resolve().map_err(|error| SessionProblem::AddressNotResolved {
            address: address.text.clone(),
            reason: error.to_string(),
        })
    };
    addresses.iter().map(resolve).collect()
}

/// Resolves every address again and tries to connect to each.
pub(super) fn probe(addresses: &[Address]) -> Result<AddressProbe, SessionProblem> {
    let resolved = resolve(addresses)?;
    let answers =
        |address: &SocketAddr| TcpStream::connect_timeout(address, CONNECT_TIMEOUT).is_ok();
    let (reachable, unreachable) = resolved.iter().copied().partition(answers);
    Ok(AddressProbe { resolved, reachable, unreachable })
}

/// The form that TigerBeetle's client takes.
pub(super) fn joined(addresses: &[SocketAddr]) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_a_port() {
        for valid in ["127.0.0.1:3000", "localhost:1", "tb-0.tb:65535", "[::1]:3000"] {
            assert!(Address::parse(valid).is_some(), "{valid}");
        }
        for invalid in ["", "3000", "localhost", ":3000", "localhost:0", "a:65536", "::1:3000"] {
            assert!(Address::parse(invalid).is_none(), "{invalid}");
        }
    }

    /// TB-12
    #[test]
    fn tb_12_a_name_becomes_an_address() {
        let resolved = resolve(&[Address::parse("localhost:3000").unwrap()]).unwrap();
        assert_eq!(joined(&resolved), "127.0.0.1:3000");
    }

    /// TB-12
    #[test]
    fn tb_12_a_name_without_an_address_is_named() {
        let problem = resolve(&[Address::parse("no-such-host.invalid:3000").unwrap()]).unwrap_err();
        assert!(problem.to_string().contains("no-such-host.invalid:3000"), "{problem}");
    }
}
