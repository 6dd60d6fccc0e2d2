use super::*;
use crate::ledger::{Balances, Timestamp};
use crate::limiter::codes::AccountCode;

fn key() -> LimitKey {
    LimitKey::new("slots").unwrap()
}

fn version(credits_posted: u128, debits_posted: u128, closed: bool) -> Version {
    let balances =
        Balances { credits_posted, debits_posted, debits_pending: 3, ..Balances::default() };
    Version::of(AccountRow {
        id: ids::limit_account(&key()),
        code: AccountCode::Limit.number(),
        debits_must_not_exceed_credits: true,
        closed,
        balances,
        user_data: UserData::default(),
        timestamp: Timestamp::from_unix_ms(1),
    })
}

fn change(version: &Version, target: u64, nonce: u128) -> Option<WorkItem> {
    let attempt = Attempt { unix_ms: 1, nonce: NonZeroU128::new(nonce).unwrap() };
    version.change(&key(), Capacity::new(target).unwrap(), attempt)
}

fn first_id(item: &WorkItem) -> TransferId {
    item.events()[0].transfer.id
}

/// The net effect on the account: capacity after, closed after.
fn effect(version: &Version, item: &WorkItem) -> (u128, bool) {
    let account = version.row.id;
    let (mut capacity, mut closed) = (version.capacity(), version.is_closed());
    for event in item.events() {
        match event.transfer.action {
            Action::Posted(movement) if movement.credit == account => capacity += movement.amount,
            Action::Posted(movement) if movement.debit == account => capacity -= movement.amount,
            Action::VoidPending { .. } => closed = false,
            Action::Pending { closes_debit_account: true, .. } => closed = true,
            Action::Posted(_)
            | Action::BalancingCredit(_)
            | Action::Pending { .. }
            | Action::PostPending { .. } => {}
        }
    }
    (capacity, closed)
}

/// TB-07
#[test]
fn tb_07_a_change_is_one_chain_to_the_target_and_open() {
    for closed in [false, true] {
        let from = version(15, 5, closed);
        for target in [0, 9, 11, 20] {
            let item = change(&from, target, 1).unwrap();
            assert_eq!(effect(&from, &item), (u128::from(target), false));
            let links = item.events().iter().filter(|event| event.linked).count();
            assert_eq!(links, item.len() - 1, "one chain");
        }
    }
    assert_eq!(change(&version(15, 5, false), 10, 1), None, "there is nothing to do");
    let cancelled = change(&version(15, 5, true), 10, 1).unwrap();
    assert_eq!(effect(&version(15, 5, true), &cancelled), (10, false));
    assert_eq!(cancelled.len(), 3, "the counters move although the capacity does not");
}

/// TB-07: every server leaves a version with the same ID, whatever its target.
#[test]
fn tb_07_a_version_is_left_by_one_transfer() {
    let open = version(15, 5, false);
    let leave = first_id(&open.close(&key()));
    for (target, nonce) in [(0, 1), (9, 2), (20, 3)] {
        assert_eq!(first_id(&change(&open, target, nonce).unwrap()), leave);
    }
    let closed = version(15, 5, true);
    let leave_closed = first_id(&change(&closed, 9, 1).unwrap());
    assert_eq!(first_id(&change(&closed, 20, 2).unwrap()), leave_closed);
    let others = [version(16, 6, false), version(15, 6, false), version(16, 5, false)];
    for other in others {
        assert_ne!(first_id(&other.close(&key())), leave);
    }
    assert_ne!(leave, leave_closed);
}

/// TB-07: a refused transfer burns its ID, so no two attempts share one.
#[test]
fn tb_07_attempts_do_not_share_the_ids_that_may_be_burned() {
    let from = version(15, 5, false);
    let last = |item: WorkItem| item.events().last().unwrap().transfer.id;
    let (one, other) = (change(&from, 9, 1).unwrap(), change(&from, 9, 2).unwrap());
    assert_ne!(last(one), last(other));
}

/// TB-07: any server finds the closing transfer of the version that it reads.
#[test]
fn tb_07_the_void_that_opens_names_the_transfer_that_closed() {
    let open = version(15, 5, false);
    let closing = open.close(&key()).events()[1].transfer.id;
    let item = change(&version(15, 5, true), 9, 1).unwrap();
    let void = item.events()[0].transfer.action;
    assert_eq!(void, Action::VoidPending { pending: closing });
}

/// TB-07, TB-18: a server that does not know the key finds the closing transfer by its user data, and one that
/// knows the key computes the ID of the one that the other leaves.
#[test]
fn tb_18_an_account_is_reopened_with_and_without_its_key() {
    let attempt = Attempt { unix_ms: 1, nonce: NonZeroU128::MIN };
    let any = marker(ids::transfer_at(1, "any"));
    let closing = version(15, 5, false).close(&key()).events()[1].transfer;
    let closed = version(15, 5, true);
    assert_eq!(closing.user_data.data_128, closed.closing_data().get());

    let chain = closed.closed_by(closing.id).reopen_around(None, any, any, attempt);
    assert_eq!(chain[0].action, Action::VoidPending { pending: closing.id });
    let without_key = chain[5];
    assert_ne!(without_key.id, closing.id);
    let closed = version(16, 6, true);
    assert_eq!(without_key.user_data.data_128, closed.closing_data().get());
    let chain = closed.closed_without_key().reopen_around(Some(&key()), any, any, attempt);
    assert_eq!(chain[0].action, Action::VoidPending { pending: without_key.id });
    assert_eq!(chain[5], version(17, 7, false).close(&key()).events()[1].transfer);
}

/// TB-07, TB-08: every server computes these IDs, also one of an older release.
#[test]
fn tb_07_the_ids_of_a_version_are_those_of_earlier_releases() {
    let label = |label: &str| ids::transfer_at(0, label);
    let close = version(15, 5, false).close(&key());
    assert_eq!(first_id(&close), label("xfer:capacity:15:5:slots"));
    assert_eq!(close.events()[1].transfer.id, label("xfer:close:15:5:slots"));
    assert_eq!(
        first_id(&change(&version(15, 5, true), 9, 1).unwrap()),
        label("xfer:open:15:5:slots")
    );
}

/// TB-07
#[test]
fn tb_07_the_answer_to_a_change_is_read() {
    use TransferStatus as S;
    const LEF: TransferStatus = S::LinkedEventFailed;
    let check = |statuses: &[TransferStatus], expected: ChangeReply| {
        let timestamp = Timestamp::from_unix_ms(1);
        let result = |status: &TransferStatus| TransferResult { status: *status, timestamp };
        let results: Vec<_> = statuses.iter().map(result).collect();
        assert_eq!(read(&results), expected, "{statuses:?}");
    };
    check(&[S::Created, S::Created], ChangeReply::Applied);
    check(&[LEF, S::ExceedsCredits], ChangeReply::NoRoom);
    check(&[S::Exists, LEF], ChangeReply::VersionChanged);
    check(&[LEF, S::CreditAccountAlreadyClosed], ChangeReply::VersionChanged);
    check(&[LEF, S::IdAlreadyFailed], ChangeReply::VersionChanged);
    check(&[S::PendingTransferAlreadyVoided, LEF], ChangeReply::VersionChanged);
    check(&[S::PendingTransferNotFound, LEF], ChangeReply::OtherClosing);
    check(&[S::IdAlreadyFailed, LEF], ChangeReply::OtherClosing);
    let not_pending = S::PendingTransferNotPending;
    check(&[not_pending, LEF], ChangeReply::Unexpected(not_pending));
}

/// TB-08: what is written for an account, by its version and its goal. 3 units are used.
#[test]
fn tb_08_only_what_differs_is_written() {
    use CapacityOutcome::Reached;
    use LateRequests::{None as NoLate, Possible};
    const WAITING: CapacityOutcome = CapacityOutcome::Waiting { in_force: 10 };
    let (open, closed) = (version(15, 5, false), version(15, 5, true));
    let set = |to| CapacityTarget::Set { to: Capacity::new(to).unwrap() };
    let end_decrease = |to| CapacityTarget::EndDecrease { to: Capacity::new(to).unwrap() };
    let fund = |to| CapacityTarget::Fund { to: Capacity::new(to).unwrap() };
    let new = version(0, 0, false);
    // Version, target, late requests, refused before; transfers sent, outcome, whether the capacity
    // changes.
    let table = [
        (&open, set(10), NoLate, false, 0, Reached, false),
        (&open, set(10), Possible, false, 3, Reached, false),
        (&open, set(12), NoLate, false, 2, Reached, true),
        (&open, set(12), Possible, false, 2, Reached, true),
        (&open, set(3), NoLate, false, 2, Reached, true),
        (&open, set(2), NoLate, false, 2, WAITING, false),
        (&open, set(2), Possible, false, 2, WAITING, false),
        (&open, set(5), NoLate, true, 2, WAITING, false),
        (&open, set(12), NoLate, true, 2, Reached, true),
        (&open, end_decrease(10), NoLate, false, 0, Reached, false),
        (&open, end_decrease(3), NoLate, false, 0, WAITING, false),
        (&open, end_decrease(12), NoLate, false, 0, WAITING, false),
        (&open, end_decrease(2), NoLate, false, 0, WAITING, false),
        (&open, CapacityTarget::Unchanged, Possible, false, 3, Reached, false),
        (&new, fund(10), NoLate, false, 2, Reached, true),
        (&new, fund(0), NoLate, false, 0, Reached, false),
        (&open, fund(12), NoLate, false, 0, Reached, false),
        (&closed, fund(12), NoLate, false, 0, Reached, false),
        (&closed, set(10), NoLate, false, 3, Reached, true),
        (&closed, set(12), NoLate, false, 2, Reached, true),
        (&closed, set(3), NoLate, false, 2, Reached, true),
        (&closed, set(2), NoLate, false, 0, WAITING, false),
        (&closed, set(2), Possible, false, 4, WAITING, false),
        (&closed, set(5), NoLate, true, 0, WAITING, false),
        (&closed, end_decrease(3), NoLate, false, 2, Reached, true),
        (&closed, end_decrease(3), NoLate, true, 0, WAITING, false),
        (&closed, end_decrease(2), NoLate, false, 0, WAITING, false),
        (&closed, end_decrease(10), NoLate, false, 0, WAITING, false),
        (&closed, end_decrease(12), NoLate, false, 0, WAITING, false),
        (&closed, CapacityTarget::Unchanged, Possible, false, 4, Reached, false),
    ];
    for (from, target, late_requests, was_refused, transfers, outcome, changes) in table {
        let account = LimitAccount::lasting(&key());
        let goal = AccountGoal {
            key: key(),
            account,
            target,
            late_requests,
            was_refused,
            is_closed_without_key: false,
        };
        let attempt = Attempt { unix_ms: 1, nonce: NonZeroU128::MIN };
        let (count, then, is_change) = match from.step_to(&goal, attempt) {
            CapacityStep::Done(outcome) => (0, outcome, false),
            CapacityStep::Send { chain, then, is_change } => (chain.len(), then, is_change),
        };
        assert_eq!((count, then, is_change), (transfers, outcome, changes), "{from}: {goal:?}");
    }
}

/// TB-19: all periods of one limit begin with the same counters, and their IDs differ all the same.
#[test]
fn tb_19_the_versions_of_two_periods_are_left_by_different_transfers() {
    let period = |ends_ms| {
        let mut version = version(0, 0, false);
        version.row.id = ids::period_account(&key(), Timestamp::from_unix_ms(ends_ms));
        version.row.code = AccountCode::Period.number();
        version
    };
    let id = |version: &Version| first_id(&change(version, 5, 1).unwrap());
    let versions = [version(0, 0, false), period(60_000), period(120_000)];
    let [lasting, first, second] = versions.map(|version| id(&version));
    assert!(lasting != first && first != second && second != lasting);
    assert_eq!(id(&period(60_000)), first, "whoever changes it");
}
