//! A few connections that all requests share.
//!
//! Requests that arrive together are pipelined on a connection without waiting for a timer. A connection that fails is dropped, and the next
//! request opens another one, with growing pauses while that fails (`RDS-05`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use ratelimiter::Unanswered;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, ErrorKind, Pipeline, RedisError, ServerErrorKind, Value, cmd,
};
use tokio::time::Instant;

use crate::config::RedisConfig;
use crate::options::TimeSource;
use crate::reply::{RETRY_AFTER, Reply};
use crate::script::{ScriptName, Scripts};

/// The pause after the first failed attempt to connect; it doubles with each further one.
const RECONNECT_AFTER: Duration = Duration::from_millis(20);
const RECONNECT_AFTER_MAX: Duration = Duration::from_secs(1);
/// The most commands of one pipeline: a longer batch is sent in several, so that other requests come between.
const PIPELINE_MAX: usize = 128;

/// The connections of a limiter.
#[derive(Debug)]
pub(crate) struct Connections {
    config: RedisConfig,
    scripts: Scripts,
    slots: Box<[Slot]>,
    next: AtomicUsize,
    /// How often a slot was connected.
    connects: AtomicU64,
    /// Why the last request had no answer, and which script it was; `None` after one that had.
    problem: RwLock<Option<(RedisProblem, Option<ScriptName>)>>,
    counters: Counters,
}

/// Why Redis does not answer (`RDS-06`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Redis at {place}: {reason}")]
pub struct RedisProblem {
    /// Where it is, without the password.
    pub place: String,
    /// The name of the reason, for metrics: `away`, `timeout`, `loading`, `read_only`, `replicas`, `memory`, `disk`, `auth`, `permission` or `other`.
    pub kind: &'static str,
    /// What is wrong, and what to do.
    pub reason: String,
}

/// What the connections have counted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observations {
    /// Requests and pipelines that were sent.
    pub round_trips: u64,
    /// Script calls in them.
    pub calls: u64,
    /// Those without an answer, by [`RedisProblem::kind`].
    pub errors: Vec<(&'static str, u64)>,
}

#[derive(Debug, Default)]
struct Counters {
    round_trips: AtomicU64,
    calls: AtomicU64,
    errors: Mutex<Vec<(&'static str, u64)>>,
}

/// A connection, or none.
#[derive(Debug, Default)]
struct Slot {
    open: RwLock<Option<NumberedConnection>>,
    /// Held by the request that connects.
    connecting: tokio::sync::Mutex<Attempts>,
}

#[derive(Debug, Clone)]
struct NumberedConnection {
    number: u64,
    connection: MultiplexedConnection,
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
            next: AtomicUsize::new(0),
            connects: AtomicU64::new(0),
            problem: RwLock::default(),
            counters: Counters::default(),
        }
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
        calls: &[Cmd],
    ) -> Vec<Result<Reply, Unanswered>> {
        let mut replies = Vec::with_capacity(calls.len());
        for chunk in calls.chunks(PIPELINE_MAX) {
            let answers = match chunk {
                [one] => vec![self.send(one).await],
                _ => self.send_pipeline(chunk).await,
            };
            for (call, answer) in chunk.iter().zip(answers) {
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

    pub(crate) fn observations(&self) -> Observations {
        let Counters { round_trips, calls, errors } = &self.counters;
        Observations {
            round_trips: round_trips.load(Ordering::Relaxed),
            calls: calls.load(Ordering::Relaxed),
            errors: errors.lock().unwrap_or_else(PoisonError::into_inner).clone(),
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
            self.count(1);
            error_of(connection.send_packed_command(call).await?)
        })
        .await
    }

    async fn send_pipeline(&self, calls: &[Cmd]) -> Vec<Result<Value, RedisError>> {
        let mut pipeline = Pipeline::with_capacity(calls.len());
        for call in calls {
            pipeline.add_command(call.clone());
        }
        let sent = self.with_connection(async |connection| {
            self.count(calls.len());
            let values = connection.send_packed_commands(&pipeline, 0, calls.len()).await?;
            let mut errors = values.iter().filter_map(|value| error_of(value.clone()).err());
            match errors.find(is_wrong_server) {
                Some(error) => Err(error),
                None => Ok(values),
            }
        });
        match sent.await {
            Ok(values) if values.len() == calls.len() => values.into_iter().map(error_of).collect(),
            Ok(_) => {
                let error = RedisError::from((ErrorKind::Parse, "too few answers"));
                calls.iter().map(|_| Err(error.clone())).collect()
            }
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    /// Uses the next connection; drops it if it fails.
    async fn with_connection<T>(
        &self,
        send: impl AsyncFnOnce(&mut MultiplexedConnection) -> Result<T, RedisError>,
    ) -> Result<T, RedisError> {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let answer_by = Instant::now() + self.config.request_timeout;
        let connect = slot.connect(&self.config, &self.connects);
        let connected = tokio::time::timeout_at(answer_by, connect).await;
        let mut open = connected.unwrap_or_else(|_| Err(timed_out()))?;
        let sent = tokio::time::timeout_at(answer_by, send(&mut open.connection)).await;
        let sent = sent.unwrap_or_else(|_| Err(timed_out()));
        if let Err(error) = &sent
            && (error.is_io_error() || error.is_unrecoverable_error() || is_wrong_server(error))
        {
            slot.drop_connection(open.number);
        }
        sent
    }

    fn count(&self, calls: usize) {
        self.counters.round_trips.fetch_add(1, Ordering::Relaxed);
        self.counters.calls.fetch_add(calls as u64, Ordering::Relaxed);
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
        let mut errors = self.counters.errors.lock().unwrap_or_else(PoisonError::into_inner);
        match errors.iter_mut().find(|(kind, _)| *kind == problem.kind) {
            Some((_, count)) => *count += 1,
            None => errors.push((problem.kind, 1)),
        }
        drop(errors);
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
    async fn connect(
        &self,
        config: &RedisConfig,
        connects: &AtomicU64,
    ) -> Result<NumberedConnection, RedisError> {
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
        attempts.failed = failed(timed_out());
        let timeout = Some(config.request_timeout);
        // The response timeout is ours: it includes the time to connect.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(timeout)
            .set_response_timeout(timeout);
        let connected = config.client.get_multiplexed_async_connection_with_config(&settings).await;
        match connected {
            Ok(connection) => {
                attempts.failed = None;
                connects.fetch_add(1, Ordering::Relaxed);
                let open = NumberedConnection { number: attempts.count, connection };
                *self.open.write().unwrap_or_else(PoisonError::into_inner) = Some(open.clone());
                Ok(open)
            }
            Err(error) => {
                attempts.failed = failed(error.clone());
                Err(error)
            }
        }
    }

    fn open(&self) -> Option<NumberedConnection> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops the connection, unless there is another one by now.
    fn drop_connection(&self, number: u64) {
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.take_if(|open| open.number == number);
    }
}

impl RedisProblem {
    /// Reads are answered all the same.
    fn is_of_writes(&self) -> bool {
        matches!(self.kind, "read_only" | "replicas" | "memory" | "disk" | "permission")
    }

    fn of(error: &RedisError, config: &RedisConfig) -> Self {
        let text = error.to_string();
        let code = error.code().unwrap_or_default();
        let (kind, advice) = match error.kind() {
            _ if error.is_timeout() => ("timeout", "no answer in time (redis.request_timeout_ms)"),
            ErrorKind::Server(ServerErrorKind::BusyLoading) => ("loading", "it loads its data"),
            ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown) => {
                ("read_only", "it is a read-only replica; redis.url names the primary")
            }
            _ if code == "NOPERM" || NOT_PERMITTED.iter().any(|part| text.contains(part)) => (
                "permission",
                "the user may not do this; docs/operations/redis.md lists the rights it needs",
            ),
            ErrorKind::AuthenticationFailed => ("auth", WRONG_PASSWORD),
            _ if code == "NOAUTH" || code == "WRONGPASS" => ("auth", WRONG_PASSWORD),
            _ if code == "NOREPLICAS" => ("replicas", "too few replicas (min-replicas-to-write)"),
            _ if code == "MISCONF" => ("disk", "it cannot write to its disk, and refuses changes"),
            _ if code == "OOM" || text.contains("OOM") => {
                ("memory", "maxmemory is reached; give it more, nothing of ours may be evicted")
            }
            ErrorKind::Io => ("away", "it cannot be reached"),
            _ => ("other", "it refused a request"),
        };
        let place = config.place().to_owned();
        Self { place, kind, reason: format!("{advice}: {text}") }
    }
}

impl From<RedisProblem> for Unanswered {
    fn from(problem: RedisProblem) -> Self {
        Self { reason: problem.to_string(), retry_after: RETRY_AFTER }
    }
}

/// What Redis 7.0, and later ones, say of a command inside a script.
const NOT_PERMITTED: [&str; 2] = ["The user executing the script", "ACL failure in script"];
const WRONG_PASSWORD: &str = "the user or password in redis.url is wrong, or missing";

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

/// After a failover another server is the primary, perhaps at the same address.
fn is_wrong_server(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Server(ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown)
            | ErrorKind::AuthenticationFailed
    )
}

fn timed_out() -> RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}
