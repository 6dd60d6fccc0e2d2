//! The limiter on Redis.
//!
//! A request becomes one call of a script with the definitions of its keys. Three answers of a script are not final: `stale` (the definitions
//! have changed), `period` (the period of a calendar limit has ended) and `again` (more has expired than one call collects, `RDS-03`).

mod changes;
mod complete;
mod define;
mod denial;
mod leases;
mod renew;
mod reserve;
mod states;
mod sweep;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use ratelimiter::admission::{Turn, TurnAnswer, TurnBackend};
use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, DefineError, DeleteError, Denial,
    ForgiveError, LeaseId, LeasePage, LeasesError, Limit, LimitKey, LimitState, LimitStatus,
    Limiter, OpenLease, Page, Registry, ReleaseError, RenewError, RenewRequest, Renewal,
    ReserveError, ReserveRequest, StateError, Unanswered,
};
use ratelimiter_wire::LimitsDocument;
use redis::Cmd;

use self::sweep::SweepState;
use crate::config::RedisConfig;
use crate::connections::{Connections, timed_out};
use crate::definitions::Definitions;
use crate::observations::Observations;
use crate::options::RedisOptions;
use crate::problem::RedisProblem;
use crate::reply::{RETRY_AFTER, Reply, timestamp};
use crate::script::ScriptName;

/// The largest capacity of a limit on Redis: 2^53-1, up to which its scripts count exactly (`RES-07`).
pub const CAPACITY_MAX: u64 = (1 << 53) - 1;
/// How often a server with waiting requests looks for room that others have freed.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What a script answers if its caller knows outdated definitions.
const STALE: &str = "stale";

/// The limiter that keeps definitions, reservations and leases in Redis. Any number of them may share one Redis, in one process or in many:
/// all of them see the same limits, and a lease that one allows can be completed at another.
///
/// Call [`tick`](RedisLimiter::tick) several times a second, at one of them or at each.
pub struct RedisLimiter {
    redis: Connections,
    options: RedisOptions,
    definitions: RwLock<Definitions>,
    /// A generation of definitions that cannot be understood, and why. Locked by the request that reads the definitions.
    unreadable: tokio::sync::Mutex<Option<(String, Unanswered)>>,
    /// The time of Redis at its last answer, in microseconds.
    now: AtomicU64,
    /// Tells the leases that this limiter may return from those of others.
    name: String,
    /// Leases that it may return, whose last attempt had no answer.
    unanswered: Mutex<HashSet<LeaseId>>,
    /// Use that no reservation covered, by the key of the limit; that of instances is counted by template.
    uncovered: Mutex<HashMap<LimitKey, u128>>,
    sweep: tokio::sync::Mutex<SweepState>,
    open_leases: AtomicU64,
    instances: Mutex<Vec<(LimitKey, usize)>>,
}

/// What an answer of a script asks for.
enum Next {
    Done(Reply),
    /// The same call again.
    Again,
    /// The call with the present definitions and period.
    Rebuild,
}

impl RedisLimiter {
    /// A limiter on this Redis. Connects at the first request.
    pub fn new(config: RedisConfig, options: RedisOptions) -> Self {
        Self {
            redis: Connections::new(config, options.time),
            options,
            definitions: RwLock::default(),
            unreadable: tokio::sync::Mutex::default(),
            name: format!("{:016x}", fastrand::u64(..)),
            unanswered: Mutex::default(),
            now: AtomicU64::new(0),
            uncovered: Mutex::default(),
            sweep: tokio::sync::Mutex::default(),
            open_leases: AtomicU64::new(0),
            instances: Mutex::default(),
        }
    }

    /// Whether Redis answers and accepts writes: one that is full, or a replica, answers reads all the same.
    ///
    /// # Errors
    /// Why it does not.
    pub async fn ready(&self) -> Result<(), RedisProblem> {
        let script = ScriptName::Ready;
        let ready = self.redis.run(script, &self.redis.call(script)).await;
        ready.map(drop).map_err(|Unanswered { reason, .. }| {
            // Another request may have had an answer since.
            let place = self.redis.config().place().to_owned();
            self.problem().unwrap_or(RedisProblem { place, kind: "other", reason })
        })
    }

    /// The definitions that are in Redis now.
    ///
    /// # Errors
    /// Redis gave no answer.
    pub async fn registry(&self) -> Result<Registry, Unanswered> {
        self.has_present_definitions().await?;
        Ok(self.definitions().registry.clone())
    }

    /// Why the last request had no answer; `None` if it had one.
    pub fn problem(&self) -> Option<RedisProblem> {
        self.redis.problem()
    }

    /// What was counted since the start.
    pub fn observations(&self) -> Observations {
        self.redis.counters().observations()
    }

    /// The key for which metrics of a limit are kept: its own, or that of the template that governs it. `None` if neither a definition nor a
    /// template governs it.
    pub fn metrics_key(&self, key: &LimitKey) -> Option<LimitKey> {
        let definitions = self.definitions();
        definitions.find(key).map(|known| known.limit.key.clone())
    }

    /// The definition that governs each key: its own, or that of the template from which its limit is or would be made. Redis is asked only
    /// while changes are not [followed](Self::follow_changes).
    ///
    /// # Errors
    /// Redis gave no answer.
    pub async fn governing(&self, keys: &[LimitKey]) -> Result<Vec<Option<Limit>>, Unanswered> {
        if !self.observations().is_subscribed || self.definitions().generation.is_empty() {
            self.has_present_definitions().await?;
        }
        let definitions = self.definitions();
        let governing = |key| definitions.find(key).map(|known| known.limit.clone());
        Ok(keys.iter().map(governing).collect())
    }

    fn definitions(&self) -> RwLockReadGuard<'_, Definitions> {
        self.definitions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn redis_now(&self) -> Timestamp {
        timestamp(self.now.load(Ordering::Relaxed))
    }

    fn lock_unanswered(&self) -> MutexGuard<'_, HashSet<LeaseId>> {
        self.unanswered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_uncovered(&self) -> MutexGuard<'_, HashMap<LimitKey, u128>> {
        self.uncovered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call until its answer is final. `build` adds the arguments by the definitions.
    async fn ask<E: From<Unanswered>>(
        &self,
        script: ScriptName,
        build: impl Fn(&Definitions, Cmd) -> Result<Cmd, E>,
    ) -> Result<Reply, E> {
        loop {
            let (call, generation) = self.build(script, &build)?;
            loop {
                match self.next(self.redis.run(script, &call).await?, &generation).await? {
                    Next::Done(reply) => return Ok(reply),
                    Next::Again => {}
                    Next::Rebuild => break,
                }
            }
        }
    }

    /// Makes several calls, pipelined, until their answers are final. `None` where `build` makes no call.
    async fn ask_all(
        &self,
        script: ScriptName,
        count: usize,
        build: impl Fn(&Definitions, usize, Cmd) -> Option<Cmd>,
    ) -> Vec<Option<Result<Reply, Unanswered>>> {
        let mut answers: Vec<_> = (0..count).map(|_| None).collect();
        let mut pending: Vec<usize> = (0..count).collect();
        while !pending.is_empty() {
            let (calls, generation) = {
                let definitions = self.definitions();
                let call = |at: &usize| build(&definitions, *at, self.redis.call(script));
                let calls: Vec<_> = pending.iter().map(call).collect();
                (calls, definitions.generation.clone())
            };
            let asked = pending.iter().zip(calls).filter_map(|(at, call)| Some((*at, call?)));
            let (asked, calls): (Vec<usize>, Vec<Cmd>) = asked.unzip();
            pending.clear();
            // Why the definitions could not be read, which is tried once.
            let mut unread: Option<Unanswered> = None;
            for (at, reply) in asked.into_iter().zip(self.redis.run_all(script, calls).await) {
                let next = match (reply, &unread) {
                    (Ok(reply), Some(error)) if reply.status() == STALE => Err(error.clone()),
                    (Ok(reply), _) => self
                        .next(reply, &generation)
                        .await
                        .inspect_err(|error| unread = Some(error.clone())),
                    (Err(unanswered), _) => Err(unanswered),
                };
                match next {
                    Ok(Next::Done(reply)) => answers[at] = Some(Ok(reply)),
                    Ok(Next::Again | Next::Rebuild) => pending.push(at),
                    Err(unanswered) => answers[at] = Some(Err(unanswered)),
                }
            }
        }
        answers
    }

    fn build<E>(
        &self,
        script: ScriptName,
        build: impl Fn(&Definitions, Cmd) -> Result<Cmd, E>,
    ) -> Result<(Cmd, String), E> {
        let definitions = self.definitions();
        let call = build(&definitions, self.redis.call(script))?;
        Ok((call, definitions.generation.clone()))
    }

    /// Interprets what every script may answer.
    async fn next(&self, reply: Reply, generation: &str) -> Result<Next, Unanswered> {
        if let Some(now) = reply.now() {
            self.now.store(now, Ordering::Relaxed);
        }
        Ok(match reply.status() {
            "again" => Next::Again,
            "period" => Next::Rebuild,
            STALE => {
                self.read_definitions(generation, reply.text(2)?).await?;
                Next::Rebuild
            }
            _ => Next::Done(reply),
        })
    }

    /// Reads the definitions of the present generation, if the known ones are still those of `known`.
    async fn read_definitions(&self, known: &str, present: &str) -> Result<(), Unanswered> {
        let config = self.redis.config();
        let locked = tokio::time::timeout(config.request_timeout, self.unreadable.lock()).await;
        // Another request reads them, and has no answer either.
        let mut unreadable = locked.map_err(|_| RedisProblem::of(&timed_out(), config))?;
        if self.definitions().generation != known {
            return Ok(());
        }
        if let Some((generation, error)) = &*unreadable
            && generation == present
        {
            return Err(error.clone());
        }
        let script = ScriptName::Definitions;
        let reply = self.redis.run(script, &self.redis.call(script)).await?;
        let (generation, document) = (reply.text(2)?.to_owned(), reply.text(3)?.to_owned());
        let parse = move || match document.as_str() {
            "" => Ok(LimitsDocument::default()),
            text => LimitsDocument::read(text.as_bytes()),
        };
        let parsed = tokio::task::spawn_blocking(parse).await;
        let parsed = parsed.map_err(|error| no_document(&error.to_string()))?;
        let document = match parsed {
            Ok(document) => document,
            Err(error) => {
                let error = no_document(&error.to_string());
                *unreadable = Some((generation, error.clone()));
                return Err(error);
            }
        };
        let LimitsDocument { registry, preserved, notes } = document;
        for note in notes {
            tracing::warn!(%note, "a definition in redis is not understood");
        }
        self.lock_uncovered().retain(|key, _| registry.get(key).is_some());
        let mut definitions = self.definitions.write().unwrap_or_else(PoisonError::into_inner);
        definitions.replace(generation, registry, preserved);
        Ok(())
    }

    /// Whether the known definitions are the present ones; reads them if not.
    async fn has_present_definitions(&self) -> Result<bool, Unanswered> {
        let known = self.definitions().generation.clone();
        let script = ScriptName::Generation;
        let present = self.redis.run(script, &self.redis.call(script)).await?;
        let present = present.text(2)?;
        if present == known {
            return Ok(true);
        }
        self.read_definitions(&known, present).await?;
        Ok(false)
    }

    /// The arguments of what is remembered of past leases.
    fn add_memory(&self, call: &mut Cmd) {
        let micros = u64::try_from(self.options.remember_for.as_micros()).unwrap_or(u64::MAX >> 11);
        call.arg(micros).arg(self.options.remember_max);
    }

    /// The arguments of the bounds on instances.
    fn add_bounds(&self, call: &mut Cmd) {
        call.arg(self.options.instances_max).arg(self.options.new_instances_per_second_max);
    }
}

impl Limiter for RedisLimiter {
    async fn reserve(&self, request: &ReserveRequest) -> Result<Decision, ReserveError> {
        self.reserve_one(request).await
    }

    async fn complete(&self, request: &CompleteRequest) -> Result<(), CompleteError> {
        self.complete_freeing(request).await.map(drop)
    }

    async fn renew(&self, request: &RenewRequest) -> Result<Renewal, RenewError> {
        self.renew_freeing(request).await.map(|(renewal, _)| renewal)
    }

    /// All at once: they are pipelined.
    async fn reserve_batch(
        &self,
        requests: &[ReserveRequest],
    ) -> Vec<Result<Decision, ReserveError>> {
        self.reserve_many(requests).await
    }

    /// All at once: they are pipelined.
    async fn complete_batch(&self, requests: &[CompleteRequest]) -> Vec<Result<(), CompleteError>> {
        self.complete_many(requests).await
    }
}

impl Backend for RedisLimiter {
    async fn define(&self, limit: Limit) -> Result<LimitStatus, DefineError> {
        Ok(self.define_limits(vec![limit]).await?[0])
    }

    /// All or none.
    async fn define_all(&self, limits: Vec<Limit>) -> Result<Vec<LimitStatus>, DefineError> {
        self.define_limits(limits).await
    }

    async fn delete(&self, key: &LimitKey) -> Result<(), DeleteError> {
        self.delete_limit(key).await
    }

    async fn state(&self, key: &LimitKey) -> Result<Option<LimitState>, StateError> {
        Ok(self.state_of(key).await?)
    }

    async fn states(&self, page: &Page) -> Result<Vec<LimitState>, StateError> {
        self.states_where(page, |_| true).await
    }

    async fn leases(&self, page: &LeasePage) -> Result<Vec<OpenLease>, LeasesError> {
        self.leases_where(page, |_| true).await
    }

    async fn release(&self, lease: LeaseId) -> Result<(), ReleaseError> {
        self.release_lease(lease).await
    }

    async fn forgive(&self, key: &LimitKey) -> Result<u128, ForgiveError> {
        self.forgive_debt(key).await
    }
}

impl TurnBackend for RedisLimiter {
    async fn reserve_in_turn(
        &self,
        request: &ReserveRequest,
        turn: Turn<'_>,
    ) -> Result<TurnAnswer, ReserveError> {
        // Boxed, so that a caller that waits does not keep room for it (`WAIT-05`).
        Box::pin(Self::reserve_in_turn(self, request, turn)).await
    }

    async fn give_up(
        &self,
        request: &ReserveRequest,
        denial: Denial,
    ) -> Result<TurnAnswer, ReserveError> {
        Self::give_up(self, request, denial).await
    }

    /// It may have reached Redis.
    fn may_be_admitted(&self, _: LeaseId) -> bool {
        true
    }

    async fn return_lease(&self, request: &ReserveRequest) -> Result<Vec<LimitKey>, CompleteError> {
        Self::return_lease(self, request.lease).await
    }

    fn looks_every(&self) -> Option<Duration> {
        Some(LOOK_EVERY)
    }

    async fn limits_with_room(
        &self,
        amounts: &[(LimitKey, u64)],
    ) -> Result<Vec<LimitKey>, Unanswered> {
        Self::limits_with_room(self, amounts).await
    }

    async fn complete_freeing(
        &self,
        request: &CompleteRequest,
    ) -> Result<Vec<LimitKey>, CompleteError> {
        Self::complete_freeing(self, request).await
    }

    async fn renew_freeing(
        &self,
        request: &RenewRequest,
    ) -> Result<(Renewal, Vec<LimitKey>), RenewError> {
        Self::renew_freeing(self, request).await
    }

    fn is_shared(&self) -> bool {
        true
    }
}

impl fmt::Debug for RedisLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisLimiter")
            .field("place", &self.redis.config().place())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

fn no_document(reason: &str) -> Unanswered {
    let reason = format!("the definitions in Redis cannot be read: {reason}");
    tracing::error!(reason);
    Unanswered { reason, retry_after: RETRY_AFTER }
}
