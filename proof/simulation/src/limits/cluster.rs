//! A simulated network in front of the ledger: delays, duplicates and losses.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use ratelimiter::clock::Timestamp;
use ratelimiter_tigerbeetle::ids;
use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, Action, Event, Ledger, LedgerError, NewAccount,
    TransferId, TransferQuery, TransferResult, TransferRow, WorkItem,
};
use tigerbeetle_model::ModelLedger;

use super::client::name;
use super::context::{OUTSIDE, SimContext};
use super::host::FaultInjector;
use super::oracle::Reading;
use super::plan::{CallFault, key};
use crate::executor::{Operation, Slot, SlotSender};
use crate::fault::Fault;

/// How long a server waits for the ledger (`TB-10`).
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// One server's way to the ledger.
pub(super) struct Connection<D> {
    pub(super) server: usize,
    pub(super) context: SimContext,
    pub(super) ledger: Arc<ModelLedger>,
    pub(super) outage: Arc<Outage>,
    pub(super) injector: Arc<D>,
}

/// Until when the ledger answers nobody.
#[derive(Default)]
pub(super) struct Outage(Mutex<Option<Timestamp>>);

#[derive(Clone)]
enum Call {
    Accounts(Vec<NewAccount>),
    Transfers(WorkItem),
    LookupAccounts(Vec<AccountId>),
    LookupTransfers(Vec<TransferId>),
    Query(TransferQuery),
}

enum Reply {
    Accounts(Vec<AccountResult>),
    Transfers(Vec<TransferResult>),
    AccountRows(Vec<AccountRow>),
    TransferRows(Vec<TransferRow>),
}

/// A call on its way.
struct Message<D> {
    context: SimContext,
    ledger: Arc<ModelLedger>,
    outage: Arc<Outage>,
    injector: Arc<D>,
    server: usize,
    operation: Operation,
    call: Call,
}

impl Outage {
    pub(super) fn until(&self, at: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    fn ends_at(&self) -> Option<Timestamp> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The account of each limit, and behind it that of its debt.
pub(super) fn accounts(limits: usize) -> Vec<AccountId> {
    let pair = |limit| [ids::limit_account(&key(limit)), ids::debt_account(&key(limit))];
    (0..limits).flat_map(pair).collect()
}

/// The limits as the ledger has them.
pub(super) fn readings(ledger: &ModelLedger, accounts: &[AccountId]) -> Vec<Reading> {
    let rows = now(ledger.lookup_accounts(accounts.to_vec()));
    let row = |id: AccountId| rows.iter().find(|row| row.id == id);
    let reading = |pair: &[AccountId]| {
        let owed = |row: &AccountRow| row.balances.debits_posted - row.balances.credits_posted;
        let debt = row(pair[1]).map_or(0, owed);
        row(pair[0]).map_or(Reading { debt, ..Reading::default() }, |row| Reading {
            capacity: row.balances.credits_posted - row.balances.debits_posted,
            used: row.balances.debits_pending,
            debt,
            is_closed: row.closed,
            resets_at: None,
            instances: 0,
        })
    };
    accounts.chunks(2).map(reading).collect()
}

/// The model answers at once.
pub(super) fn now<T>(answer: impl Future<Output = Result<T, LedgerError>>) -> T {
    let answer = answer.now_or_never().expect("the model never waits");
    answer.expect("the model always answers")
}

impl<D: FaultInjector> Connection<D> {
    async fn call(&self, call: Call) -> Result<Reply, LedgerError> {
        let executor = self.context.executor();
        let operation = executor.operation();
        let (call_fault, latencies) = self.context.next_call(operation);
        if let Some(call_fault) = call_fault {
            self.context
                .trace(|| format!("    {} {call_fault:?}: {}", name(operation), call.text()));
            self.context.count_fault(call_fault.fault());
        }
        if call_fault == Some(CallFault::Refused) {
            return Err(LedgerError::QueueFull { queued_events: 1, queue_events_max: 1 });
        }
        if let Some(CallFault::CrashBefore { down_ms, skew_ms }) = call_fault {
            self.injector.crash(self.server, down_ms, skew_ms);
            std::future::pending::<()>().await;
        }
        let message = Message {
            context: self.context.clone(),
            ledger: Arc::clone(&self.ledger),
            outage: Arc::clone(&self.outage),
            injector: Arc::clone(&self.injector),
            server: self.server,
            operation,
            call,
        };
        let (slot, sender) = Slot::new();
        let guard = self.context.track_work(operation);
        executor.spawn(OUTSIDE, operation, async move {
            message.travel(call_fault, latencies, sender).await;
            drop(guard);
        });
        let deadline = self.context.now().after(CALL_TIMEOUT);
        let reply = slot.wait(executor, deadline).await;
        // A message that was lost leaves nobody who could answer, but its sender waits all the same.
        if reply.is_none() {
            executor.sleep_until(deadline).await;
        }
        reply.ok_or(LedgerError::NoAnswer { waited: CALL_TIMEOUT })
    }
}

impl<D: FaultInjector> Message<D> {
    async fn travel(
        self,
        call_fault: Option<CallFault>,
        latencies: [u64; 2],
        sender: SlotSender<Reply>,
    ) {
        let executor = self.context.executor();
        let [there, back] = latencies.map(Duration::from_micros);
        let wait = match call_fault {
            Some(CallFault::Slow { ms } | CallFault::Late { ms }) => Duration::from_millis(ms),
            _ => Duration::ZERO,
        };
        executor.sleep(there + wait).await;
        if call_fault == Some(CallFault::RequestLost) {
            return;
        }
        let reply = self.arrive().await;
        match call_fault {
            Some(CallFault::ReplyLost) => {}
            Some(CallFault::CrashAfter { down_ms, skew_ms }) => {
                self.injector.crash(self.server, down_ms, skew_ms);
            }
            Some(CallFault::Evicted { ms }) => {
                executor.sleep(Duration::from_millis(ms)).await;
                sender.send(self.arrive().await);
            }
            Some(CallFault::Twice { ms }) => {
                executor.sleep(back).await;
                sender.send(reply);
                executor.sleep(Duration::from_millis(ms)).await;
                drop(self.arrive().await);
            }
            _ => {
                executor.sleep(back).await;
                sender.send(reply);
            }
        }
    }

    /// The ledger carries the call out, as soon as it is there.
    async fn arrive(&self) -> Reply {
        while let Some(at) = self.outage.ends_at().filter(|at| *at > self.context.now()) {
            self.context.executor().sleep_until(at).await;
        }
        let reply = self.call.carry_out(&self.ledger);
        self.context.oracle().touched(self.operation, self.context.now());
        let is_noted = !matches!(self.call, Call::LookupAccounts(_));
        if is_noted {
            self.context.trace(|| {
                let (call, reply) = (self.call.text(), reply.text());
                format!("    {} server {}: {call} -> {reply}", name(self.operation), self.server)
            });
        }
        self.context.check();
        reply
    }
}

impl CallFault {
    const fn fault(self) -> Fault {
        match self {
            Self::Slow { .. } => Fault::LedgerSlow,
            Self::RequestLost => Fault::LedgerRequestLost,
            Self::ReplyLost => Fault::LedgerReplyLost,
            Self::Late { .. } => Fault::LedgerLate,
            Self::Twice { .. } => Fault::LedgerTwice,
            Self::Evicted { .. } => Fault::Evicted,
            Self::Refused => Fault::LedgerRefused,
            Self::CrashBefore { .. } => Fault::CrashBeforeCall,
            Self::CrashAfter { .. } => Fault::CrashAfterCall,
        }
    }
}

impl Call {
    fn carry_out(&self, ledger: &ModelLedger) -> Reply {
        match self.clone() {
            Self::Accounts(accounts) => Reply::Accounts(now(ledger.create_accounts(accounts))),
            Self::Transfers(item) => Reply::Transfers(now(ledger.create_transfers(item))),
            Self::LookupAccounts(ids) => Reply::AccountRows(now(ledger.lookup_accounts(ids))),
            Self::LookupTransfers(ids) => Reply::TransferRows(now(ledger.lookup_transfers(ids))),
            Self::Query(query) => Reply::TransferRows(now(ledger.query_transfers(query))),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Accounts(_) => "create accounts".to_owned(),
            Self::Transfers(item) => {
                let events: Vec<String> = item.events().iter().map(event_text).collect();
                format!("transfers [{}]", events.join(" "))
            }
            Self::LookupAccounts(_) => "look at accounts".to_owned(),
            Self::LookupTransfers(_) => "look at transfers".to_owned(),
            Self::Query(_) => "query a lease".to_owned(),
        }
    }
}

impl Reply {
    fn text(&self) -> String {
        match self {
            Self::Accounts(_) => "ok".to_owned(),
            Self::Transfers(results) => {
                let results = results.iter().map(|result| format!("{:?}", result.status));
                results.collect::<Vec<_>>().join(" ")
            }
            Self::AccountRows(rows) => format!("{} accounts", rows.len()),
            Self::TransferRows(rows) => format!("{} transfers", rows.len()),
        }
    }
}

fn event_text(event: &Event) -> String {
    let account = |id: AccountId| {
        let limit = (0..4).find(|n| ids::limit_account(&key(*n)) == id);
        let debt = (0..4).find(|n| ids::debt_account(&key(*n)) == id);
        match (limit, debt) {
            (Some(limit), _) => key(limit).to_string(),
            (None, Some(debt)) => format!("debt:{}", key(debt)),
            (None, None) => "-".to_owned(),
        }
    };
    let text = match event.transfer.action {
        Action::Posted(movement) | Action::BalancingCredit(movement) => {
            let (from, to) = (account(movement.debit), account(movement.credit));
            format!("post:{from}>{to}={}", movement.amount)
        }
        Action::Pending { movement, timeout_seconds, closes_debit_account } => {
            let (from, seconds) =
                (account(movement.debit), timeout_seconds.map_or(0, NonZeroU32::get));
            let verb = if closes_debit_account { "close" } else { "hold" };
            format!("{verb}:{from}={}/{seconds}s", movement.amount)
        }
        Action::PostPending { .. } => "post".to_owned(),
        Action::VoidPending { .. } => "void".to_owned(),
    };
    if event.linked { format!("{text}+") } else { text }
}

macro_rules! expect_reply {
    ($reply:expr, $variant:ident) => {
        match $reply {
            Reply::$variant(reply) => Ok(reply),
            _ => unreachable!("a call has a reply of its own kind"),
        }
    };
}

impl<D: FaultInjector> Ledger for Connection<D> {
    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        expect_reply!(self.call(Call::Accounts(accounts)).await?, Accounts)
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        expect_reply!(self.call(Call::Transfers(item)).await?, Transfers)
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        expect_reply!(self.call(Call::LookupAccounts(ids)).await?, AccountRows)
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        expect_reply!(self.call(Call::LookupTransfers(ids)).await?, TransferRows)
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        expect_reply!(self.call(Call::Query(query)).await?, TransferRows)
    }
}
