//! A simulated server: its backend, and waiting and the administration as they ship, on virtual time and disk.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use ratelimiter::{
    CompleteError, CompleteRequest, Decision, DefineError, DeleteError, LeaseId, Limit, LimitKey,
    LimitStatus, RegisteredLimit, Registry, RenewError, RenewRequest, Renewal, ReserveError,
    ReserveRequest,
};
use ratelimiter_waiting::{Runtime, Waiting};
use ratelimiter_wire::{LimitsDocument, write_limits_file};
use ratelimiterd::admin::{Admin, ChangeError, RestoreError};
use ratelimiterd::disk::{Access, Disk};
use ratelimiterd::{HostedBackend, LimitsFile};
use tokio_util::sync::CancellationToken;

use super::client::name;
use super::context::{OUTSIDE, SimContext, group};
use super::flawed_server::FlawedServer;
use super::host::{BoxAnswer, FaultInjector, Host};
use super::plan::DiskFault;
use super::virtual_disk::{DiskCall, DiskFaults, NoFaults, VirtualDisk};
use crate::flaw::Flaw;
use crate::outcome::{Invariant, Violation};

const FOLDER: &str = "/limits";
const LIMITS_PATH: &str = "/limits/limits.json";
/// How long a change may take to begin, and then to come to its end.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a server does its regular work; less often in memory, and when only time passes.
const TICK_EVERY: Duration = Duration::from_millis(250);
const TICK_EVERY_IN_MEMORY: Duration = Duration::from_millis(500);
const TICK_EVERY_WHEN_QUIET: Duration = Duration::from_secs(1);

/// A server that runs.
pub(super) struct SimServer<B: HostedBackend> {
    context: SimContext,
    backend: Arc<B>,
    limiter: Waiting<B>,
    admin: Arc<Admin<B>>,
}

/// The servers' processes, and the disk that they share.
pub(super) struct Processes {
    context: SimContext,
    disk: VirtualDisk,
    starts: AtomicU64,
    servers: Mutex<Vec<Process>>,
}

/// A server's process, or its last one.
#[derive(Clone, Copy, Default)]
struct Process {
    number: u64,
    /// How often one has ended.
    ends: u64,
}

/// The executor, as the server knows it.
struct SimRuntime(SimContext);

/// The faults that the plan has for the operation that calls.
struct PlannedFaults<D> {
    context: SimContext,
    injector: Arc<D>,
    server: usize,
}

/// Starts a server on this backend and this file, with a deliberate bug around it or without.
pub(super) fn run(
    context: &SimContext,
    server: usize,
    backend: impl HostedBackend,
    file: LimitsFile,
    flaw: Option<Flaw>,
) {
    let (executor, context) = (context.executor().clone(), context.clone());
    executor.spawn(group(server), context.upkeep(server), async move {
        match SimServer::start(&context, backend, file).await {
            Ok(process) => {
                let host = FlawedServer::around(process.clone(), flaw, &context);
                context.set_host(server, Some(host));
                process.tick_forever().await;
            }
            Err(violation) => context.record(Err(violation)),
        }
    });
}

impl<B: HostedBackend> SimServer<B> {
    async fn start(
        context: &SimContext,
        backend: B,
        file: LimitsFile,
    ) -> Result<Arc<Self>, Violation> {
        let backend = Arc::new(backend);
        let addr = ([127, 0, 0, 1], 8080).into();
        let runtime: Arc<dyn Runtime> = Arc::new(SimRuntime(context.clone()));
        let admin = Admin::restore(Arc::clone(&backend), file, addr, Arc::clone(&runtime)).await;
        let admin = admin.map_err(|error| {
            let detail = match error {
                // It would name a process of the real machine.
                RestoreError::InUse { .. } => "the limits file is in use".to_owned(),
                RestoreError::File(_) | RestoreError::Backend { .. } => error.to_string(),
            };
            Violation { invariant: Invariant::DefinitionsKept, detail }
        })?;
        let clock = Arc::new(context.executor().clock(0));
        let (waiters_max, changed) = (context.plan().waiters_max, admin.changed());
        let limiter = Waiting::new(Arc::clone(&backend), clock, &runtime, waiters_max, changed);
        let (context, admin) = (context.clone(), Arc::new(admin));
        Ok(Arc::new(Self { context, backend, limiter, admin }))
    }

    async fn tick_forever(&self) {
        let (executor, quiet_at) = (self.context.executor(), self.context.quiet_at());
        let never = CancellationToken::new();
        loop {
            self.admin.tick(&never).await;
            let every = match (executor.now() >= quiet_at, self.backend.is_shared()) {
                (true, _) => TICK_EVERY_WHEN_QUIET,
                (false, true) => TICK_EVERY,
                (false, false) => TICK_EVERY_IN_MEMORY,
            };
            executor.sleep(every).await;
        }
    }

    /// Checks what a call has come to. On a ledger that is done when the ledger has carried something out.
    fn check(&self) {
        if !self.backend.is_shared() {
            let operation = self.context.executor().operation();
            self.context.oracle().touched(operation, self.context.now());
            self.context.check();
        }
    }
}

impl<B: HostedBackend> Host for SimServer<B> {
    fn reserve(
        self: Arc<Self>,
        request: ReserveRequest,
    ) -> BoxAnswer<Result<Decision, ReserveError>> {
        Box::pin(async move {
            if let Some(unanswered) = self.admin.not_started() {
                return Err(unanswered.into());
            }
            let answer = self.limiter.reserve(&request).await;
            self.check();
            answer.map(|(decision, _)| decision)
        })
    }

    fn renew(self: Arc<Self>, request: RenewRequest) -> BoxAnswer<Result<Renewal, RenewError>> {
        Box::pin(async move {
            if let Some(unanswered) = self.admin.not_started() {
                return Err(unanswered.into());
            }
            let answer = self.limiter.renew(&request).await;
            self.check();
            answer
        })
    }

    fn complete(self: Arc<Self>, request: CompleteRequest) -> BoxAnswer<Result<(), CompleteError>> {
        Box::pin(async move {
            if let Some(unanswered) = self.admin.not_started() {
                return Err(unanswered.into());
            }
            let answer = self.limiter.complete(&request).await;
            self.check();
            answer
        })
    }

    fn define(
        self: Arc<Self>,
        limits: Vec<Limit>,
    ) -> BoxAnswer<Result<Vec<LimitStatus>, ChangeError<DefineError>>> {
        Box::pin(async move {
            let answer = self.admin.define_all(limits, CHANGE_TIMEOUT).await;
            self.check();
            answer
        })
    }

    fn delete(self: Arc<Self>, key: LimitKey) -> BoxAnswer<Result<(), ChangeError<DeleteError>>> {
        Box::pin(async move {
            let answer = self.admin.delete(key, CHANGE_TIMEOUT).await;
            self.check();
            answer
        })
    }

    fn shut_down(&self) {
        self.limiter.shut_down();
    }
}

impl Processes {
    /// None yet, and a limits file with the limits of the plan.
    pub(super) fn new(context: &SimContext) -> Arc<Self> {
        let disk = VirtualDisk::new(FOLDER, context.executor().clock(0));
        let limits = context.plan().defined_limits().map(RegisteredLimit::in_force);
        let limits: Vec<_> = limits.collect();
        let outside = disk.process(u64::MAX, Arc::new(NoFaults), None);
        let write = || {
            let file = outside.open(LIMITS_PATH.as_ref(), Access::Truncate)?;
            file.write(write_limits_file(&limits).as_bytes())?;
            file.sync_all()?;
            outside.open(FOLDER.as_ref(), Access::Read)?.sync_all()
        };
        write().expect("nothing goes wrong yet");
        let servers = Mutex::new(vec![Process::default(); context.plan().skews_ms.len()]);
        let (context, starts) = (context.clone(), AtomicU64::new(0));
        Arc::new(Self { context, disk, starts, servers })
    }

    /// A process begins: its number, and the limits file as it sees it.
    pub(super) fn begin(
        &self,
        server: usize,
        injector: &Arc<impl FaultInjector>,
        flaw: Option<Flaw>,
    ) -> (u64, LimitsFile) {
        let number = self.starts.fetch_add(1, Ordering::Relaxed);
        self.servers()[server].number = number;
        let (context, injector) = (self.context.clone(), Arc::clone(injector));
        let faults = Arc::new(PlannedFaults { context, injector, server });
        (number, file(&self.disk, number, faults, flaw))
    }

    /// A server's process ends where it is.
    pub(super) fn end(&self, server: usize) {
        let Process { number, .. } = self.servers()[server];
        self.servers()[server].ends += 1;
        self.disk.end(number);
        self.context.set_host(server, None);
        self.context.executor().kill(group(server));
        drop(self.check_file());
    }

    /// The disk loses what was not flushed, when all processes have ended.
    pub(super) fn lose_power(&self, seed: u64) {
        self.disk.lose_power(seed);
        drop(self.check_file());
    }

    /// Starts a server again after a while, unless it is ended once more in between.
    pub(super) fn start_later(
        self: &Arc<Self>,
        server: usize,
        down_ms: u64,
        start: impl FnOnce() + Send + 'static,
    ) {
        let (processes, ends) = (Arc::clone(self), self.servers()[server].ends);
        let up = self.context.executor().sleep(Duration::from_millis(down_ms));
        self.context.executor().spawn(OUTSIDE, self.context.upkeep(server), async move {
            up.await;
            if processes.servers()[server].ends == ends {
                processes.context.trace(|| format!("    server {server} starts"));
                start();
            }
        });
    }

    /// What the limits file says, held against what was answered; `None` if that is not so.
    pub(super) fn check_file(&self) -> Option<Registry> {
        let file = file(&self.disk, u64::MAX, Arc::new(NoFaults), None);
        let checked = match file.load_existing() {
            Ok(LimitsDocument { registry, .. }) => {
                self.context.oracle().check_file(&registry).map(|()| registry)
            }
            Err(error) => {
                let (invariant, detail) = (Invariant::DefinitionsKept, error.to_string());
                Err(Violation { invariant, detail })
            }
        };
        checked.map_err(|violation| self.context.record(Err(violation))).ok()
    }

    fn servers(&self) -> MutexGuard<'_, Vec<Process>> {
        self.servers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn file(
    disk: &VirtualDisk,
    process: u64,
    faults: Arc<dyn DiskFaults>,
    flaw: Option<Flaw>,
) -> LimitsFile {
    let name = LeaseId::from_u128(process.into());
    LimitsFile::on(disk.process(process, faults, flaw), LIMITS_PATH, name)
}

impl Runtime for SimRuntime {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        let Self(context) = self;
        let Some(operation) = context.executor().running_operation() else {
            return;
        };
        let guard = context.track_work(operation);
        context.executor().spawn_here(async move {
            task.await;
            drop(guard);
        });
    }

    fn spawn_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        let executor = self.0.executor();
        let begins = executor.sleep(self.0.next_disk_job(executor.operation()));
        self.spawn(Box::pin(async move {
            begins.await;
            work();
        }));
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(self.0.executor().sleep(duration))
    }
}

impl<D: FaultInjector> DiskFaults for PlannedFaults<D> {
    fn before(&self, call: DiskCall) -> io::Result<()> {
        let operation = self.context.executor().operation();
        let Some(fault) = self.context.next_disk_call(operation, call) else {
            return Ok(());
        };
        self.context.trace(|| format!("    {} {call:?}: {fault:?}", name(operation)));
        Err(match fault {
            DiskFault::Full | DiskFault::RenameFails => io::ErrorKind::StorageFull.into(),
            DiskFault::StageFlushFails | DiskFault::CommitFlushFails { .. } => {
                io::Error::other("it cannot be flushed")
            }
            DiskFault::ReadOnly => io::ErrorKind::ReadOnlyFilesystem.into(),
            DiskFault::Crash { down_ms, skew_ms, .. } => {
                self.injector.crash(self.server, down_ms, skew_ms);
                io::Error::other("the process has ended")
            }
        })
    }
}

impl fmt::Debug for SimRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimRuntime").finish_non_exhaustive()
    }
}
