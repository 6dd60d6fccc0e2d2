//! Instances that callers wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use ratelimiter::{InstanceMark, LimitKey, Unanswered};

use crate::lock::lock;

pub(super) type DueInstances = BTreeMap<LimitKey, DueInstance>;

#[derive(Debug, Default)]
pub(super) struct DueInstance {
    /// If it is new here.
    pub(super) mark: Option<Arc<InstanceMark>>,
    waiter_count: usize,
}

/// The instances that one caller waits for. They are due while it waits.
pub(super) struct InstanceClaim<'a> {
    due: &'a Mutex<DueInstances>,
    pub(super) keys: Vec<LimitKey>,
}

/// The instances that could not be checked.
pub(super) type FailedChecks = BTreeMap<LimitKey, Unanswered>;

impl<'a> InstanceClaim<'a> {
    /// Claims instances; `locked` is `due`.
    pub(super) fn new(
        due: &'a Mutex<DueInstances>,
        locked: &mut MutexGuard<'_, DueInstances>,
        keys: Vec<LimitKey>,
    ) -> Self {
        for key in &keys {
            locked.entry(key.clone()).or_default().waiter_count += 1;
        }
        Self { due, keys }
    }
}

impl Drop for InstanceClaim<'_> {
    fn drop(&mut self) {
        let mut due = lock(self.due);
        for key in &self.keys {
            let instance = due.get_mut(key).expect("it is due while somebody waits");
            instance.waiter_count -= 1;
            if instance.waiter_count == 0 {
                due.remove(key);
            }
        }
    }
}

/// Whether all could be checked.
pub(super) fn first_error(failed: FailedChecks) -> Result<(), Unanswered> {
    failed.into_values().next().map_or(Ok(()), Err)
}
