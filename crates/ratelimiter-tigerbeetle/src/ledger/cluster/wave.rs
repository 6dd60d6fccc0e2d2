//! Queries in waves (`TB-23`).
//!
//! Each query is a request, and the client joins several of them into one message only while
//! several are outstanding. So all queued queries are submitted together, and nothing more until
//! all of them are answered: an evicted client leaves outstanding requests without an answer, and
//! aborts the process at the next submit.

use std::future::Future;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use tigerbeetle as tb;

use super::request::{Batch, Reply};

pub(super) struct WaveResult {
    /// In the order of the batch; `None` where there is no answer.
    pub(super) answers: Vec<Option<Result<Reply, QueryTooLarge>>>,
    /// Why the client was lost. Without it, every query has its answer.
    pub(super) broken: Option<tb::Error>,
}

/// The client rejects a query for this many rows.
pub(super) struct QueryTooLarge;

/// Submits every query at once; resolves when the wave has ended.
pub(super) fn submit(
    client: &tb::Client,
    batch: &Batch,
) -> impl Future<Output = WaveResult> + use<> {
    let mut calls = FuturesUnordered::new();
    for (at, queued) in batch.iter().enumerate() {
        let call = queued.item.request.call(client);
        calls.push(async move { (at, call.await) });
    }
    let mut wave = WaveResult { answers: batch.iter().map(|_| None).collect(), broken: None };
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
