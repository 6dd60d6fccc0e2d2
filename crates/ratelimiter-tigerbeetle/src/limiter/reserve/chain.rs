//! A lease as one chain of pending transfers.

use std::num::NonZeroU32;

use ratelimiter::{LeaseId, LimitKind};

use crate::ids::{self, LeaseTransfers, TransferRole};
use crate::ledger::{Transfer, TransferId, TransferResult, TransferStatus, WorkItem};
use crate::limiter::cluster_time::{always_refused, id_probe};
use crate::limiter::codes::{
    ReservationKind, TransferCode, gate, period_data, returnable_data, user_data,
};
use crate::limiter::table::ResolvedRequirement;

/// Why a chain reserved nothing (`TB-05`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    /// The event with this index had no room.
    NoRoom { at: usize },
    /// The lease was denied before, because of this event.
    DeniedBefore { at: usize },
    /// This event's account is closed for a decrease.
    Decreasing { at: usize },
    /// The lease exists: it has to be read.
    Known,
    /// A status that the rules do not allow for.
    Unexpected(TransferStatus),
}

/// Adds the chain of a lease. The requirements are sorted by key (`TB-02`).
pub(super) fn push(item: &mut WorkItem, lease: LeaseId, requirements: &[ResolvedRequirement]) {
    let sorted = requirements.is_sorted_by(|a, b| a.limit.key() < b.limit.key());
    assert!(sorted, "a replay in another order must make the same chain");
    let transfers = LeaseTransfers::new(TransferRole::Reserve, lease);
    item.push_chain(reservations(&transfers, lease, requirements));
}

/// The chain of a lease, which its server `may_return` before its caller is told (`TB-17`).
pub(super) fn first(
    lease: LeaseId,
    requirements: &[ResolvedRequirement],
    may_return: bool,
) -> WorkItem {
    let mut chain = WorkItem::new();
    push(&mut chain, lease, requirements);
    if !may_return {
        return chain;
    }
    let reservations = chain.events().iter().map(|event| event.transfer);
    WorkItem::new().with_chain(
        reservations.map(|transfer| transfer.with_user_data(returnable_data(transfer.user_data))),
    )
}

/// The chain of an attempt that is not the first: the gate, then the reservations (`TB-17`).
pub(super) fn attempt(
    server: u64,
    number: NonZeroU32,
    lease: LeaseId,
    requirements: &[ResolvedRequirement],
) -> WorkItem {
    let transfers = LeaseTransfers::at(number, lease);
    let reservations = reservations(&transfers, lease, requirements);
    WorkItem::new().with_chain([gate(lease, server)].into_iter().chain(reservations))
}

fn reservations<'a>(
    transfers: &'a LeaseTransfers,
    lease: LeaseId,
    requirements: &'a [ResolvedRequirement],
) -> impl Iterator<Item = Transfer> + 'a {
    let operator = ids::operator_account();
    requirements.iter().map(move |requirement| {
        let kind = requirement.limit.registered.limit.kind;
        let (account, amount) = (requirement.limit.account, requirement.amount.into());
        let movement = TransferCode::Reservation.movement(account.id, operator, amount);
        let id = transfers.on(requirement.limit.key());
        match account.ends_at {
            Some(ends_at) => {
                Transfer::lasting(id, movement).with_user_data(period_data(lease, ends_at))
            }
            None => Transfer::pending(id, movement, lifetime(kind))
                .with_user_data(user_data(lease, Some(ReservationKind::of(kind)))),
        }
    })
}

/// The chain of a lease that fails in any case, so that it reserves nothing: it tells whether there is
/// room. Without room it burns the same ID as the lease's own chain.
pub(super) fn trial(lease: LeaseId, requirements: &[ResolvedRequirement]) -> WorkItem {
    let chain = first(lease, requirements, false);
    let events = chain.events().iter().map(|event| event.transfer);
    WorkItem::new().with_chain(events.chain([always_refused()]))
}

/// Interprets the reply to a trial; `None` if there is room.
pub(super) fn read_trial(results: &[TransferResult]) -> Option<Refusal> {
    let last = results.len() - 1;
    match TransferResult::first_refusal(results) {
        Some((at, TransferStatus::AccountsMustBeDifferent)) if at == last => None,
        _ => read(results).err(),
    }
}

/// Checks whether the IDs of a lease's first chain are taken or burned, with one event per
/// requirement, and changes nothing.
pub(super) fn probe(lease: LeaseId, requirements: &[ResolvedRequirement]) -> WorkItem {
    let ids = reserve_ids(lease, requirements);
    ids.map(id_probe).fold(WorkItem::new(), WorkItem::with)
}

/// As a probe, and burns these IDs: the lease's first chain is never admitted from then on. The
/// transfer that each voids is never created.
pub(super) fn burn(lease: LeaseId, requirements: &[ResolvedRequirement]) -> WorkItem {
    let none = ids::never_created(lease);
    let ids = reserve_ids(lease, requirements);
    ids.map(|id| Transfer::void(id, none)).fold(WorkItem::new(), WorkItem::with)
}

fn reserve_ids(
    lease: LeaseId,
    requirements: &[ResolvedRequirement],
) -> impl Iterator<Item = TransferId> {
    let transfers = LeaseTransfers::new(TransferRole::Reserve, lease);
    requirements.iter().map(move |requirement| transfers.on(requirement.limit.key()))
}

/// Interprets the reply to a probe or burn; `None` if this lease was neither allowed nor denied
/// before with these limits.
pub(super) fn read_probe(results: &[TransferResult]) -> Option<Refusal> {
    let mut seen = None;
    for (at, TransferResult { status, .. }) in results.iter().enumerate() {
        if status.exists() {
            return Some(Refusal::Known);
        }
        if *status == TransferStatus::IdAlreadyFailed {
            seen = seen.or(Some(Refusal::DeniedBefore { at }));
        } else if !matches!(
            status,
            TransferStatus::AccountsMustBeDifferent | TransferStatus::PendingTransferNotFound
        ) {
            return Some(Refusal::Unexpected(*status));
        }
    }
    seen
}

fn lifetime(kind: LimitKind) -> NonZeroU32 {
    kind.lifetime_seconds()
        .and_then(NonZeroU32::new)
        .expect("a window or timeout is at least a second")
}

/// Interprets the reply.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other status is unexpected")]
pub(super) fn read(results: &[TransferResult]) -> Result<(), Refusal> {
    let Some((at, status)) = TransferResult::first_refusal(results) else {
        return Ok(());
    };
    Err(match status {
        status if status.exists() => Refusal::Known,
        TransferStatus::ExceedsCredits => Refusal::NoRoom { at },
        TransferStatus::IdAlreadyFailed => Refusal::DeniedBefore { at },
        TransferStatus::DebitAccountAlreadyClosed => Refusal::Decreasing { at },
        status => Refusal::Unexpected(status),
    })
}

#[cfg(test)]
mod tests {
    use ratelimiter::clock::Timestamp;

    use super::*;
    use TransferStatus as S;

    fn check(statuses: &[TransferStatus], expected: Result<(), Refusal>) {
        let timestamp = Timestamp::from_unix_ms(1);
        let result = |&status: &TransferStatus| TransferResult { status, timestamp };
        let results: Vec<_> = statuses.iter().map(result).collect();
        assert_eq!(read(&results), expected, "{statuses:?}");
    }

    /// TB-05
    #[test]
    fn tb_05_every_answer_of_a_live_server_is_read() {
        const LEF: TransferStatus = S::LinkedEventFailed;
        check(&[S::Created], Ok(()));
        check(&[S::Created, S::Created, S::Created], Ok(()));
        check(&[LEF, LEF, S::ExceedsCredits, LEF], Err(Refusal::NoRoom { at: 2 }));
        check(&[LEF, LEF, S::IdAlreadyFailed, LEF], Err(Refusal::DeniedBefore { at: 2 }));
        check(&[S::DebitAccountAlreadyClosed, LEF], Err(Refusal::Decreasing { at: 0 }));
        check(&[S::Exists, LEF, LEF, LEF], Err(Refusal::Known));
        check(&[LEF, S::ExistsWithDifferentAmount], Err(Refusal::Known));
        check(&[S::ExistsWithDifferentTimeout], Err(Refusal::Known));
        check(&[S::ExistsWithDifferentFlags], Err(Refusal::Known));
        check(&[LEF, S::DebitAccountNotFound], Err(Refusal::Unexpected(S::DebitAccountNotFound)));
        check(&[S::Other(99)], Err(Refusal::Unexpected(S::Other(99))));
        check(&[LEF, LEF], Err(Refusal::Unexpected(LEF)));
    }

    /// RES-06
    #[test]
    fn res_06_a_probe_tells_an_allowed_lease_from_a_denied_and_a_new_one() {
        const FREE: TransferStatus = S::AccountsMustBeDifferent;
        let timestamp = Timestamp::from_unix_ms(1);
        for (statuses, expected) in [
            (vec![FREE, FREE], None),
            (vec![FREE, S::IdAlreadyFailed, FREE], Some(Refusal::DeniedBefore { at: 1 })),
            (vec![S::ExistsWithDifferentFlags, S::Exists], Some(Refusal::Known)),
            (vec![S::IdAlreadyFailed, S::ExistsWithDifferentFlags], Some(Refusal::Known)),
            (vec![S::PendingTransferNotFound, FREE], None),
            (vec![FREE, S::Other(99)], Some(Refusal::Unexpected(S::Other(99)))),
        ] {
            let result = |&status: &TransferStatus| TransferResult { status, timestamp };
            let results: Vec<_> = statuses.iter().map(result).collect();
            assert_eq!(read_probe(&results), expected, "{statuses:?}");
        }
    }
}
