//! What workers do in one run, in order, as plain data made from a seed.

use std::fmt;

use crate::run;

/// What workers do in one run, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkPlan {
    seed: u64,
    events: Vec<WorkEvent>,
}

/// One call to the provider, or something that happens to a worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkEvent {
    pub(super) worker: usize,
    pub(super) what: What,
    /// The worker does not hear the answer.
    pub(super) is_lost: bool,
    /// The call is made once more, as after a lost answer.
    pub(super) is_repeated: bool,
}

/// The things that are claimed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Kind {
    Outbox,
    Inbox,
    Timer,
    Run,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum What {
    Pass {
        ms: u64,
    },
    Crash,
    Add {
        kind: Kind,
        number: u64,
        delay_ms: u64,
    },
    Claim {
        kind: Kind,
        lease_ms: u64,
        max: u32,
    },
    Finish {
        kind: Kind,
    },
    /// Finishes what it holds no longer, or never held.
    FinishOthers {
        kind: Kind,
    },
    GiveBack {
        kind: Kind,
        delay_ms: u64,
    },
    Fail {
        kind: Kind,
    },
    Reap {
        kind: Kind,
    },
    /// Makes the runs of due jobs, under the lease that it has, or under an old one.
    MakeRuns {
        under_old: bool,
    },
    Acquire {
        resource: usize,
        ms: u64,
    },
    Renew {
        resource: usize,
        ms: u64,
    },
    Release {
        resource: usize,
    },
}

pub(super) const WORKERS: usize = 4;
pub(super) const RESOURCES: usize = 2;

impl WorkPlan {
    pub(super) fn random(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let trouble = *random.choice(&[0, 10, 30]).expect("there are three");
        let mut next_number = 0;
        let count = random.usize(40..=140);
        let events = (0..count).map(|_| {
            let worker = random.usize(..WORKERS);
            let what = what(&mut random, &mut next_number, trouble);
            let is_lost = random.u32(..100) < trouble / 2;
            let is_repeated = random.u32(..100) < trouble / 2;
            WorkEvent { worker, what, is_lost, is_repeated }
        });
        Self { seed, events: events.collect() }
    }
}

fn what(random: &mut fastrand::Rng, next_number: &mut u64, trouble: u32) -> What {
    let kinds = [Kind::Outbox, Kind::Inbox, Kind::Timer, Kind::Run];
    let kind = *random.choice(&kinds).expect("there are four");
    // The runs of jobs are made under the first one.
    let resource = if random.u8(..4) > 0 { 0 } else { RESOURCES - 1 };
    match random.u32(..100) {
        ..12 => What::Pass { ms: random.u64(1..=1_500) },
        12..14 if trouble > 0 => What::Crash,
        12..32 => {
            let kind = *random.choice(&kinds[..3]).expect("there are three");
            let is_new = *next_number == 0 || random.u8(..5) > 0;
            let number = if is_new { *next_number } else { random.u64(..*next_number) };
            *next_number += u64::from(is_new);
            let delay_ms = if random.bool() { 0 } else { random.u64(1..=2_000) };
            What::Add { kind, number, delay_ms }
        }
        32..50 => What::Claim { kind, lease_ms: random.u64(1..=3_000), max: random.u32(1..=4) },
        50..60 => What::Finish { kind },
        60..63 => What::FinishOthers { kind },
        63..67 => What::GiveBack { kind, delay_ms: random.u64(..=1_000) },
        67..69 => What::Fail { kind },
        69..76 => What::Reap { kind },
        76..84 => What::MakeRuns { under_old: random.u8(..3) == 0 },
        84..92 => What::Acquire { resource, ms: random.u64(1..=2_500) },
        92..96 => What::Renew { resource, ms: random.u64(1..=2_500) },
        _ => What::Release { resource },
    }
}

impl run::Plan for WorkPlan {
    type Event = WorkEvent;

    fn events(&self) -> &[WorkEvent] {
        &self.events
    }

    fn with_events(&self, events: Vec<WorkEvent>) -> Self {
        Self { seed: self.seed, events }
    }
}

impl run::Event for WorkEvent {
    fn actor(&self) -> usize {
        self.worker
    }

    fn simpler_variants(&self) -> Vec<Self> {
        let mut simpler_variants = Vec::new();
        if self.is_lost {
            simpler_variants.push(Self { is_lost: false, ..self.clone() });
        }
        if self.is_repeated {
            simpler_variants.push(Self { is_repeated: false, ..self.clone() });
        }
        simpler_variants
    }
}

impl fmt::Display for WorkPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}, {} events", self.seed, self.events.len())
    }
}

impl fmt::Display for WorkEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "worker {} {:?}", self.worker, self.what)?;
        f.write_str(if self.is_lost { ", answer lost" } else { "" })?;
        f.write_str(if self.is_repeated { ", repeated" } else { "" })
    }
}
