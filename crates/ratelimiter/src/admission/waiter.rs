//! Work that waits or asks.

use std::sync::Arc;

use super::FIRST_LASTS_MAX;
use super::gates::{GateNumber, Gates};
use super::queues::QueueNumber;
use crate::clock::Timestamp;
use crate::{LeaseId, LimitKey};

/// Work that waits or asks.
#[derive(Debug)]
pub struct Waiter<W> {
    pub(super) queue: QueueNumber,
    pub(super) lane: Arc<str>,
    pub(super) needs: Box<[Need]>,
    /// How often it has asked.
    pub attempts: u32,
    /// The lease of the last attempt, if nobody knows what became of it.
    pub unanswered_lease: Option<LeaseId>,
    /// How often in a row nobody answered.
    pub(super) unanswered_count: u32,
    pub(super) standing: Standing,
    /// The gates that nobody may pass before this waiter.
    pub(super) first_at: Box<[GateNumber]>,
    /// Since when it goes first.
    first_since: Option<Timestamp>,
    /// Denials in a row by limits that everybody shares.
    shared_denials: u32,
    /// Denials in a row by limits of its own tenant.
    tenant_denials: u32,
    /// What the caller keeps with it.
    pub work: W,
}

/// What a waiter needs of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) gate: GateNumber,
    pub(super) amount: u64,
    pub(super) owner: Owner,
}

/// Whose limit it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// Everybody's.
    Shared,
    /// One tenant's: `tenant:<tenant>:…`.
    Tenant,
}

/// What a waiter does at present.
#[derive(Debug)]
pub(super) enum Standing {
    /// It has not asked yet.
    Ready,
    /// It asked, and asks again later.
    Waiting(Wait),
    /// It asks.
    Asking {
        /// How many releases there had been when it began to.
        since: u64,
        begun_at: Timestamp,
    },
}

/// Until when a waiter waits.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) until: Timestamp,
    /// The gates that stood in its way. When all of them got room back, the wait is over early.
    pub(super) denied: Box<[GateNumber]>,
    /// How many releases there had been when the waiter asked.
    pub(super) since: u64,
}

impl<W> Waiter<W> {
    pub(super) fn new(queue: QueueNumber, lane: Arc<str>, needs: Box<[Need]>, work: W) -> Self {
        Self {
            queue,
            lane,
            needs,
            attempts: 0,
            unanswered_lease: None,
            unanswered_count: 0,
            standing: Standing::Ready,
            first_at: Box::default(),
            first_since: None,
            shared_denials: 0,
            tenant_denials: 0,
            work,
        }
    }

    /// Counts a denial by limits of this owner. True if the waiter goes first at them from now on.
    ///
    /// A denial by the tenant's own limit begins the count of the shared ones anew: a waiter that could not go
    /// ahead anyway must not hold up other tenants.
    pub(super) fn count_denial(
        &mut self,
        now: Timestamp,
        owner: Owner,
        starving_after: u32,
    ) -> bool {
        let count = match owner {
            Owner::Shared => &mut self.shared_denials,
            Owner::Tenant => {
                self.shared_denials = 0;
                &mut self.tenant_denials
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

impl Owner {
    pub(super) fn of(key: &LimitKey) -> Self {
        if key.as_str().starts_with("tenant:") { Self::Tenant } else { Self::Shared }
    }

    /// Whom a denial by these limits is put down to: the tenant, if one of them is the tenant's own.
    pub(super) fn of_denial(denied: &[Need]) -> Self {
        let by_tenant = denied.iter().any(|need| need.owner == Self::Tenant);
        if by_tenant { Self::Tenant } else { Self::Shared }
    }
}

impl Wait {
    pub(super) fn is_over(&self, now: Timestamp, gates: &Gates) -> bool {
        let released = |gate: &GateNumber| gates.was_released_since(*gate, self.since);
        self.until <= now || (!self.denied.is_empty() && self.denied.iter().all(released))
    }
}
