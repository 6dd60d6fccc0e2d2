//! A log of handler calls, and their invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use coordination::CancellationToken;
use ratelimiter::clock::Timestamp;
use tokio::time::Instant;

use super::plan::{End, Work};
use super::settings::{ATTEMPTS_MAX, JOB_CLAIM, LOST_ATTEMPTS_MAX, TIGHT_SLOTS};
use crate::outcome::{Invariant, Violation};

/// What handlers were called for and what became of it.
#[derive(Default)]
pub(super) struct HandlerLog {
    facts: BTreeMap<u64, Facts>,
    /// By call.
    running: BTreeMap<u64, Running>,
    calls: u64,
}

struct Facts {
    work: Option<Work>,
    end: End,
    /// Calls that ended badly.
    failed: u32,
    /// Calls that were cut off with their process.
    cut_off: u32,
    /// Calls that their worker dropped: they took too long, or the worker had to stop.
    dropped: u32,
    /// What its calls gave.
    outputs: BTreeSet<String>,
}

struct Running {
    number: u64,
    process: ProcessStatus,
    started_at: Instant,
    /// Until when the limiter holds its slot, if it is a job.
    held_until: Option<Timestamp>,
}

/// The state of a process. Clones share it.
#[derive(Clone, Default)]
pub(super) struct ProcessStatus {
    pub(super) stop: CancellationToken,
    pub(super) killed: CancellationToken,
    /// Until when its calls or their answers were held back last.
    late_until: Arc<Mutex<Option<Instant>>>,
}

impl ProcessStatus {
    pub(super) fn set_late(&self, until: Instant) {
        let mut late_until = self.late_until.lock().unwrap_or_else(PoisonError::into_inner);
        *late_until = late_until.max(Some(until));
    }

    fn was_late_since(&self, at: Instant) -> bool {
        let late_until = self.late_until.lock().unwrap_or_else(PoisonError::into_inner);
        late_until.is_some_and(|until| until >= at)
    }
}

impl HandlerLog {
    pub(super) fn plan(&mut self, number: u64, work: Work, end: End) {
        self.facts.insert(number, Facts::new(Some(work), end));
    }

    pub(super) fn has_given(&self, number: u64, output: &str) -> bool {
        self.facts.get(&number).is_some_and(|facts| facts.outputs.contains(output))
    }

    /// A handler is called. Gives the number of the call, and how it is to end.
    pub(super) fn start(
        &mut self,
        number: u64,
        process: &ProcessStatus,
        held_until: Option<Timestamp>,
    ) -> (u64, End) {
        let (call, started_at, process) = (self.calls, Instant::now(), process.clone());
        self.calls += 1;
        self.running.insert(call, Running { number, process, started_at, held_until });
        // The runs of the cron job are not planned.
        let unplanned = || Facts::new(None, End::Well { after_ms: 0 });
        (call, self.facts.entry(number).or_insert_with(unplanned).end)
    }

    /// What a call that starts now violates.
    pub(super) fn check_start(
        &self,
        number: u64,
        process: &ProcessStatus,
        is_job: bool,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let violation = |invariant, detail| Err(Violation { invariant, detail });
        if process.stop.is_cancelled() {
            let detail = format!("{number} after the process was told to stop");
            return violation(Invariant::NothingStartsAfterStop, detail);
        }
        let mut others = self.running.values().filter(|running| running.number == number);
        // A runner that cannot extend its claim in time loses it, and hears of that later.
        let is_twice = |other: &Running| {
            !is_job || !other.process.was_late_since(other.started_at - JOB_CLAIM)
        };
        if others.any(is_twice) {
            return violation(Invariant::HeldByOne, format!("{number} is handled by two at once"));
        }
        let holds_slot = |running: &&Running| {
            self.is_tight(running.number) && running.held_until.is_some_and(|until| until > now)
        };
        let held = u64::try_from(self.running.values().filter(holds_slot).count());
        if self.is_tight(number) && held.expect("they are few") >= TIGHT_SLOTS {
            let detail = format!("{number} starts, and all {TIGHT_SLOTS} slots are held");
            return violation(Invariant::NeverAboveCapacity, detail);
        }
        Ok(())
    }

    fn is_tight(&self, number: u64) -> bool {
        let work = self.facts.get(&number).and_then(|facts| facts.work);
        work == Some(Work::Job { is_tight: true })
    }

    /// A call has ended well, with this output.
    pub(super) fn succeed(&mut self, call: u64, output: String) {
        let running = self.running.remove(&call).expect("it was started");
        let facts = self.facts.get_mut(&running.number).expect("it was started");
        facts.outputs.insert(output);
    }

    /// A call has ended badly.
    pub(super) fn fail(&mut self, call: u64) -> Result<(), Violation> {
        self.end_without_success(call, |facts| facts.failed += 1)
    }

    /// A call was cut off with its process.
    pub(super) fn cut_off(&mut self, call: u64) -> Result<(), Violation> {
        self.end_without_success(call, |facts| facts.cut_off += 1)
    }

    fn end_without_success(
        &mut self,
        call: u64,
        count: impl FnOnce(&mut Facts),
    ) -> Result<(), Violation> {
        let Running { number, .. } = self.running.remove(&call).expect("it was started");
        let facts = self.facts.get_mut(&number).expect("it was started");
        count(facts);
        let Facts { failed, cut_off, .. } = *facts;
        // A failure whose settlement is lost counts as an attempt that never ended.
        if cut_off > LOST_ATTEMPTS_MAX || failed + cut_off > ATTEMPTS_MAX + LOST_ATTEMPTS_MAX {
            let detail = format!("{number}: {failed} calls failed, {cut_off} were cut off");
            return Err(Violation { invariant: Invariant::GivenUpInTheEnd, detail });
        }
        Ok(())
    }

    /// A call was dropped by its worker.
    pub(super) fn give_up(&mut self, call: u64) {
        let running = self.running.remove(&call).expect("it was started");
        self.facts.get_mut(&running.number).expect("it was started").dropped += 1;
    }

    pub(super) fn has_succeeded(&self, number: u64) -> bool {
        self.facts.get(&number).is_some_and(|facts| !facts.outputs.is_empty())
    }

    /// How many of its calls a worker may report as failed.
    pub(super) fn failures(&self, number: u64) -> u32 {
        self.facts.get(&number).map_or(0, |facts| facts.failed + facts.dropped)
    }
}

impl Facts {
    fn new(work: Option<Work>, end: End) -> Facts {
        Facts { work, end, failed: 0, cut_off: 0, dropped: 0, outputs: BTreeSet::new() }
    }
}
