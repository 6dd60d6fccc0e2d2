//! Scenarios of claims: by topic, begun, postponed, lost.

use coordination::{Delay, Enqueued, Inbox, InboxKey, InboxMessage, Settlement, Topics};

use super::claim_keys;
use crate::Fixture;
use crate::fixture::{lease, units};
use crate::sample::{batch, error, except, inbox_message, key, only, owner, topic};
use crate::scenario::answer;

/// INBOX-L, `CRD-01`
pub async fn inbox_l_a_claim_takes_only_its_topics<F: Fixture>(fixture: F) {
    let keys = add_all(&fixture, &["c", "a", "b", "a", "c", "b"]).await;
    assert_eq!(claim_of(&fixture, 50, &only(&[])).await, [], "no topic, no message");
    assert_eq!(claim_of(&fixture, 50, &only(&["unknown"])).await, []);
    let first = claim_of(&fixture, 3, &only(&["a", "c", "unknown"])).await;
    let expected = [&keys[0], &keys[1], &keys[3]].map(InboxKey::clone);
    assert_eq!(first, expected, "in the order of creation, at most the batch");
    assert_eq!(claim_of(&fixture, 50, &only(&["a", "c"])).await, keys[4..5]);
    let rest = claim_of(&fixture, 50, &only(&["b"])).await;
    assert_eq!(rest, [keys[2].clone(), keys[5].clone()]);
}

/// INBOX-M, `CRD-01`
pub async fn inbox_m_a_claim_takes_all_but_some_topics<F: Fixture>(fixture: F) {
    let keys = add_all(&fixture, &[["a"; 60].as_slice(), &["c", "a", "b", "c"]].concat()).await;
    let others = claim_of(&fixture, 50, &except(&["a", "unknown"])).await;
    let expected = [&keys[60], &keys[62], &keys[63]].map(InboxKey::clone);
    assert_eq!(others, expected, "no batch full of one topic stands in their way");
    assert_eq!(claim_of(&fixture, 50, &except(&["a"])).await, []);
    assert_eq!(claim_of(&fixture, 1, &except(&["c"])).await, keys[..1]);
    assert_eq!(claim_of(&fixture, 1, &except(&[])).await, keys[1..2], "all but none is all");
    assert_eq!(claim_of(&fixture, 1, &Topics::All).await, keys[2..3]);
}

/// INBOX-N, `CRD-02`
pub async fn inbox_n_a_postponed_message_was_not_tried<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = add_all(&fixture, &["a", "a"]).await;
    let delay = Delay::new(units(10)).expect("a valid delay");
    claim_keys(&fixture, "a").await;
    answer(inbox.abandon(&owner("a"), &keys[..1], &error("down"), Delay::ZERO)).await;
    for _ in 0..3 {
        claim_keys(&fixture, "a").await;
        answer(inbox.begin(&owner("a"), &keys[1], lease(10))).await;
        assert_eq!(answer(inbox.postpone(&owner("b"), &keys, delay)).await, 0, "not theirs");
        assert_eq!(answer(inbox.postpone(&owner("a"), &keys, delay)).await, 2);
        assert_eq!(answer(inbox.postpone(&owner("a"), &keys, delay)).await, 0, "given back once");
        assert_eq!(claim_keys(&fixture, "a").await, [], "not before the delay is over");
        fixture.advance(units(10)).await;
    }
    let claimed = answer(inbox.claim(&owner("a"), lease(10), batch(10))).await;
    let attempts: Vec<_> = claimed.iter().map(|message| message.attempts).collect();
    assert_eq!((attempts, claimed[0].last_error.as_str()), (vec![1, 0], "down"));
    assert!(claimed.iter().all(|message| message.lost_attempts == 0), "{claimed:?}");
    let full = Settlement::Postpone { delay: Delay::ZERO, reason: error("full") };
    assert_eq!(answer(inbox.settle(&owner("a"), &keys[1..], &full)).await, 1);
    assert_eq!(claim_keys(&fixture, "b").await, keys[1..], "a delay of 0 is allowed");
    assert_eq!(answer(inbox.get(&keys[1])).await.last_error, error("full"), "the reason is kept");
}

/// INBOX-P, `CRD-02`
pub async fn inbox_p_an_attempt_is_counted_once_a_claim<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let key = add_all(&fixture, &["a"]).await.remove(0);
    let begin = |by: &str, count: u32| {
        let (by, key) = (owner(by), &key);
        async move { answer(inbox.begin(&by, key, lease(count))).await }
    };
    assert_eq!(begin("a", 10).await, None, "not claimed");
    for attempts in 0..3 {
        assert_eq!(claim_one(&fixture).await.attempts, attempts);
        assert_eq!(begin("b", 3600).await, None, "not theirs");
        for _ in 0..2 {
            assert_eq!(begin("a", 30).await, Some(attempts + 1), "counted once");
        }
        assert_eq!(begin("a", 1).await, Some(attempts + 1), "and the claim is made no shorter");
        fixture.advance(units(10)).await;
        assert_eq!(answer(inbox.reap()).await, 0, "the claim was extended");
        fixture.advance(units(30)).await;
        assert_eq!(answer(inbox.reap()).await, 1);
        assert_eq!(begin("a", 10).await, None, "not ours any more");
    }
    claim_one(&fixture).await;
    assert_eq!(begin("a", 10).await, Some(4));
    answer(inbox.ack(&owner("a"), std::slice::from_ref(&key))).await;
    assert_eq!(begin("a", 10).await, None, "done");
}

/// INBOX-Q, `CRD-02`, `CRD-03`
pub async fn inbox_q_lost_attempts_are_counted_apart<F: Fixture>(fixture: F) {
    let inbox = fixture.inbox();
    let keys = add_all(&fixture, &["a"]).await;
    let begin = async || answer(inbox.begin(&owner("a"), &keys[0], lease(10))).await;
    let reap = async || {
        fixture.advance(units(10)).await;
        assert_eq!(answer(inbox.reap()).await, 1);
    };
    let counts = async || {
        let message = claim_one(&fixture).await;
        (message.attempts_since_revival(), message.lost_attempts)
    };
    assert_eq!(counts().await, (0, 0));
    reap().await;
    assert_eq!(counts().await, (0, 0), "it did not begin");
    begin().await;
    reap().await;
    assert_eq!(counts().await, (1, 1), "lost");
    begin().await;
    answer(inbox.abandon(&owner("a"), &keys, &error("x"), Delay::ZERO)).await;
    assert_eq!(counts().await, (2, 1), "failed");
    begin().await;
    answer(inbox.postpone(&owner("a"), &keys, Delay::ZERO)).await;
    assert_eq!(counts().await, (2, 1), "put off");
    begin().await;
    reap().await;
    assert_eq!(counts().await, (3, 2), "lost again");
    begin().await;
    answer(inbox.fail(&owner("a"), &keys, &error("x"))).await;
    answer(inbox.revive(&keys, &error("fixed"), Delay::ZERO)).await;
    assert_eq!(counts().await, (0, 0), "from the start");
}

async fn add_all<F: Fixture>(fixture: &F, topics: &[&str]) -> Vec<InboxKey> {
    let mut keys = Vec::new();
    for (number, text) in topics.iter().enumerate() {
        let mut message = inbox_message(&number.to_string());
        message.topic = topic(text);
        assert_eq!(answer(fixture.inbox().enqueue(message)).await, Enqueued::Added);
        keys.push(key("shop", &number.to_string()));
    }
    keys
}

async fn claim_one<F: Fixture>(fixture: &F) -> InboxMessage {
    let claimed = answer(fixture.inbox().claim(&owner("a"), lease(10), batch(1))).await;
    claimed.into_iter().next().expect("it is ready")
}

async fn claim_of<F: Fixture>(fixture: &F, max: u32, topics: &Topics) -> Vec<InboxKey> {
    let (by, lease) = (owner("a"), lease(3600));
    let claimed = answer(fixture.inbox().claim_of(&by, lease, batch(max), topics)).await;
    claimed.into_iter().map(|message| message.key).collect()
}
