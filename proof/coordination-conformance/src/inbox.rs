//! Scenarios of the inbox.

mod claims;
mod retention;

use std::collections::HashSet;

use coordination::{
    ContentHash, CorrelationId, Delay, Enqueued, ErrorText, GetError, Inbox, InboxKey, InboxStatus,
    Processed,
};

pub use self::claims::{
    inbox_l_a_claim_takes_only_its_topics, inbox_m_a_claim_takes_all_but_some_topics,
    inbox_n_a_postponed_message_was_not_tried, inbox_p_an_attempt_is_counted_once_a_claim,
    inbox_q_lost_attempts_are_counted_apart,
};
pub use self::retention::{
    inbox_j_purge_forgets_only_old_finished_messages,
    inbox_y_a_purge_forgets_by_topic_and_keeps_the_dead_for_longer,
};
use crate::Fixture;
use crate::fixture::{ClockSkew, advance_to, lease, units};
use crate::sample::{batch, error, inbox_message, key, owner, payload, topic};
use crate::scenario::{answer, each_is_claimed_once, suite};

suite! {
    $
    /// One test per scenario of the inbox.
    macro inbox_suite, module inbox, fixture Fixture,
    "INBOX-001" inbox_001_an_empty_inbox_gives_nothing:
        "`claim` with no messages returns an empty list.";
    "INBOX-002" inbox_002_ready_messages_are_claimed_by_their_identifiers:
        "A claim returns the identifiers of available ready messages, in creation order, at most `max`.";
    "INBOX-003" inbox_003_a_future_message_waits_until_it_is_due:
        "Future-due messages are not claimable until due.";
    "INBOX-004" inbox_004_an_acknowledged_message_is_not_claimed_again:
        "`ack` by the owner finalizes the claim and prevents another.";
    "INBOX-005" inbox_005_an_abandoned_message_is_ready_again:
        "`abandon` by the owner returns the message to ready, after the delay, with the error.";
    "INBOX-006" inbox_006_a_failed_message_is_dead:
        "`fail` by the owner makes the message dead and unavailable.";
    "INBOX-007" inbox_007_get_shows_what_is_stored:
        "`get` returns the stored message: topic, payload, hash, status, due time, attempts, last error.";
    "INBOX-008" inbox_008_a_dead_message_can_be_revived:
        "`revive` requeues dead messages, and only those, after the delay, with the reason.";
    "INBOX-009" inbox_009_the_providers_clock_decides:
        "Claim eligibility is based on the provider's time source, however wrong the machine's clock is.";
    "INBOX-A" inbox_a_a_message_is_delivered_once_however_often_it_is_sent:
        "Deduplication by (source, message ID): a second enqueue never makes a second delivery; done and dead keep their status.";
    "INBOX-B" inbox_b_the_same_message_id_of_another_source_is_another_message:
        "The same message ID from another source is another message.";
    "INBOX-C" inbox_c_attempts_are_those_that_began_or_were_abandoned:
        "The attempt count is the number of attempts that began or were abandoned, through reap and revive; a claim alone is none (`CRD-02`).";
    "INBOX-D" inbox_d_an_unknown_message_is_an_error_value:
        "`get` of an unknown message is an error value.";
    "INBOX-E" inbox_e_already_processed_knows_the_done_messages:
        "`already_processed` is true of done messages alone, and tells a hash that differs; asking changes nothing.";
    "INBOX-F" inbox_f_another_owner_changes_nothing:
        "`ack`, `abandon` and `fail` by another owner change nothing.";
    "INBOX-G" inbox_g_racing_claims_hand_out_each_message_once:
        "Claims from many tasks hand out each message once.";
    "INBOX-H" inbox_h_reap_never_touches_finished_messages:
        "`reap` makes expired claims ready and never touches finished messages or running claims.";
    "INBOX-J" inbox_j_purge_forgets_only_old_finished_messages:
        "`purge` forgets finished messages by age and nothing else.";
    "INBOX-K" inbox_k_the_age_of_the_oldest_ready_message_is_known:
        "`oldest_ready_age` is the time since the oldest due and unclaimed message became due.";
    "INBOX-L" inbox_l_a_claim_takes_only_its_topics:
        "A claim of some topics takes their messages alone, in creation order (`CRD-01`).";
    "INBOX-M" inbox_m_a_claim_takes_all_but_some_topics:
        "A claim of all but some topics is not held up by the messages of those (`CRD-01`).";
    "INBOX-N" inbox_n_a_postponed_message_was_not_tried:
        "`postpone` gives back after the delay, counts no attempt, not even one that began, and notes its reason or keeps the error (`CRD-02`).";
    "INBOX-P" inbox_p_an_attempt_is_counted_once_a_claim:
        "`begin` counts an attempt once a claim, extends the claim, and only by its owner (`CRD-02`).";
    "INBOX-Q" inbox_q_lost_attempts_are_counted_apart:
        "An attempt that began and was reaped is lost; abandoned, postponed and unbegun ones are not; a revival counts anew (`CRD-03`).";
    "INBOX-Y" inbox_y_a_purge_forgets_by_topic_and_keeps_the_dead_for_longer:
        "`purge` forgets messages of its topics alone, and dead ones after a time of their own.";
}

/// PRIM-INMEMORY-INBOX-001
pub async fn inbox_001_an_empty_inbox_gives_nothing<F: Fixture>(fixture: F) {
    assert_eq!(claim_keys(&fixture, "a").await, []);
}

/// PRIM-INMEMORY-INBOX-002
pub async fn inbox_002_ready_messages_are_claimed_by_their_identifiers<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    for message_id in ["3", "1", "2"] {
        add(&fixture, message_id).await;
    }
    let first = answer(inbox.claim(&owner("a"), lease(10), batch(2))).await;
    let keys: Vec<_> = first.iter().map(|message| message.key.clone()).collect();
    assert_eq!(keys, [key("shop", "3"), key("shop", "1")]);
    assert_eq!(first[0].payload, payload("3"));
    assert_eq!(claim_keys(&fixture, "b").await, [key("shop", "2")]);
}

/// PRIM-INMEMORY-INBOX-003
pub async fn inbox_003_a_future_message_waits_until_it_is_due<F: Fixture>(fixture: F) {
    let due_at = fixture.now().await.after(units(10));
    let message = inbox_message("1").due_at(due_at);
    assert_eq!(answer(fixture.inbox().enqueue(message)).await, Enqueued::Added);
    assert_eq!(claim_keys(&fixture, "a").await, []);
    advance_to(&fixture, due_at).await;
    assert_eq!(claim_keys(&fixture, "a").await, [key("shop", "1")]);
}

/// PRIM-INMEMORY-INBOX-004
pub async fn inbox_004_an_acknowledged_message_is_not_claimed_again<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = [add(&fixture, "1").await];
    claim_keys(&fixture, "a").await;
    assert_eq!(answer(inbox.ack(&owner("a"), &keys)).await, 1);
    fixture.advance(units(20)).await;
    answer(inbox.reap()).await;
    assert_eq!(claim_keys(&fixture, "a").await, []);
    assert_eq!(status(&fixture, &keys[0]).await, InboxStatus::Done);
}

/// PRIM-INMEMORY-INBOX-005
pub async fn inbox_005_an_abandoned_message_is_ready_again<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = [add(&fixture, "1").await];
    claim_keys(&fixture, "a").await;
    let delay = Delay::new(units(10)).expect("a valid delay");
    let count = answer(inbox.abandon(&owner("a"), &keys, &error("busy"), delay)).await;
    assert_eq!(count, 1);
    assert_eq!(status(&fixture, &keys[0]).await, InboxStatus::Ready);
    assert_eq!(claim_keys(&fixture, "a").await, [], "not before the delay is over");
    fixture.advance(units(10)).await;
    let claimed = answer(inbox.claim(&owner("b"), lease(10), batch(1))).await;
    assert_eq!(claimed[0].last_error, error("busy"));
    let none = ErrorText::default();
    let count = answer(inbox.abandon(&owner("b"), &keys, &none, Delay::ZERO)).await;
    assert_eq!(count, 1);
    let claimed = answer(inbox.claim(&owner("b"), lease(10), batch(1))).await;
    assert_eq!(claimed[0].last_error, error("busy"), "an empty error keeps the one before");
}

/// PRIM-INMEMORY-INBOX-006
pub async fn inbox_006_a_failed_message_is_dead<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = [add(&fixture, "1").await];
    claim_keys(&fixture, "a").await;
    assert_eq!(answer(inbox.fail(&owner("a"), &keys, &error("bad"))).await, 1);
    fixture.advance(units(20)).await;
    answer(inbox.reap()).await;
    assert_eq!(claim_keys(&fixture, "a").await, []);
    let message = inbox.get(&keys[0]).await.expect("a known message");
    assert_eq!((message.status, message.last_error), (InboxStatus::Dead, error("bad")));
}

/// PRIM-INMEMORY-INBOX-007
pub async fn inbox_007_get_shows_what_is_stored<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let hash = ContentHash::new([1, 2, 3]).expect("a valid hash");
    let correlation_id = CorrelationId::new("request-7").expect("a valid ID");
    let due_at = fixture.now().await.after(units(1));
    let message = inbox_message("1")
        .with_hash(hash.clone())
        .correlated_with(correlation_id.clone())
        .due_at(due_at);
    assert_eq!(answer(inbox.enqueue(message)).await, Enqueued::Added);
    let message = inbox.get(&key("shop", "1")).await.expect("a known message");
    assert_eq!(message.key, key("shop", "1"));
    assert_eq!(message.topic, topic("order.placed"));
    assert_eq!(message.payload, payload("1"));
    assert_eq!(message.hash, Some(hash));
    assert_eq!(message.correlation_id, Some(correlation_id));
    assert_eq!(message.due_at, due_at);
    assert_eq!((message.status, message.attempts), (InboxStatus::Ready, 0));
    assert_eq!(message.last_error, ErrorText::default());
    advance_to(&fixture, due_at).await;
    claim_keys(&fixture, "a").await;
    let claimed = status(&fixture, &key("shop", "1")).await;
    assert!(matches!(claimed, InboxStatus::Claimed { until } if until > due_at), "{claimed:?}");
}

/// PRIM-INMEMORY-INBOX-008
pub async fn inbox_008_a_dead_message_can_be_revived<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = [add(&fixture, "1").await];
    let revived = answer(inbox.revive(&keys, &error("x"), Delay::ZERO)).await;
    assert_eq!(revived, 0, "a ready one is not dead");
    claim_keys(&fixture, "a").await;
    let revived = answer(inbox.revive(&keys, &error("x"), Delay::ZERO)).await;
    assert_eq!(revived, 0, "a claimed one is not dead");
    answer(inbox.fail(&owner("a"), &keys, &error("bad"))).await;
    let delay = Delay::new(units(10)).expect("a valid delay");
    let revived = answer(inbox.revive(&keys, &error("fixed"), delay)).await;
    assert_eq!(revived, 1);
    let again = answer(inbox.revive(&keys, &error("x"), Delay::ZERO)).await;
    assert_eq!(again, 0, "once");
    assert_eq!(claim_keys(&fixture, "a").await, [], "not before the delay is over");
    fixture.advance(units(10)).await;
    let claimed = answer(inbox.claim(&owner("b"), lease(10), batch(1))).await;
    assert_eq!(claimed[0].last_error, error("fixed"));
    assert_eq!(claimed[0].attempts_since_revival(), 0, "its attempts are its own again");
    answer(inbox.ack(&owner("b"), &keys)).await;
    let revived = answer(inbox.revive(&keys, &error("x"), Delay::ZERO)).await;
    assert_eq!(revived, 0, "a done one is not dead");
    let unknown = [key("shop", "unknown")];
    assert_eq!(answer(inbox.revive(&unknown, &error("x"), Delay::ZERO)).await, 0);
}

/// PRIM-INMEMORY-INBOX-009, `CRD-20`
pub async fn inbox_009_the_providers_clock_decides<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    for (round, skew) in [ClockSkew::Ahead, ClockSkew::Behind].into_iter().enumerate() {
        let now = skew.apply(&fixture).await;
        let [near, far, due] = ["near", "far", "now"].map(|name| format!("{name}-{round}"));
        let far_at = now.after(units(3600));
        for (name, due_at) in [(&far, far_at), (&near, now.after(units(10)))] {
            let message = inbox_message(name).due_at(due_at);
            assert_eq!(answer(inbox.enqueue(message)).await, Enqueued::Added);
        }
        assert_eq!(claim_keys(&fixture, "a").await, [], "{skew:?}");
        fixture.advance(units(10)).await;
        assert_eq!(claim_keys(&fixture, "a").await, [key("shop", &near)], "{skew:?}");
        let enqueued = answer(inbox.enqueue(inbox_message(&due).due_at(now))).await;
        assert_eq!(enqueued, Enqueued::Added);
        assert_eq!(claim_keys(&fixture, "a").await, [key("shop", &due)], "{skew:?}");
        advance_to(&fixture, far_at).await;
        assert_eq!(claim_keys(&fixture, "a").await, [key("shop", &far)], "{skew:?}");
    }
}

/// INBOX-A
pub async fn inbox_a_a_message_is_delivered_once_however_often_it_is_sent<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    for (message_id, finished) in [("done", InboxStatus::Done), ("dead", InboxStatus::Dead)] {
        let keys = [add(&fixture, message_id).await];
        let again = || async {
            let enqueued = answer(inbox.enqueue(inbox_message(message_id))).await;
            assert_eq!(enqueued, Enqueued::Duplicate);
        };
        again().await;
        assert_eq!(claim_keys(&fixture, "a").await, keys, "one delivery");
        again().await;
        assert_eq!(claim_keys(&fixture, "b").await, [], "a claimed one stays claimed");
        match finished {
            InboxStatus::Done => answer(inbox.ack(&owner("a"), &keys)).await,
            InboxStatus::Dead | InboxStatus::Ready | InboxStatus::Claimed { .. } => {
                answer(inbox.fail(&owner("a"), &keys, &error("x"))).await
            }
        };
        again().await;
        assert_eq!(claim_keys(&fixture, "b").await, []);
        assert_eq!(status(&fixture, &keys[0]).await, finished);
    }
}

/// INBOX-B
pub async fn inbox_b_the_same_message_id_of_another_source_is_another_message<F: Fixture>(
    fixture: F,
) {
    let inbox = fixture.inbox();
    let shop = add(&fixture, "1").await;
    let mut message = inbox_message("1");
    message.key = key("bank", "1");
    assert_eq!(answer(inbox.enqueue(message)).await, Enqueued::Added);
    assert_eq!(claim_keys(&fixture, "a").await, [shop.clone(), key("bank", "1")]);
    answer(inbox.ack(&owner("a"), std::slice::from_ref(&shop))).await;
    assert_eq!(answer(inbox.already_processed(&shop, None)).await, Processed::Yes);
    let bank = answer(inbox.already_processed(&key("bank", "1"), None)).await;
    assert_eq!(bank, Processed::No);
}

/// INBOX-C
pub async fn inbox_c_attempts_are_those_that_began_or_were_abandoned<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = [add(&fixture, "1").await];
    let attempts = |expected: u32| {
        let (inbox, key) = (inbox, &keys[0]);
        async move {
            assert_eq!(inbox.get(key).await.expect("a known message").attempts, expected);
        }
    };
    attempts(0).await;
    claim_keys(&fixture, "a").await;
    attempts(0).await;
    answer(inbox.abandon(&owner("a"), &keys, &error("x"), Delay::ZERO)).await;
    attempts(1).await;
    for _ in 0..2 {
        claim_keys(&fixture, "a").await;
        fixture.advance(units(10)).await;
        answer(inbox.reap()).await;
        attempts(1).await;
    }
    claim_keys(&fixture, "a").await;
    answer(inbox.begin(&owner("a"), &keys[0], lease(10))).await;
    attempts(2).await;
    answer(inbox.abandon(&owner("a"), &keys, &error("x"), Delay::ZERO)).await;
    attempts(2).await;
    claim_keys(&fixture, "a").await;
    answer(inbox.begin(&owner("a"), &keys[0], lease(10))).await;
    answer(inbox.fail(&owner("a"), &keys, &error("x"))).await;
    answer(inbox.revive(&keys, &error("x"), Delay::ZERO)).await;
    attempts(3).await;
}

/// INBOX-D
pub async fn inbox_d_an_unknown_message_is_an_error_value<F: Fixture>(fixture: F) {
    let unknown = key("shop", "unknown");
    let got = fixture.inbox().get(&unknown).await;
    assert!(matches!(&got, Err(GetError::Unknown { key }) if *key == unknown), "{got:?}");
}

/// INBOX-E
pub async fn inbox_e_already_processed_knows_the_done_messages<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let hash = ContentHash::new([1]).expect("a valid hash");
    let other = ContentHash::new([2]).expect("a valid hash");
    let keys = [key("shop", "1")];
    let expect = |hash: Option<ContentHash>, expected: Processed| {
        let (inbox, key) = (inbox, &keys[0]);
        async move {
            let processed = answer(inbox.already_processed(key, hash.as_ref())).await;
            assert_eq!(processed, expected);
        }
    };
    expect(None, Processed::No).await;
    assert_eq!(claim_keys(&fixture, "a").await, [], "asking adds nothing");
    let enqueued = answer(inbox.enqueue(inbox_message("1").with_hash(hash.clone()))).await;
    assert_eq!(enqueued, Enqueued::Added);
    expect(Some(hash.clone()), Processed::No).await;
    claim_keys(&fixture, "a").await;
    expect(Some(hash.clone()), Processed::No).await;
    answer(inbox.fail(&owner("a"), &keys, &error("x"))).await;
    expect(Some(hash.clone()), Processed::No).await;
    answer(inbox.revive(&keys, &error("x"), Delay::ZERO)).await;
    claim_keys(&fixture, "a").await;
    answer(inbox.ack(&owner("a"), &keys)).await;
    expect(None, Processed::Yes).await;
    expect(Some(hash), Processed::Yes).await;
    expect(Some(other), Processed::WithOtherContent).await;
}

/// INBOX-F
pub async fn inbox_f_another_owner_changes_nothing<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = [add(&fixture, "1").await];
    claim_keys(&fixture, "a").await;
    let (other, text) = (owner("b"), error("x"));
    assert_eq!(answer(inbox.ack(&other, &keys)).await, 0);
    let count = answer(inbox.abandon(&other, &keys, &text, Delay::ZERO)).await;
    assert_eq!(count, 0);
    assert_eq!(answer(inbox.fail(&other, &keys, &text)).await, 0);
    let message = inbox.get(&keys[0]).await.expect("a known message");
    assert!(matches!(message.status, InboxStatus::Claimed { .. }), "{message:?}");
    assert_eq!(message.last_error, ErrorText::default());
    assert_eq!(answer(inbox.ack(&owner("a"), &keys)).await, 1);
}

/// INBOX-G
pub async fn inbox_g_racing_claims_hand_out_each_message_once<F: Fixture>(fixture: F) {
    let mut enqueued = HashSet::new();
    for number in 0..200 {
        enqueued.insert(add(&fixture, &number.to_string()).await);
    }
    let inbox = fixture.inbox().clone();
    each_is_claimed_once(enqueued, move |owner| {
        let inbox = inbox.clone();
        async move {
            let claimed = answer(inbox.claim(&owner, lease(3600), batch(7))).await;
            claimed.into_iter().map(|claimed| claimed.key).collect()
        }
    })
    .await;
}

/// INBOX-H
pub async fn inbox_h_reap_never_touches_finished_messages<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let mut keys = Vec::new();
    for message_id in ["1", "2", "3", "4"] {
        keys.push(add(&fixture, message_id).await);
    }
    answer(inbox.claim(&owner("a"), lease(10), batch(3))).await;
    answer(inbox.claim(&owner("b"), lease(3600), batch(1))).await;
    answer(inbox.ack(&owner("a"), &keys[..1])).await;
    answer(inbox.fail(&owner("a"), &keys[1..2], &error("x"))).await;
    assert_eq!(answer(inbox.reap()).await, 0, "nothing has run out");
    fixture.advance(units(10)).await;
    assert_eq!(answer(inbox.reap()).await, 1);
    assert_eq!(claim_keys(&fixture, "c").await, keys[2..3]);
    assert_eq!(status(&fixture, &keys[0]).await, InboxStatus::Done);
    assert_eq!(status(&fixture, &keys[1]).await, InboxStatus::Dead);
}

/// INBOX-K
pub async fn inbox_k_the_age_of_the_oldest_ready_message_is_known<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    assert_eq!(answer(inbox.oldest_ready_age()).await, None);
    add(&fixture, "1").await;
    fixture.advance(units(20)).await;
    let age = answer(inbox.oldest_ready_age()).await.expect("it is due");
    assert!(units(20) <= age, "{age:?}");
    claim_keys(&fixture, "a").await;
    assert_eq!(answer(inbox.oldest_ready_age()).await, None, "claimed");
}

/// Enqueues a message that is new.
async fn add<F: Fixture>(fixture: &F, message_id: &str) -> InboxKey {
    let message = inbox_message(message_id);
    let key = message.key.clone();
    assert_eq!(answer(fixture.inbox().enqueue(message)).await, Enqueued::Added);
    key
}

async fn status<F: Fixture>(fixture: &F, key: &InboxKey) -> InboxStatus {
    fixture.inbox().get(key).await.expect("a known message").status
}

/// Claims up to 50 messages for 10 units.
pub(crate) async fn claim_keys<F: Fixture>(fixture: &F, by: &str) -> Vec<InboxKey> {
    let claimed = answer(fixture.inbox().claim(&owner(by), lease(10), batch(50))).await;
    claimed.into_iter().map(|message| message.key).collect()
}
