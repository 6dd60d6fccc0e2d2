//! How planned reserves wait.

use std::time::Duration;

use ratelimiter::Wait;

/// How a reserve waits for room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlannedWait {
    pub(crate) at_most_ms: u64,
    pub(crate) queue: Queue,
    pub(crate) leaves: Option<Leave>,
}

/// Which queue a reserve waits in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Queue(pub(crate) u8);

/// When a client goes away if it has no answer by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    After {
        ms: u64,
    },
    /// When the next complete has made room at its server, before anybody else runs there.
    WithNextComplete,
}

impl PlannedWait {
    pub(crate) const fn at_most(&self) -> Duration {
        Duration::from_millis(self.at_most_ms)
    }

    pub(super) fn wait(&self) -> Wait {
        Wait::new(self.at_most(), self.queue.name()).expect("plans are valid")
    }
}

impl Queue {
    pub(crate) const fn name(self) -> &'static str {
        match self.0 {
            0 => "",
            1 => "acme",
            _ => "globex",
        }
    }
}
