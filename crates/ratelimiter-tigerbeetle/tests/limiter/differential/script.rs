//! A random script for both backends.
//!
//! Time moves by odd amounts, so that no step falls into the few nanoseconds by which the events of
//! one request differ. Only keys whose window outlasts the script are reconciled to anything but 0,
//! since a reconciled reservation may last up to a second longer here. A repeated lease has a key
//! of its first request, since this backend recognises a lease by its keys.

use std::time::Duration;

use ratelimiter::clock::Clock;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, Decision, Denial, DenialReason, HoldTimeout, LeaseId,
    Limit, LimitKey, LimitKind, Overage, Requirements, ReserveError, ReserveRequest, Window,
};

#[derive(Debug)]
pub enum Step {
    Pass(Duration),
    Define(Limit),
    Reserve(ReserveRequest),
    Complete(CompleteRequest),
}

pub struct Script {
    random: fastrand::Rng,
    /// Definitions still to be sent.
    undefined: Vec<&'static str>,
    sent: Vec<SentReserve>,
}

struct SentReserve {
    lease: LeaseId,
    /// The requirements of the decision; until then, those of the first request.
    needs: Vec<(&'static str, u64)>,
    decided: Option<Decided>,
}

/// The decision that both backends remember.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decided {
    Allowed,
    Denied,
}

const KEYS: [&str; 6] = ["long:a", "long:b", "short:a", "short:b", "slots:a", "slots:b"];

impl Script {
    pub fn new(seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, undefined: KEYS.to_vec(), sent: Vec::new() }
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
        self.sent.push(SentReserve { lease, needs: needs.clone(), decided: None });
        reserve(lease, &needs)
    }

    /// Repeats a reserve unchanged; or, unless it was denied, with another amount, a key less or a
    /// key more.
    fn repeated_reserve(&mut self, clock: &dyn Clock) -> Step {
        let Some(sent) = self.random.choice(&self.sent) else {
            return self.new_reserve(clock);
        };
        let (lease, mut needs) = (sent.lease, sent.needs.clone());
        let denied = sent.decided == Some(Decided::Denied);
        match self.random.u32(..4) {
            0 if !denied => needs[0].1 += 1,
            1 if !denied && needs.len() > 1 => drop(needs.pop()),
            2 if !denied => {
                let unused = |name: &&str| needs.iter().all(|(used, _)| used != name);
                let further = KEYS.into_iter().find(unused);
                needs.extend(further.map(|name| (name, 1)));
            }
            _ => self.random.shuffle(&mut needs),
        }
        reserve(lease, &needs)
    }

    pub fn was_denied(&self, lease: LeaseId) -> bool {
        self.find(lease).decided == Some(Decided::Denied)
    }

    /// Whether this lease was allowed, and without this key.
    pub fn was_allowed_without(&self, lease: LeaseId, key: &LimitKey) -> bool {
        let sent = self.find(lease);
        let without = sent.needs.iter().all(|(name, _)| *name != key.as_str());
        sent.decided == Some(Decided::Allowed) && without
    }

    /// Records the first decision.
    pub fn note(&mut self, request: &ReserveRequest, answer: &Result<Decision, ReserveError>) {
        let no_room = |denial: &Denial| matches!(denial.reason, DenialReason::NoRoom { .. });
        let decided = match answer {
            Ok(Decision::Allowed { .. }) => Decided::Allowed,
            Ok(Decision::Denied(denial)) if no_room(denial) => Decided::Denied,
            _ => return,
        };
        let sent = self.sent.iter_mut().find(|sent| sent.lease == request.lease);
        let sent = sent.expect("it was asked for by this script");
        sent.decided.get_or_insert(decided);
        let amount = |name: &str| {
            let mut needs = request.requirements.iter();
            needs.find(|need| need.key.as_str() == name).map(|need| need.amount.get())
        };
        let needs = KEYS.into_iter().filter_map(|name| Some((name, amount(name)?)));
        sent.needs = needs.collect();
    }

    fn find(&self, lease: LeaseId) -> &SentReserve {
        let sent = self.sent.iter().find(|sent| sent.lease == lease);
        sent.expect("it was asked for by this script")
    }

    fn complete(&mut self) -> Step {
        let Some(sent) = self.random.choice(&self.sent) else {
            return Step::Complete(CompleteRequest::new(LeaseId::from_u128(7), Actuals::none()));
        };
        let (lease, needs) = (sent.lease, sent.needs.clone());
        let mut actuals = Vec::new();
        for (name, reserved) in needs {
            if self.random.u32(..3) == 0 {
                continue;
            }
            match name.split_once(':').unwrap().0 {
                "long" => actuals.push((key(name), self.random.u64(..20))),
                "short" if self.random.bool() => actuals.push((key(name), reserved)),
                "short" => actuals.push((key(name), 0)),
                // Occasionally, an actual for a concurrency key.
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
