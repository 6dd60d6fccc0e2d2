//! A run's plan: its events and faults as plain data.

mod generate;
mod keys;
mod text;
mod wait;

use ratelimiter::clock::Timestamp;
use ratelimiter::{
    Actuals, Capacity, CompleteRequest, HoldTimeout, LeaseId, Limit, LimitKind, LimitMode, Overage,
    RegisteredLimit, Requirements, ReserveRequest, Window,
};

pub(super) use self::generate::{LimitChoices, Topology};
pub(super) use self::keys::{
    MATCHED, OTHER_KEYS, TEMPLATES, UNMATCHED, extra_key, key, key_of, number, templates_of,
};
pub(super) use self::wait::{Leave, PlannedWait, Queue};
use super::calendar::Schedule;
use super::virtual_disk::DiskCall;
use crate::world;

/// When the last event happens at the latest, after the start.
pub(super) const EVENTS_MS: u64 = 6_000;
/// When everything must have returned: the longest wait for an answer, the longest delay and the longest lifetime later.
pub(super) const QUIET_MS: u64 = 24_000;
/// More waiters than any plan has.
pub(super) const WAITERS_MAX_WIDE: usize = 1_000;

/// What happens in one run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitsPlan {
    pub(super) seed: u64,
    pub(super) starts_at: Timestamp,
    /// By how much each server's clock is ahead of the ledger's when the run starts, in milliseconds.
    pub(super) skews_ms: Vec<i64>,
    pub(super) limits: Vec<LimitSetup>,
    pub(super) instance_bounds: InstanceBounds,
    /// How many leases may wait at a server.
    pub(super) waiters_max: usize,
    /// How late the ledger releases what has expired.
    pub(super) expiry_lag_ms: u64,
    /// How many leases a server remembers.
    pub(super) leases_cached_max: usize,
    pub(super) events: Vec<LimitsEvent>,
}

/// A limit as it is at the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LimitSetup {
    pub(super) kind: SetupKind,
    pub(super) capacity: u64,
    pub(super) overage: Overage,
    pub(super) is_shadow: bool,
    /// The limits file has it at the start.
    pub(super) is_defined: bool,
}

/// How many limits may be made from templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InstanceBounds {
    pub(super) count_max: usize,
    pub(super) new_per_second_max: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SetupKind {
    Rolling { seconds: u64 },
    Concurrency { seconds: u64 },
    Calendar { schedule: Schedule },
}

/// What a change can set of a limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Definition {
    pub(super) capacity: u64,
    pub(super) is_shadow: bool,
    /// Of a calendar limit.
    pub(super) schedule: Option<Schedule>,
}

/// One thing that happens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LimitsEvent {
    pub(super) at_ms: u64,
    pub(super) client: usize,
    /// For the latencies of its calls.
    pub(super) seed: u64,
    pub(super) kind: EventKind,
    pub(super) network: NetworkFault,
    /// What becomes of its calls to the ledger, by their number.
    pub(super) call_faults: Vec<(usize, CallFault)>,
}

/// Limits are known by their numbers, and leases too.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum EventKind {
    Reserve {
        server: usize,
        lease: usize,
        needs: Vec<(usize, u64)>,
        wait: Option<PlannedWait>,
    },
    Complete {
        server: usize,
        lease: usize,
        actuals: Vec<(usize, u64)>,
    },
    Define {
        server: usize,
        limit: usize,
        definition: Definition,
        /// The capacity of the limit that no lease uses, if the same request defines it too.
        extra: Option<u64>,
        disk: DiskBehaviour,
    },
    Delete {
        server: usize,
        limit: usize,
        disk: DiskBehaviour,
    },
    /// Defines the limit that no lease uses, or deletes it.
    Extra {
        server: usize,
        capacity: Option<u64>,
        disk: DiskBehaviour,
    },
    Crash {
        server: usize,
        down_ms: u64,
        skew_ms: i64,
        /// All servers lose power, and not only one process ends.
        is_power_loss: bool,
    },
    /// The server is told to stop: it answers all that wait, and ends a little later.
    Stop {
        server: usize,
        ends_after_ms: u64,
        down_ms: u64,
    },
    LedgerRestart {
        down_ms: u64,
    },
    /// The next call of the server's regular work meets the first fault.
    Upkeep {
        server: usize,
    },
    /// Nothing happens for so long.
    Leap {
        ms: u64,
    },
}

/// What becomes of a request on its way to a server, or of the reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NetworkFault {
    None,
    RequestLost,
    ReplyLost,
    RequestTwice,
}

/// What the disk under the limits file does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DiskBehaviour {
    pub(super) slow_ms: u64,
    pub(super) fault: Option<DiskFault>,
}

/// What goes wrong when a limits file is replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DiskFault {
    /// Nothing can be written.
    Full,
    /// What was written cannot be put in its place, once.
    RenameFails,
    /// It is written, and its name cannot be flushed, once.
    StageFlushFails,
    /// It is in its place, and that cannot be flushed: once, or whenever it is tried.
    CommitFlushFails { is_always: bool },
    /// Nothing can be changed.
    ReadOnly,
    /// The server crashes at this call to the disk.
    Crash { call: u32, down_ms: u64, skew_ms: i64 },
}

/// What becomes of a call to the ledger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallFault {
    /// It takes its time, and others overtake it.
    Slow { ms: u64 },
    /// It never arrives.
    RequestLost,
    /// It is done, and nobody hears of it.
    ReplyLost,
    /// It is done after its caller has given up.
    Late { ms: u64 },
    /// It is done, and later once more; the caller hears the first answer.
    Twice { ms: u64 },
    /// It is done, the session is lost, it is sent again; the caller hears the second answer.
    Evicted { ms: u64 },
    /// It is not sent at all, and the caller knows.
    Refused,
    /// The server crashes instead of sending it.
    CrashBefore { down_ms: u64, skew_ms: i64 },
    /// It is done, and the server crashes.
    CrashAfter { down_ms: u64, skew_ms: i64 },
}

impl LimitsPlan {
    /// The limit that no lease uses.
    pub(super) fn extra_limit(&self, capacity: u64) -> Limit {
        let definition = Definition { capacity, ..self.limits[0].definition() };
        Limit { key: extra_key(), ..self.limits[0].limit(0, definition) }
    }

    /// Those that the limits file has at the start.
    pub(super) fn defined_limits(&self) -> impl Iterator<Item = Limit> {
        let defined = self.limits.iter().enumerate().filter(|(_, setup)| setup.is_defined);
        defined.map(|(number, setup)| setup.limit(number, setup.definition()))
    }

    pub(super) fn has_calendar(&self) -> bool {
        self.limits.iter().any(|limit| limit.definition().schedule.is_some())
    }

    /// How much time the first so many events leap over.
    pub(super) fn leaps_ms(&self, events: usize) -> u64 {
        let leap_ms = |event: &LimitsEvent| match event.kind {
            EventKind::Leap { ms } => ms,
            EventKind::Reserve { .. }
            | EventKind::Complete { .. }
            | EventKind::Define { .. }
            | EventKind::Delete { .. }
            | EventKind::Extra { .. }
            | EventKind::Crash { .. }
            | EventKind::Stop { .. }
            | EventKind::LedgerRestart { .. }
            | EventKind::Upkeep { .. } => 0,
        };
        self.events[..events].iter().map(leap_ms).sum()
    }
}

impl InstanceBounds {
    /// More than any plan has.
    pub(super) const WIDE: Self = Self { count_max: 1_000, new_per_second_max: 1_000 };
}

impl LimitSetup {
    pub(super) const fn is_concurrency(&self) -> bool {
        matches!(self.kind, SetupKind::Concurrency { .. })
    }

    /// What it is at the start.
    pub(super) const fn definition(&self) -> Definition {
        let schedule = match self.kind {
            SetupKind::Calendar { schedule } => Some(schedule),
            SetupKind::Rolling { .. } | SetupKind::Concurrency { .. } => None,
        };
        Definition { capacity: self.capacity, is_shadow: self.is_shadow, schedule }
    }

    pub(super) fn limit(&self, number: usize, definition: Definition) -> Limit {
        let kind = match self.kind {
            SetupKind::Rolling { seconds } => {
                let window = Window::from_seconds(seconds).expect("plans are valid");
                LimitKind::Rolling { window }
            }
            SetupKind::Concurrency { seconds } => {
                let timeout = HoldTimeout::from_seconds(seconds).expect("plans are valid");
                LimitKind::Concurrency { timeout }
            }
            SetupKind::Calendar { schedule } => {
                let resets = definition.schedule.unwrap_or(schedule).resets();
                LimitKind::Calendar { resets }
            }
        };
        let mode = if definition.is_shadow { LimitMode::Shadow } else { LimitMode::Enforce };
        let capacity = Capacity::new(definition.capacity).expect("plans are valid");
        Limit { overage: self.overage, mode, ..Limit::new(key(number), kind, capacity) }
    }
}

impl Definition {
    /// An enforced limit that is no calendar limit.
    pub(super) const fn of_capacity(capacity: u64) -> Self {
        Self { capacity, is_shadow: false, schedule: None }
    }

    /// What a limit is meant to be, whatever is in force.
    pub(super) fn of(registered: &RegisteredLimit) -> Self {
        let Limit { kind, mode, .. } = registered.limit;
        let schedule = match kind {
            LimitKind::Calendar { resets } => Schedule::of(resets),
            LimitKind::Rolling { .. } | LimitKind::Concurrency { .. } => None,
        };
        let capacity = registered.target().get();
        Self { capacity, is_shadow: mode == LimitMode::Shadow, schedule }
    }
}

/// The ID of a lease: its number in the random part, spread, so that it is one among many.
pub(super) fn lease_id(start_ms: u64, seed: u64, lease: usize) -> LeaseId {
    let spread = fastrand::Rng::with_seed(seed ^ ((lease as u64) << 32)).u64(..);
    LeaseId::from_u128((u128::from(start_ms) << 80) | (u128::from(spread) << 8) | lease as u128)
}

pub(super) fn reserve_request(lease: LeaseId, needs: &[(usize, u64)]) -> ReserveRequest {
    let needs = needs.iter().map(|(limit, amount)| (key(*limit), *amount));
    ReserveRequest::new(lease, Requirements::of(needs).expect("plans are valid"))
}

/// As [`reserve_request`], and it may wait.
pub(super) fn waiting_request(
    lease: LeaseId,
    needs: &[(usize, u64)],
    wait: Option<&PlannedWait>,
) -> ReserveRequest {
    ReserveRequest { wait: wait.map(PlannedWait::wait), ..reserve_request(lease, needs) }
}

pub(super) fn complete_request(lease: LeaseId, actuals: &[(usize, u64)]) -> CompleteRequest {
    let actuals = actuals.iter().map(|(limit, amount)| (key(*limit), *amount));
    CompleteRequest::new(lease, Actuals::of(actuals).expect("plans are valid"))
}

impl world::Plan for LimitsPlan {
    type Event = LimitsEvent;

    fn events(&self) -> &[LimitsEvent] {
        &self.events
    }

    fn with_events(&self, events: Vec<LimitsEvent>) -> Self {
        Self { events, ..self.clone() }
    }
}

impl world::Event for LimitsEvent {
    fn actor(&self) -> usize {
        self.client
    }

    fn simpler_variants(&self) -> Vec<Self> {
        let mut simpler_variants = Vec::new();
        for index in 0..self.call_faults.len() {
            let mut call_faults = self.call_faults.clone();
            call_faults.remove(index);
            simpler_variants.push(Self { call_faults, ..self.clone() });
        }
        if self.network != NetworkFault::None {
            simpler_variants.push(Self { network: NetworkFault::None, ..self.clone() });
        }
        let mut with = |kind| simpler_variants.push(Self { kind, ..self.clone() });
        if let EventKind::Define { server, limit, definition, extra: Some(_), disk } = self.kind {
            with(EventKind::Define { server, limit, definition, extra: None, disk });
        }
        match &self.kind {
            EventKind::Define { disk, .. }
            | EventKind::Delete { disk, .. }
            | EventKind::Extra { disk, .. }
                if *disk != DiskBehaviour::NORMAL =>
            {
                let mut kind = self.kind.clone();
                kind.set_disk(DiskBehaviour::NORMAL);
                with(kind);
            }
            EventKind::Crash { server, down_ms, skew_ms, is_power_loss: true } => {
                let (server, down_ms, skew_ms) = (*server, *down_ms, *skew_ms);
                with(EventKind::Crash { server, down_ms, skew_ms, is_power_loss: false });
            }
            EventKind::Reserve { server, lease, needs, wait } => {
                let (server, lease) = (*server, *lease);
                if let Some(wait) = wait {
                    let needs = || needs.clone();
                    with(EventKind::Reserve { server, lease, needs: needs(), wait: None });
                    if wait.leaves.is_some() {
                        let wait = Some(PlannedWait { leaves: None, ..*wait });
                        with(EventKind::Reserve { server, lease, needs: needs(), wait });
                    }
                }
                for index in (0..needs.len()).filter(|_| needs.len() > 1) {
                    let mut needs = needs.clone();
                    needs.remove(index);
                    with(EventKind::Reserve { server, lease, needs, wait: *wait });
                }
            }
            EventKind::Complete { server, lease, actuals } => {
                for index in 0..actuals.len() {
                    let mut actuals = actuals.clone();
                    actuals.remove(index);
                    with(EventKind::Complete { server: *server, lease: *lease, actuals });
                }
            }
            EventKind::Define { .. }
            | EventKind::Delete { .. }
            | EventKind::Extra { .. }
            | EventKind::Crash { .. }
            | EventKind::Stop { .. }
            | EventKind::LedgerRestart { .. }
            | EventKind::Upkeep { .. }
            | EventKind::Leap { .. } => {}
        }
        simpler_variants
    }
}

impl LimitsEvent {
    /// How a reserve waits.
    pub(super) fn wait(&self) -> Option<PlannedWait> {
        match self.kind {
            EventKind::Reserve { wait, .. } => wait,
            EventKind::Complete { .. }
            | EventKind::Define { .. }
            | EventKind::Delete { .. }
            | EventKind::Extra { .. }
            | EventKind::Crash { .. }
            | EventKind::Stop { .. }
            | EventKind::LedgerRestart { .. }
            | EventKind::Upkeep { .. }
            | EventKind::Leap { .. } => None,
        }
    }

    /// What the disk does while it is handled.
    pub(super) fn disk(&self) -> DiskBehaviour {
        match self.kind {
            EventKind::Define { disk, .. }
            | EventKind::Delete { disk, .. }
            | EventKind::Extra { disk, .. } => disk,
            EventKind::Reserve { .. }
            | EventKind::Complete { .. }
            | EventKind::Crash { .. }
            | EventKind::Stop { .. }
            | EventKind::LedgerRestart { .. }
            | EventKind::Upkeep { .. }
            | EventKind::Leap { .. } => DiskBehaviour::NORMAL,
        }
    }
}

impl EventKind {
    fn set_disk(&mut self, behaviour: DiskBehaviour) {
        if let Self::Define { disk, .. } | Self::Delete { disk, .. } | Self::Extra { disk, .. } =
            self
        {
            *disk = behaviour;
        }
    }
}

impl DiskBehaviour {
    pub(super) const NORMAL: Self = Self { slow_ms: 1, fault: None };
}

impl DiskFault {
    /// Whether a call fails, the `number`th of its operation. `is_renamed` says whether a file was put in its place before.
    pub(super) fn fails(self, call: DiskCall, number: u32, is_renamed: bool) -> bool {
        match self {
            Self::Full => call == DiskCall::Write,
            Self::RenameFails => call == DiskCall::Rename,
            Self::StageFlushFails => call == DiskCall::SyncFolder,
            Self::CommitFlushFails { .. } => call == DiskCall::SyncFolder && is_renamed,
            Self::ReadOnly => !matches!(call, DiskCall::Read | DiskCall::Lock),
            Self::Crash { call, .. } => call == number,
        }
    }

    /// Whether only the first such call of an operation fails.
    pub(super) const fn is_once(self) -> bool {
        match self {
            Self::Full | Self::CommitFlushFails { is_always: true } | Self::ReadOnly => false,
            Self::RenameFails
            | Self::StageFlushFails
            | Self::CommitFlushFails { is_always: false }
            | Self::Crash { .. } => true,
        }
    }
}
