//! The calls that the provider has seen, for tests to look at.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::body::Bytes;
use hyper::{HeaderMap, Method};
use tokio::sync::Notify;

/// The newest calls that are kept.
pub const CALLS_KEPT_MAX: usize = 10_000;

/// The bytes of bodies that are kept, in all calls together; beyond it the oldest calls are dropped.
const BODY_BYTES_KEPT_MAX: usize = 256 << 20;

/// A call as the provider got it.
#[derive(Debug, Clone)]
pub struct SeenCall {
    /// 1 for the first call.
    pub number: u64,
    /// The HTTP method.
    pub method: Method,
    /// With the query, as sent.
    pub path: String,
    /// As sent.
    pub headers: HeaderMap,
    /// Empty if it was too large.
    pub body: Bytes,
    /// How the call ended.
    pub ended: CallEnd,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// Not yet.
    Open,
    /// By the provider: with an answer, or by closing the connection as a fault.
    Answered,
    /// By the client, before all of the answer was sent.
    ClientGone,
}

/// What the provider has seen.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    kept: Mutex<Kept>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Kept {
    calls: VecDeque<SeenCall>,
    body_bytes: usize,
    seen_count: u64,
    ended_count: u64,
}

/// A call that has not ended. Dropping it means that the client is gone: hyper drops an answer that nobody can receive.
#[derive(Debug)]
pub(crate) struct OpenCall {
    log: Arc<CallLog>,
    number: u64,
    is_ended: bool,
}

impl CallLog {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call, which gets the next number.
    pub(crate) fn begin(self: &Arc<Self>, call: SeenCall) -> OpenCall {
        let mut kept = self.lock();
        kept.seen_count += 1;
        let number = kept.seen_count;
        kept.body_bytes += call.body.len();
        kept.calls.push_back(SeenCall { number, ended: CallEnd::Open, ..call });
        while kept.calls.len() > CALLS_KEPT_MAX || kept.body_bytes > BODY_BYTES_KEPT_MAX {
            let Some(oldest) = kept.calls.pop_front() else { break };
            kept.body_bytes -= oldest.body.len();
        }
        drop(kept);
        self.changed.notify_waiters();
        OpenCall { log: Arc::clone(self), number, is_ended: false }
    }

    /// The newest calls, oldest first.
    pub(crate) fn calls(&self) -> Vec<SeenCall> {
        self.lock().calls.iter().cloned().collect()
    }

    /// Resolves when so many calls were seen.
    pub(crate) async fn wait_for_seen(&self, count: u64) {
        self.wait_until(|kept| kept.seen_count >= count).await;
    }

    /// Resolves when so many calls have ended.
    pub(crate) async fn wait_for_ended(&self, count: u64) {
        self.wait_until(|kept| kept.ended_count >= count).await;
    }

    async fn wait_until(&self, is_reached: impl Fn(&Kept) -> bool) {
        loop {
            // Created before the look, so that no change between the look and the wait is missed.
            let changed = self.changed.notified();
            if is_reached(&self.lock()) {
                return;
            }
            changed.await;
        }
    }

    fn end(&self, number: u64, end: CallEnd) {
        let mut kept = self.lock();
        kept.ended_count += 1;
        let oldest = kept.calls.front().map_or(number, |call| call.number);
        // The call may have been dropped for newer ones.
        let index = number.checked_sub(oldest).and_then(|index| usize::try_from(index).ok());
        if let Some(call) = index.and_then(|index| kept.calls.get_mut(index)) {
            call.ended = end;
        }
        drop(kept);
        self.changed.notify_waiters();
    }
}

impl OpenCall {
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// The provider has done its part. Only the first time counts.
    pub(crate) fn answered(&mut self) {
        self.end(CallEnd::Answered);
    }

    fn end(&mut self, end: CallEnd) {
        if !self.is_ended {
            self.is_ended = true;
            self.log.end(self.number, end);
        }
    }
}

impl Drop for OpenCall {
    fn drop(&mut self) {
        self.end(CallEnd::ClientGone);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(body: &'static [u8]) -> SeenCall {
        SeenCall {
            number: 0,
            method: Method::POST,
            path: "/v1/messages".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(body),
            ended: CallEnd::Open,
        }
    }

    #[test]
    fn a_dropped_call_has_lost_its_client() {
        let log = Arc::new(CallLog::default());
        let (mut first, second, _third) =
            (log.begin(call(b"a")), log.begin(call(b"b")), log.begin(call(b"c")));
        first.answered();
        drop((first, second));
        let ends = log.calls().iter().map(|call| (call.number, call.ended)).collect::<Vec<_>>();
        assert_eq!(ends, [(1, CallEnd::Answered), (2, CallEnd::ClientGone), (3, CallEnd::Open)]);
    }

    #[test]
    fn only_the_newest_calls_are_kept() {
        let log = Arc::new(CallLog::default());
        let oldest = log.begin(call(b"oldest"));
        for _ in 0..CALLS_KEPT_MAX - 1 {
            log.begin(call(b"x")).answered();
        }
        assert_eq!(log.calls().first().map(|call| call.number), Some(1));
        let newest = log.begin(call(b"x"));
        drop((oldest, newest));
        let calls = log.calls();
        assert_eq!(calls.len(), CALLS_KEPT_MAX);
        assert_eq!(calls.first().map(|call| call.number), Some(2));
        assert_eq!(calls.last().map(|call| call.ended), Some(CallEnd::ClientGone));
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_call_that_it_waits_for() {
        let log = Arc::new(CallLog::default());
        let waiting = {
            let log = Arc::clone(&log);
            tokio::spawn(async move { log.wait_for_ended(2).await })
        };
        log.begin(call(b"")).answered();
        drop(log.begin(call(b"")));
        waiting.await.expect("the wait ends");
        log.wait_for_seen(2).await;
    }
}
