//! LISTEN for new work.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::{Instant, sleep_until, timeout};

use crate::statement::WorkQueue;
use crate::waiters::Waiters;

/// The first and longest delay before reconnecting.
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(50);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(2);
/// After how much silence the connection is checked, and the timeout of that check.
const TRY_AFTER: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Wakes the waiters of this process until it is aborted, on a separate connection.
///
/// All waiters are woken when listening starts, so that work added before is not missed.
pub(crate) async fn run(options: PgConnectOptions, channel: String, waiters: Arc<Waiters>) {
    // A pool of one connection, because a listener takes a pool.
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(ANSWER_WITHIN)
        .idle_timeout(None)
        .max_lifetime(None)
        .connect_lazy_with(options);
    let mut again_after = AGAIN_AFTER_MIN;
    loop {
        let listening = async {
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(&channel).await?;
            Ok::<_, sqlx::Error>(listener)
        };
        match listening.await {
            Ok(mut listener) => {
                again_after = AGAIN_AFTER_MIN;
                waiters.notify_all();
                let end = listen(&mut listener, &waiters).await;
                tracing::warn!(%channel, reason = %end, "LISTEN connection lost, reconnecting");
            }
            Err(error) => {
                tracing::debug!(%channel, %error, "LISTEN failed, workers poll");
            }
        }
        sleep_until(Instant::now() + again_after).await;
        again_after = (again_after * 2).min(AGAIN_AFTER_MAX);
    }
}

/// Listens until the connection is lost. Returns the reason.
async fn listen(listener: &mut PgListener, waiters: &Waiters) -> String {
    loop {
        match timeout(TRY_AFTER, listener.try_recv()).await {
            Ok(Ok(Some(notification))) => {
                let queue =
                    WorkQueue::ALL.into_iter().find(|queue| queue.name() == notification.payload());
                // Unknown queues are those of a newer program.
                let Some(queue) = queue else { continue };
                waiters.notify(queue);
            }
            Ok(Ok(None)) => return "the connection was lost".to_owned(),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => match timeout(ANSWER_WITHIN, listener.execute("SELECT 1")).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "the server did not answer".to_owned(),
            },
        }
    }
}
