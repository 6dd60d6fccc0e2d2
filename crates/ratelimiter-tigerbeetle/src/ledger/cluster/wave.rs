//! Queries in waves (`TB-23`).
//!
//! A query has a request of its own, and the client joins several of them into one message only
//! while several are outstanding. So those that are queued are submitted together, and nothing more
//! until all of them are answered: an evicted client leaves what is outstanding without an answer,
//! and aborts the process at the next submit.

use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tigerbeetle as tb;

use super::request::{Batch, Reply};

/// How a wave ended.
pub(super) struct Wave {
    /// In the order of the batch; `None` where there is no answer.
    pub(super) answers: Vec<Option<Result<Reply, QueryTooLarge>>>,
    /// Why the client is of no use any more. Without it, every query has its answer.
    pub(super) broken: Option<tb::Error>,
}

/// The client does not take a query for so many rows.
pub(super) struct QueryTooLarge;

/// Hands every query to the client at once; resolves when the wave has ended.
pub(super) fn submit(client: &tb::Client, batch: &Batch) -> impl Future<Output = Wave> + use<> {
    let mut calls = FuturesUnordered::new();
    for (at, queued) in batch.iter().enumerate() {
        let call = queued.item.request.call(client);
        calls.push(async move { (at, call.await) });
    }
    let mut wave = Wave { answers: batch.iter().map(|_| None).collect(), broken: None };
    async move {
        while let Some((at, answer)) = calls.next().await {
            wave.answers[at] = match answer {
                Ok(reply) => Some(Ok(reply)),
                Err(tb::Error::TooMuchData) => Some(Err(QueryTooLarge)),
                Err(error) => {
                    wave.broken = Some(error);
                    break;
                }
            };
        }
        wave
    }
}
