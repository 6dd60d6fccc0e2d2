//! Denial counts of a waiter, and whether it goes first.

use std::time::Duration;

use crate::LimitKey;
use crate::clock::Timestamp;

/// The longest time a waiter may go first. Other processes may take all the room; then this one must not block its own
/// queue for good.
pub const FIRST_LASTS_MAX: Duration = Duration::from_secs(120);

/// Who a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// All tenants.
    Shared,
    /// One tenant: `tenant:<tenant>:…`.
    Tenant,
}

/// The consecutive denials of one waiter.
#[derive(Debug, Clone, Default)]
pub struct Denials {
    /// By shared limits.
    shared: u32,
    /// By its tenant's limits.
    tenant: u32,
    first_since: Option<Timestamp>,
}

impl Owner {
    pub(super) fn of(key: &LimitKey) -> Self {
        if key.as_str().starts_with("tenant:") { Self::Tenant } else { Self::Shared }
    }

    /// The owner that a denial by limits of these owners counts for: the tenant, if one of them is the tenant's. The hint is
    /// the longest of all limits, so then it tells nothing about the shared ones.
    pub(super) fn of_denial(mut owners: impl Iterator<Item = Self>) -> Self {
        if owners.any(|owner| owner == Self::Tenant) { Self::Tenant } else { Self::Shared }
    }
}

impl Denials {
    /// The waiter goes first at limits of this owner from now on, as after that many denials.
    pub(super) fn starve(&mut self, now: Timestamp, owner: Owner, starving_after: u32) {
        match owner {
            Owner::Shared => self.shared = starving_after,
            Owner::Tenant => self.tenant = starving_after,
        }
        self.first_since = Some(now);
    }

    /// Counts a denial by limits of this owner. True if the waiter goes first at them from now on.
    ///
    /// A denial by the tenant's limit resets the count of the shared ones: a waiter that its tenant's budget stops anyway must
    /// not hold up other tenants.
    pub fn count(&mut self, now: Timestamp, owner: Owner, starving_after: u32) -> bool {
        let count = match owner {
            Owner::Shared => &mut self.shared,
            Owner::Tenant => {
                self.shared = 0;
                &mut self.tenant
            }
        };
        *count += 1;
        if *count < starving_after {
            self.first_since = None;
            return false;
        }
        let since = *self.first_since.get_or_insert(now);
        if now.since(since) > FIRST_LASTS_MAX {
            *count = 0;
            self.first_since = None;
            return false;
        }
        true
    }
}
