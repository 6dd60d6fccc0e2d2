//! Sentinels, which know the primary of a service.
//!
//! All of them are asked at once, and the first that leads to a primary decides: one that hangs, or is behind after a failover, holds up nobody.
//! The client's own support for sentinels takes their answers in the order of the list, so a machine that is gone would cost a timeout at each connect.

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisError, ServerErrorKind, Value,
    cmd,
};

use crate::config_error::{ConfigError, invalid_url};
use crate::reply::text;
use crate::server_url::{client_of, is_encrypted};
use crate::tls::TlsSettings;

/// The most sentinels in a URL.
const SENTINELS_MAX: usize = 16;
const SENTINEL_PORT: u16 = 26_379;

/// The sentinels of one service.
#[derive(Debug, Clone)]
pub(crate) struct Sentinels {
    sentinels: Vec<Client>,
    service: String,
    /// How to talk to a primary. Its address is the one of a sentinel.
    node: Client,
}

/// Why an attempt at one sentinel failed. The later ones tell more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// It does not answer.
    Sentinel,
    /// It does not know the service, or is no sentinel.
    Service,
    /// The server that it names is no primary, or does not answer.
    Primary,
}

impl Sentinels {
    /// Reads `[user:password@]host[:port][,host[:port]…]/service[/database][?parameters]`.
    ///
    /// # Errors
    /// It is not of that form, or a certificate cannot be used.
    pub(crate) fn new(scheme: &str, rest: &str, tls: &TlsSettings) -> Result<Self, ConfigError> {
        let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (format!("{credentials}@"), hosts),
            None => (String::new(), authority),
        };
        let (service, database) = path.split_once('/').unwrap_or((path, ""));
        if service.is_empty() {
            return Err(invalid_url("the name of the service is missing, as in …:26379/mymaster"));
        }
        let hosts: Vec<_> = hosts.split(',').map(with_port).collect();
        if hosts.len() > SENTINELS_MAX {
            return Err(invalid_url("it has more than 16 sentinels"));
        }
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
        let address = |client: &Client| client.get_connection_info().addr().to_string();
        let sentinels: Vec<_> = self.sentinels.iter().map(address).collect();
        let database = self.node.get_connection_info().redis_settings().db();
        format!("{scheme}+sentinel://{}/{}/{database}", sentinels.join(","), self.service)
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        is_encrypted(self.node.get_connection_info())
    }

    /// The primary, and a connection to it.
    ///
    /// # Errors
    /// No sentinel leads to one.
    pub(crate) async fn find_primary(
        &self,
        settings: &AsyncConnectionConfig,
    ) -> Result<(Client, MultiplexedConnection), RedisError> {
        let ask = |sentinel| self.ask(sentinel, settings);
        let mut answers: FuturesUnordered<_> = self.sentinels.iter().map(ask).collect();
        let mut failed: Option<(Step, RedisError)> = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(found) => return Ok(found),
                Err(error) if failed.as_ref().is_none_or(|(step, _)| *step <= error.0) => {
                    failed = Some(error);
                }
                Err(_) => {}
            }
        }
        Err(failed.expect("there is at least one sentinel").1)
    }

    async fn ask(
        &self,
        sentinel: &Client,
        settings: &AsyncConnectionConfig,
    ) -> Result<(Client, MultiplexedConnection), (Step, RedisError)> {
        let (host, port) = self.address_from(sentinel, settings).await?;
        let of_primary = |error| (Step::Primary, error);
        let primary = self.client_at(host, port).map_err(of_primary)?;
        let connect = primary.get_multiplexed_async_connection_with_config(settings);
        let mut connection = connect.await.map_err(of_primary)?;
        let role = connection.send_packed_command(&cmd("ROLE")).await;
        // Without the right to ask, the first write tells.
        if let Ok(Value::Array(role)) = role
            && text(role.first()).is_some_and(|role| role != "master")
        {
            let kind = ErrorKind::Server(ServerErrorKind::ReadOnly);
            let address = primary.get_connection_info().addr().to_string();
            let error = (kind, "the sentinels name a replica, perhaps in a failover", address);
            return Err(of_primary(error.into()));
        }
        Ok((primary, connection))
    }

    /// Where a sentinel says that the primary is.
    async fn address_from(
        &self,
        sentinel: &Client,
        settings: &AsyncConnectionConfig,
    ) -> Result<(String, u16), (Step, RedisError)> {
        let address = sentinel.get_connection_info().addr();
        let mut question = cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let answer = async {
            let connect = sentinel.get_multiplexed_async_connection_with_config(settings);
            connect.await?.send_packed_command(&question).await?.extract_error()
        };
        let kind = ErrorKind::MasterNameNotFoundBySentinel;
        let unknown = |why, detail| (Step::Service, RedisError::from((kind, why, detail)));
        match answer.await {
            Ok(Value::Array(parts)) => {
                let port = text(parts.get(1)).and_then(|port| port.parse().ok());
                match (text(parts.first()), port) {
                    (Some(host), Some(port)) => Ok((host.to_owned(), port)),
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
            Err(error) if error.is_timeout() || !error.is_io_error() => {
                Err((Step::Sentinel, error))
            }
            Err(error) => {
                let detail = format!("{error} ({address})");
                let error = (ErrorKind::Io, "no sentinel can be reached", detail);
                Err((Step::Sentinel, error.into()))
            }
        }
    }

    fn client_at(&self, host: String, port: u16) -> Result<Client, RedisError> {
        let info = self.node.get_connection_info().clone();
        let address = match info.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                let (insecure, tls_params) = (*insecure, tls_params.clone());
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        Client::open(info.set_addr(address))
    }
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
