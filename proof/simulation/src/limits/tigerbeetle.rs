//! The world of several servers on one modelled TigerBeetle ledger.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimiter::{Decision, Limit, RegisteredLimit, Registry};
use ratelimiter_tigerbeetle::limiter::{LimiterOptions, TigerBeetleLimiter};
use ratelimiterd::tigerbeetle::HostedLedger;
use tigerbeetle_model::ModelLedger;

use super::client::schedule;
use super::cluster::{CALL_TIMEOUT, Connection, Outage, accounts, readings};
use super::context::{OUTSIDE, SimContext};
use super::flawed_ledger::FlawedLedger;
use super::host::FaultInjector;
use super::oracle::{AllowedLag, Reading};
use super::plan::{
    LimitChoices, LimitsPlan, QUIET_MS, Topology, complete_request, key, lease_id, reserve_request,
};
use super::server::{self, Processes};
use crate::executor::Executor;
use crate::fault::Fault;
use crate::flaw::Flaw;
use crate::outcome::{Invariant, Outcome, Violation};
use crate::world::World;

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
    processes: Arc<Processes>,
    flaw: Option<Flaw>,
}

impl World for TigerBeetleWorld {
    type Plan = LimitsPlan;
    const NAME: &'static str = "tigerbeetle";

    fn plan(&self, seed: u64) -> LimitsPlan {
        LimitsPlan::random(seed, Topology::ServersOnLedger, LimitChoices::ON_A_LEDGER)
    }

    fn play(&self, plan: &LimitsPlan, traced: bool) -> Outcome {
        let executor = Executor::starting_at(plan.starts_at);
        let lag = Duration::from_millis(plan.expiry_lag_ms);
        let ledger = Arc::new(ModelLedger::new(executor.clock(0)).with_expiry_lag(lag));
        let allowed_lag = AllowedLag {
            expiry_lag: lag,
            reconciled: ROUNDED_UP + CALL_TIMEOUT,
            noticed: CALL_TIMEOUT,
            waits_at_once: false,
            failed_changes_linger: true,
        };
        let (read, limit_accounts) = (Arc::clone(&ledger), accounts(plan.limits.len()));
        let read = move || readings(&read, &limit_accounts);
        let context = SimContext::new(plan, executor, allowed_lag, traced, read);
        let site = Arc::new(TigerBeetleSite {
            context: context.clone(),
            ledger,
            outage: Arc::default(),
            processes: Processes::new(&context),
            flaw: self.flaw,
        });
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
        let (start, file) = self.processes.begin(server, self, self.flaw);
        let options = LimiterOptions {
            clock: Arc::new(context.executor().clock(skew_ms * 1_000_000)),
            leases_cached_max: context.plan().leases_cached_max,
            seed: context.plan().seed.wrapping_mul(1_000_003).wrapping_add(start),
            ..LimiterOptions::default()
        };
        let ledger = FlawedLedger::new(connection, self.flaw);
        let limiter = TigerBeetleLimiter::new(ledger, options);
        server::run(context, server, limiter, file, self.flaw);
    }

    /// After all faults and all time that anything could last: nothing is held, and every server admits again.
    fn final_checks(self: &Arc<Self>) {
        let context = &self.context;
        let open = context.oracle().open_operations();
        if let Some(operation) = open.first() {
            let detail = format!("[{}] has heard nothing", operation.0);
            context.record(Err(Violation { invariant: Invariant::EveryRequestAnswered, detail }));
        }
        let Some(registry) = self.processes.check_file() else {
            return;
        };
        for (number, reading) in context.readings().into_iter().enumerate() {
            let (key, Reading { capacity, used, .. }) = (key(number), reading);
            let violation =
                |invariant, detail| context.record(Err(Violation { invariant, detail }));
            if used != 0 {
                violation(Invariant::BackToZero, format!("{used} units of {key} are still held"));
            }
            let registered = registry.get(&key);
            let is_there = |registered: &RegisteredLimit| {
                capacity == u128::from(registered.target().get()) && !registered.waits()
            };
            if !registered.is_some_and(is_there) {
                let detail = format!("{key} has {capacity}, the file says {registered:?}");
                violation(Invariant::ProgressResumes, detail);
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
                context.record(Err(Violation { invariant: Invariant::ProgressResumes, detail }));
            }
        }
    }

    async fn admits_again(&self, server: usize, registry: &Registry) -> Result<(), Violation> {
        let stuck = |detail| Err(Violation { invariant: Invariant::ProgressResumes, detail });
        for limit in 0..self.context.plan().limits.len() {
            let Some(RegisteredLimit { limit: Limit { capacity, kind, .. }, .. }) =
                registry.get(&key(limit))
            else {
                return stuck(format!("{} is not defined", key(limit)));
            };
            let capacity = capacity.get();
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
                let key = key(limit);
                return stuck(format!("all {capacity} of {key} at server {server}: {answer:?}"));
            }
            let actuals: &[(usize, u64)] = if kind.is_concurrency() { &[] } else { &[(limit, 0)] };
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
        self.processes.end(server);
        let site = Arc::clone(self);
        self.processes.start_later(server, down_ms, move || site.start(server, skew_ms));
    }

    fn power_loss(self: &Arc<Self>, seed: u64, down_ms: u64, skew_ms: i64) {
        let servers = 0..self.context.plan().skews_ms.len();
        servers.clone().for_each(|server| self.processes.end(server));
        self.processes.lose_power(seed);
        for server in servers {
            let site = Arc::clone(self);
            self.processes.start_later(server, down_ms, move || site.start(server, skew_ms));
        }
    }

    fn ledger_down(self: &Arc<Self>, down_ms: u64) {
        self.outage.until(self.context.now().after(Duration::from_millis(down_ms)));
    }
}

impl<D: FaultInjector> HostedLedger for FlawedLedger<Connection<D>> {}

#[cfg(test)]
mod tests {
    use ratelimiter::Overage;
    use ratelimiter::clock::{Clock, FakeClock};

    use super::*;
    use crate::limits::plan::{
        CallFault, Definition, DiskBehaviour, DiskFault, EventKind, InstanceBounds, LimitSetup,
        LimitsEvent, NetworkFault, SetupKind, WAITERS_MAX_WIDE,
    };

    /// One server with a limit of 7 units, which are to be 5, perhaps together with another limit. It crashes afterwards.
    fn crash_after_define(
        seed: u64,
        (extra, disk): (Option<u64>, DiskBehaviour),
        call_fault: (usize, CallFault),
        crash: (u64, bool),
    ) -> LimitsPlan {
        let overage = Overage::Debt;
        let kind = SetupKind::Rolling { seconds: 1 };
        let event = |at_ms, client, kind, call_faults| {
            let network = NetworkFault::None;
            LimitsEvent { at_ms, client, seed, kind, network, call_faults }
        };
        let definition = Definition::of_capacity(5);
        let define = EventKind::Define { server: 0, limit: 0, definition, extra, disk };
        let ((after_ms, is_power_loss), down_ms, skew_ms) = (crash, 200, 0);
        let crash = EventKind::Crash { server: 0, down_ms, skew_ms, is_power_loss };
        LimitsPlan {
            seed,
            starts_at: FakeClock::new().now(),
            skews_ms: vec![0],
            limits: vec![LimitSetup {
                kind,
                capacity: 7,
                overage,
                is_shadow: false,
                is_defined: true,
            }],
            instance_bounds: InstanceBounds::WIDE,
            waiters_max: WAITERS_MAX_WIDE,
            expiry_lag_ms: 0,
            leases_cached_max: 16,
            events: vec![
                event(1_000, 0, define, vec![call_fault]),
                event(1_000 + after_ms, 1, crash, Vec::new()),
            ],
        }
    }

    /// TB-08: what was staged is found again, whatever a loss of power leaves.
    #[test]
    fn tb_08_a_change_that_is_on_its_way_when_power_is_lost_is_shut_out() {
        for seed in 0..20 {
            let slow = (1, CallFault::Slow { ms: 1_000 });
            let plan =
                crash_after_define(seed, (Some(3), DiskBehaviour::NORMAL), slow, (100, true));
            let Outcome { violation, trace, .. } = TigerBeetleWorld::default().play(&plan, true);
            assert_eq!(violation, None, "seed {seed}\n{trace}");
            assert!(trace.contains("Slow"), "the change was on its way\n{trace}");
        }
    }

    /// TB-08: the file has the change, though its folder cannot be flushed. If that goes on, the change stays; otherwise the
    /// file has the old content again before the rollback is sent, which arrives after a restart.
    #[test]
    fn tb_08_a_rollback_that_is_on_its_way_when_its_server_crashes_is_shut_out() {
        let late = (3, CallFault::Late { ms: 2_500 });
        for (is_always, expected) in
            [(true, "is not known yet"), (false, "Late { ms: 2500 }: transfers")]
        {
            let fault = Some(DiskFault::CommitFlushFails { is_always });
            let disk = DiskBehaviour { fault, ..DiskBehaviour::NORMAL };
            for seed in 0..20 {
                let plan = crash_after_define(seed, (None, disk), late, (1_200, false));
                let Outcome { violation, trace, .. } =
                    TigerBeetleWorld::default().play(&plan, true);
                assert_eq!(violation, None, "seed {seed}\n{trace}");
                assert!(trace.contains(expected), "{expected}\n{trace}");
            }
        }
    }
}
