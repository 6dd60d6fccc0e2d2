//! A cluster, of which one node has all keys of an installation, since they are in one slot.
//!
//! Nodes of the URL are asked at once for a key, and a node that does not have it names the one that does. The client's own support for clusters
//! also follows a key to the node that its slot is being moved to, where a script would see some of the limits only.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError, ServerErrorKind, cmd,
};
use tokio::time::{Instant, timeout_at};

use crate::config_error::{ConfigError, invalid_url};
use crate::io_error::is_hung_up;
use crate::server_url::{SeveralHosts, addresses_of, client_at, client_of, is_encrypted};
use crate::tls::TlsSettings;

/// How often a node may name another one, before the search ends: some know late that the owner has changed.
const HOPS_MAX: usize = 4;

/// Some nodes of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// At least one.
    nodes: Vec<Client>,
    /// In the slot of all others. It never exists.
    key: String,
}

impl Cluster {
    /// Reads `[user:password@]host[:port][,host[:port]…]`. All keys begin with the prefix, which has a hash tag.
    ///
    /// # Errors
    /// It is not of that form, or a certificate cannot be used.
    pub(crate) fn new(
        scheme: &str,
        rest: &str,
        tls: &TlsSettings,
        prefix: &str,
    ) -> Result<Self, ConfigError> {
        let SeveralHosts { credentials, hosts, path } = SeveralHosts::of(rest)?;
        if !matches!(path, "" | "0") || rest.contains('?') {
            return Err(invalid_url(
                "a cluster has no databases and no parameters; in a password, write ? as %3F",
            ));
        }
        let node = |host| client_of(&format!("{scheme}://{credentials}{host}"), tls);
        let nodes = hosts.into_iter().map(node).collect::<Result<_, _>>()?;
        Ok(Self { nodes, key: format!("{prefix}probe") })
    }

    pub(crate) fn place(&self) -> String {
        let scheme = if self.is_encrypted() { "rediss" } else { "redis" };
        format!("{scheme}+cluster://{}", addresses_of(&self.nodes))
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        is_encrypted(self.nodes[0].get_connection_info())
    }

    /// The node that has the keys, and a connection to it. `patience` is the time for all of this.
    ///
    /// # Errors
    /// No node in the URL leads to it.
    pub(crate) async fn find_owner(
        &self,
        settings: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let one_is_enough = Instant::now() + patience / 2;
        let find = |node: &Client| self.find_owner_from(node.clone(), settings);
        let mut searches: FuturesUnordered<_> = self.nodes.iter().map(find).collect();
        // What a node says tells more than that another one cannot be reached.
        let (mut refused, mut away) = (None, None);
        loop {
            let found = match refused.is_none() {
                true => searches.next().await,
                false => timeout_at(one_is_enough, searches.next()).await.unwrap_or_default(),
            };
            match found {
                Some(Ok(found)) => return Ok(found),
                Some(Err(error)) if error.is_io_error() => away = Some(error),
                Some(Err(error)) => refused = Some(error),
                None => return Err(refused.or(away).expect("there is at least one node")),
            }
        }
    }

    /// Asks a node, and then those that are named.
    async fn find_owner_from(
        &self,
        mut node: Client,
        settings: &AsyncConnectionConfig,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let mut hops = 0..HOPS_MAX;
        loop {
            let error = match self.connect(&node, settings).await {
                Ok(connection) => return Ok((node, connection)),
                Err(error) => error,
            };
            node = match owner_in(&error, &node) {
                Some((host, port)) if hops.next().is_some() => client_at(&node, host, port)?,
                _ => return Err(error),
            };
        }
    }

    /// A connection to a node that may write the keys. A read may also be answered by one that was their owner once.
    async fn connect(
        &self,
        node: &Client,
        settings: &AsyncConnectionConfig,
    ) -> Result<MultiplexedConnection, RedisError> {
        let connected = async {
            let mut connection =
                node.get_multiplexed_async_connection_with_config(settings).await?;
            let probe = cmd("PEXPIRE").arg(&self.key).arg(1).take();
            connection.send_packed_command(&probe).await?.extract_error()?;
            Ok(connection)
        };
        connected.await.map_err(|error: RedisError| {
            match error.is_io_error() && !error.is_timeout() && !is_hung_up(&error) {
                true => {
                    let detail = format!("{error} ({})", node.get_connection_info().addr());
                    (ErrorKind::Io, "a node of the cluster", detail).into()
                }
                false => error,
            }
        })
    }
}

/// The address of the node that has the keys, in the answer of the one that was asked. An address without a host has that of this one.
fn owner_in(error: &RedisError, asked: &Client) -> Option<(String, u16)> {
    if error.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
        return None;
    }
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    let host = match (host, asked.get_connection_info().addr()) {
        ("" | "?", ConnectionAddr::Tcp(own, _) | ConnectionAddr::TcpTls { host: own, .. }) => own,
        (other, _) => other,
    };
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RDS-04
    #[test]
    fn rds_04_a_node_names_the_owner_of_the_keys() {
        let asked = Client::open("redis://asked:7000").unwrap();
        let owner = |answer: &str| {
            let answer = redis::parse_redis_value(format!("-{answer}\r\n").as_bytes()).unwrap();
            owner_in(&answer.extract_error().unwrap_err(), &asked)
        };
        for (answer, host) in [
            ("MOVED 1803 10.0.0.3:7001", Some("10.0.0.3")),
            ("MOVED 1803 ::1:7001", Some("::1")),
            ("MOVED 1803 node.internal:7001", Some("node.internal")),
            ("MOVED 1803 :7001", Some("asked")),
            ("MOVED 1803 ?:7001", Some("asked")),
            ("MOVED 1803", None),
            ("MOVED 1803 10.0.0.3:port", None),
            ("ASK 1803 10.0.0.3:7001", None),
            ("CLUSTERDOWN Hash slot not served", None),
        ] {
            assert_eq!(owner(answer), host.map(|host| (host.to_owned(), 7001)), "{answer}");
        }
    }
}
