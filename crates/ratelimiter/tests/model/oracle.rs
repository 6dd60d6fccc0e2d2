//! The rules in their simplest form: one list of reservations, scanned for every question.

mod renew;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Capacity, CompleteError, CompleteRequest, DefineError, KeyPattern, LeaseId, Limit, LimitKey,
    LimitKind, LimitMode, LimitState, LimitStatus, Overage, RenewNumber, Renewal, ReserveError,
    ReserveRequest, Usage,
};

pub(crate) use renew::ExpectedRenewal;

/// Windows from here on are long.
const LONG_WINDOW_NANOS: u64 = 3_600_000_000_000;
/// Slices of a long window.
const SLICES: u64 = 4_096;
/// So many ended reservations of a long window are never joined.
const EXACT_MAX: usize = 64;

/// The expected answer to a reserve.
#[derive(Debug)]
pub(crate) enum Expected {
    Allowed {
        reserved_at_nanos: u64,
        shadow_denied: Vec<LimitKey>,
    },
    Denied {
        keys: Vec<LimitKey>,
        hint: RangeInclusive<Duration>,
    },
    /// A repeated denied lease: any key, any hint.
    DeniedAgain,
    Paused {
        key: LimitKey,
    },
    Decreasing {
        key: LimitKey,
    },
    Refused(ReserveError),
    /// A repeated lease whose limit was deleted and defined again: refused with either error.
    EndedOrConflict,
}

#[derive(Debug)]
pub(crate) struct Oracle {
    now: u64,
    remember_for: Duration,
    has_jitter: bool,
    /// Also the instances of templates that are in use or owe a debt.
    limits: BTreeMap<LimitKey, DefinedLimit>,
    templates: BTreeMap<LimitKey, Template>,
    /// Number of limits ever defined, to distinguish a limit from an earlier one with its key.
    generations: u64,
    /// The concurrency limits among them.
    generations_of_holds: HashSet<u64>,
    /// The calendar limits among them.
    generations_of_calendars: HashSet<u64>,
    /// Timeouts of the concurrency limits, also of deleted ones.
    timeouts: HashMap<u64, u64>,
    reservations: Vec<Reservation>,
    leases: HashMap<LeaseId, Lease>,
}

#[derive(Debug)]
struct Template {
    limit: Limit,
    /// Of all its instances.
    uncovered: u128,
}

#[derive(Debug)]
struct DefinedLimit {
    generation: u64,
    /// Of an instance.
    template: Option<LimitKey>,
    limit: Limit,
    target: Option<Capacity>,
    debt: u128,
    uncovered: u128,
    streak: i32,
    /// Of a calendar limit.
    period_ends_at: u64,
}

/// A reservation, or a part of one of a lease that was renewed. An open lease may have one of 0 units.
#[derive(Debug)]
struct Reservation {
    lease: LeaseId,
    key: LimitKey,
    generation: u64,
    amount: u64,
    lifetime: u64,
    expires_at: u64,
    is_open: bool,
}

#[derive(Debug, Clone)]
enum Lease {
    Open(OpenLease),
    Ended { since: u64 },
    Denied { since: u64 },
}

#[derive(Debug, Clone)]
struct OpenLease {
    reserved_at: u64,
    needs: Vec<Need>,
    /// 0 if something has expired.
    first_expiry: u64,
    last_expiry: u64,
    /// The number of the last renew, and its answer.
    last_renew: Option<(RenewNumber, Renewal)>,
    /// One was not denied.
    is_renewed: bool,
}

#[derive(Debug, Clone)]
struct Need {
    key: LimitKey,
    required: u64,
    /// By the reserve and by renews, without what was given back. What is not live of it has lapsed.
    reserved: u128,
    generation: u64,
}

fn is_shadow(limit: &Limit) -> bool {
    limit.mode == LimitMode::Shadow
}

/// The end of a calendar period has tests of its own.
fn expiry_of(kind: LimitKind, now: u64) -> u64 {
    kind.expires_at(Timestamp::from_unix_nanos(now)).unix_nanos()
}

impl Reservation {
    /// A forgotten lease may be reserved again while its first reservations still last.
    fn is_open_of(&self, lease: LeaseId) -> bool {
        self.is_open && self.lease == lease
    }
}

impl Oracle {
    pub(crate) fn new(now: u64, remember_for: Duration, has_jitter: bool) -> Self {
        Self {
            now,
            remember_for,
            has_jitter,
            limits: BTreeMap::new(),
            templates: BTreeMap::new(),
            generations: 0,
            generations_of_holds: HashSet::new(),
            generations_of_calendars: HashSet::new(),
            timeouts: HashMap::new(),
            reservations: Vec::new(),
            leases: HashMap::new(),
        }
    }

    pub(crate) fn advance(&mut self, nanos: u64) {
        self.now += nanos;
        let now = self.now;
        self.reservations.retain(|reservation| reservation.expires_at > now);
        for defined in self.limits.values_mut().filter(|defined| defined.period_ends_at <= now) {
            defined.period_ends_at = expiry_of(defined.limit.kind, now);
        }
        let remember_for = u64::try_from(self.remember_for.as_nanos()).unwrap();
        self.leases.retain(|_, lease| match lease {
            Lease::Open(_) => true,
            Lease::Ended { since } | Lease::Denied { since } => now - *since < remember_for,
        });
        self.settle();
    }

    /// Ends the leases whose reservations have all expired.
    pub(crate) fn sweep(&mut self) {
        let now = self.now;
        for lease in self.leases.values_mut() {
            if matches!(lease, Lease::Open(open) if open.last_expiry <= now) {
                *lease = Lease::Ended { since: now };
            }
        }
    }

    pub(crate) fn open_leases(&self) -> usize {
        self.leases.values().filter(|lease| matches!(lease, Lease::Open(_))).count()
    }

    /// Applies the pending decreases that fit, and drops the instances that are not in use.
    fn settle(&mut self) {
        let keys: Vec<LimitKey> = self.limits.keys().cloned().collect();
        for key in keys {
            let used = self.used(&key);
            let defined = self.limits.get_mut(&key).unwrap();
            if let Some(target) = defined.target
                && used <= target.get()
            {
                defined.limit.capacity = target;
                defined.target = None;
            }
            if let LimitKind::Concurrency { timeout } = defined.limit.kind {
                let nanos = u64::from(timeout.seconds()) * 1_000_000_000;
                self.timeouts.insert(defined.generation, nanos);
            }
            let can_go = defined.template.is_some() && defined.debt == 0;
            if can_go && self.live(&key).next().is_none() {
                self.limits.remove(&key);
            }
        }
    }

    fn live(&self, key: &LimitKey) -> impl Iterator<Item = &Reservation> {
        let generation = self.limits[key].generation;
        self.reservations.iter().filter(move |reservation| {
            reservation.key == *key && reservation.generation == generation
        })
    }

    fn used(&self, key: &LimitKey) -> u64 {
        self.live(key).map(|reservation| reservation.amount).sum()
    }

    fn available(&self, key: &LimitKey) -> u64 {
        self.limits[key].limit.ceiling().get() - self.used(key)
    }

    /// The state of a limit or a template. TPL-02: also of a key that only a template matches.
    pub(crate) fn state(&self, key: &LimitKey) -> Option<LimitState> {
        if self.templates.contains_key(key) {
            return Some(self.template_state(key));
        }
        if self.limits.contains_key(key) {
            return Some(self.limit_state(key));
        }
        let limit = self.instance_of(key)?;
        let resets_at = resets_at(&limit, expiry_of(limit.kind, self.now));
        let usage = Usage { available: limit.capacity.get(), ..Usage::default() };
        Some(LimitState { status: status_in_force(&limit), limit, usage, resets_at })
    }

    /// The states of all limits and templates, without instances.
    pub(crate) fn states(&self) -> Vec<LimitState> {
        let limits = self.limits.iter().filter(|(_, defined)| defined.template.is_none());
        let limits = limits.map(|(key, _)| self.limit_state(key));
        let templates = self.templates.keys().map(|key| self.template_state(key));
        let mut states: Vec<_> = limits.chain(templates).collect();
        states.sort_by(|a, b| a.limit.key.cmp(&b.limit.key));
        states
    }

    fn limit_state(&self, key: &LimitKey) -> LimitState {
        let (defined, used) = (&self.limits[key], self.used(key));
        LimitState {
            limit: defined.limit.clone(),
            status: defined.status(),
            usage: Usage {
                used,
                available: defined.limit.capacity.get().saturating_sub(used),
                debt: defined.debt,
                uncovered: defined.uncovered,
            },
            resets_at: resets_at(&defined.limit, defined.period_ends_at),
        }
    }
}

/// Templates.
impl Oracle {
    pub(crate) fn templates(&self) -> Vec<LimitKey> {
        self.templates.keys().cloned().collect()
    }

    /// TPL-06
    pub(crate) fn instances(&self, template: &LimitKey) -> Vec<LimitState> {
        let is_of =
            |(_, defined): &(&LimitKey, &DefinedLimit)| defined.template.as_ref() == Some(template);
        self.limits.iter().filter(is_of).map(|(key, _)| self.limit_state(key)).collect()
    }

    fn template_state(&self, key: &LimitKey) -> LimitState {
        let Template { limit, uncovered } = &self.templates[key];
        LimitState {
            limit: limit.clone(),
            status: status_in_force(limit),
            usage: Usage {
                available: limit.capacity.get(),
                uncovered: *uncovered,
                ..Usage::default()
            },
            resets_at: resets_at(limit, expiry_of(limit.kind, self.now)),
        }
    }

    /// TPL-02: the key of the most specific template that matches.
    fn template_of(&self, key: &LimitKey) -> Option<LimitKey> {
        let templates = self.templates.keys().filter(|_| !key.as_str().contains('*'));
        let patterns = templates.map(|template| KeyPattern::new(template).unwrap());
        let matching = patterns.filter(|pattern| pattern.matches(key));
        matching.min_by(KeyPattern::cmp_specificity).map(|pattern| pattern.key().clone())
    }

    fn instance_of(&self, key: &LimitKey) -> Option<Limit> {
        let template = self.template_of(key)?;
        Some(Limit { key: key.clone(), ..self.templates[&template].limit.clone() })
    }

    /// Makes the instance of a key that has no limit, if a template matches.
    fn make_instance(&mut self, key: &LimitKey) {
        if let Some(limit) = self.instance_of(key).filter(|_| !self.limits.contains_key(key)) {
            self.insert(&limit, self.template_of(key));
        }
    }

    /// TPL-04: the instances that a changed template matches follow, or leave.
    fn realign(&mut self, changed: &LimitKey) {
        let changed = KeyPattern::new(changed).unwrap();
        let is_concerned = |(key, defined): &(&LimitKey, &DefinedLimit)| {
            defined.template.is_some() && changed.matches(key)
        };
        let keys = self.limits.iter().filter(is_concerned).map(|(key, _)| key.clone());
        for key in keys.collect::<Vec<_>>() {
            let kind = self.limits[&key].limit.kind.name();
            match self.instance_of(&key).filter(|limit| limit.kind.name() == kind) {
                Some(limit) => {
                    let template = self.template_of(&key);
                    let defined = self.limits.get_mut(&key).unwrap();
                    defined.redefine(&limit);
                    defined.template = template;
                }
                None => drop(self.limits.remove(&key)),
            }
        }
        self.settle();
    }

    fn define_template(&mut self, new: &Limit) -> Result<LimitStatus, DefineError> {
        match self.templates.get_mut(&new.key) {
            Some(Template { limit, .. }) if limit.kind.name() != new.kind.name() => {
                let (key, is) = (new.key.clone(), limit.kind.name());
                return Err(DefineError::KindConflict { key, is });
            }
            Some(template) => template.limit = new.clone(),
            None => {
                let template = Template { limit: new.clone(), uncovered: 0 };
                self.templates.insert(new.key.clone(), template);
            }
        }
        self.realign(&new.key);
        Ok(status_in_force(new))
    }
}

fn resets_at(limit: &Limit, period_ends_at: u64) -> Option<Timestamp> {
    let is_calendar = matches!(limit.kind, LimitKind::Calendar { .. });
    is_calendar.then(|| Timestamp::from_unix_nanos(period_ends_at))
}

fn status_in_force(limit: &Limit) -> LimitStatus {
    if limit.capacity == Capacity::ZERO { LimitStatus::Paused } else { LimitStatus::Active }
}

impl DefinedLimit {
    /// The kind stays.
    fn redefine(&mut self, new: &Limit) {
        // SHD-02: whatever was admitted in shadow mode, so any capacity is lower.
        let was = if is_shadow(&self.limit) { Capacity::MAX } else { self.limit.capacity };
        let is_decrease = !is_shadow(new) && new.capacity < was;
        self.target = is_decrease.then_some(new.capacity);
        let capacity = if is_decrease { was } else { new.capacity };
        self.limit = Limit { capacity, ..new.clone() };
    }

    fn status(&self) -> LimitStatus {
        match self.target {
            _ if self.target.unwrap_or(self.limit.capacity) == Capacity::ZERO => {
                LimitStatus::Paused
            }
            Some(to) => LimitStatus::Decreasing { to },
            None => LimitStatus::Active,
        }
    }
}

/// Definitions.
impl Oracle {
    pub(crate) fn define(&mut self, new: &Limit) -> Result<LimitStatus, DefineError> {
        if new.key.is_template() {
            return self.define_template(new);
        }
        let is_other_kind = |defined: &DefinedLimit| defined.limit.kind.name() != new.kind.name();
        if let Some(defined) = self.limits.get_mut(&new.key) {
            if is_other_kind(defined) {
                let (key, is) = (new.key.clone(), defined.limit.kind.name());
                return Err(DefineError::KindConflict { key, is });
            }
            defined.redefine(new);
            defined.template = None;
        } else {
            self.insert(new, None);
        }
        self.settle();
        Ok(self.limits[&new.key].status())
    }

    fn insert(&mut self, new: &Limit, template: Option<LimitKey>) {
        self.generations += 1;
        if new.kind.is_concurrency() {
            self.generations_of_holds.insert(self.generations);
        }
        if matches!(new.kind, LimitKind::Calendar { .. }) {
            self.generations_of_calendars.insert(self.generations);
        }
        let defined = DefinedLimit {
            generation: self.generations,
            template,
            limit: new.clone(),
            target: None,
            debt: 0,
            uncovered: 0,
            streak: 0,
            period_ends_at: expiry_of(new.kind, self.now),
        };
        self.limits.insert(new.key.clone(), defined);
    }

    pub(crate) fn delete(&mut self, key: &LimitKey) -> bool {
        if self.templates.remove(key).is_some() {
            self.realign(key);
            return true;
        }
        let is_defined = self.limits.get(key).is_some_and(|defined| defined.template.is_none());
        is_defined && self.limits.remove(key).is_some()
    }
}

/// Reserve.
impl Oracle {
    pub(crate) fn reserve(&mut self, request: &ReserveRequest) -> Expected {
        for need in request.requirements.iter() {
            self.make_instance(&need.key);
        }
        let expected = self.decide(request);
        self.settle();
        expected
    }

    fn decide(&mut self, request: &ReserveRequest) -> Expected {
        let needs: Vec<(LimitKey, u64)> =
            request.requirements.iter().map(|need| (need.key.clone(), need.amount.get())).collect();
        if let Some((key, _)) = needs.iter().find(|(key, _)| !self.limits.contains_key(key)) {
            return Expected::Refused(ReserveError::UnknownKey { key: key.clone() });
        }
        match self.leases.get(&request.lease) {
            Some(Lease::Ended { .. }) => return Expected::Refused(ReserveError::LeaseEnded),
            Some(Lease::Denied { .. }) => return Expected::DeniedAgain,
            Some(Lease::Open(_)) => return self.replay(request.lease, &needs),
            None => {}
        }
        let is_paused = |key: &LimitKey| {
            let defined = &self.limits[key];
            defined.status() == LimitStatus::Paused && !is_shadow(&defined.limit)
        };
        if let Some((key, _)) = needs.iter().find(|(key, _)| is_paused(key)) {
            return Expected::Paused { key: key.clone() };
        }
        let capacity = |key: &LimitKey| self.limits[key].limit.ceiling().get();
        if let Some((key, _)) = needs.iter().find(|(key, amount)| *amount > capacity(key)) {
            return Expected::Refused(ReserveError::AmountExceedsCapacity { key: key.clone() });
        }
        if let Some((key, _)) = needs.iter().find(|(key, _)| self.limits[key].target.is_some()) {
            return Expected::Decreasing { key: key.clone() };
        }
        let full: Vec<(LimitKey, u64)> =
            needs.iter().filter(|(key, amount)| *amount > self.available(key)).cloned().collect();
        if full.is_empty() {
            return self.admit(request.lease, needs);
        }
        self.leases.insert(request.lease, Lease::Denied { since: self.now });
        for (key, _) in &full {
            self.limits.get_mut(key).unwrap().streak += 1;
        }
        let hints: Vec<_> = full.iter().map(|(key, amount)| self.hint(key, *amount)).collect();
        let lowest = hints.iter().map(|hint| *hint.start()).max().unwrap();
        let highest = hints.iter().map(|hint| *hint.end()).max().unwrap();
        let keys = full.into_iter().map(|(key, _)| key).collect();
        Expected::Denied { keys, hint: lowest..=highest }
    }

    fn admit(&mut self, lease: LeaseId, needs: Vec<(LimitKey, u64)>) -> Expected {
        let (mut held, mut shadow_denied) = (Vec::new(), Vec::new());
        for (key, amount) in needs {
            if self.shadow_denies(&key, amount) {
                shadow_denied.push(key.clone());
            }
            let generation = self.hold(lease, &key, amount);
            held.push(Need { key, required: amount, reserved: amount.into(), generation });
        }
        let open = OpenLease {
            reserved_at: self.now,
            needs: held,
            first_expiry: self.expiries(lease).min().unwrap(),
            last_expiry: self.expiries(lease).max().unwrap(),
            last_renew: None,
            is_renewed: false,
        };
        self.leases.insert(lease, Lease::Open(open));
        Expected::Allowed { reserved_at_nanos: self.now, shadow_denied }
    }

    /// SHD-01
    fn shadow_denies(&self, key: &LimitKey, amount: u64) -> bool {
        let limit = &self.limits[key].limit;
        let used = u128::from(self.used(key));
        is_shadow(limit) && used + u128::from(amount) > limit.capacity.get().into()
    }

    /// Adds a reservation, and returns its limit's generation.
    fn hold(&mut self, lease: LeaseId, key: &LimitKey, amount: u64) -> u64 {
        let defined = self.limits.get_mut(key).unwrap();
        defined.streak = 0;
        let seconds = defined.limit.kind.lifetime_seconds();
        let lifetime = seconds.map(|seconds| u64::from(seconds) * 1_000_000_000);
        let expires_at = lifetime.map_or(defined.period_ends_at, |lifetime| self.now + lifetime);
        let (generation, lifetime) = (defined.generation, lifetime.unwrap_or(0));
        let (key, is_open) = (key.clone(), true);
        self.reservations.push(Reservation {
            lease,
            key,
            generation,
            amount,
            lifetime,
            expires_at,
            is_open,
        });
        generation
    }

    /// When the reservations of an open lease expire.
    fn expiries(&self, lease: LeaseId) -> impl Iterator<Item = u64> {
        let own = self.reservations.iter().filter(move |held| held.is_open_of(lease));
        own.map(|held| held.expires_at)
    }

    /// The live parts of what an open lease has of a key, in the order of expiry.
    fn parts(&self, lease: LeaseId, key: &LimitKey) -> Vec<usize> {
        let is_part = |n: &usize| {
            self.reservations[*n].is_open_of(lease) && self.reservations[*n].key == *key
        };
        let mut parts: Vec<usize> = (0..self.reservations.len()).filter(is_part).collect();
        parts.sort_by_key(|n| self.reservations[*n].expires_at);
        parts
    }

    fn replay(&self, lease: LeaseId, needs: &[(LimitKey, u64)]) -> Expected {
        let Some(Lease::Open(open)) = self.leases.get(&lease) else {
            unreachable!("the caller has checked");
        };
        let OpenLease { reserved_at, needs: held, first_expiry, .. } = open;
        if *first_expiry <= self.now {
            return Expected::Refused(ReserveError::LeaseEnded);
        }
        let is_same = |(key, amount): &(LimitKey, u64)| {
            held.iter().any(|need| need.key == *key && need.required == *amount)
        };
        let is_gone = |need: &Need| {
            self.limits.get(&need.key).is_none_or(|defined| defined.generation != need.generation)
        };
        if needs.len() == held.len() && needs.iter().all(is_same) {
            return match held.iter().any(is_gone) {
                true => Expected::EndedOrConflict,
                false => {
                    let shadow_denied = Vec::new();
                    Expected::Allowed { reserved_at_nanos: *reserved_at, shadow_denied }
                }
            };
        }
        match held.iter().any(is_gone) {
            true => Expected::EndedOrConflict,
            false => Expected::Refused(ReserveError::LeaseConflict),
        }
    }

    /// Bounds of the hint of a full limit.
    fn hint(&self, key: &LimitKey, amount: u64) -> RangeInclusive<Duration> {
        let backoff = self.backoff(key);
        if self.limits[key].limit.kind.is_concurrency() {
            return backoff;
        }
        let mut live: Vec<&Reservation> = self.live(key).collect();
        live.sort_by_key(|reservation| reservation.expires_at);
        let mut available = self.available(key);
        let enough = live.iter().find(|reservation| {
            available += reservation.amount;
            available >= amount
        });
        let expires_at = enough.expect("the capacity is enough").expires_at;
        let exact = Duration::from_nanos(expires_at - self.now);
        match live.iter().any(|reservation| reservation.is_open) {
            true => exact.min(*backoff.start())..=exact.min(*backoff.end()),
            false => exact..=exact,
        }
    }

    fn backoff(&self, key: &LimitKey) -> RangeInclusive<Duration> {
        // Rounding may differ in the last digits.
        const SLACK: Duration = Duration::from_micros(1);
        let DefinedLimit { limit, streak, .. } = &self.limits[key];
        let (base_ms, factor, max_ms, jitter_ms, bound) = match limit.kind {
            LimitKind::Concurrency { timeout } => {
                (50.0, 2.0_f64, 2_000.0, 25, Duration::from_secs(timeout.seconds().into()))
            }
            LimitKind::Rolling { window } => {
                let tenth = f64::from(window.seconds()) * 100.0;
                (tenth.max(100.0), 1.5, 5_000.0, 50, Duration::MAX)
            }
            LimitKind::Calendar { .. } => (5_000.0, 1.5, 5_000.0, 50, Duration::MAX),
        };
        let delay_ms: f64 = (base_ms * factor.powi(streak - 1)).min(max_ms);
        let delay = Duration::from_secs_f64(delay_ms / 1_000.0);
        let jitter = Duration::from_millis(if self.has_jitter { jitter_ms } else { 0 });
        (delay - SLACK).min(bound)..=(delay + jitter + SLACK).min(bound)
    }
}

/// Complete.
impl Oracle {
    /// The expected answer to a complete. An actual for a hold whose limit was deleted may be refused, since it was always
    /// invalid, or accepted, since nothing is left that it could change: there `answer` decides.
    pub(crate) fn complete(
        &mut self,
        request: &CompleteRequest,
        answer: &Result<(), CompleteError>,
    ) -> Result<(), CompleteError> {
        let lease = request.lease;
        let Some(Lease::Open(open)) = self.leases.get(&lease).cloned() else {
            return Ok(());
        };
        let OpenLease { needs, is_renewed, .. } = open;
        let is_live = |reservation: &Reservation| {
            let defined = self.limits.get(&reservation.key);
            reservation.is_open_of(lease)
                && defined.is_some_and(|defined| defined.generation == reservation.generation)
        };
        if self.reservations.iter().any(is_live) {
            for actual in request.actuals.iter() {
                let held = needs.iter().find(|need| need.key == actual.key);
                let refusal = Err(CompleteError::InvalidActual { key: actual.key.clone() });
                let is_valid = held.is_some_and(|Need { key, generation, .. }| {
                    let is_defined =
                        self.limits.get(key).is_some_and(|d| d.generation == *generation);
                    let is_hold = self.generations_of_holds.contains(generation);
                    !is_hold || (!is_defined && *answer != refusal)
                });
                if !is_valid {
                    return refusal;
                }
            }
        }
        let is_open = self.reservations.iter().any(|held| held.is_open_of(lease));
        for need in needs {
            let actual = request.actuals.iter().find(|actual| actual.key == need.key);
            let actual = actual.map(|actual| actual.amount);
            if is_open {
                self.note_late_excess(lease, &need, is_renewed, actual);
            }
            self.reconcile(lease, &need, actual);
        }
        self.leases.insert(lease, Lease::Ended { since: self.now });
        self.settle();
        Ok(())
    }

    /// CAL-04: after the end of the period, an excess counts as overage while the lease is open. REN-01: of a renewed lease, also
    /// one of a rolling limit of which all has lapsed.
    fn note_late_excess(
        &mut self,
        lease: LeaseId,
        need: &Need,
        is_renewed: bool,
        actual: Option<u64>,
    ) {
        let Need { key, reserved, generation, .. } = need;
        let is_live =
            self.reservations.iter().any(|held| held.is_open_of(lease) && held.key == *key);
        let was_calendar = self.generations_of_calendars.contains(generation);
        let was_rolling = !was_calendar && !self.generations_of_holds.contains(generation);
        if is_live || !(was_calendar || was_rolling && is_renewed) {
            return;
        }
        let excess = actual.map_or(0, |actual| u128::from(actual).saturating_sub(*reserved));
        self.make_instance(key);
        let is_same = |defined: &DefinedLimit| match defined.limit.kind {
            LimitKind::Calendar { .. } => was_calendar,
            LimitKind::Rolling { .. } => was_rolling,
            LimitKind::Concurrency { .. } => false,
        };
        if self.limits.get(key).is_some_and(is_same) {
            self.note_uncovered(key, u64::try_from(excess).unwrap());
        }
    }

    /// TPL-06: what an instance uses without cover is counted for its template.
    fn note_uncovered(&mut self, key: &LimitKey, excess: u64) {
        let defined = self.limits.get_mut(key).unwrap();
        match &defined.template {
            Some(template) => {
                self.templates.get_mut(template).unwrap().uncovered += u128::from(excess);
            }
            None => defined.uncovered += u128::from(excess),
        }
        if defined.limit.overage == Overage::Debt {
            defined.debt += u128::from(excess);
        }
    }

    fn reconcile(&mut self, lease: LeaseId, need: &Need, actual: Option<u64>) {
        let (key, generation) = (&need.key, need.generation);
        let parts = self.parts(lease, key);
        if parts.is_empty() {
            return;
        }
        let Some(defined) = self.limits.get(key).filter(|d| d.generation == generation) else {
            parts.into_iter().for_each(|n| self.reservations[n].is_open = false);
            return;
        };
        let reserved = parts.iter().map(|n| self.reservations[*n].amount).sum();
        // REN-01: what has lapsed covers the first units of the use.
        let lapsed = u64::try_from(need.reserved - u128::from(reserved)).unwrap_or(u64::MAX);
        let actual = actual.map_or(reserved, |actual| actual.saturating_sub(lapsed));
        let excess = actual.saturating_sub(reserved);
        let kept = if defined.limit.kind.is_concurrency() {
            0
        } else if excess == 0 || (defined.target.is_none() && excess <= self.available(key)) {
            actual
        } else {
            self.note_uncovered(key, excess);
            reserved
        };
        self.set_parts(lease, key, kept);
        // The last part is the last to end.
        for left in (1..=parts.len()).rev() {
            let at = self.parts(lease, key)[left.saturating_sub(2)];
            self.reservations[at].is_open = false;
            if self.reservations[at].amount == 0 {
                self.reservations.remove(at);
            } else if self.reservations[at].lifetime >= LONG_WINDOW_NANOS {
                self.join(at);
            }
        }
    }

    /// Makes the parts of what a lease has of a key add up to an amount: what expires first goes first, and more is added to the last.
    fn set_parts(&mut self, lease: LeaseId, key: &LimitKey, amount: u64) {
        let parts = self.parts(lease, key);
        let mut left = amount;
        for n in parts.iter().rev() {
            let part = &mut self.reservations[*n];
            part.amount = part.amount.min(left);
            left -= part.amount;
        }
        if let Some(last) = parts.last() {
            self.reservations[*last].amount += left;
        }
    }

    /// RES-02: with many ended reservations on a long window, this one and another that expires in the same slice of the window
    /// return together, when the later one does.
    fn join(&mut self, at: usize) {
        let Reservation { key, generation, amount, lifetime, expires_at, .. } =
            &self.reservations[at];
        let mut ended: Vec<usize> = (0..self.reservations.len()).collect();
        ended.retain(|&n| {
            let other = &self.reservations[n];
            n != at
                && !other.is_open
                && other.lifetime == *lifetime
                && other.key == *key
                && other.generation == *generation
        });
        let is_exact = ended.len() < EXACT_MAX;
        let expiry_of = |n: &usize| self.reservations[*n].expires_at;
        let slice = lifetime / SLICES;
        let can_join = |n: &usize| match is_exact {
            true => expiry_of(n) == *expires_at,
            false => expiry_of(n) / slice == expires_at / slice,
        };
        let later = ended.iter().copied().filter(|n| expiry_of(n) >= *expires_at);
        let earlier = ended.iter().copied().filter(|n| expiry_of(n) < *expires_at);
        if let Some(later) = later.min_by_key(expiry_of).filter(can_join) {
            self.reservations[later].amount += *amount;
            self.reservations.remove(at);
        } else if let Some(earlier) = earlier.max_by_key(expiry_of).filter(can_join) {
            self.reservations[at].amount += self.reservations[earlier].amount;
            self.reservations.remove(earlier);
        }
    }
}
