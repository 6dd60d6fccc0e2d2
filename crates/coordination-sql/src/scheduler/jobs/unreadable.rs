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
