//! Deserializers of values with a range.

use ratelimiter_tigerbeetle::ledger::cluster::ADDRESSES_MAX;
use serde::de::{Deserialize, Deserializer, Error};

/// A whole number from `MIN` to `MAX`.
pub(super) fn whole<'de, const MIN: u64, const MAX: u64, D>(
    deserializer: D,
) -> Result<u64, D::Error>
where
    D: Deserializer<'de>,
{
    let number = u64::deserialize(deserializer)?;
    if (MIN..=MAX).contains(&number) {
        return Ok(number);
    }
    Err(D::Error::custom(format_args!("must be {MIN} to {MAX}, not {number}")))
}

/// Growth of a delay; at least 1, so that delays never shrink.
pub(super) fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    if (1.0..=100.0).contains(&factor) {
        return Ok(factor);
    }
    Err(D::Error::custom(format_args!("must be 1 to 100, not {factor}")))
}

/// A cluster ID as text, because most YAML parsers do not support 128-bit numbers.
pub(super) fn cluster_id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(|_| {
        D::Error::custom(format_args!("must be a number from 0 to 2^128-1 in quotes, not {text:?}"))
    })
}

/// One address per replica.
pub(super) fn addresses<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<String>, D::Error> {
    let addresses = Vec::<String>::deserialize(deserializer)?;
    let count = addresses.len();
    if !(1..=ADDRESSES_MAX).contains(&count) {
        return Err(D::Error::custom(format_args!(
            "must be 1 to {ADDRESSES_MAX} addresses, not {count}"
        )));
    }
    match addresses.iter().find(|address| address.trim().is_empty()) {
        Some(_) => Err(D::Error::custom("an address must not be empty")),
        None => Ok(addresses),
    }
}
