//! Facts about both databases beyond the conformance suite.

use std::collections::HashSet;
use std::sync::mpsc;
use std::time::Duration;

use coordination::{
    BatchSize, CronSchedule, Delay, Enqueued, ErrorText, Fence, FencingToken, Inbox, InboxKey,
    JobDefinition, JobName, JoinError, Joins, LeaseDuration, Leases, Materialised, MessageId,
    NewInboxMessage, NewJoin, NewOutboxMessage, Outbox, OwnerToken, Payload, ResourceName,
    Retention, RunId, Scheduler, Source, SourceMessageId, Timestamp, Topic, TopicSet, Topics,
};
use tokio::runtime::Builder;
use tokio::task::{JoinSet, block_in_place};
use tokio::time::timeout;

use super::world::World;

/// The timeout of waits.
const GIVE_UP_AFTER: Duration = Duration::from_secs(120);

pub(crate) async fn a_message_is_there_when_the_transaction_commits<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    world.make_orders(&provider).await;
    let mut transaction = provider.begin().await.unwrap();
    world.add_order(&mut transaction).await;
    let id = provider.enqueue_in(&mut transaction, message("42")).await.unwrap();
    assert_eq!(provider.record(id).await.unwrap(), None, "not before the commit");
    transaction.commit().await.unwrap();
    assert_eq!(claim(&provider, "a").await, [id]);
    assert_eq!(world.orders(&provider).await, 1);
}

pub(crate) async fn a_message_goes_with_a_transaction_that_is_undone<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    world.make_orders(&provider).await;
    let mut transaction = provider.begin().await.unwrap();
    world.add_order(&mut transaction).await;
    let lost = message("42");
    provider.enqueue_in(&mut transaction, lost.clone()).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(claim(&provider, "a").await.is_empty());
    assert_eq!(world.orders(&provider).await, 0);
    // The ID was never known, so the message can be sent after all.
    provider.enqueue_all(std::slice::from_ref(&lost)).await.unwrap();
    assert_eq!(claim(&provider, "a").await, [lost.id]);
}

pub(crate) async fn an_inbox_message_and_what_it_caused_are_one<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    world.make_orders(&provider).await;
    let mut transaction = provider.begin().await.unwrap();
    let added = provider.receive_in(&mut transaction, received("1")).await.unwrap();
    assert_eq!(added, Enqueued::Added);
    transaction.commit().await.unwrap();

    let me = owner("a");
    let claimed = provider.claim(&me, lease(60), batch(10)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let keys = [claimed[0].key.clone()];
    let mut transaction = provider.begin().await.unwrap();
    world.add_order(&mut transaction).await;
    assert_eq!(provider.ack_in(&mut transaction, &me, &keys).await.unwrap(), 1);
    transaction.rollback().await.unwrap();
    assert_eq!(world.orders(&provider).await, 0, "neither the order");
    let mut transaction = provider.begin().await.unwrap();
    world.add_order(&mut transaction).await;
    let acknowledged = provider.ack_in(&mut transaction, &me, &keys).await.unwrap();
    assert_eq!(acknowledged, 1, "nor the acknowledgement");
    transaction.commit().await.unwrap();
    assert_eq!(world.orders(&provider).await, 1);
    assert_eq!(Inbox::ack(&provider, &me, &keys).await.unwrap(), 0, "once");
}

pub(crate) async fn an_owner_that_lost_its_claim_is_told_in_its_transaction<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    let _added = Inbox::enqueue(&provider, received("1")).await.unwrap();
    let claimed = provider.claim(&owner("a"), lease(60), batch(1)).await.unwrap();
    let keys = [claimed[0].key.clone()];
    let none = ErrorText::default();
    Inbox::abandon(&provider, &owner("a"), &keys, &none, Delay::ZERO).await.unwrap();
    provider.claim(&owner("b"), lease(60), batch(1)).await.unwrap();
    let mut transaction = provider.begin().await.unwrap();
    assert_eq!(provider.ack_in(&mut transaction, &owner("a"), &keys).await.unwrap(), 0);
    transaction.rollback().await.unwrap();
}

pub(crate) async fn many_messages_are_added_at_once_and_in_order<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    let mut messages: Vec<_> = (0..1200).map(|number| message(&number.to_string())).collect();
    messages.push(messages[0].clone());
    provider.enqueue_all(&messages).await.unwrap();
    provider.enqueue_all(&messages).await.unwrap();
    provider.enqueue_all(&[]).await.unwrap();
    let mut claimed = Vec::new();
    loop {
        let more = claim(&provider, "a").await;
        if more.is_empty() {
            break;
        }
        claimed.extend(more);
    }
    let expected: Vec<_> = messages[..1200].iter().map(|message| message.id).collect();
    assert_eq!(claimed, expected, "each once, in the order given");
}

pub(crate) async fn providers_that_race_hand_out_each_message_once<W: World>() {
    race::<W>(|_| Topics::All).await;
}

/// Half of the workers want one topic, the others all but it.
pub(crate) async fn providers_that_race_for_topics_hand_out_each_message_once<W: World>() {
    race::<W>(|worker| {
        let one = TopicSet::of([topic(0)]).unwrap();
        if worker % 2 == 0 { Topics::Only(one) } else { Topics::Except(one) }
    })
    .await;
}

async fn race<W: World>(topics: impl Fn(usize) -> Topics) {
    let world = W::new().await;
    let sender = world.open().await;
    let messages: Vec<_> = (0..400)
        .map(|number| NewOutboxMessage { topic: topic(number % 3), ..message("race") })
        .collect();
    let (first, later) = messages.split_at(200);
    sender.enqueue_all(first).await.unwrap();
    let mut workers = JoinSet::new();
    for worker in 0..4 {
        let (provider, topics) = (world.open().await, topics(worker));
        workers.spawn(async move {
            let me = owner(&format!("worker-{worker}"));
            let (mut got, mut empty_rounds) = (Vec::new(), 0);
            // Some of the work comes while they race, and comes back.
            while empty_rounds < 20 {
                let claimed =
                    provider.claim_due_of(&me, lease(600), batch(7), &topics).await.unwrap();
                let ids: Vec<_> = claimed.iter().map(|message| message.id).collect();
                let (done, back) = ids.split_at(ids.len().div_ceil(2));
                assert_eq!(provider.mark_dispatched(&me, done).await.unwrap(), done.len());
                assert_eq!(
                    Outbox::postpone(&provider, &me, back, Delay::ZERO).await.unwrap(),
                    back.len()
                );
                empty_rounds = if ids.is_empty() { empty_rounds + 1 } else { 0 };
                got.extend_from_slice(done);
            }
            got
        });
    }
    for message in later {
        Outbox::enqueue(&sender, message.clone()).await.unwrap();
    }
    let mut got = workers.join_all().await.concat();
    // What came after a worker had given up is still there, once.
    loop {
        let rest = claim(&sender, "rest").await;
        if rest.is_empty() {
            break;
        }
        got.extend(rest);
    }
    assert_eq!(got.len(), messages.len(), "each message once");
    let enqueued: HashSet<_> = messages.iter().map(|message| message.id).collect();
    assert_eq!(got.into_iter().collect::<HashSet<_>>(), enqueued, "and all of them");
}

pub(crate) async fn providers_that_race_for_a_lease_have_one_winner<W: World>() {
    let world = W::new().await;
    let mut providers = Vec::new();
    for _ in 0..4 {
        providers.push(world.open().await);
    }
    let resource = ResourceName::new("contested").unwrap();
    let mut last = 0;
    for _ in 0..10 {
        let mut contenders = JoinSet::new();
        for provider in providers.clone() {
            let resource = resource.clone();
            contenders.spawn(async move { provider.acquire(&resource, lease(600), None).await });
        }
        let won: Vec<_> =
            contenders.join_all().await.into_iter().filter_map(Result::unwrap).collect();
        assert_eq!(won.len(), 1, "one winner");
        for held in won {
            assert!(held.fencing_token().get() > last, "the token grows");
            last = held.fencing_token().get();
            assert_eq!(held.release().await.unwrap(), 1);
        }
    }
}

pub(crate) async fn racing_senders_of_one_message_add_it_once<W: World>() {
    let world = W::new().await;
    let mut senders = JoinSet::new();
    for _ in 0..4 {
        let provider = world.open().await;
        senders.spawn(async move {
            let mut added = 0;
            for number in 0..20 {
                let enqueued = Inbox::enqueue(&provider, received(&number.to_string())).await;
                added += usize::from(enqueued.unwrap() == Enqueued::Added);
            }
            added
        });
    }
    assert_eq!(senders.join_all().await.into_iter().sum::<usize>(), 20);
}

pub(crate) async fn a_waiting_worker_hears_of_another_providers_message<W: World>() {
    let world = W::new().await;
    let (worker, sender) = (world.open().await, world.open().await);
    for _ in 0..3 {
        let told = Outbox::work_added(&worker);
        assert!(claim(&worker, "a").await.is_empty());
        let id = Outbox::enqueue(&sender, message("42")).await.unwrap();
        timeout(GIVE_UP_AFTER, told).await.expect("the worker is told");
        claim_soon(&worker, id).await;
    }
}

pub(crate) async fn a_waiting_worker_hears_of_a_transaction_that_commits<W: World>() {
    let world = W::new().await;
    let (worker, application) = (world.open().await, world.open().await);
    let told = Outbox::work_added(&worker);
    let mut transaction = application.begin().await.unwrap();
    let id = application.enqueue_in(&mut transaction, message("42")).await.unwrap();
    transaction.commit().await.unwrap();
    timeout(GIVE_UP_AFTER, told).await.expect("the worker is told");
    claim_soon(&worker, id).await;
}

/// A worker may be woken spuriously before it is notified of the message.
async fn claim_soon<D: coordination_sql::Database>(
    worker: &coordination_sql::Provider<D>,
    id: MessageId,
) {
    let claimed = timeout(GIVE_UP_AFTER, async {
        loop {
            let told = Outbox::work_added(worker);
            let claimed = claim(worker, "a").await;
            if !claimed.is_empty() {
                return claimed;
            }
            told.await;
        }
    });
    assert_eq!(claimed.await.expect("the message is found"), [id]);
}

pub(crate) async fn a_join_counts_members_that_end_while_it_starts<W: World>() {
    let world = W::new().await;
    let (worker, starter) = (world.open().await, world.open().await);
    for _ in 0..20 {
        let messages: Vec<_> = (0..4).map(|_| message("member")).collect();
        worker.enqueue_all(&messages).await.unwrap();
        let ids = claim(&worker, "a").await;
        let join = NewJoin::over(ids.iter().copied()).unwrap();
        let me = owner("a");
        let (started, ended) =
            tokio::join!(starter.start_join(join), worker.mark_dispatched(&me, &ids));
        assert_eq!(ended.unwrap(), 4);
        let progress = worker.join_progress(started.unwrap()).await.unwrap();
        assert_eq!((progress.expected, progress.completed), (4, 4));
    }
}

pub(crate) async fn a_join_outlives_its_messages_until_it_is_old<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    let messages = [message("1"), message("2")];
    provider.enqueue_all(&messages).await.unwrap();
    let (first, second) = (messages[0].id, messages[1].id);
    let join = provider.start_join(NewJoin::over([first, second]).unwrap()).await.unwrap();
    let me = owner("a");
    assert_eq!(claim(&provider, "a").await, [first, second]);
    let failed = Outbox::fail(&provider, &me, &[first], &ErrorText::new("no")).await;
    assert_eq!(failed.unwrap(), 1);
    assert_eq!(
        Outbox::purge(&provider, &Topics::All, Retention::of_all(Duration::ZERO)).await.unwrap(),
        1
    );
    let progress = provider.join_progress(join).await.unwrap();
    assert_eq!((progress.completed, progress.failed), (0, 1), "purged, and still counted");
    provider.mark_dispatched(&me, &[second]).await.unwrap();
    let progress = provider.join_progress(join).await.unwrap();
    assert_eq!((progress.completed, progress.failed), (1, 1));
    assert_eq!(
        Outbox::purge(&provider, &Topics::All, Retention::of_all(Duration::ZERO)).await.unwrap(),
        1
    );
    let gone = provider.join_progress(join).await;
    assert!(matches!(gone, Err(JoinError::Unknown { .. })), "{gone:?}");
}

pub(crate) async fn a_call_after_the_close_says_so<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    let open = provider.enqueue_all(&[message("kept")]).await;
    open.unwrap();
    W::close(&provider).await;
    let refused = Outbox::enqueue(&provider, message("late")).await.unwrap_err();
    assert_eq!(refused.operation(), "outbox enqueue");
    assert!(refused.to_string().starts_with("provider_unavailable: outbox enqueue: "), "{refused}");
    let again = world.open().await;
    assert_eq!(claim(&again, "a").await.len(), 1, "nothing was lost");
}

/// More of them than one batch reads, all due before the others.
pub(crate) async fn crd_13_jobs_that_cannot_be_read_stop_nobody_else<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    let fence =
        Fence { resource: ResourceName::new("scheduler").unwrap(), token: FencingToken::new(1) };
    let make_runs = async || provider.create_job_runs_from_due_jobs(&fence).await.unwrap();
    world
        .execute_newer(
            &provider,
            "WITH RECURSIVE number (n) AS (
                 SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 600)
             INSERT INTO {jobs} (name, topic, payload, cron, time_zone, next_tick)
             SELECT 'newer-' || n, 'report', '', 'at the full moon', 'UTC', 0 FROM number",
        )
        .await;
    provider.create_or_update_job(job("nightly")).await.unwrap();
    let due = "UPDATE {jobs} SET next_tick = 1 WHERE name = 'nightly'";
    world.execute_newer(&provider, due).await;
    assert_eq!(make_runs().await, Materialised::Partly { runs: 1, unreadable: 600 });
    let runs = provider.claim_job_runs(&owner("a"), lease(60), batch(10)).await.unwrap();
    assert_eq!(runs.len(), 1, "the job that can be read has its run");
    assert_eq!(runs[0].job.as_str(), "nightly");
    assert_eq!(make_runs().await, Materialised::Partly { runs: 0, unreadable: 600 });
    let next = block_in_place(|| next_event_past_unreadable_jobs(&world, &fence));
    assert!(next > runs[0].scheduled_at.after(Duration::from_secs(60)), "{next}");

    // They are as they were, for whoever can read them; and can be saved anew.
    provider.create_or_update_job(job("newer-7")).await.unwrap();
    assert_eq!(make_runs().await, Materialised::Partly { runs: 0, unreadable: 599 });
    world.execute_newer(&provider, "DELETE FROM {jobs} WHERE cron = 'at the full moon'").await;
    provider.create_or_update_job(job("other")).await.unwrap();
    assert_eq!(make_runs().await, Materialised::Runs(0));
}

/// When a worker wakes up next that has just found unreadable jobs. It skips them for some seconds,
/// which do not pass here: the runtime's time is paused, and Tokio does not advance it while a
/// blocking task runs.
fn next_event_past_unreadable_jobs<W: World>(world: &W, fence: &Fence) -> Timestamp {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let (release, held) = mpsc::channel::<()>();
    runtime.spawn_blocking(move || held.recv());
    let next = runtime.block_on(async {
        let provider = world.open().await;
        let made = provider.create_job_runs_from_due_jobs(fence).await.unwrap();
        assert_eq!(made, Materialised::Partly { runs: 0, unreadable: 600 });
        let next = provider.next_event_time().await.unwrap().unwrap();
        W::close(&provider).await;
        next
    });
    drop(release);
    next
}

/// More of them than one batch reads, all before the other.
pub(crate) async fn crd_13_ticks_are_set_right_past_jobs_that_cannot_be_read<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    let fence =
        Fence { resource: ResourceName::new("scheduler").unwrap(), token: FencingToken::new(1) };
    let make_runs = async || provider.create_job_runs_from_due_jobs(&fence).await.unwrap();
    world
        .execute_newer(
            &provider,
            "WITH RECURSIVE number (n) AS (
                 SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 600)
             INSERT INTO {jobs} (name, topic, payload, cron, time_zone, next_tick, ticked_at)
             SELECT 'newer-' || n, 'report', '', 'at the full moon', 'UTC', 9000000000000000,
                    8000000000000000 FROM number",
        )
        .await;
    provider.create_or_update_job(job("yearly")).await.unwrap();
    let ahead = "UPDATE {jobs} SET next_tick = 9000000000000000, ticked_at = 8000000000000001
                 WHERE name = 'yearly'";
    world.execute_newer(&provider, ahead).await;
    for _ in 0..2 {
        assert_eq!(make_runs().await, Materialised::Partly { runs: 0, unreadable: 600 });
        let next = provider.next_event_time().await.unwrap().unwrap();
        assert!(next.unix_micros() < 8_000_000_000_000_000, "{next}");
    }
}

pub(crate) async fn crd_13_a_run_whose_job_cannot_be_read_is_left_alone<W: World>() {
    let world = W::new().await;
    let provider = world.open().await;
    for name in ["newer-topic", "newer-payload", "newer-name", "known"] {
        provider.create_or_update_job(job(name)).await.unwrap();
        provider.trigger_job(&job(name).name, RunId::random()).await.unwrap();
    }
    for text in [
        "UPDATE {jobs} SET topic = '' WHERE name = 'newer-topic'",
        "UPDATE {jobs} SET payload = {two_megabytes} WHERE name = 'newer-payload'",
        "UPDATE {jobs} SET name = '' WHERE name = 'newer-name'",
        "UPDATE {job_runs} SET job = '' WHERE job = 'newer-name'",
    ] {
        world.execute_newer(&provider, text).await;
    }
    let runs = provider.claim_job_runs(&owner("a"), lease(60), batch(10)).await.unwrap();
    assert_eq!(runs.len(), 1);
    assert_eq!(runs[0].job.as_str(), "known");
}

fn job(name: &str) -> JobDefinition {
    let schedule = CronSchedule::parse("0 0 1 1 *", "UTC").unwrap();
    JobDefinition::new(JobName::new(name).unwrap(), topic(0), schedule)
}

async fn claim<D: coordination_sql::Database>(
    provider: &coordination_sql::Provider<D>,
    by: &str,
) -> Vec<MessageId> {
    let claimed = provider.claim_due(&owner(by), lease(600), batch(100)).await.unwrap();
    claimed.into_iter().map(|message| message.id).collect()
}

fn message(text: &str) -> NewOutboxMessage {
    NewOutboxMessage::new(topic(0), Payload::new(text).unwrap())
}

fn topic(number: usize) -> Topic {
    Topic::new(format!("topic-{number}")).unwrap()
}

fn received(message_id: &str) -> NewInboxMessage {
    let key = InboxKey {
        source: Source::new("the \"shop\" \\ 1").unwrap(),
        message_id: SourceMessageId::new(message_id).unwrap(),
    };
    NewInboxMessage::new(key, topic(0), Payload::empty())
}

fn owner(text: &str) -> OwnerToken {
    OwnerToken::new(text).unwrap()
}

fn lease(seconds: u64) -> LeaseDuration {
    LeaseDuration::new(Duration::from_secs(seconds)).unwrap()
}

fn batch(count: u32) -> BatchSize {
    BatchSize::new(count).unwrap()
}
