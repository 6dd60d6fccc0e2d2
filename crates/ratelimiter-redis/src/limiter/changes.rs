//! Changes of definitions that limiters announce to each other.
//!
//! No answer depends on them, since every script compares generations. Who follows them knows of a change without a request, and can let those ask
//! who wait for room.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use redis::{RedisError, Value};
use tokio::time::{Instant, sleep_until, timeout};

use super::RedisLimiter;
use crate::connections::{RECONNECT_AFTER, RECONNECT_AFTER_MAX, timed_out};

/// How long to listen before asking whether the connection is still there.
const PING_EVERY: Duration = Duration::from_secs(10);

impl RedisLimiter {
    /// Follows the changes that others make to the definitions: reads them, then calls `changed`. It is also called after each connect, since what
    /// was announced before is lost. Goes on through outages until it is dropped.
    pub async fn follow_changes(&self, changed: impl Fn() + Send + Sync) -> Infallible {
        let mut pause = RECONNECT_AFTER;
        let mut was_refused = false;
        loop {
            let Err(error) = self.listen(&changed).await;
            if self.redis.counters().end_subscription() {
                (pause, was_refused) = (RECONNECT_AFTER, false);
            }
            // Of a Redis that is away, the requests tell.
            if !error.is_io_error() && !was_refused {
                tracing::warn!(%error, "changes of definitions elsewhere are noticed late");
                was_refused = true;
            }
            sleep_until(Instant::now() + pause).await;
            pause = (pause * 2).min(RECONNECT_AFTER_MAX);
        }
    }

    async fn listen(&self, changed: &(impl Fn() + Send + Sync)) -> Result<Infallible, RedisError> {
        let config = self.redis.config();
        let channel = format!("{}changes", config.prefix);
        let subscribe = async {
            let settings = config.connection_settings();
            let mut messages = config.address.listen(&settings, config.request_timeout).await?;
            messages.subscribe(channel).await?;
            Ok(messages)
        };
        let subscribed = timeout(config.request_timeout, subscribe).await;
        let (mut sink, mut messages) = subscribed.unwrap_or_else(|_| Err(timed_out()))?.split();
        self.redis.counters().begin_subscription();
        // What was announced before is lost.
        let mut is_announced = true;
        loop {
            let is_known = self.has_present_definitions().await;
            if is_known == Ok(false) && !is_announced {
                // The connection may be to a server that has left the cluster.
                return Err(hung_up());
            }
            if is_announced && is_known.is_ok() {
                changed();
                is_announced = false;
            }
            // Without an answer the definitions are read again, soon.
            let wait = if is_known.is_ok() { PING_EVERY } else { RECONNECT_AFTER_MAX };
            match timeout(wait, messages.next()).await {
                Ok(Some(_)) => {
                    // One read is enough for all that have come.
                    let others = std::iter::from_fn(|| messages.next().now_or_never().flatten());
                    self.redis.counters().count_changes(1 + others.count() as u64);
                    is_announced = true;
                }
                Ok(None) => return Err(hung_up()),
                Err(_) => {
                    let pong = timeout(config.request_timeout, sink.ping::<Value>()).await;
                    pong.unwrap_or_else(|_| Err(timed_out()))?;
                }
            }
        }
    }
}

fn hung_up() -> RedisError {
    io::Error::from(io::ErrorKind::BrokenPipe).into()
}
