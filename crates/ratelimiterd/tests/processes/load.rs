//! Clients that never give up, whatever happens to the servers and their backend, and what they know in the end: how often
//! more was given out than there is, whether an answer was taken back, and whether anything is left that nobody holds.

#[path = "load/clients.rs"]
mod clients;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};
use ratelimiter::{
    Backend, CompleteError, CompleteRequest, Decision, LeaseId, Limit, Limiter, ReserveError,
    ReserveRequest, Unanswered,
};
use ratelimiter_client::HttpLimiter;
use testkit::admissions::{Admissions, Violations};
use testkit::{eventually, within};
use tokio::sync::{RwLockWriteGuard, Semaphore};
use tokio::task::JoinSet;

use crate::processes::{ServerProcess, TestKeys, new_lease};

/// A server that is alive has answered long before.
const HANGS_AFTER: Duration = Duration::from_secs(120);
/// So many requests are sent at a time to ask again.
const ASKED_AT_ONCE: usize = 32;

/// A test waits for what lapses within this time.
const LAPSES_SECONDS: u64 = 60;

/// What the clients share.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub slots: u64,
    /// Longer than a test, so that a hold that is not released is seen.
    pub slot_timeout_seconds: u64,
    pub rate: u64,
    pub rate_window_seconds: u64,
    pub tokens: u64,
    pub tokens_window_seconds: u64,
    /// Of the holds that are never completed.
    pub brief_timeout_seconds: u64,
}

/// The clients, and what they know of the servers.
pub struct Load {
    world: Arc<World>,
    clients: JoinSet<()>,
}

struct World {
    keys: TestKeys,
    limits: Limits,
    limiters: RwLock<Vec<HttpLimiter>>,
    is_over: AtomicBool,
    /// Each request holds it for reading.
    in_flight: tokio::sync::RwLock<()>,
    clock: MonotonicClock,
    admissions: Mutex<Admissions>,
    counts: Counts,
    /// Why requests had no answer, in words of [`REASONS`].
    reasons: Mutex<BTreeMap<String, u64>>,
}

/// What became of their requests.
#[derive(Debug, Default)]
struct Counts {
    /// Reserves and completes, repeated ones included.
    requests: AtomicU64,
    allowed: AtomicU64,
    denied: AtomicU64,
    forgotten: AtomicU64,
    ended: AtomicU64,
    unanswered: AtomicU64,
    /// Leases that were asked for again to see whether they are known.
    asked_again: AtomicU64,
}

/// What the clients found.
#[derive(Debug)]
pub struct Report {
    what: String,
    counts: String,
    pub unanswered: u64,
    pub reasons: BTreeMap<String, u64>,
    pub violations: Violations,
    /// Over-admissions among leases that were not lost.
    pub violations_of_kept: Violations,
    /// Units that are held when all leases are completed or have lapsed.
    pub leaked: u64,
}

/// Parts of the reasons why a request has no answer.
const REASONS: [&str; 13] = [
    "cannot connect to",
    "is incomplete",
    "it cannot be reached",
    "no answer in time",
    "maxmemory is reached",
    "the slot of the keys is being moved",
    "another node of the cluster has the keys",
    "it loads its data",
    "it is a read-only replica",
    "too few replicas",
    "no answer from TigerBeetle",
    "the session is being opened",
    "the backend did not answer within",
];

impl Limits {
    /// As limits of a test.
    pub fn of(&self, keys: &TestKeys) -> Vec<Limit> {
        vec![
            keys.concurrency("slots", self.slot_timeout_seconds, self.slots),
            keys.rolling("rate", self.rate_window_seconds, self.rate),
            keys.concurrency("brief", self.brief_timeout_seconds, 1_000_000),
            keys.rolling("tokens", self.tokens_window_seconds, self.tokens),
        ]
    }
}

impl Load {
    /// Defines the limits, waits until every server knows them, and starts.
    pub async fn start(keys: &TestKeys, limits: Limits, servers: &[ServerProcess]) -> Self {
        let limiters: Vec<_> = servers.iter().map(limiter).collect();
        for limit in limits.of(keys) {
            insist_on_define(&limiters[0], limit).await;
        }
        for limiter in &limiters {
            let is_known = async || keys.state(limiter, "tokens").await.is_some();
            eventually("every server knows the limits", is_known).await;
        }
        let world = Arc::new(World {
            keys: keys.clone(),
            limits,
            limiters: RwLock::new(limiters),
            is_over: AtomicBool::new(false),
            in_flight: tokio::sync::RwLock::default(),
            clock: MonotonicClock::new(),
            admissions: Mutex::new(Admissions::new(limits.of(keys))),
            counts: Counts::default(),
            reasons: Mutex::default(),
        });
        Self { clients: clients::spawn(&world), world }
    }

    /// From now on the clients ask this server in the place of another one.
    pub fn replace(&self, index: usize, server: &ServerProcess) {
        self.world.limiters.write().unwrap()[index] = limiter(server);
    }

    pub fn now(&self) -> Timestamp {
        self.world.clock.now()
    }

    /// How long it takes until `count` more leases are through.
    pub async fn progress(&self, count: u64) -> Duration {
        let (begun, allowed) = (self.now(), &self.world.counts.allowed);
        let target = allowed.load(Ordering::Relaxed) + count;
        eventually("leases go through", async || allowed.load(Ordering::Relaxed) >= target).await;
        self.now().since(begun)
    }

    /// How many requests had no answer for a reason with these words.
    pub fn unanswered_for(&self, reason: &str) -> u64 {
        self.world.reasons.lock().unwrap().get(reason).copied().unwrap_or_default()
    }

    /// Lets no request begin, and waits until those under way have ended.
    pub async fn hold_still(&self) -> RwLockWriteGuard<'_, ()> {
        self.world.in_flight.write().await
    }

    /// Asks again for the last `count` leases: what was answered before must be answered again. What is not counts as a violation.
    pub async fn ask_again(&self, _: &RwLockWriteGuard<'_, ()>, count: usize) {
        let requests = self.world.admissions.lock().unwrap().last_told(count);
        let at_once = Arc::new(Semaphore::new(ASKED_AT_ONCE));
        let mut asking = JoinSet::new();
        for request in requests {
            let (world, at_once) = (Arc::clone(&self.world), Arc::clone(&at_once));
            asking.spawn(async move {
                let _one_of_few = at_once.acquire().await;
                world.insist(&mut fastrand::Rng::new(), &request).await;
                world.counts.asked_again.fetch_add(1, Ordering::Relaxed);
            });
        }
        while let Some(asked) = asking.join_next().await {
            asked.unwrap();
        }
    }

    /// What cannot be true so far.
    pub fn violations(&self) -> Violations {
        self.world.admissions.lock().unwrap().violations()
    }

    /// The leases that were allowed since a moment.
    pub fn allowed_since(&self, since: Timestamp) -> Vec<LeaseId> {
        self.world.admissions.lock().unwrap().allowed_since(since)
    }

    /// These leases were lost with their backend.
    pub fn note_lost(&self, leases: &[LeaseId]) {
        let mut admissions = self.world.admissions.lock().unwrap();
        leases.iter().for_each(|lease| admissions.note_lost(*lease));
    }

    /// Stops the clients, and compares what they know with a server's state when everything is completed or has lapsed.
    pub async fn stop(mut self, server: &ServerProcess, what: &str) -> Report {
        self.world.is_over.store(true, Ordering::Relaxed);
        while let Some(client) = self.clients.join_next().await {
            client.unwrap();
        }
        eventually("it is ready", async || server.get("/readyz").await.0 == 200).await;
        let (world, limiter) = (&self.world, limiter(server));
        let used =
            async |name: &str| world.keys.state(&limiter, name).await.map(|state| state.usage.used);
        let slots = (world.limits.slot_timeout_seconds <= LAPSES_SECONDS).then_some("slots");
        for name in ["brief", "rate", "tokens"].into_iter().chain(slots) {
            eventually("what has lapsed returns", async || used(name).await == Some(0)).await;
        }
        let leaked = used("slots").await.expect("the limit is defined");
        if leaked == 0 {
            world.reserve_everything(&limiter).await;
        }
        let admissions = world.admissions.lock().unwrap();
        Report {
            what: what.to_owned(),
            counts: format!("{:?}", world.counts),
            unanswered: world.counts.unanswered.load(Ordering::Relaxed),
            reasons: world.reasons.lock().unwrap().clone(),
            violations: admissions.violations(),
            violations_of_kept: admissions.violations_of_kept(),
            leaked,
        }
    }

    /// As [`Load::stop`]: nothing was admitted twice, no answer was taken back, and nothing is left.
    pub async fn finish(self, server: &ServerProcess, what: &str) -> Report {
        let report = self.stop(server, what).await;
        eprintln!("{report}");
        assert!(report.violations.is_empty(), "{report}\n{:?}", report.violations);
        assert_eq!(report.leaked, 0, "{report}");
        report
    }
}

impl Report {
    /// Whatever had no answer had a reason that the documentation names.
    pub fn expect_known_reasons(&self) {
        let is_known = |reason: &String| REASONS.contains(&reason.as_str());
        assert!(self.reasons.keys().all(is_known), "{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, counts, reasons, violations, leaked, .. } = self;
        let Violations { over_admissions, worst, changed } = violations;
        write!(f, "{what}: {counts}, over-admissions {over_admissions}")?;
        if let Some((key, units)) = worst {
            write!(f, " (by up to {units} units of {key})")?;
        }
        write!(
            f,
            ", leaked {leaked}, answers taken back {}; without an answer because ",
            changed.len()
        )?;
        write!(f, "{reasons:?}")
    }
}

/// Whether the long forms of the faults are asked for.
pub fn is_long() -> bool {
    std::env::var("RATELIMITER_FAULTS").is_ok_and(|form| form == "long")
}

/// The size of a fault: the short one in every test run, the long one on request.
pub fn short_or_long<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// A client of a server that reports a hang as its own reason.
fn limiter(server: &ServerProcess) -> HttpLimiter {
    server.limiter_within(HANGS_AFTER)
}

/// Defines a limit, again if that was not answered on a busy machine.
pub async fn insist_on_define(at: &HttpLimiter, limit: Limit) {
    eventually("the limit is defined", async || at.define(limit.clone()).await.is_ok()).await;
}

impl World {
    /// Asks any server once, and notes what is known by that.
    async fn ask_reserve(
        &self,
        random: &mut fastrand::Rng,
        request: &ReserveRequest,
    ) -> Result<Decision, ReserveError> {
        let limiter = self.any_limiter(random);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.admissions.lock().unwrap().reserve_sent(request, self.clock.now());
        let answer = limiter.reserve(request).await;
        let now = self.clock.now();
        self.admissions.lock().unwrap().reserve_answered(request.lease, &answer, now);
        if let Err(ReserveError::Unanswered(unanswered)) = &answer {
            self.note_unanswered(unanswered);
        }
        answer
    }

    /// Asks until there is an answer.
    async fn insist(&self, random: &mut fastrand::Rng, request: &ReserveRequest) {
        within("a lease is known", async {
            while let Err(ReserveError::Unanswered(_)) = self.ask_reserve(random, request).await {
                clients::pause(random).await;
            }
        })
        .await;
    }

    /// As [`World::ask_reserve`].
    async fn ask_complete(
        &self,
        random: &mut fastrand::Rng,
        request: &CompleteRequest,
    ) -> Result<(), CompleteError> {
        let limiter = self.any_limiter(random);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.admissions.lock().unwrap().complete_sent(request, self.clock.now());
        let answer = limiter.complete(request).await;
        match &answer {
            Ok(()) => self.admissions.lock().unwrap().complete_answered(request.lease),
            Err(CompleteError::Unanswered(unanswered)) => self.note_unanswered(unanswered),
            Err(_) => {}
        }
        answer
    }

    fn any_limiter(&self, random: &mut fastrand::Rng) -> HttpLimiter {
        let limiters = self.limiters.read().unwrap();
        limiters[random.usize(..limiters.len())].clone()
    }

    /// Every request is answered or refused with a reason: a server that is alive lets none hang.
    fn note_unanswered(&self, unanswered: &Unanswered) {
        let reason = &unanswered.reason;
        let hangs = format!("did not answer within {HANGS_AFTER:?}");
        assert!(!reason.is_empty() && !reason.ends_with(&hangs), "no answer: {reason}");
        self.counts.unanswered.fetch_add(1, Ordering::Relaxed);
        let known = REASONS.iter().find(|known| reason.contains(**known));
        let reason = known.map_or(reason.as_str(), |known| known).to_owned();
        *self.reasons.lock().unwrap().entry(reason).or_default() += 1;
    }

    /// The whole capacity of every limit can be reserved again, which nothing that is left over allows.
    async fn reserve_everything(&self, at: &HttpLimiter) {
        let limits = self.limits.of(&self.keys);
        let keys = ["slots", "rate", "brief", "tokens"];
        let needs: Vec<_> =
            keys.iter().zip(&limits).map(|(key, limit)| (*key, limit.capacity.get())).collect();
        let request = self.keys.reserve(new_lease(), &needs);
        let mut decision = None;
        eventually("everything is reserved", async || {
            decision = at.reserve(&request).await.ok();
            decision.is_some()
        })
        .await;
        assert!(decision.is_some_and(|decision| decision.is_allowed()), "nothing is in use");
    }
}
