//! What the handlers have seen, and what the dispatchers promise about it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coordination::WorkerSettings;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::plan::End;
use crate::outcome::{Promise, Violation};

/// Shared by the handlers of one run.
#[derive(Debug, Clone)]
pub(super) struct Ledger(Arc<Mutex<Entries>>);

#[derive(Debug)]
pub(super) struct Entries {
    messages: BTreeMap<u64, Facts>,
    started_at: Instant,
    is_traced: bool,
    pub(super) trace: String,
    pub(super) checks: u64,
    violation: Option<Violation>,
}

#[derive(Debug)]
struct Facts {
    end: End,
    /// Calls of its handler that ended badly.
    failures: u32,
    /// Calls that the end of the process cut off.
    cut_off: u32,
}

/// A message as the provider has it in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Unfinished,
    Done,
    Dead,
}

/// A process that runs dispatchers.
#[derive(Debug, Clone, Default)]
pub(super) struct Process {
    pub(super) stop: CancellationToken,
    pub(super) killed: CancellationToken,
}

/// One call of a handler. Dropped before its end it was cut off.
#[derive(Debug)]
pub(super) struct Call {
    ledger: Ledger,
    number: u64,
    process: Process,
    has_ended: bool,
}

impl Ledger {
    pub(super) fn new(is_traced: bool) -> Ledger {
        Ledger(Arc::new(Mutex::new(Entries {
            messages: BTreeMap::new(),
            started_at: Instant::now(),
            is_traced,
            trace: String::new(),
            checks: 0,
            violation: None,
        })))
    }

    pub(super) fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A handler is called.
    pub(super) fn call(&self, number: u64, process: &Process) -> (Call, End) {
        let mut entries = self.entries();
        entries.note(|| format!("message {number} is handled"));
        if process.stop.is_cancelled() {
            let detail = format!("message {number} after the process was told to stop");
            entries.break_promise(Promise::NothingStartsAfterStop, detail);
        }
        let end = entries.messages.get(&number).expect("it was enqueued").end;
        let (ledger, process) = (self.clone(), process.clone());
        (Call { ledger, number, process, has_ended: false }, end)
    }
}

impl Entries {
    pub(super) fn add(&mut self, number: u64, end: End) {
        self.messages.insert(number, Facts { end, failures: 0, cut_off: 0 });
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.is_traced {
            let at = self.started_at.elapsed().as_secs_f64() * 1_000.0;
            writeln!(self.trace, "{at:>10.3}ms  {}", text()).expect("a text takes any line");
        }
    }

    pub(super) fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// No handler is called more often than it may be.
    pub(super) fn check_calls(&mut self, settings: &WorkerSettings) {
        let WorkerSettings { attempts_max, lost_attempts_max, .. } = *settings;
        let mut broken = None;
        for (number, facts) in &self.messages {
            self.checks += 1;
            let Facts { failures, cut_off, .. } = *facts;
            if failures > attempts_max || cut_off > lost_attempts_max {
                broken = Some(format!("message {number}: {failures} failed, {cut_off} cut off"));
            }
        }
        if let Some(detail) = broken {
            self.break_promise(Promise::GivenUpInTheEnd, detail);
        }
    }

    /// Nothing is left, and nothing has died without a reason.
    pub(super) fn check_fate(&mut self, number: u64, fate: Fate, settings: &WorkerSettings) {
        self.checks += 1;
        let WorkerSettings { attempts_max, lost_attempts_max, .. } = *settings;
        let Facts { failures, cut_off, .. } = self.messages[&number];
        let has_reason = failures >= attempts_max || cut_off >= lost_attempts_max;
        let detail = format!("message {number}: {failures} failed, {cut_off} cut off");
        match fate {
            Fate::Unfinished => self.break_promise(Promise::NeverLost, detail),
            Fate::Dead if !has_reason => self.break_promise(Promise::NoUnhandledDeath, detail),
            Fate::Dead | Fate::Done => {}
        }
    }

    fn break_promise(&mut self, promise: Promise, detail: String) {
        self.violation.get_or_insert(Violation { promise, detail });
    }
}

impl Call {
    /// The handler ends, well or badly.
    pub(super) fn end(mut self, is_well: bool) {
        self.has_ended = true;
        let mut entries = self.ledger.entries();
        let facts = entries.messages.get_mut(&self.number).expect("it was called");
        facts.failures += u32::from(!is_well);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.has_ended && self.process.killed.is_cancelled() {
            let mut entries = self.ledger.entries();
            let facts = entries.messages.get_mut(&self.number).expect("it was called");
            facts.cut_off += 1;
        }
    }
}
