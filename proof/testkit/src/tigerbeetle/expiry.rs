//! Waiting for expiries on a cluster.

use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountStatus, Action, Ledger, Movement, NewAccount, Transfer, TransferId,
    TransferStatus, UserData, WorkItem,
};

use crate::{eventually, pass};

/// Lets `by` pass, and waits until the cluster has released everything that expires within the
/// whole seconds of it. A busy cluster releases late, but in the order of expiry: once a hold
/// created now is released, so is everything that expires before it.
///
/// # Panics
/// The cluster does not answer, or does not release.
pub async fn outlast(ledger: &impl Ledger, by: Duration) {
    let seconds = u32::try_from(by.as_secs()).expect("it is less than a hundred years");
    let held = match NonZeroU32::new(seconds) {
        Some(seconds) => Some(hold(ledger, seconds).await),
        None => None,
    };
    pass(by).await;
    let Some(account) = held else {
        return;
    };
    eventually("the cluster releases what has expired", async || {
        let rows = ledger.lookup_accounts(vec![account]).await.expect("the cluster answers");
        rows[0].balances.debits_pending == 0
    })
    .await;
}

/// Creates a hold on a new account; returns the account.
async fn hold(ledger: &impl Ledger, seconds: NonZeroU32) -> AccountId {
    let account = || NewAccount {
        id: AccountId::nearest(fastrand::u128(..)),
        code: NonZeroU16::MIN,
        debits_must_not_exceed_credits: false,
        user_data: UserData::default(),
    };
    let accounts = [account(), account()];
    let [debit, credit] = accounts.map(|account| account.id);
    for made in ledger.create_accounts(accounts.to_vec()).await.expect("the cluster answers") {
        assert_eq!(made.status, AccountStatus::Created);
    }
    let action = Action::Pending {
        movement: Movement { debit, credit, amount: 1, code: NonZeroU16::MIN },
        timeout_seconds: Some(seconds),
        closes_debit_account: false,
    };
    let id = TransferId::nearest(fastrand::u128(..));
    let item = WorkItem::new().with(Transfer { id, action, user_data: UserData::default() });
    let made = ledger.create_transfers(item).await.expect("the cluster answers");
    assert_eq!(made[0].status, TransferStatus::Created);
    debit
}
