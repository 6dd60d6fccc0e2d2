//! The body of a call on its way to the provider.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

/// Whether a call was sent. A connection asks for the body only when it is open, so before that the provider cannot know of the call.
#[derive(Debug, Clone, Default)]
pub(crate) struct SentFlag(Arc<AtomicBool>);

impl SentFlag {
    pub(crate) fn is_sent(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A body that was read before. It is never empty.
#[derive(Debug)]
pub(crate) struct TrackedBody {
    bytes: Full<Bytes>,
    sent: SentFlag,
}

impl TrackedBody {
    pub(crate) fn new(bytes: Bytes, sent: SentFlag) -> Self {
        assert!(!bytes.is_empty(), "a call is JSON");
        Self { bytes: Full::new(bytes), sent }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { bytes, sent } = self.get_mut();
        sent.0.store(true, Ordering::Relaxed);
        Pin::new(bytes).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.bytes.size_hint()
    }
}
