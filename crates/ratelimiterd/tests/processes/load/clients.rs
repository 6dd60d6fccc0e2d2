//! What a client does.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::{CompleteError, Decision, LeaseId, ReserveError};
use testkit::{pass, within};
use tokio::task::JoinSet;

use super::World;
use crate::processes::new_lease;

const CLIENTS: usize = 64;
/// Of them, those that never complete: their holds must return by their timeout.
const FORGETFUL: usize = 4;

/// Starts them.
pub(super) fn spawn(world: &Arc<World>) -> JoinSet<()> {
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        let world = Arc::clone(world);
        match number {
            ..FORGETFUL => clients.spawn(forgetful_client(world)),
            _ => clients.spawn(client(world)),
        };
    }
    clients
}

/// One client: it repeats what was not answered, at any server, until it knows.
async fn client(world: Arc<World>) {
    let mut random = Rng::new();
    while !world.is_over.load(Ordering::Relaxed) {
        let lease = new_lease();
        let needs = [("rate", 1), ("slots", random.u64(1..=2)), ("tokens", 1_000)];
        match world.insist_on_reserve(&mut random, lease, &needs).await {
            Ok(Decision::Allowed { .. }) => {
                world.counts.allowed.fetch_add(1, Ordering::Relaxed);
                pass(Duration::from_millis(random.u64(10..150))).await;
                if random.u8(..4) == 0 {
                    // The answer is the same, whatever has happened, unless part of the lease has lapsed.
                    let _again = world.insist_on_reserve(&mut random, lease, &needs).await;
                }
                let actuals = [("tokens", random.u64(..1_500))];
                world.insist_on_complete(&mut random, lease, &actuals).await;
            }
            Ok(Decision::Denied(denial)) => {
                world.counts.denied.fetch_add(1, Ordering::Relaxed);
                pass(denial.retry_after.min(Duration::from_millis(200))).await;
            }
            // It was allowed so long ago, without the client knowing, that a part has expired: release the rest.
            Err(ReserveError::LeaseEnded) => {
                world.counts.ended.fetch_add(1, Ordering::Relaxed);
                world.insist_on_complete(&mut random, lease, &[]).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// One client that reserves and never completes, as if it were killed each time.
async fn forgetful_client(world: Arc<World>) {
    let mut random = Rng::new();
    while !world.is_over.load(Ordering::Relaxed) {
        let needs = [("brief", 1)];
        match world.insist_on_reserve(&mut random, new_lease(), &needs).await {
            Ok(Decision::Allowed { .. }) | Err(ReserveError::LeaseEnded) => {
                world.counts.forgotten.fetch_add(1, Ordering::Relaxed);
            }
            other => panic!("there is always room: {other:?}"),
        }
        pass(Duration::from_millis(20)).await;
    }
}

impl World {
    async fn insist_on_reserve(
        &self,
        random: &mut Rng,
        lease: LeaseId,
        needs: &[(&str, u64)],
    ) -> Result<Decision, ReserveError> {
        let request = self.keys.reserve(lease, needs);
        within("a reserve is answered", async {
            loop {
                let in_flight = self.in_flight.read().await;
                match self.ask_reserve(random, &request).await {
                    Err(ReserveError::Unanswered(_)) => {
                        drop(in_flight);
                        pause(random).await;
                    }
                    answer => return answer,
                }
            }
        })
        .await
    }

    async fn insist_on_complete(&self, random: &mut Rng, lease: LeaseId, actuals: &[(&str, u64)]) {
        let request = self.keys.complete(lease, actuals);
        within("a complete is answered", async {
            loop {
                let in_flight = self.in_flight.read().await;
                match self.ask_complete(random, &request).await {
                    Ok(()) => return,
                    Err(CompleteError::Unanswered(_)) => {
                        drop(in_flight);
                        pause(random).await;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        })
        .await;
    }
}

pub(super) async fn pause(random: &mut Rng) {
    pass(Duration::from_millis(random.u64(1..50))).await;
}
