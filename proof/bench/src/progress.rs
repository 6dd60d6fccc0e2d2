//! Progress of a run on stderr.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};

/// Lines on a terminal are padded to this width, so that the next one overwrites all of it.
const LINE_CHARACTERS: usize = 100;

/// On a terminal one line that changes with each measurement, else one line per section.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: MonotonicClock,
    started_at: Timestamp,
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let clock = MonotonicClock::new();
        let started_at = clock.now();
        Self { clock, started_at, is_terminal: io::stderr().is_terminal() }
    }

    /// A section starts or ends.
    pub(crate) fn section(&self, what: impl fmt::Display) {
        self.write(what, '\n');
    }

    /// The next measurement starts.
    pub(crate) fn step(&self, what: impl fmt::Display) {
        if self.is_terminal {
            self.write(what, '\r');
        }
    }

    /// Minutes since the start of the run.
    pub(crate) fn minutes(&self) -> f64 {
        self.clock.now().since(self.started_at).as_secs_f64() / 60.0
    }

    fn write(&self, what: impl fmt::Display, end: char) {
        let line = format!("[{:>4.0} s] {what}", self.minutes() * 60.0);
        let width = if self.is_terminal { LINE_CHARACTERS } else { 0 };
        let mut stderr = io::stderr().lock();
        // A closed stderr does not stop the measurement.
        drop(write!(stderr, "{line:<width$.LINE_CHARACTERS$}{end}").and_then(|()| stderr.flush()));
    }
}
