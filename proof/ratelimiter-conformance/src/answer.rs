//! Answers of a limiter, with assertions.

use ratelimiter::clock::Timestamp;
use ratelimiter::{CompleteError, Decision, Denial, DenialReason, LimitKey, ReserveError};

/// The answer to a reserve, to be checked.
#[derive(Debug)]
#[must_use = "a fact checks every answer"]
pub(crate) struct ReserveCheck {
    asked: String,
    result: Result<Decision, ReserveError>,
    prefix: String,
    names_every_key: bool,
}

/// The answer to a complete, to be checked.
#[derive(Debug)]
#[must_use = "a fact checks every answer"]
pub(crate) struct CompleteCheck {
    asked: String,
    result: Result<(), CompleteError>,
    prefix: String,
}

impl ReserveCheck {
    pub(crate) fn new(
        asked: String,
        result: Result<Decision, ReserveError>,
        prefix: String,
        names_every_key: bool,
    ) -> Self {
        Self { asked, result, prefix, names_every_key }
    }

    /// Allowed; returns the time of the reservation.
    #[track_caller]
    pub(crate) fn is_allowed(&self) -> Timestamp {
        let reserved_at = match &self.result {
            Ok(Decision::Allowed { reserved_at }) => Some(*reserved_at),
            Ok(Decision::Denied(_)) | Err(_) => None,
        };
        let Self { asked, result, .. } = self;
        assert!(reserved_at.is_some(), "{asked}: expected allowed, got {result:?}");
        reserved_at.expect("asserted above")
    }

    /// Denied for lack of room, with at least one key and a hint of at least a millisecond.
    #[track_caller]
    pub(crate) fn is_denied(&self) -> &Denial {
        let denial = self.denial("denied");
        let (asked, result) = (&self.asked, &self.result);
        assert!(
            matches!(&denial.reason, DenialReason::NoRoom { keys } if !keys.is_empty()),
            "{asked}: expected a denial that names keys without room, got {result:?}"
        );
        assert!(denial.retry_after_ms() >= 1, "{asked}: expected a hint, got {result:?}");
        denial
    }

    /// Denied for lack of room in exactly these limits, in the request's order. A limiter that
    /// names only one key may name any of them.
    #[track_caller]
    pub(crate) fn is_denied_for<const N: usize>(&self, names: [&str; N]) -> &Denial {
        let denial = self.is_denied();
        let expected: Vec<LimitKey> = names.iter().map(|name| self.key(name)).collect();
        let asked = &self.asked;
        if self.names_every_key {
            assert_eq!(denial.keys(), expected, "{asked}: the denied keys");
        } else {
            let all_expected = denial.keys().iter().all(|key| expected.contains(key));
            assert!(all_expected, "{asked}: expected some of {expected:?}, got {denial:?}");
        }
        denial
    }

    /// Denied because this limit is paused.
    #[track_caller]
    pub(crate) fn is_denied_by_pause_of(&self, name: &str) -> &Denial {
        let denial = self.denial("denied by a pause");
        let key = self.key(name);
        let asked = &self.asked;
        assert_eq!(denial.reason, DenialReason::Paused { key }, "{asked}");
        denial
    }

    /// Denied because this limit is decreasing.
    #[track_caller]
    pub(crate) fn is_denied_by_decrease_of(&self, name: &str) -> &Denial {
        let denial = self.denial("denied by a decrease");
        let key = self.key(name);
        let asked = &self.asked;
        assert_eq!(denial.reason, DenialReason::Decreasing { key }, "{asked}");
        denial
    }

    #[track_caller]
    fn denial(&self, expected: &str) -> &Denial {
        let denial = self.result.as_ref().ok().and_then(Decision::denial);
        let Self { asked, result, .. } = self;
        assert!(denial.is_some(), "{asked}: expected {expected}, got {result:?}");
        denial.expect("asserted above")
    }

    #[track_caller]
    pub(crate) fn is_refused_for_unknown(&self, name: &str) {
        let key = self.key(name);
        self.is_refused_with(&ReserveError::UnknownKey { key });
    }

    #[track_caller]
    pub(crate) fn is_refused_for_more_than_capacity_of(&self, name: &str) {
        let key = self.key(name);
        self.is_refused_with(&ReserveError::AmountExceedsCapacity { key });
    }

    #[track_caller]
    pub(crate) fn is_a_conflict(&self) {
        self.is_refused_with(&ReserveError::LeaseConflict);
    }

    #[track_caller]
    pub(crate) fn is_of_an_ended_lease(&self) {
        self.is_refused_with(&ReserveError::LeaseEnded);
    }

    #[track_caller]
    fn is_refused_with(&self, expected: &ReserveError) {
        let Self { asked, result, .. } = self;
        assert_eq!(result.as_ref(), Err(expected), "{asked}");
    }

    /// True if it was allowed, for facts that count.
    pub(crate) fn was_allowed(&self) -> bool {
        matches!(&self.result, Ok(Decision::Allowed { .. }))
    }

    fn key(&self, name: &str) -> LimitKey {
        LimitKey::new(format!("{}{name}", self.prefix)).expect("facts use valid names")
    }
}

impl CompleteCheck {
    pub(crate) fn new(asked: String, result: Result<(), CompleteError>, prefix: String) -> Self {
        Self { asked, result, prefix }
    }

    #[track_caller]
    pub(crate) fn is_ok(&self) {
        assert_eq!(self.result, Ok(()), "{}", self.asked);
    }

    /// Refused because of the actual for this key.
    #[track_caller]
    pub(crate) fn is_refused_for_the_actual_of(&self, name: &str) {
        let text = format!("{}{name}", self.prefix);
        let key = LimitKey::new(text).expect("facts use valid names");
        let expected = Err(CompleteError::InvalidActual { key });
        assert_eq!(self.result, expected, "{}", self.asked);
    }
}
