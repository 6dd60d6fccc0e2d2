//! Stable error codes and their HTTP statuses.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use ratelimiter::LimitKey;

/// Declares the codes from one table, so that a code, its text and its HTTP status stand together.
macro_rules! error_codes {
    (@pattern $about:ident) => { Some($about) };
    (@pattern) => { _ };
    ($(#[$meta:meta])* $name:ident {
        $($(#[$doc:meta])* $variant:ident $({ $about:ident: $type:ty })? = $code:literal, $status:literal;)*
    }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant says what its field is")]
        pub enum $name {
            $($(#[$doc])* $variant $({ $about: $type })?,)*
            /// A code that this version does not know, from a newer server.
            Other(String),
        }

        impl $name {
            #[cfg(test)]
            const ALL: &[&str] = &[$($code),*];

            /// The HTTP status of the code. Nothing else decides a status.
            pub const fn http_status(&self) -> u16 {
                match self {
                    $(Self::$variant { .. } => $status,)*
                    Self::Other(_) => 500,
                }
            }

            /// The code, and the key or field after the colon.
            fn parts(&self) -> (&str, Option<&str>) {
                match self {
                    $(Self::$variant $({ $about })? => ($code, None$(.or(Some($about.as_str())))?),)*
                    Self::Other(text) => (text, None),
                }
            }

            /// The inverse of `parts`; `None` for an unknown code or an invalid key.
            fn from_parts(code: &str, about: Option<&str>) -> Option<Self> {
                Some(match (code, about) {
                    $(($code, error_codes!(@pattern $($about)?)) => {
                        Self::$variant $({ $about: $about.parse().ok()? })?
                    })*
                    _ => return None,
                })
            }
        }
    };
}

error_codes! {
    /// The `error` field of an answer: a stable code, then `:` and the key or field in question.
    ///
    /// ```
    /// use ratelimiter_wire::ErrorCode;
    ///
    /// let Ok(code) = "unknown_limit_key:global:llm:openai:gpt-4o:rpm".parse();
    /// assert!(matches!(&code, ErrorCode::UnknownLimitKey { key } if key.as_str().ends_with(":rpm")));
    /// assert_eq!(code.http_status(), 404);
    /// ```
    ErrorCode {
        /// `invalid_request:<field>`: the request is malformed. The field is a path, such as
        /// `requirements[0].amount`, or `body` if the body is not JSON.
        InvalidRequest { field: String } = "invalid_request", 400;
        /// `duplicate_key:<key>`: a key is listed twice in one request.
        DuplicateKey { key: LimitKey } = "duplicate_key", 400;
        /// `unknown_limit_key:<key>`: no limit has this key.
        UnknownLimitKey { key: LimitKey } = "unknown_limit_key", 404;
        /// `amount_exceeds_capacity:<key>`: the amount is above the limit's capacity, which is not 0.
        AmountExceedsCapacity { key: LimitKey } = "amount_exceeds_capacity", 422;
        /// `limit_paused:<key>`: the capacity is 0; nothing is admitted until it is raised.
        LimitPaused { key: LimitKey } = "limit_paused", 200;
        /// `limit_decreasing:<key>`: a lower capacity is pending.
        LimitDecreasing { key: LimitKey } = "limit_decreasing", 200;
        /// `lease_conflict`: the lease ID was used before, for other requirements.
        LeaseConflict = "lease_conflict", 409;
        /// `lease_ended`: the lease was completed, or one of its reservations has expired.
        LeaseEnded = "lease_ended", 409;
        /// `invalid_actual:<key>`: the lease has no rolling reservation of this key.
        InvalidActual { key: LimitKey } = "invalid_actual", 400;
        /// `renew_superseded`: the lease was renewed with a greater number.
        RenewSuperseded = "renew_superseded", 409;
        /// `invalid_amount:<key>`: the lease has no requirement of this key.
        InvalidAmount { key: LimitKey } = "invalid_amount", 400;
        /// `kind_conflict:<key>`: the key is of the other kind.
        KindConflict { key: LimitKey } = "kind_conflict", 409;
        /// `too_many_limits:<template>`: the limit would have to be made from this template, and there are too many of these.
        TooManyInstances { template: LimitKey } = "too_many_limits", 200;
        /// `too_many_waiters`: there is no room, and as many requests wait at this server as may.
        TooManyWaiters = "too_many_waiters", 200;
        /// `too_many_limits`: the server has its maximum number of limits or templates.
        TooManyLimits = "too_many_limits", 409;
        /// `limits_read_only`: the server cannot write its limits file. Repeating does not help.
        LimitsReadOnly = "limits_read_only", 409;
        /// `not_found`: no such limit, no such open lease, or no such path.
        NotFound = "not_found", 404;
        /// `unauthorized`: the request has no valid token.
        Unauthorized = "unauthorized", 401;
        /// `forbidden`: the token does not permit this operation.
        Forbidden = "forbidden", 403;
        /// `forbidden_key:<key>`: the token does not permit this key.
        ForbiddenKey { key: LimitKey } = "forbidden_key", 403;
        /// `method_not_allowed`: the path does not support this method.
        MethodNotAllowed = "method_not_allowed", 405;
        /// `body_too_large`: the body is larger than the server accepts.
        BodyTooLarge = "body_too_large", 413;
        /// `request_timeout`: the body did not arrive in time.
        RequestTimeout = "request_timeout", 408;
        /// `backend_error`: no answer, so the outcome is unknown. Repeat with the same lease ID.
        BackendError = "backend_error", 503;
        /// `backend_refused`: the server's backend does not accept the server. Repeating does not help.
        BackendRefused = "backend_refused", 500;
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.parts() {
            (code, Some(about)) => write!(f, "{code}:{about}"),
            (code, None) => f.write_str(code),
        }
    }
}

impl FromStr for ErrorCode {
    type Err = Infallible;

    /// Never fails: an unknown code is [`ErrorCode::Other`].
    fn from_str(text: &str) -> Result<Self, Infallible> {
        let (code, about) = match text.split_once(':') {
            Some((code, about)) => (code, Some(about)),
            None => (text, None),
        };
        Ok(Self::from_parts(code, about).unwrap_or_else(|| Self::Other(text.to_owned())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes with their statuses, as in `docs/reference/http-api.md`.
    const CODES: [(&str, u16); 25] = [
        ("invalid_request:requirements[0].amount", 400),
        ("duplicate_key:a:b", 400),
        ("unknown_limit_key:a:b", 404),
        ("amount_exceeds_capacity:a:b", 422),
        ("limit_paused:a:b", 200),
        ("limit_decreasing:a:b", 200),
        ("lease_conflict", 409),
        ("lease_ended", 409),
        ("invalid_actual:a:b", 400),
        ("renew_superseded", 409),
        ("invalid_amount:a:b", 400),
        ("kind_conflict:a:b", 409),
        ("too_many_limits:a:*", 200),
        ("too_many_waiters", 200),
        ("too_many_limits", 409),
        ("limits_read_only", 409),
        ("not_found", 404),
        ("unauthorized", 401),
        ("forbidden", 403),
        ("forbidden_key:a:b", 403),
        ("method_not_allowed", 405),
        ("body_too_large", 413),
        ("request_timeout", 408),
        ("backend_error", 503),
        ("backend_refused", 500),
    ];

    /// HTTP-04
    #[test]
    fn every_code_round_trips_and_has_its_status() {
        assert_eq!(CODES.map(|(text, _)| text.split(':').next().unwrap()), ErrorCode::ALL);
        for (text, status) in CODES {
            let Ok(code) = text.parse::<ErrorCode>();
            assert!(!matches!(code, ErrorCode::Other(_)), "{text}");
            assert_eq!(code.to_string(), text);
            assert_eq!(code.http_status(), status, "{text}");
        }
    }

    /// HTTP-04
    #[test]
    fn an_unknown_error_code_is_preserved() {
        for text in ["tomorrow:k", "tomorrow", "unknown_limit_key:two words", "unknown_limit_key"] {
            let Ok(code) = text.parse::<ErrorCode>();
            assert_eq!(code, ErrorCode::Other(text.to_owned()));
            assert_eq!(code.to_string(), text);
        }
    }
}
