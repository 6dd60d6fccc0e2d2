//! The lines that a process has written.

use std::fmt;
use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::PATIENCE;

/// What a process has written so far, in the order of arrival.
#[derive(Default)]
pub(super) struct Output {
    lines: Mutex<Lines>,
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct Lines {
    lines: Vec<Line>,
    /// How many of stdout and stderr are open.
    open_count: usize,
    waker: Option<Waker>,
}

pub(super) struct Line {
    pub(super) text: String,
    is_stdout: bool,
}

impl Output {
    /// Reads both streams of a process to their ends.
    pub(super) fn read(child: &mut Child) -> Arc<Self> {
        let output = Arc::new(Self::default());
        output.lock().open_count = 2;
        let stdout = child.stdout.take().expect("it is piped");
        let stderr = child.stderr.take().expect("it is piped");
        output.read_stream(stdout, true);
        output.read_stream(stderr, false);
        output
    }

    fn read_stream(self: &Arc<Self>, stream: impl Read + Send + 'static, is_stdout: bool) {
        let output = Arc::clone(self);
        thread::spawn(move || {
            for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                let text = String::from_utf8_lossy(&line).into_owned();
                output.change(|lines| lines.lines.push(Line { text, is_stdout }));
            }
            output.change(|lines| lines.open_count -= 1);
        });
    }

    fn change(&self, change: impl FnOnce(&mut Lines)) {
        let mut lines = self.lock();
        change(&mut lines);
        if let Some(waker) = lines.waker.take() {
            waker.wake();
        }
        self.changed.notify_all();
    }

    /// Waits until `look` finds something; `None` if the process ends before.
    pub(super) fn wait<T>(
        &self,
        what: &str,
        mut look: impl FnMut(&Lines) -> Option<T>,
    ) -> Option<T> {
        let mut found = None;
        let (lines, waited) = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, |lines| {
                found = look(lines);
                found.is_none() && lines.open_count > 0
            })
            .unwrap_or_else(PoisonError::into_inner);
        drop(lines);
        assert!(!waited.timed_out(), "gave up after {PATIENCE:?}: {what}");
        found
    }

    /// The same as a future's poll. There is one such future at a time.
    pub(super) fn poll<T>(
        &self,
        context: &Context<'_>,
        look: impl FnOnce(&Lines) -> Option<T>,
    ) -> Poll<Option<T>> {
        let mut lines = self.lock();
        let found = look(&lines);
        if found.is_none() && lines.open_count > 0 {
            lines.waker = Some(context.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(found)
    }

    fn lock(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    pub(super) fn find(&self, is_wanted: impl Fn(&Line) -> bool) -> Option<String> {
        self.lines.iter().find(|line| is_wanted(line)).map(|line| line.text.clone())
    }

    /// The first line of stdout at or after a position, which moves behind it.
    pub(super) fn next_of_stdout(&self, position: &mut usize) -> Option<String> {
        let skipped = self.lines[*position..].iter().position(|line| line.is_stdout)?;
        *position += skipped + 1;
        Some(self.lines[*position - 1].text.clone())
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lock().lines.iter().try_for_each(|line| writeln!(f, "{}", line.text))
    }
}
