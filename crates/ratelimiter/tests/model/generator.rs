//! Random scripts: usually a few busy keys and short windows, so that all rules interact.

use fastrand::Rng;
use ratelimiter::{CAPACITY_MAX, Overage};

use crate::operation::{FIRST_OF_MODELS, Operation, UNKNOWN};

/// A list of operations, and the options of the limiter.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) operations: Vec<Operation>,
    /// Without jitter every hint is compared exactly, with it against its bounds.
    pub(crate) has_jitter: bool,
    pub(crate) remember_seconds: u64,
    /// A bug planted in the limiter, to check that the model detects it.
    pub(crate) flaw: Option<Flaw>,
}

/// A bug that can be planted in the limiter by its options.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Flaw {
    ForgetsLeases,
    HintsTooLate,
}

/// The kind of a script.
#[derive(Debug, Clone, Copy)]
struct Profile {
    first_key: u8,
    key_count: u8,
    operation_count: usize,
    amount_max: u64,
    capacity_min: u64,
    capacity_max: u64,
    seconds_max: u32,
    /// One lease in this many is repeated, and may have ended long ago.
    leases_back: u32,
    /// Whether lease IDs grow, as those of real clients do.
    has_growing_ids: bool,
    /// Percentage of operations that change a limit.
    change_percent: u8,
    /// One change in this many is a deletion.
    deletions_one_in: u8,
    /// Percentage of operations that advance time.
    advance_percent: u8,
}

impl Script {
    /// The script of this number in a run with this seed.
    pub(crate) fn random(seed: u64, number: u64) -> Self {
        let mut random = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let profile = Profile::for_script(number, &mut random);
        let mut writer = Writer { random, profile, next_lease: 0 };
        let mut operations: Vec<Operation> = profile.keys().map(|key| writer.define(key)).collect();
        operations.extend((0..profile.operation_count).map(|_| writer.operation()));
        let has_jitter = writer.random.u8(..4) == 0;
        let remember_seconds = if writer.random.bool() { 5 } else { 600 };
        Self { operations, has_jitter, remember_seconds, flaw: None }
    }
}

impl Profile {
    fn for_script(number: u64, random: &mut Rng) -> Self {
        let crowded = Self {
            first_key: 0,
            key_count: random.u8(1..=4),
            operation_count: random.usize(10..=80),
            amount_max: 6,
            capacity_min: 0,
            capacity_max: 12,
            seconds_max: 4,
            leases_back: 8,
            has_growing_ids: true,
            change_percent: 8,
            deletions_one_in: 12,
            advance_percent: 15,
        };
        // Long enough for one limit to have hundreds of live reservations, and for past leases to fill several chunks.
        let long = Self {
            key_count: 2,
            operation_count: 2_000,
            amount_max: 2,
            capacity_min: 380,
            capacity_max: 420,
            seconds_max: 60,
            leases_back: 1_000,
            change_percent: 1,
            advance_percent: 1,
            ..crowded
        };
        match number % 200 {
            // The oracle scans all live reservations at every step, so there are few of these.
            100 if number % 1_000 == 100 => {
                Self { first_key: FIRST_OF_MODELS, key_count: 3, has_growing_ids: false, ..long }
            }
            0 => long,
            // Amounts near the limits of 64 bits.
            1..=9 => Self { amount_max: u64::MAX, capacity_max: CAPACITY_MAX, ..crowded },
            // The limits of a model or two, which are one group each, and limits outside them.
            100..=199 => Self {
                first_key: FIRST_OF_MODELS,
                key_count: random.u8(2..=6),
                has_growing_ids: random.bool(),
                deletions_one_in: 4,
                ..crowded
            },
            _ => crowded,
        }
    }

    fn keys(self) -> std::ops::Range<u8> {
        self.first_key..self.first_key + self.key_count
    }
}

struct Writer {
    random: Rng,
    profile: Profile,
    next_lease: u32,
}

impl Writer {
    fn operation(&mut self) -> Operation {
        let Profile { change_percent, deletions_one_in, advance_percent, .. } = self.profile;
        let percent = self.random.u8(..100);
        if percent < change_percent {
            let key = self.key();
            return match self.random.u8(..deletions_one_in) {
                0 => Operation::Delete { key },
                _ => self.define(key),
            };
        }
        if percent < change_percent + advance_percent {
            return self.advance();
        }
        match self.random.u8(..100) {
            0..=57 => self.reserve(),
            58..=96 => self.complete(),
            _ => Operation::Sweep,
        }
    }

    /// The key's number usually decides the kind, but not always.
    fn define(&mut self, key: u8) -> Operation {
        let is_odd = key % 2 == 1;
        let is_concurrency = if self.random.u8(..20) == 0 { !is_odd } else { is_odd };
        let seconds = self.random.u32(1..=self.profile.seconds_max);
        let capacity = self.number(self.profile.capacity_max).max(self.profile.capacity_min);
        let overage = if self.random.u8(..3) == 0 { Overage::Deny } else { Overage::Debt };
        Operation::Define { key, is_concurrency, seconds, capacity, overage }
    }

    fn reserve(&mut self) -> Operation {
        let lease = match self.random.u8(..5) {
            0 => self.known_lease(),
            _ => {
                self.next_lease += 1;
                self.lease(self.next_lease)
            }
        };
        let needs = self.keys().into_iter().map(|key| (key, self.amount())).collect();
        Operation::Reserve { lease, needs }
    }

    fn complete(&mut self) -> Operation {
        let lease = self.known_lease();
        let mut keys = self.keys();
        if self.random.bool() {
            // Even keys are usually rolling, so this is usually valid.
            keys.retain(|key| key % 2 == 0);
        }
        let actuals =
            keys.into_iter().map(|key| (key, self.number(self.profile.amount_max))).collect();
        Operation::Complete { lease, actuals }
    }

    /// A lease that was reserved recently, or long ago; rarely one that never was.
    fn known_lease(&mut self) -> u32 {
        let back = if self.random.u8(..4) == 0 { self.profile.leases_back } else { 8 };
        let lately = self.random.u32(0..back);
        self.lease(self.next_lease.saturating_sub(lately))
    }

    /// The number of the `nth` lease.
    const fn lease(&self, nth: u32) -> u32 {
        if self.profile.has_growing_ids { nth } else { nth.wrapping_mul(0x9e37_79b9) }
    }

    fn advance(&mut self) -> Operation {
        match self.random.u8(..10) {
            0..=2 => Operation::AdvanceToExpiry { just_before: false },
            3 => Operation::AdvanceToExpiry { just_before: true },
            4..=7 => Operation::Advance { nanos: self.random.u64(..500_000_000) },
            8 => Operation::Advance { nanos: 1_000_000_000 * self.random.u64(1..=3) },
            _ => Operation::Advance { nanos: 1_000_000_000 * self.random.u64(1..=30) },
        }
    }

    fn key(&mut self) -> u8 {
        self.random.u8(self.profile.keys())
    }

    /// One or more distinct keys, shuffled; rarely one that is never defined.
    fn keys(&mut self) -> Vec<u8> {
        let mut keys: Vec<u8> = self.profile.keys().collect();
        if self.random.u8(..30) == 0 {
            keys.push(UNKNOWN);
        }
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.usize(1..=keys.len()));
        keys
    }

    fn amount(&mut self) -> u64 {
        self.number(self.profile.amount_max).max(1)
    }

    fn number(&mut self, max: u64) -> u64 {
        match self.random.u8(..16) {
            0..=2 => max,
            3 => max / 2,
            4 => 0,
            _ if max > 1_000_000 => self.random.u64(..=max) >> self.random.u8(..60),
            _ => self.random.u64(..=max),
        }
    }
}
