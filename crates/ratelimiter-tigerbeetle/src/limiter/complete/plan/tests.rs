use expect_test::{Expect, expect};
use ratelimiter::{Capacity, Limit, LimitKind, RegisteredLimit, Window};

use super::*;
use crate::ids::limit_account;
use crate::ledger::Event;

const LEASE: LeaseId = LeaseId::from_u128(0x0156_3E3A_B5D3_D676_4C61_EFB9_9302_BD5B);

fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_unix_ms(seconds * 1_000)
}

/// Names that begin with `slots` are holds; all expire at second 60, `brief` ones at second 1.
fn lease(reservations: &[(&str, u64)]) -> Lease {
    let reservation = |(name, amount): &(&str, u64)| Reservation {
        account: limit_account(&key(name)),
        transfer: ids::transfer(TransferRole::Reserve, LEASE, &key(name)),
        amount: *amount,
        tenure: if name.starts_with("slots") { Tenure::Hold } else { Tenure::Reservation },
        expires_at: if name.ends_with("brief") { at(1) } else { at(60) },
    };
    let reservations = reservations.iter().map(reservation).collect();
    Lease { id: LEASE, reserved_at: at(0), reservations }
}

/// Every limit that the tests name, defined with this policy.
fn table(overage: Overage) -> Table {
    let mut table = Table::default();
    for name in ["a", "b", "other", "slots", "slots:a", "slots:b", "tokens", "tokens:brief"] {
        let window = Window::from_seconds(60).unwrap();
        let kind = LimitKind::Rolling { window };
        let limit = Limit::new(key(name), kind, Capacity::new(100).unwrap());
        table.put(RegisteredLimit::in_force(Limit { overage, ..limit }));
    }
    table
}

fn describe(event: &Event) -> String {
    let what = match event.transfer.action {
        Action::VoidPending { .. } => "void".to_owned(),
        Action::Pending { movement, timeout_seconds: Some(seconds), .. } => {
            format!("reserve {} for {seconds}s", movement.amount)
        }
        Action::Posted(movement) if movement.amount == 0 => "mark".to_owned(),
        Action::Posted(movement) => format!("debt {}", movement.amount),
        other @ (Action::Pending { .. } | Action::PostPending { .. }) => format!("{other:?}"),
    };
    if event.linked { format!("{what} +") } else { format!("{what};") }
}

fn check(reserved: &[(&str, u64)], actuals: &[(&str, u64)], overage: Overage, expect: &Expect) {
    let actuals = Actuals::of(actuals.iter().map(|(name, n)| (key(name), *n))).unwrap();
    let planned = plan(&lease(reserved), &actuals, at(10), &table(overage));
    let text = match planned {
        Ok(plan) => plan.item.events().iter().map(describe).collect::<Vec<_>>().join(" "),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&text);
}

/// TB-06
#[test]
fn tb_06_the_end_of_a_lease_is_one_item() {
    let debt = |reserved: &[(&str, u64)], actuals: &[(&str, u64)], expect: &Expect| {
        check(reserved, actuals, Overage::Debt, expect);
    };
    debt(&[("slots:a", 1), ("slots:b", 2)], &[], &expect!["void; void;"]);
    debt(&[("tokens", 50)], &[("tokens", 20)], &expect!["void + reserve 20 for 50s;"]);
    debt(&[("tokens", 50)], &[("tokens", 0)], &expect!["void;"]);
    debt(&[("tokens", 50)], &[("tokens", 50)], &expect!["mark;"]);
    debt(&[("tokens", 50)], &[], &expect!["mark;"]);
    debt(&[("tokens", 50)], &[("tokens", 57)], &expect!["reserve 7 for 50s + mark; debt 7;"]);
    debt(
        &[("a", 5), ("b", 5), ("slots", 1)],
        &[("b", 4), ("a", 5)],
        &expect!["void + reserve 4 for 50s; void;"],
    );
    check(
        &[("tokens", 50)],
        &[("tokens", 57)],
        Overage::Deny,
        &expect!["reserve 7 for 50s; mark;"],
    );
}

/// TB-06: what has expired is left out, so that it takes nothing down.
#[test]
fn tb_06_what_has_expired_is_left_alone() {
    let expired = [("slots:brief", 1), ("tokens:brief", 50)];
    check(&expired, &[("tokens:brief", 90)], Overage::Debt, &expect![""]);
    let some = [("slots:brief", 1), ("tokens:brief", 50), ("slots", 1)];
    check(&some, &[("tokens:brief", 90)], Overage::Debt, &expect!["void;"]);
}

/// COM-06
#[test]
fn com_06_a_wrong_actual_is_refused_before_anything_is_sent() {
    let refused = expect![
        "the lease has no rolling reservation of other; actuals name rolling keys of the lease's requirements"
    ];
    let reserved = [("tokens", 50), ("slots", 1)];
    check(&reserved, &[("tokens", 1), ("other", 1)], Overage::Debt, &refused);
    let refused = expect![
        "the lease has no rolling reservation of slots; actuals name rolling keys of the lease's requirements"
    ];
    check(&reserved, &[("slots", 1)], Overage::Debt, &refused);
    check(&[("tokens:brief", 50)], &[("other", 1)], Overage::Debt, &expect![""]);
}

fn read(
    actual: u64,
    overage: Overage,
    statuses: &[TransferStatus],
) -> (Vec<u64>, usize, Option<TransferStatus>) {
    let actuals = Actuals::of([(key("tokens"), actual)]).unwrap();
    let planned = plan(&lease(&[("tokens", 50)]), &actuals, at(10), &table(overage)).unwrap();
    let result = |status: &TransferStatus| TransferResult { status: *status, timestamp: at(10) };
    let outcome = planned.read(&statuses.iter().map(result).collect::<Vec<_>>());
    let uncovered = outcome.uncovered.iter().map(|(_, units)| *units).collect();
    (uncovered, outcome.unshrunk.len(), outcome.unexpected)
}

/// TB-06
#[test]
fn tb_06_what_was_done_before_is_done() {
    use TransferStatus as S;
    const LEF: TransferStatus = S::LinkedEventFailed;
    let nothing = (vec![], 0, None);
    for void in [S::Exists, S::PendingTransferExpired, S::PendingTransferAlreadyVoided] {
        assert_eq!(read(20, Overage::Debt, &[void, LEF]), nothing, "{void:?}");
        assert_eq!(read(0, Overage::Debt, &[void]), nothing, "{void:?}");
    }
    assert_eq!(read(57, Overage::Debt, &[S::Exists, LEF, S::ExistsWithDifferentAmount]), nothing);
    assert_eq!(read(57, Overage::Debt, &[S::IdAlreadyFailed, LEF, S::Exists]), nothing);
    assert_eq!(read(57, Overage::Deny, &[S::IdAlreadyFailed, S::Exists]), nothing);
    assert_eq!(read(20, Overage::Debt, &[S::Other(99), LEF]), (vec![], 0, Some(S::Other(99))));
}

/// TB-06, COM-03
#[test]
fn com_03_an_excess_without_room_is_counted_when_it_is_refused_first() {
    use TransferStatus as S;
    const LEF: TransferStatus = S::LinkedEventFailed;
    let seven = (vec![7], 0, None);
    assert_eq!(read(57, Overage::Debt, &[S::ExceedsCredits, LEF, S::Created]), seven);
    assert_eq!(read(57, Overage::Debt, &[S::DebitAccountAlreadyClosed, LEF, S::Created]), seven);
    assert_eq!(read(57, Overage::Deny, &[S::ExceedsCredits, S::Created]), seven);
    let covered = [S::Created, S::Created, S::ExistsWithDifferentFlags];
    assert_eq!(read(57, Overage::Debt, &covered), (vec![], 0, None));
}

/// TB-06, TB-07
#[test]
fn tb_06_a_reservation_that_a_closed_account_kept_large_is_tried_again() {
    use TransferStatus as S;
    for status in [S::DebitAccountAlreadyClosed, S::IdAlreadyFailed] {
        let answer = [S::LinkedEventFailed, status];
        assert_eq!(read(20, Overage::Debt, &answer), (vec![], 1, None));
    }
}

/// TB-06: never early, at least a second.
#[test]
fn tb_06_the_rest_of_a_window_is_rounded_up_to_whole_seconds() {
    let nanos = Timestamp::from_unix_nanos;
    for (left, seconds) in [
        (0, 1),
        (1, 1),
        (999_999_999, 1),
        (1_000_000_000, 1),
        (1_000_000_001, 2),
        (60_000_000_000, 60),
    ] {
        assert_eq!(remaining_seconds(nanos(5 + left), nanos(5)).get(), seconds, "{left}");
    }
    assert_eq!(remaining_seconds(nanos(5), nanos(9)).get(), 1, "it has just expired");
}
