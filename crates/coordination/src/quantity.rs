//! Batch sizes, lease durations and delays, with their bounds (`PRIM-GEN-D`).

use std::time::Duration;

use thiserror::Error;

/// The most items in one claim.
pub const BATCH_SIZE_MAX: u32 = 1000;
/// The longest lease or claim: 24 hours.
pub const LEASE_DURATION_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The longest delay: 366 days.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The maximum number of items in a claim; 1 to [`BATCH_SIZE_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchSize(u32);

/// The duration of a claim or system lease; above zero, at most [`LEASE_DURATION_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseDuration(Duration);

/// The delay until an item is due again; zero to [`DELAY_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Delay(Duration);

/// Why a quantity was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidQuantity {
    /// A batch of no items.
    #[error("zero_batch_size: a claim asks for at least 1 item")]
    ZeroBatchSize,
    /// A batch above [`BATCH_SIZE_MAX`].
    #[error("batch_size_too_large: {asked}, at most {BATCH_SIZE_MAX}")]
    BatchSizeTooLarge { asked: u32 },
    /// A lease below a microsecond.
    #[error("zero_lease_duration: a lease lasts at least 1 microsecond")]
    ZeroLeaseDuration,
    /// A lease above [`LEASE_DURATION_MAX`].
    #[error("lease_duration_too_long: {asked:?}, at most 24 h")]
    LeaseDurationTooLong { asked: Duration },
    /// A negative delay.
    #[error("negative_delay: {asked_ms} ms")]
    NegativeDelay { asked_ms: i64 },
    /// A delay above [`DELAY_MAX`].
    #[error("delay_too_long: {asked:?}, at most 366 days")]
    DelayTooLong { asked: Duration },
}

impl BatchSize {
    /// The batch of one item.
    pub const ONE: BatchSize = BatchSize(1);

    /// A batch of up to `count` items.
    ///
    /// # Errors
    /// [`InvalidQuantity`] for 0 and above [`BATCH_SIZE_MAX`].
    pub const fn new(count: u32) -> Result<BatchSize, InvalidQuantity> {
        if count == 0 {
            return Err(InvalidQuantity::ZeroBatchSize);
        }
        if count > BATCH_SIZE_MAX {
            return Err(InvalidQuantity::BatchSizeTooLarge { asked: count });
        }
        Ok(BatchSize(count))
    }

    /// The count.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The count, to index with.
    pub const fn as_usize(self) -> usize {
        self.0 as usize
    }
}

impl LeaseDuration {
    /// A lease of this duration.
    ///
    /// # Errors
    /// [`InvalidQuantity`] below a microsecond, the unit of [`Timestamp`](crate::Timestamp), and
    /// above [`LEASE_DURATION_MAX`].
    pub fn new(duration: Duration) -> Result<LeaseDuration, InvalidQuantity> {
        if duration < Duration::from_micros(1) {
            return Err(InvalidQuantity::ZeroLeaseDuration);
        }
        if duration > LEASE_DURATION_MAX {
            return Err(InvalidQuantity::LeaseDurationTooLong { asked: duration });
        }
        Ok(LeaseDuration(duration))
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl Delay {
    /// No delay.
    pub const ZERO: Delay = Delay(Duration::ZERO);

    /// A delay of this duration.
    ///
    /// # Errors
    /// [`InvalidQuantity::DelayTooLong`] above [`DELAY_MAX`].
    pub fn new(duration: Duration) -> Result<Delay, InvalidQuantity> {
        if duration > DELAY_MAX {
            return Err(InvalidQuantity::DelayTooLong { asked: duration });
        }
        Ok(Delay(duration))
    }

    /// A delay computed as a signed number, such as the difference of two moments.
    ///
    /// # Errors
    /// [`InvalidQuantity`] below zero and above [`DELAY_MAX`].
    pub fn from_millis(delay_ms: i64) -> Result<Delay, InvalidQuantity> {
        let Ok(unsigned_ms) = u64::try_from(delay_ms) else {
            return Err(InvalidQuantity::NegativeDelay { asked_ms: delay_ms });
        };
        Delay::new(Duration::from_millis(unsigned_ms))
    }

    /// The duration.
    pub const fn get(self) -> Duration {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PRIM-GEN-D
    #[test]
    fn a_batch_has_one_to_a_thousand_items() {
        assert_eq!(BatchSize::new(0), Err(InvalidQuantity::ZeroBatchSize));
        assert_eq!(BatchSize::new(1), Ok(BatchSize::ONE));
        assert!(BatchSize::new(BATCH_SIZE_MAX).is_ok());
        assert_eq!(
            BatchSize::new(BATCH_SIZE_MAX + 1),
            Err(InvalidQuantity::BatchSizeTooLarge { asked: 1001 })
        );
    }

    /// PRIM-GEN-D
    #[test]
    fn a_lease_lasts_up_to_a_day() {
        let day = LEASE_DURATION_MAX;
        assert!(LeaseDuration::new(day).is_ok());
        assert!(LeaseDuration::new(Duration::from_micros(1)).is_ok());
        for none in [Duration::ZERO, Duration::from_nanos(999)] {
            assert_eq!(LeaseDuration::new(none), Err(InvalidQuantity::ZeroLeaseDuration));
        }
        let asked = day + Duration::from_nanos(1);
        assert_eq!(LeaseDuration::new(asked), Err(InvalidQuantity::LeaseDurationTooLong { asked }));
    }

    /// PRIM-GEN-D
    #[test]
    fn a_delay_is_not_negative() {
        assert_eq!(Delay::from_millis(0), Ok(Delay::ZERO));
        assert_eq!(Delay::from_millis(-1), Err(InvalidQuantity::NegativeDelay { asked_ms: -1 }));
        assert!(Delay::new(DELAY_MAX).is_ok());
        let asked = DELAY_MAX + Duration::from_nanos(1);
        assert_eq!(Delay::new(asked), Err(InvalidQuantity::DelayTooLong { asked }));
    }
}
