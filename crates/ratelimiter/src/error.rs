//! Errors: one type per operation, one variant per broken rule.
//!
//! The types are exhaustive on purpose: a new variant does not compile until every edge (HTTP, the client, the
//! backends) handles it.

#![expect(missing_docs, reason = "the fields are named after what the message shows")]

use std::time::Duration;

use crate::key::LimitKey;
use crate::lease::LeaseId;

/// Why a reserve got no decision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReserveError {
    /// No limit has this key. Of several, the first.
    #[error("no limit is defined for {key}")]
    UnknownKey { key: LimitKey },
    /// The amount is above the limit's capacity, which is not 0. Waiting does not help. Of several keys, the first.
    #[error("more is asked of {key} than its whole capacity; waiting cannot help")]
    AmountExceedsCapacity { key: LimitKey },
    /// The lease ID was used before, for other requirements.
    #[error("this lease ID was used before with other requirements; take a new one")]
    LeaseConflict,
    /// The lease was completed, or one of its reservations has expired.
    #[error("this lease has ended; take a new lease ID")]
    LeaseEnded,
    /// The request is malformed. Repeating it does not help.
    #[error("the request is not valid: {reason}")]
    InvalidRequest { reason: String },
    /// It is unknown whether the lease was allowed.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a complete failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompleteError {
    /// An actual for a key that the lease does not hold, or for a concurrency key. Nothing was applied.
    #[error(
        "the lease has no rolling reservation of {key}; actuals name rolling keys of the lease's requirements"
    )]
    InvalidActual { key: LimitKey },
    /// It is unknown whether the lease was completed. Complete is idempotent, so repeat it.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a renew got no answer of its own. Nothing was changed, unless it is [`RenewError::Unanswered`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenewError {
    /// The lease is not open: it was never allowed, was completed or released, or its last hold has lapsed.
    #[error("this lease is not open; reserve with a new lease ID")]
    LeaseEnded,
    /// The lease was renewed with a greater number.
    #[error("this lease was renewed with a greater number; take one above it")]
    Superseded,
    /// An amount for a key that is not in the lease's requirements. Of several, the first.
    #[error(
        "the lease has no requirement of {key}; a renew names keys of the lease's requirements"
    )]
    InvalidAmount { key: LimitKey },
    /// More is asked of a limit that is no longer defined. Of several, the first.
    #[error("no limit is defined for {key}")]
    UnknownKey { key: LimitKey },
    /// More is asked, and the new amount is above the limit's capacity, which is not 0. Of several keys, the first.
    #[error("more is asked of {key} than its whole capacity; waiting cannot help")]
    AmountExceedsCapacity { key: LimitKey },
    /// The request is malformed. Repeating it does not help.
    #[error("the request is not valid: {reason}")]
    InvalidRequest { reason: String },
    /// The limiter does not renew leases.
    #[error("this limiter does not renew leases")]
    Unsupported,
    /// It is unknown whether the lease was renewed. Repeat the request with the same number.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a limit was not defined. Nothing was changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DefineError {
    /// The key is of the other kind.
    #[error(
        "{key} is a {is} limit and cannot become another kind; delete it first, or take another key"
    )]
    KindConflict { key: LimitKey, is: &'static str },
    /// No new limit or template can have this key.
    #[error("{key} cannot be defined: {reason}")]
    InvalidKey { key: LimitKey, reason: String },
    /// The backend cannot count so many units.
    #[error(
        "the capacity of {key} is above {capacity_max}, which is the most that this backend counts"
    )]
    CapacityOutOfRange { key: LimitKey, capacity_max: u64 },
    /// The maximum number of templates is defined.
    #[error("{templates_max} templates are defined, which is the most there may be; delete some")]
    TooManyTemplates { templates_max: usize },
    /// The backend gave no answer, or the definition could not be stored.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a limit was not deleted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeleteError {
    /// No limit has this key.
    #[error("no limit is defined for {key}")]
    UnknownKey { key: LimitKey },
    /// The backend gave no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a limit's state could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// The backend gave no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why open leases could not be listed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LeasesError {
    /// The lease to continue after is not known: it was never allowed, or it ended long ago.
    #[error("the lease {lease} to continue after is not known here; begin again without it")]
    UnknownLease { lease: LeaseId },
    /// The backend gave no answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a lease was not released.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReleaseError {
    /// The lease is not open: it is unknown, was completed, or all of it has expired.
    #[error("no open lease has the ID {lease}")]
    UnknownLease { lease: LeaseId },
    /// It is unknown whether the lease was released.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Why a debt was not forgiven.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ForgiveError {
    /// No limit has this key.
    #[error("no limit is defined for {key}")]
    UnknownKey { key: LimitKey },
    /// It is unknown whether the debt was forgiven.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
    /// The limiter rejected the request without processing it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// No answer came, so the outcome is unknown. Repeat the request with the **same** lease ID: it counts once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no answer: {reason}")]
pub struct Unanswered {
    /// What went wrong, in plain text.
    pub reason: String,
    /// When to repeat the request.
    pub retry_after: Duration,
}

/// The limiter rejected the request without processing it: the token is missing, or it speaks another protocol.
/// Repeating the request does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("refused: {reason}")]
pub struct Refused {
    /// What was wrong, in plain text.
    pub reason: String,
}
