//! Random plans from seeds.

mod renews;
mod second_edition;
mod templates;
mod waits;

use ratelimiter::Overage;
use ratelimiter::clock::{Clock, FakeClock, Timestamp};

pub(crate) use self::second_edition::LimitChoices;
use super::{
    CallFault, Definition, DiskBehaviour, DiskFault, EVENTS_MS, EventKind, InstanceBounds,
    LimitSetup, LimitsEvent, LimitsPlan, NetworkFault, SetupKind, WAITERS_MAX_WIDE,
};

/// What kind of run a plan is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topology {
    /// Several servers on one ledger.
    ServersOnLedger,
    /// One process that keeps everything in memory.
    OneProcess,
}

/// The longest delay of a message. With the deadline of a call it bounds when the last effect can happen.
const LATE_MS_MAX: u64 = 3_000;
/// How long a server or the ledger is down at the most.
const DOWN_MS_MAX: u64 = 1_500;
/// The longest window or timeout.
const SECONDS_MAX: u64 = 4;
/// By how much a clock may be set wrong.
const SKEW_MS_MAX: i64 = 20_000;

/// How many calls to the disk a change makes, about.
const DISK_CALLS: u32 = 18;

struct Generator {
    random: fastrand::Rng,
    topology: Topology,
    starts_at: Timestamp,
    servers: usize,
    limits: Vec<LimitSetup>,
    /// The limits that leases need.
    leased: Vec<usize>,
    instance_bounds: InstanceBounds,
    waiters_max: usize,
    clients: usize,
    /// How likely a fault is, in percent.
    fault_percent: u32,
    events: Vec<LimitsEvent>,
}

impl LimitsPlan {
    pub(crate) fn random(seed: u64, topology: Topology, choices: LimitChoices) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let fault_percent = *random.choice(&[0, 10, 25, 40]).expect("there are four");
        let servers = if topology == Topology::ServersOnLedger { random.usize(1..=3) } else { 1 };
        let clients = random.usize(2..=10);
        let limits: Vec<_> = (0..random.usize(2..=4)).map(|_| limit(&mut random)).collect();
        let mut generator = Generator {
            random,
            topology,
            starts_at: FakeClock::new().now(),
            servers,
            leased: (0..limits.len()).collect(),
            limits,
            instance_bounds: InstanceBounds::WIDE,
            waiters_max: WAITERS_MAX_WIDE,
            clients,
            fault_percent,
            events: Vec::new(),
        };
        let lease_count = generator.random.usize(6..=26);
        (0..lease_count).for_each(|lease| generator.lease(lease));
        generator.administration();
        generator.disasters();
        let skews_ms = (0..servers).map(|_| generator.skew_ms()).collect();
        generator.lists(seed);
        generator.definition_faults(seed);
        generator.second_edition(seed, choices);
        if choices.templates {
            generator.templates(seed, lease_count);
        }
        if choices.waits {
            generator.waits(seed);
        }
        if choices.renews {
            generator.renews(seed);
        }
        let Generator {
            mut random,
            starts_at,
            limits,
            instance_bounds,
            waiters_max,
            mut events,
            ..
        } = generator;
        events.sort_by_key(|event| event.at_ms);
        let expiry_lag_ms = *random.choice(&[0, 0, 40, 100]).expect("there are four");
        let leases_cached_max = *random.choice(&[1_000, 1_000, 16, 0]).expect("there are four");
        Self {
            seed,
            starts_at,
            skews_ms,
            limits,
            instance_bounds,
            waiters_max,
            expiry_lag_ms,
            leases_cached_max,
            events,
        }
    }
}

fn limit(random: &mut fastrand::Rng) -> LimitSetup {
    let is_concurrency = random.u8(..3) == 0;
    let seconds = random.u64(1..=SECONDS_MAX);
    LimitSetup {
        kind: match is_concurrency {
            true => SetupKind::Concurrency { seconds },
            false => SetupKind::Rolling { seconds },
        },
        capacity: random.u64(1..=12),
        overage: if random.u8(..4) == 0 { Overage::Deny } else { Overage::Debt },
        is_shadow: false,
        is_defined: true,
    }
}

impl Generator {
    fn percent(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    fn is_faulty(&mut self) -> bool {
        self.percent(self.fault_percent)
    }

    fn server(&mut self) -> usize {
        self.random.usize(..self.servers)
    }

    fn skew_ms(&mut self) -> i64 {
        let is_wrong = self.topology == Topology::ServersOnLedger
            && self.fault_percent > 0
            && self.percent(40);
        if is_wrong { self.random.i64(-SKEW_MS_MAX..=SKEW_MS_MAX) } else { 0 }
    }

    fn event(&mut self, at_ms: u64, client: usize, kind: EventKind) {
        let fault_percent = self.fault_percent;
        let network = match self.percent(fault_percent) {
            true => *self
                .random
                .choice(&[
                    NetworkFault::RequestLost,
                    NetworkFault::ReplyLost,
                    NetworkFault::RequestTwice,
                    NetworkFault::None,
                ])
                .expect("there are four"),
            false => NetworkFault::None,
        };
        let mut call_faults = Vec::new();
        while self.topology == Topology::ServersOnLedger
            && call_faults.len() < 3
            && self.percent(fault_percent)
        {
            call_faults.push((self.random.usize(..4), self.call_fault()));
        }
        let seed = self.random.u64(..);
        let at_ms = at_ms.min(EVENTS_MS);
        self.events.push(LimitsEvent { at_ms, client, seed, kind, network, call_faults });
    }

    fn call_fault(&mut self) -> CallFault {
        let ms = self.random.u64(1..=1_500);
        match self.random.u8(..10) {
            0 | 1 => CallFault::Slow { ms },
            2 => CallFault::RequestLost,
            3 | 4 => CallFault::ReplyLost,
            5 => CallFault::Late { ms: self.random.u64(2_000..=LATE_MS_MAX) },
            6 => CallFault::Twice { ms },
            7 => CallFault::Evicted { ms },
            8 => CallFault::Refused,
            _ => {
                let (down_ms, skew_ms) = (self.random.u64(1..=DOWN_MS_MAX), self.skew_ms());
                match self.random.bool() {
                    true => CallFault::CrashBefore { down_ms, skew_ms },
                    false => CallFault::CrashAfter { down_ms, skew_ms },
                }
            }
        }
    }

    fn needs(&mut self) -> Vec<(usize, u64)> {
        let mut numbers = self.leased.clone();
        self.random.shuffle(&mut numbers);
        let count = self.random.usize(1..=numbers.len().min(3));
        let amounts = numbers[..count].iter().map(|number| (*number, self.random.u64(1..=7)));
        amounts.collect()
    }

    /// All that one lease goes through.
    fn lease(&mut self, lease: usize) {
        let client = self.random.usize(..self.clients);
        let needs = self.needs();
        let at_ms = self.random.u64(..EVENTS_MS - 1_000);
        let server = self.server();
        let reserve = EventKind::Reserve { server, lease, needs: needs.clone(), wait: None };
        self.event(at_ms, client, reserve);
        let mut retry_ms = at_ms;
        while self.percent(25) {
            let (server, mut needs) = (self.server(), needs.clone());
            self.random.shuffle(&mut needs);
            retry_ms += self.random.u64(1..=2_000);
            if self.percent(8) {
                match self.percent(80) {
                    true => needs[0].1 += 1,
                    false => needs = self.needs(),
                }
            }
            self.event(retry_ms, client, EventKind::Reserve { server, lease, needs, wait: None });
        }
        if self.percent(15) {
            return;
        }
        let is_late = self.percent(10);
        let late_ms = if is_late { 1_000 * SECONDS_MAX } else { 0 };
        let mut end_ms = at_ms + late_ms + self.random.u64(5..=2_000);
        let mut actuals = self.actuals(&needs);
        loop {
            let server = self.server();
            let kind = EventKind::Complete { server, lease, actuals: actuals.clone() };
            self.event(end_ms, client, kind);
            if !self.percent(35) {
                return;
            }
            // Again later, or at the same time; with what was said before, or with something else.
            let is_later = self.percent(60);
            if is_later {
                end_ms += self.random.u64(1..=1_500);
            }
            if !is_later || self.percent(50) {
                actuals = self.actuals(&needs);
            }
        }
    }

    fn actuals(&mut self, needs: &[(usize, u64)]) -> Vec<(usize, u64)> {
        let mut actuals = Vec::new();
        for (limit, reserved) in needs {
            let is_given = match self.limits[*limit].is_concurrency() {
                true => self.percent(2),
                false => self.percent(75),
            };
            if is_given {
                let actual = match self.random.u8(..5) {
                    0 => 0,
                    1 => *reserved,
                    2 | 3 => self.random.u64(..=*reserved),
                    _ => reserved + self.random.u64(1..=9),
                };
                actuals.push((*limit, actual));
            }
        }
        actuals
    }

    fn administration(&mut self) {
        for _ in 0..self.random.usize(..=4) {
            let limit = self.random.usize(..self.limits.len());
            let capacity = self.random.u64(..=14);
            let mut disk = DiskBehaviour::NORMAL;
            let fault_percent = self.fault_percent;
            if self.percent(fault_percent) {
                disk.slow_ms = self.random.u64(50..=1_500) * 2 / 3;
            }
            if self.percent(fault_percent / 2) {
                disk.fault = Some(match self.random.bool() {
                    true => DiskFault::Full,
                    false => DiskFault::RenameFails,
                });
            }
            let (server, at_ms) = (self.server(), self.random.u64(..EVENTS_MS));
            // Administrators come after the clients.
            let client = self.clients;
            let definition = Definition::of_capacity(capacity);
            let kind = EventKind::Define { server, limit, definition, extra: None, disk };
            self.event(at_ms, client, kind);
        }
    }

    fn disasters(&mut self) {
        if self.fault_percent == 0 {
            return;
        }
        let nobody = self.clients + 1;
        while self.percent(40) {
            let (server, down_ms) = (self.server(), self.random.u64(1..=DOWN_MS_MAX));
            let (at_ms, skew_ms) = (self.random.u64(..EVENTS_MS), self.skew_ms());
            let kind = EventKind::Crash { server, down_ms, skew_ms, is_power_loss: false };
            self.event(at_ms, nobody, kind);
        }
        if self.topology == Topology::OneProcess {
            return;
        }
        if self.percent(20) {
            let (at_ms, down_ms) = (self.random.u64(..EVENTS_MS), self.random.u64(1..=DOWN_MS_MAX));
            self.event(at_ms, nobody, EventKind::LedgerRestart { down_ms });
        }
        while self.percent(60) {
            let (server, at_ms) = (self.server(), self.random.u64(..EVENTS_MS));
            let call_fault = self.call_fault();
            let (seed, network, call_faults) =
                (self.random.u64(..), NetworkFault::None, vec![(0, call_fault)]);
            let kind = EventKind::Upkeep { server };
            self.events.push(LimitsEvent {
                at_ms,
                client: nobody,
                seed,
                kind,
                network,
                call_faults,
            });
        }
    }

    /// More changes, and faults around them. They have a generator of their own, so that all else of a seed stays as it is
    /// without them.
    fn definition_faults(&mut self, seed: u64) {
        let before = std::mem::replace(&mut self.random, fastrand::Rng::with_seed(!seed));
        let mut changed_at = Vec::new();
        for event in 0..self.events.len() {
            if let EventKind::Define { mut disk, .. } = self.events[event].kind {
                changed_at.push(self.events[event].at_ms);
                disk.fault = self.disk_fault().or(disk.fault);
                self.events[event].kind.set_disk(disk);
            }
            let is_lost = self.random.u8(..3) == 0;
            if let EventKind::Crash { is_power_loss, .. } = &mut self.events[event].kind {
                *is_power_loss = is_lost;
            }
        }
        for _ in 0..self.random.usize(..=3) {
            // Often at the same time as another one.
            let at_ms = self.random.u64(..EVENTS_MS);
            let same = self.random.choice(&changed_at).copied().filter(|_| self.random.bool());
            let at_ms = same.unwrap_or(at_ms);
            changed_at.push(at_ms);
            self.extra_change(at_ms);
        }
        if self.topology == Topology::ServersOnLedger && self.fault_percent > 0 {
            self.abandoned_change();
        }
        self.random = before;
    }

    /// Some changes define two limits together. Like [`Self::definition_faults`], this leaves all else of a seed as it is.
    fn lists(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed.rotate_left(32));
        for event in &mut self.events {
            if let EventKind::Define { extra, .. } = &mut event.kind {
                *extra = (random.u8(..3) == 0).then(|| random.u64(..=14));
            }
        }
    }

    /// A change of the limit that no lease uses.
    fn extra_change(&mut self, at_ms: u64) {
        let (server, capacity) = (self.server(), self.random.u64(..=14));
        let capacity = self.random.bool().then_some(capacity);
        let mut disk = DiskBehaviour::NORMAL;
        if self.is_faulty() {
            disk.slow_ms = self.random.u64(50..=1_000);
        }
        disk.fault = self.disk_fault();
        self.event(at_ms, self.clients, EventKind::Extra { server, capacity, disk });
    }

    /// A change that is still on its way to the ledger when its server crashes.
    fn abandoned_change(&mut self) {
        let (server, limit) = (self.server(), self.random.usize(..self.limits.len()));
        let definition = Definition::of_capacity(self.random.u64(..=14));
        let disk = DiskBehaviour::NORMAL;
        let (at_ms, seed) = (self.random.u64(..EVENTS_MS - 500), self.random.u64(..));
        let slow = CallFault::Slow { ms: self.random.u64(300..=1_500) };
        self.events.push(LimitsEvent {
            at_ms,
            client: self.clients,
            seed,
            kind: EventKind::Define { server, limit, definition, extra: None, disk },
            network: NetworkFault::None,
            // The second call changes the account.
            call_faults: vec![(1, slow)],
        });
        let at_ms = at_ms + self.random.u64(20..=300);
        let (down_ms, skew_ms) = (self.random.u64(1..=300), self.skew_ms());
        let is_power_loss = self.random.u8(..3) == 0;
        let kind = EventKind::Crash { server, down_ms, skew_ms, is_power_loss };
        self.event(at_ms, self.clients + 1, kind);
    }

    fn disk_fault(&mut self) -> Option<DiskFault> {
        if !self.is_faulty() {
            return None;
        }
        Some(match self.random.u8(..9) {
            0 => DiskFault::Full,
            1 => DiskFault::RenameFails,
            2 => DiskFault::StageFlushFails,
            3 => DiskFault::CommitFlushFails { is_always: false },
            4 => DiskFault::CommitFlushFails { is_always: true },
            5 => DiskFault::ReadOnly,
            _ => {
                let (down_ms, skew_ms) = (self.random.u64(1..=DOWN_MS_MAX), self.skew_ms());
                DiskFault::Crash { call: self.random.u32(..DISK_CALLS), down_ms, skew_ms }
            }
        })
    }
}
