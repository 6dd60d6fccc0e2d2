//! Where Redis is: the URL has the address of the primary, or those of sentinels or nodes of a cluster that know it.

use std::time::Duration;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, RedisError};

use crate::cluster::Cluster;
use crate::config_error::{ConfigError, invalid_url};
use crate::sentinels::Sentinels;
use crate::server_url::{client_of, is_encrypted};
use crate::tls::TlsSettings;

/// Where the address of the primary comes from.
#[derive(Debug, Clone)]
pub(crate) enum Address {
    /// From the URL.
    Server(Client),
    /// From the sentinels, each time that a connection is opened.
    Sentinels(Sentinels),
    /// From the nodes of a cluster, each time that a connection is opened.
    Cluster(Cluster),
}

impl Address {
    /// The prefix is that of all keys, and has a hash tag.
    ///
    /// # Errors
    /// The URL or a certificate cannot be used.
    pub(crate) fn new(url: &str, tls: &TlsSettings, prefix: &str) -> Result<Self, ConfigError> {
        if url.contains('#') {
            // The client would take `#insecure` for a wish.
            return Err(invalid_url(
                "it has a #; certificates are always checked, and in a password it is %23",
            ));
        }
        match url.split_once("://") {
            Some(("redis" | "rediss", _)) => Ok(Self::Server(client_of(url, tls)?)),
            Some((scheme @ ("redis+sentinel" | "rediss+sentinel"), rest)) => {
                let scheme = scheme.trim_end_matches("+sentinel");
                Ok(Self::Sentinels(Sentinels::new(scheme, rest, tls)?))
            }
            Some((scheme @ ("redis+cluster" | "rediss+cluster"), rest)) => {
                let scheme = scheme.trim_end_matches("+cluster");
                Ok(Self::Cluster(Cluster::new(scheme, rest, tls, prefix)?))
            }
            _ => Err(invalid_url(
                "it begins with redis://, rediss://, redis+sentinel:// or redis+cluster://",
            )),
        }
    }

    /// The URL without user and password.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Server(client) => {
                let info = client.get_connection_info();
                let scheme = if is_encrypted(info) { "rediss" } else { "redis" };
                format!("{scheme}://{}/{}", info.addr(), info.redis_settings().db())
            }
            Self::Sentinels(sentinels) => sentinels.place(),
            Self::Cluster(cluster) => cluster.place(),
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        match self {
            Self::Server(client) => is_encrypted(client.get_connection_info()),
            Self::Sentinels(sentinels) => sentinels.is_encrypted(),
            Self::Cluster(cluster) => cluster.is_encrypted(),
        }
    }

    pub(crate) const fn is_cluster(&self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    /// A connection to the primary, for requests, and the address of that one. `patience` is the time for sentinels or nodes to answer.
    pub(crate) async fn connect(
        &self,
        settings: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<(MultiplexedConnection, String), RedisError> {
        let (client, connection) = self.find_primary(settings, patience).await?;
        Ok((connection, client.get_connection_info().addr().to_string()))
    }

    /// A connection to the primary, for messages.
    pub(crate) async fn listen(
        &self,
        settings: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<PubSub, RedisError> {
        if let Self::Server(client) = self {
            return client.get_async_pubsub().await;
        }
        self.find_primary(settings, patience).await?.0.get_async_pubsub().await
    }

    async fn find_primary(
        &self,
        settings: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        match self {
            Self::Server(client) => {
                let connect = client.get_multiplexed_async_connection_with_config(settings);
                Ok((client.clone(), connect.await?))
            }
            Self::Sentinels(sentinels) => sentinels.find_primary(settings, patience).await,
            Self::Cluster(cluster) => cluster.find_owner(settings, patience).await,
        }
    }
}
