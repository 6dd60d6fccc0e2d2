use std::num::NonZeroU128;

use expect_test::{Expect, expect};
use ratelimiter::{Capacity, RegisteredLimit, ResetSchedule, ResetTime, Window};

use super::*;
use crate::ids::limit_account;
use crate::ledger::{AccountRow, Action, Balances, Event, UserData};
use crate::limiter::codes::AccountCode;
use crate::limiter::lease::Claim;
use crate::limiter::table::LimitAccount;

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
        kind: if name.starts_with("slots") {
            ReservationKind::Hold
        } else {
            ReservationKind::Reservation
        },
        expires_at: if name.ends_with("brief") { at(1) } else { at(60) },
    };
    let reservations = reservations.iter().map(reservation).collect();
    let claim = Claim::Kept;
    Lease { id: LEASE, reserved_at: at(0), job: None, claim, reservations, renewed: None }
}

/// Every limit that the tests name, defined with this policy.
fn table(overage: Overage) -> LimitTable {
    let mut table = LimitTable::default();
    for name in ["a", "b", "other", "slots", "slots:a", "slots:b", "tokens", "tokens:brief"] {
        let window = Window::from_seconds(60).unwrap();
        let kind = LimitKind::Rolling { window };
        let limit = Limit::new(key(name), kind, Capacity::new(100).unwrap());
        let account = LimitAccount::lasting(&limit.key);
        table.put(RegisteredLimit::in_force(Limit { overage, ..limit }), account);
    }
    table
}

fn describe(event: &Event) -> String {
    let what = match event.transfer.action {
        Action::VoidPending { .. } => "void".to_owned(),
        Action::Pending { movement, timeout_seconds: Some(seconds), .. } => {
            format!("reserve {} for {seconds}s", movement.amount)
        }
        Action::Pending { closes_debit_account: true, .. } => "close".to_owned(),
        Action::Pending { movement, .. } => {
            let end = event.transfer.user_data.data_64 / 1_000;
            format!("reserve {} until {end}s", movement.amount)
        }
        Action::Posted(movement) if movement.code == TransferCode::Marker.number() => {
            "end".to_owned()
        }
        Action::Posted(movement) if movement.code == TransferCode::Capacity.number() => {
            "step".to_owned()
        }
        Action::Posted(movement) if movement.code == TransferCode::Gate.number() => {
            "read".to_owned()
        }
        Action::Posted(movement) => format!("debt {}", movement.amount),
        other @ (Action::PostPending { .. } | Action::BalancingCredit(_)) => format!("{other:?}"),
    };
    if event.linked { format!("{what} +") } else { format!("{what};") }
}

fn attempt() -> Attempt {
    Attempt { unix_ms: 1, nonce: NonZeroU128::new(7).unwrap() }
}

fn chain(plan: &CompletePlan) -> String {
    let item = plan.item(at(10), attempt);
    item.events().iter().map(describe).collect::<Vec<_>>().join(" ")
}

fn planned(
    reserved: &[(&str, u64)],
    actuals: &[(&str, u64)],
    overage: Overage,
) -> Result<Option<CompletePlan>, CompleteError> {
    let actuals = Actuals::of(actuals.iter().map(|(name, n)| (key(name), *n))).unwrap();
    plan(&lease(reserved), &actuals, at(10), &table(overage))
}

fn check(reserved: &[(&str, u64)], actuals: &[(&str, u64)], expect: &Expect) {
    let text = match planned(reserved, actuals, Overage::Debt) {
        Ok(Some(plan)) => chain(&plan),
        Ok(None) => String::new(),
        Err(error) => error.to_string(),
    };
    expect.assert_eq(&text);
}

/// TB-16, TB-15: one chain, marker first, without needless transfers.
#[test]
fn tb_16_the_end_of_a_lease_is_one_chain_that_begins_with_its_marker() {
    check(&[("slots:a", 1), ("slots:b", 2)], &[], &expect!["void + void;"]);
    check(&[("slots", 1), ("tokens", 50)], &[], &expect!["void;"]);
    check(&[("slots", 1), ("tokens", 50)], &[("tokens", 50)], &expect!["void;"]);
    check(&[("tokens", 50)], &[], &expect!["end;"]);
    check(&[("tokens", 50)], &[("tokens", 50)], &expect!["end;"]);
    check(&[("tokens", 50)], &[("tokens", 20)], &expect!["end + void + reserve 20 for 50s;"]);
    check(&[("tokens", 50)], &[("tokens", 0)], &expect!["end + void;"]);
    check(&[("tokens", 50)], &[("tokens", 57)], &expect!["end + reserve 7 for 50s;"]);
    check(
        &[("a", 5), ("b", 5), ("slots", 1)],
        &[("b", 4), ("a", 5)],
        &expect!["void + void + reserve 4 for 50s;"],
    );
}

/// TB-17, TB-18: a return meets whoever was told, every renew, and every complete.
#[test]
fn tb_17_a_return_begins_with_the_markers_of_all_others() {
    let check = |reserved: &[(&str, u64)], expect: Expect| {
        let plan = plan_return(&lease(reserved), at(10), &table(Overage::Debt));
        expect.assert_eq(&plan.map(|plan| chain(&plan)).unwrap_or_default());
    };
    check(&[("tokens", 50)], expect!["read + end + void;"]);
    check(&[("slots", 1), ("tokens", 50)], expect!["read + end + void + void;"]);
    check(&[("tokens", 50), ("tokens:brief", 50)], expect!["read + end + void;"]);
    check(&[("slots:brief", 1), ("tokens", 50)], expect!["read + end + void + void;"]);
    check(&[("slots:brief", 1)], expect![""]);
}

/// TB-19, CAL-04: within its period a reservation is reconciled without a timeout; afterwards only an
/// excess of an open lease counts.
#[test]
fn tb_19_a_reservation_of_a_period_keeps_its_end() {
    let calendar = |ends: u64, reserved, actual, overage| {
        let mut lease = lease(&[("slots", 1), ("tokens", reserved)]);
        let held = &mut lease.reservations[1];
        (held.kind, held.expires_at) = (ReservationKind::Calendar, at(ends));
        held.account = ids::period_account(&key("tokens"), at(ends));
        let actuals = Actuals::of([(key("tokens"), actual)]).unwrap();
        let mut table = table(overage);
        let kind = LimitKind::Calendar {
            resets: ResetSchedule::Hourly { minute: ResetTime::MIDNIGHT.minute() },
        };
        let limit = Limit::new(key("tokens"), kind, Capacity::new(100).unwrap());
        let account = LimitAccount::of_period(&limit.key, at(3_600));
        table.put(RegisteredLimit::in_force(Limit { overage, ..limit }), account);
        let plan = plan(&lease, &actuals, at(10), &table).unwrap().unwrap();
        let uncovered: u64 = plan.uncovered().iter().map(|(_, units)| units).sum();
        format!("{} {uncovered} uncovered", chain(&plan))
    };
    for (ends, reserved, actual, overage, expected) in [
        (60, 5, 2, Overage::Debt, "void + void + reserve 2 until 60s; 0 uncovered"),
        (60, 5, 0, Overage::Debt, "void + void; 0 uncovered"),
        (60, 5, 9, Overage::Debt, "void + reserve 4 until 60s; 0 uncovered"),
        (10, 5, 2, Overage::Debt, "void; 0 uncovered"),
        (10, 5, 5, Overage::Debt, "void; 0 uncovered"),
        (10, 5, 9, Overage::Debt, "void + debt 4; 4 uncovered"),
        (10, 5, 9, Overage::Deny, "void; 4 uncovered"),
    ] {
        assert_eq!(calendar(ends, reserved, actual, overage), expected);
    }
}

/// TB-06, TB-16: expired reservations are left out, except the first hold, which alone shows
/// whether the lease was completed before it expired.
#[test]
fn tb_16_what_has_expired_is_left_out_but_for_the_marker() {
    let expired = [("slots:brief", 1), ("tokens:brief", 50)];
    check(&expired, &[("tokens:brief", 90)], &expect![""]);
    let some = [("slots:brief", 1), ("tokens:brief", 50), ("slots", 1)];
    check(&some, &[("tokens:brief", 90)], &expect!["void + void;"]);
    let some = [("slots", 1), ("slots:brief", 1), ("tokens", 1)];
    check(&some, &[("tokens", 0)], &expect!["void + void;"]);
}

/// COM-06
#[test]
fn com_06_a_wrong_actual_is_refused_before_anything_is_sent() {
    let refused = expect![
        "the lease has no rolling reservation of other; actuals name rolling keys of the lease's requirements"
    ];
    let reserved = [("tokens", 50), ("slots", 1)];
    check(&reserved, &[("tokens", 1), ("other", 1)], &refused);
    let refused = expect![
        "the lease has no rolling reservation of slots; actuals name rolling keys of the lease's requirements"
    ];
    check(&reserved, &[("slots", 1)], &refused);
    check(&[("tokens:brief", 50)], &[("other", 1)], &expect![""]);
}

/// Feeds the replies to a complete of 50 reserved tokens and a hold; checks each result and the
/// next chain.
fn check_replies(actual: u64, overage: Overage, replies: &[(&[TransferStatus], &Expect)]) {
    let reserved = [("slots", 1), ("tokens", 50)];
    let mut plan = planned(&reserved, &[("tokens", actual)], overage).unwrap().unwrap();
    for (statuses, expect) in replies {
        let result =
            |status: &TransferStatus| TransferResult { status: *status, timestamp: at(10) };
        let results: Vec<_> = statuses.iter().map(result).collect();
        assert_eq!(results.len(), plan.item(at(10), attempt).len(), "one result an event");
        let reply = plan.read(&results);
        let reply = match reply {
            ChainReply::ReadAccount(account) if account == limit_account(&key("tokens")) => {
                "ReadAccount".to_owned()
            }
            ChainReply::ReadAccount(_)
            | ChainReply::Done { .. }
            | ChainReply::AlreadyDone
            | ChainReply::Retry
            | ChainReply::Unexpected(_) => format!("{reply:?}"),
        };
        let uncovered: u64 = plan.uncovered().iter().map(|(_, units)| units).sum();
        expect.assert_eq(&format!("{reply}, {}, {uncovered} uncovered", chain(&plan)));
    }
}

const LEF: TransferStatus = TransferStatus::LinkedEventFailed;

/// TB-16, COM-05: any event that was already done ends the complete.
#[test]
fn com_05_what_was_done_before_is_done() {
    use TransferStatus as S;
    let before = expect!["AlreadyDone, void + void + reserve 20 for 50s;, 0 uncovered"];
    for status in [S::Exists, S::ExistsWithDifferentFlags, S::PendingTransferAlreadyVoided] {
        check_replies(20, Overage::Debt, &[(&[status, LEF, LEF], &before)]);
        check_replies(20, Overage::Debt, &[(&[LEF, status, LEF], &before)]);
        check_replies(20, Overage::Debt, &[(&[LEF, LEF, status], &before)]);
    }
    let done = expect!["Done { created_count: 3 }, void + void + reserve 20 for 50s;, 0 uncovered"];
    check_replies(20, Overage::Debt, &[(&[S::Created; 3], &done)]);
    let unexplained =
        expect!["Unexpected(LinkedEventFailed), void + void + reserve 20 for 50s;, 0 uncovered"];
    check_replies(20, Overage::Debt, &[(&[LEF; 3], &unexplained)]);
    let unknown = expect!["Unexpected(Other(99)), void + void + reserve 20 for 50s;, 0 uncovered"];
    check_replies(20, Overage::Debt, &[(&[LEF, S::Other(99), LEF], &unknown)]);
}

/// TB-16: only the ledger decides that the hold has expired and was never voided.
#[test]
fn tb_16_the_end_marker_follows_a_hold_that_has_expired() {
    use TransferStatus as S;
    let expired = expect!["Retry, end + void + reserve 20 for 50s;, 0 uncovered"];
    let other = expect!["Retry, end;, 0 uncovered"];
    let done = expect!["AlreadyDone, end;, 0 uncovered"];
    check_replies(
        20,
        Overage::Debt,
        &[
            (&[S::PendingTransferExpired, LEF, LEF], &expired),
            (&[LEF, S::PendingTransferExpired, LEF], &other),
            (&[S::Exists], &done),
        ],
    );
}

/// TB-16, COM-03: an excess without room follows the policy.
#[test]
fn com_03_an_excess_without_room_follows_the_policy() {
    use TransferStatus as S;
    for status in [S::ExceedsCredits, S::DebitAccountAlreadyClosed] {
        let debt = expect!["Retry, void + debt 7;, 7 uncovered"];
        let done = expect!["Done { created_count: 2 }, void + debt 7;, 7 uncovered"];
        check_replies(57, Overage::Debt, &[(&[LEF, status], &debt), (&[S::Created; 2], &done)]);
        let left_out = expect!["Retry, void;, 7 uncovered"];
        check_replies(57, Overage::Deny, &[(&[LEF, status], &left_out)]);
    }
}

/// TB-16, TB-07: a closed account is opened for the smaller reservation, in the same chain.
#[test]
fn tb_16_a_reservation_shrinks_on_a_closed_account_in_the_same_chain() {
    use TransferStatus as S;
    let look = expect!["ReadAccount, void + void + reserve 20 for 50s;, 0 uncovered"];
    let reserved = [("slots", 1), ("tokens", 50)];
    let mut plan = planned(&reserved, &[("tokens", 20)], Overage::Debt).unwrap().unwrap();
    check_replies(20, Overage::Debt, &[(&[LEF, LEF, S::DebitAccountAlreadyClosed], &look)]);
    let deterministic = plan.item(at(10), attempt).events()[2].transfer.id;
    let account = limit_account(&key("tokens"));
    plan.record_version(account, version(account, true));
    let opens = expect!["void + void + step + step + void + reserve 20 for 50s + close;"];
    opens.assert_eq(&chain(&plan));
    let mut answer = |at: usize, status: TransferStatus| {
        let mut results = vec![TransferResult { status: LEF, timestamp: self::at(10) }; 7];
        results[at].status = status;
        plan.read(&results)
    };
    for moved in [S::Exists, S::PendingTransferAlreadyVoided] {
        assert_eq!(answer(1, moved), ChainReply::ReadAccount(account), "another server opened it");
        assert_eq!(answer(4, moved), ChainReply::AlreadyDone, "another server completed the lease");
    }
    assert_eq!(answer(6, S::Exists), ChainReply::ReadAccount(account));
    for status in [S::PendingTransferNotFound, S::IdAlreadyFailed] {
        assert_eq!(answer(1, status), ChainReply::Retry, "closed by whoever does not know the key");
    }
    opens.assert_eq(&chain(&plan));
    let opening = plan.item(at(10), attempt).events()[1].transfer.action;
    let closing = TransferId::new(version(account, true).closing_data().get()).unwrap();
    assert_eq!(opening, Action::VoidPending { pending: closing });
    plan.record_version(account, version(account, false));
    expect!["void + void + reserve 20 for 50s;"].assert_eq(&chain(&plan));
    let fresh = plan.item(at(10), attempt).events()[2].transfer.id;
    assert_ne!(fresh, deterministic, "that one is burned");
}

/// TB-16: an earlier refused attempt has burned the ID of a smaller reservation or of an excess.
#[test]
fn tb_16_a_burned_id_is_replaced() {
    use TransferStatus as S;
    let reserved = [("slots", 1), ("tokens", 50)];
    for (actual, refused) in
        [(20, &[LEF, LEF, S::IdAlreadyFailed][..]), (57, &[LEF, S::IdAlreadyFailed])]
    {
        let mut plan = planned(&reserved, &[("tokens", actual)], Overage::Debt).unwrap().unwrap();
        let id =
            |plan: &CompletePlan| plan.item(at(10), attempt).events().last().unwrap().transfer.id;
        let (burned, tried) = (id(&plan), chain(&plan));
        let result =
            |status: &TransferStatus| TransferResult { status: *status, timestamp: at(10) };
        assert_eq!(plan.read(&refused.iter().map(result).collect::<Vec<_>>()), ChainReply::Retry);
        assert_ne!(id(&plan), burned);
        let again = plan.read(&refused.iter().map(result).collect::<Vec<_>>());
        assert_eq!(
            again,
            ChainReply::Retry,
            "a request that was sent again has burned that one too"
        );
        assert_eq!((chain(&plan), plan.uncovered().len()), (tried, 0), "the same otherwise");
    }
}

fn version(id: AccountId, closed: bool) -> Version {
    Version::of(AccountRow {
        id,
        code: AccountCode::Limit.number(),
        debits_must_not_exceed_credits: true,
        closed,
        balances: Balances { credits_posted: 100, debits_pending: 50, ..Balances::default() },
        user_data: UserData::default(),
        timestamp: at(0),
    })
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
