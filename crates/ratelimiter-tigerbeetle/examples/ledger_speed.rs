//! Chains of four through the ledger, held against the same chains straight through the client.
//!
//! `cargo run --release -p ratelimiter-tigerbeetle --features testing --example ledger_speed`
//! starts a production server of its own from `TIGERBEETLE_BIN` or the `PATH`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints figures")]

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, SystemClock};
use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterConfig, ClusterLedger, ClusterSettings, Unobserved,
};
use ratelimiter_tigerbeetle::ledger::{
    AccountId, Action, LEDGER_LIMITS, Ledger, Movement, NewAccount, Transfer, TransferId, UserData,
    WorkItem,
};
use ratelimiter_tigerbeetle::testing::{Mode, TestCluster};
use tigerbeetle as tb;

const CHAIN: usize = 4;
const LIMITS: usize = 1_000;
const TIMEOUT_SECONDS: u32 = 3_600;

#[tokio::main]
async fn main() {
    let seconds = std::env::args().nth(1).map_or(5, |text| text.parse().unwrap());
    let run =
        Run { cluster: TestCluster::start(Mode::Production), length: Duration::from_secs(seconds) };
    let accounts = run.accounts().await;

    let direct_one = run.direct(&accounts, 1).await;
    let ledger_one = run.ledger(&accounts, 1, |_| {}).await;
    println!("one caller: {ledger_one:.2} of direct; latency {:.2} times", direct_one / ledger_one);
    let direct = run.direct(&accounts, 2_000).await;
    for callers in [64, 256, 1_024, 4_096] {
        for sessions in [1, 2] {
            let rate = run.ledger(&accounts, callers, |s| s.sessions = sessions).await;
            println!("  {:.2} of direct in batches of 8000 events", rate / direct);
        }
    }
    let eager = run.ledger(&accounts, 256, |s| s.flush_interval_micros = 0).await;
    let batched = run.ledger(&accounts, 256, |_| {}).await;
    let single = run.ledger(&accounts, 256, |s| s.max_batch_events = 4).await;
    println!(
        "256 callers: batching {:.1} times, lingering {:.2} times",
        batched / single,
        batched / eager
    );
}

struct Run {
    cluster: TestCluster,
    length: Duration,
}

impl Run {
    /// Chains a second with the client alone: one call at a time, `chains` in each.
    async fn direct(&self, accounts: &[AccountId], chains: usize) -> f64 {
        let address = &self.cluster.addresses()[0];
        let client = tb::Client::new(self.cluster.cluster_id(), address).unwrap();
        client.lookup_accounts(&[1]).await.unwrap();
        let clock = SystemClock::new();
        let started_at = clock.now();
        let mut done = 0;
        while clock.now().since(started_at) < self.length {
            let now_ms = clock.now().unix_ms();
            let events: Vec<tb::Transfer> = (0..chains * CHAIN)
                .map(|index| tb::Transfer {
                    id: id(now_ms).get(),
                    debit_account_id: some_limit(accounts).get(),
                    credit_account_id: accounts[0].get(),
                    amount: 1,
                    user_data_128: fastrand::u128(1..),
                    timeout: TIMEOUT_SECONDS,
                    ledger: LEDGER_LIMITS,
                    code: 1,
                    flags: if index % CHAIN == CHAIN - 1 {
                        tb::TransferFlags::Pending
                    } else {
                        tb::TransferFlags::Pending | tb::TransferFlags::Linked
                    },
                    ..tb::Transfer::default()
                })
                .collect();
            client.create_transfers(&events).await.unwrap();
            done += chains;
        }
        let rate = per_second(done, clock.now().since(started_at));
        println!("direct, {chains:>4} chains a call:               {rate:>8.0} chains/s");
        client.close().await.unwrap();
        rate
    }

    /// Chains a second through the ledger.
    async fn ledger(
        &self,
        accounts: &[AccountId],
        callers: usize,
        change: impl Fn(&mut ClusterSettings),
    ) -> f64 {
        let mut settings = self.cluster.settings();
        settings.request_timeout_ms = 30_000;
        change(&mut settings);
        let ledger = open(&settings).await;
        let clock = SystemClock::new();
        let started_at = clock.now();
        let done = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let (ledger, clock) = (Arc::clone(&ledger), clock.clone());
            let (done, accounts, length) = (Arc::clone(&done), accounts.to_vec(), self.length);
            tasks.spawn(async move {
                while clock.now().since(started_at) < length {
                    let now_ms = clock.now().unix_ms();
                    let data_128 = fastrand::u128(1..);
                    let chain = (0..CHAIN).map(|_| reservation(&accounts, now_ms, data_128));
                    ledger.create_transfers(WorkItem::new().with_chain(chain)).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let rate = per_second(done.load(Ordering::Relaxed), clock.now().since(started_at));
        println!(
            "ledger, {callers:>4} callers, {} session(s), linger {:>3} us: {rate:>8.0} chains/s",
            settings.sessions, settings.flush_interval_micros
        );
        ledger.close().await;
        rate
    }

    /// The operator first, then limits with room for everything.
    async fn accounts(&self) -> Vec<AccountId> {
        let ledger = open(&self.cluster.settings()).await;
        let account = |index: usize| NewAccount {
            id: AccountId::nearest(index as u128 + 2),
            code: NonZeroU16::MIN,
            debits_must_not_exceed_credits: index > 0,
            user_data: UserData::default(),
        };
        let accounts: Vec<NewAccount> = (0..=LIMITS).map(account).collect();
        ledger.create_accounts(accounts.clone()).await.unwrap();
        let ids: Vec<AccountId> = accounts.iter().map(|account| account.id).collect();
        let mut credits = WorkItem::new();
        for &limit in &ids[1..] {
            let movement =
                Movement { debit: ids[0], credit: limit, amount: 1 << 60, code: NonZeroU16::MIN };
            let action = Action::Posted(movement);
            credits.push(Transfer { id: id(0), action, user_data: UserData::default() });
        }
        ledger.create_transfers(credits).await.unwrap();
        ledger.close().await;
        ids
    }
}

async fn open(settings: &ClusterSettings) -> Arc<ClusterLedger> {
    let config = ClusterConfig::new(settings).unwrap();
    let ledger = ClusterLedger::open(config, Unobserved).unwrap();
    ledger.warm_up().await.unwrap();
    Arc::new(ledger)
}

fn reservation(accounts: &[AccountId], now_ms: u64, data_128: u128) -> Transfer {
    let movement = Movement {
        debit: some_limit(accounts),
        credit: accounts[0],
        amount: 1,
        code: NonZeroU16::MIN,
    };
    let timeout_seconds = NonZeroU32::new(TIMEOUT_SECONDS);
    let action = Action::Pending { movement, timeout_seconds, closes_debit_account: false };
    let user_data = UserData { data_128, ..UserData::default() };
    Transfer { id: id(now_ms), action, user_data }
}

fn some_limit(accounts: &[AccountId]) -> AccountId {
    accounts[fastrand::usize(1..accounts.len())]
}

/// In the layout of `TB-01`.
fn id(now_ms: u64) -> TransferId {
    TransferId::nearest(u128::from(now_ms) << 80 | fastrand::u128(..) >> 48)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
