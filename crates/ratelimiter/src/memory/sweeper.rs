//! The background sweep thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::State;

/// Keeps the sweeping thread alive; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Sweeper {
    _stop: mpsc::Sender<()>,
}

impl Sweeper {
    /// Starts a thread that sweeps the state at this interval, until the state or the sweeper is dropped.
    pub(super) fn start(state: &Arc<State>, every: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        let state = Arc::downgrade(state);
        std::thread::Builder::new()
            .name("ratelimiter-sweep".into())
            .spawn(move || sweep_until(&stopped, &state, every))
            .expect("a thread can be started");
        Self { _stop: stop }
    }
}

fn sweep_until(stopped: &mpsc::Receiver<()>, state: &Weak<State>, every: Duration) {
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout)
        && let Some(state) = state.upgrade()
    {
        // After a panic before a change the sweep is retried; a poisoned state cannot be swept any more.
        let swept = catch_unwind(AssertUnwindSafe(|| state.sweep()));
        if let Ok(Err(_)) = swept {
            return;
        }
    }
}
