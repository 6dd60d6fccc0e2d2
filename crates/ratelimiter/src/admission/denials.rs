//! How often somebody was denied, and whether that is enough to go first.

use std::time::Duration;

use crate::LimitKey;
use crate::clock::Timestamp;

/// The longest time a waiter may go first. Other processes may take all the room; then this one must not block its own
/// queue for good.
pub const FIRST_LASTS_MAX: Duration = Duration::from_secs(120);

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// Everybody's.
    Shared,
    /// One tenant's: `tenant:<tenant>:…`.
    Tenant,
}

/// The denials in a row of one waiter.
#[derive(Debug, Clone, Default)]
pub struct Denials {
    /// By limits that everybody shares.
    shared: u32,
    /// By limits of its own tenant.
    tenant: u32,
    /// Since when it goes first.
    first_since: Option<Timestamp>,
}

impl Owner {
    /// Whose limit this key names.
    pub(super) fn of(key: &LimitKey) -> Self {
        if key.as_str().starts_with("tenant:") { Self::Tenant } else { Self::Shared }
    }

    /// Whom a denial by limits of these owners is put down to: the tenant, if one of them is the tenant's own. The hint is
    /// the longest of all, so then it says nothing about the shared ones.
    pub(super) fn of_denial(mut owners: impl Iterator<Item = Self>) -> Self {
        if owners.any(|owner| owner == Self::Tenant) { Self::Tenant } else { Self::Shared }
    }
}

impl Denials {
    /// Counts a denial by limits of this owner. True if the waiter goes first at them from now on.
    ///
    /// A denial by the tenant's own limit begins the count of the shared ones anew: a waiter that could not go ahead anyway
    /// must not hold up other tenants.
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
