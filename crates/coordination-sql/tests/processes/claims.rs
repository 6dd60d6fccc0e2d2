//! Many connections of several processes that claim from one queue.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::time::Duration;

use coordination::{
    BatchSize, LeaseDuration, MessageId, NewOutboxMessage, Outbox, OwnerToken, Payload, Topic,
};
use testkit::{Process, run};
use tokio::task::JoinSet;

use crate::child::{Role, say, stop};
use crate::on_provider;
use crate::place::{Keeper, Provider};

const PROCESSES: usize = 4;
const TASKS: usize = 8;
const MESSAGES: usize = 2000;

/// Waits for a line on stdin, then claims with many tasks until nothing is left.
pub async fn claim_all<P: Provider>(provider: P) {
    say("ready");
    std::io::stdin().lock().lines().next().unwrap().unwrap();
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let provider = provider.clone();
        tasks.spawn(async move {
            loop {
                let ids = claim(&provider, fastrand::u32(1..=20)).await;
                if ids.is_empty() {
                    break;
                }
                ids.iter().for_each(say);
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

/// Claims for longer than a test takes, and finishes every other claim.
pub async fn claim(provider: &impl Provider, max: u32) -> Vec<MessageId> {
    let owner = OwnerToken::random();
    let hour = LeaseDuration::new(Duration::from_secs(3600)).unwrap();
    let claimed = provider.claim_due(&owner, hour, BatchSize::new(max).unwrap()).await.unwrap();
    let ids: Vec<_> = claimed.into_iter().map(|message| message.id).collect();
    if fastrand::bool() {
        let count = provider.mark_dispatched(&owner, &ids).await.unwrap();
        assert_eq!(count, ids.len(), "nobody else had them");
    }
    ids
}

/// `PRIM-GEN-C`, between processes.
pub fn once(fresh: fn() -> Keeper) {
    let keeper = fresh();
    run(async {
        let sent = on_provider!(&keeper.place, enqueue_all);
        let start = |_| Role::Claim.start(Some(&keeper.place));
        let mut processes: Vec<Process> = (0..PROCESSES).map(start).collect();
        for process in &mut processes {
            assert_eq!(process.read_line().as_deref(), Some("ready"));
        }
        for process in &mut processes {
            process.write_line("go");
        }
        let mut handed_out = BTreeSet::new();
        let mut counts = Vec::new();
        for process in processes {
            let ids = stop(process);
            counts.push(ids.len());
            for id in ids {
                assert!(handed_out.insert(id.clone()), "{id} was handed out twice");
            }
        }
        let kind = keeper.place.kind();
        eprintln!("{kind}: {PROCESSES} processes of {TASKS} tasks claimed {counts:?} messages");
        assert_eq!(handed_out, sent);
    });
}

async fn enqueue_all<P: Provider>(provider: P) -> BTreeSet<String> {
    let topic = Topic::new("order.placed").unwrap();
    let mut ids = BTreeSet::new();
    for _ in 0..MESSAGES {
        let message = NewOutboxMessage::new(topic.clone(), Payload::empty());
        ids.insert(Outbox::enqueue(&provider, message).await.unwrap().to_string());
    }
    ids
}
