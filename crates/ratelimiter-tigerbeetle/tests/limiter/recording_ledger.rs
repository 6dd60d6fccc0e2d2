//! A ledger that records calls, delays answers and injects faults.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::channel::oneshot;
use futures::poll;

use ratelimiter_tigerbeetle::ledger::{
    AccountId, AccountResult, AccountRow, ItemTooLarge, Ledger, LedgerError, NewAccount,
    TransferId, TransferQuery, TransferResult, TransferRow, WorkItem,
};

/// More refusals than any test provokes.
const REFUSALS_MAX: usize = 100;

/// Records calls and injects faults. Clones share their state.
#[derive(Clone, Debug)]
pub struct RecordingLedger<L> {
    inner: L,
    recording: Arc<Mutex<Recording>>,
}

#[derive(Debug, Default)]
struct Recording {
    calls: Vec<Call>,
    /// The first call without an answer, by number, and its fault.
    fault: Option<(usize, Fault)>,
    /// Source of random delays, in yields to other callers.
    delays: Option<fastrand::Rng>,
    /// What is added to each of them.
    delay: usize,
    /// The most events of an item, and how many larger ones were refused.
    item_events_max: Option<(usize, usize)>,
    /// The calls that are held back while rounds are counted.
    held_back: Option<Vec<oneshot::Sender<()>>>,
}

#[derive(Clone, Debug)]
pub enum Call {
    CreateAccounts,
    CreateTransfers(WorkItem),
    Lookup,
    Query,
}

/// The number of calls, and of transfers in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCounts {
    pub calls: usize,
    pub transfers: usize,
}

/// A call without an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is applied, but the answer is lost.
    AnswerLost,
    /// It is not applied.
    RequestLost,
}

impl<L: Ledger> RecordingLedger<L> {
    pub fn new(inner: L) -> Self {
        Self { inner, recording: Arc::default() }
    }

    /// The calls since the last time.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.recording.lock().unwrap().calls)
    }

    /// The number of calls since the last time.
    pub fn take_counts(&self) -> CallCounts {
        let calls = self.take_calls();
        let transfers = |call: &Call| match call {
            Call::CreateTransfers(item) => item.len(),
            Call::CreateAccounts | Call::Lookup | Call::Query => 0,
        };
        CallCounts { calls: calls.len(), transfers: calls.iter().map(transfers).sum() }
    }

    /// No call from this number on, counted from 0, is answered: the first has this fault, all
    /// later requests are lost.
    pub fn fail_from(&self, number: usize, fault: Fault) {
        let mut recording = self.recording.lock().unwrap();
        recording.calls.clear();
        recording.fault = Some((number, fault));
    }

    pub fn heal(&self) {
        self.recording.lock().unwrap().fault = None;
    }

    /// From now on calls are reordered.
    pub fn shuffle(&self, seed: u64) {
        self.recording.lock().unwrap().delays = Some(fastrand::Rng::with_seed(seed));
    }

    /// From now on every call yields so many times before it arrives.
    pub fn delay(&self, yields: usize) {
        self.recording.lock().unwrap().delay = yields;
    }

    /// From now on items with more events are refused. A refusal overtakes all earlier ones.
    pub fn refuse_items_over(&self, events: usize) {
        self.recording.lock().unwrap().item_events_max = Some((events, 0));
    }

    async fn check_size(&self, item: &WorkItem) -> Result<(), LedgerError> {
        let yields = match &mut self.recording.lock().unwrap().item_events_max {
            Some((events_max, refused)) if item.len() > *events_max => {
                *refused += 1;
                REFUSALS_MAX - *refused
            }
            _ => return Ok(()),
        };
        yield_times(yields).await;
        Err(ItemTooLarge { events: item.len(), refused_events: item.len() }.into())
    }

    /// Counts the sequential round trips of `work`: calls are held back until `work` cannot
    /// continue without an answer, and are then answered together.
    pub async fn count_rounds<T>(&self, work: impl Future<Output = T>) -> (T, usize) {
        self.recording.lock().unwrap().held_back = Some(Vec::new());
        let mut work = pin!(work);
        let mut rounds = 0;
        loop {
            if let std::task::Poll::Ready(done) = poll!(work.as_mut()) {
                self.recording.lock().unwrap().held_back = None;
                return (done, rounds);
            }
            let held_back = self.recording.lock().unwrap().held_back.replace(Vec::new()).unwrap();
            assert!(!held_back.is_empty(), "`work` waits only for the ledger");
            held_back.into_iter().for_each(|call| call.send(()).unwrap());
            rounds += 1;
        }
    }

    async fn call<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let release = self.recording.lock().unwrap().held_back.as_mut().map(|held_back| {
            let (release, waits) = oneshot::channel();
            held_back.push(release);
            waits
        });
        if let Some(waits) = release {
            waits.await.unwrap();
        }
        let (fault, yields) = {
            let mut recording = self.recording.lock().unwrap();
            let number = recording.calls.len();
            recording.calls.push(call);
            let fault = recording.fault.and_then(|(from, fault)| match number {
                _ if number == from => Some(fault),
                _ if number > from => Some(Fault::RequestLost),
                _ => None,
            });
            let mut yields = || recording.delays.as_mut().map_or(0, |random| random.usize(..4));
            let yields = [yields(), yields()];
            (fault, [yields[0] + recording.delay, yields[1]])
        };
        yield_times(yields[0]).await;
        let no_answer = LedgerError::NoAnswer { waited: Duration::from_secs(2) };
        if fault == Some(Fault::RequestLost) {
            return Err(no_answer);
        }
        let answer = answer.await;
        yield_times(yields[1]).await;
        if fault.is_some() { Err(no_answer) } else { answer }
    }
}

async fn yield_times(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

impl<L: Ledger> Ledger for RecordingLedger<L> {
    fn events_max(&self) -> usize {
        let item_events_max = self.recording.lock().unwrap().item_events_max;
        item_events_max.map_or(usize::MAX, |(events_max, _)| events_max)
    }

    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        self.call(Call::CreateAccounts, self.inner.create_accounts(accounts)).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        self.check_size(&item).await?;
        let call = Call::CreateTransfers(item.clone());
        self.call(call, self.inner.create_transfers(item)).await
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        self.call(Call::Lookup, self.inner.lookup_accounts(ids)).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        self.call(Call::Lookup, self.inner.lookup_transfers(ids)).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        self.call(Call::Query, self.inner.query_transfers(query)).await
    }
}
