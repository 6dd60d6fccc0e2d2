//! Requests, batches of requests, and the distribution of replies.

use std::future::Future;
use std::iter::Peekable;
use std::pin::Pin;

use tigerbeetle as tb;
use tokio::sync::oneshot;

use super::observer::Operation;
use super::queue::Queued;
use crate::ledger::LedgerError;

/// The client's futures own their events, so a call borrows nothing.
pub(super) type Call = Pin<Box<dyn Future<Output = Result<Reply, tb::Error>> + Send>>;

/// A request of one caller or of a batch.
#[derive(Clone, Debug)]
pub(super) enum Request {
    CreateAccounts(Vec<tb::Account>),
    CreateTransfers(Vec<tb::Transfer>),
    LookupAccounts(Vec<u128>),
    LookupTransfers(Vec<u128>),
    QueryTransfers(tb::QueryFilter),
}

#[derive(Debug)]
pub(super) enum Reply {
    AccountResults(Vec<tb::CreateAccountResult>),
    TransferResults(Vec<tb::CreateTransferResult>),
    Accounts(Vec<tb::Account>),
    Transfers(Vec<tb::Transfer>),
}

/// A request and its reply channel; sent even if the receiver was dropped.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) request: Request,
    /// `None` once the caller has its answer.
    reply: Option<oneshot::Sender<Result<Reply, LedgerError>>>,
}

/// Requests of one operation that are sent together, in order.
pub(super) type Batch = Vec<Queued<PendingRequest>>;

impl Request {
    pub(super) fn operation(&self) -> Operation {
        match self {
            Self::CreateAccounts(_) => Operation::CreateAccounts,
            Self::CreateTransfers(_) => Operation::CreateTransfers,
            Self::LookupAccounts(_) => Operation::LookupAccounts,
            Self::LookupTransfers(_) => Operation::LookupTransfers,
            Self::QueryTransfers(_) => Operation::QueryTransfers,
        }
    }

    pub(super) fn events(&self) -> usize {
        match self {
            Self::CreateAccounts(events) => events.len(),
            Self::CreateTransfers(events) => events.len(),
            Self::LookupAccounts(ids) | Self::LookupTransfers(ids) => ids.len(),
            Self::QueryTransfers(_) => 1,
        }
    }

    fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::CreateAccounts(all), Self::CreateAccounts(more)) => all.extend_from_slice(more),
            (Self::CreateTransfers(all), Self::CreateTransfers(more)) => {
                all.extend_from_slice(more);
            }
            (Self::LookupAccounts(all), Self::LookupAccounts(more))
            | (Self::LookupTransfers(all), Self::LookupTransfers(more)) => {
                all.extend_from_slice(more);
            }
            (all, more) => unreachable!("{all:?} and {more:?} do not go together"),
        }
    }

    /// The IDs of a lookup. The reply omits those that do not exist.
    fn ids(&self) -> Option<&[u128]> {
        match self {
            Self::LookupAccounts(ids) | Self::LookupTransfers(ids) => Some(ids),
            Self::CreateAccounts(_) | Self::CreateTransfers(_) | Self::QueryTransfers(_) => None,
        }
    }

    /// Hands the request to the client, which queues it immediately.
    pub(super) fn call(&self, client: &tb::Client) -> Call {
        match self {
            Self::CreateAccounts(events) => {
                let call = client.create_accounts(events);
                Box::pin(async { call.await.map(Reply::AccountResults) })
            }
            Self::CreateTransfers(events) => {
                let call = client.create_transfers(events);
                Box::pin(async { call.await.map(Reply::TransferResults) })
            }
            Self::LookupAccounts(ids) => {
                let call = client.lookup_accounts(ids);
                Box::pin(async { call.await.map(Reply::Accounts) })
            }
            Self::LookupTransfers(ids) => {
                let call = client.lookup_transfers(ids);
                Box::pin(async { call.await.map(Reply::Transfers) })
            }
            &Self::QueryTransfers(filter) => {
                let call = client.query_transfers(filter);
                Box::pin(async { call.await.map(Reply::Transfers) })
            }
        }
    }
}

/// The accessors return `None` for another kind of reply, which would be a bug.
impl Reply {
    pub(super) fn account_results(self) -> Option<Vec<tb::CreateAccountResult>> {
        if let Self::AccountResults(results) = self { Some(results) } else { None }
    }

    pub(super) fn transfer_results(self) -> Option<Vec<tb::CreateTransferResult>> {
        if let Self::TransferResults(results) = self { Some(results) } else { None }
    }

    pub(super) fn accounts(self) -> Option<Vec<tb::Account>> {
        if let Self::Accounts(rows) = self { Some(rows) } else { None }
    }

    pub(super) fn transfers(self) -> Option<Vec<tb::Transfer>> {
        if let Self::Transfers(rows) = self { Some(rows) } else { None }
    }
}

/// Hands a batch to the client as one request.
pub(super) fn call(client: &tb::Client, batch: &Batch) -> Call {
    let (first, others) = batch.split_first().expect("a batch has at least one item");
    if others.is_empty() {
        return first.item.request.call(client);
    }
    let mut together = first.item.request.clone();
    for other in others {
        together.append(&other.item.request);
    }
    together.call(client)
}

/// Gives each caller its part of the reply.
pub(super) fn answer(batch: Batch, reply: Reply) {
    match reply {
        Reply::AccountResults(results) => {
            let mut results = results.into_iter();
            distribute(batch, |request| {
                Reply::AccountResults(results.by_ref().take(request.events()).collect())
            });
        }
        Reply::TransferResults(results) => {
            let mut results = results.into_iter();
            distribute(batch, |request| {
                Reply::TransferResults(results.by_ref().take(request.events()).collect())
            });
        }
        Reply::Accounts(rows) => {
            let mut rows = rows.into_iter().peekable();
            distribute(batch, |request| Reply::Accounts(found(request, &mut rows, |row| row.id)));
        }
        Reply::Transfers(rows) => {
            let mut rows = rows.into_iter().peekable();
            distribute(batch, |request| Reply::Transfers(found(request, &mut rows, |row| row.id)));
        }
    }
}

fn distribute(batch: Batch, mut part: impl FnMut(&Request) -> Reply) {
    for mut queued in batch {
        let part = part(&queued.item.request);
        queued.item.answer(Ok(part));
    }
}

/// The rows of one lookup among all rows: they are in the order of the IDs, with gaps.
fn found<T>(
    request: &Request,
    rows: &mut Peekable<impl Iterator<Item = T>>,
    id: impl Fn(&T) -> u128,
) -> Vec<T> {
    match request.ids() {
        None => rows.collect(),
        Some(ids) => {
            ids.iter().filter_map(|&wanted| rows.next_if(|row| id(row) == wanted)).collect()
        }
    }
}

impl PendingRequest {
    pub(super) fn new(request: Request) -> (Self, oneshot::Receiver<Result<Reply, LedgerError>>) {
        let (reply, answer) = oneshot::channel();
        (Self { request, reply: Some(reply) }, answer)
    }

    /// Sends the answer, once, if the caller still waits.
    pub(super) fn answer(&mut self, answer: Result<Reply, LedgerError>) {
        if let Some(reply) = self.reply.take() {
            // The caller may have been dropped.
            drop(reply.send(answer));
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.reply.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lookup_gets_its_own_rows_though_missing_ones_are_left_out() {
        let account = |id| tb::Account { id, ..tb::Account::default() };
        let (mut batch, mut answers) = (Vec::new(), Vec::new());
        for ids in [vec![1, 2], vec![2, 3], vec![], vec![9, 4, 4]] {
            let (pending, answer) = PendingRequest::new(Request::LookupAccounts(ids));
            batch.push(Queued::for_test(pending));
            answers.push(answer);
        }
        answer(batch, Reply::Accounts([2, 2, 3, 4, 4].map(account).to_vec()));

        let ids = |mut answer: oneshot::Receiver<Result<Reply, LedgerError>>| -> Vec<u128> {
            let Ok(Ok(Reply::Accounts(rows))) = answer.try_recv() else {
                panic!("a lookup of accounts is answered with accounts");
            };
            rows.iter().map(|row| row.id).collect()
        };
        let found: Vec<Vec<u128>> = answers.into_iter().map(ids).collect();
        assert_eq!(found, [vec![2], vec![2, 3], vec![], vec![4, 4]]);
    }
}
