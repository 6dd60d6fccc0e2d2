//! The seed of a run.
//!
//! A test that plays random scripts plays the same ones every time, so that it never fails by chance. If the environment names the
//! seed of this run, as CI does from the commit's hash, it plays others besides, and says how to play them again.

use std::io::Write;
use std::thread;

/// The environment variable that names the seed of this run.
pub const VARIABLE: &str = "RUN_SEED";

/// The seed of this run, if it has one, for one test.
#[derive(Debug)]
pub struct RunSeed {
    seed: Option<u64>,
    /// The command that runs this test.
    command: &'static str,
}

impl RunSeed {
    /// Reads the seed of this run, and prints how to repeat it.
    ///
    /// # Panics
    /// When the environment names something that is not a number.
    pub fn for_command(command: &'static str) -> Self {
        let text = std::env::var(VARIABLE).ok();
        let seed = text.map(|text| text.parse().expect("the seed of a run is a number"));
        let run = Self { seed, command };
        run.print("");
        run
    }

    /// So many seeds that belong to this run; none if it has no seed.
    pub fn seeds(&self, count: usize) -> impl Iterator<Item = u64> + use<> {
        let random = self.seed.map(fastrand::Rng::with_seed);
        // Small enough that a seed and some thousand after it are numbers everywhere.
        random.into_iter().flat_map(move |mut random| {
            std::iter::repeat_with(move || random.u64(..1 << 48)).take(count)
        })
    }

    fn print(&self, what: &str) {
        if let Some(seed) = self.seed {
            // Past the harness, which keeps what a passing test prints to itself.
            let line = format!("{what}{VARIABLE}={seed} {}\n", self.command);
            std::io::stderr().write_all(line.as_bytes()).unwrap_or_default();
        }
    }
}

impl Drop for RunSeed {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print("failed; to repeat it: ");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seeds(seed: Option<u64>, count: usize) -> Vec<u64> {
        RunSeed { seed, command: "" }.seeds(count).collect()
    }

    #[test]
    fn a_run_without_a_seed_plays_nothing_of_its_own() {
        assert_eq!(seeds(None, 3), []);
    }

    #[test]
    fn the_same_run_has_the_same_seeds_and_another_one_has_others() {
        assert_eq!(seeds(Some(1), 3), seeds(Some(1), 3));
        assert_eq!(seeds(Some(1), 3)[..2], seeds(Some(1), 2));
        assert_ne!(seeds(Some(1), 3), seeds(Some(2), 3));
        assert_ne!(seeds(Some(1), 2)[0], seeds(Some(1), 2)[1]);
    }
}
