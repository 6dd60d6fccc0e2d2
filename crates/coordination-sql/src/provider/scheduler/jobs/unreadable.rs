//! Jobs whose definition this build cannot read: a newer one wrote them (`CRD-13`).
//!
//! They are left as they are, for workers that understand them, and stop nobody else. Their ticks stay
//! due, so a worker would not rest for them; for some time they are not looked at.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// For how long such a job is not looked at again.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How many are left out. More are looked at each time.
const NAMES_MAX: usize = 1000;

/// The jobs that were found when all due jobs were last looked at.
#[derive(Debug, Default)]
pub(super) struct UnreadableJobs(Mutex<Option<Found>>);

#[derive(Debug)]
struct Found {
    names: BTreeSet<String>,
    at: Instant,
}

impl UnreadableJobs {
    /// The names to leave out now.
    pub(super) fn names(&self) -> Vec<String> {
        let found = self.lock();
        let found = found.as_ref().filter(|found| found.at.elapsed() < LOOK_AGAIN_AFTER);
        found.map(|found| found.names.iter().cloned().collect()).unwrap_or_default()
    }

    /// Whether this one was found before, so that it need not be told again.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.lock().as_ref().is_some_and(|found| found.names.contains(name))
    }

    /// Notes what was found.
    pub(super) fn note(&self, names: BTreeSet<String>) {
        let names = names.into_iter().take(NAMES_MAX).collect();
        *self.lock() = Some(Found { names, at: Instant::now() });
    }

    /// A job was saved, and may be readable now.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Found>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> BTreeSet<String> {
        (0..count).map(|number| format!("newer-{number:04}")).collect()
    }

    /// `CRD-13`
    #[tokio::test(start_paused = true)]
    async fn crd_13_what_cannot_be_read_is_left_out_for_a_while() {
        let jobs = UnreadableJobs::default();
        assert!(jobs.names().is_empty());
        jobs.note(names(2));
        tokio::time::advance(LOOK_AGAIN_AFTER - Duration::from_millis(1)).await;
        assert_eq!(jobs.names(), ["newer-0000", "newer-0001"]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(jobs.names().is_empty(), "then it is looked at again");
        assert!(jobs.is_known("newer-0001"), "and not told of again");
        jobs.note(names(1));
        assert!(!jobs.is_known("newer-0001"), "it can be read now");
        jobs.forget();
        assert!(jobs.names().is_empty());
    }

    #[test]
    fn how_many_are_left_out_is_bounded() {
        let jobs = UnreadableJobs::default();
        jobs.note(names(NAMES_MAX));
        assert_eq!(jobs.names().len(), NAMES_MAX);
        jobs.note(names(NAMES_MAX + 1));
        assert_eq!(jobs.names().len(), NAMES_MAX);
    }
}
