//! Lease IDs.

use std::fmt;
use std::time::Duration;

use ulid::Ulid;

use crate::clock::Timestamp;

/// Length of a lease ID's text form.
pub const LEASE_ID_CHARACTERS: usize = 26;

/// Identifies one attempt to reserve: a ULID, which is 48 bits of milliseconds and 80 random bits.
///
/// A retry after a denial is a new attempt and needs a new ID. A retry after *no answer* repeats the same ID and
/// counts once.
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
#[expect(missing_docs, reason = "the fields are named after what the message shows")]
pub enum LeaseIdError {
    /// The text is not 26 characters long.
    #[error(
        "a lease ID is a ULID of {LEASE_ID_CHARACTERS} characters, this text has {bytes} bytes"
    )]
    Length { bytes: usize },
    /// A character is not in Crockford's base 32.
    #[error("a lease ID is a ULID: digits and letters without I, L, O and U")]
    Character,
    /// The first character is above 7, so the value needs more than 128 bits.
    #[error(
        "a lease ID is a ULID: its first character is 0 to 7, or the value does not fit 128 bits"
    )]
    Overflow,
}

impl LeaseId {
    /// A new ID for an attempt at `now`.
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

    /// The ID's creation time in milliseconds since the Unix epoch, as the client chose it.
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
        // 26 characters encode 130 bits; the decoder drops the two highest.
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
    fn a_text_that_is_no_ulid_is_refused_with_the_reason() {
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
    fn a_new_id_contains_its_creation_time() {
        let now = Timestamp::from_unix_ms(1_736_660_000_123);
        let lease = LeaseId::generate(now);
        assert_eq!(lease.timestamp_ms(), 1_736_660_000_123);
        assert_ne!(lease, LeaseId::generate(now));
    }
}
