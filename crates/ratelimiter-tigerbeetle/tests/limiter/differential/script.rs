//! A random script that both backends can play alike.
//!
//! Time moves by odd amounts, so that nothing is asked in the few nanoseconds by which the events of
//! one request differ. Only keys whose window outlasts the script are reconciled to anything but
//! nothing, since a reconciled reservation may last up to a second longer here. A lease that comes
//! back has a key of its first request in it, since this backend knows it by its keys.

use std::time::Duration;

use ratelimiter::clock::Clock;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, Decision, Denial, DenialReason, HoldTimeout, LeaseId,
    Limit, LimitKey, LimitKind, Overage, Requirements, ReserveError, ReserveRequest, Window,
};

/// One thing that both backends do.
#[derive(Debug)]
pub enum Step {
    Pass(Duration),
    Define(Limit),
    Reserve(ReserveRequest),
    Complete(CompleteRequest),
}

pub struct Script {
    random: fastrand::Rng,
    /// Definitions that are still to be made.
    undefined: Vec<&'static str>,
    made: Vec<Made>,
}

/// A reserve that was asked for.
struct Made {
    lease: LeaseId,
    needs: Vec<(&'static str, u64)>,
    /// Whether it was denied, and not merely refused.
    denied: bool,
}

const KEYS: [&str; 6] = ["long:a", "long:b", "short:a", "short:b", "slots:a", "slots:b"];

impl Script {
    pub fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, undefined: KEYS.to_vec(), made: Vec::new() }
    }

    pub fn next_step(&mut self, clock: &dyn Clock) -> Step {
        if let Some(name) = self.undefined.pop() {
            return Step::Define(self.limit(name));
        }
        match self.random.u32(..100) {
            ..15 => Step::Pass(Duration::from_micros(self.random.u64(1..3_000_000)) + ODD),
            15..27 => {
                let name = KEYS[self.random.usize(..KEYS.len())];
                Step::Define(self.limit(name))
            }
            27..70 => self.new_reserve(clock),
            70..78 => self.repeated_reserve(clock),
            _ => self.complete(),
        }
    }

    fn limit(&mut self, name: &str) -> Limit {
        let kind = match name.split_once(':').unwrap().0 {
            "long" => LimitKind::Rolling { window: Window::from_seconds(100_000).unwrap() },
            "short" => {
                let window = Window::from_seconds(self.random.u64(1..6)).unwrap();
                LimitKind::Rolling { window }
            }
            _ => {
                let timeout = HoldTimeout::from_seconds(self.random.u64(1..20)).unwrap();
                LimitKind::Concurrency { timeout }
            }
        };
        let capacity = Capacity::new(self.random.u64(..40)).unwrap();
        let overage = if self.random.bool() { Overage::Debt } else { Overage::Deny };
        Limit { overage, ..Limit::new(key(name), kind, capacity) }
    }

    fn new_reserve(&mut self, clock: &dyn Clock) -> Step {
        let mut names = KEYS;
        self.random.shuffle(&mut names);
        let count = self.random.usize(1..=4);
        let needs: Vec<_> =
            names[..count].iter().map(|name| (*name, self.random.u64(1..12))).collect();
        let lease = LeaseId::generate(clock.now());
        self.made.push(Made { lease, needs: needs.clone(), denied: false });
        reserve(lease, &needs)
    }

    /// As it was asked for first; or, unless it was denied, with another amount or a key less.
    fn repeated_reserve(&mut self, clock: &dyn Clock) -> Step {
        let Some(made) = self.random.choice(&self.made) else {
            return self.new_reserve(clock);
        };
        let (lease, mut needs, denied) = (made.lease, made.needs.clone(), made.denied);
        match self.random.u32(..4) {
            0 if !denied => needs[0].1 += 1,
            1 if !denied && needs.len() > 1 => drop(needs.pop()),
            _ => self.random.shuffle(&mut needs),
        }
        reserve(lease, &needs)
    }

    pub fn was_denied(&self, lease: LeaseId) -> bool {
        self.made.iter().any(|made| made.lease == lease && made.denied)
    }

    pub fn heard(&mut self, lease: LeaseId, answer: &Result<Decision, ReserveError>) {
        let no_room = |denial: &Denial| matches!(denial.reason, DenialReason::NoRoom { .. });
        let denied = answer.as_ref().is_ok_and(|decision| decision.denial().is_some_and(no_room));
        for made in self.made.iter_mut().filter(|made| made.lease == lease) {
            made.denied |= denied;
        }
    }

    fn complete(&mut self) -> Step {
        let Some(made) = self.random.choice(&self.made) else {
            return Step::Complete(CompleteRequest::new(LeaseId::from_u128(7), Actuals::none()));
        };
        let (lease, needs) = (made.lease, made.needs.clone());
        let mut actuals = Vec::new();
        for (name, reserved) in needs {
            if self.random.u32(..3) == 0 {
                continue;
            }
            match name.split_once(':').unwrap().0 {
                "long" => actuals.push((key(name), self.random.u64(..20))),
                "short" if self.random.bool() => actuals.push((key(name), reserved)),
                "short" => actuals.push((key(name), 0)),
                // Once in a while, an actual for a concurrency key.
                _ if self.random.u32(..20) == 0 => actuals.push((key(name), 1)),
                _ => {}
            }
        }
        Step::Complete(CompleteRequest::new(lease, Actuals::of(actuals).unwrap()))
    }
}

/// Not a multiple of anything.
const ODD: Duration = Duration::from_nanos(104_729);

fn reserve(lease: LeaseId, needs: &[(&str, u64)]) -> Step {
    let needs = needs.iter().map(|(name, amount)| (key(name), *amount));
    Step::Reserve(ReserveRequest::new(lease, Requirements::of(needs).unwrap()))
}

fn key(name: &str) -> LimitKey {
    LimitKey::new(name).unwrap()
}
