//! How a limit's account gets from one capacity to another (`TB-07`).
//!
//! An account is at a *version*: its posted credits and debits, which only grow, and whether it is
//! closed. Each version is left once, and the transfer that leaves it has an ID made of nothing but
//! the version: a marker that leaves an open one, the void of the closing transfer that leaves a
//! closed one. Whatever is linked to that transfer happens once or not at all, whoever else asks at
//! the same time and however late a request arrives. Since leaving a closed version always moves
//! the counters, no closing transfer is ever needed twice, and any server can name the one in force.

use std::fmt;
use std::num::NonZeroU128;

use ratelimiter::{Capacity, LimitKey};

use crate::ids;
use crate::ledger::{
    AccountRow, Action, Movement, Transfer, TransferId, TransferResult, TransferStatus, UserData,
    WorkItem,
};
use crate::limiter::codes::TransferCode;

/// A limit's account as it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct Version {
    row: AccountRow,
}

/// What makes the transfers of one attempt its own. An attempt that is refused burns its ID, so the
/// next one needs another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct Attempt {
    /// For the order of IDs.
    pub(in crate::limiter) unix_ms: u64,
    /// Never the same twice.
    pub(in crate::limiter) nonce: NonZeroU128,
}

/// What an account shall come to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct Goal {
    pub(in crate::limiter) key: LimitKey,
    pub(in crate::limiter) aim: Aim,
    pub(in crate::limiter) stragglers: Stragglers,
    /// The ledger has refused the decrease, although a look had shown room.
    pub(in crate::limiter) was_refused: bool,
}

/// How far to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum Aim {
    /// To this capacity; where it is in use, the account is closed until it is free.
    Bring { to: Capacity },
    /// To this capacity, if it is free; otherwise the account stays as it is.
    Finish { to: Capacity },
    /// Nowhere; only stragglers are shut out. The limit is not defined.
    Guard,
}

/// Whether a change of before may still arrive: one without an answer, or one of a process that is
/// gone. An account is not settled while it could be changed by such a straggler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum Stragglers {
    None,
    Possible,
}

/// What came of bringing an account to a capacity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum Settled {
    /// It has the capacity.
    There,
    /// The units are in use. The account has this capacity, and admits nothing where it was closed.
    Waits { in_force: u128 },
}

/// What is to be done about a goal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum Step {
    /// Nothing: this is what it has come to.
    Settled(Settled),
    /// This chain; what it has come to once that is applied, and whether it changes the capacity.
    Send { chain: WorkItem, then: Settled, is_change: bool },
}

/// What became of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum ChangeReply {
    /// It is done.
    Applied,
    /// The units are in use.
    NoRoom,
    /// Somebody else has left the version, or the attempt is used up; it has to be read again.
    Moved,
    /// Nothing that the rules foresee.
    Unexpected(TransferStatus),
}

impl Version {
    pub(in crate::limiter) const fn of(row: AccountRow) -> Self {
        Self { row }
    }

    /// What the account was given, less what was taken back.
    pub(in crate::limiter) fn capacity(&self) -> u128 {
        let balances = self.row.balances;
        let capacity = balances.credits_posted.checked_sub(balances.debits_posted);
        capacity.expect("the account's debits never exceed its credits")
    }

    /// Units in reservations and holds.
    pub(in crate::limiter) fn used(&self) -> u128 {
        self.row.balances.debits_pending
    }

    pub(in crate::limiter) const fn is_closed(&self) -> bool {
        self.row.closed
    }

    /// The next step to a goal. Nothing is written for an account that is where it shall be, unless
    /// a straggler could take it away from there: what leaves the version lets none through.
    pub(in crate::limiter) fn step_to(&self, goal: &Goal, attempt: Attempt) -> Step {
        let key = &goal.key;
        let settle = |settled| match goal.stragglers {
            Stragglers::None => Step::Settled(settled),
            Stragglers::Possible => {
                let chain = self.supersede(key, attempt);
                Step::Send { chain, then: settled, is_change: false }
            }
        };
        let (to, closes) = match goal.aim {
            Aim::Bring { to } => (to, true),
            Aim::Finish { to } => (to, false),
            Aim::Guard => return settle(Settled::There),
        };
        let Some(change) = self.change(key, to, attempt) else {
            return settle(Settled::There);
        };
        let to = u128::from(to.get());
        let has_room = self.used() <= to && !goal.was_refused;
        if has_room || to >= self.capacity() {
            return Step::Send { chain: change, then: Settled::There, is_change: true };
        }
        let waits = Settled::Waits { in_force: self.capacity() };
        if closes && !self.is_closed() {
            return Step::Send { chain: self.close(key), then: waits, is_change: false };
        }
        settle(waits)
    }

    /// The transfers that bring the account to `target` and leave it open; `None` if it is there.
    pub(in crate::limiter) fn change(
        &self,
        key: &LimitKey,
        target: Capacity,
        attempt: Attempt,
    ) -> Option<WorkItem> {
        let (capacity, target) = (self.capacity(), u128::from(target.get()));
        if capacity == target && !self.is_closed() {
            return None;
        }
        let mut chain = vec![self.leave(key)];
        if target > capacity {
            chain.push(self.credit(key, target - capacity, attempt));
        } else if target < capacity {
            chain.push(self.debit(key, capacity - target, attempt));
        } else {
            chain.extend(self.step(key, attempt));
        }
        Some(WorkItem::new().with_chain(chain))
    }

    /// The transfers that close an open account.
    pub(in crate::limiter) fn close(&self, key: &LimitKey) -> WorkItem {
        assert!(!self.is_closed(), "an account is closed once");
        let closing = self.closing(self.closing_id(key, 0));
        WorkItem::new().with_chain([self.leave(key), closing])
    }

    /// The transfers that leave this version and change nothing else: a request of before that may
    /// still arrive has nothing left to leave, and so does nothing.
    pub(in crate::limiter) fn supersede(&self, key: &LimitKey, attempt: Attempt) -> WorkItem {
        let mut chain = vec![self.leave(key)];
        chain.extend(self.step(key, attempt));
        if self.is_closed() {
            chain.push(self.closing(self.closing_id(key, 1)));
        }
        WorkItem::new().with_chain(chain)
    }

    /// The transfers that open a closed account for two others, the fourth and the fifth, and close it
    /// again: a closed account lets a reservation end, but no smaller one begin. They are one chain,
    /// or a part of one.
    pub(in crate::limiter) fn while_open(
        &self,
        key: &LimitKey,
        void: Transfer,
        smaller: Transfer,
        attempt: Attempt,
    ) -> [Transfer; 6] {
        assert!(self.is_closed(), "an open account needs no opening");
        let [credit, debit] = self.step(key, attempt);
        let closing = self.closing(self.closing_id(key, 1));
        [self.leave(key), credit, debit, void, smaller, closing]
    }

    /// The one transfer that leaves this version.
    fn leave(&self, key: &LimitKey) -> Transfer {
        if self.is_closed() {
            let pending = self.closing_id(key, 0);
            return transfer(self.id("open", key, 0), Action::VoidPending { pending });
        }
        let movement = Movement {
            debit: ids::operator_account(),
            credit: ids::marker_account(),
            amount: 0,
            code: TransferCode::Marker.number(),
        };
        transfer(self.id("capacity", key, 0), Action::Posted(movement))
    }

    /// Moves the counters and leaves the capacity as it is.
    fn step(&self, key: &LimitKey, attempt: Attempt) -> [Transfer; 2] {
        [self.credit(key, 1, attempt), self.debit(key, 1, attempt)]
    }

    fn credit(&self, key: &LimitKey, amount: u128, attempt: Attempt) -> Transfer {
        let (debit, credit) = (ids::operator_account(), self.row.id);
        let code = TransferCode::Capacity.number();
        let movement = Movement { debit, credit, amount, code };
        transfer(attempt.id("raise", key), Action::Posted(movement))
    }

    fn debit(&self, key: &LimitKey, amount: u128, attempt: Attempt) -> Transfer {
        let (debit, credit) = (self.row.id, ids::operator_account());
        let code = TransferCode::Capacity.number();
        let movement = Movement { debit, credit, amount, code };
        transfer(attempt.id("lower", key), Action::Posted(movement))
    }

    fn closing(&self, id: TransferId) -> Transfer {
        let movement = Movement {
            debit: self.row.id,
            credit: ids::operator_account(),
            amount: 0,
            code: TransferCode::Closing.number(),
        };
        let action =
            Action::Pending { movement, timeout_seconds: None, closes_debit_account: true };
        transfer(id, action)
    }

    /// The closing transfer of this version, or of the one `steps` later.
    fn closing_id(&self, key: &LimitKey, steps: u128) -> TransferId {
        self.id("close", key, steps)
    }

    fn id(&self, verb: &str, key: &LimitKey, steps: u128) -> TransferId {
        let (credits, debits) =
            (self.row.balances.credits_posted + steps, self.row.balances.debits_posted + steps);
        ids::transfer_at(0, &format!("xfer:{verb}:{credits}:{debits}:{key}"))
    }
}

impl Attempt {
    fn id(self, verb: &str, key: &LimitKey) -> TransferId {
        ids::transfer_at(self.unix_ms, &format!("xfer:{verb}:{:032x}:{key}", self.nonce))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, used) = (self.capacity(), self.used());
        let state = if self.is_closed() { "closed" } else { "open" };
        write!(f, "{capacity} of which {used} are used, {state}")
    }
}

fn transfer(id: TransferId, action: Action) -> Transfer {
    Transfer { id, action, user_data: UserData::default() }
}

/// Reads the answer to a chain of [`Version`].
pub(in crate::limiter) fn read(results: &[TransferResult]) -> ChangeReply {
    let quiet = [TransferStatus::Created, TransferStatus::LinkedEventFailed];
    let statuses = || results.iter().map(|result| result.status);
    let Some(status) = statuses().find(|status| !quiet.contains(status)) else {
        let applied = statuses().all(|status| status == TransferStatus::Created);
        let unsaid = ChangeReply::Unexpected(TransferStatus::LinkedEventFailed);
        return if applied { ChangeReply::Applied } else { unsaid };
    };
    let closed_meanwhile = matches!(
        status,
        TransferStatus::DebitAccountAlreadyClosed | TransferStatus::CreditAccountAlreadyClosed
    );
    // A request that is sent again after an eviction may have been refused before, unheard.
    let refused_before = status == TransferStatus::IdAlreadyFailed;
    if status.exists() || closed_meanwhile || refused_before {
        return ChangeReply::Moved;
    }
    if status == TransferStatus::ExceedsCredits {
        return ChangeReply::NoRoom;
    }
    ChangeReply::Unexpected(status)
}

#[cfg(test)]
mod tests;
