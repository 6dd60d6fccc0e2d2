//! Setup of ledgers, accounts and transfers for the tests.

use std::future::Future;
use std::num::{NonZeroU16, NonZeroU32};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterConfig, ClusterLedger, ClusterSettings, Observer,
};
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountStatus, Action, Ledger, LedgerError, Movement, NewAccount, Transfer,
    TransferId, TransferStatus, UserData, WorkItem,
};
use testkit::within;

/// The longest that a whole test takes.
const TEST_MAX: Duration = Duration::from_secs(2_400);

/// Runs a test on its own runtime, with a timeout.
pub fn run(test: impl Future<Output = ()>) {
    testkit::run(async {
        tokio::time::timeout(TEST_MAX, test).await.expect("the test does not hang");
    });
}

/// Repeats a request until it is answered: some tests have short deadlines that a busy machine
/// misses.
pub async fn answered<T, Call>(ask: impl Fn() -> Call) -> T
where
    Call: Future<Output = Result<T, LedgerError>>,
{
    let answer = async {
        loop {
            if let Ok(answer) = ask().await {
                return answer;
            }
        }
    };
    within("an answer", answer).await
}

pub fn config(settings: &ClusterSettings) -> ClusterConfig {
    ClusterConfig::new(settings).expect("the settings are valid")
}

pub const NEVER: Duration = Duration::from_secs(86_400);

/// A ledger with working sessions.
pub async fn open<O: Observer>(config: ClusterConfig, observer: O) -> ClusterLedger<O> {
    let ledger = ClusterLedger::open(config, observer).expect("the system starts threads");
    within("a session", ledger.ready()).await;
    ledger
}

pub fn new_account() -> NewAccount {
    NewAccount {
        id: AccountId::nearest(fastrand::u128(..)),
        code: NonZeroU16::MIN,
        debits_must_not_exceed_credits: true,
        user_data: UserData::default(),
    }
}

pub fn new_operator() -> NewAccount {
    NewAccount { debits_must_not_exceed_credits: false, ..new_account() }
}

/// An operator and `count` limits of the given capacity.
pub async fn limits(
    ledger: &impl Ledger,
    count: usize,
    capacity: u128,
) -> (AccountId, Vec<AccountId>) {
    let operator = new_operator();
    let limits: Vec<NewAccount> = (0..count).map(|_| new_account()).collect();
    let all = [&[operator], &limits[..]].concat();
    for result in answered(|| ledger.create_accounts(all.clone())).await {
        assert!(matches!(result.status, AccountStatus::Created | AccountStatus::Exists));
    }
    let limits: Vec<AccountId> = limits.iter().map(|limit| limit.id).collect();
    for &limit in &limits {
        let credit = posted(operator.id, limit, capacity);
        let item = WorkItem::new().with(credit);
        let results = answered(|| ledger.create_transfers(item.clone())).await;
        assert!(matches!(results[0].status, TransferStatus::Created | TransferStatus::Exists));
    }
    (operator.id, limits)
}

/// In the layout of `TB-01`: random IDs would slow the server down.
pub fn transfer_id() -> TransferId {
    let now_ms = MonotonicClock::new().now().unix_ms();
    TransferId::nearest(u128::from(now_ms) << 80 | fastrand::u128(..) >> 48)
}

pub fn movement(debit: AccountId, credit: AccountId, amount: u128) -> Movement {
    Movement { debit, credit, amount, code: NonZeroU16::MIN }
}

pub fn posted(debit: AccountId, credit: AccountId, amount: u128) -> Transfer {
    let action = Action::Posted(movement(debit, credit, amount));
    Transfer { id: transfer_id(), action, user_data: UserData::default() }
}

pub fn pending(
    debit: AccountId,
    credit: AccountId,
    amount: u128,
    timeout_seconds: u32,
) -> Transfer {
    let action = Action::Pending {
        movement: movement(debit, credit, amount),
        timeout_seconds: NonZeroU32::new(timeout_seconds),
        closes_debit_account: false,
    };
    Transfer { id: transfer_id(), action, user_data: UserData::default() }
}
