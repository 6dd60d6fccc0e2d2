//! What the gateway needs of the limiter behind it.

use std::future::Future;

use ratelimiter::{Limit, LimitKey, LimitState, Limiter, StateError, Unanswered};

/// A limiter that knows which limits exist, and lets a reserve [wait](ratelimiter::Wait) for room.
pub trait GatewayLimiter: Limiter + std::fmt::Debug + 'static {
    /// The definition that governs each key, or the template from which a limit would be made for it; one answer for each key, in order.
    ///
    /// # Errors
    /// The definitions are not known yet.
    fn governing(
        &self,
        keys: &[LimitKey],
    ) -> impl Future<Output = Result<Vec<Option<Limit>>, Unanswered>> + Send;

    /// A limit with its current usage; `None` if it is not defined.
    ///
    /// # Errors
    /// See [`StateError`].
    fn state(
        &self,
        key: &LimitKey,
    ) -> impl Future<Output = Result<Option<LimitState>, StateError>> + Send;
}
