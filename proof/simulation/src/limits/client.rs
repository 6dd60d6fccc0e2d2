//! Clients: each event of a plan is a task outside all servers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ratelimiter::{Decision, RegisteredLimit, ReserveError, ReserveRequest};
use tokio_util::sync::CancellationToken;

use super::context::{OUTSIDE, SimContext, group};
use super::host::{BoxAnswer, FaultInjector, Host};
use super::oracle::ChangeTold;
use super::plan::{
    self, Definition, DiskBehaviour, DiskFault, EventKind, Leave, LimitsEvent, NetworkFault,
    SetupKind,
};
use crate::executor::{Operation, Slot};
use crate::fault::Fault;

/// How long a client waits for an answer, after the time for which its request waits.
const PATIENCE: Duration = Duration::from_secs(5);

/// Servers have their definitions by then, if nothing goes wrong.
const WARM_UP_MS: u64 = 300;

/// Lets all events of the plan happen at their moments.
pub(super) fn schedule(context: &SimContext, injector: &Arc<impl FaultInjector>) {
    note_clients(context);
    for (number, event) in context.plan().events.iter().enumerate() {
        let (context, event, injector) = (context.clone(), event.clone(), Arc::clone(injector));
        let operation = Operation(number);
        context.clone().executor().spawn(OUTSIDE, operation, async move {
            context.executor().sleep_until(context.at_ms(WARM_UP_MS + event.at_ms, number)).await;
            happen(&context, operation, &event, &injector).await;
        });
    }
}

async fn happen(
    context: &SimContext,
    operation: Operation,
    event: &LimitsEvent,
    injector: &Arc<impl FaultInjector>,
) {
    context.trace(|| format!("{} {}", name(operation), event.kind));
    match &event.kind {
        EventKind::Reserve { .. } => reserve(context, operation, event).await,
        EventKind::Complete { .. } => complete(context, operation, event).await,
        EventKind::Define { .. } => define(context, operation, event).await,
        EventKind::Delete { .. } => delete(context, operation, event).await,
        EventKind::Extra { .. } => change_extra(context, operation, event).await,
        EventKind::Crash { down_ms, skew_ms, is_power_loss: true, .. } => {
            context.count_fault(Fault::PowerLoss);
            injector.power_loss(event.seed, *down_ms, *skew_ms);
        }
        EventKind::Crash { server, down_ms, skew_ms, is_power_loss: false } => {
            context.count_fault(Fault::Crash);
            injector.crash(*server, *down_ms, *skew_ms);
        }
        EventKind::Stop { server, ends_after_ms, down_ms } => {
            let Some(host) = context.host(*server) else {
                return;
            };
            context.count_fault(Fault::Stopped);
            host.shut_down();
            context.oracle().shut_down(context.now());
            context.executor().sleep(Duration::from_millis(*ends_after_ms)).await;
            injector.crash(*server, *down_ms, 0);
        }
        EventKind::LedgerRestart { down_ms } => {
            context.count_fault(Fault::LedgerRestart);
            injector.ledger_down(*down_ms);
        }
        EventKind::Upkeep { server } => context.fault_upkeep(*server, &event.call_faults),
        EventKind::Leap { ms } => {
            context.executor().leap(Duration::from_millis(*ms));
            context.oracle().leapt(context.now());
            context.check();
        }
    }
}

/// How traces call an operation.
pub(super) fn name(operation: Operation) -> String {
    format!("[{}]", operation.0)
}

async fn reserve(context: &SimContext, operation: Operation, event: &LimitsEvent) {
    let EventKind::Reserve { server, lease, needs, wait } = &event.kind else {
        unreachable!("the caller has looked");
    };
    context.request();
    let id = plan::lease_id(context.start_ms(), context.plan().seed, *lease);
    let request = plan::waiting_request(id, needs, wait.as_ref());
    context.oracle().reserve_sent(operation, *lease, needs, *wait, context.now());
    let reserve = |host| watched_reserve(context, operation, host, request.clone());
    let answer = ask(context, operation, *server, event, reserve).await;
    context.trace(|| match &answer {
        Some(Ok(decision)) => format!("{} L{lease} -> {decision:?}", name(operation)),
        Some(Err(error)) => format!("{} L{lease} -> {error}", name(operation)),
        None => format!("{} L{lease} -> unknown", name(operation)),
    });
    context.check();
    let told = context.oracle().reserve_told(operation, &answer, context.now());
    context.record(told);
    context.check();
}

/// A reserve at its server, with what the oracle sees of it there.
fn watched_reserve(
    context: &SimContext,
    operation: Operation,
    host: Arc<dyn Host>,
    request: ReserveRequest,
) -> BoxAnswer<Result<Decision, ReserveError>> {
    let context = context.clone();
    Box::pin(async move {
        context.oracle().arrived(operation, context.now());
        let answer = host.reserve(request).await;
        let kept = context.oracle().answered(operation, &answer, context.now());
        context.record(kept);
        answer
    })
}

async fn complete(context: &SimContext, operation: Operation, event: &LimitsEvent) {
    let EventKind::Complete { server, lease, actuals } = &event.kind else {
        unreachable!("the caller has looked");
    };
    context.request();
    let id = plan::lease_id(context.start_ms(), context.plan().seed, *lease);
    let request = plan::complete_request(id, actuals);
    context.oracle().complete_sent(operation, *lease, actuals, context.now());
    let complete = |host: Arc<dyn Host>| -> BoxAnswer<_> {
        let (context, server, answer) = (context.clone(), *server, host.complete(request.clone()));
        Box::pin(async move {
            let answer = answer.await;
            context.completed(server);
            answer
        })
    };
    let answer = ask(context, operation, *server, event, complete).await;
    context.trace(|| match &answer {
        Some(Ok(())) => format!("{} L{lease} -> completed", name(operation)),
        Some(Err(error)) => format!("{} L{lease} -> {error}", name(operation)),
        None => format!("{} L{lease} -> unknown", name(operation)),
    });
    context.check();
    let told = context.oracle().complete_told(operation, &answer, context.now());
    context.record(told);
    context.check();
}

async fn define(context: &SimContext, operation: Operation, event: &LimitsEvent) {
    let EventKind::Define { server, limit, definition, extra, disk } = &event.kind else {
        unreachable!("the caller has looked");
    };
    count_disk_faults(context, disk);
    let mut definitions = vec![context.plan().limits[*limit].limit(*limit, *definition)];
    definitions.extend(extra.map(|capacity| context.plan().extra_limit(capacity)));
    context.oracle().define_sent(*limit, definition.capacity);
    for limit in &definitions {
        let wanted = Definition::of(&RegisteredLimit::in_force(limit.clone()));
        context.oracle().change_sent(operation, &limit.key, Some(wanted), context.now());
    }
    let define = |host: Arc<dyn Host>| host.define(definitions.clone());
    let answer = ask(context, operation, *server, event, define).await;
    note_change(context, operation, event, &answer);
    context.check();
}

async fn delete(context: &SimContext, operation: Operation, event: &LimitsEvent) {
    let EventKind::Delete { server, limit, disk } = &event.kind else {
        unreachable!("the caller has looked");
    };
    count_disk_faults(context, disk);
    let key = plan::key(*limit);
    context.oracle().change_sent(operation, &key, None, context.now());
    let delete = |host: Arc<dyn Host>| host.delete(key.clone());
    let answer = ask(context, operation, *server, event, delete).await;
    note_change(context, operation, event, &answer);
    context.check();
}

async fn change_extra(context: &SimContext, operation: Operation, event: &LimitsEvent) {
    let EventKind::Extra { server, capacity, disk } = &event.kind else {
        unreachable!("the caller has looked");
    };
    count_disk_faults(context, disk);
    let key = plan::extra_key();
    let limit = capacity.map(|capacity| context.plan().extra_limit(capacity));
    let wanted = limit.clone().map(|limit| Definition::of(&RegisteredLimit::in_force(limit)));
    context.oracle().change_sent(operation, &key, wanted, context.now());
    if let Some(limit) = limit {
        let define = |host: Arc<dyn Host>| host.define(vec![limit.clone()]);
        let answer = ask(context, operation, *server, event, define).await;
        note_change(context, operation, event, &answer);
    } else {
        let delete = |host: Arc<dyn Host>| host.delete(key.clone());
        let answer = ask(context, operation, *server, event, delete).await;
        note_change(context, operation, event, &answer);
    }
}

fn count_disk_faults(context: &SimContext, disk: &DiskBehaviour) {
    context.request();
    if disk.slow_ms > DiskBehaviour::NORMAL.slow_ms {
        context.count_fault(Fault::DiskSlow);
    }
    if let Some(fault) = disk.fault {
        context.count_fault(match fault {
            DiskFault::Full | DiskFault::RenameFails => Fault::DiskFull,
            DiskFault::StageFlushFails | DiskFault::CommitFlushFails { .. } => {
                Fault::DiskFlushFails
            }
            DiskFault::ReadOnly => Fault::DiskReadOnly,
            DiskFault::Crash { .. } => Fault::CrashAtDisk,
        });
    }
}

/// What an answer says of a change, as it is documented: nothing has changed, and nothing will, unless it says that this is
/// not known yet.
fn note_change<T: fmt::Debug, E: fmt::Debug + fmt::Display>(
    context: &SimContext,
    operation: Operation,
    event: &LimitsEvent,
    answer: &Option<Result<T, E>>,
) {
    context.trace(|| format!("{} -> {answer:?}", name(operation)));
    let told = match answer {
        // Whatever came of the first one, the second may be under way.
        _ if event.network == NetworkFault::RequestTwice => ChangeTold::Unknown,
        None => ChangeTold::Unknown,
        Some(Ok(_)) => ChangeTold::Made,
        Some(Err(error)) if error.to_string().contains("not known yet") => ChangeTold::Unknown,
        Some(Err(_)) => ChangeTold::NotMade,
    };
    context.oracle().change_told(operation, told, context.now());
}

/// Asks a server, through a network that may lose or repeat what is said. `None` is silence.
async fn ask<T: Send + 'static>(
    context: &SimContext,
    operation: Operation,
    server: usize,
    event: &LimitsEvent,
    make: impl Fn(Arc<dyn Host>) -> BoxAnswer<T>,
) -> Option<T> {
    let executor = context.executor();
    let mut random = fastrand::Rng::with_seed(event.seed ^ 0x5EED);
    let mut latency = || Duration::from_micros(random.u64(20..1_500));
    let wait = event.wait();
    let at_most = wait.map_or(Duration::ZERO, |wait| wait.at_most());
    let deadline = context.now().after(at_most + PATIENCE);
    let gone = CancellationToken::new();
    let leaves_at = match wait.and_then(|wait| wait.leaves) {
        Some(Leave::After { ms }) => context.now().after(Duration::from_millis(ms)),
        Some(Leave::WithNextComplete) => {
            context.leave_with_complete(server, gone.clone());
            deadline
        }
        None => deadline,
    };
    executor.sleep(latency()).await;
    if event.network == NetworkFault::RequestLost {
        context.count_fault(Fault::RequestLost);
        executor.sleep_until(deadline).await;
        return None;
    }
    let Some(host) = context.host(server) else {
        context.count_fault(Fault::ServerDown);
        return None;
    };
    let (slot, sender) = Slot::new();
    let (answer, guard) = (make(Arc::clone(&host)), context.track_work(operation));
    let answer = serve(context, operation, gone.clone(), answer);
    executor.spawn(group(server), operation, async move {
        let answer = answer.await;
        drop(guard);
        answer.into_iter().for_each(|answer| sender.send(answer));
    });
    if event.network == NetworkFault::RequestTwice {
        context.count_fault(Fault::RequestTwice);
        let (again, guard, after) =
            (make(host), context.track_work(operation), executor.sleep(latency()));
        let again = serve(context, operation, gone.clone(), again);
        executor.spawn(group(server), operation, async move {
            after.await;
            drop(again.await);
            drop(guard);
        });
    }
    let answer = slot.wait(executor, leaves_at.min(deadline)).await;
    if answer.is_none() && leaves_at < deadline {
        executor.sleep(latency()).await;
        gone.cancel();
        return None;
    }
    if event.network == NetworkFault::ReplyLost {
        context.count_fault(Fault::ReplyLost);
        executor.sleep_until(deadline).await;
        return None;
    }
    executor.sleep(latency()).await;
    answer
}

/// What a server does for a client as long as that is there. `None` if it has gone before.
fn serve<T: Send + 'static>(
    context: &SimContext,
    operation: Operation,
    gone: CancellationToken,
    answer: BoxAnswer<T>,
) -> impl Future<Output = Option<T>> + Send + 'static {
    let context = context.clone();
    async move {
        let answer = tokio::select! {
            biased;
            () = gone.cancelled() => None,
            answer = answer => Some(answer),
        };
        if answer.is_none() {
            context.count_fault(Fault::Left);
            context.trace(|| format!("    {} its client has gone", name(operation)));
            let kept = context.oracle().left(operation, context.now());
            context.record(kept);
        }
        answer
    }
}

/// Counts what clients do wrong, which is in the plan from the beginning.
fn note_clients(context: &SimContext) {
    let events = &context.plan().events;
    let lease_of = |event: &LimitsEvent| match event.kind {
        EventKind::Reserve { lease, .. } | EventKind::Complete { lease, .. } => Some(lease),
        EventKind::Define { .. }
        | EventKind::Delete { .. }
        | EventKind::Extra { .. }
        | EventKind::Crash { .. }
        | EventKind::Stop { .. }
        | EventKind::LedgerRestart { .. }
        | EventKind::Upkeep { .. }
        | EventKind::Leap { .. } => None,
    };
    for lease in 0..=events.iter().filter_map(lease_of).max().unwrap_or(0) {
        let mut reserves: Vec<(u64, Vec<(usize, u64)>)> = Vec::new();
        let mut completes: Vec<(u64, &[(usize, u64)])> = Vec::new();
        for event in events.iter().filter(|event| lease_of(event) == Some(lease)) {
            match &event.kind {
                EventKind::Reserve { needs, .. } => {
                    let mut needs = needs.clone();
                    needs.sort_unstable();
                    reserves.push((event.at_ms, needs));
                }
                EventKind::Complete { actuals, .. } => completes.push((event.at_ms, actuals)),
                EventKind::Define { .. }
                | EventKind::Delete { .. }
                | EventKind::Extra { .. }
                | EventKind::Crash { .. }
                | EventKind::Stop { .. }
                | EventKind::LedgerRestart { .. }
                | EventKind::Upkeep { .. }
                | EventKind::Leap { .. } => {}
            }
        }
        note_lease(context, &reserves, &completes);
    }
}

fn note_lease(
    context: &SimContext,
    reserves: &[(u64, Vec<(usize, u64)>)],
    completes: &[(u64, &[(usize, u64)])],
) {
    let Some((first_at, needs)) = reserves.first() else {
        return;
    };
    for (_, again) in &reserves[1..] {
        context.count_fault(if again == needs { Fault::Retried } else { Fault::Reused });
    }
    if completes.is_empty() {
        context.count_fault(Fault::NeverCompleted);
    }
    for (at, _) in completes {
        let seconds = needs.iter().map(|(limit, _)| match context.plan().limits[*limit].kind {
            SetupKind::Rolling { seconds } | SetupKind::Concurrency { seconds } => seconds,
            SetupKind::Calendar { .. } => 0,
        });
        if *at > first_at + 1_000 * seconds.max().unwrap_or(0) {
            context.count_fault(Fault::CompletedLate);
        }
    }
    for pair in completes.windows(2) {
        let is_at_once = pair[0].0 == pair[1].0;
        context.count_fault(match pair[0].1 == pair[1].1 {
            true => Fault::CompletedTwice,
            false if is_at_once => Fault::CompletedApart,
            false => Fault::CompletedOtherwise,
        });
    }
}
