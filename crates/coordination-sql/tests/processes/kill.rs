//! Worker processes that are killed with -9, again and again, under load.
//!
//! Two processes dispatch from the outbox into the inbox, while the process that runs the test fills
//! the outbox. In each round one of the two, which has just dispatched something, is killed and
//! replaced.

use std::collections::HashMap;
use std::env;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coordination::{
    CancellationToken, InboxDispatcher, InboxMessage, MessageId, NewOutboxMessage, Outbox,
    OutboxStatus, Payload, Processed, TopicHandlers,
};
use testkit::{RunSeed, run};
use tokio::time::{Instant, interval};

use crate::child::{Role, stop};
use crate::on_provider;
use crate::place::{Keeper, Place, Provider};
use crate::worker::{eager, key, topic};

/// Another number of rounds than the consumer's own.
const ROUNDS_VARIABLE: &str = "KILL_ROUNDS";
/// Other choices than the usual ones.
const SEED_VARIABLE: &str = "KILL_SEED";
/// The same each time, so that as little as possible is left to chance.
const SEED_DEFAULT: u64 = 1;
/// The outbox is filled at this pace for as long as workers are killed.
const ENQUEUE_EVERY: Duration = Duration::from_millis(4);
const DISPATCHED_BEFORE_KILL_MAX: usize = 25;
/// For what was claimed by killed workers to come back and be handled, on a slow machine.
const SETTLED_WITHIN: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How often each message was seen.
type Counts = HashMap<String, usize>;

/// Who stands behind the inbox.
#[derive(Debug, Clone, Copy)]
pub enum Consumer {
    /// A dispatcher in the process that runs the test, which is not killed.
    Spared,
    /// The killed processes themselves. What they do commits with its acknowledgement.
    Killed,
}

/// Every message is dispatched at least once, and the consumer behind the inbox sees it exactly
/// once.
pub fn rounds(fresh: fn() -> Keeper, consumer: Consumer) {
    let keeper = fresh();
    let place = &keeper.place;
    run(async {
        match consumer {
            Consumer::Spared => on_provider!(place, with_spared_consumer, place),
            Consumer::Killed => on_provider!(place, with_killed_consumer, place),
        }
    });
}

async fn with_spared_consumer<P: Provider>(provider: P, place: &Place) {
    let consumed = Arc::new(Mutex::new(Counts::new()));
    let stop = CancellationToken::new();
    let handlers = TopicHandlers::new().on(topic(), {
        let consumed = Arc::clone(&consumed);
        move |message: InboxMessage| {
            count(&mut consumed.lock().unwrap(), [message.key.message_id.to_string()]);
            async { Ok(()) }
        }
    });
    let consumer = InboxDispatcher::new(provider.clone(), handlers, eager()).unwrap();
    let consumer = tokio::spawn(consumer.run(stop.clone()));
    let seen = async || consumed.lock().unwrap().clone();
    kill_and_count(provider, place, (Role::Dispatch, 50), seen).await;
    stop.cancel();
    consumer.await.unwrap();
}

async fn with_killed_consumer<P: Provider>(provider: P, place: &Place) {
    provider.make_journal().await;
    let seen = async || {
        let mut counts = Counts::new();
        count(&mut counts, provider.journalled().await);
        counts
    };
    kill_and_count(provider.clone(), place, (Role::DispatchAndConsume, 20), seen).await;
}

/// Runs the rounds, waits until all is settled, and holds what was sent against what the consumer
/// has seen.
async fn kill_and_count<P: Provider>(
    provider: P,
    place: &Place,
    (role, rounds): (Role, u64),
    seen: impl AsyncFn() -> Counts,
) {
    let number = |variable| env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let rounds = number(ROUNDS_VARIABLE).unwrap_or(rounds);
    let own = RunSeed::for_command("cargo test -p coordination-sql --test processes kill");
    let turns: Vec<(u64, u64)> = match number(SEED_VARIABLE) {
        Some(seed) => vec![(seed, rounds)],
        None => {
            let own = own.seeds(1).map(|seed| (seed, rounds.div_ceil(4)));
            std::iter::once((SEED_DEFAULT, rounds)).chain(own).collect()
        }
    };
    let rounds: u64 = turns.iter().map(|(_, rounds)| rounds).sum();
    eprintln!("{SEED_VARIABLE}={:?}", turns.iter().map(|(seed, _)| seed).collect::<Vec<_>>());
    let (sent, dispatched) = kill_rounds(&provider, place, role, &turns, &seen).await;

    let consumed = seen().await;
    let lost = sent.iter().filter(|id| !consumed.contains_key(&id.to_string())).count();
    let duplicates = repeats(&consumed);
    eprintln!(
        "{}: {rounds} rounds of kill -9: sent {}, handled {}, duplicates {duplicates}, lost {lost} \
         (dispatched more than once: {})",
        place.kind(),
        sent.len(),
        consumed.len(),
        repeats(&dispatched)
    );
    assert_eq!((lost, duplicates), (0, 0));
    assert_eq!(consumed.len(), sent.len(), "nothing was handled that was not sent");
    for id in sent {
        assert!(dispatched.contains_key(&id.to_string()), "{id} was never dispatched");
        let processed = provider.already_processed(&key(id), None).await.unwrap();
        assert_eq!(processed, Processed::Yes, "{id}");
    }
}

/// What was sent, and what the workers said to have dispatched. A turn is a seed and its rounds.
async fn kill_rounds<P: Provider>(
    provider: &P,
    place: &Place,
    role: Role,
    turns: &[(u64, u64)],
    seen: &impl AsyncFn() -> Counts,
) -> (Vec<MessageId>, Counts) {
    let rounds = turns.iter().flat_map(|&(seed, rounds)| {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..rounds).map(move |_| (random.usize(..2), random.usize(1..=DISPATCHED_BEFORE_KILL_MAX)))
    });
    let mut enqueue = interval(ENQUEUE_EVERY);
    let (mut sent, mut dispatched) = (Vec::new(), Counts::new());
    let mut workers = [role.start(Some(place)), role.start(Some(place))];
    for (victim, mut lines) in rounds {
        let victim = &mut workers[victim];
        while lines > 0 {
            tokio::select! {
                line = victim.next_line() => {
                    count(&mut dispatched, [line.expect("a worker runs until it is killed")]);
                    lines -= 1;
                }
                _ = enqueue.tick() => {
                    let message = NewOutboxMessage::new(topic(), Payload::new("42").unwrap());
                    sent.push(Outbox::enqueue(provider, message).await.unwrap());
                }
            }
        }
        let mut killed = std::mem::replace(victim, role.start(Some(place)));
        count(&mut dispatched, killed.kill());
    }
    let deadline = Instant::now() + SETTLED_WITHIN;
    until_dispatched(provider, &sent, deadline).await;
    let mut look = interval(LOOK_EVERY);
    while seen().await.len() < sent.len() && Instant::now() < deadline {
        look.tick().await;
    }
    for worker in workers {
        count(&mut dispatched, stop(worker));
    }
    (sent, dispatched)
}

async fn until_dispatched(outbox: &impl Outbox, sent: &[MessageId], deadline: Instant) {
    let mut look = interval(LOOK_EVERY);
    for id in sent {
        while Instant::now() < deadline {
            let record = outbox.record(*id).await.unwrap().expect("it was sent");
            if record.status == (OutboxStatus::Done { outcome: None }) {
                break;
            }
            look.tick().await;
        }
    }
}

fn count(counts: &mut Counts, ids: impl IntoIterator<Item = String>) {
    for id in ids {
        *counts.entry(id).or_default() += 1;
    }
}

fn repeats(counts: &Counts) -> usize {
    counts.values().map(|count| count - 1).sum()
}
