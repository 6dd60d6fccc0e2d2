//! The facts of `docs/reference/tigerbeetle.md`, one script each.
//!
//! The differential test checks the same rules on a real server.

use std::num::NonZeroU128;
use std::sync::Arc;

use expect_test::expect;
use ratelimiter::clock::FakeClock;

use super::*;
use ratelimiter_tigerbeetle::ledger::{Action, Order, Transfer, TransferStatus, UserData};

mod script;

use script::{check, hold, limited_account, operator, transfer_id};

#[test]
fn a_chain_sent_again_exists_whatever_its_inner_events_say() {
    check(
        "credit 1 A 100
         hold 2 A 10 + hold 3 A 20
         hold 2 A 10 + hold 3 A 20
         hold 2 A 10 + hold 3 A 21
         hold 2 A 11 + hold 3 A 20
         hold 2 A 10 ; hold 3 A 20",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 10 + hold 3 A 20 -> Created, Created
            hold 2 A 10 + hold 3 A 20 -> Exists, LinkedEventFailed
            hold 2 A 10 + hold 3 A 21 -> Exists, LinkedEventFailed
            hold 2 A 11 + hold 3 A 20 -> ExistsWithDifferentAmount, LinkedEventFailed
            hold 2 A 10 ; hold 3 A 20 -> ExistsWithDifferentFlags, Exists
        "#]],
    );
}

#[test]
fn only_the_first_event_without_room_is_named_and_burned() {
    check(
        "credit 1 A 100
         hold 2 A 10 + hold 3 A 10 + hold 4 A 90 + hold 5 A 99
         balance A
         credit 6 A 100
         hold 2 A 10 + hold 3 A 10 + hold 4 A 90 + hold 5 A 9
         hold 2 A 10 + hold 3 A 10 + hold 7 A 90 + hold 5 A 9
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 10 + hold 3 A 10 + hold 4 A 90 + hold 5 A 99 -> LinkedEventFailed, LinkedEventFailed, ExceedsCredits, LinkedEventFailed
            balance A -> 0 + 0 pending of 100
            credit 6 A 100 -> Created
            hold 2 A 10 + hold 3 A 10 + hold 4 A 90 + hold 5 A 9 -> LinkedEventFailed, LinkedEventFailed, IdAlreadyFailed, LinkedEventFailed
            hold 2 A 10 + hold 3 A 10 + hold 7 A 90 + hold 5 A 9 -> Created, Created, Created, Created
            balance A -> 0 + 119 pending of 200
        "#]],
    );
}

#[test]
fn a_failing_chain_leaves_its_neighbours_alone() {
    check(
        "credit 1 A 100
         hold 2 A 60 + hold 3 A 60 ; hold 4 A 60 + hold 5 A 40
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 60 + hold 3 A 60 ; hold 4 A 60 + hold 5 A 40 -> LinkedEventFailed, ExceedsCredits, Created, Created
            balance A -> 0 + 100 pending of 100
        "#]],
    );
}

#[test]
fn a_void_is_repeatable_and_returns_the_outcome_of_its_pending() {
    check(
        "credit 1 A 100
         hold 2 A 10 5s ; hold 3 A 10 ; hold 4 A 10
         void 12 2 ; void 12 2 ; void 13 2
         post 14 3 4 ; void 15 3 ; post 14 3 5 ; post 14 3 4
         void 16 99 ; void 16 4
         void 17 1
         void 18 18
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 10 5s ; hold 3 A 10 ; hold 4 A 10 -> Created, Created, Created
            void 12 2 ; void 12 2 ; void 13 2 -> Created, Exists, PendingTransferAlreadyVoided
            post 14 3 4 ; void 15 3 ; post 14 3 5 ; post 14 3 4 -> Created, PendingTransferAlreadyPosted, ExistsWithDifferentAmount, Exists
            void 16 99 ; void 16 4 -> PendingTransferNotFound, IdAlreadyFailed
            void 17 1 -> PendingTransferNotPending
            void 18 18 -> PendingIdMustBeDifferent
            balance A -> 4 + 10 pending of 100
        "#]],
    );
}

#[test]
fn a_balancing_credit_moves_what_is_missing_and_no_more() {
    check(
        "credit 1 A 100
         cover 2 A 30
         balance A
         cover 3 A 1000
         balance A
         cover 4 A 1000
         balance A
         cover 3 A 1000 ; cover 3 A 70 ; cover 3 A 69 ; debit 3 A 70
         credit 5 A 7 + cover 6 A 1000
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            cover 2 A 30 -> Created
            balance A -> 30 + 0 pending of 100
            cover 3 A 1000 -> Created
            balance A -> 100 + 0 pending of 100
            cover 4 A 1000 -> Created
            balance A -> 100 + 0 pending of 100
            cover 3 A 1000 ; cover 3 A 70 ; cover 3 A 69 ; debit 3 A 70 -> Exists, Exists, ExistsWithDifferentAmount, ExistsWithDifferentFlags
            credit 5 A 7 + cover 6 A 1000 -> Created, Created
            balance A -> 107 + 0 pending of 107
        "#]],
    );
}

#[test]
fn a_shrink_sees_the_freed_room_and_is_taken_back_when_it_does_not_fit() {
    check(
        "credit 1 A 100
         hold 2 A 60 ; hold 3 A 40
         void 4 2 + hold 5 A 61
         balance A
         void 4 2 + hold 6 A 20
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 60 ; hold 3 A 40 -> Created, Created
            void 4 2 + hold 5 A 61 -> LinkedEventFailed, ExceedsCredits
            balance A -> 0 + 100 pending of 100
            void 4 2 + hold 6 A 20 -> Created, Created
            balance A -> 0 + 60 pending of 100
        "#]],
    );
}

#[test]
fn a_hold_expires_exactly_at_its_timeout() {
    check(
        "credit 1 A 100
         hold 2 A 100 5s
         at 4.9s
         hold 3 A 1
         void 4 2 + hold 5 A 101
         at 5.1s
         balance A
         void 6 2
         hold 7 A 100
         hold 2 A 100 5s",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 100 5s -> Created
            at 4.9s -> 0 expired
            hold 3 A 1 -> ExceedsCredits
            void 4 2 + hold 5 A 101 -> LinkedEventFailed, ExceedsCredits
            at 5.1s -> 1 expired
            balance A -> 0 + 0 pending of 100
            void 6 2 -> PendingTransferExpired
            hold 7 A 100 -> Created
            hold 2 A 100 5s -> Exists
        "#]],
    );
}

#[test]
fn one_expired_void_fails_its_chain_but_not_the_unlinked_events() {
    check(
        "credit 1 A 100
         hold 2 A 10 1s ; hold 3 A 10 9s
         at 2.0s
         void 4 3 + void 5 2
         void 4 3 ; void 5 2
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 10 1s ; hold 3 A 10 9s -> Created, Created
            at 2.0s -> 1 expired
            void 4 3 + void 5 2 -> LinkedEventFailed, PendingTransferExpired
            void 4 3 ; void 5 2 -> Created, PendingTransferExpired
            balance A -> 0 + 0 pending of 100
        "#]],
    );
}

/// TB-16: a hold ends in one of two ways, and a void returns which one permanently.
#[test]
fn a_hold_that_was_voided_never_expires_and_one_that_expired_is_never_voided() {
    check(
        "credit 1 A 100
         hold 2 A 10 1s ; hold 3 A 10 1s
         void 4 2
         at 2.0s
         void 4 2 ; void 5 2 ; void 6 3
         void 5 2 + void 7 3 ; void 6 3",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 10 1s ; hold 3 A 10 1s -> Created, Created
            void 4 2 -> Created
            at 2.0s -> 1 expired
            void 4 2 ; void 5 2 ; void 6 3 -> Exists, PendingTransferAlreadyVoided, PendingTransferExpired
            void 5 2 + void 7 3 ; void 6 3 -> PendingTransferAlreadyVoided, LinkedEventFailed, PendingTransferExpired
        "#]],
    );
}

#[test]
fn a_closed_account_takes_voids_and_expiries_only() {
    check(
        "credit 1 A 100
         hold 2 A 10 ; hold 3 A 10 2s ; hold 4 A 10
         close 5 A
         hold 6 A 1 ; credit 7 A 1 ; post 8 4 ; void 9 2
         create A
         at 3.0s
         balance A
         void 10 5 + debit 11 A 90 + close 12 A
         hold 13 A 1
         void 14 12 ; hold 13 A 1 ; hold 15 A 1
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 10 ; hold 3 A 10 2s ; hold 4 A 10 -> Created, Created, Created
            close 5 A -> Created
            hold 6 A 1 ; credit 7 A 1 ; post 8 4 ; void 9 2 -> DebitAccountAlreadyClosed, CreditAccountAlreadyClosed, DebitAccountAlreadyClosed, Created
            create A -> ExistsWithDifferentFlags
            at 3.0s -> 1 expired
            balance A -> 0 + 10 pending of 100, closed
            void 10 5 + debit 11 A 90 + close 12 A -> Created, Created, Created
            hold 13 A 1 -> DebitAccountAlreadyClosed
            void 14 12 ; hold 13 A 1 ; hold 15 A 1 -> Created, IdAlreadyFailed, ExceedsCredits
            balance A -> 90 + 10 pending of 100
        "#]],
    );
}

#[test]
fn a_closing_transfer_with_a_timeout_reopens_its_account() {
    check(
        "credit 1 A 100
         close 2 A 1s
         hold 3 A 1
         at 2.0s
         hold 4 A 1",
        &expect![[r#"
            credit 1 A 100 -> Created
            close 2 A 1s -> Created
            hold 3 A 1 -> DebitAccountAlreadyClosed
            at 2.0s -> 1 expired
            hold 4 A 1 -> Created
        "#]],
    );
}

#[test]
fn a_decrease_is_refused_while_the_room_is_taken() {
    check(
        "credit 1 A 100
         hold 2 A 70
         debit 3 A 31
         debit 4 A 30
         balance A",
        &expect![[r#"
            credit 1 A 100 -> Created
            hold 2 A 70 -> Created
            debit 3 A 31 -> ExceedsCredits
            debit 4 A 30 -> Created
            balance A -> 30 + 70 pending of 100
        "#]],
    );
}

#[test]
fn a_missing_account_burns_the_id() {
    check(
        "hold 2 B 1
         create B
         hold 2 B 1
         hold 3 B 0",
        &expect![[r#"
            hold 2 B 1 -> DebitAccountNotFound
            create B -> Created
            hold 2 B 1 -> IdAlreadyFailed
            hold 3 B 0 -> Created
        "#]],
    );
}

#[test]
fn sums_never_wrap() {
    check(
        "credit 1 A 340282366920938463463374607431768211455
         credit 2 A 1
         hold 3 A 340282366920938463463374607431768211455
         hold 4 A 1",
        &expect![[r#"
            credit 1 A 340282366920938463463374607431768211455 -> Created
            credit 2 A 1 -> OverflowsDebitsPosted
            hold 3 A 340282366920938463463374607431768211455 -> Created
            hold 4 A 1 -> OverflowsDebitsPending
        "#]],
    );
}

#[test]
fn results_carry_rising_timestamps_and_exists_the_first_one() {
    let mut model = Model::default();
    let now = Timestamp::from_unix_nanos(1_000);
    model.create_accounts(now, &[operator(), limited_account(1)]);
    let item = WorkItem::new().with(hold(7, 1, 0)).with(hold(8, 1, 1)).with(hold(7, 1, 0));
    let results = model.create_transfers(now, &item);
    let seen: Vec<_> =
        results.iter().map(|result| (result.status, result.timestamp.unix_nanos())).collect();
    assert_eq!(
        seen,
        [
            (TransferStatus::Created, 1_002),
            (TransferStatus::ExceedsCredits, 1_003),
            (TransferStatus::Exists, 1_002),
        ]
    );
}

#[test]
fn a_query_finds_the_voids_with_their_pendings_in_either_order() {
    let mut model = Model::default();
    let now = Timestamp::from_unix_nanos(1);
    model.create_accounts(now, &[operator(), limited_account(1)]);
    let lease = |data_128| UserData { data_128, ..UserData::default() };
    let void = Transfer {
        id: transfer_id(3),
        action: Action::VoidPending { pending: transfer_id(2) },
        user_data: UserData::default(),
    };
    let of = |transfer: Transfer, data_128| Transfer { user_data: lease(data_128), ..transfer };
    let item = WorkItem::new()
        .with(of(hold(1, 1, 0), 55))
        .with(of(hold(2, 1, 0), 55))
        .with(of(hold(9, 1, 0), 66))
        .with(void);
    model.create_transfers(now, &item);
    let query = TransferQuery::new(NonZeroU128::new(55).unwrap());
    let ids = |query| -> Vec<u128> {
        model.query_transfers(&query).iter().map(|row| row.id.get()).collect()
    };
    assert_eq!(ids(query), [1, 2, 3]);
    assert_eq!(ids(query.order(Order::NewestFirst).rows_max(2)), [3, 2]);
    assert_eq!(ids(query.since(model.transfer(transfer_id(2)).unwrap().timestamp)), [2, 3]);
}

#[tokio::test]
async fn the_shell_expires_by_its_clock_and_not_before_the_lag_has_passed() {
    let clock = Arc::new(FakeClock::new());
    let ledger = ModelLedger::new(Arc::clone(&clock)).with_expiry_lag(Duration::from_millis(100));
    ledger.create_accounts(vec![operator(), limited_account(1)]).await.unwrap();
    let credit_and_hold = WorkItem::new()
        .with(script::credit(1, 1, 5))
        .with(Transfer { action: script::with_timeout(hold(2, 1, 5).action, 1), ..hold(2, 1, 5) });
    ledger.create_transfers(credit_and_hold).await.unwrap();

    let pending = async || {
        let rows = ledger.lookup_accounts(vec![limited_account(1).id]).await;
        rows.unwrap()[0].balances.debits_pending
    };
    clock.advance(Duration::from_millis(1_050));
    assert_eq!(pending().await, 5);
    clock.advance(Duration::from_millis(60));
    assert_eq!(pending().await, 0);
    assert_eq!(ledger.next_expiry(), None);
}
