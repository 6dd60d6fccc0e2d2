//! The ledger compared with the client alone, on chains of four.
//!
//! `cargo run --release -p ratelimiter-tigerbeetle --example ledger_speed`
//! starts a production server from `TIGERBEETLE_BIN` or the `PATH`.

#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "a program that prints results")]

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratelimiter::clock::{Clock, MonotonicClock};
use ratelimiter_tigerbeetle::ledger::cluster::{
    ClusterConfig, ClusterLedger, ClusterSettings, NoObserver,
};
use ratelimiter_tigerbeetle::ledger::{
    AccountId, Action, LEDGER_LIMITS, Ledger, Movement, NewAccount, Transfer, TransferId, UserData,
    WorkItem,
};
use testkit::tigerbeetle::{Mode, TestCluster};
use tigerbeetle as tb;

const CHAIN: usize = 4;
const LIMITS: usize = 1_000;
const TIMEOUT_SECONDS: u32 = 3_600;

/// Enough for a stable median on a shared machine.
const LONE_REQUESTS: usize = 4_000;

#[tokio::main]
async fn main() {
    let rounds = std::env::args().nth(1).map_or(5, |text| text.parse().unwrap());
    let cluster = TestCluster::start(Mode::Production);
    let run = Run { cluster, length: Duration::from_secs(1) };
    let accounts = run.accounts().await;
    run.lone_caller(&accounts).await;

    // Alternating, so that other load on the machine affects all of them alike.
    let mut rates = vec![Vec::new(); SCENARIOS.len()];
    let (mut direct, mut direct_one) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        direct.push(run.direct(&accounts, 2_000).await);
        direct_one.push(run.direct(&accounts, 1).await);
        for (rates, scenario) in rates.iter_mut().zip(SCENARIOS) {
            rates.push(run.ledger(&accounts, scenario).await);
        }
    }
    let direct = median(direct);
    println!("direct, 2000 chains a call: {direct:.0} chains/s");
    println!("direct, 1 chain a call: {:.0} chains/s", median(direct_one));
    for (rates, scenario) in rates.into_iter().zip(SCENARIOS) {
        let rate = median(rates);
        println!("{scenario:?}: {rate:.0} chains/s, {:.2} of direct", rate / direct);
    }
}

#[derive(Clone, Copy, Debug)]
struct Scenario {
    callers: usize,
    sessions: u32,
    max_batch_events: u32,
    flush_interval_micros: u64,
}

const fn scenario(callers: usize, sessions: u32) -> Scenario {
    Scenario { callers, sessions, max_batch_events: 8000, flush_interval_micros: 200 }
}

const SCENARIOS: [Scenario; 11] = [
    scenario(64, 1),
    scenario(64, 2),
    scenario(256, 1),
    scenario(256, 2),
    Scenario { flush_interval_micros: 0, ..scenario(256, 1) },
    Scenario { flush_interval_micros: 1_000, ..scenario(256, 1) },
    Scenario { max_batch_events: 4, ..scenario(256, 1) },
    scenario(1_024, 1),
    scenario(1_024, 2),
    scenario(4_096, 1),
    scenario(4_096, 2),
];

struct Run {
    cluster: TestCluster,
    length: Duration,
}

impl Run {
    /// One caller, alternating with the client alone.
    async fn lone_caller(&self, accounts: &[AccountId]) {
        let address = &self.cluster.addresses()[0];
        let client = tb::Client::new(self.cluster.cluster_id(), address).unwrap();
        client.lookup_accounts(&[1]).await.unwrap();
        let ledger = open(&self.cluster.settings()).await;
        let clock = MonotonicClock::new();
        let (mut direct, mut through_ledger) = (Vec::new(), Vec::new());
        for _ in 0..LONE_REQUESTS {
            let now = clock.now();
            client.create_transfers(&events(accounts, now.unix_ms(), 1)).await.unwrap();
            direct.push(clock.now().since(now).as_secs_f64() * 1e6);
            let now = clock.now();
            ledger.create_transfers(chain(accounts, now.unix_ms())).await.unwrap();
            through_ledger.push(clock.now().since(now).as_secs_f64() * 1e6);
        }
        let (direct, through_ledger) = (median(direct), median(through_ledger));
        let ratio = through_ledger / direct;
        println!(
            "one caller, p50: direct {direct:.0} us, ledger {through_ledger:.0} us, {ratio:.2} times"
        );
        client.close().await.unwrap();
        ledger.close().await;
    }

    /// Chains per second with the client alone: one call at a time, `chains` in each.
    async fn direct(&self, accounts: &[AccountId], chains: usize) -> f64 {
        let address = &self.cluster.addresses()[0];
        let client = tb::Client::new(self.cluster.cluster_id(), address).unwrap();
        client.lookup_accounts(&[1]).await.unwrap();
        let clock = MonotonicClock::new();
        let started_at = clock.now();
        let mut done = 0;
        while clock.now().since(started_at) < self.length {
            let events = events(accounts, clock.now().unix_ms(), chains);
            client.create_transfers(&events).await.unwrap();
            done += chains;
        }
        let rate = per_second(done, clock.now().since(started_at));
        client.close().await.unwrap();
        rate
    }

    /// Chains per second through the ledger.
    async fn ledger(&self, accounts: &[AccountId], scenario: Scenario) -> f64 {
        let Scenario { callers, sessions, max_batch_events, flush_interval_micros } = scenario;
        let settings = ClusterSettings {
            sessions,
            max_batch_events,
            flush_interval_micros,
            request_timeout_ms: 30_000,
            ..self.cluster.settings()
        };
        let ledger = open(&settings).await;
        let clock = MonotonicClock::new();
        let started_at = clock.now();
        let done = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..callers {
            let (ledger, clock) = (Arc::clone(&ledger), clock.clone());
            let (done, accounts, length) = (Arc::clone(&done), accounts.to_vec(), self.length);
            tasks.spawn(async move {
                while clock.now().since(started_at) < length {
                    let item = chain(&accounts, clock.now().unix_ms());
                    ledger.create_transfers(item).await.unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let rate = per_second(done.load(Ordering::Relaxed), clock.now().since(started_at));
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
    let ledger = ClusterLedger::open(config, NoObserver).unwrap();
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

fn chain(accounts: &[AccountId], now_ms: u64) -> WorkItem {
    let data_128 = fastrand::u128(1..);
    WorkItem::new().with_chain((0..CHAIN).map(|_| reservation(accounts, now_ms, data_128)))
}

/// The same chains in the client's types.
fn events(accounts: &[AccountId], now_ms: u64, chains: usize) -> Vec<tb::Transfer> {
    let event = |index: usize| tb::Transfer {
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
    };
    (0..chains * CHAIN).map(event).collect()
}

fn some_limit(accounts: &[AccountId]) -> AccountId {
    accounts[fastrand::usize(1..accounts.len())]
}

/// In the layout of `TB-01`.
fn id(now_ms: u64) -> TransferId {
    TransferId::nearest(u128::from(now_ms) << 80 | fastrand::u128(..) >> 48)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn per_second(count: usize, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64()
}
