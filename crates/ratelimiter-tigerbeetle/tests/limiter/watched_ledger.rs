//! A ledger that notes what it is asked, answers in its own time, and sometimes does not answer.

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

/// A ledger that can be watched and troubled. Clones share it.
#[derive(Clone, Debug)]
pub struct WatchedLedger<L> {
    below: L,
    watch: Arc<Mutex<Watch>>,
}

#[derive(Debug, Default)]
struct Watch {
    calls: Vec<Call>,
    /// Which calls from now on have no answer, by their number.
    fault: Option<(usize, Fault)>,
    /// Answers come after other callers have had their turn, as often as this says.
    delays: Option<fastrand::Rng>,
    /// The most events of an item, and how many were refused for having more.
    item_events_max: Option<(usize, usize)>,
    /// The calls that wait to be let through, while rounds are counted.
    held_back: Option<Vec<oneshot::Sender<()>>>,
}

/// What a ledger was asked.
#[derive(Clone, Debug)]
pub enum Call {
    CreateAccounts,
    CreateTransfers(WorkItem),
    Lookup,
    Query,
}

/// How often a ledger was asked, and how many transfers it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    pub calls: usize,
    pub transfers: usize,
}

/// What becomes of a call that has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It happens, but nobody hears of it.
    Unheard,
    /// It does not happen.
    Lost,
}

impl<L: Ledger> WatchedLedger<L> {
    pub fn new(below: L) -> Self {
        Self { below, watch: Arc::default() }
    }

    /// What was asked since this was asked last.
    pub fn take_calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.watch.lock().unwrap().calls)
    }

    /// How much was asked since this was asked last.
    pub fn take_asked(&self) -> Asked {
        let calls = self.take_calls();
        let transfers = |call: &Call| match call {
            Call::CreateTransfers(item) => item.len(),
            Call::CreateAccounts | Call::Lookup | Call::Query => 0,
        };
        Asked { calls: calls.len(), transfers: calls.iter().map(transfers).sum() }
    }

    /// From the call with this number on, counted from 0, there is no answer; the one call meets this
    /// fault, all later ones are lost.
    pub fn fail_from(&self, number: usize, fault: Fault) {
        let mut watch = self.watch.lock().unwrap();
        watch.calls.clear();
        watch.fault = Some((number, fault));
    }

    pub fn heal(&self) {
        self.watch.lock().unwrap().fault = None;
    }

    /// From now on callers overtake each other.
    pub fn shuffle(&self, seed: u64) {
        self.watch.lock().unwrap().delays = Some(fastrand::Rng::with_seed(seed));
    }

    /// From now on items with more events are refused. A refusal overtakes all before it.
    pub fn refuse_items_over(&self, events: usize) {
        self.watch.lock().unwrap().item_events_max = Some((events, 0));
    }

    async fn check_size(&self, item: &WorkItem) -> Result<(), LedgerError> {
        let turns = match &mut self.watch.lock().unwrap().item_events_max {
            Some((events_max, refused)) if item.len() > *events_max => {
                *refused += 1;
                REFUSALS_MAX - *refused
            }
            _ => return Ok(()),
        };
        pass_turns(turns).await;
        Err(ItemTooLarge { events: item.len(), refused_events: item.len() }.into())
    }

    /// How many round trips to the ledger, one after another, something takes: calls are held back until nobody can go
    /// on without an answer, and are then answered together.
    pub async fn count_rounds<T>(&self, work: impl Future<Output = T>) -> (T, usize) {
        self.watch.lock().unwrap().held_back = Some(Vec::new());
        let mut work = pin!(work);
        let mut rounds = 0;
        loop {
            if let std::task::Poll::Ready(done) = poll!(work.as_mut()) {
                self.watch.lock().unwrap().held_back = None;
                return (done, rounds);
            }
            let held_back = self.watch.lock().unwrap().held_back.replace(Vec::new()).unwrap();
            assert!(!held_back.is_empty(), "what waits, waits for the ledger");
            held_back.into_iter().for_each(|call| call.send(()).unwrap());
            rounds += 1;
        }
    }

    async fn call<T>(
        &self,
        call: Call,
        answer: impl Future<Output = Result<T, LedgerError>>,
    ) -> Result<T, LedgerError> {
        let let_through = self.watch.lock().unwrap().held_back.as_mut().map(|held_back| {
            let (let_through, waits) = oneshot::channel();
            held_back.push(let_through);
            waits
        });
        if let Some(waits) = let_through {
            waits.await.unwrap();
        }
        let (fault, turns) = {
            let mut watch = self.watch.lock().unwrap();
            let number = watch.calls.len();
            watch.calls.push(call);
            let fault = watch.fault.and_then(|(from, fault)| match number {
                _ if number == from => Some(fault),
                _ if number > from => Some(Fault::Lost),
                _ => None,
            });
            let mut turns = || watch.delays.as_mut().map_or(0, |random| random.usize(..4));
            (fault, [turns(), turns()])
        };
        pass_turns(turns[0]).await;
        let no_answer = LedgerError::NoAnswer { waited: Duration::from_secs(2) };
        if fault == Some(Fault::Lost) {
            return Err(no_answer);
        }
        let answer = answer.await;
        pass_turns(turns[1]).await;
        if fault.is_some() { Err(no_answer) } else { answer }
    }
}

async fn pass_turns(count: usize) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
}

impl<L: Ledger> Ledger for WatchedLedger<L> {
    fn events_max(&self) -> usize {
        let item_events_max = self.watch.lock().unwrap().item_events_max;
        item_events_max.map_or(usize::MAX, |(events_max, _)| events_max)
    }

    async fn create_accounts(
        &self,
        accounts: Vec<NewAccount>,
    ) -> Result<Vec<AccountResult>, LedgerError> {
        self.call(Call::CreateAccounts, self.below.create_accounts(accounts)).await
    }

    async fn create_transfers(&self, item: WorkItem) -> Result<Vec<TransferResult>, LedgerError> {
        self.check_size(&item).await?;
        let call = Call::CreateTransfers(item.clone());
        self.call(call, self.below.create_transfers(item)).await
    }

    async fn lookup_accounts(&self, ids: Vec<AccountId>) -> Result<Vec<AccountRow>, LedgerError> {
        self.call(Call::Lookup, self.below.lookup_accounts(ids)).await
    }

    async fn lookup_transfers(
        &self,
        ids: Vec<TransferId>,
    ) -> Result<Vec<TransferRow>, LedgerError> {
        self.call(Call::Lookup, self.below.lookup_transfers(ids)).await
    }

    async fn query_transfers(&self, query: TransferQuery) -> Result<Vec<TransferRow>, LedgerError> {
        self.call(Call::Query, self.below.query_transfers(query)).await
    }
}
