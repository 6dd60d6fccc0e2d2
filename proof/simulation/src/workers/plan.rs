//! A run's plan: work and faults as plain data.

use std::fmt;

use crate::world;

/// The work that comes in and what goes wrong, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkPlan {
    seed: u64,
    events: Vec<WorkEvent>,
}

/// Something that happens at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkEvent {
    pub(super) at_ms: u64,
    pub(super) action: Action,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Work is added. Its sender repeats the call, as after a lost answer, or not.
    Add { number: u64, work: Work, delay_ms: u64, end: End, is_repeated: bool },
    /// The process is told to stop; another one takes over when it has.
    Stop { process: usize },
    /// The process is killed; another one takes over.
    Kill { process: usize },
    /// The process makes no calls and hears no answers for this long.
    Pause { process: usize, ms: u64 },
    /// The answer to the next such call is lost.
    Lose { process: usize, target: Target },
    /// The next such call reaches the provider late, or its answer is late.
    Hold { process: usize, target: Target, ms: u64, is_answer: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Work {
    Outbox {
        topic: u8,
    },
    Inbox {
        topic: u8,
    },
    /// Becomes an outbox message.
    Timer {
        topic: u8,
    },
    /// An LLM job, of the model with little room or of the other one.
    Job {
        is_tight: bool,
    },
}

/// How the handler ends, each time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Well {
        after_ms: u64,
    },
    Badly {
        after_ms: u64,
    },
    /// With its whole process.
    KillsProcess,
}

/// A kind of call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Enqueue,
    Claim,
    Begin,
    Extend,
    Settle,
    Reap,
    CreateRuns,
    Acquire,
    Renew,
    Release,
}

pub(super) const PROCESSES: usize = 2;
pub(super) const TOPICS: u8 = 3;
/// Shorter than the dispatchers' handler timeout.
const HANDLER_MS_MAX: u64 = 2_500;
/// Longer than the runner's claim and shorter than its timeout.
const JOB_MS_MAX: u64 = 7_000;
/// Longer than any claim or lease.
const HELD_MS_MAX: u64 = 12_000;
const TARGETS: [Target; 10] = [
    Target::Enqueue,
    Target::Claim,
    Target::Begin,
    Target::Extend,
    Target::Settle,
    Target::Reap,
    Target::CreateRuns,
    Target::Acquire,
    Target::Renew,
    Target::Release,
];

impl WorkPlan {
    pub(super) fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let trouble = *random.choice(&[2, 6, 10]).expect("there are three");
        let count = random.u64(10..=60);
        let mut at_ms = 0;
        let events = (0..count).map(|number| {
            at_ms += random.u64(..=800);
            let is_trouble = random.u8(..20) < trouble;
            let action =
                if is_trouble { trouble_of(&mut random) } else { add(&mut random, number) };
            WorkEvent { at_ms, action }
        });
        Self { seed, events: events.collect() }
    }
}

fn add(random: &mut fastrand::Rng, number: u64) -> Action {
    let topic = random.u8(..TOPICS);
    let (work, longest_ms) = match random.u8(..4) {
        0 => (Work::Outbox { topic }, HANDLER_MS_MAX),
        1 => (Work::Inbox { topic }, HANDLER_MS_MAX),
        2 => (Work::Timer { topic }, HANDLER_MS_MAX),
        _ => (Work::Job { is_tight: random.bool() }, JOB_MS_MAX),
    };
    let after_ms = random.u64(..=longest_ms);
    let end = match random.u8(..20) {
        0 => End::KillsProcess,
        1..3 => End::Badly { after_ms },
        _ => End::Well { after_ms },
    };
    let delay_ms = if random.bool() { 0 } else { random.u64(1..=2_000) };
    Action::Add { number, work, delay_ms, end, is_repeated: random.u8(..5) == 0 }
}

fn trouble_of(random: &mut fastrand::Rng) -> Action {
    let process = random.usize(..PROCESSES);
    let target = *random.choice(&TARGETS).expect("there are ten");
    let ms = random.u64(1..=HELD_MS_MAX);
    match random.u8(..10) {
        0 => Action::Stop { process },
        1 => Action::Kill { process },
        2 => Action::Pause { process, ms },
        3..6 => Action::Lose { process, target },
        _ => Action::Hold { process, target, ms, is_answer: random.bool() },
    }
}

impl world::Plan for WorkPlan {
    type Event = WorkEvent;

    fn events(&self) -> &[WorkEvent] {
        &self.events
    }

    fn with_events(&self, events: Vec<WorkEvent>) -> Self {
        Self { seed: self.seed, events }
    }
}

impl world::Event for WorkEvent {
    fn actor(&self) -> usize {
        match self.action {
            Action::Stop { process }
            | Action::Kill { process }
            | Action::Pause { process, .. }
            | Action::Lose { process, .. }
            | Action::Hold { process, .. } => process,
            Action::Add { work: Work::Outbox { .. }, .. } => PROCESSES,
            Action::Add { work: Work::Inbox { .. }, .. } => PROCESSES + 1,
            Action::Add { work: Work::Timer { .. }, .. } => PROCESSES + 2,
            Action::Add { work: Work::Job { .. }, .. } => PROCESSES + 3,
        }
    }

    fn simpler_variants(&self) -> Vec<Self> {
        let Action::Add { number, work, delay_ms, end, is_repeated } = self.action else {
            return Vec::new();
        };
        let mut simpler = Vec::new();
        let mut push = |action| simpler.push(Self { at_ms: self.at_ms, action });
        if let End::Badly { .. } | End::KillsProcess = end {
            let end = End::Well { after_ms: 0 };
            push(Action::Add { number, work, delay_ms, end, is_repeated });
        }
        if is_repeated {
            push(Action::Add { number, work, delay_ms, end, is_repeated: false });
        }
        if delay_ms > 0 {
            push(Action::Add { number, work, delay_ms: 0, end, is_repeated });
        }
        simpler
    }
}

impl fmt::Display for WorkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} events", self.seed, self.events.len())
    }
}
