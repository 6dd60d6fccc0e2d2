//! Differential test of the model against a real server.
//!
//! Random requests go to both, and every answer must be the same. The model runs on the server's
//! timestamps. Only expiry happens without a request, some time after its moment, so the run has
//! rounds: shortly before the first hold of a round can expire, it waits until the server has
//! released everything that the model says it must, then compares. A request that comes too late
//! for that is compared with every number of expiries that the server may have done before it.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::time::Duration;

use ratelimiter_tigerbeetle::ledger::cluster::{ClusterLedger, NoObserver};
use ratelimiter_tigerbeetle::ledger::{
    AccountRow, AccountStatus, Ledger, NewAccount, Timestamp, TransferResult, TransferStatus,
    WorkItem,
};
use testkit::tigerbeetle::Fixture;
use testkit::{PATIENCE, RunSeed, within};
use tigerbeetle_model::Model;

use self::generator::{Generator, SHORT_TIMEOUT_SECONDS};
use crate::setup::{config, open, run};

mod generator;

/// The number of events to send; 100 000 take a minute.
const EVENTS_VARIABLE: &str = "TIGERBEETLE_DIFFERENTIAL_EVENTS";
const EVENTS_DEFAULT: u64 = 20_000;
/// A run continues until each status was seen, for at most this many times its events. A status is
/// missing from the first 20 000 events in about one run of thirty, so from ten times as many
/// never.
const EXTENSIONS_MAX: u64 = 10;
/// Overrides the seed.
const SEED_VARIABLE: &str = "TIGERBEETLE_DIFFERENTIAL_SEED";
/// Fixed, so that only expiry is left to chance.
const SEED_DEFAULT: u64 = 1;
/// Duration of a round before it waits for its expiries.
const ROUND: Duration = Duration::from_millis(500);

/// Statuses that a run must have seen to be meaningful.
const ALL_STATUSES: [&str; 33] = [
    "AccountsMustBeDifferent",
    "Created",
    "CreditAccountAlreadyClosed",
    "CreditAccountNotFound",
    "DebitAccountAlreadyClosed",
    "DebitAccountNotFound",
    "ExceedsCredits",
    "ExceedsPendingTransferAmount",
    "Exists",
    "ExistsWithDifferentAmount",
    "ExistsWithDifferentCode",
    "ExistsWithDifferentCreditAccountId",
    "ExistsWithDifferentDebitAccountId",
    "ExistsWithDifferentFlags",
    "ExistsWithDifferentPendingId",
    "ExistsWithDifferentTimeout",
    "ExistsWithDifferentUserData128",
    "ExistsWithDifferentUserData32",
    "ExistsWithDifferentUserData64",
    "IdAlreadyFailed",
    "LinkedEventFailed",
    "OverflowsCredits",
    "OverflowsCreditsPending",
    "OverflowsCreditsPosted",
    "OverflowsDebits",
    "OverflowsDebitsPending",
    "OverflowsDebitsPosted",
    "PendingIdMustBeDifferent",
    "PendingTransferAlreadyPosted",
    "PendingTransferAlreadyVoided",
    "PendingTransferExpired",
    "PendingTransferNotFound",
    "PendingTransferNotPending",
];

pub fn the_model_agrees_with_the_server(fixture: &Fixture) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().expect("a number"));
    let events = number(EVENTS_VARIABLE).unwrap_or(EVENTS_DEFAULT);
    if let Some(seed) = number(SEED_VARIABLE) {
        return the_model_agrees(fixture, seed, events);
    }
    the_model_agrees(fixture, SEED_DEFAULT, events);
    let own = RunSeed::for_command(
        "cargo test -p ratelimiter-tigerbeetle --features servers --test tigerbeetle",
    );
    for seed in own.seeds(1) {
        the_model_agrees(fixture, seed, events);
    }
}

fn the_model_agrees(fixture: &Fixture, seed: u64, events: u64) {
    eprintln!("{SEED_VARIABLE}={seed} {EVENTS_VARIABLE}={events}");
    run(async {
        let ledger = open(config(&fixture.development().settings()), NoObserver).await;
        let mut pair = Pair::new(ledger, Generator::new(seed));
        pair.create_accounts(pair.generator.accounts()).await;
        while pair.events < events
            || (pair.missing_statuses().next().is_some() && pair.events < EXTENSIONS_MAX * events)
        {
            pair.round().await;
        }
        pair.report();
        pair.ledger.close().await;
    });
}

struct Pair {
    ledger: ClusterLedger,
    model: Model,
    generator: Generator,
    events: u64,
    late_requests: usize,
    statuses: BTreeMap<String, usize>,
}

impl Pair {
    fn new(ledger: ClusterLedger, generator: Generator) -> Self {
        let (model, statuses) = (Model::default(), BTreeMap::new());
        Self { ledger, model, generator, events: 0, late_requests: 0, statuses }
    }

    async fn create_accounts(&mut self, accounts: Vec<NewAccount>) {
        let real = self.ledger.create_accounts(accounts.clone()).await.unwrap();
        let model = self.model.create_accounts(real[0].timestamp, &accounts);
        assert_eq!(real, model);
    }

    /// Sends requests until the first hold of this round is about to expire, then waits for it.
    async fn round(&mut self) {
        let whales = self.generator.new_whales();
        self.create_accounts(whales).await;
        let mut started_at = None;
        loop {
            let item = self.generator.item();
            let (now, real) = self.send(&item).await;
            self.compare(now, &item, &real);
            let started_at = *started_at.get_or_insert(now);
            let is_late = self.model.next_expiry().is_some_and(|expiry| expiry <= now);
            if is_late || now.since(started_at) >= ROUND {
                break;
            }
            // Nothing can have expired yet, so the balances are comparable; unless the machine was
            // so busy that the lookup came half a second after the request.
            let real = self.real_accounts().await;
            if real != self.model_accounts() {
                assert!(self.is_late().await, "{real:#?}\n{:#?}", self.model_accounts());
                break;
            }
            self.compare_rows().await;
        }
        self.void_across_the_expiries().await;
        self.wait_for_expiries().await;
        self.compare_accounts_again().await;
        self.compare_rows().await;
    }

    async fn send(&self, item: &WorkItem) -> (Timestamp, Vec<TransferResult>) {
        let real = self.ledger.create_transfers(item.clone()).await.unwrap();
        let exists = |status| status == TransferStatus::Exists;
        let now = arrival(real.iter().map(|result| (result.timestamp, exists(result.status))));
        (now, real)
    }

    /// Voids holds before and after their expiry. The result depends on the clock alone, so it is
    /// known even while it is unknown what the server has released.
    async fn void_across_the_expiries(&mut self) {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        loop {
            tick.tick().await;
            let item = self.generator.voids();
            let (now, real) = self.send(&item).await;
            let model = self.model.create_transfers(now, &item);
            assert_eq!(model, real, "{}", difference(&item, &model, &real));
            self.count(&real);
            if self.all_expired_at().is_none_or(|moment| now > moment) {
                return;
            }
        }
    }

    /// Whether the server's clock has passed an expiry by now; asks it with a few voids.
    async fn is_late(&mut self) -> bool {
        let item = self.generator.voids();
        let (now, real) = self.send(&item).await;
        assert_eq!(real, self.model.create_transfers(now, &item));
        self.late_requests += 1;
        self.model.next_expiry().is_some_and(|expiry| expiry <= now)
    }

    /// When the last hold with a short timeout expires.
    fn all_expired_at(&self) -> Option<Timestamp> {
        let timeout = Duration::from_secs(u64::from(SHORT_TIMEOUT_SECONDS));
        self.generator.last_pending_at().map(|last| last.after(timeout))
    }

    fn count(&mut self, results: &[TransferResult]) {
        self.events += results.len() as u64;
        for result in results {
            *self.statuses.entry(format!("{:?}", result.status)).or_default() += 1;
        }
    }

    fn compare(&mut self, now: Timestamp, item: &WorkItem, real: &[TransferResult]) {
        self.count(real);
        let is_due = self.model.next_expiry().is_some_and(|expiry| expiry <= now);
        let mut due = is_due.then(|| self.model.clone());
        let model = self.model.create_transfers(now, item);
        if model == real {
            self.generator.note(item, real);
            return;
        }
        self.late_requests += 1;
        while let Some(mut candidate) = due.take() {
            if candidate.expire_at_most(now, 1) == 0 {
                break;
            }
            due = Some(candidate.clone());
            if candidate.create_transfers(now, item) == real {
                self.model = candidate;
                self.generator.note(item, real);
                return;
            }
        }
        panic!("the model and the server disagree:\n{}", difference(item, &model, real));
    }

    /// Waits until the server has released everything that has expired by its clock.
    async fn wait_for_expiries(&mut self) {
        let Some(all_expired_at) = self.all_expired_at() else {
            return;
        };
        self.model.expire(all_expired_at);
        let expected = self.model_accounts();
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        let expiries = async {
            loop {
                tick.tick().await;
                if self.real_accounts().await == expected {
                    return;
                }
            }
        };
        if tokio::time::timeout(PATIENCE, expiries).await.is_err() {
            assert_eq!(self.real_accounts().await, expected);
        }
    }

    async fn compare_accounts_again(&mut self) {
        let accounts = self.generator.accounts_again();
        let real = self.ledger.create_accounts(accounts.clone()).await.unwrap();
        let statuses = real.iter().map(|result| (result.timestamp, result.status));
        let now = arrival(statuses.map(|(at, status)| (at, status == AccountStatus::Exists)));
        assert_eq!(real, self.model.create_accounts(now, &accounts));
    }

    /// Reads rows back, by ID and by user data.
    async fn compare_rows(&mut self) {
        let ids = self.generator.ids();
        let real = self.ledger.lookup_transfers(ids.clone()).await.unwrap();
        let model: Vec<_> = ids.iter().filter_map(|&id| self.model.transfer(id).copied()).collect();
        assert_eq!(real, model);
        let query = self.generator.query();
        let real = self.ledger.query_transfers(query).await.unwrap();
        assert_eq!(real, self.model.query_transfers(&query));
    }

    async fn real_accounts(&self) -> Vec<AccountRow> {
        within("a lookup", self.ledger.lookup_accounts(self.generator.account_ids())).await.unwrap()
    }

    fn model_accounts(&self) -> Vec<AccountRow> {
        let ids = self.generator.account_ids();
        ids.iter().filter_map(|&id| self.model.account(id).copied()).collect()
    }

    fn missing_statuses(&self) -> impl Iterator<Item = &'static str> {
        ALL_STATUSES.into_iter().filter(|&status| !self.statuses.contains_key(status))
    }

    fn report(&self) {
        let missing: Vec<_> = self.missing_statuses().collect();
        assert!(missing.is_empty(), "never seen: {missing:?}");
        eprintln!("{} events, {} late requests", self.events, self.late_requests);
        for (status, count) in &self.statuses {
            eprintln!("{count:>8} {status}");
        }
    }
}

/// When a request arrived: an event's timestamp is that of the first plus its index, except for
/// those that existed before. If all did, any moment will do.
fn arrival(results: impl Iterator<Item = (Timestamp, bool)>) -> Timestamp {
    let fresh = results.enumerate().find(|&(_, (_, exists))| !exists);
    let nanos = fresh.map_or(0, |(index, (at, _))| at.unix_nanos() - index as u64);
    Timestamp::from_unix_nanos(nanos)
}

fn difference(item: &WorkItem, model: &[TransferResult], real: &[TransferResult]) -> String {
    let mut text = String::new();
    for ((event, model), real) in item.events().iter().zip(model).zip(real) {
        let mark = if model == real { "  " } else { "->" };
        writeln!(text, "{mark} {event:?}\n     model {model:?}\n     real  {real:?}").unwrap();
    }
    text
}
