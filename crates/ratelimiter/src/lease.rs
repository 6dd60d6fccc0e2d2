//! The name of one attempt to reserve.

use std::fmt;
use std::time::Duration;

use ulid::Ulid;

use crate::clock::Timestamp;

/// How many characters the text form of a lease ID has.
pub const LEASE_ID_CHARACTERS: usize = 26;

/// The name of one attempt to reserve: a ULID, which is 48 bits of milliseconds and 80 random bits.
///
/// A retry after a denial is another attempt and takes another ID. A retry after *no answer* repeats the same ID,
/// and is counted once.
///
/// ```
/// use ratelimiter::LeaseId;
///
/// let lease: LeaseId = "01j9zc3v9w8q4n2m6t5r7y1k0d".parse()?;
/// assert_eq!(lease.to_string(), "01J9ZC3V9W8Q4N2M6T5R7Y1K0D");
/// # Ok::<(), ratelimiter::LeaseIdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(Ulid);

/// Why a text is not a lease ID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeaseIdError {
    /// The text is not 26 characters long.
    #[error(
        "a lease ID is a ULID of {LEASE_ID_CHARACTERS} characters, this text has {bytes} bytes"
    )]
    Length {
        /// How many bytes the text has.
        bytes: usize,
    },
    /// A character is not one of Crockford's base 32.
    #[error("a lease ID is a ULID: digits and letters without I, L, O and U")]
    Character,
    /// The first character is above 7, so that the value needs more than 128 bits.
    #[error(
        "a lease ID is a ULID: its first character is 0 to 7, or the value does not fit 128 bits"
    )]
    Overflow,
}

impl LeaseId {
    /// A new ID for an attempt that is made at `now`.
    pub fn generate(now: Timestamp) -> Self {
        let since_epoch = Duration::from_millis(now.unix_ms());
        Self(Ulid::from_datetime(std::time::UNIX_EPOCH + since_epoch))
    }

    /// The ID with this value.
    pub const fn from_u128(value: u128) -> Self {
        Self(Ulid(value))
    }

    /// The ID's value: the milliseconds in the high 48 bits, the random part in the low 80.
    pub const fn as_u128(self) -> u128 {
        self.0.0
    }

    /// When the ID says that it was made, in milliseconds since the Unix epoch. Its maker chose this freely.
    pub const fn timestamp_ms(self) -> u64 {
        self.0.timestamp_ms()
    }
}

impl std::str::FromStr for LeaseId {
    type Err = LeaseIdError;

    fn from_str(text: &str) -> Result<Self, LeaseIdError> {
        let ulid = Ulid::from_string(text).map_err(|error| match error {
            ulid::DecodeError::InvalidLength => LeaseIdError::Length { bytes: text.len() },
            ulid::DecodeError::InvalidChar => LeaseIdError::Character,
        })?;
        // 26 characters carry 130 bits; the decoder drops the two that a ULID does not have.
        if text.as_bytes()[0] > b'7' {
            return Err(LeaseIdError::Overflow);
        }
        Ok(Self(ulid))
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.array_to_str(&mut [0; LEASE_ID_CHARACTERS]))
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_id_is_read_in_any_case_and_written_in_upper_case() {
        let text = "01j9zc3v9w8q4n2m6t5r7y1k0d";
        let lease: LeaseId = text.parse().unwrap();
        assert_eq!(lease.to_string(), text.to_uppercase());
        assert_eq!(lease.to_string().parse::<LeaseId>().unwrap(), lease);
        assert_eq!(LeaseId::from_u128(lease.as_u128()), lease);
    }

    #[test]
    fn a_text_that_is_no_ulid_is_refused_with_its_fault() {
        for (text, expected) in [
            ("", LeaseIdError::Length { bytes: 0 }),
            ("01J9ZC3V9W8Q4N2M6T5R7Y1K0", LeaseIdError::Length { bytes: 25 }),
            ("01J9ZC3V9W8Q4N2M6T5R7Y1K0DD", LeaseIdError::Length { bytes: 27 }),
            ("01J9ZC3V9W8Q4N2M6T5R7Y1K0U", LeaseIdError::Character),
            ("01J9ZC3V9W8Q4N2M6T5R7Y1K0é", LeaseIdError::Length { bytes: 27 }),
            ("01J9ZC3V9W8Q4N2M6T5R7Y1Ké", LeaseIdError::Character),
            ("81J9ZC3V9W8Q4N2M6T5R7Y1K0D", LeaseIdError::Overflow),
            ("ZZZZZZZZZZZZZZZZZZZZZZZZZZ", LeaseIdError::Overflow),
        ] {
            assert_eq!(text.parse::<LeaseId>(), Err(expected), "{text}");
        }
        assert!("7ZZZZZZZZZZZZZZZZZZZZZZZZZ".parse::<LeaseId>().is_ok());
    }

    #[test]
    fn a_new_id_carries_the_time_it_was_made_at() {
        let now = Timestamp::from_unix_ms(1_736_660_000_123);
        let lease = LeaseId::generate(now);
        assert_eq!(lease.timestamp_ms(), 1_736_660_000_123);
        assert_ne!(lease, LeaseId::generate(now));
    }
}
