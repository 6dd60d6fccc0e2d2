//! A provider's answer on its way to the caller: chunk by chunk, with back-pressure (`GW-04`).

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body, Frame, Incoming};
use tokio::time::{Instant, Sleep};

use crate::answer::{AnswerEnd, PlainMeter, StreamMeter};
use crate::attempt::Attempt;
use crate::caller::Caller;
use crate::limiter::GatewayLimiter;
use crate::observer::CallOutcome;
use crate::settle::AttemptEnd;

/// Passes on an answer, and settles its call at the end, or when it is dropped.
pub(crate) struct AnswerBody<L: GatewayLimiter, C> {
    upstream: Incoming,
    meter: Meter,
    /// `None` for an answer that is not counted, or was settled before.
    attempt: Option<Attempt<L>>,
    caller: Option<C>,
    /// The longest time without a byte.
    silence_max: Duration,
    timer: Pin<Box<Sleep>>,
    last_byte_at: Instant,
    /// Bytes that the provider has announced and not sent yet.
    missing: Option<u64>,
    received: u64,
    is_done: bool,
    _open: Option<OpenStream>,
}

/// The body of an answer.
pub(crate) type GatewayBody<L, C> = Either<Full<Bytes>, AnswerBody<L, C>>;

/// Reads usage as it passes.
#[derive(Debug)]
pub(crate) enum Meter {
    None,
    Plain(PlainMeter),
    Stream(StreamMeter),
    /// It cannot be read.
    Unreadable,
}

/// Counts open streams.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<AtomicUsize>);

/// Why an answer ends before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AnswerError {
    #[error("the provider's answer was cut: {0}")]
    Cut(String),
    #[error("the provider sent no byte for {} ms", .0.as_millis())]
    Silent(Duration),
    #[error("the caller went away")]
    CallerGone,
}

impl OpenStream {
    pub(crate) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<L: GatewayLimiter, C: Caller> AnswerBody<L, C> {
    pub(crate) fn new(
        upstream: Incoming,
        meter: Meter,
        attempt: Option<Attempt<L>>,
        caller: Option<C>,
        silence_max: Duration,
        open: Option<OpenStream>,
    ) -> Self {
        let now = Instant::now();
        let missing = upstream.size_hint().exact();
        Self {
            upstream,
            meter,
            attempt,
            caller,
            silence_max,
            timer: Box::pin(tokio::time::sleep_until(now + silence_max)),
            last_byte_at: now,
            missing,
            received: 0,
            is_done: false,
            _open: open,
        }
    }

    fn feed(&mut self, data: Bytes) -> Bytes {
        self.last_byte_at = Instant::now();
        self.received += data.len() as u64;
        if let Some(missing) = &mut self.missing {
            *missing = missing.saturating_sub(data.len() as u64);
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.has_byte();
        }
        match &mut self.meter {
            Meter::None | Meter::Unreadable => data,
            Meter::Plain(meter) => {
                meter.feed(&data);
                data
            }
            Meter::Stream(meter) => meter.feed(data),
        }
    }

    /// The provider's answer has ended; returns what was held back of it.
    fn finish(&mut self) -> Bytes {
        let rest = match &mut self.meter {
            Meter::None | Meter::Plain(_) | Meter::Unreadable => Bytes::new(),
            Meter::Stream(meter) => meter.finish(),
        };
        self.settle(None);
        rest
    }

    /// Neither the provider has a byte, nor is it known yet whether that ends the answer.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<AnswerError> {
        if let Some(caller) = &self.caller
            && caller.poll_gone(context).is_ready()
        {
            self.settle(Some(CallOutcome::CallerGone));
            return Poll::Ready(AnswerError::CallerGone);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            let silent_until = self.last_byte_at + self.silence_max;
            if silent_until <= Instant::now() {
                let error = AnswerError::Silent(self.silence_max);
                self.cut(&error);
                return Poll::Ready(error);
            }
            self.timer.as_mut().reset(silent_until);
        }
        Poll::Pending
    }
}

impl<L: GatewayLimiter, C> AnswerBody<L, C> {
    /// The provider did not send its answer to the end.
    fn cut(&mut self, error: &AnswerError) {
        if let Some(attempt) = &self.attempt {
            attempt.log_cut(error);
        }
        self.settle(Some(CallOutcome::Cut));
    }

    /// Settles the call: it was answered to the end, or `cut` says why it was not.
    fn settle(&mut self, cut: Option<CallOutcome>) {
        self.is_done = true;
        let Some(mut attempt) = self.attempt.take().filter(|attempt| !attempt.is_ended()) else {
            return;
        };
        let observed = match &self.meter {
            Meter::None => return,
            Meter::Plain(meter) => meter.observed().or_received(self.received),
            Meter::Stream(meter) => meter.observed(),
            Meter::Unreadable => {
                let outcome = cut.unwrap_or(CallOutcome::Answered);
                return attempt.end(AttemptEnd::NoAnswer, outcome);
            }
        };
        let is_stream = matches!(self.meter, Meter::Stream(_));
        match (observed.end, cut) {
            (AnswerEnd::Complete, _) | (AnswerEnd::Open, None) => {
                let (usage, counted) = (observed.usage, attempt.counted(&observed));
                attempt.end(AttemptEnd::Answered { usage, counted }, CallOutcome::Answered);
            }
            (AnswerEnd::Failed, cut) => {
                attempt.end(attempt.cut(&observed), cut.unwrap_or(CallOutcome::Cut));
            }
            // The whole of a plain answer was made before it was sent.
            (AnswerEnd::Open, Some(outcome)) if !is_stream => {
                attempt.end(AttemptEnd::PlainAnswerCut, outcome);
            }
            (AnswerEnd::Open, Some(outcome)) => attempt.end(attempt.cut(&observed), outcome),
        }
    }
}

impl<L: GatewayLimiter, C: Caller + Unpin> Body for AnswerBody<L, C> {
    type Data = Bytes;
    type Error = AnswerError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnswerError>>> {
        let this = self.get_mut();
        while !this.is_done {
            match Pin::new(&mut this.upstream).poll_frame(context) {
                Poll::Pending => return this.poll_end(context).map(|error| Some(Err(error))),
                Poll::Ready(None) => {
                    let rest = this.finish();
                    return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
                }
                Poll::Ready(Some(Err(error))) => {
                    let error = AnswerError::Cut(error.to_string());
                    this.cut(&error);
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        let passed = this.feed(data);
                        if !passed.is_empty() {
                            return Poll::Ready(Some(Ok(Frame::data(passed))));
                        }
                    }
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.is_done
    }
}

impl<L: GatewayLimiter, C> Drop for AnswerBody<L, C> {
    fn drop(&mut self) {
        if !self.is_done {
            // hyper stops asking once it has as many bytes as were announced.
            let is_whole = self.missing == Some(0);
            self.settle((!is_whole).then_some(CallOutcome::CallerGone));
        }
    }
}
