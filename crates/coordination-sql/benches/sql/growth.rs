//! Claim and acknowledge in a small and in a large table.

use std::time::Duration;

use coordination::{Clock, OwnerToken, WallClock};
use coordination_sql::{Database, Provider, SqliteProvider};
use testkit::postgres::TestCluster;

use crate::queue::{BATCH, acknowledge, claim, connect, messages};
use crate::rounds::{Times, stopwatch};

const SIZES: [u32; 2] = [10_000, 1_000_000];
const ROUNDS: usize = 100;
const WARM_UP: usize = 10;
const FILL_BATCH: u32 = 1000;

/// The content of the table.
#[derive(Debug, Clone, Copy)]
enum Given {
    /// Dispatched messages, each through the provider.
    Done,
    /// Messages that wait for next year.
    Waiting,
    /// A backlog, claimed from the oldest.
    Due,
}

pub(crate) async fn on_postgres(cluster: &TestCluster) {
    title("PostgreSQL");
    for (given, schemas) in [
        (Given::Done, ["done_small", "done_large"]),
        (Given::Waiting, ["waiting_small", "waiting_large"]),
        (Given::Due, ["due_small", "due_large"]),
    ] {
        let [small, large] = schemas;
        let providers = [connect(cluster, small, 10).await, connect(cluster, large, 10).await];
        compare(given, &providers).await;
    }
}

pub(crate) async fn on_sqlite() {
    title("SQLite");
    for given in [Given::Done, Given::Waiting, Given::Due] {
        let folder = tempfile::tempdir().unwrap();
        let file = |name| folder.path().join(name);
        let small = SqliteProvider::open(file("small")).await.unwrap();
        let large = SqliteProvider::open(file("large")).await.unwrap();
        compare(given, &[small, large]).await;
    }
}

fn title(database: &str) {
    println!("\n{database}, in tables of 10 thousand and of 1 million messages");
    println!("| operation | beside | µs at 10 thousand | µs at 1 million | ratio |");
    println!("| --- | --- | --- | --- | --- |");
}

async fn compare<D: Database>(given: Given, providers: &[Provider<D>; 2]) {
    for (provider, size) in providers.iter().zip(SIZES) {
        fill(provider, given, size).await;
    }
    let mut claims: [Times; 2] = Default::default();
    let mut acknowledgements: [Times; 2] = Default::default();
    for number in 0..WARM_UP + ROUNDS {
        for (index, provider) in providers.iter().enumerate() {
            if !matches!(given, Given::Due) {
                provider.enqueue_all(&messages(BATCH)).await.unwrap();
            }
            let owner = OwnerToken::random();
            let started = stopwatch();
            let ids = claim(provider, &owner, BATCH).await;
            let claimed = stopwatch();
            acknowledge(provider, &owner, &ids).await;
            let acknowledged = stopwatch();
            assert_eq!(ids.len(), BATCH as usize);
            if number >= WARM_UP {
                claims[index].push(claimed - started);
                acknowledgements[index].push(acknowledged - claimed);
            }
        }
    }
    let beside = match given {
        Given::Done => "dispatched",
        Given::Waiting => "not due",
        Given::Due => "due",
    };
    for (operation, [small, large]) in [("claim(50)", claims), ("ack(50)", acknowledgements)] {
        let (at_small, at_large) = (small.micros_each(1), large.micros_each(1));
        let ratio = large.ratio_to(&small);
        println!("| {operation} | {beside} | {at_small} | {at_large} | {ratio} |");
    }
}

async fn fill<D: Database>(provider: &Provider<D>, given: Given, size: u32) {
    let next_year = WallClock.now().after(Duration::from_secs(366 * 24 * 3600));
    let owner = OwnerToken::random();
    for _ in 0..size / FILL_BATCH {
        let mut batch = messages(FILL_BATCH);
        if matches!(given, Given::Waiting) {
            batch.iter_mut().for_each(|message| message.due_at = Some(next_year));
        }
        provider.enqueue_all(&batch).await.unwrap();
        if matches!(given, Given::Done) {
            let ids = claim(provider, &owner, FILL_BATCH).await;
            acknowledge(provider, &owner, &ids).await;
        }
    }
}
