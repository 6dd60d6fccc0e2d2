//! Enqueue one by one, claim(50), ack(50): through the provider, and by a minimal loop over the same
//! driver.

use coordination::{Outbox, OwnerToken};
use coordination_sql::PostgresProvider;
use testkit::postgres::{Durability, TestCluster};

use crate::bare::Bare;
use crate::queue::{BATCH, acknowledge, claim, connect, message};
use crate::rounds::{Times, stopwatch};

const ROUNDS: usize = 100;
/// The first rounds warm up.
const WARM_UP: usize = 10;

pub(crate) async fn run(cluster: &TestCluster, durability: Durability) {
    let provider = connect(cluster, "provider", 10).await;
    let mut same = {
        let one_connection = connect(cluster, "bare", 1).await;
        round(&one_connection).await;
        Bare::as_used_by(&one_connection, cluster).await
    };
    let mut textbook = Bare::textbook(cluster).await;
    let mut times: [Times; 3] = Default::default();
    for number in 0..WARM_UP + ROUNDS {
        let started = stopwatch();
        round(&provider).await;
        let provider_done = stopwatch();
        same.round().await;
        let same_done = stopwatch();
        textbook.round().await;
        let all_done = stopwatch();
        if number >= WARM_UP {
            times[0].push(provider_done - started);
            times[1].push(same_done - provider_done);
            times[2].push(all_done - same_done);
        }
    }
    let wait = match durability {
        Durability::ServerCrash => "commits do not wait for the disk",
        Durability::PowerCut => "commits wait for the disk",
    };
    println!("\nPostgreSQL, enqueue 50 + claim(50) + ack(50), {wait}");
    println!("| by | µs a message | × the same statements |\n| --- | --- | --- |");
    let names = ["the provider", "the same statements in a loop", "a textbook queue in a loop"];
    for (name, own) in names.into_iter().zip(&times) {
        println!("| {name} | {} | {} |", own.micros_each(BATCH), own.ratio_to(&times[1]));
    }
}

async fn round(provider: &PostgresProvider) {
    for _ in 0..BATCH {
        Outbox::enqueue(provider, message()).await.unwrap();
    }
    let owner = OwnerToken::random();
    let ids = claim(provider, &owner, BATCH).await;
    assert_eq!(ids.len(), BATCH as usize);
    acknowledge(provider, &owner, &ids).await;
}
