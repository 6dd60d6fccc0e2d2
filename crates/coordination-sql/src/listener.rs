//! Listens for new work, so that an idle worker need not ask for it.

use std::sync::Arc;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::time::{Instant, sleep_until, timeout};

use crate::statement::Queue;
use crate::wake::Wake;

/// How long to wait before a lost connection is made anew, at first and at most.
const AGAIN_AFTER_MIN: Duration = Duration::from_millis(50);
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(2);
/// After how much silence the connection is tried, and how long the server has to answer.
const TRY_AFTER: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// Wakes the waiters of this process for as long as it is not aborted, on a connection of its own.
///
/// What was added while nobody listened is found all the same: everyone is woken when the listening
/// begins.
pub(crate) async fn run(options: PgConnectOptions, channel: String, wake: Arc<Wake>) {
    // A pool of one, because that is what a listener takes.
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
                wake.tell_all();
                let end = listen(&mut listener, &wake).await;
                tracing::warn!(%channel, reason = %end, "listening for work ended, trying anew");
            }
            Err(error) => {
                tracing::debug!(%channel, %error, "not listening for work, workers poll");
            }
        }
        sleep_until(Instant::now() + again_after).await;
        again_after = (again_after * 2).min(AGAIN_AFTER_MAX);
    }
}

/// Listens until the connection is lost. Says why.
async fn listen(listener: &mut PgListener, wake: &Wake) -> String {
    loop {
        match timeout(TRY_AFTER, listener.try_recv()).await {
            Ok(Ok(Some(told))) => {
                let queue = Queue::ALL.into_iter().find(|queue| queue.name() == told.payload());
                // A word that a newer program says.
                let Some(queue) = queue else { continue };
                wake.tell(queue);
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
