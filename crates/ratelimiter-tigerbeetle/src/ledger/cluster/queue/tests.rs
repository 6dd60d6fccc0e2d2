use super::*;
use Operation::{CreateTransfers, LookupAccounts, QueryTransfers};

fn micros(micros: u64) -> Timestamp {
    Timestamp::from_unix_nanos(micros * 1_000)
}

fn queue_of(items: &[(Operation, &'static str, usize)]) -> Queue<&'static str> {
    let mut queue = Queue::new(1_000);
    for &(operation, item, events) in items {
        queue.push(operation, item, events, micros(0)).unwrap();
    }
    queue
}

fn names(batch: &[Queued<&'static str>]) -> Vec<&'static str> {
    batch.iter().map(|queued| queued.item).collect()
}

/// TB-03
#[test]
fn tb_03_an_item_is_never_split() {
    let mut queue = queue_of(&[
        (CreateTransfers, "a", 4),
        (CreateTransfers, "b", 4),
        (CreateTransfers, "c", 4),
    ]);
    assert_eq!(names(&queue.take(CreateTransfers, 11)), ["a", "b"]);
    assert_eq!(names(&queue.take(CreateTransfers, 3)), ["c"], "one that is too large goes alone");
    assert_eq!(names(&queue.take(CreateTransfers, 3)), [""; 0]);
    assert_eq!(queue.items(), 0);
}

/// TB-09
#[test]
fn tb_09_a_full_queue_refuses_at_once_and_takes_again_when_there_is_room() {
    let mut queue = Queue::new(10);
    queue.push(CreateTransfers, "a", 6, micros(0)).unwrap();
    queue.push(LookupAccounts, "b", 4, micros(0)).unwrap();
    let refused = queue.push(CreateTransfers, "c", 1, micros(0)).unwrap_err();
    assert_eq!(refused, LedgerError::QueueFull { queued_events: 10, queue_events_max: 10 });
    queue.take(LookupAccounts, 10);
    queue.push(CreateTransfers, "c", 4, micros(0)).unwrap();
    assert!(queue.push(CreateTransfers, "d", 1, micros(0)).is_err());
}

/// TB-09
#[test]
fn tb_09_a_lonely_item_does_not_linger() {
    let queue = queue_of(&[(CreateTransfers, "a", 4)]);
    for items_expected in [None, Some(0), Some(1)] {
        assert_eq!(queue.readiness(items_expected), Readiness::Ready(CreateTransfers));
    }
}

/// TB-09
#[test]
fn tb_09_an_item_lingers_for_the_others_of_the_last_batch_while_it_may() {
    let mut queue = queue_of(&[(CreateTransfers, "a", 4)]);
    let ready = Readiness::Ready(CreateTransfers);
    assert_eq!(queue.readiness(Some(3)), Readiness::Linger);
    assert_eq!(queue.readiness(None), ready, "the interval has passed");
    queue.push(CreateTransfers, "b", 4, micros(110)).unwrap();
    queue.push(CreateTransfers, "c", 4, micros(120)).unwrap();
    assert_eq!(queue.readiness(Some(3)), ready, "all of them are there");
}

#[test]
fn the_lane_with_the_oldest_item_goes_first_and_alone() {
    let mut queue = queue_of(&[
        (LookupAccounts, "a", 1),
        (CreateTransfers, "b", 1),
        (LookupAccounts, "c", 1),
        (QueryTransfers, "d", 1),
        (QueryTransfers, "e", 1),
    ]);
    let mut order = Vec::new();
    while let Readiness::Ready(operation) = queue.readiness(None) {
        order.push(names(&queue.take(operation, 100)));
    }
    assert_eq!(order, [vec!["a", "c"], vec!["b"], vec!["d", "e"]]);
}

/// TB-11
#[test]
fn tb_11_what_is_given_back_keeps_its_place_and_its_time() {
    let mut queue = queue_of(&[(CreateTransfers, "a", 1), (CreateTransfers, "b", 1)]);
    let batch = queue.take(CreateTransfers, 100);
    queue.push(CreateTransfers, "c", 1, micros(5)).unwrap();
    queue.requeue(CreateTransfers, batch);
    assert_eq!(names(&queue.expire(micros(100), Duration::from_micros(100))), ["a", "b"]);
    assert_eq!(names(&queue.take(CreateTransfers, 100)), ["c"]);
}

/// TB-10
#[test]
fn tb_10_an_item_expires_when_its_timeout_has_passed_and_not_before() {
    let mut queue = queue_of(&[(CreateTransfers, "a", 1), (LookupAccounts, "b", 1)]);
    let timeout = Duration::from_micros(50);
    assert!(queue.expire(micros(49), timeout).is_empty());
    assert_eq!(queue.expire(micros(50), timeout).len(), 2);
    assert_eq!(queue.items(), 0);
}
