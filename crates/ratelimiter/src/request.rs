//! Reserve, renew and complete requests.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::key::LimitKey;
use crate::lease::LeaseId;

/// The most requirements of one reserve, and therefore the most reservations of one lease.
pub const REQUIREMENTS_MAX: usize = 32;
/// The most actuals of one complete.
pub const ACTUALS_MAX: usize = REQUIREMENTS_MAX;
/// The most amounts of one renew.
pub const NEW_AMOUNTS_MAX: usize = REQUIREMENTS_MAX;
/// The most parts, each with an expiry of its own, of what a lease has of one limit. When a renew would make more, all of
/// them are joined at the latest expiry.
pub const PARTS_MAX: usize = 8;
/// The most bytes of a job ID.
pub const JOB_ID_BYTES_MAX: usize = 256;
/// The longest that a reserve may wait for room.
pub const RESERVE_WAIT_MAX: Duration = Duration::from_secs(60);
/// The most bytes of the name of a queue.
pub const QUEUE_BYTES_MAX: usize = 256;

/// Asks whether a call may go ahead: a lease ID and its requirements.
///
/// ```
/// use ratelimiter::{LeaseId, LimitKey, Requirements, ReserveRequest};
///
/// let requirements = Requirements::of([
///     (LimitKey::llm_rpm("openai", "gpt-4o")?, 1),
///     (LimitKey::llm_tpm("openai", "gpt-4o")?, 1_800),
/// ])?;
/// let request = ReserveRequest::new(LeaseId::from_u128(1), requirements);
/// assert_eq!(request.requirements.len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReserveRequest {
    /// Identifies the attempt.
    pub lease: LeaseId,
    /// The caller's ID for its work, for logs and for the list of open leases.
    pub job: Option<JobId>,
    /// Reserved together or not at all.
    pub requirements: Requirements,
    /// Whether the answer may wait for room; `None` for an answer at once. A limiter that does not wait answers at once.
    pub wait: Option<Wait>,
}

/// How a reserve waits for room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    at_most: Duration,
    queue: Box<str>,
}

/// Keeps an open lease open, and changes what it holds.
///
/// ```
/// use ratelimiter::{LeaseId, LimitKey, NewAmounts, RenewNumber, RenewRequest};
///
/// // The stream goes on, and needs fewer tokens than it reserved.
/// let amounts = NewAmounts::of([(LimitKey::llm_tpm("openai", "gpt-4o")?, 600)])?;
/// let request = RenewRequest::new(LeaseId::from_u128(1), RenewNumber::FIRST, amounts);
/// assert_eq!(request.number.get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenewRequest {
    /// The lease that was allowed.
    pub lease: LeaseId,
    /// Greater than that of every earlier renew of the lease. A renew without an answer is repeated with its number.
    pub number: RenewNumber,
    /// What the lease holds afterwards of these limits. Without any, its holds last longer and nothing else changes.
    pub amounts: NewAmounts,
}

/// The number of a renew among those of its lease: 1, 2, 3, …
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RenewNumber(NonZeroU64);

/// What a lease shall hold of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAmount {
    /// A limit of the lease's requirements.
    pub key: LimitKey,
    /// Units; 0 gives all of them back.
    pub amount: u64,
}

/// At most 32 new amounts with distinct keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewAmounts(Box<[NewAmount]>);

/// Reports the end of a call: a lease ID and the actual use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompleteRequest {
    /// The lease that was allowed.
    pub lease: LeaseId,
    /// The caller's ID for its work; only for logs.
    pub job: Option<JobId>,
    /// Actual use of the rolling limits, where the caller knows it.
    pub actuals: Actuals,
}

/// What a call needs of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The limit.
    pub key: LimitKey,
    /// Units; never 0.
    pub amount: NonZeroU64,
}

/// 1 to 32 requirements with distinct keys, in the caller's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirements(Box<[Requirement]>);

/// What a call used of one limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Actual {
    /// The limit.
    pub key: LimitKey,
    /// Units; may be 0.
    pub amount: u64,
}

/// At most 32 actuals with distinct keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Actuals(Box<[Actual]>);

/// The caller's ID for its work: 1 to 256 bytes without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobId(Box<str>);

/// Why a request is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum RequestError {
    /// Not 1..=32 requirements.
    #[error("a reserve has 1 to {REQUIREMENTS_MAX} requirements, not {count}")]
    RequirementCount { count: usize },
    /// More than 32 actuals.
    #[error("a complete has at most {ACTUALS_MAX} actuals, not {count}")]
    ActualCount { count: usize },
    /// More than 32 new amounts.
    #[error("a renew has at most {NEW_AMOUNTS_MAX} amounts, not {count}")]
    NewAmountCount { count: usize },
    /// The number of a renew is 0.
    #[error("the numbers of a lease's renews begin at 1")]
    RenewNumberZero,
    /// A requirement with an amount of 0.
    #[error("a requirement's amount is 1 or more; leave out {key}, of which nothing is needed")]
    AmountZero { key: LimitKey },
    /// Two entries name the same key.
    #[error("{key} is listed twice; list each key once, with the sum")]
    DuplicateKey { key: LimitKey },
    /// A requirement of a template, from which limits are made for other keys.
    #[error("{key} is a template; a requirement names one of the keys that it stands for")]
    TemplateKey { key: LimitKey },
    /// A job ID that is empty, too long, or has control characters.
    #[error("a job ID has 1 to {JOB_ID_BYTES_MAX} bytes and no control characters")]
    JobId,
    /// A wait of more than a minute.
    #[error("a reserve waits for at most {} ms, not {ms}", RESERVE_WAIT_MAX.as_millis())]
    WaitTooLong { ms: u128 },
    /// The name of a queue that is too long, or has control characters.
    #[error("the name of a queue has at most {QUEUE_BYTES_MAX} bytes and no control characters")]
    Queue,
}

impl ReserveRequest {
    /// A request without a job ID that is answered at once.
    pub const fn new(lease: LeaseId, requirements: Requirements) -> Self {
        Self { lease, job: None, requirements, wait: None }
    }
}

impl Wait {
    /// Waits at most so long. Requests with the same `queue`, such as a tenant's name, are served in the order of their arrival; queues
    /// take turns.
    ///
    /// # Errors
    /// More than [`RESERVE_WAIT_MAX`], or not the name of a queue.
    pub fn new(at_most: Duration, queue: impl Into<Box<str>>) -> Result<Self, RequestError> {
        let queue = queue.into();
        if at_most > RESERVE_WAIT_MAX {
            return Err(RequestError::WaitTooLong { ms: at_most.as_millis() });
        }
        if queue.len() > QUEUE_BYTES_MAX || queue.contains(char::is_control) {
            return Err(RequestError::Queue);
        }
        Ok(Self { at_most, queue })
    }

    /// The longest that it waits.
    pub const fn at_most(&self) -> Duration {
        self.at_most
    }

    /// The name of its queue; may be empty.
    pub fn queue(&self) -> &str {
        &self.queue
    }
}

impl RenewRequest {
    /// A request with this number.
    pub const fn new(lease: LeaseId, number: RenewNumber, amounts: NewAmounts) -> Self {
        Self { lease, number, amounts }
    }
}

impl RenewNumber {
    /// The number of a lease's first renew.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Checks a number.
    ///
    /// # Errors
    /// It is 0.
    pub fn new(number: u64) -> Result<Self, RequestError> {
        NonZeroU64::new(number).map(Self).ok_or(RequestError::RenewNumberZero)
    }

    /// The number as an integer.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The number of the next renew; stays at 2^64-1.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl NewAmounts {
    /// Checks a list of amounts.
    ///
    /// # Errors
    /// More than 32, or a duplicate key.
    pub fn new(amounts: impl Into<Box<[NewAmount]>>) -> Result<Self, RequestError> {
        let amounts = amounts.into();
        if amounts.len() > NEW_AMOUNTS_MAX {
            return Err(RequestError::NewAmountCount { count: amounts.len() });
        }
        if let Some(key) = first_duplicate(&amounts, |amount| &amount.key) {
            return Err(RequestError::DuplicateKey { key: key.clone() });
        }
        Ok(Self(amounts))
    }

    /// Checks a list of `(key, amount)` pairs.
    ///
    /// # Errors
    /// As [`NewAmounts::new`].
    pub fn of(pairs: impl IntoIterator<Item = (LimitKey, u64)>) -> Result<Self, RequestError> {
        let amount = |(key, amount)| NewAmount { key, amount };
        Self::new(pairs.into_iter().map(amount).collect::<Box<[_]>>())
    }

    /// Changes no amount: the lease's holds last longer.
    pub fn none() -> Self {
        Self::default()
    }
}

impl std::ops::Deref for NewAmounts {
    type Target = [NewAmount];

    fn deref(&self) -> &[NewAmount] {
        &self.0
    }
}

impl CompleteRequest {
    /// A request without a job ID.
    pub const fn new(lease: LeaseId, actuals: Actuals) -> Self {
        Self { lease, job: None, actuals }
    }
}

impl Requirements {
    /// Checks a list of requirements.
    ///
    /// # Errors
    /// None or more than 32, a duplicate key, or the key of a [template](LimitKey::is_template).
    pub fn new(requirements: impl Into<Box<[Requirement]>>) -> Result<Self, RequestError> {
        let requirements = requirements.into();
        let count = requirements.len();
        if !(1..=REQUIREMENTS_MAX).contains(&count) {
            return Err(RequestError::RequirementCount { count });
        }
        if let Some(key) = first_duplicate(&requirements, |requirement| &requirement.key) {
            return Err(RequestError::DuplicateKey { key: key.clone() });
        }
        let mut keys = requirements.iter().map(|requirement| &requirement.key);
        if let Some(key) = keys.find(|key| key.is_template()) {
            return Err(RequestError::TemplateKey { key: key.clone() });
        }
        Ok(Self(requirements))
    }

    /// Checks a list of `(key, amount)` pairs.
    ///
    /// # Errors
    /// As [`Requirements::new`], and for an amount of 0.
    pub fn of(pairs: impl IntoIterator<Item = (LimitKey, u64)>) -> Result<Self, RequestError> {
        let requirement = |(key, amount)| match NonZeroU64::new(amount) {
            Some(amount) => Ok(Requirement { key, amount }),
            None => Err(RequestError::AmountZero { key }),
        };
        Self::new(pairs.into_iter().map(requirement).collect::<Result<Box<[_]>, _>>()?)
    }
}

impl std::ops::Deref for Requirements {
    type Target = [Requirement];

    fn deref(&self) -> &[Requirement] {
        &self.0
    }
}

impl Actuals {
    /// Checks a list of actuals.
    ///
    /// # Errors
    /// More than 32, or a duplicate key.
    pub fn new(actuals: impl Into<Box<[Actual]>>) -> Result<Self, RequestError> {
        let actuals = actuals.into();
        if actuals.len() > ACTUALS_MAX {
            return Err(RequestError::ActualCount { count: actuals.len() });
        }
        if let Some(key) = first_duplicate(&actuals, |actual| &actual.key) {
            return Err(RequestError::DuplicateKey { key: key.clone() });
        }
        Ok(Self(actuals))
    }

    /// Checks a list of `(key, amount)` pairs.
    ///
    /// # Errors
    /// As [`Actuals::new`].
    pub fn of(pairs: impl IntoIterator<Item = (LimitKey, u64)>) -> Result<Self, RequestError> {
        let actual = |(key, amount)| Actual { key, amount };
        Self::new(pairs.into_iter().map(actual).collect::<Box<[_]>>())
    }

    /// The actual use is unknown: rolling reservations stay until they expire.
    pub fn none() -> Self {
        Self::default()
    }
}

impl std::ops::Deref for Actuals {
    type Target = [Actual];

    fn deref(&self) -> &[Actual] {
        &self.0
    }
}

/// The first key that is also in an earlier entry. Lists have at most 32 entries, so comparing all pairs is cheap.
fn first_duplicate<T>(entries: &[T], key: impl Fn(&T) -> &LimitKey) -> Option<&LimitKey> {
    let repeats = |(at, entry): (usize, &T)| entries[..at].iter().any(|e| key(e) == key(entry));
    let at = entries.iter().enumerate().position(repeats)?;
    Some(key(&entries[at]))
}

impl JobId {
    /// Creates a job ID from a text.
    ///
    /// # Errors
    /// Empty, longer than [`JOB_ID_BYTES_MAX`], or with control characters, which would garble a log.
    pub fn new(text: impl Into<Box<str>>) -> Result<Self, RequestError> {
        let text = text.into();
        let fits = (1..=JOB_ID_BYTES_MAX).contains(&text.len());
        if !fits || text.chars().any(char::is_control) {
            return Err(RequestError::JobId);
        }
        Ok(Self(text))
    }

    /// The job ID's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: impl AsRef<str>) -> LimitKey {
        LimitKey::new(name).unwrap()
    }

    fn numbered(count: usize) -> impl Iterator<Item = (LimitKey, u64)> {
        (0..count).map(|n| (key(format!("k{n}")), 1))
    }

    #[test]
    fn a_reserve_has_1_to_32_requirements() {
        for count in [0, 33] {
            let error = Requirements::of(numbered(count)).unwrap_err();
            assert_eq!(error, RequestError::RequirementCount { count });
        }
        assert_eq!(Requirements::of(numbered(1)).unwrap().len(), 1);
        assert_eq!(Requirements::of(numbered(32)).unwrap().len(), 32);
    }

    /// TPL-01
    #[test]
    fn tpl_01_a_requirement_names_no_template() {
        for text in ["tenant:*:rpm", "tenant:**"] {
            let error = Requirements::of([(key("a"), 1), (key(text), 1)]).unwrap_err();
            assert_eq!(error, RequestError::TemplateKey { key: key(text) });
        }
        assert!(Requirements::of([(key("tenant:a*b:rpm"), 1)]).is_ok(), "as in the first edition");
    }

    #[test]
    fn a_requirement_of_0_is_refused() {
        let error = Requirements::of([(key("a"), 1), (key("b"), 0)]).unwrap_err();
        assert_eq!(error, RequestError::AmountZero { key: key("b") });
    }

    /// COM-06
    #[test]
    fn com_06_a_key_may_not_be_listed_twice() {
        let pairs = || [(key("a"), 1), (key("b"), 1), (key("a"), 2)];
        let expected = RequestError::DuplicateKey { key: key("a") };
        assert_eq!(Requirements::of(pairs()).unwrap_err(), expected);
        assert_eq!(Actuals::of(pairs()).unwrap_err(), expected);
        assert_eq!(NewAmounts::of(pairs()).unwrap_err(), expected);
    }

    /// REN-01
    #[test]
    fn ren_01_a_renew_has_at_most_32_amounts_and_may_have_none() {
        assert!(NewAmounts::of(numbered(32)).is_ok());
        assert!(NewAmounts::none().is_empty());
        let error = NewAmounts::of(numbered(33)).unwrap_err();
        assert_eq!(error, RequestError::NewAmountCount { count: 33 });
    }

    /// REN-03
    #[test]
    fn ren_03_the_numbers_of_renews_begin_at_1() {
        assert_eq!(RenewNumber::new(0), Err(RequestError::RenewNumberZero));
        assert_eq!(RenewNumber::new(1), Ok(RenewNumber::FIRST));
        assert_eq!(RenewNumber::FIRST.next().get(), 2);
        let last = RenewNumber::new(u64::MAX).unwrap();
        assert_eq!(last.next(), last);
    }

    #[test]
    fn a_complete_has_at_most_32_actuals() {
        assert!(Actuals::of(numbered(32)).is_ok());
        let error = Actuals::of(numbered(33)).unwrap_err();
        assert_eq!(error, RequestError::ActualCount { count: 33 });
    }

    #[test]
    fn a_job_id_is_one_line_of_text() {
        assert!(JobId::new("nightly run 7").is_ok());
        assert!(JobId::new("x".repeat(256)).is_ok());
        for text in [String::new(), "x".repeat(257), "a\nb".into()] {
            assert_eq!(JobId::new(text), Err(RequestError::JobId));
        }
    }
}
