//! Where a run is, while it runs.

use std::fmt;
use std::io::{self, IsTerminal, Write};

use ratelimiter::clock::{Clock, MonotonicClock, Timestamp};

/// How wide a line on a terminal is kept, so that the next one can be written over it.
const LINE_CHARACTERS: usize = 100;

/// Says on stderr what is being measured: on a terminal in one line that changes, else only when a section begins.
#[derive(Debug)]
pub(crate) struct Progress {
    clock: MonotonicClock,
    started_at: Timestamp,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Silent,
    Lines,
    Terminal,
}

impl Progress {
    pub(crate) fn new() -> Self {
        let kind = if io::stderr().is_terminal() { Kind::Terminal } else { Kind::Lines };
        Self::of(kind)
    }

    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self::of(Kind::Silent)
    }

    fn of(kind: Kind) -> Self {
        let clock = MonotonicClock::new();
        let started_at = clock.now();
        Self { clock, started_at, kind }
    }

    /// A section begins or ends.
    pub(crate) fn section(&self, what: impl fmt::Display) {
        if self.kind != Kind::Silent {
            self.write(format_args!("{}\n", self.line(what)));
        }
    }

    /// The next turn begins.
    pub(crate) fn step(&self, what: impl fmt::Display) {
        if self.kind == Kind::Terminal {
            self.write(format_args!("{}\r", self.line(what)));
        }
    }

    /// Since the run began.
    pub(crate) fn minutes(&self) -> f64 {
        self.clock.now().since(self.started_at).as_secs_f64() / 60.0
    }

    fn line(&self, what: impl fmt::Display) -> String {
        let line = format!("[{:>4.0} s] {what}", self.minutes() * 60.0);
        let line: String = line.chars().take(LINE_CHARACTERS).collect();
        if self.kind == Kind::Terminal { format!("{line:<LINE_CHARACTERS$}") } else { line }
    }

    fn write(&self, text: fmt::Arguments<'_>) {
        // Nobody may be looking any more; the measurement goes on all the same.
        let mut stderr = io::stderr().lock();
        drop(stderr.write_fmt(text).and_then(|()| stderr.flush()));
    }
}
