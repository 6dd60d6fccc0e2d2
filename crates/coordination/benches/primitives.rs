//! Benchmark of the memory provider with 1 thousand and with 1 million items, and the ratio.
//!
//! `cargo bench -p coordination`. The rounds of both sizes alternate, so that other load on the
//! machine affects both; the median of the rounds is shown. Nothing asserts a time: read the ratio.

#![allow(clippy::print_stdout, reason = "a benchmark prints its results")]
#![allow(missing_docs, reason = "a benchmark is a program")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordination::{
    BatchSize, Clock, FakeClock, LeaseDuration, Leases, MemoryProvider, MessageId,
    NewOutboxMessage, Outbox, OwnerToken, Payload, ResourceName, Tenure, Timestamp, Topic,
};

const SIZES: [usize; 2] = [1_000, 1_000_000];
const ROUNDS: usize = 400;
const BATCH: usize = 50;

/// A provider with its clock and what the rounds need.
struct World {
    provider: MemoryProvider,
    clock: FakeClock,
    owner: OwnerToken,
    topic: Topic,
    payload: Payload,
    next_resource: usize,
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures the machine's time")]
fn stopwatch() -> Instant {
    Instant::now()
}

impl World {
    fn new() -> World {
        let clock = FakeClock::at("2026-01-01T00:00:00Z".parse().expect("a valid moment"));
        World {
            provider: MemoryProvider::with_clock(Arc::new(clock.clone())),
            clock,
            owner: OwnerToken::random(),
            topic: Topic::new("order.placed").expect("a valid topic"),
            payload: Payload::new("a payload of some forty bytes, like an ID").expect("small"),
            next_resource: 0,
        }
    }

    fn message(&self) -> NewOutboxMessage {
        NewOutboxMessage::new(self.topic.clone(), self.payload.clone())
    }

    async fn enqueue(&self, message: NewOutboxMessage) -> MessageId {
        Outbox::enqueue(&self.provider, message).await.expect("memory answers")
    }

    async fn add(&self, count: usize, due_at: Option<Timestamp>) {
        for _ in 0..count {
            let mut message = self.message();
            message.due_at = due_at;
            self.enqueue(message).await;
        }
    }

    async fn claim(&self, max: usize, lease: LeaseDuration) -> Vec<MessageId> {
        let max = BatchSize::new(u32::try_from(max).expect("small")).expect("a valid batch");
        let claimed = self.provider.claim_due(&self.owner, lease, max).await;
        claimed.expect("memory answers").into_iter().map(|message| message.id).collect()
    }

    async fn ack(&self, ids: &[MessageId]) {
        let count = self.provider.mark_dispatched(&self.owner, ids).await;
        assert_eq!(count.expect("memory answers"), ids.len());
    }

    fn resource(&mut self) -> ResourceName {
        self.next_resource += 1;
        ResourceName::new(format!("resource-{}", self.next_resource)).expect("a valid name")
    }

    async fn acquire(&self, resource: ResourceName) -> Tenure {
        let token = self.provider.try_acquire(&resource, hour(), &self.owner).await;
        let token = token.expect("memory answers").expect("nobody holds it");
        Tenure { resource, owner: self.owner.clone(), token }
    }
}

fn hour() -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(3600)).expect("an hour is within the bounds")
}

/// The states in which operations are measured.
#[derive(Debug, Clone, Copy)]
enum Given {
    NotDue,
    /// Due messages spread evenly among those that are not due.
    DueAmongNotDue,
    Done,
    Due,
    Claimed,
    Held,
}

async fn given(given: Given, size: usize) -> World {
    let mut world = World::new();
    let next_year = world.clock.now().after(Duration::from_secs(366 * 24 * 3600));
    match given {
        Given::NotDue => world.add(size, Some(next_year)).await,
        Given::DueAmongNotDue => {
            let due = ROUNDS * BATCH;
            for number in 0..size.max(due) {
                if number * size / size.max(due) != (number + 1) * size / size.max(due) {
                    world.add(1, Some(next_year)).await;
                }
                if number * due / size.max(due) != (number + 1) * due / size.max(due) {
                    world.add(1, None).await;
                }
            }
        }
        Given::Due => world.add(size, None).await,
        Given::Done => {
            world.add(size, None).await;
            loop {
                let ids = world.claim(1000, hour()).await;
                if ids.is_empty() {
                    break;
                }
                world.ack(&ids).await;
            }
        }
        Given::Claimed => {
            world.add(size, None).await;
            while !world.claim(1000, hour()).await.is_empty() {}
        }
        Given::Held => {
            for _ in 0..size {
                let resource = world.resource();
                world.acquire(resource).await;
            }
        }
    }
    world
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    Enqueue,
    ClaimAndAck,
    ClaimAndAckWhatIsThere,
    ReapNothing,
    ReapExpired,
    AcquireAndRelease,
    Renew,
}

/// One round: prepares, then measures one batch of the operation.
async fn round(operation: Operation, world: &mut World) -> Duration {
    match operation {
        Operation::Enqueue => {
            let messages: Vec<_> = (0..BATCH).map(|_| world.message()).collect();
            let started = stopwatch();
            for message in messages {
                world.enqueue(message).await;
            }
            started.elapsed()
        }
        Operation::ClaimAndAck => {
            world.add(BATCH, None).await;
            claim_and_ack(world).await
        }
        Operation::ClaimAndAckWhatIsThere => claim_and_ack(world).await,
        Operation::ReapNothing => {
            let started = stopwatch();
            let count = Outbox::reap(&world.provider).await.expect("memory answers");
            let took = started.elapsed();
            assert_eq!(count, 0);
            took
        }
        Operation::ReapExpired => {
            world.add(BATCH, None).await;
            let second = LeaseDuration::new(Duration::from_secs(1)).expect("a second is");
            world.claim(BATCH, second).await;
            world.clock.advance(Duration::from_secs(1));
            let started = stopwatch();
            let count = Outbox::reap(&world.provider).await.expect("memory answers");
            let took = started.elapsed();
            assert_eq!(count, BATCH);
            let ids = world.claim(BATCH, hour()).await;
            world.ack(&ids).await;
            took
        }
        Operation::AcquireAndRelease => {
            let resources: Vec<_> = (0..BATCH).map(|_| world.resource()).collect();
            let started = stopwatch();
            for resource in resources {
                let tenure = world.acquire(resource).await;
                world.provider.release(&tenure).await.expect("memory answers");
            }
            started.elapsed()
        }
        Operation::Renew => {
            let resource = world.resource();
            let mut tenure = world.acquire(resource).await;
            let started = stopwatch();
            for _ in 0..BATCH {
                let token = world.provider.try_renew(&tenure, hour()).await;
                tenure.token = token.expect("memory answers").expect("it is held");
            }
            let took = started.elapsed();
            world.provider.release(&tenure).await.expect("memory answers");
            took
        }
    }
}

async fn claim_and_ack(world: &World) -> Duration {
    let started = stopwatch();
    let ids = world.claim(BATCH, hour()).await;
    world.ack(&ids).await;
    let took = started.elapsed();
    assert_eq!(ids.len(), BATCH);
    took
}

async fn compare(label: &str, state: Given, operation: Operation) {
    let mut worlds = [given(state, SIZES[0]).await, given(state, SIZES[1]).await];
    let mut times = [Vec::new(), Vec::new()];
    for number in 0..ROUNDS {
        for (world, times) in worlds.iter_mut().zip(&mut times) {
            let took = round(operation, world).await;
            // The first rounds warm the caches up.
            if number >= ROUNDS / 10 {
                times.push(took);
            }
        }
    }
    let [small, large] = times.map(|mut times| {
        times.sort_unstable();
        times[times.len() / 2]
    });
    let ratio = large.as_secs_f64() / small.as_secs_f64();
    println!("{label:<46} {small:>12.2?} {large:>12.2?} {ratio:>7.2}");
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let (small, large, ratio) = ("1 thousand", "1 million", "ratio");
    println!("{:<46} {small:>12} {large:>12} {ratio:>7}", "memory provider, per round of 50");
    let comparisons = [
        ("enqueue, beside due messages", Given::Due, Operation::Enqueue),
        ("enqueue, beside messages not due", Given::NotDue, Operation::Enqueue),
        ("claim + ack, beside messages not due", Given::NotDue, Operation::ClaimAndAck),
        (
            "claim + ack, spread among messages not due",
            Given::DueAmongNotDue,
            Operation::ClaimAndAckWhatIsThere,
        ),
        ("claim + ack, beside done messages", Given::Done, Operation::ClaimAndAck),
        ("claim + ack, beside claimed messages", Given::Claimed, Operation::ClaimAndAck),
        ("reap of nothing (1 call), beside claimed", Given::Claimed, Operation::ReapNothing),
        ("reap of 50, beside done messages", Given::Done, Operation::ReapExpired),
        ("lease acquire + release, beside held", Given::Held, Operation::AcquireAndRelease),
        ("lease renew, beside held", Given::Held, Operation::Renew),
    ];
    for (label, state, operation) in comparisons {
        runtime.block_on(compare(label, state, operation));
    }
}
