//! The events of a plan, each a task outside all servers.

use std::sync::Arc;
use std::time::Duration;

use super::host::{Answer, Disasters, Host};
use super::plan::{self, Disk, DiskFull, LimitsEvent, What, Wire};
use super::stage::{OUTSIDE, Stage, group};
use crate::executor::{Operation, Slot};
use crate::fault::Fault;

/// How long a client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Servers have their definitions by then, if nothing goes wrong.
const WARM_UP_MS: u64 = 300;

/// Lets all events of the plan happen at their moments.
pub(super) fn schedule(stage: &Stage, disasters: &Arc<impl Disasters>) {
    note_clients(stage);
    for (number, event) in stage.plan().events.iter().enumerate() {
        let (stage, event, disasters) = (stage.clone(), event.clone(), Arc::clone(disasters));
        let operation = Operation(number);
        stage.clone().executor().spawn(OUTSIDE, operation, async move {
            stage.executor().sleep_until(stage.at_ms(WARM_UP_MS + event.at_ms)).await;
            happen(&stage, operation, &event, &disasters).await;
        });
    }
}

async fn happen(
    stage: &Stage,
    operation: Operation,
    event: &LimitsEvent,
    disasters: &Arc<impl Disasters>,
) {
    stage.note(|| format!("{} {}", name(operation), event.what));
    match &event.what {
        What::Reserve { .. } => reserve(stage, operation, event).await,
        What::Complete { .. } => complete(stage, operation, event).await,
        What::Define { .. } => define(stage, operation, event).await,
        What::Crash { server, down_ms, skew_ms } => {
            stage.fault(Fault::Crash);
            disasters.crash(*server, *down_ms, *skew_ms);
        }
        What::LedgerRestart { down_ms } => {
            stage.fault(Fault::LedgerRestart);
            disasters.ledger_down(*down_ms);
        }
        What::Upkeep { server } => stage.trouble_upkeep(*server, &event.fates),
    }
}

/// How traces call an operation.
pub(super) fn name(operation: Operation) -> String {
    format!("[{}]", operation.0)
}

async fn reserve(stage: &Stage, operation: Operation, event: &LimitsEvent) {
    let What::Reserve { server, lease, needs } = &event.what else {
        unreachable!("the caller has looked");
    };
    stage.request();
    let id = plan::lease_id(stage.start_ms(), stage.plan().seed, *lease);
    let request = plan::reserve_request(id, needs);
    stage.oracle().reserve_sent(operation, *lease, needs, stage.now());
    let answer = ask(stage, operation, *server, event, |host| host.reserve(request.clone())).await;
    stage.note(|| match &answer {
        Some(Ok(decision)) => format!("{} L{lease} -> {decision:?}", name(operation)),
        Some(Err(error)) => format!("{} L{lease} -> {error}", name(operation)),
        None => format!("{} L{lease} -> unknown", name(operation)),
    });
    stage.check();
    let told = stage.oracle().reserve_told(operation, &answer, stage.now());
    stage.expect(told);
    stage.check();
}

async fn complete(stage: &Stage, operation: Operation, event: &LimitsEvent) {
    let What::Complete { server, lease, actuals } = &event.what else {
        unreachable!("the caller has looked");
    };
    stage.request();
    let id = plan::lease_id(stage.start_ms(), stage.plan().seed, *lease);
    let request = plan::complete_request(id, actuals);
    stage.oracle().complete_sent(operation, *lease, actuals, stage.now());
    let answer = ask(stage, operation, *server, event, |host| host.complete(request.clone())).await;
    stage.note(|| match &answer {
        Some(Ok(())) => format!("{} L{lease} -> completed", name(operation)),
        Some(Err(error)) => format!("{} L{lease} -> {error}", name(operation)),
        None => format!("{} L{lease} -> unknown", name(operation)),
    });
    stage.check();
    let told = stage.oracle().complete_told(operation, &answer, stage.now());
    stage.expect(told);
    stage.check();
}

async fn define(stage: &Stage, operation: Operation, event: &LimitsEvent) {
    let What::Define { server, limit, capacity, disk } = &event.what else {
        unreachable!("the caller has looked");
    };
    stage.request();
    let Disk { slow_ms, full } = *disk;
    if slow_ms > Disk::CALM.slow_ms {
        stage.fault(Fault::DiskSlow);
    }
    if full != DiskFull::No {
        stage.fault(Fault::DiskFull);
    }
    let definition = stage.plan().limits[*limit].limit(*limit, *capacity);
    stage.oracle().define_sent(*limit, *capacity);
    let define = |host: Arc<dyn Host>| host.define(definition.clone(), *disk);
    let answer = ask(stage, operation, *server, event, define).await;
    stage.note(|| format!("{} -> {answer:?}", name(operation)));
    stage.check();
}

/// Asks a server, through a network that may lose or repeat what is said. `None` is silence.
async fn ask<T: Send + 'static>(
    stage: &Stage,
    operation: Operation,
    server: usize,
    event: &LimitsEvent,
    make: impl Fn(Arc<dyn Host>) -> Answer<T>,
) -> Option<T> {
    let executor = stage.executor();
    let mut random = fastrand::Rng::with_seed(event.seed ^ 0x5EED);
    let mut latency = || Duration::from_micros(random.u64(20..1_500));
    let deadline = stage.now().after(PATIENCE);
    executor.sleep(latency()).await;
    if event.wire == Wire::RequestLost {
        stage.fault(Fault::RequestLost);
        executor.sleep_until(deadline).await;
        return None;
    }
    let Some(host) = stage.host(server) else {
        stage.fault(Fault::ServerDown);
        return None;
    };
    let (slot, sender) = Slot::new();
    let (answer, hand) = (make(Arc::clone(&host)), stage.hand(operation));
    executor.spawn(group(server), operation, async move {
        let answer = answer.await;
        drop(hand);
        sender.send(answer);
    });
    if event.wire == Wire::RequestTwice {
        stage.fault(Fault::RequestTwice);
        let (again, hand, after) = (make(host), stage.hand(operation), executor.sleep(latency()));
        executor.spawn(group(server), operation, async move {
            after.await;
            drop(again.await);
            drop(hand);
        });
    }
    let answer = slot.wait(executor, deadline).await;
    if event.wire == Wire::ReplyLost {
        stage.fault(Fault::ReplyLost);
        executor.sleep_until(deadline).await;
        return None;
    }
    executor.sleep(latency()).await;
    answer
}

/// Counts what clients do wrong, which is in the plan from the beginning.
fn note_clients(stage: &Stage) {
    let events = &stage.plan().events;
    let lease_of = |event: &LimitsEvent| match event.what {
        What::Reserve { lease, .. } | What::Complete { lease, .. } => Some(lease),
        What::Define { .. }
        | What::Crash { .. }
        | What::LedgerRestart { .. }
        | What::Upkeep { .. } => None,
    };
    for lease in 0..=events.iter().filter_map(lease_of).max().unwrap_or(0) {
        let mut reserves: Vec<(u64, Vec<(usize, u64)>)> = Vec::new();
        let mut completes: Vec<(u64, &[(usize, u64)])> = Vec::new();
        for event in events.iter().filter(|event| lease_of(event) == Some(lease)) {
            match &event.what {
                What::Reserve { needs, .. } => {
                    let mut needs = needs.clone();
                    needs.sort_unstable();
                    reserves.push((event.at_ms, needs));
                }
                What::Complete { actuals, .. } => completes.push((event.at_ms, actuals)),
                What::Define { .. }
                | What::Crash { .. }
                | What::LedgerRestart { .. }
                | What::Upkeep { .. } => {}
            }
        }
        note_lease(stage, &reserves, &completes);
    }
}

fn note_lease(
    stage: &Stage,
    reserves: &[(u64, Vec<(usize, u64)>)],
    completes: &[(u64, &[(usize, u64)])],
) {
    let Some((first_at, needs)) = reserves.first() else {
        return;
    };
    for (_, again) in &reserves[1..] {
        stage.fault(if again == needs { Fault::Retried } else { Fault::Reused });
    }
    if completes.is_empty() {
        stage.fault(Fault::NeverCompleted);
    }
    for (at, _) in completes {
        let seconds = needs.iter().map(|(limit, _)| stage.plan().limits[*limit].seconds);
        if *at > first_at + 1_000 * seconds.max().unwrap_or(0) {
            stage.fault(Fault::CompletedLate);
        }
    }
    for pair in completes.windows(2) {
        let is_at_once = pair[0].0 == pair[1].0;
        stage.fault(match pair[0].1 == pair[1].1 {
            true => Fault::CompletedTwice,
            false if is_at_once => Fault::CompletedApart,
            false => Fault::CompletedOtherwise,
        });
    }
}
