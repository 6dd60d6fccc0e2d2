//! Jobs whose definition this build cannot read, because a newer one wrote them (`CRD-13`).
//!
//! They are skipped, and left to workers that can read them. Their ticks stay due, which would keep
//! a worker busy, so they are not read again for a while.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long such a job is not read again.
const READ_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// How many are remembered. Others are read each time.
const NAMES_MAX: usize = 1000;

/// The unreadable jobs that were found when all due jobs were last read.
#[derive(Debug, Default)]
pub(super) struct UnreadableJobs(Mutex<Option<UnreadableSnapshot>>);

#[derive(Debug)]
struct UnreadableSnapshot {
    names: BTreeSet<String>,
    at: Instant,
}

impl UnreadableJobs {
    /// The names to skip now.
    pub(super) fn names(&self) -> Vec<String> {
        let found = self.lock();
        let found = found.as_ref().filter(|found| found.at.elapsed() < READ_AGAIN_AFTER);
        found.map(|found| found.names.iter().cloned().collect()).unwrap_or_default()
    }

    /// Whether this job was found before, so that it is not logged again.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.lock().as_ref().is_some_and(|found| found.names.contains(name))
    }

    /// Replaces the unreadable jobs.
    pub(super) fn note(&self, names: BTreeSet<String>) {
        let names = names.into_iter().take(NAMES_MAX).collect();
        *self.lock() = Some(UnreadableSnapshot { names, at: Instant::now() });
    }

    /// A job was saved, and may be readable now.
    pub(super) fn forget(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<UnreadableSnapshot>> {
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
    async fn crd_13_an_unreadable_job_is_skipped_for_a_while() {
        let jobs = UnreadableJobs::default();
        assert!(jobs.names().is_empty());
        jobs.note(names(2));
        tokio::time::advance(READ_AGAIN_AFTER - Duration::from_millis(1)).await;
        assert_eq!(jobs.names(), ["newer-0000", "newer-0001"]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(jobs.names().is_empty(), "then they are read again");
        assert!(jobs.is_known("newer-0001"), "and not logged again");
        jobs.note(names(1));
        assert!(!jobs.is_known("newer-0001"), "it can be read now");
        jobs.forget();
        assert!(jobs.names().is_empty());
    }

    #[test]
    fn the_number_of_skipped_jobs_is_bounded() {
        let jobs = UnreadableJobs::default();
        jobs.note(names(NAMES_MAX));
        assert_eq!(jobs.names().len(), NAMES_MAX);
        jobs.note(names(NAMES_MAX + 1));
        assert_eq!(jobs.names().len(), NAMES_MAX);
    }
}
