//! The machine and the date of a run.

use std::fs;

use ratelimiter::clock::{Clock, MonotonicClock};

/// The machine at the start of a run.
#[derive(Debug)]
pub(crate) struct Machine {
    /// `2026-11-15`
    pub(crate) date: String,
    processor: String,
    cores: usize,
    memory_gib: u64,
    /// Of the last minute; 0 on an idle machine.
    pub(crate) load_average: String,
}

impl Machine {
    pub(crate) fn this() -> Self {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let processor = value_of(&cpuinfo, "model name").unwrap_or("an unknown processor");
        let kib = value_of(&meminfo, "MemTotal")
            .and_then(|value| value.split(' ').next()?.parse::<u64>().ok())
            .unwrap_or_default();
        let load = read("/proc/loadavg");
        let millis = i64::try_from(MonotonicClock::new().now().unix_ms()).unwrap_or_default();
        let date = jiff::Timestamp::from_millisecond(millis).unwrap_or_default();
        Self {
            date: date.strftime("%Y-%m-%d").to_string(),
            processor: processor.to_owned(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            memory_gib: (kib + (1 << 19)) >> 20,
            load_average: load.split(' ').next().unwrap_or("unknown").to_owned(),
        }
    }

    /// `Linux, 2 cores of …, 23 GiB`
    pub(crate) fn kind(&self) -> String {
        let Self { processor, cores, memory_gib, .. } = self;
        format!("Linux, {cores} cores of {processor}, {memory_gib} GiB")
    }
}

fn value_of<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}
