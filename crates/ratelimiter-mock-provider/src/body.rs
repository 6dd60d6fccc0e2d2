//! The body of an answer: frames at their pace, and then an end or none.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Bytes};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::calls::OpenCall;
use crate::charge::Charge;
use crate::faulty::Ending;
use crate::payload::{Frame, Frames};

/// An early end of a body discards what hyper has not written yet, so it comes this much after the last frame.
const WRITTEN_AFTER: Duration = Duration::from_millis(10);

pub(crate) struct MockBody {
    /// Known before it is sent, so that the call ends with its last frame: hyper drops a body that has reached its length.
    next: Option<Frame>,
    frames: Frames,
    ending: Ending,
    chunk_interval: Duration,
    pause: Option<Pin<Box<Sleep>>>,
    call: OpenCall,
    charge: Option<Charge>,
}

/// The mock closes the connection in the middle of an answer, as a fault.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed as a fault")]
pub(crate) struct Closed;

impl MockBody {
    pub(crate) fn new(
        mut frames: Frames,
        ending: Ending,
        chunk_interval: Duration,
        call: OpenCall,
        charge: Option<Charge>,
    ) -> Self {
        let next = frames.next();
        let mut body = Self { next, frames, ending, chunk_interval, pause: None, call, charge };
        if body.is_end_stream() {
            body.end();
        }
        body
    }

    fn advance(&mut self) {
        self.next = self.frames.next();
        let pause = match (&self.next, self.ending) {
            (Some(_), _) => self.chunk_interval,
            (None, Ending::Complete) => return self.end(),
            (None, Ending::Abort | Ending::Short) => WRITTEN_AFTER,
            (None, Ending::Stall) => return,
        };
        if !pause.is_zero() {
            self.pause = Some(Box::pin(sleep_until(Instant::now() + pause)));
        }
    }

    fn end(&mut self) {
        self.charge = None;
        self.call.answered();
    }
}

impl Body for MockBody {
    type Data = Bytes;
    type Error = Closed;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Closed>>> {
        let body = self.get_mut();
        if let Some(pause) = &mut body.pause {
            ready!(pause.as_mut().poll(context));
            body.pause = None;
        }
        if let Some(Frame { bytes, tokens }) = body.next.take() {
            if let Some(charge) = &mut body.charge {
                charge.add(tokens);
            }
            body.advance();
            return Poll::Ready(Some(Ok(hyper::body::Frame::data(bytes))));
        }
        match body.ending {
            // Nothing wakes this; hyper drops the body when the client is gone.
            Ending::Stall => return Poll::Pending,
            Ending::Complete => return Poll::Ready(None),
            Ending::Abort | Ending::Short => body.end(),
        }
        let error = (body.ending == Ending::Abort).then_some(Err(Closed));
        Poll::Ready(error)
    }

    fn is_end_stream(&self) -> bool {
        self.next.is_none() && self.ending == Ending::Complete
    }
}
