//! Reads the bodies of calls, within bounds.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::HeaderMap;
use hyper::body::Body;
use hyper::header::CONTENT_LENGTH;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::refusal::{Refusal, RefusalKind};
use crate::upstream::BoxError;

/// Time for a body to arrive.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// Bodies are counted in pieces of this size.
const PIECE_BYTES: usize = 1_024;
/// When to send again what does not fit.
const FULL_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The bytes of all bodies that are held, and of each.
#[derive(Debug)]
pub(crate) struct BodyBounds {
    bytes_max: usize,
    buffered: Arc<Semaphore>,
}

/// A body that was read. Its share of the bytes that may be held is free again when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldBody {
    pub(crate) bytes: Bytes,
    pub(crate) share: Option<OwnedSemaphorePermit>,
}

impl BodyBounds {
    pub(crate) fn new(bytes_max: usize, buffered_bytes_max: usize) -> Self {
        let pieces = buffered_bytes_max.div_ceil(PIECE_BYTES).min(Semaphore::MAX_PERMITS);
        Self { bytes_max, buffered: Arc::new(Semaphore::new(pieces)) }
    }

    pub(crate) async fn read<B>(&self, headers: &HeaderMap, body: B) -> Result<HeldBody, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let length =
            headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if length.is_some_and(|length: usize| length > self.bytes_max) {
            return Err(self.too_large());
        }
        tokio::time::timeout(READ_TIMEOUT, self.read_frames(body)).await.unwrap_or_else(|_| {
            let message = format!("the body did not arrive within {} s", READ_TIMEOUT.as_secs());
            Err(Refusal::new(RefusalKind::TooSlow, message))
        })
    }

    /// Only what has arrived counts as held: whoever announces much and sends little takes no room.
    async fn read_frames<B>(&self, body: B) -> Result<HeldBody, Refusal>
    where
        B: Body<Data = Bytes, Error: Into<BoxError>>,
    {
        let mut body = std::pin::pin!(body);
        let mut share = None;
        let mut bytes = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|_| Refusal::new(RefusalKind::Invalid, "the body ended before its end"))?;
            let Ok(data) = frame.into_data() else { continue };
            if bytes.len() + data.len() > self.bytes_max {
                return Err(self.too_large());
            }
            self.hold(&mut share, bytes.len() + data.len())?;
            // A body in one piece is not copied.
            if bytes.is_empty() && body.is_end_stream() {
                return Ok(HeldBody { bytes: data, share });
            }
            bytes.extend_from_slice(&data);
        }
        Ok(HeldBody { bytes: bytes.freeze(), share })
    }

    /// Makes a share large enough for so many bytes.
    fn hold(&self, share: &mut Option<OwnedSemaphorePermit>, bytes: usize) -> Result<(), Refusal> {
        let held = share.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.div_ceil(PIECE_BYTES).saturating_sub(held);
        if missing == 0 {
            return Ok(());
        }
        let missing = u32::try_from(missing).map_err(|_| self.too_large())?;
        let more = Arc::clone(&self.buffered).try_acquire_many_owned(missing).map_err(|_| {
            let message = "the gateway holds as many bytes of waiting calls as it may \
                (gateway.buffered_bytes_max); send the call again later";
            Refusal::new(RefusalKind::Unavailable, message).retry_after(FULL_RETRY_AFTER)
        })?;
        match share {
            Some(share) => share.merge(more),
            None => *share = Some(more),
        }
        Ok(())
    }

    fn too_large(&self) -> Refusal {
        let message = format!(
            "the body of a call has at most {} bytes here (gateway.body_bytes_max)",
            self.bytes_max
        );
        Refusal::new(RefusalKind::TooLarge, message)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    async fn read(bounds: &BodyBounds, chunks: &[usize]) -> Result<HeldBody, RefusalKind> {
        let frames =
            chunks.iter().map(|bytes| Ok::<_, BoxError>(Frame::data(vec![0; *bytes].into())));
        let body = StreamBody::new(futures::stream::iter(frames.collect::<Vec<_>>()));
        bounds.read(&HeaderMap::new(), body).await.map_err(|refusal| refusal.kind)
    }

    /// GW-10
    #[tokio::test]
    async fn gw_10_a_body_has_a_bound_with_and_without_a_length() {
        let bounds = BodyBounds::new(100, 1_000_000);
        assert_eq!(read(&bounds, &[50, 50]).await.unwrap().bytes.len(), 100);
        assert_eq!(read(&bounds, &[50, 51]).await.unwrap_err(), RefusalKind::TooLarge);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, 101.into());
        let refused = bounds.read(&headers, Full::new(Bytes::new())).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::TooLarge);
    }

    #[tokio::test]
    async fn all_bodies_together_have_a_bound() {
        let bounds = BodyBounds::new(10 * PIECE_BYTES, 10 * PIECE_BYTES);
        let first = read(&bounds, &[PIECE_BYTES; 6]).await.unwrap();
        assert_eq!(read(&bounds, &[PIECE_BYTES; 5]).await.unwrap_err(), RefusalKind::Unavailable);
        assert!(read(&bounds, &[PIECE_BYTES; 4]).await.is_ok());
        drop(first);
        assert!(read(&bounds, &[PIECE_BYTES; 10]).await.is_ok(), "a share returns with its body");
    }

    #[tokio::test]
    async fn a_body_that_is_only_announced_takes_no_room() {
        let bounds = BodyBounds::new(PIECE_BYTES, PIECE_BYTES);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, PIECE_BYTES.into());
        let silent = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BoxError>>());
        let mut reading = std::pin::pin!(bounds.read(&headers, silent));
        assert!(futures::poll!(&mut reading).is_pending());
        assert!(read(&bounds, &[PIECE_BYTES]).await.is_ok());
    }

    /// GW-10
    #[tokio::test(start_paused = true)]
    async fn gw_10_a_body_that_does_not_arrive_ends_its_call() {
        let bounds = BodyBounds::new(100, 1_000);
        let silent = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, BoxError>>());
        let refused = bounds.read(&HeaderMap::new(), silent).await.unwrap_err();
        assert_eq!(refused.kind, RefusalKind::TooSlow);
    }
}
