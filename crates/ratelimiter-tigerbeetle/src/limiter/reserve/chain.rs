//! One lease as one chain of pending transfers, and what TigerBeetle's answer to it means.

use std::num::NonZeroU32;

use ratelimiter::{LeaseId, LimitKind};

use crate::ids::{self, LeaseTransfers, TransferRole};
use crate::ledger::{Action, Movement, Transfer, TransferResult, TransferStatus, WorkItem};
use crate::limiter::codes::{Tenure, TransferCode, user_data};
use crate::limiter::table::Need;

/// What the answer to a chain means (`TB-05`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reply {
    /// All of it is reserved.
    Allowed,
    /// This event had no room.
    NoRoom {
        /// Which one of the chain.
        at: usize,
    },
    /// The lease was denied before, because of this event.
    DeniedBefore {
        /// Which one of the chain.
        at: usize,
    },
    /// This event's account is closed while its capacity is on its way down.
    Decreasing {
        /// Which one of the chain.
        at: usize,
    },
    /// The lease is there already: it has to be read back.
    Known,
    /// Nothing that the rules foresee.
    Unexpected(TransferStatus),
}

/// Adds the chain that reserves all that a lease needs. The needs are sorted by key (`TB-02`).
pub(super) fn push(item: &mut WorkItem, lease: LeaseId, needs: &[Need]) {
    let sorted = needs.is_sorted_by(|a, b| a.limit.key() < b.limit.key());
    assert!(sorted, "a replay in another order must make the same chain");
    let operator = ids::operator_account();
    let transfers = LeaseTransfers::new(TransferRole::Reserve, lease);
    let reservation = |need: &Need| {
        let kind = need.limit.registered.limit.kind;
        Transfer {
            id: transfers.on(need.limit.key()),
            action: Action::Pending {
                movement: Movement {
                    debit: need.limit.account,
                    credit: operator,
                    amount: need.amount.into(),
                    code: TransferCode::Reservation.number(),
                },
                timeout_seconds: Some(lifetime(kind)),
                closes_debit_account: false,
            },
            user_data: user_data(lease, Some(Tenure::of(kind))),
        }
    };
    item.push_chain(needs.iter().map(reservation));
}

fn lifetime(kind: LimitKind) -> NonZeroU32 {
    NonZeroU32::new(kind.lifetime_seconds()).expect("a window or timeout is at least a second")
}

/// Reads the answer. In a chain that failed one event says why; the others only say that they
/// failed with it.
pub(super) fn read(results: &[TransferResult]) -> Reply {
    let quiet = [TransferStatus::Created, TransferStatus::LinkedEventFailed];
    let Some(at) = results.iter().position(|result| !quiet.contains(&result.status)) else {
        let created = results.iter().all(|result| result.status == TransferStatus::Created);
        let unsaid = Reply::Unexpected(TransferStatus::LinkedEventFailed);
        return if created { Reply::Allowed } else { unsaid };
    };
    let status = results[at].status;
    if status.exists() {
        return Reply::Known;
    }
    if status == TransferStatus::ExceedsCredits {
        return Reply::NoRoom { at };
    }
    if status == TransferStatus::IdAlreadyFailed {
        return Reply::DeniedBefore { at };
    }
    if status == TransferStatus::DebitAccountAlreadyClosed {
        return Reply::Decreasing { at };
    }
    Reply::Unexpected(status)
}

#[cfg(test)]
mod tests {
    use ratelimiter::clock::Timestamp;

    use super::*;
    use TransferStatus as S;

    fn check(statuses: &[TransferStatus], expected: Reply) {
        let timestamp = Timestamp::from_unix_ms(1);
        let result = |&status: &TransferStatus| TransferResult { status, timestamp };
        let results: Vec<_> = statuses.iter().map(result).collect();
        assert_eq!(read(&results), expected, "{statuses:?}");
    }

    /// TB-05
    #[test]
    fn tb_05_every_answer_of_a_live_server_is_read() {
        const LEF: TransferStatus = S::LinkedEventFailed;
        check(&[S::Created], Reply::Allowed);
        check(&[S::Created, S::Created, S::Created], Reply::Allowed);
        check(&[LEF, LEF, S::ExceedsCredits, LEF], Reply::NoRoom { at: 2 });
        check(&[LEF, LEF, S::IdAlreadyFailed, LEF], Reply::DeniedBefore { at: 2 });
        check(&[S::DebitAccountAlreadyClosed, LEF], Reply::Decreasing { at: 0 });
        check(&[S::Exists, LEF, LEF, LEF], Reply::Known);
        check(&[LEF, S::ExistsWithDifferentAmount], Reply::Known);
        check(&[S::ExistsWithDifferentTimeout], Reply::Known);
        check(&[S::ExistsWithDifferentFlags], Reply::Known);
        check(&[LEF, S::DebitAccountNotFound], Reply::Unexpected(S::DebitAccountNotFound));
        check(&[S::Other(99)], Reply::Unexpected(S::Other(99)));
        check(&[LEF, LEF], Reply::Unexpected(LEF));
    }
}
