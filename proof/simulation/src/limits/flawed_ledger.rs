//! Ledgers with a deliberate bug.

#![expect(clippy::wildcard_enum_match_arm, reason = "a bug is about one thing alone")]

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, Action, Event, Ledger, LedgerError, NewAccount, Transfer,
    TransferId, TransferQuery, TransferResult, TransferRow, TransferStatus, WorkItem,
};

use crate::flaw::Flaw;

/// The code of a lease's reservation, of its re-reservation, of debt, of a change of capacity, and of a marker; they are
/// on disk in every cluster and never change.
const RESERVATION: u16 = 1;
const RERESERVATION: u16 = 2;
const DEBT: u16 = 3;
const CAPACITY: u16 = 4;
const MARKER: u16 = 6;
const RENEWAL: u16 = 11;
const RENEW_RECORD: u16 = 12;

/// A ledger with a bug around it, or none.
pub(super) struct FlawedLedger<L> {
    below: L,
    flaw: Option<Flaw>,
    /// For IDs that never were.
    number: AtomicU64,
}

impl<L: Ledger> FlawedLedger<L> {
    pub(super) fn new(below: L, flaw: Option<Flaw>) -> Self {
        Self { below, flaw, number: AtomicU64::new(0) }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }

    fn new_id(&self, like: TransferId) -> TransferId {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        ids::transfer_at(0, &format!("flaw:{number}:{}", like.get()))
    }

    /// Misreads what the ledger says of a complete's marker.
    fn misread_marker(&self, results: &mut [TransferResult]) {
        let [marker, others @ ..] = results else {
            return;
        };
        let is_done = |status: TransferStatus| {
            status.exists() || status == TransferStatus::PendingTransferAlreadyVoided
        };
        if !is_done(marker.status) {
            return;
        }
        if self.has(Flaw::TakesVoidedForExpired) {
            marker.status = TransferStatus::PendingTransferExpired;
        }
        if self.has(Flaw::IgnoresMarkers) && !others.is_empty() {
            let all_created = others.iter().all(|r| r.status == TransferStatus::Created);
            let hidden = [TransferStatus::LinkedEventFailed, TransferStatus::Created];
            marker.status = hidden[usize::from(all_created)];
        }
    }

    /// What is sent instead of an item; `None` in the place of an event that is not.
    fn tamper(&self, item: &WorkItem) -> Vec<Option<Event>> {
        let count = item.len();
        let is_reserve = item.events().iter().all(|event| code(event) == Some(RESERVATION));
        let tampered = item.events().iter().enumerate().map(|(at, event)| {
            let (is_last, mut event) = (at + 1 == count, *event);
            let Some(flaw) = self.flaw else {
                return Some(event);
            };
            match flaw {
                Flaw::RecordsNoRenews if code(&event) == Some(RENEW_RECORD) => {
                    event.transfer.id = self.new_id(event.transfer.id);
                }
                Flaw::CountsNoGrowthOnLedger
                    if code(&event) == Some(RENEWAL) && !is_void(&item.events()[at - 1]) =>
                {
                    set_amount(&mut event.transfer, 0);
                }
                Flaw::IgnoresMarkers if at == 0 && is_complete(item) => event.linked = false,
                Flaw::SkipsOneLimit if is_reserve && is_last && count > 1 => return None,
                Flaw::SplitsChains if is_reserve => event.linked = false,
                Flaw::NeverExpires if is_reserve => set_timeout(&mut event.transfer, None),
                Flaw::ReleasesEarly if code(&event) == Some(RERESERVATION) => {
                    set_timeout(&mut event.transfer, NonZeroU32::new(1));
                }
                Flaw::ReusesReserveIds if is_reserve => {
                    event.transfer.id = shared_id(event.transfer.id);
                }
                Flaw::ReusesVoidIds
                    if is_void(&event) && event.transfer.user_data.data_128 != 0 =>
                {
                    event.transfer.id = shared_id(event.transfer.id);
                }
                Flaw::VoidsNothing if is_void(&event) && !event.linked => return None,
                Flaw::NeverReopens if is_void(&event) && event.transfer.user_data.data_128 == 0 => {
                    return None;
                }
                Flaw::ForgetsDebt if code(&event) == Some(DEBT) => return None,
                _ => {}
            }
            Some(event)
        });
        tampered.collect()
    }

    /// Something that is sent behind an item that was answered.
    fn sequel(&self, item: &WorkItem, results: &[TransferResult]) -> Option<Transfer> {
        let first = item.events().first()?;
        let is_denied = results.iter().any(|r| r.status == TransferStatus::ExceedsCredits);
        if self.has(Flaw::DenialLeavesHold) && code(first) == Some(RESERVATION) && is_denied {
            return Some(Transfer { id: self.new_id(first.transfer.id), ..first.transfer });
        }
        let operator = ids::operator_account();
        let is_decrease = |event: &&Event| match event.transfer.action {
            Action::Posted(movement) => {
                movement.code.get() == CAPACITY && movement.credit == operator
            }
            Action::BalancingCredit(_)
            | Action::Pending { .. }
            | Action::PostPending { .. }
            | Action::VoidPending { .. } => false,
        };
        let is_debt = |event: &&Event| code(event) == Some(DEBT);
        let was_done = results.iter().all(|r| r.status == TransferStatus::Created);
        let again = match self.flaw? {
            Flaw::DecreasesTwice if was_done => item.events().iter().find(is_decrease),
            Flaw::CountsDebtAgain if was_done => item.events().iter().find(is_debt),
            _ => None,
        }?;
        Some(Transfer { id: self.new_id(again.transfer.id), ..again.transfer })
    }
}

/// Whether an item ends a lease: it begins with a marker of that lease, a transfer or a void.
fn is_complete(item: &WorkItem) -> bool {
    let marks = |event: &Event| is_void(event) || code(event) == Some(MARKER);
    let first = item.events().first();
    first.is_some_and(|event| event.transfer.user_data.data_128 != 0 && marks(event))
}

fn code(event: &Event) -> Option<u16> {
    match event.transfer.action {
        Action::Posted(movement)
        | Action::BalancingCredit(movement)
        | Action::Pending { movement, .. } => Some(movement.code.get()),
        Action::PostPending { .. } | Action::VoidPending { .. } => None,
    }
}

fn is_void(event: &Event) -> bool {
    matches!(event.transfer.action, Action::VoidPending { .. })
}

fn set_timeout(transfer: &mut Transfer, seconds: Option<NonZeroU32>) {
    if let Action::Pending { timeout_seconds, .. } = &mut transfer.action {
        *timeout_seconds = seconds;
    }
}

fn set_amount(transfer: &mut Transfer, amount: u128) {
    if let Action::Pending { movement, .. } = &mut transfer.action {
        movement.amount = amount;
    }
}

/// One of four IDs.
fn shared_id(id: TransferId) -> TransferId {
    TransferId::nearest(8 + id.get() % 4)
}

/// An item of the events that are left, with chains where they were.
fn rebuild(events: &[Option<Event>]) -> WorkItem {
    let mut item = WorkItem::new();
    let mut chain = Vec::new();
    for event in events {
        let is_linked = event.is_some_and(|event| event.linked);
        chain.extend(event.map(|event| event.transfer));
        if !is_linked {
            item.push_chain(std::mem::take(&mut chain));
        }
    }
    item.push_chain(chain);
    item
}

impl<L: Ledger> Ledger for FlawedLedger<L> {
    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        self.below.create_accounts(accounts).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        if self.flaw.is_none() {
            return self.below.create_transfers(item).await;
        }
        let events = self.tamper(&item);
        let sent = rebuild(&events);
        let answered = match sent.is_empty() {
            true => Vec::new(),
            false => self.below.create_transfers(sent).await?,
        };
        let mut answered = answered.into_iter();
        let mut last = None;
        let mut results: Vec<TransferResult> = Vec::with_capacity(events.len());
        for event in &events {
            let created = TransferResult {
                status: TransferStatus::Created,
                timestamp: last.unwrap_or(ratelimiter::clock::Timestamp::from_unix_ms(0)),
            };
            let result =
                if event.is_some() { answered.next().expect("one an event") } else { created };
            last = Some(result.timestamp);
            results.push(result);
        }
        if self.has(Flaw::IgnoresExists) && results.iter().any(|r| r.status.exists()) {
            results.iter_mut().for_each(|result| result.status = TransferStatus::Created);
        }
        if is_complete(&item) {
            self.misread_marker(&mut results);
        }
        if let Some(sequel) = self.sequel(&item, &results) {
            // Nobody looks at what became of it; that is part of the bug.
            drop(self.below.create_transfers(WorkItem::new().with(sequel)).await);
        }
        Ok(results)
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        self.below.lookup_accounts(ids).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        self.below.lookup_transfers(ids).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        self.below.query_transfers(query).await
    }
}
