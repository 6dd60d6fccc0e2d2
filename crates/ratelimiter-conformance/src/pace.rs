//! Real time: what is shown by waiting holds only on a machine that keeps pace.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ratelimiter::clock::{Clock, SystemClock, Timestamp};

/// How much more time than was asked for may pass before a failure says nothing. Facts count whole seconds.
const BESIDE_MAX: Duration = Duration::from_millis(300);
/// How often something is played before its failure is believed, however slow the machine is.
const PLAYS_MAX: usize = 20;

/// How much time was asked for since the begin, and so how much passed beside that. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Pace {
    clock: SystemClock,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    begun_at: Option<Timestamp>,
    asked: Duration,
}

impl Pace {
    /// From now on, time counts.
    pub fn begin(&self) {
        let kept = Kept { begun_at: Some(self.clock.now()), asked: Duration::ZERO };
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
    }

    /// So much time is waited for.
    pub fn ask(&self, by: Duration) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).asked += by;
    }

    /// The time that nobody asked for; none before the begin.
    pub fn beside(&self) -> Duration {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = kept.begun_at.map(|begun_at| self.clock.now().since(begun_at));
        passed.unwrap_or_default().saturating_sub(kept.asked)
    }
}

/// Plays something in real time. A play that fails although the machine kept pace has failed; one that took longer than
/// it asked for says nothing, and is played again.
///
/// # Panics
/// What is played does not hold.
pub fn at_pace(what: &str, play: impl Fn(&Pace)) {
    for number in 1.. {
        let pace = Pace::default();
        let Err(panic) = catch_unwind(AssertUnwindSafe(|| play(&pace))) else {
            return;
        };
        let beside = pace.beside();
        if beside <= BESIDE_MAX || number == PLAYS_MAX {
            resume_unwind(panic);
        }
        crate::suite::say(&format!(
            "{what}: played again, it took {beside:?} more than it asked for"
        ));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// How often something is played that fails.
    fn plays_of(play: impl Fn(&Pace)) -> usize {
        let plays = Cell::new(0);
        let counted = |pace: &Pace| {
            plays.set(plays.get() + 1);
            play(pace);
        };
        let failed = catch_unwind(AssertUnwindSafe(|| at_pace("a test", counted)));
        assert!(failed.is_err(), "it failed");
        plays.get()
    }

    #[test]
    fn a_failure_before_the_begin_or_in_the_time_that_was_asked_for_is_one() {
        assert_eq!(plays_of(|_| panic!("not even begun")), 1);
        let asking = |pace: &Pace| {
            pace.begin();
            pace.ask(Duration::from_secs(3_600));
            panic!("in time");
        };
        assert_eq!(plays_of(asking), 1);
    }

    #[test]
    fn a_failure_on_a_slow_machine_says_nothing_until_there_are_many() {
        let slow = |pace: &Pace| {
            let long_ago = Timestamp::from_unix_ms(0);
            *pace.kept.lock().unwrap() = Kept { begun_at: Some(long_ago), ..Kept::default() };
            panic!("too late");
        };
        assert_eq!(plays_of(slow), PLAYS_MAX);
    }
}
