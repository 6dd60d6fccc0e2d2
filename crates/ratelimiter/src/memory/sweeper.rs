//! The thread that sweeps a limiter while nobody calls it.

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
    /// Begins to sweep a limiter's state every so often, until the state or the sweeper is dropped.
    pub(super) fn start(state: &Arc<State>, every: Duration) -> Self {
        let (stop, stopped) = mpsc::channel();
        let state = Arc::downgrade(state);
        std::thread::Builder::new()
            .name("ratelimiter-sweep".into())
            .spawn(move || sweep_until(&stopped, &state, every))
            .expect("the system has room for a thread");
        Self { _stop: stop }
    }
}

fn sweep_until(stopped: &mpsc::Receiver<()>, state: &Weak<State>, every: Duration) {
    while stopped.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
        let Some(state) = state.upgrade() else {
            return;
        };
        // What panicked before a change did no harm and may be tried again; after one, nobody can sweep any more.
        let swept = catch_unwind(AssertUnwindSafe(|| state.sweep()));
        if let Ok(Err(_)) = swept {
            return;
        }
    }
}
