//! Shared state of a run: time, oracle, live servers and trace.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use tokio_util::sync::CancellationToken;

use super::host::Host;
use super::oracle::{AllowedLag, Oracle, Reading};
use super::plan::{CallFault, DiskBehaviour, DiskFault, EVENTS_MS, LimitsPlan};
use super::virtual_disk::DiskCall;
use crate::executor::{Executor, Group, Operation};
use crate::fault::Fault;
use crate::outcome::{Invariant, Outcome, Violation};

/// Clients and messages, which no crash of a server takes along.
pub(super) const OUTSIDE: Group = Group(0);

/// So many times an operation waits for a slow disk.
const DISK_JOBS_SLOW: u32 = 3;

/// The group of a server's tasks.
pub(super) const fn group(server: usize) -> Group {
    Group(server + 1)
}

/// What everybody in a run shares. Clones share it.
#[derive(Clone)]
pub(super) struct SimContext(Arc<SimState>);

struct SimState {
    executor: Executor,
    start: Timestamp,
    plan: LimitsPlan,
    oracle: Mutex<Oracle>,
    record: Mutex<Record>,
    /// Servers that are up.
    hosts: Mutex<Vec<Option<Arc<dyn Host>>>>,
    /// The clients that go away with the next complete at each server.
    leaving: Mutex<Vec<Vec<CancellationToken>>>,
    /// Each event's operation, then each server's upkeep.
    calls: Mutex<Vec<Calls>>,
    checks: AtomicBool,
    /// Reads the limits where the truth is.
    read: Box<dyn Fn() -> Vec<Reading> + Send + Sync>,
}

/// What becomes of an operation's calls to the ledger, and to the disk.
struct Calls {
    count: usize,
    call_faults: Vec<(usize, CallFault)>,
    random: fastrand::Rng,
    disk: DiskBehaviour,
    disk_jobs: u32,
    disk_calls: u32,
    is_renamed: bool,
}

struct Record {
    trace: Option<String>,
    outcome: Outcome,
}

/// A task or a message that works for a request, as long as it lives.
pub(super) struct WorkGuard {
    context: SimContext,
    operation: Operation,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimContext {
    pub(super) fn new(
        plan: &LimitsPlan,
        executor: Executor,
        allowed_lag: AllowedLag,
        traced: bool,
        read: impl Fn() -> Vec<Reading> + Send + Sync + 'static,
    ) -> Self {
        let calls = |seed, call_faults: &[(usize, CallFault)], disk| {
            let random = fastrand::Rng::with_seed(seed);
            Calls {
                count: 0,
                call_faults: call_faults.to_vec(),
                random,
                disk,
                disk_jobs: 0,
                disk_calls: 0,
                is_renamed: false,
            }
        };
        let mut all: Vec<Calls> = plan
            .events
            .iter()
            .map(|event| calls(event.seed, &event.call_faults, event.disk()))
            .collect();
        for server in 0..plan.skews_ms.len() {
            all.push(calls(plan.seed ^ (server as u64 + 1), &[], DiskBehaviour::NORMAL));
        }
        Self(Arc::new(SimState {
            start: executor.now(),
            executor,
            plan: plan.clone(),
            oracle: Mutex::new(Oracle::new(plan, allowed_lag)),
            leaving: Mutex::new(vec![Vec::new(); plan.skews_ms.len()]),
            record: Mutex::new(Record {
                trace: traced.then(String::new),
                outcome: Outcome::default(),
            }),
            hosts: Mutex::new(vec![None; plan.skews_ms.len()]),
            calls: Mutex::new(all),
            checks: AtomicBool::new(true),
            read: Box::new(read),
        }))
    }

    pub(super) fn executor(&self) -> &Executor {
        &self.0.executor
    }

    pub(super) fn plan(&self) -> &LimitsPlan {
        &self.0.plan
    }

    pub(super) fn now(&self) -> Timestamp {
        self.0.executor.now()
    }

    /// The moment so many milliseconds after the start, and after what the first so many events leap over.
    pub(super) fn at_ms(&self, ms: u64, events: usize) -> Timestamp {
        let leaps_ms = self.0.plan.leaps_ms(events);
        self.0.start.after(Duration::from_millis(ms + leaps_ms))
    }

    /// From this moment on only time passes.
    pub(super) fn quiet_at(&self) -> Timestamp {
        self.at_ms(2 * EVENTS_MS, self.0.plan.events.len())
    }

    pub(super) fn start_ms(&self) -> u64 {
        self.0.start.unix_ms()
    }

    pub(super) fn oracle(&self) -> MutexGuard<'_, Oracle> {
        lock(&self.0.oracle)
    }

    pub(super) fn host(&self, server: usize) -> Option<Arc<dyn Host>> {
        lock(&self.0.hosts)[server].clone()
    }

    pub(super) fn set_host(&self, server: usize, host: Option<Arc<dyn Host>>) {
        let before = std::mem::replace(&mut lock(&self.0.hosts)[server], host);
        drop(before);
    }

    /// A client goes away with the next complete at its server.
    pub(super) fn leave_with_complete(&self, server: usize, gone: CancellationToken) {
        lock(&self.0.leaving)[server].push(gone);
    }

    /// A server has carried out a complete.
    pub(super) fn completed(&self, server: usize) {
        let leaving = std::mem::take(&mut lock(&self.0.leaving)[server]);
        leaving.iter().for_each(CancellationToken::cancel);
    }

    /// The operation of a server's own regular work.
    pub(super) fn upkeep(&self, server: usize) -> Operation {
        Operation(self.0.plan.events.len() + server)
    }

    pub(super) fn track_work(&self, operation: Operation) -> WorkGuard {
        self.oracle().count_work(operation, true, self.now());
        WorkGuard { context: self.clone(), operation }
    }

    /// What becomes of the next call of an operation, and two latencies in microseconds.
    pub(super) fn next_call(&self, operation: Operation) -> (Option<CallFault>, [u64; 2]) {
        let mut calls = lock(&self.0.calls);
        let calls = &mut calls[operation.0];
        let number = calls.count;
        calls.count += 1;
        let at = calls.call_faults.iter().position(|(call, _)| *call == number);
        let call_fault = at.map(|at| calls.call_faults.remove(at).1);
        (call_fault, [(); 2].map(|()| calls.random.u64(50..2_500)))
    }

    /// How long an operation's next work on the disk waits. Only the first few are slow: a change that makes more would
    /// hold up others for longer than a run lasts.
    pub(super) fn next_disk_job(&self, operation: Operation) -> Duration {
        let calls = &mut lock(&self.0.calls)[operation.0];
        calls.disk_jobs += 1;
        let is_slow = calls.disk_jobs <= DISK_JOBS_SLOW;
        let slow_ms = if is_slow { calls.disk.slow_ms } else { 0 };
        Duration::from_millis(slow_ms.max(DiskBehaviour::NORMAL.slow_ms))
    }

    /// What goes wrong with the next call of an operation to the disk.
    pub(super) fn next_disk_call(&self, operation: Operation, call: DiskCall) -> Option<DiskFault> {
        let calls = &mut lock(&self.0.calls)[operation.0];
        let number = calls.disk_calls;
        calls.disk_calls += 1;
        let is_renamed = calls.is_renamed;
        calls.is_renamed |= call == DiskCall::Rename;
        let fault = calls.disk.fault.filter(|fault| fault.fails(call, number, is_renamed))?;
        if fault.is_once() {
            calls.disk.fault = None;
        }
        Some(fault)
    }

    /// The next call of a server's regular work meets this.
    pub(super) fn fault_upkeep(&self, server: usize, call_faults: &[(usize, CallFault)]) {
        let calls = &mut lock(&self.0.calls)[self.upkeep(server).0];
        let number = calls.count;
        calls.call_faults.extend(call_faults.iter().map(|(_, call_fault)| (number, *call_fault)));
    }

    pub(super) fn count_fault(&self, fault: Fault) {
        lock(&self.0.record).outcome.faults.note(fault);
    }

    pub(super) fn request(&self) {
        lock(&self.0.record).outcome.requests += 1;
    }

    /// Writes a line into the trace; the text is only made when there is one.
    pub(super) fn trace(&self, text: impl FnOnce() -> String) {
        let at = self.now().since(self.0.start);
        let mut record = lock(&self.0.record);
        if let Some(trace) = &mut record.trace {
            writeln!(trace, "{:>10.3}ms  {}", at.as_secs_f64() * 1_000.0, text())
                .expect("a text takes any line");
        }
    }

    /// Records a violation; the first one ends the run.
    pub(super) fn record(&self, kept: Result<(), Violation>) {
        if let Err(violation) = kept {
            let mut record = lock(&self.0.record);
            record.outcome.violation.get_or_insert(violation);
            drop(record);
            self.0.executor.halt();
        }
    }

    /// Holds the limits against the oracle.
    pub(super) fn check(&self) {
        if !self.0.checks.load(Ordering::Relaxed) {
            return;
        }
        lock(&self.0.record).outcome.checks += 1;
        let readings = (self.0.read)();
        let checked = self.oracle().check(self.now(), &readings);
        self.record(checked);
    }

    /// From now on requests are made that the oracle does not hear of.
    pub(super) fn stop_checks(&self) {
        self.0.checks.store(false, Ordering::Relaxed);
    }

    pub(super) fn readings(&self) -> Vec<Reading> {
        (self.0.read)()
    }

    /// Runs until so many milliseconds after the start, and after all leaps; false after a violation.
    pub(super) fn run_until_ms(&self, ms: u64) -> bool {
        let end = self.at_ms(ms, self.0.plan.events.len());
        if let Err(message) = self.0.executor.run_until(end) {
            let violation = Violation { invariant: Invariant::NoPanic, detail: message };
            self.record(Err(violation));
        }
        lock(&self.0.record).outcome.violation.is_none()
    }

    /// What the run came to. Everything that still runs is taken down.
    pub(super) fn finish(self) -> Outcome {
        self.0.executor.halt();
        for server in 0..self.0.plan.skews_ms.len() {
            self.set_host(server, None);
            self.0.executor.kill(group(server));
        }
        self.0.executor.kill(OUTSIDE);
        let mut record = lock(&self.0.record);
        let trace = record.trace.take().unwrap_or_default();
        let outcome = std::mem::take(&mut record.outcome);
        Outcome { trace, ..outcome }
    }
}

impl Drop for WorkGuard {
    fn drop(&mut self) {
        let now = self.context.now();
        self.context.oracle().count_work(self.operation, false, now);
    }
}
