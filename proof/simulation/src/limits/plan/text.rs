//! Plans as text, for traces.

use std::fmt;

use ratelimiter::Limit;

use super::{
    Definition, DiskBehaviour, EventKind, InstanceBounds, Leave, LimitsEvent, LimitsPlan,
    NetworkFault, PlannedWait, WAITERS_MAX_WIDE, extra_key, key,
};

impl fmt::Display for LimitsPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        for (number, limit) in self.limits.iter().enumerate() {
            let Limit { key, kind, overage, .. } = limit.limit(number, limit.definition());
            let definition = Definition { schedule: None, ..limit.definition() };
            let missing = if limit.is_defined { "" } else { ", not defined at the start" };
            writeln!(f, "limit {key} {kind} {definition}, overage {}{missing}", overage.name())?;
        }
        let InstanceBounds { count_max, new_per_second_max } = self.instance_bounds;
        if self.instance_bounds != InstanceBounds::WIDE {
            writeln!(f, "at most {count_max} instances, {new_per_second_max} new in a second")?;
        }
        if self.waiters_max != WAITERS_MAX_WIDE {
            writeln!(f, "at most {} waiters", self.waiters_max)?;
        }
        if self.has_calendar() {
            writeln!(f, "starts at {} ms after 1970", self.starts_at.unix_ms())?;
        }
        let (lag, cached) = (self.expiry_lag_ms, self.leases_cached_max);
        writeln!(f, "clocks {:?} ms, expiry lag {lag} ms, {cached} leases cached", self.skews_ms)?;
        self.events.iter().try_for_each(|event| writeln!(f, "  plan {event}"))
    }
}

impl fmt::Display for LimitsEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms client {} {}", self.at_ms, self.client, self.kind)?;
        if self.network != NetworkFault::None {
            write!(f, " {:?}", self.network)?;
        }
        self.call_faults
            .iter()
            .try_for_each(|(call, call_fault)| write!(f, ", call {call}: {call_fault:?}"))
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |pairs: &[(usize, u64)]| {
            let pairs = pairs.iter().map(|(limit, amount)| format!(" {}={amount}", key(*limit)));
            pairs.collect::<String>()
        };
        match self {
            Self::Reserve { server, lease, needs, wait } => {
                write!(f, "reserve L{lease}{} at server {server}", list(needs))?;
                wait.map_or(Ok(()), |wait| write!(f, "{wait}"))
            }
            Self::Complete { server, lease, actuals } => {
                write!(f, "complete L{lease}{} at server {server}", list(actuals))
            }
            Self::Define { server, limit, definition, extra, disk } => {
                let (key, DiskBehaviour { slow_ms, fault }) = (key(*limit), disk);
                write!(f, "define {key} {definition}")?;
                extra.map_or(Ok(()), |extra| write!(f, " and {} {extra}", extra_key()))?;
                write!(f, " at server {server}, disk {slow_ms}ms")?;
                fault.map_or(Ok(()), |fault| write!(f, " {fault:?}"))
            }
            Self::Delete { server, limit, disk: DiskBehaviour { slow_ms, fault } } => {
                write!(f, "delete {} at server {server}, disk {slow_ms}ms", key(*limit))?;
                fault.map_or(Ok(()), |fault| write!(f, " {fault:?}"))
            }
            Self::Extra { server, capacity, disk } => {
                let DiskBehaviour { slow_ms, fault } = disk;
                match capacity {
                    Some(capacity) => write!(f, "define {} {capacity}", extra_key())?,
                    None => write!(f, "delete {}", extra_key())?,
                }
                write!(f, " at server {server}, disk {slow_ms}ms")?;
                fault.map_or(Ok(()), |fault| write!(f, " {fault:?}"))
            }
            Self::Crash { server, down_ms, skew_ms, is_power_loss } => {
                match is_power_loss {
                    true => write!(f, "power loss of all servers")?,
                    false => write!(f, "crash server {server}")?,
                }
                write!(f, " for {down_ms}ms, clock then {skew_ms}ms ahead")
            }
            Self::Stop { server, ends_after_ms, down_ms } => {
                write!(f, "stop server {server}, ends after {ends_after_ms}ms, for {down_ms}ms")
            }
            Self::LedgerRestart { down_ms } => write!(f, "ledger down for {down_ms}ms"),
            Self::Upkeep { server } => write!(f, "upkeep of server {server}"),
            Self::Leap { ms } => write!(f, "nothing happens for {ms}ms"),
        }
    }
}

impl fmt::Display for PlannedWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at_most_ms, queue, leaves } = self;
        write!(f, ", waits {at_most_ms}ms in queue {:?}", queue.name())?;
        match leaves {
            Some(Leave::After { ms }) => write!(f, ", leaves after {ms}ms"),
            Some(Leave::WithNextComplete) => write!(f, ", leaves with the next complete"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity, is_shadow, schedule } = self;
        write!(f, "{capacity}")?;
        schedule.map_or(Ok(()), |schedule| write!(f, " per {}", schedule.resets()))?;
        f.write_str(if *is_shadow { " in shadow mode" } else { "" })
    }
}
