//! A few connections that all requests share.
//!
//! Requests that arrive together are pipelined on a connection without waiting for a timer. A connection that fails is dropped, and the next
//! request opens another one, with growing pauses while that fails (`RDS-05`). All of them are to one server: one to another server, after a failover, ends
//! the others.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use ratelimiter::Unanswered;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, cmd};
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::io_error::is_hung_up;
use crate::observations::{Counters, PIPELINE_MAX};
use crate::options::TimeSource;
use crate::problem::{NO_CLUSTER, RedisProblem};
use crate::reply::Reply;
use crate::script::{ScriptName, Scripts};
use crate::server_info::ServerInfo;

/// The pause after the first failed attempt to connect; it doubles with each further one.
pub(crate) const RECONNECT_AFTER: Duration = Duration::from_millis(20);
pub(crate) const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(1);
const HUNG_UP: &str =
    "it closes new connections; if it expects TLS there, redis.url begins with rediss://";
const NO_HANDSHAKE: &str =
    "while connecting; if it does not speak TLS there, use its tls-port, or redis://";

/// The connections of a limiter.
#[derive(Debug)]
pub(crate) struct Connections {
    config: RedisConfig,
    scripts: Scripts,
    slots: Box<[Slot]>,
    /// A connection that was idle for longer is replaced, since Redis or a load balancer may have closed it; `None` if it is used all the time.
    idle_max: Option<Duration>,
    next: AtomicUsize,
    /// How often a slot was connected.
    connects: AtomicU64,
    /// Why the last request had no answer, and which script it was; `None` after one that had.
    problem: RwLock<Option<(RedisProblem, Option<ScriptName>)>>,
    counters: Counters,
}

/// A connection, or none.
#[derive(Debug, Default)]
struct Slot {
    open: RwLock<Option<NumberedConnection>>,
    used_at: Mutex<Option<Instant>>,
    /// Held by the request that connects.
    connecting: tokio::sync::Mutex<Attempts>,
}

#[derive(Debug, Clone)]
struct NumberedConnection {
    number: u64,
    connection: MultiplexedConnection,
    /// What its server calls itself, or else its address, which may be a name of several.
    server: Arc<str>,
}

/// Attempts to connect.
#[derive(Debug, Default)]
struct Attempts {
    count: u64,
    /// The last one, if it failed.
    failed: Option<FailedAttempt>,
}

/// An attempt to connect that failed, or was cancelled.
#[derive(Debug)]
struct FailedAttempt {
    pause: Duration,
    pauses_until: Instant,
    error: RedisError,
    /// The number of connects at that time. If there are more, Redis is back.
    connects: u64,
}

impl Connections {
    pub(crate) fn new(config: RedisConfig, time: TimeSource) -> Self {
        Self {
            scripts: Scripts::new(time),
            slots: (0..config.connections).map(|_| Slot::default()).collect(),
            config,
            idle_max: None,
            next: AtomicUsize::new(0),
            connects: AtomicU64::new(0),
            problem: RwLock::default(),
            counters: Counters::default(),
        }
    }

    /// Replaces connections that were idle for longer.
    pub(crate) fn with_idle_max(self, idle_max: Duration) -> Self {
        Self { idle_max: Some(idle_max), ..self }
    }

    pub(crate) const fn config(&self) -> &RedisConfig {
        &self.config
    }

    /// A call of a script, without its arguments.
    pub(crate) fn call(&self, script: ScriptName) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.scripts.get(script).sha).arg(1).arg(&self.config.prefix);
        call
    }

    /// Makes a call of a script.
    pub(crate) async fn run(&self, script: ScriptName, call: &Cmd) -> Result<Reply, Unanswered> {
        Reply::new(self.try_run(script, call).await?)
    }

    /// Makes a call of a script, for callers that must know why there is no answer.
    pub(crate) async fn try_run(
        &self,
        script: ScriptName,
        call: &Cmd,
    ) -> Result<Value, RedisProblem> {
        let answer = self.send(call).await;
        self.load_if_unknown(script, call, answer).await
    }

    /// Makes several calls of a script, pipelined.
    pub(crate) async fn run_all(
        &self,
        script: ScriptName,
        calls: Vec<Cmd>,
    ) -> Vec<Result<Reply, Unanswered>> {
        let mut replies = Vec::with_capacity(calls.len());
        let mut calls = calls.into_iter();
        while calls.len() > 0 {
            let mut pipeline = Pipeline::with_capacity(calls.len().min(PIPELINE_MAX));
            for call in calls.by_ref().take(PIPELINE_MAX) {
                pipeline.add_command(call);
            }
            let answers = self.send_pipeline(&pipeline).await;
            for (call, answer) in pipeline.cmd_iter().zip(answers) {
                let answer = self.load_if_unknown(script, call, answer).await;
                replies.push(answer.map_err(Unanswered::from).and_then(Reply::new));
            }
        }
        replies
    }

    /// Sends a plain command.
    pub(crate) async fn command(&self, command: &Cmd) -> Result<Value, Unanswered> {
        let answer = self.send(command).await;
        Ok(self.interpret(None, answer)?)
    }

    /// Why the last request had no answer.
    pub(crate) fn problem(&self) -> Option<RedisProblem> {
        let problem = self.problem.read().unwrap_or_else(PoisonError::into_inner);
        problem.as_ref().map(|(problem, _)| problem.clone())
    }

    pub(crate) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Asks Redis how it is, and counts the past leases. A user that may not ask notices nothing.
    pub(crate) async fn observe(&self) {
        let past = format!("{}past", self.config.prefix);
        let asked = self.with_connection(async |connection| {
            let info = ServerInfo::read(connection).await?;
            let past = connection.send_packed_command(cmd("LLEN").arg(past)).await?;
            Ok((info, past))
        });
        if let Ok((info, past)) = asked.await {
            self.counters.note_server(info);
            if let Value::Int(count) = past {
                self.counters.note_past_leases(u64::try_from(count).unwrap_or_default());
            }
        }
    }

    /// Runs a script by its text if the script cache of Redis was lost (`RDS-06`). That also loads it.
    async fn load_if_unknown(
        &self,
        script: ScriptName,
        call: &Cmd,
        answer: Result<Value, RedisError>,
    ) -> Result<Value, RedisProblem> {
        if !answer.as_ref().is_err_and(is_unknown_script) {
            return self.interpret(Some(script), answer);
        }
        let mut with_text = cmd("EVAL");
        with_text.arg(&self.scripts.get(script).text);
        for argument in call.args_iter().skip(2) {
            match argument {
                redis::Arg::Simple(bytes) => with_text.arg(bytes),
                other => unreachable!("a script takes no {other:?}"),
            };
        }
        let answer = self.send(&with_text).await;
        self.interpret(Some(script), answer)
    }

    async fn send(&self, call: &Cmd) -> Result<Value, RedisError> {
        self.with_connection(async |connection| {
            self.counters.count_round_trip(1);
            error_of(connection.send_packed_command(call).await?)
        })
        .await
    }

    async fn send_pipeline(&self, pipeline: &Pipeline) -> Vec<Result<Value, RedisError>> {
        let count = pipeline.len();
        let sent = self.with_connection(async |connection| {
            self.counters.count_round_trip(count);
            let values = connection.send_packed_commands(pipeline, 0, count).await?;
            match values.iter().find_map(wrong_server_in) {
                Some(error) => Err(error),
                None => Ok(values),
            }
        });
        match sent.await {
            Ok(values) if values.len() == count => values.into_iter().map(error_of).collect(),
            Ok(_) => {
                let error = RedisError::from((ErrorKind::Parse, "too few answers"));
                vec![Err(error); count]
            }
            Err(error) => vec![Err(error); count],
        }
    }

    /// Uses the next connection; drops it if it fails.
    async fn with_connection<T>(
        &self,
        send: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let answer_by = Instant::now() + self.config.request_timeout;
        if let Some(idle_max) = self.idle_max {
            slot.drop_if_idle(idle_max);
        }
        let connect = slot.connect(self);
        let connected = tokio::time::timeout_at(answer_by, connect).await;
        let mut open = connected.unwrap_or_else(|_| Err(connect_timed_out(&self.config)))?;
        let sent = tokio::time::timeout_at(answer_by, send(&mut open.connection)).await;
        let sent = sent.unwrap_or_else(|_| Err(timed_out()));
        if let Err(error) = &sent
            && (error.is_io_error() || error.is_unrecoverable_error() || is_wrong_server(error))
        {
            // Unless there is another one by now.
            slot.drop_if(|one| one.number == open.number);
            if is_wrong_server(error) {
                self.slots.iter().for_each(|slot| slot.drop_if(|one| one.server == open.server));
            }
        }
        if self.idle_max.is_some() {
            slot.note_use();
        }
        sent
    }

    fn interpret<T>(
        &self,
        script: Option<ScriptName>,
        answer: Result<T, RedisError>,
    ) -> Result<T, RedisProblem> {
        let error = match answer {
            Ok(answer) => {
                self.note_answer(script);
                return Ok(answer);
            }
            Err(error) => error,
        };
        let problem = RedisProblem::of(&error, &self.config);
        self.counters.count_error(problem.kind);
        if self.problem().is_none_or(|before| before.kind != problem.kind) {
            tracing::warn!(%error, reason = problem.kind, "redis does not answer");
        }
        self.set_problem(Some((problem.clone(), script)));
        Err(problem)
    }

    /// An answer ends a problem, unless that is one of writes, and the script may not have written.
    fn note_answer(&self, script: Option<ScriptName>) {
        let ends = |(problem, failed): &(RedisProblem, Option<ScriptName>)| {
            !problem.is_of_writes() || script == *failed || script == Some(ScriptName::Ready)
        };
        // Nearly always there was none before.
        let is_over =
            self.problem.read().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(ends);
        if is_over {
            self.set_problem(None);
            tracing::info!("redis answers again");
        }
    }

    fn set_problem(&self, problem: Option<(RedisProblem, Option<ScriptName>)>) {
        *self.problem.write().unwrap_or_else(PoisonError::into_inner) = problem;
    }
}

impl Slot {
    /// The open connection, or a new one.
    async fn connect(&self, all: &Connections) -> Result<NumberedConnection, RedisError> {
        let Connections { config, connects, .. } = all;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let mut attempts = self.connecting.lock().await;
        if let Some(open) = self.open() {
            return Ok(open);
        }
        let connects_before = connects.load(Ordering::Relaxed);
        if let Some(failed) = &attempts.failed
            && Instant::now() < failed.pauses_until
            && failed.connects == connects_before
        {
            return Err(failed.error.clone());
        }
        attempts.count += 1;
        let before = attempts.failed.as_ref().map(|failed| failed.pause);
        let pause = before.map_or(RECONNECT_AFTER, |pause| (pause * 2).min(RECONNECT_AFTER_MAX));
        let failed = |error| {
            let pauses_until = Instant::now() + pause;
            Some(FailedAttempt { pause, pauses_until, error, connects: connects_before })
        };
        // It may be cancelled when the time of its request is over.
        attempts.failed = failed(connect_timed_out(config));
        match connect(config).await {
            Ok((connection, server, info)) => {
                all.counters.note_server(info);
                attempts.failed = None;
                connects.fetch_add(1, Ordering::Relaxed);
                let open = NumberedConnection { number: attempts.count, connection, server };
                *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
                all.slots.iter().for_each(|slot| slot.drop_if(|one| one.server != open.server));
                Ok(open)
            }
            Err(error) => {
                let error = explained(error, config);
                attempts.failed = failed(error.clone());
                Err(error)
            }
        }
    }

    fn open(&self) -> Option<NumberedConnection> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops the connection if it was idle for longer. Requests that wait for an answer keep it.
    fn drop_if_idle(&self, idle_max: Duration) {
        let used_at = *self.used_at.lock().unwrap_or_else(PoisonError::into_inner);
        if used_at.is_some_and(|used_at| used_at.elapsed() > idle_max) {
            self.drop_if(|_| true);
            self.note_use();
        }
    }

    fn note_use(&self) {
        let now = Some(Instant::now());
        *self.used_at.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    fn drop_if(&self, is_useless: impl FnOnce(&NumberedConnection) -> bool) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.take_if(|open| is_useless(open));
    }
}

/// An error of Redis inside an answer.
fn error_of(value: Value) -> Result<Value, RedisError> {
    match value {
        Value::ServerError(error) => Err(error.into()),
        value => Ok(value),
    }
}

fn is_unknown_script(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// As [`is_wrong_server`], of an answer in a pipeline.
fn wrong_server_in(answer: &Value) -> Option<RedisError> {
    let Value::ServerError(error) = answer else { return None };
    error.kind().is_some_and(is_of_wrong_server).then(|| error.clone().into())
}

/// After a failover another server is the primary, perhaps at the same address.
fn is_wrong_server(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(kind) => is_of_wrong_server(kind),
        kind => kind == ErrorKind::AuthenticationFailed,
    }
}

/// It is a replica, or the keys are at another node of a cluster, perhaps by now.
const fn is_of_wrong_server(kind: ServerErrorKind) -> bool {
    use ServerErrorKind::{ClusterDown, MasterDown, Moved, ReadOnly};
    matches!(kind, ReadOnly | MasterDown | Moved | ClusterDown)
}

async fn connect(
    config: &RedisConfig,
) -> Result<(MultiplexedConnection, Arc<str>, Option<ServerInfo>), RedisError> {
    let settings = config.connection_settings();
    let (mut connection, address) =
        config.address.connect(&settings, config.request_timeout).await?;
    let info = ServerInfo::read(&mut connection).await?;
    let run_id = info.as_ref().map(|info| info.run_id.as_str()).filter(|run_id| !run_id.is_empty());
    if config.address.is_cluster() && !info.as_ref().is_some_and(|info| info.is_in_cluster) {
        // Several of them would have different keys.
        return Err((ErrorKind::InvalidClientConfig, NO_CLUSTER, address).into());
    }
    Ok((connection, run_id.unwrap_or(&address).into(), info))
}

/// A server that expects TLS takes the first command for an error, and hangs up.
fn explained(error: RedisError, config: &RedisConfig) -> RedisError {
    match is_hung_up(&error) && !config.address.is_encrypted() {
        true => (ErrorKind::Io, HUNG_UP, error.to_string()).into(),
        false if error.is_timeout() => connect_timed_out(config),
        false => error,
    }
}

/// A server without TLS waits for the end of what it takes for a command.
fn connect_timed_out(config: &RedisConfig) -> RedisError {
    let told = if config.address.is_encrypted() { NO_HANDSHAKE } else { "while connecting" };
    io::Error::new(io::ErrorKind::TimedOut, told).into()
}

pub(crate) fn timed_out() -> RedisError {
    io::Error::from(io::ErrorKind::TimedOut).into()
}
