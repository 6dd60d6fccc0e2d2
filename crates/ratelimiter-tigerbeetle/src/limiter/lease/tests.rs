use std::num::NonZeroU32;

use super::*;
use crate::ledger::{RowKind, UserData};
use crate::limiter::codes::{gate, reading, renewal_data, returnable_data, user_data, withdrawal};
use crate::limiter::renewed_lease::{DeniedBy, RenewOutcome};

const LEASE: LeaseId = LeaseId::from_u128(0x0156_3E3A_B5D3_D676_4C61_EFB9_9302_BD5B);
const SERVER: u64 = 9;

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix_nanos(second * 1_000_000_000)
}

fn id(number: u128) -> TransferId {
    TransferId::new(number).unwrap()
}

fn row(id: TransferId, code: TransferCode, kind: RowKind, user_data: UserData) -> TransferRow {
    TransferRow {
        id,
        debit: ids::operator_account(),
        credit: ids::marker_account(),
        amount: 1,
        code: code.number(),
        kind,
        linked: true,
        user_data,
        timestamp: at(20),
    }
}

fn pending(number: u128, code: TransferCode, user_data: UserData) -> TransferRow {
    let timeout_seconds = NonZeroU32::new(60);
    let kind = RowKind::Pending { timeout_seconds, closes_debit_account: false };
    row(id(number), code, kind, user_data)
}

fn hold(number: u128) -> TransferRow {
    pending(number, TransferCode::Reservation, user_data(LEASE, Some(ReservationKind::Hold)))
}

fn renewal(number: u128, place: usize) -> TransferRow {
    let user_data = renewal_data(LEASE, ReservationKind::Hold, place, 0);
    pending(number, TransferCode::Renewal, user_data)
}

/// The void of a transfer, from which it inherits.
fn void(number: u128, of: &TransferRow) -> TransferRow {
    let kind = RowKind::VoidPending { pending: of.id };
    TransferRow { id: id(number), kind, ..*of }
}

fn withdrawn(of: &TransferRow) -> TransferRow {
    let void = withdrawal(LEASE, of.id);
    let kind = RowKind::VoidPending { pending: of.id };
    TransferRow { id: void.id, kind, user_data: void.user_data, ..*of }
}

fn admitted() -> TransferRow {
    let gate = gate(LEASE, SERVER);
    row(gate.id, TransferCode::Gate, RowKind::Posted, gate.user_data)
}

fn read() -> TransferRow {
    let read = reading(LEASE);
    row(read.id, TransferCode::Gate, RowKind::Posted, read.user_data)
}

fn record(number: u64, outcome: RenewOutcome) -> TransferRow {
    let data = user_data(LEASE, None);
    let user_data = UserData { data_64: number, data_32: outcome.number(), ..data };
    let id = id(1_000 + u128::from(number));
    row(id, TransferCode::RenewRecord, RowKind::Posted, user_data)
}

fn renewed(number: u64) -> TransferRow {
    record(number, RenewOutcome::Renewed)
}

/// The claim, the reservations, and what is held of each place.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    claim: Claim,
    reservations: Vec<u128>,
    parts: Vec<(usize, u128)>,
}

fn seen(claim: Claim, reservations: &[u128], parts: &[(usize, u128)]) -> Option<Seen> {
    Some(Seen { claim, reservations: reservations.to_vec(), parts: parts.to_vec() })
}

/// `None` if the lease is not open.
fn look(rows: &[TransferRow]) -> Option<Seen> {
    let LeaseLookup::Open(lease) = LeaseLookup::from_rows(LEASE, rows) else {
        return None;
    };
    Some(Seen {
        claim: lease.claim,
        reservations: lease.reservations.iter().map(|held| held.transfer.get()).collect(),
        parts: lease.parts().iter().map(|part| (part.at, part.held.transfer.get())).collect(),
    })
}

const RETURNABLE: Claim = Claim::Returnable { by: Some(SERVER) };

/// TB-17, TB-18
#[test]
fn tb_18_whoever_renews_a_lease_keeps_it() {
    let denied = record(1, RenewOutcome::Denied { by: DeniedBy::NoRoom, at: 0 });
    let waited = [admitted(), hold(1)];
    assert_eq!(look(&waited), seen(RETURNABLE, &[1], &[(0, 1)]));
    let kept = seen(Claim::Kept, &[1], &[(0, 1)]);
    assert_eq!(look(&[waited[0], waited[1], read()]), kept);
    assert_eq!(look(&[waited[0], waited[1], denied]), kept);
    assert_eq!(look(&[waited[0], waited[1], renewed(1)]), kept);
    let rows = [waited[0], waited[1], renewed(1), void(2, &waited[1]), renewal(3, 0), read()];
    assert_eq!(look(&rows), seen(Claim::Kept, &[1], &[(0, 3)]));

    let marked = TransferRow { user_data: returnable_data(hold(1).user_data), ..hold(1) };
    assert_eq!(look(&[marked]), seen(Claim::Returnable { by: None }, &[1], &[(0, 1)]));
    let rows = [marked, renewed(1), void(2, &marked), renewal(3, 0)];
    assert_eq!(look(&rows), seen(Claim::Kept, &[1], &[(0, 3)]));
}

/// TB-17, TB-18: the place of a limit has the bits that mark other transfers.
#[test]
fn tb_18_a_place_is_no_mark() {
    for place in [1, 2, 3] {
        let (hold, first, second) = (hold(1), renewal(3, place), renewal(5, place));
        assert_eq!(withdrawn_by(&void(4, &first)), None, "{place}");
        assert!(!may_return(&first), "{place}");
        let rows = [hold, renewed(1), first, renewed(2), void(4, &first), second];
        assert_eq!(look(&rows), seen(Claim::Kept, &[1], &[(0, 1), (place, 5)]));
    }
}

/// TB-17, TB-18: an attempt of another server, with other requirements, comes after a renew.
#[test]
fn tb_18_a_renewed_lease_is_open_beside_an_attempt_that_is_withdrawn() {
    let (own, other) = (hold(1), hold(7));
    let rows = [own, renewed(1), void(2, &own), renewal(3, 0), admitted(), other];
    let both = seen(Claim::Kept, &[1, 7], &[(1, 7), (0, 3)]);
    assert_eq!(look(&rows), both, "whoever looks now finds a conflict");
    let rows =
        [own, renewed(1), void(2, &own), renewal(3, 0), admitted(), other, withdrawn(&other)];
    assert_eq!(look(&rows), seen(Claim::Kept, &[1], &[(0, 3)]));
    assert_eq!(
        look(&[own, admitted(), other, withdrawn(&other), renewed(1)]).unwrap().parts,
        [(0, 1)]
    );
}

/// TB-16, TB-17, TB-18
#[test]
fn tb_18_a_lease_that_ended_is_told_from_one_that_was_denied() {
    let (hold, denied) = (hold(1), [admitted()]);
    let end = row(id(8), TransferCode::Marker, RowKind::Posted, user_data(LEASE, None));
    assert_eq!(LeaseLookup::from_rows(LEASE, &[]), LeaseLookup::Unknown);
    assert_eq!(LeaseLookup::from_rows(LEASE, &denied), LeaseLookup::Denied);
    for rows in [
        vec![admitted(), hold, void(2, &hold)],
        vec![admitted(), hold, read(), end, void(2, &hold)],
        vec![
            admitted(),
            hold,
            renewed(1),
            void(2, &hold),
            renewal(3, 0),
            end,
            void(4, &renewal(3, 0)),
        ],
    ] {
        assert_eq!(LeaseLookup::from_rows(LEASE, &rows), LeaseLookup::Completed, "{rows:?}");
    }
}
