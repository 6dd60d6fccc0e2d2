//! A document in Redis that servers replace in two steps, under locks: the definitions of a backend that does not keep them itself (`REG-01`).
//!
//! A lock in Redis cannot end with a session, so it is a key with a token and a TTL, which its holder extends. It may end while the holder
//! believes that it has it: the process was paused, the network was cut, a failover forgot the key. So every write is a script that first compares the
//! tokens. A write without an answer may still be on its way, and a Redis that was away may have lost something: the server gives up its locks, and
//! takes them again with new tokens, which end the old ones.

mod lock;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter::{LeaseId, Unanswered};
use redis::Cmd;
use tokio::time::{MissedTickBehavior, interval};

pub use self::lock::{DocumentLock, HeldLocks};
use self::lock::{LockKind, Unconfirmed};
use crate::config::RedisConfig;
use crate::config_error::REQUEST_TIMEOUT_MS_MAX;
use crate::connections::Connections;
use crate::options::TimeSource;
use crate::problem::RedisProblem;
use crate::reply::Reply;
use crate::script::ScriptName;

/// How long a lock lasts at least without its holder, for example after `kill -9`.
const LOCK_TTL_MIN: Duration = Duration::from_secs(5);
/// How often locks are extended, besides each [`RedisDocument::peek`].
const EXTEND_EVERY: Duration = Duration::from_secs(1);
/// How long the document is reserved for a server that found it locked, and asks again.
const NEXT_FOR: Duration = Duration::from_millis(500);
/// How long to wait at least for a document to be sent or stored.
const TEXT_TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// How long a connection for texts is kept without use: changes are rare, and Redis or a load balancer closes it after some time.
const TEXT_IDLE_MAX: Duration = Duration::from_secs(1);

/// A document, and what one server knows of it. It never expires.
pub struct RedisDocument {
    redis: Connections,
    /// For texts, so that nothing else waits for them.
    redis_for_texts: Connections,
    /// Unique to this server. Begins the name of each change and each token.
    name: String,
    number: AtomicU64,
    lock_ttl: Duration,
    /// The tokens of the locks that it has, as far as it knows.
    held: Mutex<HeldLocks>,
    extending: Once,
    /// A lock does not keep out its own server.
    changing: Arc<tokio::sync::Mutex<()>>,
    is_connected: AtomicBool,
    is_loss_logged: AtomicBool,
}

/// Whether others may own the document at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentAccess {
    /// No other server.
    Exclusive,
    /// Others with shared access.
    Shared,
}

/// The result of [`RedisDocument::own`].
#[derive(Debug)]
#[must_use]
pub enum Ownership {
    /// The server owns the document until the lock is dropped.
    Owned(DocumentLock),
    /// By a server that describes itself so, or by servers that share it.
    InUse {
        /// Of the only owner.
        description: Option<String>,
        /// How much longer their locks last, if nobody extends them.
        for_ms: u64,
    },
}

/// Distinguishes one document from the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentVersion {
    /// Grows with each change.
    pub number: i64,
    /// The name of the change that wrote it; `None` if somebody wrote it by hand, and removed the name, as docs/operations/redis.md says.
    pub written_as: Option<String>,
}

/// What is there, without the texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPeek {
    /// `None` if there is no document.
    pub version: Option<DocumentVersion>,
    /// The name of the change that is staged.
    pub staged_as: Option<String>,
}

/// What is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentContent {
    /// The document and its version.
    pub document: Option<(DocumentVersion, String)>,
    /// What is staged: the name of the change and the text.
    pub staged: Option<(String, String)>,
}

/// A text beside the present one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "what is staged is committed or discarded"]
pub struct StagedText {
    name: String,
    /// The version of the document that it replaces, as Redis has it.
    replaces: String,
}

/// Why the document was not read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Redis gave no answer, or refused.
    #[error("{}", .0.reason)]
    Problem(RedisProblem),
    /// Another server may have had the lock in the meantime. Nothing was written.
    #[error("the lock was lost, as after a pause, an outage or a failover")]
    LockLost,
    /// Something else is staged, or was committed. Nothing was written.
    #[error("it was changed by somebody else in the meantime")]
    Changed,
}

impl RedisDocument {
    /// How long a lock lasts at most without its holder.
    pub const LOCK_TTL_MAX: Duration = Duration::from_millis(2 * REQUEST_TIMEOUT_MS_MAX);

    /// The document in this Redis with this prefix. Connects at the first request.
    pub fn new(mut config: RedisConfig) -> Arc<Self> {
        config.connections = 1;
        // A holder that waits for an answer as long as it may keeps its lock.
        let lock_ttl = LOCK_TTL_MIN.max(config.request_timeout * 2);
        let mut for_texts = config.clone();
        for_texts.request_timeout = for_texts.request_timeout.max(TEXT_TIMEOUT_MIN);
        Arc::new(Self {
            redis: Connections::new(config, TimeSource::Server),
            redis_for_texts: Connections::new(for_texts, TimeSource::Server)
                .with_idle_max(TEXT_IDLE_MAX),
            name: LeaseId::generate(MonotonicClock::new().now()).to_string(),
            number: AtomicU64::new(0),
            lock_ttl,
            held: Mutex::default(),
            extending: Once::new(),
            changing: Arc::default(),
            is_connected: AtomicBool::new(false),
            is_loss_logged: AtomicBool::new(false),
        })
    }

    /// Where Redis is, without the password.
    pub fn place(&self) -> &str {
        self.redis.config().place()
    }

    /// Whether Redis gave the last answer that was asked for.
    pub fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Relaxed)
    }

    /// Whether this server has made the change with this name.
    pub fn is_own(&self, change: &str) -> bool {
        change.starts_with(&self.name)
    }

    /// The locks that this server has. A lock that was lost never comes back, so these include each lock that is held when they are used.
    pub fn held_locks(&self) -> HeldLocks {
        self.held().clone()
    }

    /// Reads which document is there. Extends the locks, or notices that they were lost.
    ///
    /// # Errors
    /// Redis gave no answer.
    pub async fn peek(&self) -> Result<DocumentPeek, DocumentError> {
        let (script, held) = (ScriptName::DocumentPeek, self.held_locks());
        let reply = self.run(&self.redis, script, &self.call(script, &held)).await?;
        for (at, token) in [(1, &held.owner), (2, &held.change)] {
            if self.number(&reply, at)? == 0 {
                self.give_up(token.as_deref());
            }
        }
        let version = self.version(&reply, 3)?.map(|(version, _)| version);
        Ok(DocumentPeek { version, staged_as: some_text(self.text(&reply, 6)?) })
    }

    /// Reads the document and what is staged.
    ///
    /// # Errors
    /// Redis gave no answer.
    pub async fn read(&self) -> Result<DocumentContent, DocumentError> {
        let script = ScriptName::DocumentRead;
        let call = self.call(script, &HeldLocks::default());
        let reply = self.run(&self.redis_for_texts, script, &call).await?;
        let text = |at| self.text(&reply, at).map(str::to_owned);
        let document = match self.version(&reply, 1)? {
            Some((version, text_at)) => Some((version, text(text_at)?)),
            None => None,
        };
        let staged = match self.version(&reply, 5)? {
            Some((version, text_at)) => {
                Some((version.written_as.unwrap_or_default(), text(text_at)?))
            }
            None => None,
        };
        Ok(DocumentContent { document, staged })
    }

    /// Makes this server an owner of the document, until the lock is dropped.
    ///
    /// # Errors
    /// Redis gave no answer, or refused.
    pub async fn own(
        self: &Arc<Self>,
        access: DocumentAccess,
        description: &str,
    ) -> Result<Ownership, DocumentError> {
        let script = ScriptName::DocumentOwn;
        let mut lock = DocumentLock::new(self, LockKind::Owner, None);
        let mut call = self.call(script, &HeldLocks::default());
        call.arg(lock.token()).arg(access.letter()).arg(description);
        let reply = self.run(&self.redis, script, &call).await?;
        if reply.status() == "owned" {
            self.start_extending();
            lock.confirm();
            return Ok(Ownership::Owned(lock));
        }
        lock.deny();
        let is_only = self.text(&reply, 1)? == DocumentAccess::Exclusive.letter();
        let description = is_only.then(|| self.text(&reply, 2).map(str::to_owned)).transpose()?;
        Ok(Ownership::InUse { description, for_ms: self.number(&reply, 3)? })
    }

    /// Locks out the changes of other servers, until the lock is dropped; `None` if a change is being made, or another server is next.
    ///
    /// # Errors
    /// Redis gave no answer, or refused.
    pub async fn try_lock(self: &Arc<Self>) -> Result<Option<DocumentLock>, DocumentError> {
        let Ok(changing) = Arc::clone(&self.changing).try_lock_owned() else {
            return Ok(None);
        };
        let script = ScriptName::DocumentLock;
        let mut lock = DocumentLock::new(self, LockKind::Change, Some(changing));
        let mut call = self.call(script, &HeldLocks::default());
        call.arg(lock.token()).arg(millis(NEXT_FOR));
        let reply = self.run(&self.redis, script, &call).await?;
        if reply.status() == "locked" {
            self.start_extending();
            lock.confirm();
            return Ok(Some(lock));
        }
        lock.deny();
        Ok(None)
    }

    /// Stores a text beside the present one, if these locks are still held.
    ///
    /// # Errors
    /// It was not stored, or it is not known whether it was; either way the document is unchanged.
    pub async fn stage(&self, text: &str, held: &HeldLocks) -> Result<StagedText, DocumentError> {
        let (script, name) = (ScriptName::DocumentStage, self.next_name());
        let mut call = self.call(script, held);
        call.arg(&name).arg(text);
        let reply = self.write(script, &call, held).await?;
        let replaces = self.text(&reply, 1)?.to_owned();
        Ok(StagedText { name, replaces })
    }

    /// Replaces the document with what was staged, if these locks are still held.
    ///
    /// # Errors
    /// It was not replaced; after [`DocumentError::Problem`] it is not known whether it was, unless these locks are still held.
    pub async fn commit(
        &self,
        StagedText { name, replaces }: StagedText,
        held: &HeldLocks,
    ) -> Result<(), DocumentError> {
        let script = ScriptName::DocumentCommit;
        let mut call = self.call(script, held);
        call.arg(name).arg(replaces);
        let reply = self.write(script, &call, held).await?;
        if reply.status() == "changed" { Err(DocumentError::Changed) } else { Ok(()) }
    }

    /// Removes what is staged, if it is the change with this name; any change without one.
    ///
    /// # Errors
    /// It was not removed, or that is not known.
    pub async fn discard(
        &self,
        change: Option<&str>,
        held: &HeldLocks,
    ) -> Result<(), DocumentError> {
        let script = ScriptName::DocumentDiscard;
        let mut call = self.call(script, held);
        call.arg(change.unwrap_or_default());
        self.write(script, &call, held).await.map(drop)
    }

    /// Ends all locks of this server, so that another one need not wait for their TTL.
    pub async fn release_all(&self) {
        let held = std::mem::take(&mut *self.held());
        self.release(&held).await;
    }

    async fn release(&self, held: &HeldLocks) {
        let script = ScriptName::DocumentRelease;
        // Without an answer, the TTL ends them.
        drop(self.run(&self.redis, script, &self.call(script, held)).await);
    }

    /// Runs a script that writes. Without a certain answer, it may write later on: these locks are given up, and taking them again
    /// prevents that.
    async fn write(
        &self,
        script: ScriptName,
        call: &Cmd,
        held: &HeldLocks,
    ) -> Result<Reply, DocumentError> {
        let unconfirmed = Unconfirmed { document: self, held };
        let written = self.run(&self.redis_for_texts, script, call).await;
        let is_certain = match &written {
            Ok(reply) => reply.status() != "lost",
            Err(DocumentError::Problem(problem)) => is_refusal(problem),
            Err(_) => false,
        };
        if is_certain {
            unconfirmed.confirm();
        }
        let reply = written?;
        if reply.status() == "lost" { Err(DocumentError::LockLost) } else { Ok(reply) }
    }

    async fn run(
        &self,
        redis: &Connections,
        script: ScriptName,
        call: &Cmd,
    ) -> Result<Reply, DocumentError> {
        match redis.try_run(script, call).await {
            Ok(value) => {
                self.note_answer();
                Reply::new(value).map_err(|error| self.unexpected(error))
            }
            Err(problem) => {
                // It has another name here.
                let reason = problem.reason.replace("redis.url", "registry.url");
                let problem = RedisProblem { reason, ..problem };
                self.note_problem(&problem);
                Err(DocumentError::Problem(problem))
            }
        }
    }

    fn note_answer(&self) {
        self.is_connected.store(true, Ordering::Relaxed);
        if self.is_loss_logged.swap(false, Ordering::Relaxed) {
            tracing::info!(registry = self.place(), "connected to the registry again");
        }
    }

    /// A server that was cut off has no locks any more: a failover may have forgotten them, or what was written under them.
    fn note_problem(&self, problem: &RedisProblem) {
        let is_lost = !matches!(problem.kind, "replicas" | "memory" | "disk" | "permission");
        if !is_lost {
            return;
        }
        *self.held() = HeldLocks::default();
        if self.is_connected.swap(false, Ordering::Relaxed) {
            self.is_loss_logged.store(true, Ordering::Relaxed);
            let (registry, reason) = (self.place(), &problem.reason);
            tracing::warn!(%registry, %reason, "connection to the registry lost; serving the limits that are known");
        }
    }

    /// A call of a script, with the arguments that all of them have.
    fn call(&self, script: ScriptName, held: &HeldLocks) -> Cmd {
        let mut call = self.redis.call(script);
        call.arg(&self.name).arg(millis(self.lock_ttl));
        call.arg(held.owner.as_deref().unwrap_or_default());
        call.arg(held.change.as_deref().unwrap_or_default());
        call
    }

    /// A name of a token or a change that was not used before.
    fn next_name(&self) -> String {
        format!("{}.{}", self.name, self.number.fetch_add(1, Ordering::Relaxed))
    }

    fn held(&self) -> MutexGuard<'_, HeldLocks> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self, token: Option<&str>) {
        let mut held = self.held();
        let HeldLocks { owner, change } = &mut *held;
        for held in [owner, change] {
            held.take_if(|held| Some(held.as_str()) == token);
        }
    }

    /// Extends the locks in the background, since a change may take longer than they last.
    fn start_extending(self: &Arc<Self>) {
        self.extending.call_once(|| {
            let document = Arc::downgrade(self);
            tokio::spawn(async move {
                let mut ticks = interval(EXTEND_EVERY);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                loop {
                    ticks.tick().await;
                    let Some(document) = document.upgrade() else { return };
                    if document.held_locks() != HeldLocks::default() {
                        // If that fails, the next one may succeed.
                        drop(document.peek().await);
                    }
                }
            });
        });
    }

    /// A version, and where the text follows that has it; `None` if there is no text.
    fn version(
        &self,
        reply: &Reply,
        at: usize,
    ) -> Result<Option<(DocumentVersion, usize)>, DocumentError> {
        if self.number(reply, at)? == 0 {
            return Ok(None);
        }
        // Somebody may have written it by hand.
        let number = self.text(reply, at + 1)?.parse().unwrap_or(0);
        let written_as = some_text(self.text(reply, at + 2)?);
        Ok(Some((DocumentVersion { number, written_as }, at + 3)))
    }

    fn text<'r>(&self, reply: &'r Reply, at: usize) -> Result<&'r str, DocumentError> {
        reply.text(at).map_err(|error| self.unexpected(error))
    }

    fn number(&self, reply: &Reply, at: usize) -> Result<u64, DocumentError> {
        reply.number(at).map_err(|error| self.unexpected(error))
    }

    fn unexpected(&self, Unanswered { reason, .. }: Unanswered) -> DocumentError {
        let place = self.place().to_owned();
        DocumentError::Problem(RedisProblem { place, kind: "other", reason })
    }
}

impl StagedText {
    /// The name of the change.
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl DocumentAccess {
    const fn letter(self) -> &'static str {
        match self {
            Self::Exclusive => "x",
            Self::Shared => "s",
        }
    }
}

impl fmt::Debug for RedisDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisDocument").field("place", &self.place()).finish_non_exhaustive()
    }
}

/// Redis has answered that it did not run the script.
fn is_refusal(problem: &RedisProblem) -> bool {
    !matches!(problem.kind, "away" | "timeout" | "other")
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
