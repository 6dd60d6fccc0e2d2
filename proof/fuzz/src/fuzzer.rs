//! Running a target and checking its invariants.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use peak_alloc::PeakAlloc;
use ratelimiter::clock::{Clock, MonotonicClock};

use crate::mutate::mutate;
use crate::targets::Target;

/// The most memory that parsing may take: a constant, and a number of bytes for each byte of the input.
const MEMORY_BASE_BYTES: usize = 4 * 1024 * 1024;
const MEMORY_PER_BYTE: usize = 1024;

/// The environment variable with the seed of a run to repeat.
pub const SEED_VARIABLE: &str = "RATELIMITER_TEST_SEED";

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// A run of one target.
#[derive(Debug)]
pub struct Fuzzer {
    target: &'static Target,
    seed: u64,
    random: fastrand::Rng,
    clock: MonotonicClock,
}

/// The results of a run.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Inputs parsed.
    pub inputs: u64,
    /// Inputs accepted.
    pub accepted: u64,
    /// The most bytes of memory for one input.
    pub memory_max: usize,
    /// The longest time for one input.
    pub took_max: Duration,
}

/// The seed in [`SEED_VARIABLE`], if it is set.
///
/// # Panics
/// The variable is not a number.
pub fn seed_from_environment() -> Option<u64> {
    let given = std::env::var(SEED_VARIABLE).ok();
    given.map(|text| text.parse().expect("a seed is a number"))
}

impl Fuzzer {
    /// A run that is reproducible by its seed.
    pub fn new(target: &'static Target, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed);
        Self { target, seed, random, clock: MonotonicClock::new() }
    }

    /// Parses the corpus unchanged.
    ///
    /// # Panics
    /// An invariant does not hold, or an input of the corpus was rejected.
    pub fn read_corpus(&mut self, report: &mut Report) {
        for input in self.target.corpus {
            let before = report.accepted;
            self.read(input.as_bytes(), report);
            assert!(report.accepted > before, "{}: not accepted: {input}", self.target.name);
        }
    }

    /// Parses `count` mutated inputs.
    ///
    /// # Panics
    /// An invariant does not hold.
    pub fn rounds(&mut self, count: u64, report: &mut Report) {
        for _ in 0..count {
            let input = mutate(&mut self.random, self.target.corpus);
            self.read(&input, report);
        }
    }

    fn read(&self, input: &[u8], report: &mut Report) {
        let started_at = self.clock.now();
        let before = MEMORY.current_usage();
        MEMORY.reset_peak_usage();
        let read = catch_unwind(AssertUnwindSafe(|| (self.target.read)(input)));
        let memory = MEMORY.peak_usage().saturating_sub(before);
        let memory_allowed = MEMORY_BASE_BYTES + MEMORY_PER_BYTE * input.len();
        let accepted = match read {
            Ok(Ok(accepted)) if memory <= memory_allowed => accepted,
            Ok(Ok(_)) => self.fail(input, &format!("{memory} bytes of memory")),
            Ok(Err(difference)) => self.fail(input, &difference),
            Err(_) => self.fail(input, "a panic"),
        };
        report.inputs += 1;
        report.accepted += u64::from(accepted);
        report.memory_max = report.memory_max.max(memory);
        report.took_max = report.took_max.max(self.clock.now().since(started_at));
    }

    #[expect(clippy::panic, reason = "a broken invariant ends the run")]
    fn fail(&self, input: &[u8], what: &str) -> bool {
        let (name, seed) = (self.target.name, self.seed);
        let shown = String::from_utf8_lossy(input);
        panic!("{name}: {what}, with {SEED_VARIABLE}={seed}, for the input {shown:?}");
    }
}
