//! JSON forms of the domain's values: texts as strings, counts as integers.
//!
//! Each value is checked while it is parsed, so that the error has the field's path.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::str::FromStr;

use ratelimiter::Capacity;
use serde::Deserialize;
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::ser::Serializer;

/// The last day of a month on which a limit may reset.
pub(crate) const RESET_DAY_MAX: u64 = ratelimiter::RESET_DAY_MAX as u64;

/// A value that is written as text: a key, a lease ID, an error code.
pub(crate) mod text {
    use super::{Deserializer, Serializer, Text, fmt};

    pub(crate) fn serialize<T: fmt::Display, S: Serializer>(
        value: &T,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: std::str::FromStr<Err: fmt::Display>,
        D: Deserializer<'de>,
    {
        deserializer.deserialize_str(Text::default())
    }
}

/// A list of keys.
pub(crate) mod keys {
    use ratelimiter::LimitKey;

    use super::{Deserialize, Deserializer, Error, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        keys: &[LimitKey],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(keys.iter().map(LimitKey::as_str))
    }

    pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<Vec<LimitKey>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.into_iter().map(|text| LimitKey::new(text).map_err(D::Error::custom)).collect()
    }
}

/// An optional error code.
pub(crate) mod error_code {
    use super::{Deserialize, Deserializer, Serializer};
    use crate::error_code::ErrorCode;

    #[expect(clippy::ref_option, reason = "serde calls it with a reference to the field")]
    pub(crate) fn serialize<S: Serializer>(
        code: &Option<ErrorCode>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match code {
            Some(code) => serializer.collect_str(code),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D>(deserializer: D) -> Result<Option<ErrorCode>, D::Error>
    where
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        Ok(text.map(|text| {
            let Ok(code) = text.parse();
            code
        }))
    }
}

/// Parses an amount: 1 or more.
pub(crate) fn amount<'de, D: Deserializer<'de>>(deserializer: D) -> Result<NonZeroU64, D::Error> {
    let amount = deserializer.deserialize_u64(WholeNumber { min: 1, max: u64::MAX })?;
    NonZeroU64::new(amount).ok_or_else(|| {
        Error::custom("an amount is 1 or more; leave out a key of which nothing is needed")
    })
}

/// Parses a whole number: 0 or more.
pub(crate) fn whole_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_u64(WholeNumber { min: 0, max: u64::MAX })
}

/// Parses an optional whole number with bounds.
pub(crate) fn optional_number<'de, D: Deserializer<'de>, const MIN: u64, const MAX: u64>(
    deserializer: D,
) -> Result<Option<u64>, D::Error> {
    struct Bounded<const MIN: u64, const MAX: u64>(u64);
    impl<'de, const MIN: u64, const MAX: u64> Deserialize<'de> for Bounded<MIN, MAX> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            deserializer.deserialize_u64(WholeNumber { min: MIN, max: MAX }).map(Self)
        }
    }
    Ok(Option::deserialize(deserializer)?.map(|Bounded::<MIN, MAX>(number)| number))
}

pub(crate) fn capacity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Capacity, D::Error> {
    let capacity =
        deserializer.deserialize_u64(WholeNumber { min: 0, max: ratelimiter::CAPACITY_MAX })?;
    Capacity::new(capacity).map_err(Error::custom)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
pub(crate) fn write_capacity<S: Serializer>(
    capacity: &Capacity,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(capacity.get())
}

struct Text<T>(PhantomData<T>);

impl<T> Default for Text<T> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }
}

/// Only integers: `1.0` and `1e3` are rejected, since a count that was a floating-point number may have lost precision.
struct WholeNumber {
    min: u64,
    max: u64,
}

impl Visitor<'_> for WholeNumber {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", self.min, self.max)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }
}
