//! Random scripts: usually a few busy keys and short windows, so that all rules interact.
//!
//! The generator plays what it writes in memory, so that it can repeat leases as they were decided and stop at the moment of an expiry.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use fastrand::Rng;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, Decision, HoldTimeout, LeaseId, Limit, LimitKey, LimitKind,
    LimitMode, NewAmounts, Overage, RenewNumber, RenewRequest, Renewal, Requirements,
    ReserveRequest, ResetDay, ResetSchedule, ResetTime, TimeZone, Weekday, Window,
};

use super::agreement::{Decided, History, PastReserve};
use super::{Answer, Call, InMemory, Script, Step};

/// What the random scripts of a test are like.
#[derive(Debug, Clone)]
pub struct Profile {
    /// All are defined at the start.
    pub keys: Vec<KeyProfile>,
    /// Also defined at the start.
    pub templates: Vec<KeyProfile>,
    /// Keys that are not defined at the start, but that templates may match.
    pub undefined: Vec<KeyProfile>,
    /// Steps after the definitions at the start.
    pub step_count: usize,
    /// The most keys of a call.
    pub keys_max: usize,
    /// The largest requirement.
    pub amount_max: u64,
    /// The largest actual.
    pub actual_max: u64,
    /// Of every limit.
    pub capacities: RangeInclusive<u64>,
    /// Percentage of steps that change a limit.
    pub change_percent: u8,
    /// One change in this many is a deletion.
    pub deletions_one_in: u8,
    /// Percentage of steps before which time passes.
    pub pass_percent: u8,
    /// The longest time that passes before a step.
    pub pass_max: Duration,
    /// The ID before that of the first lease.
    pub lease_before: LeaseId,
    /// Whether lease IDs grow, as those of real clients do.
    pub has_growing_ids: bool,
    /// Percentage of calls that renew a lease.
    pub renew_percent: u8,
    /// Only calls that TigerBeetle answers like the memory backend ([`History::agree`]): no deletions and sweeps; time moves by odd
    /// amounts, so that no step falls into the few nanoseconds by which the events of one request differ; only keys whose window
    /// outlasts the script are reconciled to anything but 0, since a reconciled reservation may last up to a second longer there; a
    /// repeated lease has a key of its first request, since TigerBeetle recognises a lease by its keys; a renew sets the amounts of other keys to 0 or
    /// more than before.
    pub is_portable: bool,
}

/// A key of a script.
#[derive(Debug, Clone)]
pub struct KeyProfile {
    /// The key.
    pub key: LimitKey,
    /// Its usual kind.
    pub kind: KeyKind,
    /// Windows and timeouts of its limits, in seconds.
    pub seconds: RangeInclusive<u64>,
}

/// The usual kind of a key's limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the kinds of limits")]
pub enum KeyKind {
    Rolling,
    Concurrency,
    Calendar,
}

/// No script lasts as long.
const LONG_SECONDS: u64 = 10_000;
/// Not a multiple of anything.
const ODD: Duration = Duration::from_nanos(104_729);
/// A key that is never defined.
const UNKNOWN: &str = "unknown";

impl Profile {
    /// Few units and seconds, for the memory backend.
    pub fn crowded(keys: Vec<KeyProfile>) -> Self {
        Self {
            keys_max: keys.len(),
            keys,
            templates: Vec::new(),
            undefined: Vec::new(),
            step_count: 80,
            amount_max: 6,
            actual_max: 6,
            capacities: 0..=12,
            change_percent: 9,
            deletions_one_in: 12,
            pass_percent: 15,
            pass_max: Duration::MAX,
            lease_before: LeaseId::from_u128(0),
            has_growing_ids: true,
            renew_percent: 12,
            is_portable: false,
        }
    }

    /// What every backend answers alike.
    pub fn portable(keys: Vec<KeyProfile>) -> Self {
        Self {
            keys_max: 4,
            amount_max: 11,
            actual_max: 19,
            capacities: 0..=39,
            change_percent: 16,
            renew_percent: 8,
            is_portable: true,
            ..Self::crowded(keys)
        }
    }
}

impl Script {
    /// A random script. A panic of the limiter ends it, so that playing the script finds the panic.
    pub fn random(random: Rng, profile: &Profile) -> Self {
        let mut writer = Writer::new(random, profile);
        let mut steps = Vec::new();
        let first_count = profile.keys.len() + profile.templates.len();
        for number in 0..first_count + profile.step_count {
            let step = writer.next_step(number);
            let answer = catch_unwind(AssertUnwindSafe(|| writer.memory.play(&step)));
            steps.push(step.clone());
            let Ok(answer) = answer else {
                break;
            };
            writer.note(&step, &answer);
        }
        Self(steps)
    }
}

struct Writer<'a> {
    random: Rng,
    profile: &'a Profile,
    memory: InMemory,
    now: Duration,
    lease_count: u32,
    history: History,
    /// When reservations expire; with the lease if it is a hold.
    expiries: Vec<(Duration, Option<LeaseId>)>,
    /// The number of each lease's last renew.
    renew_numbers: HashMap<LeaseId, u64>,
}

impl<'a> Writer<'a> {
    fn new(random: Rng, profile: &'a Profile) -> Self {
        Self {
            random,
            profile,
            memory: InMemory::new(|_| {}),
            now: Duration::ZERO,
            lease_count: 0,
            history: History::default(),
            expiries: Vec::new(),
            renew_numbers: HashMap::new(),
        }
    }

    fn next_step(&mut self, number: usize) -> Step {
        let Profile { keys, templates, .. } = self.profile;
        let call = match keys.iter().chain(templates).nth(number) {
            Some(first) => self.define(first),
            None if self.percent() < self.profile.pass_percent => {
                self.pass();
                // Not always a look: other calls must notice by themselves what has expired.
                match self.random.bool() {
                    true => Call::State(self.key().key.clone()),
                    false => self.call(),
                }
            }
            None => self.call(),
        };
        Step { at: self.now, call }
    }

    fn pass(&mut self) {
        self.expiries.retain(|(at, _)| *at > self.now);
        let expiries = self.expiries.iter().map(|(at, _)| *at - self.now);
        let until_expiry = expiries.min().unwrap_or_default();
        let passed = match self.random.u8(..10) {
            // Far enough for the resets of calendar limits.
            0 if self.profile.is_portable => {
                Duration::from_micros(self.random.u64(1..60_000_000)) + ODD
            }
            _ if self.profile.is_portable => {
                Duration::from_micros(self.random.u64(1..3_000_000)) + ODD
            }
            0..=2 => until_expiry,
            3 => until_expiry.saturating_sub(Duration::from_nanos(1)),
            4..=7 => Duration::from_nanos(self.random.u64(..500_000_000)),
            8 => Duration::from_secs(self.random.u64(1..=3)),
            _ => Duration::from_secs(self.random.u64(1..=30)),
        };
        self.now += passed.min(self.profile.pass_max);
    }

    fn call(&mut self) -> Call {
        if self.percent() < self.profile.change_percent {
            let key = self.key();
            return match !self.profile.is_portable && self.one_in(self.profile.deletions_one_in) {
                true => Call::Delete(key.key.clone()),
                false => self.define(key),
            };
        }
        if self.profile.renew_percent > 0 && self.percent() < self.profile.renew_percent {
            return self.renew();
        }
        match self.percent() {
            0..=50 => self.new_reserve(),
            51..=64 => self.repeated_reserve(),
            65..=67 if !self.profile.is_portable => Call::Sweep,
            _ => self.complete(),
        }
    }

    fn define(&mut self, KeyProfile { key, kind, seconds }: &KeyProfile) -> Call {
        const KINDS: [KeyKind; 3] = [KeyKind::Rolling, KeyKind::Concurrency, KeyKind::Calendar];
        let is_unusual = !self.profile.is_portable && self.one_in(20);
        let kind = if is_unusual { KINDS[self.random.usize(..3)] } else { *kind };
        let seconds = self.random.u64(seconds.clone());
        let kind = match kind {
            KeyKind::Concurrency => LimitKind::Concurrency {
                timeout: HoldTimeout::from_seconds(seconds)
                    .expect("a profile's timeouts are valid"),
            },
            KeyKind::Rolling => LimitKind::Rolling {
                window: Window::from_seconds(seconds).expect("a profile's windows are valid"),
            },
            KeyKind::Calendar => LimitKind::Calendar { resets: self.schedule() },
        };
        let (least, most) = self.profile.capacities.clone().into_inner();
        let capacity = Capacity::new(self.number(most).max(least));
        let capacity = capacity.expect("a profile's capacities are valid");
        let overage = if self.one_in(3) { Overage::Deny } else { Overage::Debt };
        let mode = if self.one_in(6) { LimitMode::Shadow } else { LimitMode::Enforce };
        Call::Define(Limit { overage, mode, ..Limit::new(key.clone(), kind, capacity) })
    }

    /// Resets that a script reaches: a script begins at 05:33:20 UTC.
    fn schedule(&mut self) -> ResetSchedule {
        let times = ["05:34", "05:35", "05:50", "06:34", "11:04", "11:19", "00:34", "21:34"];
        let at: ResetTime = self.random.choice(times).expect("some").parse().expect("a time");
        let zones = ["UTC", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"];
        let zone = TimeZone::new(self.random.choice(zones).expect("some")).expect("a zone");
        match self.random.u8(..8) {
            0 => ResetSchedule::Weekly { weekday: Weekday::Sunday, at, zone },
            1 => ResetSchedule::Monthly { day: ResetDay::new(12).expect("a day"), at, zone },
            2..=4 => ResetSchedule::Daily { at, zone },
            _ => ResetSchedule::Hourly { minute: at.minute() },
        }
    }

    fn new_reserve(&mut self) -> Call {
        self.lease_count += 1;
        let needs = self.needs();
        reserve(self.lease(self.lease_count), needs)
    }

    /// Repeats a reserve unchanged, with another amount, a key less or a key more, or with other keys.
    fn repeated_reserve(&mut self) -> Call {
        let Some(PastReserve { lease, mut needs, decided }) = self.past_reserve() else {
            return self.new_reserve();
        };
        let is_portable = self.profile.is_portable;
        match self.random.u8(..if is_portable { 4 } else { 8 }) {
            // TigerBeetle remembers only the key without room.
            0..=2 if is_portable && decided == Some(Decided::Denied) => {}
            0 => needs[0].1 = needs[0].1.saturating_add(1),
            1 if needs.len() > 1 => drop(needs.pop()),
            2 => {
                let unused = |key: &&KeyProfile| needs.iter().all(|(used, _)| *used != key.key);
                let further = self.profile.keys.iter().find(unused);
                needs.extend(further.map(|further| (further.key.clone(), 1)));
            }
            4.. => needs = self.needs(),
            _ => {}
        }
        self.random.shuffle(&mut needs);
        reserve(lease, needs)
    }

    /// Renews a lease: mostly with the next number, else with the last or any. Some leases grow by a unit at a time.
    fn renew(&mut self) -> Call {
        let past = self.past_reserve().filter(|_| !self.one_in(30));
        let lease = past.as_ref().map_or(self.lease(self.lease_count + 1), |past| past.lease);
        let last = self.renew_numbers.get(&lease).copied().unwrap_or(0);
        let number = match self.random.u8(..12) {
            0 => last,
            1 => self.random.u64(..=last + 2),
            _ => last + 1,
        };
        let number = RenewNumber::new(number).unwrap_or(RenewNumber::FIRST);
        let keys = match past.filter(|_| !self.one_in(12)) {
            Some(past) => past.needs.into_iter().map(|(key, _)| key).collect(),
            None => self.keys(),
        };
        let mut amounts = Vec::new();
        for key in keys {
            if !self.one_in(3) {
                let amount_max = self.profile.amount_max;
                let amount = match lease.as_u128() % 3 {
                    _ if self.profile.is_portable && self.is_short(&key) => match self.one_in(4) {
                        true => 0,
                        false => amount_max + number.get(),
                    },
                    0 => number.get(),
                    _ => self.number(amount_max),
                };
                amounts.push((key, amount));
            }
        }
        self.random.shuffle(&mut amounts);
        let amounts = NewAmounts::of(amounts).expect("each key once");
        Call::Renew(RenewRequest::new(lease, number, amounts))
    }

    fn complete(&mut self) -> Call {
        let past = self.past_reserve().filter(|_| !self.one_in(30));
        let Some(PastReserve { lease, needs, .. }) = past else {
            // The next lease, which is not known yet.
            let lease = self.lease(self.lease_count + 1);
            return Call::Complete(CompleteRequest::new(lease, Actuals::none()));
        };
        // Of any keys, or of those of the lease.
        let actuals: Vec<_> = match !self.profile.is_portable && !self.one_in(3) {
            true => {
                let actual_max = self.profile.actual_max;
                self.keys().into_iter().map(|key| (key, self.number(actual_max))).collect()
            }
            false => {
                let is_renewed = self.renew_numbers.contains_key(&lease);
                let held = |held| if is_renewed { 0 } else { held };
                let needs = needs.into_iter();
                needs.filter_map(|(key, amount)| self.actual(key, held(amount))).collect()
            }
        };
        let actuals = Actuals::of(actuals).expect("each key once");
        Call::Complete(CompleteRequest::new(lease, actuals))
    }

    /// The actual of a key of the lease, if it has one.
    fn actual(&mut self, key: LimitKey, held: u64) -> Option<(LimitKey, u64)> {
        let mut keys = self.profile.keys.iter().chain(&self.profile.undefined);
        let KeyProfile { kind, .. } = keys.find(|profile| profile.key == key)?;
        let holds_one_in = if self.profile.is_portable { 20 } else { 3 };
        let is_left_out = match kind {
            KeyKind::Concurrency => !self.one_in(holds_one_in),
            KeyKind::Rolling | KeyKind::Calendar => self.one_in(3),
        };
        if is_left_out {
            return None;
        }
        let amount = match self.profile.is_portable && self.is_short(&key) {
            true => *self.random.choice(&[0, held])?,
            false => self.number(self.profile.actual_max),
        };
        Some((key, amount))
    }

    /// Whether the window of a key may end during the script.
    fn is_short(&self, key: &LimitKey) -> bool {
        let mut keys = self.profile.keys.iter().chain(&self.profile.undefined);
        keys.any(|KeyProfile { key: other, kind, seconds }| {
            other == key && *kind == KeyKind::Rolling && *seconds.start() < LONG_SECONDS
        })
    }

    /// A lease that was reserved recently, or long ago.
    fn past_reserve(&mut self) -> Option<PastReserve> {
        let count = self.history.leases.len();
        let back = if self.random.bool() { count } else { count.min(8) };
        let lately = self.random.usize(..back.max(1));
        self.history.leases.iter().nth_back(lately).cloned()
    }

    /// The ID of the `nth` lease.
    fn lease(&self, nth: u32) -> LeaseId {
        let nth = if self.profile.has_growing_ids { nth } else { nth.wrapping_mul(0x9e37_79b9) };
        LeaseId::from_u128(self.profile.lease_before.as_u128() + u128::from(nth))
    }

    fn key(&mut self) -> &'a KeyProfile {
        let Profile { keys, templates, undefined, .. } = self.profile;
        let keys = keys.iter().chain(templates).chain(undefined);
        self.random.choice(keys.collect::<Vec<_>>()).expect("a profile has keys")
    }

    /// One or more distinct keys, shuffled; rarely one that is never defined.
    fn keys(&mut self) -> Vec<LimitKey> {
        let Profile { keys, undefined, .. } = self.profile;
        let mut keys: Vec<_> = keys.iter().chain(undefined).map(|key| key.key.clone()).collect();
        if !self.profile.is_portable && self.one_in(30) {
            keys.push(LimitKey::new(UNKNOWN).expect("it is a key"));
        }
        self.random.shuffle(&mut keys);
        keys.truncate(self.random.usize(1..=self.profile.keys_max));
        keys
    }

    fn needs(&mut self) -> Vec<(LimitKey, u64)> {
        let amount_max = self.profile.amount_max;
        self.keys().into_iter().map(|key| (key, self.number(amount_max).max(1))).collect()
    }

    fn number(&mut self, max: u64) -> u64 {
        match self.random.u8(..16) {
            _ if self.profile.is_portable => self.random.u64(..=max),
            0..=2 => max,
            3 => max / 2,
            4 => 0,
            _ if max > 1_000_000 => self.random.u64(..=max) >> self.random.u8(..60),
            _ => self.random.u64(..=max),
        }
    }

    fn percent(&mut self) -> u8 {
        self.random.u8(..100)
    }

    fn one_in(&mut self, count: u8) -> bool {
        self.random.u8(..count) == 0
    }

    fn note(&mut self, Step { at, call }: &Step, answer: &Answer) {
        self.history.note(call, answer);
        match (call, answer) {
            (
                Call::Reserve(request),
                Answer::Decided(Ok(Decision::Allowed { reserved_at, .. })),
            ) if *reserved_at == self.memory.limiter.now() => {
                for need in request.requirements.iter() {
                    let state = self.memory.limiter.state_now(&need.key);
                    let kind = state.expect("a reserved limit is defined").limit.kind;
                    let hold_of = kind.is_concurrency().then_some(request.lease);
                    let expires_at = kind.expires_at(*reserved_at);
                    self.expiries.push((*at + expires_at.since(*reserved_at), hold_of));
                }
            }
            (Call::Renew(request), Answer::Renewed(Ok(renewal))) => {
                self.renew_numbers.insert(request.lease, request.number.get());
                if let Renewal::Renewed { renewed_at, lapses_at, .. } = renewal {
                    let hold_of = Some(request.lease);
                    self.expiries.push((*at + lapses_at.since(*renewed_at), hold_of));
                }
            }
            (Call::Complete(request), Answer::Completed(Ok(()))) => {
                self.expiries.retain(|(_, hold_of)| *hold_of != Some(request.lease));
            }
            _ => {}
        }
    }
}

fn reserve(lease: LeaseId, needs: Vec<(LimitKey, u64)>) -> Call {
    let requirements = Requirements::of(needs).expect("each key once, and none with 0");
    Call::Reserve(ReserveRequest::new(lease, requirements))
}
