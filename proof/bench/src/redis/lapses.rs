//! The memory of leases that nobody completes, while they are live and when they have lapsed.

use std::time::Duration;

use ratelimiter::Limit;
use ratelimiter_redis::RedisOptions;

use super::live::Filled;
use super::redis_workload;
use crate::progress::Progress;
use crate::rounds::float;
use crate::summary::{Summary, count, number};
use crate::workload::{LIMITS_PER_CALL, limits_lasting};

/// How long ended leases are remembered here, so that the measurement need not wait for the usual ten minutes.
const REMEMBER_FOR: Duration = Duration::from_secs(1);
/// A limit that was in use has a record and a set, which stay for a little more than a minute.
const KEYS_OF_A_LIMIT: usize = 2;
/// Of open and past leases.
const LISTS: usize = 2;
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) leases: usize,
    pub(super) models: usize,
    /// All windows and timeouts.
    pub(super) seconds: u64,
    /// Whether to wait until all is forgotten, or for the leases alone.
    pub(super) waits_for_limits: bool,
}

#[derive(Debug)]
pub(super) struct Measured {
    sizes: Sizes,
    /// Memory of Redis, in bytes: with the definitions alone, with the leases, and when they have lapsed.
    bytes: [f64; 3],
    /// What is left, × what the leases took.
    pub(super) left: Summary,
}

pub(super) fn measure(sizes: Sizes, progress: &Progress) -> Measured {
    progress.step(format_args!("Redis: {} leases that lapse", count(sizes.leases)));
    let capacity = redis_workload(sizes.seconds).capacity;
    let limits = (0..sizes.models).flat_map(limits_lasting(sizes.seconds));
    let limits = limits.map(|limit| Limit { capacity, ..limit }).collect();
    let options = RedisOptions { remember_for: REMEMBER_FOR, ..RedisOptions::default() };
    let calls = redis_workload(sizes.seconds).calls(sizes.models);
    let mut filled = Filled::new(options, limits, calls);
    let (before, keys_before) = (filled.used_memory(), filled.keys());
    filled.add(sizes.leases);
    let peak = filled.used_memory();
    // Nobody asks for anything: a server's ticks and Redis' TTLs do it.
    let of_limits = KEYS_OF_A_LIMIT * LIMITS_PER_CALL * sizes.models + LISTS;
    let keys_left = keys_before + if sizes.waits_for_limits { 0 } else { of_limits };
    while filled.keys() > keys_left {
        filled.tick();
        std::thread::park_timeout(LOOK_EVERY);
    }
    let bytes = [before, peak, filled.used_memory()];
    let left = (bytes[2] - bytes[0]).max(0.0) / (bytes[1] - bytes[0]);
    Measured { sizes, bytes, left: Summary::of(&[left]) }
}

impl Measured {
    pub(super) fn describe(&self) -> String {
        let [before, peak, after] = self.bytes.map(|bytes| number(bytes / 1_024.0));
        format!(
            "{} leases on windows and holds of {} s, which nobody completes: Redis has {before} KiB with the definitions alone, {peak} KiB with the leases ({} bytes each), and {after} KiB \
             when they have lapsed and are forgotten, which takes a little more than a minute after the last of them.",
            count(self.sizes.leases),
            self.sizes.seconds,
            number((self.bytes[1] - self.bytes[0]) / float(self.sizes.leases)),
        )
    }
}
