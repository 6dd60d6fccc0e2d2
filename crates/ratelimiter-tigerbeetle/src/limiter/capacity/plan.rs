//! Capacity changes of one account as transfers (`TB-07`).
//!
//! An account's *version* is its posted credits and debits, which only grow, and whether it is
//! closed. A version is left at most once, by a transfer whose ID depends on nothing but the
//! version: a marker leaves an open version, the void of the closing transfer leaves a closed one.
//! Transfers linked to it are therefore applied once or not at all, whichever servers compete and
//! however late a request arrives. Leaving a closed version always moves the counters, so no
//! closing transfer is ever needed twice, and any server that knows the limit's key can compute the ID of
//! the one in force. A renew at a server that does not know it finds that transfer by its user data, and
//! closes the account again with an ID that depends on the account instead of the key (`TB-18`).

use std::cmp::Ordering;
use std::fmt;
use std::num::NonZeroU128;

use ratelimiter::{Capacity, LimitKey};

use crate::ids;
use crate::ledger::{
    AccountId, AccountRow, Action, Transfer, TransferId, TransferResult, TransferStatus, UserData,
    WorkItem,
};
use crate::limiter::accounts::AccountsOf;
use crate::limiter::codes::{AccountCode, TransferCode, marker};
use crate::limiter::table::{KnownLimit, LimitAccount};

/// A limit's account at the time it was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct Version {
    row: AccountRow,
    /// The closing transfer in force, if its ID may not depend on the key.
    closing: Option<TransferId>,
}

/// Makes the IDs of one attempt unique. A refused attempt burns its IDs, so the next one needs
/// others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct Attempt {
    /// Orders the IDs.
    pub(in crate::limiter) unix_ms: u64,
    /// Unique per attempt.
    pub(in crate::limiter) nonce: NonZeroU128,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::limiter) struct AccountGoal {
    pub(in crate::limiter) key: LimitKey,
    pub(in crate::limiter) account: LimitAccount,
    pub(in crate::limiter) target: CapacityTarget,
    pub(in crate::limiter) late_requests: LateRequests,
    /// The ledger has refused the decrease, although the account had room when it was read.
    pub(in crate::limiter) was_refused: bool,
    /// The account was closed by a server that does not know the key.
    pub(in crate::limiter) is_closed_without_key: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum CapacityTarget {
    /// This capacity; if too much is in use, the account is closed until it is free.
    Set { to: Capacity },
    /// The end of a decrease that waits, if enough is free. An account that is not as the decrease left
    /// it, closed and with more capacity, stays as another server left it, which knows a newer definition.
    EndDecrease { to: Capacity },
    /// This capacity if the account is new; otherwise the account stays as another server left it,
    /// which may know a newer definition.
    Fund { to: Capacity },
    /// No target: only invalidate late requests. The limit is not defined.
    Unchanged,
}

/// Whether an earlier change may still arrive: one without an answer, or one of a process that has
/// ended. A goal is not reached while such a late request could change the account.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum LateRequests {
    None,
    Possible,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum CapacityOutcome {
    /// The account has the target capacity.
    Reached,
    /// The units are in use. The account still has the capacity `in_force`; if it is closed, it
    /// admits nothing.
    Waiting { in_force: u128 },
}

/// The next step towards a goal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum CapacityStep {
    /// Nothing is to be sent; this is the outcome.
    Done(CapacityOutcome),
    /// Send this chain; `then` is the outcome once it is applied, `is_change` whether it changes
    /// the capacity.
    Send { chain: WorkItem, then: CapacityOutcome, is_change: bool },
}

/// The result of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::limiter) enum ChangeReply {
    Applied,
    /// The units are in use.
    NoRoom,
    /// Another server has left the version, or the attempt's IDs are burned; re-read the account.
    VersionChanged,
    /// There is no such closing transfer: the ID of the one in force depends on the account instead of the key,
    /// or the other way round.
    OtherClosing,
    /// A status that the rules do not allow for.
    Unexpected(TransferStatus),
}

impl AccountGoal {
    /// The accounts to create if its account is missing.
    pub(in crate::limiter) const fn accounts(&self) -> AccountsOf<'_> {
        match self.account.ends_at {
            Some(ends_at) => AccountsOf::Period { account: self.account.id, ends_at },
            None => AccountsOf::Limit(&self.key),
        }
    }

    /// Its account, as it was read.
    pub(in crate::limiter) fn version(&self, row: AccountRow) -> Version {
        let version = Version::of(row);
        if self.is_closed_without_key { version.closed_without_key() } else { version }
    }

    /// Whether its change may arrive at any time: a new account is funded once, by whichever server,
    /// and every later change finds the account no longer new.
    pub(in crate::limiter) const fn is_harmless_late(&self) -> bool {
        matches!(self.target, CapacityTarget::Fund { .. })
    }
}

impl Version {
    pub(in crate::limiter) const fn of(row: AccountRow) -> Self {
        Self { row, closing: None }
    }

    /// The same account, closed by this transfer.
    pub(in crate::limiter) fn closed_by(self, closing: TransferId) -> Self {
        Self { closing: Some(closing), ..self }
    }

    /// The same account, closed by a server that does not know the key.
    pub(in crate::limiter) fn closed_without_key(self) -> Self {
        let closing = self.id("close", None, 0);
        self.closed_by(closing)
    }

    pub(in crate::limiter) const fn account(&self) -> AccountId {
        self.row.id
    }

    /// The user data of the closing transfer in force.
    pub(in crate::limiter) fn closing_data(&self) -> NonZeroU128 {
        NonZeroU128::new(self.id("close", None, 0).get()).expect("no transfer has the ID 0")
    }

    /// Credits minus debits.
    pub(in crate::limiter) fn capacity(&self) -> u128 {
        let balances = self.row.balances;
        let capacity = balances.credits_posted.checked_sub(balances.debits_posted);
        capacity.expect("the account's debits never exceed its credits")
    }

    /// Whether the account is as a limit needs it: with its capacity, and closed while it decreases.
    pub(in crate::limiter) fn agrees_with(&self, limit: &KnownLimit) -> bool {
        self.capacity() == u128::from(limit.registered.limit.ceiling().get())
            && self.is_closed() == limit.is_decreasing()
    }

    /// Whether the account is neither as a decrease to this capacity left it nor as its end does.
    fn is_changed_since_decrease(&self, to: Capacity) -> bool {
        match self.capacity().cmp(&u128::from(to.get())) {
            Ordering::Greater => !self.is_closed(),
            Ordering::Equal => self.is_closed(),
            Ordering::Less => true,
        }
    }

    /// Units in reservations and holds.
    pub(in crate::limiter) fn used(&self) -> u128 {
        self.row.balances.debits_pending
    }

    /// Whether its capacity was never changed.
    fn is_new(&self) -> bool {
        let balances = self.row.balances;
        balances.credits_posted == 0 && balances.debits_posted == 0 && !self.is_closed()
    }

    pub(in crate::limiter) const fn is_closed(&self) -> bool {
        self.row.closed
    }

    /// The next step towards a goal. Nothing is written for an account that has reached it, unless
    /// a late request could change the account again: leaving the version invalidates it.
    pub(in crate::limiter) fn step_to(&self, goal: &AccountGoal, attempt: Attempt) -> CapacityStep {
        let key = &goal.key;
        let done = |outcome| match goal.late_requests {
            LateRequests::None => CapacityStep::Done(outcome),
            LateRequests::Possible => {
                let chain = self.advance_version(key, attempt);
                CapacityStep::Send { chain, then: outcome, is_change: false }
            }
        };
        let waits = CapacityOutcome::Waiting { in_force: self.capacity() };
        let (to, closes) = match goal.target {
            CapacityTarget::Set { to } => (to, true),
            CapacityTarget::EndDecrease { to } if self.is_changed_since_decrease(to) => {
                return done(waits);
            }
            CapacityTarget::EndDecrease { to } => (to, false),
            CapacityTarget::Fund { to } if self.is_new() => (to, false),
            CapacityTarget::Fund { .. } => return done(CapacityOutcome::Reached),
            CapacityTarget::Unchanged => return done(CapacityOutcome::Reached),
        };
        let Some(change) = self.change(key, to, attempt) else {
            return done(CapacityOutcome::Reached);
        };
        let to = u128::from(to.get());
        let has_room = self.used() <= to && !goal.was_refused;
        if has_room || to >= self.capacity() {
            return CapacityStep::Send {
                chain: change,
                then: CapacityOutcome::Reached,
                is_change: true,
            };
        }
        if closes && !self.is_closed() {
            return CapacityStep::Send { chain: self.close(key), then: waits, is_change: false };
        }
        done(waits)
    }

    /// The transfers that bring the account to `target` and leave it open; `None` if it is already
    /// so.
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
        let key = Some(key);
        let mut chain = vec![self.leave(key)];
        if target > capacity {
            chain.push(self.credit(key, target - capacity, attempt));
        } else if target < capacity {
            chain.push(self.debit(key, capacity - target, attempt));
        } else {
            chain.extend(self.advance_counters(key, attempt));
        }
        Some(WorkItem::new().with_chain(chain))
    }

    /// The transfers that close an open account.
    pub(in crate::limiter) fn close(&self, key: &LimitKey) -> WorkItem {
        assert!(!self.is_closed(), "an account is closed once");
        WorkItem::new().with_chain([self.leave(Some(key)), self.closing(Some(key), 0)])
    }

    /// The transfers that leave this version and change nothing else: an earlier request that
    /// arrives later finds the version gone and has no effect.
    pub(in crate::limiter) fn advance_version(&self, key: &LimitKey, attempt: Attempt) -> WorkItem {
        let key = Some(key);
        let mut chain = vec![self.leave(key)];
        chain.extend(self.advance_counters(key, attempt));
        if self.is_closed() {
            chain.push(self.closing(key, 1));
        }
        WorkItem::new().with_chain(chain)
    }

    /// The transfers that reopen a closed account for `void` and `smaller`, the fourth and the
    /// fifth, and close it again: a closed account lets a reservation end, but no smaller one
    /// begin. They are a chain, or part of one. Without a key, the closing transfer must be known.
    pub(in crate::limiter) fn reopen_around(
        &self,
        key: Option<&LimitKey>,
        void: Transfer,
        smaller: Transfer,
        attempt: Attempt,
    ) -> [Transfer; 6] {
        assert!(self.is_closed(), "an open account needs no opening");
        let [credit, debit] = self.advance_counters(key, attempt);
        [self.leave(key), credit, debit, void, smaller, self.closing(key, 1)]
    }

    /// The transfer that leaves this version.
    fn leave(&self, key: Option<&LimitKey>) -> Transfer {
        match self.closing {
            _ if !self.is_closed() => marker(self.id("capacity", key, 0)),
            Some(closing) => {
                let label = format!("xfer:open:#{:032x}", closing.get());
                Transfer::void(ids::transfer_at(0, &label), closing)
            }
            None => Transfer::void(self.id("open", key, 0), self.id("close", key, 0)),
        }
    }

    /// Advances the counters without changing the capacity.
    fn advance_counters(&self, key: Option<&LimitKey>, attempt: Attempt) -> [Transfer; 2] {
        [self.credit(key, 1, attempt), self.debit(key, 1, attempt)]
    }

    fn credit(&self, key: Option<&LimitKey>, amount: u128, attempt: Attempt) -> Transfer {
        let movement =
            TransferCode::Capacity.movement(ids::operator_account(), self.row.id, amount);
        Transfer::posted(self.attempt_id("raise", key, attempt), movement)
    }

    fn debit(&self, key: Option<&LimitKey>, amount: u128, attempt: Attempt) -> Transfer {
        let movement =
            TransferCode::Capacity.movement(self.row.id, ids::operator_account(), amount);
        Transfer::posted(self.attempt_id("lower", key, attempt), movement)
    }

    /// The transfer that closes the account at this version, or at the one `steps` later. Its user data
    /// does not depend on the key, so that every server finds it.
    fn closing(&self, key: Option<&LimitKey>, steps: u128) -> Transfer {
        let movement = TransferCode::Closing.movement(self.row.id, ids::operator_account(), 0);
        let action =
            Action::Pending { movement, timeout_seconds: None, closes_debit_account: true };
        let data_128 = self.id("close", None, steps).get();
        let user_data = UserData { data_128, ..UserData::default() };
        Transfer { id: self.id("close", key, steps), action, user_data }
    }

    fn id(&self, verb: &str, key: Option<&LimitKey>, steps: u128) -> TransferId {
        let (credits, debits) =
            (self.row.balances.credits_posted + steps, self.row.balances.debits_posted + steps);
        // All periods of one limit begin with the same counters.
        let is_period = self.row.code == AccountCode::Period.number();
        let label = match key.filter(|_| !is_period) {
            Some(key) => format!("xfer:{verb}:{credits}:{debits}:{key}"),
            None => {
                let account = self.row.id.get();
                format!("xfer:period-{verb}:{credits}:{debits}:{account:032x}")
            }
        };
        ids::transfer_at(0, &label)
    }

    fn attempt_id(&self, verb: &str, key: Option<&LimitKey>, attempt: Attempt) -> TransferId {
        let Attempt { unix_ms, nonce } = attempt;
        let label = match key {
            Some(key) => format!("xfer:{verb}:{nonce:032x}:{key}"),
            None => format!("xfer:{verb}:{nonce:032x}:#{:032x}", self.row.id.get()),
        };
        ids::transfer_at(unix_ms, &label)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (capacity, used) = (self.capacity(), self.used());
        let state = if self.is_closed() { "closed" } else { "open" };
        write!(f, "{capacity} of which {used} are used, {state}")
    }
}

/// Reads the answer to a chain of [`Version`].
pub(in crate::limiter) fn read(results: &[TransferResult]) -> ChangeReply {
    let Some((event, status)) = TransferResult::first_refusal(results) else {
        return ChangeReply::Applied;
    };
    if event == 0 && no_such_closing(status) {
        return ChangeReply::OtherClosing;
    }
    let has_moved = matches!(
        status,
        TransferStatus::PendingTransferAlreadyVoided
            | TransferStatus::DebitAccountAlreadyClosed
            | TransferStatus::CreditAccountAlreadyClosed
    );
    // A request that is sent again after an eviction may have been refused before, without an
    // answer.
    let refused_before = status == TransferStatus::IdAlreadyFailed;
    if status.exists() || has_moved || refused_before {
        return ChangeReply::VersionChanged;
    }
    if status == TransferStatus::ExceedsCredits {
        return ChangeReply::NoRoom;
    }
    ChangeReply::Unexpected(status)
}

/// The status of the void of a closing transfer that does not exist; from the second attempt on, of any
/// server, the void's ID is burned.
pub(in crate::limiter) fn no_such_closing(status: TransferStatus) -> bool {
    matches!(status, TransferStatus::PendingTransferNotFound | TransferStatus::IdAlreadyFailed)
}

#[cfg(test)]
mod tests;
