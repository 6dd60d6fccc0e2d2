//! A cluster, of which one node has all keys of an installation, since they are in one slot.
//!
//! Nodes of the URL are asked at once for a key, and a node that does not have it names the one that does. The client's own support for clusters
//! also follows a key to the node that its slot is being moved to, where a script would see some of the limits only.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError, ServerErrorKind, Value,
    cmd,
};

use crate::config_error::{ConfigError, invalid_url};
use crate::server_url::{SeveralHosts, addresses_of, client_at, client_of, is_encrypted};
use crate::tls::TlsSettings;

/// How often a node may name another one. In a failover one that is behind may name one that is, too.
const HOPS_MAX: usize = 4;

/// Some nodes of a cluster.
#[derive(Debug, Clone)]
pub(crate) struct Cluster {
    /// At least one.
    nodes: Vec<Client>,
    /// It is in the slot of all others.
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
            return Err(invalid_url("a cluster has no databases and no parameters"));
        }
        let node = |host| client_of(&format!("{scheme}://{credentials}{host}"), tls);
        let nodes = hosts.into_iter().map(node).collect::<Result<_, _>>()?;
        Ok(Self { nodes, key: format!("{prefix}meta") })
    }

    pub(crate) fn place(&self) -> String {
        let scheme = if self.is_encrypted() { "rediss" } else { "redis" };
        format!("{scheme}+cluster://{}", addresses_of(&self.nodes))
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        is_encrypted(self.nodes[0].get_connection_info())
    }

    /// The node that has the keys, and a connection to it.
    ///
    /// # Errors
    /// No node in the URL leads to it.
    pub(crate) async fn find_owner(
        &self,
        settings: &AsyncConnectionConfig,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let find = |node: &Client| self.find_owner_from(node.clone(), settings);
        let mut searches: FuturesUnordered<_> = self.nodes.iter().map(find).collect();
        let mut failed: Option<RedisError> = None;
        while let Some(found) = searches.next().await {
            match found {
                Ok(found) => return Ok(found),
                // What a node says tells more than that another one says nothing.
                Err(error) if failed.is_none() || !error.is_io_error() => failed = Some(error),
                Err(_) => {}
            }
        }
        Err(failed.expect("there is at least one node"))
    }

    /// Asks a node, and then those that are named.
    async fn find_owner_from(
        &self,
        mut node: Client,
        settings: &AsyncConnectionConfig,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let mut hops = 0..HOPS_MAX;
        loop {
            let mut connection =
                node.get_multiplexed_async_connection_with_config(settings).await?;
            let answer = connection.send_packed_command(cmd("EXISTS").arg(&self.key)).await;
            let Err(error) = answer.and_then(Value::extract_error) else {
                return Ok((node, connection));
            };
            node = match owner_in(&error, &node) {
                Some((host, port)) if hops.next().is_some() => client_at(&node, host, port)?,
                _ => return Err(error),
            };
        }
    }
}

/// The address of the node that has the keys, in the answer of another one. That names no host if it is its own.
fn owner_in(error: &RedisError, asked: &Client) -> Option<(String, u16)> {
    if error.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
        return None;
    }
    let (host, port) = error.redirect_node()?.0.rsplit_once(':')?;
    let host = match (host, asked.get_connection_info().addr()) {
        ("", ConnectionAddr::Tcp(own, _) | ConnectionAddr::TcpTls { host: own, .. }) => own,
        (other, _) => other,
    };
    Some((host.to_owned(), port.parse().ok()?))
}
