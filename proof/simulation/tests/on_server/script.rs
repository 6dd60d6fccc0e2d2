//! A random script that no clock decides.

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, Decision, DenialReason, HoldTimeout, LeaseId, Limit,
    LimitKey, LimitKind, Overage, Requirements, ReserveError, ReserveRequest, Window,
};

/// Longer than any script takes.
const LONG_SECONDS: u64 = 86_400;
/// The shortest that there is.
const SHORT_SECONDS: u64 = 1;

#[derive(Clone, Debug)]
pub enum Step {
    Define(Limit),
    Reserve(ReserveRequest),
    Complete(CompleteRequest),
}

pub struct Script {
    random: fastrand::Rng,
    prefix: String,
    undefined: Vec<&'static str>,
    made: Vec<Made>,
}

/// A reserve that was asked for.
struct Made {
    lease: LeaseId,
    needs: Vec<(&'static str, u64)>,
    is_denied: bool,
}

const KEYS: [&str; 5] = ["rolling:a", "rolling:b", "rolling:c", "slots:a", "slots:b"];

impl Script {
    pub fn new(seed: u64, prefix: &str) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { random, prefix: prefix.to_owned(), undefined: KEYS.to_vec(), made: Vec::new() }
    }

    pub fn next_step(&mut self, now: Timestamp) -> Step {
        if let Some(name) = self.undefined.pop() {
            return Step::Define(self.limit(name, LONG_SECONDS));
        }
        match self.random.u32(..100) {
            ..14 => {
                let name = KEYS[self.random.usize(..KEYS.len())];
                Step::Define(self.limit(name, LONG_SECONDS))
            }
            14..56 => self.new_reserve(now),
            56..68 => self.repeated_reserve(now),
            _ => self.complete(),
        }
    }

    /// Everything of a limit that returns by itself: the same again and again, since nothing is asked in between.
    pub fn expiry(&mut self, now: Timestamp) -> Vec<Step> {
        let names = ["rolling:short", "slots:short"];
        let mut steps = Vec::new();
        for name in names {
            let limit =
                Limit { capacity: Capacity::new(9).unwrap(), ..self.limit(name, SHORT_SECONDS) };
            steps.push(Step::Define(limit));
        }
        let needs = names.map(|name| (name, 9));
        steps.push(self.reserve(LeaseId::generate(now), &needs));
        steps
    }

    fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).unwrap()
    }

    fn limit(&mut self, name: &str, seconds: u64) -> Limit {
        let kind = match name.starts_with("slots") {
            true => LimitKind::Concurrency { timeout: HoldTimeout::from_seconds(seconds).unwrap() },
            false => LimitKind::Rolling { window: Window::from_seconds(seconds).unwrap() },
        };
        let capacity = Capacity::new(self.random.u64(..40)).unwrap();
        let overage = if self.random.bool() { Overage::Debt } else { Overage::Deny };
        Limit { overage, ..Limit::new(self.key(name), kind, capacity) }
    }

    fn reserve(&self, lease: LeaseId, needs: &[(&str, u64)]) -> Step {
        let needs = needs.iter().map(|(name, amount)| (self.key(name), *amount));
        Step::Reserve(ReserveRequest::new(lease, Requirements::of(needs).unwrap()))
    }

    fn new_reserve(&mut self, now: Timestamp) -> Step {
        let mut names = KEYS;
        self.random.shuffle(&mut names);
        let count = self.random.usize(1..=4);
        let needs: Vec<_> =
            names[..count].iter().map(|name| (*name, self.random.u64(1..12))).collect();
        let lease = LeaseId::generate(now);
        self.made.push(Made { lease, needs: needs.clone(), is_denied: false });
        self.reserve(lease, &needs)
    }

    /// As it was asked for first; or, unless it was denied, with another amount.
    fn repeated_reserve(&mut self, now: Timestamp) -> Step {
        let Some(made) = self.random.choice(&self.made) else {
            return self.new_reserve(now);
        };
        let (lease, mut needs, is_denied) = (made.lease, made.needs.clone(), made.is_denied);
        match self.random.u32(..4) == 0 && !is_denied {
            true => needs[0].1 += 1,
            false => self.random.shuffle(&mut needs),
        }
        self.reserve(lease, &needs)
    }

    fn complete(&mut self) -> Step {
        let Some(made) = self.random.choice(&self.made) else {
            return Step::Complete(CompleteRequest::new(LeaseId::from_u128(7), Actuals::none()));
        };
        let (lease, needs) = (made.lease, made.needs.clone());
        let mut actuals = Vec::new();
        for (name, _) in needs {
            let is_given = match name.starts_with("slots") {
                true => self.random.u32(..20) == 0,
                false => self.random.u32(..3) > 0,
            };
            if is_given {
                actuals.push((self.key(name), self.random.u64(..20)));
            }
        }
        Step::Complete(CompleteRequest::new(lease, Actuals::of(actuals).unwrap()))
    }

    pub fn was_denied(&self, lease: LeaseId) -> bool {
        self.made.iter().any(|made| made.lease == lease && made.is_denied)
    }

    pub fn heard(&mut self, lease: LeaseId, answer: &Result<Decision, ReserveError>) {
        let Ok(Decision::Denied(denial)) = answer else {
            return;
        };
        let has_no_room = matches!(denial.reason, DenialReason::NoRoom { .. });
        for made in self.made.iter_mut().filter(|made| made.lease == lease) {
            made.is_denied |= has_no_room;
        }
    }
}
