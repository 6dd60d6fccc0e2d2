//! What the oracle knows of a renew.

use std::collections::BTreeMap;

use ratelimiter::clock::Timestamp;

use crate::executor::Operation;

/// A renew that was sent.
#[derive(Clone)]
pub(super) struct RenewFacts {
    pub(super) operation: Operation,
    pub(super) number: u64,
    pub(super) amounts: BTreeMap<usize, u64>,
    pub(super) sent_at: Timestamp,
    /// When it was last carried out.
    pub(super) touched_at: Option<Timestamp>,
    pub(super) told: RenewAnswer,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RenewAnswer {
    /// Nothing, or an error: another delivery of the same request may have been carried out.
    None,
    Renewed {
        at: Timestamp,
        told_at: Timestamp,
    },
    /// A denied number stays denied.
    Denied {
        told_at: Timestamp,
    },
}

impl RenewFacts {
    /// It may have been carried out, or will.
    pub(super) const fn may_count(&self) -> bool {
        !matches!(self.told, RenewAnswer::Denied { .. })
    }

    /// When it was carried out, if somebody was told.
    pub(super) const fn renewed_at(&self) -> Option<Timestamp> {
        match self.told {
            RenewAnswer::Renewed { at, .. } => Some(at),
            RenewAnswer::None | RenewAnswer::Denied { .. } => None,
        }
    }

    /// Its number was certainly known at this moment.
    pub(super) fn is_answered_by(&self, moment: Timestamp) -> bool {
        match self.told {
            RenewAnswer::None => false,
            RenewAnswer::Renewed { told_at, .. } | RenewAnswer::Denied { told_at } => {
                told_at <= moment
            }
        }
    }
}
