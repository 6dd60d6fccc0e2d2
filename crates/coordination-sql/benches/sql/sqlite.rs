//! Batching in SQLite, where the transaction dominates the cost.

use coordination::Outbox;
use coordination_sql::{SqliteConfig, SqliteProvider};

use crate::queue::{BATCH, message, messages};
use crate::rounds::{Times, stopwatch};

const ROUNDS: usize = 60;
const WARM_UP: usize = 5;
const LARGE_BATCH: u32 = 1000;

pub(crate) async fn run() {
    println!("\nSQLite, enqueue");
    println!(
        "| commits | one by one, µs a message | 50 at once | 1000 at once | one by one × 50 at once |"
    );
    println!("| --- | --- | --- | --- | --- |");
    for (label, survives_power_loss) in [("wait for the disk", true), ("do not wait", false)] {
        let folder = tempfile::tempdir().unwrap();
        let config = SqliteConfig { survives_power_loss, ..SqliteConfig::default() };
        let provider =
            SqliteProvider::open_with(folder.path().join("outbox"), config).await.unwrap();
        let mut times: [Times; 3] = Default::default();
        for number in 0..WARM_UP + ROUNDS {
            let (small, large) = (messages(BATCH), messages(LARGE_BATCH));
            let started = stopwatch();
            for _ in 0..BATCH {
                Outbox::enqueue(&provider, message()).await.unwrap();
            }
            let one_by_one = stopwatch();
            provider.enqueue_all(&small).await.unwrap();
            let small_done = stopwatch();
            provider.enqueue_all(&large).await.unwrap();
            let large_done = stopwatch();
            if number >= WARM_UP {
                times[0].push(one_by_one - started);
                times[1].push(small_done - one_by_one);
                times[2].push(large_done - small_done);
            }
        }
        let [one, small, large] = &times;
        println!(
            "| {label} | {} | {} | {} | {} |",
            one.micros_each(BATCH),
            small.micros_each(BATCH),
            large.micros_each(LARGE_BATCH),
            one.ratio_to(small)
        );
    }
}
