//! Several servers with the TigerBeetle backend, on one model of the ledger.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimiter::{
    CompleteError, CompleteRequest, Decision, DefineError, Limit, LimitStatus, Limiter,
    RegisteredLimit, Registry, ReserveError, ReserveRequest,
};
use ratelimiter_tigerbeetle::ledger::Ledger;
use ratelimiter_tigerbeetle::ledger::model::ModelLedger;
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};

use super::client::schedule;
use super::cluster::{CALL_TIMEOUT, Connection, Outage, accounts, readings};
use super::context::{OUTSIDE, SimContext, group};
use super::flawed_ledger::FlawedLedger;
use super::flawed_server::FlawedServer;
use super::host::{BoxAnswer, FaultInjector, Host};
use super::office::{LimitsFile, Office};
use super::oracle::Lateness;
use super::plan::{
    DiskBehaviour, EVENTS_MS, LimitsPlan, QUIET_MS, Topology, complete_request, lease_id,
    reserve_request,
};
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::outcome::{Outcome, Promise, Violation};
use crate::run::World;

/// How often a server does its regular work; less often when only time passes.
const TICK_EVERY: Duration = Duration::from_millis(250);
const TICK_EVERY_WHEN_QUIET: Duration = Duration::from_secs(1);
/// How long the last questions may take.
const FINAL_CHECKS_MS: u64 = 2_000;
/// A reconciled reservation lasts whole seconds.
const ROUNDED_UP: Duration = Duration::from_secs(1);

/// Several servers on one ledger, with a deliberate bug or without.
#[derive(Clone, Copy, Debug, Default)]
pub struct TigerBeetleWorld {
    /// The bug.
    pub flaw: Option<Flaw>,
}

/// The servers and what is below them.
struct TigerBeetleSite {
    context: SimContext,
    ledger: Arc<ModelLedger>,
    outage: Arc<Outage>,
    file: Arc<LimitsFile>,
    flaw: Option<Flaw>,
    /// How often a server was started; each time is another seed.
    starts: AtomicU64,
}

/// One server's process.
struct Server<L: Ledger> {
    office: Office<L>,
}

impl World for TigerBeetleWorld {
    type Plan = LimitsPlan;
    const NAME: &'static str = "tigerbeetle";

    fn plan(&self, seed: u64) -> LimitsPlan {
        LimitsPlan::random(seed, Topology::ServersOnLedger)
    }

    fn play(&self, plan: &LimitsPlan, traced: bool) -> Outcome {
        let executor = SimContext::executor_at_start();
        let lag = Duration::from_millis(plan.expiry_lag_ms);
        let ledger = Arc::new(ModelLedger::new(executor.clock(0)).with_expiry_lag(lag));
        let lateness = Lateness {
            expiry_lag: lag,
            reconciled: ROUNDED_UP + CALL_TIMEOUT,
            noticed: CALL_TIMEOUT,
        };
        let (read, limit_accounts) = (Arc::clone(&ledger), accounts(plan.limits.len()));
        let read = move || readings(&read, &limit_accounts);
        let context = SimContext::new(plan, executor, lateness, traced, read);
        let site = Arc::new(TigerBeetleSite {
            context: context.clone(),
            ledger,
            outage: Arc::default(),
            file: Arc::default(),
            flaw: self.flaw,
            starts: AtomicU64::new(0),
        });
        let limits = plan.limits.iter().enumerate();
        let limits = limits.map(|(number, setup)| setup.limit(number, setup.capacity));
        site.file.write(&limits.map(RegisteredLimit::in_force).collect());
        for (server, skew_ms) in plan.skews_ms.iter().enumerate() {
            site.start(server, *skew_ms);
        }
        schedule(&context, &site);
        if context.run_until_ms(QUIET_MS) {
            site.final_checks();
        }
        drop(site);
        context.finish()
    }
}

impl TigerBeetleSite {
    fn start(self: &Arc<Self>, server: usize, skew_ms: i64) {
        if skew_ms != 0 {
            self.context.count_fault(Fault::ClockSet);
        }
        let context = &self.context;
        let connection = Connection {
            server,
            context: context.clone(),
            ledger: Arc::clone(&self.ledger),
            outage: Arc::clone(&self.outage),
            injector: Arc::clone(self),
        };
        let start = self.starts.fetch_add(1, Ordering::Relaxed);
        let options = LimiterOptions {
            clock: Arc::new(context.executor().clock(skew_ms * 1_000_000)),
            leases_cached_max: context.plan().leases_cached_max,
            seed: context.plan().seed.wrapping_mul(1_000_003).wrapping_add(start),
            ..LimiterOptions::default()
        };
        let ledger = FlawedLedger::new(connection, self.flaw);
        let limiter = Arc::new(TigerBeetleLimiter::new(ledger, options));
        let office = Office::new(context.executor().clone(), limiter, Arc::clone(&self.file));
        let process = Arc::new(Server { office });
        let host: Arc<dyn Host> = process.clone();
        let host = FlawedServer::around(host, self.flaw, context.start_ms());
        context.set_host(server, Some(host));
        let (executor, quiet_at) = (context.executor().clone(), context.at_ms(2 * EVENTS_MS));
        context.executor().spawn(group(server), context.upkeep(server), async move {
            loop {
                process.office.tick().await;
                let is_quiet = executor.now() >= quiet_at;
                executor.sleep(if is_quiet { TICK_EVERY_WHEN_QUIET } else { TICK_EVERY }).await;
            }
        });
    }

    /// After all faults and all time that anything could last: nothing is held, and every server admits again.
    fn final_checks(self: &Arc<Self>) {
        let context = &self.context;
        let open = context.oracle().open_operations();
        if let Some(operation) = open.first() {
            let detail = format!("[{}] has heard nothing", operation.0);
            context.record(Err(Violation { promise: Promise::EveryRequestAnswered, detail }));
        }
        let registry = self.file.read();
        for (reading, registered) in context.readings().iter().zip(registry.iter()) {
            let (key, used) = (&registered.limit.key, reading.used);
            let violation = |promise, detail| context.record(Err(Violation { promise, detail }));
            if used != 0 {
                violation(Promise::BackToZero, format!("{used} units of {key} are still held"));
            }
            let is_there = reading.capacity == u128::from(registered.target().get());
            if !is_there || registered.waits() {
                let detail =
                    format!("{key} has {}, the file says {registered:?}", reading.capacity);
                violation(Promise::ProgressResumes, detail);
            }
        }
        context.stop_checks();
        let answers = Arc::new(Mutex::new(0));
        for server in 0..context.plan().skews_ms.len() {
            let (site, registry, answers) =
                (Arc::clone(self), registry.clone(), Arc::clone(&answers));
            context.executor().spawn(OUTSIDE, context.upkeep(server), async move {
                // One after another, since each asks for all there is.
                let turn = Duration::from_millis(server as u64 * 500);
                site.context.executor().sleep(turn).await;
                let kept = site.admits_again(server, &registry).await;
                site.context.record(kept);
                *answers.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            });
        }
        if context.run_until_ms(QUIET_MS + FINAL_CHECKS_MS) {
            let answered = *answers.lock().unwrap_or_else(PoisonError::into_inner);
            if answered < context.plan().skews_ms.len() {
                let detail = "a server does not answer".to_owned();
                context.record(Err(Violation { promise: Promise::ProgressResumes, detail }));
            }
        }
    }

    async fn admits_again(&self, server: usize, registry: &Registry) -> Result<(), Violation> {
        let stuck = |detail| Err(Violation { promise: Promise::ProgressResumes, detail });
        for (limit, registered) in registry.iter().enumerate() {
            let capacity = registered.limit.capacity.get();
            if capacity == 0 {
                continue;
            }
            let Some(host) = self.context.host(server) else {
                return stuck(format!("server {server} is down"));
            };
            let lease =
                lease_id(self.context.start_ms(), !self.context.plan().seed, server * 16 + limit);
            let request = reserve_request(lease, &[(limit, capacity)]);
            let answer = Arc::clone(&host).reserve(request).await;
            if !answer.as_ref().is_ok_and(Decision::is_allowed) {
                let key = &registered.limit.key;
                return stuck(format!("all {capacity} of {key} at server {server}: {answer:?}"));
            }
            let actuals: &[(usize, u64)] =
                if registered.limit.kind.is_concurrency() { &[] } else { &[(limit, 0)] };
            let answer = host.complete(complete_request(lease, actuals)).await;
            let used = self.context.readings()[limit].used;
            if answer.is_err() || used != 0 {
                return stuck(format!("completed: {answer:?}, {used} units are held"));
            }
        }
        Ok(())
    }
}

impl FaultInjector for TigerBeetleSite {
    fn crash(self: &Arc<Self>, server: usize, down_ms: u64, skew_ms: i64) {
        if self.context.host(server).is_none() {
            return;
        }
        self.context.trace(|| format!("    server {server} crashes"));
        self.context.set_host(server, None);
        self.context.executor().kill(group(server));
        let (site, executor) = (Arc::clone(self), self.context.executor());
        let up = executor.sleep(Duration::from_millis(down_ms));
        executor.spawn(OUTSIDE, self.context.upkeep(server), async move {
            up.await;
            site.context.trace(|| format!("    server {server} starts"));
            site.start(server, skew_ms);
        });
    }

    fn ledger_down(self: &Arc<Self>, down_ms: u64) {
        self.outage.until(self.context.now().after(Duration::from_millis(down_ms)));
    }
}

impl<L: Ledger> Host for Server<L> {
    fn reserve(
        self: Arc<Self>,
        request: ReserveRequest,
    ) -> BoxAnswer<Result<Decision, ReserveError>> {
        Box::pin(async move {
            self.office.not_started()?;
            self.office.limiter().reserve(&request).await
        })
    }

    fn complete(self: Arc<Self>, request: CompleteRequest) -> BoxAnswer<Result<(), CompleteError>> {
        Box::pin(async move {
            self.office.not_started()?;
            self.office.limiter().complete(&request).await
        })
    }

    fn define(
        self: Arc<Self>,
        limit: Limit,
        disk: DiskBehaviour,
    ) -> BoxAnswer<Result<LimitStatus, DefineError>> {
        Box::pin(async move { self.office.define(limit, disk).await })
    }
}
