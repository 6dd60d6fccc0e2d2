//! What comes in and what happens to the process, as plain data made from a seed.

use std::fmt;

use crate::run;

/// What comes in and what happens to the process, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DispatchPlan {
    seed: u64,
    events: Vec<DispatchEvent>,
}

/// Something that happens at a moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DispatchEvent {
    pub(super) at_ms: u64,
    pub(super) what: What,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    /// A message comes in.
    Message { number: u64, queue: Queue, topic: u8, end: End },
    /// The process is told to stop; another one takes over when it has.
    Stop,
    /// The process is killed; another one takes over.
    Kill,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Queue {
    Outbox,
    Inbox,
}

/// How the handler of a message ends, each time.
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

pub(super) const TOPICS: u8 = 3;
/// Shorter than the handlers' timeout.
const HANDLER_MS_MAX: u64 = 2_500;

impl DispatchPlan {
    pub(super) fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.u64(10..=60);
        let mut at_ms = 0;
        let events = (0..count).map(|number| {
            at_ms += random.u64(..=800);
            let after_ms = random.u64(..=HANDLER_MS_MAX);
            let end = match random.u8(..20) {
                0 => End::KillsProcess,
                1..3 => End::Badly { after_ms },
                _ => End::Well { after_ms },
            };
            let queue = if random.bool() { Queue::Outbox } else { Queue::Inbox };
            let what = match random.u8(..20) {
                0 => What::Stop,
                1 => What::Kill,
                _ => What::Message { number, queue, topic: random.u8(..TOPICS), end },
            };
            DispatchEvent { at_ms, what }
        });
        Self { seed, events: events.collect() }
    }
}

impl run::Plan for DispatchPlan {
    type Event = DispatchEvent;

    fn events(&self) -> &[DispatchEvent] {
        &self.events
    }

    fn with_events(&self, events: Vec<DispatchEvent>) -> Self {
        Self { seed: self.seed, events }
    }
}

impl run::Event for DispatchEvent {
    fn actor(&self) -> usize {
        match self.what {
            What::Message { topic, .. } => topic.into(),
            What::Stop | What::Kill => TOPICS.into(),
        }
    }

    fn simpler_variants(&self) -> Vec<Self> {
        match self.what {
            What::Message { end: End::Well { .. }, .. } | What::Stop | What::Kill => Vec::new(),
            What::Message { number, queue, topic, end: End::Badly { .. } | End::KillsProcess } => {
                let end = End::Well { after_ms: 0 };
                vec![Self { what: What::Message { number, queue, topic, end }, ..self.clone() }]
            }
        }
    }
}

impl fmt::Display for DispatchPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} events", self.seed, self.events.len())
    }
}
