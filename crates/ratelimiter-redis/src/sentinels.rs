//! Sentinels, which know the primary of a service.
//!
//! All of them are asked at once. Each failover has a higher epoch than the one before, so of the answers of a majority the one with the highest epoch
//! decides: a sentinel that is behind leads nobody to the old primary, which may still take writes. Fewer answers count only when the other sentinels
//! have failed, or half of the time is over: one that hangs or is gone makes nobody fail.
//! The client's own support for sentinels takes the first answer in the order of the list, and knows no epochs.

use std::collections::HashSet;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, cmd,
};
use tokio::time::{Instant, timeout_at};

use crate::config_error::{ConfigError, invalid_url};
use crate::io_error::is_hung_up;
use crate::reply::text;
use crate::server_url::{SeveralHosts, addresses_of, client_at, client_of, is_encrypted};
use crate::tls::TlsSettings;

const SENTINEL_PORT: u16 = 26_379;

/// The sentinels of one service.
#[derive(Debug, Clone)]
pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    service: String,
    /// How to talk to a primary. Its address is the one of a sentinel.
    node: Client,
}

/// What a sentinel says. The order is that of the failovers.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Named {
    /// That of the last failover that it knows.
    epoch: u64,
    host: String,
    port: u16,
}

/// Why a sentinel names no primary. The later ones tell more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// It does not answer.
    Sentinel,
    /// It does not know the service, or is no sentinel.
    Service,
}

impl Sentinels {
    /// Reads `[user:password@]host[:port][,host[:port]…]/service[/database][?parameters]`.
    ///
    /// # Errors
    /// It is not of that form, or a certificate cannot be used.
    pub(crate) fn new(scheme: &str, rest: &str, tls: &TlsSettings) -> Result<Self, ConfigError> {
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let SeveralHosts { credentials, hosts, path } = SeveralHosts::of(rest)?;
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty() {
            return Err(invalid_url("the name of the service is missing, as in …:26379/mymaster"));
        }
        let hosts: Vec<_> = hosts.into_iter().map(with_port).collect();
        let own = credentials_in(parameters)?;
        let sentinel = |host: &String| client_of(&format!("{scheme}://{own}{host}"), tls);
        let node = format!("{scheme}://{credentials}{}/{database}", hosts[0]);
        Ok(Self {
            sentinels: hosts.iter().map(sentinel).collect::<Result<_, _>>()?,
            service: service.to_owned(),
            node: client_of(&node, tls)?,
        })
    }

    pub(crate) fn place(&self) -> String {
        let scheme = if self.is_encrypted() { "rediss" } else { "redis" };
        let sentinels = addresses_of(&self.sentinels);
        let database = self.node.get_connection_info().redis_settings().db();
        format!("{scheme}+sentinel://{sentinels}/{}/{database}", self.service)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        is_encrypted(self.node.get_connection_info())
    }

    /// The primary, and a connection to it. `patience` is the time for all of this.
    ///
    /// # Errors
    /// No sentinel leads to one.
    pub(crate) async fn find_primary(
        &self,
        settings: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let mut named = self.ask_all(settings, patience).await?.into_iter();
        loop {
            let Named { host, port, .. } = named.next().expect("the last one returns");
            let found = connect_to_primary(client_at(&self.node, host, port)?, settings).await;
            // One that does not answer may be the primary, so no older one is tried.
            if named.len() == 0 || !found.as_ref().is_err_and(is_replica) {
                return found;
            }
        }
    }

    /// The servers that the sentinels name, at least one, the latest first.
    async fn ask_all(
        &self,
        settings: &AsyncConnectionConfig,
        patience: Duration,
    ) -> Result<Vec<Named>, RedisError> {
        let one_is_enough = Instant::now() + patience / 2;
        let ask = |sentinel| self.ask(sentinel, settings);
        let mut answers: FuturesUnordered<_> = self.sentinels.iter().map(ask).collect();
        let (mut named, mut failed) = (Vec::new(), None);
        while named.len() <= self.sentinels.len() / 2 {
            let answer = match named.is_empty() {
                true => answers.next().await,
                false => timeout_at(one_is_enough, answers.next()).await.unwrap_or_default(),
            };
            match answer {
                Some(Ok(answer)) => named.push(answer),
                Some(Err((step, error))) => match &failed {
                    Some((before, _)) if *before > step => {}
                    _ => failed = Some((step, error)),
                },
                None => break,
            }
        }
        if named.is_empty() {
            return Err(failed.expect("there is at least one sentinel").1);
        }
        named.sort_by(|one, other| other.cmp(one));
        let mut known = HashSet::new();
        named.retain(|Named { host, port, .. }| known.insert((host.clone(), *port)));
        Ok(named)
    }

    /// Asks one sentinel.
    async fn ask(
        &self,
        sentinel: &Client,
        settings: &AsyncConnectionConfig,
    ) -> Result<Named, (Step, RedisError)> {
        let address = sentinel.get_connection_info().addr();
        // In a failover the epoch is raised before the address of `MASTER` changes. The other command tells the new one from then on.
        let mut questions = Pipeline::new();
        questions.cmd("SENTINEL").arg("MASTER").arg(&self.service);
        questions.cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = async {
            let connect = sentinel.get_multiplexed_async_connection_with_config(settings);
            let mut answers = connect.await?.send_packed_commands(&questions, 0, 2).await?;
            let named = answers.pop().unwrap_or(Value::Nil).extract_error()?;
            Ok((answers.pop().and_then(|fields| epoch_in(&fields)), named))
        };
        let kind = ErrorKind::MasterNameNotFoundBySentinel;
        let unknown = |why, detail| (Step::Service, RedisError::from((kind, why, detail)));
        match answer.await {
            Ok((epoch, Value::Array(parts))) => {
                let port = text(parts.get(1)).and_then(|port| port.parse().ok());
                match (text(parts.first()), port) {
                    (Some(host), Some(port)) => {
                        // Without the right to ask for the epoch, others know better.
                        let epoch = epoch.unwrap_or_default();
                        Ok(Named { epoch, host: host.to_owned(), port })
                    }
                    _ => Err(unknown("its answer has no address", address.to_string())),
                }
            }
            Ok(_) => {
                let detail = format!("{:?} at {address}", self.service);
                Err(unknown("it does not know the service in redis.url", detail))
            }
            Err(error) if is_unknown_command(&error) => {
                Err(unknown("the server in redis.url is no sentinel", address.to_string()))
            }
            Err(error) if is_refusal(&error) => {
                let why = "a sentinel wants sentinel_username and sentinel_password in redis.url";
                let error = (ErrorKind::AuthenticationFailed, why, error.to_string());
                Err((Step::Service, error.into()))
            }
            Err(error) if error.is_timeout() || is_hung_up(&error) || !error.is_io_error() => {
                Err((Step::Sentinel, error))
            }
            Err(error) => {
                let detail = format!("{error} ({address})");
                let error = (ErrorKind::Io, "no sentinel can be reached", detail);
                Err((Step::Sentinel, error.into()))
            }
        }
    }
}

async fn connect_to_primary(
    server: Client,
    settings: &AsyncConnectionConfig,
) -> Result<(Client, MultiplexedConnection), RedisError> {
    let mut connection = server.get_multiplexed_async_connection_with_config(settings).await?;
    let role = connection.send_packed_command(&cmd("ROLE")).await;
    // Without the right to ask, the first write tells.
    if let Ok(Value::Array(role)) = role
        && text(role.first()).is_some_and(|role| role != "master")
    {
        let kind = ErrorKind::Server(ServerErrorKind::ReadOnly);
        let address = server.get_connection_info().addr().to_string();
        let why = "the sentinels name a replica, perhaps in a failover";
        return Err((kind, why, address).into());
    }
    Ok((server, connection))
}

fn is_replica(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
}

/// The epoch in the names and values that a sentinel tells of a service.
fn epoch_in(fields: &Value) -> Option<u64> {
    let Value::Array(fields) = fields else { return None };
    let name = fields.iter().step_by(2).position(|name| text(Some(name)) == Some("config-epoch"));
    text(fields.get(name? * 2 + 1))?.parse().ok()
}

/// The user and the password for the sentinels themselves, as in a URL.
fn credentials_in(parameters: &str) -> Result<String, ConfigError> {
    let (mut user, mut password) = ("", "");
    for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sentinel_username", value)) => user = value,
            Some(("sentinel_password", value)) => password = value,
            _ => {
                let known = "its parameters are sentinel_username and sentinel_password";
                return Err(invalid_url(known));
            }
        }
    }
    match (user, password) {
        ("", "") => Ok(String::new()),
        _ => Ok(format!("{user}:{password}@")),
    }
}

/// A host with the port of sentinels, unless it has another one.
fn with_port(host: &str) -> String {
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match after_brackets.contains(':') {
        true => host.to_owned(),
        false => format!("{host}:{SENTINEL_PORT}"),
    }
}

fn is_unknown_command(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("unknown command"))
}

fn is_refusal(error: &RedisError) -> bool {
    let is_refused = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    is_refused || error.kind() == ErrorKind::AuthenticationFailed
}
