//! Calendar limits and limits in shadow mode, in plans that were made without them.
//!
//! They have a generator of their own, so that all else of a seed stays as it is without them.

use ratelimiter::clock::Timestamp;

use super::super::{Definition, DiskBehaviour, EVENTS_MS, EventKind, SetupKind};
use super::Generator;
use crate::limits::calendar::{DAILY_RESETS, Schedule};

/// What a world may have beside enforced rolling and concurrency limits and reserves that are answered at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitChoices {
    pub(crate) calendar: bool,
    pub(crate) shadow: bool,
    pub(crate) templates: bool,
    pub(crate) waits: bool,
}

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
/// How long nothing happens: about as long as some period, or as a day on which the clocks change.
const LEAPS_MS: [u64; 6] = [MINUTE_MS, HOUR_MS, HOUR_MS, 23 * HOUR_MS, 24 * HOUR_MS, 25 * HOUR_MS];

impl LimitChoices {
    pub(crate) const ALL: Self =
        Self { calendar: true, shadow: true, templates: true, waits: true };
    pub(crate) const ON_A_LEDGER: Self =
        Self { calendar: false, shadow: false, templates: false, waits: true };
}

impl Generator {
    /// Makes calendar limits of some rolling limits, and puts some limits into shadow mode, in most plans.
    pub(super) fn second_edition(&mut self, seed: u64, choices: LimitChoices) {
        let own = fastrand::Rng::with_seed(seed.rotate_left(16) ^ 0xCA1E_DA12);
        let before = std::mem::replace(&mut self.random, own);
        if (choices.calendar || choices.shadow) && self.percent(70) {
            let (starts_at, schedules) = self.schedules();
            let mut changes_mode = vec![false; self.limits.len()];
            for (limit, changes_mode) in changes_mode.iter_mut().enumerate() {
                let is_rolling = matches!(self.limits[limit].kind, SetupKind::Rolling { .. });
                if choices.calendar && is_rolling && self.percent(60) {
                    let schedule = self.schedule(&schedules);
                    self.limits[limit].kind = SetupKind::Calendar { schedule };
                    // What is used does not return for long.
                    self.limits[limit].capacity = self.random.u64(1..=30);
                }
                *changes_mode = choices.shadow && self.percent(45);
                self.limits[limit].is_shadow = *changes_mode && self.random.bool();
            }
            self.changes(&schedules, &changes_mode);
            if self.limits.iter().any(|limit| limit.definition().schedule.is_some()) {
                self.starts_at = starts_at;
                self.leaps();
            }
        }
        self.random = before;
    }

    /// A start shortly before a reset, schedules that have this reset, and one whose reset is a minute later.
    fn schedules(&mut self) -> (Timestamp, [Schedule; 3]) {
        let (second, daily) = *self.random.choice(&DAILY_RESETS).expect("there are some");
        let starts_at_ms = second * 1_000 - self.random.u64(400..EVENTS_MS);
        let minute = |minutes: u64| u8::try_from(minutes % 60).expect("an hour has few minutes");
        let minutes = second / 60;
        let hourly = Schedule::Hourly { minute: minute(minutes) };
        let later = Schedule::Hourly { minute: minute(minutes + 1) };
        (Timestamp::from_unix_ms(starts_at_ms), [hourly, later, daily])
    }

    fn schedule(&mut self, schedules: &[Schedule; 3]) -> Schedule {
        let [hourly, later, daily] = *schedules;
        *self.random.choice(&[hourly, hourly, later, daily, daily]).expect("there are five")
    }

    /// A definition of a limit that may have another schedule, and another mode if it changes its mode.
    fn definition(
        &mut self,
        limit: usize,
        capacity: u64,
        schedules: &[Schedule; 3],
        changes_mode: bool,
    ) -> Definition {
        let schedule = self.limits[limit].definition().schedule;
        let schedule = schedule.map(|same| match self.random.bool() {
            true => same,
            false => self.schedule(schedules),
        });
        Definition { capacity, is_shadow: changes_mode && self.random.bool(), schedule }
    }

    /// Changes of schedules and modes, and limits that are deleted and defined again.
    fn changes(&mut self, schedules: &[Schedule; 3], changes_mode: &[bool]) {
        for event in 0..self.events.len() {
            if let EventKind::Define { limit, definition: Definition { capacity, .. }, .. } =
                self.events[event].kind
            {
                let new = self.definition(limit, capacity, schedules, changes_mode[limit]);
                if let EventKind::Define { definition, .. } = &mut self.events[event].kind {
                    *definition = new;
                }
            }
        }
        for (limit, changes_mode) in changes_mode.iter().enumerate() {
            let is_calendar = self.limits[limit].definition().schedule.is_some();
            if !is_calendar && !changes_mode {
                continue;
            }
            for _ in 0..self.random.usize(..=2) {
                let at_ms = self.random.u64(..EVENTS_MS);
                let capacity = self.limits[limit].capacity;
                let definition = self.definition(limit, capacity, schedules, *changes_mode);
                self.define(at_ms, limit, definition);
            }
            if self.percent(20) {
                let (at_ms, server) = (self.random.u64(..EVENTS_MS - 1_000), self.server());
                let disk = self.disk();
                self.event(at_ms, self.clients, EventKind::Delete { server, limit, disk });
                let again_ms = at_ms + self.random.u64(1..=1_000);
                let capacity = self.random.u64(1..=14);
                let definition = self.definition(limit, capacity, schedules, *changes_mode);
                self.define(again_ms, limit, definition);
            }
        }
    }

    pub(super) fn define(&mut self, at_ms: u64, limit: usize, definition: Definition) {
        let (server, disk) = (self.server(), self.disk());
        let kind = EventKind::Define { server, limit, definition, extra: None, disk };
        self.event(at_ms, self.clients, kind);
    }

    pub(super) fn disk(&mut self) -> DiskBehaviour {
        let slow_ms = match self.is_faulty() {
            true => self.random.u64(50..=1_000),
            false => DiskBehaviour::NORMAL.slow_ms,
        };
        DiskBehaviour { slow_ms, fault: self.disk_fault() }
    }

    /// Stretches of time in which nothing happens; many end shortly before a reset.
    fn leaps(&mut self) {
        let nobody = self.clients + 1;
        while self.percent(50) {
            let ms = *self.random.choice(&LEAPS_MS).expect("there are some");
            let (ms, at_ms) = (ms - self.random.u64(..EVENTS_MS), self.random.u64(..EVENTS_MS));
            self.event(at_ms, nobody, EventKind::Leap { ms });
        }
    }
}
