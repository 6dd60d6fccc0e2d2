//! What becomes of calls, for metrics.

use std::fmt::Debug;
use std::time::Duration;

use ratelimiter::LimitKey;

use crate::usage::Usage;

/// Is told of every metered call when it has ended.
pub trait Observer: Debug + Send + Sync + 'static {
    /// A call has ended.
    fn call_ended(&self, report: &CallReport<'_>);

    /// The provider has answered a call with 429; it may be asked again. The model has a name if it is listed.
    fn call_limited(&self, provider: &str, model: Option<&str>);

    /// The capacity of a limit of ours, and what the provider says that it is.
    fn limit_compared(&self, key: &LimitKey, capacity: u64, provider_capacity: u64);

    /// So much of a limit of ours is held back now, because the provider has less.
    fn held_back(&self, key: &LimitKey, amount: u64);
}

/// What became of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallReport<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The model's name, if it is listed.
    pub model: Option<&'a str>,
    /// How it ended.
    pub outcome: CallOutcome,
    /// What it used, if it is known.
    pub usage: Option<Usage>,
    /// What it cost, in micro-dollars.
    pub cost: u64,
    /// How long it waited for room.
    pub waited: Duration,
    /// From sending it to the first byte of the answer's body.
    pub first_byte_after: Option<Duration>,
    /// From sending it to its end.
    pub took: Option<Duration>,
}

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallOutcome {
    /// The provider answered to the end, and some limit governed the call.
    Answered,
    /// As above, and no limit governed the call.
    Ungoverned,
    /// It went ahead although the backend gave no answer.
    Unlimited,
    /// The provider refused it.
    Refused,
    /// The provider refused it for its own limits.
    RefusedRate,
    /// The answer was cut, timed out or ended with an error.
    Cut,
    /// The caller went away.
    CallerGone,
    /// The provider gave no answer.
    NoAnswer,
    /// There was no room.
    NoRoom,
    /// The call itself was wrong, or not allowed.
    Invalid,
    /// The backend gave no answer.
    BackendError,
}

impl CallOutcome {
    /// All outcomes.
    pub const ALL: [Self; 11] = [
        Self::Answered,
        Self::Ungoverned,
        Self::Unlimited,
        Self::Refused,
        Self::RefusedRate,
        Self::Cut,
        Self::CallerGone,
        Self::NoAnswer,
        Self::NoRoom,
        Self::Invalid,
        Self::BackendError,
    ];

    /// Its name in metrics.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Ungoverned => "ungoverned",
            Self::Unlimited => "unlimited",
            Self::Refused => "refused",
            Self::RefusedRate => "refused_rate",
            Self::Cut => "cut",
            Self::CallerGone => "caller_gone",
            Self::NoAnswer => "no_answer",
            Self::NoRoom => "no_room",
            Self::Invalid => "invalid",
            Self::BackendError => "backend_error",
        }
    }
}
