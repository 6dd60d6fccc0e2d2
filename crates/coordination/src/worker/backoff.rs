//! Exponential backoff of failed attempts.

use std::time::Duration;

use crate::Delay;

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(60);
/// The jitter is at most the delay divided by this.
const JITTER_DIVISOR: u32 = 10;

/// The delay after a failed attempt with `retries` earlier retries: min(60 s, 2ⁿ · 250 ms), plus
/// `jitter` (0 to 1) times a tenth of it.
///
/// ```
/// use std::time::Duration;
/// use coordination::retry_delay;
///
/// assert_eq!(retry_delay(3, 0.0).get(), Duration::from_secs(2));
/// ```
///
/// # Panics
/// If the jitter is not from 0 to 1.
pub fn retry_delay(retries: u32, jitter: f64) -> Delay {
    assert!((0.0..=1.0).contains(&jitter), "jitter is a fraction");
    let factor = 1u32.checked_shl(retries).filter(|factor| *factor <= 240).unwrap_or(240);
    let base = (FIRST * factor).min(LONGEST);
    let extra = (base / JITTER_DIVISOR).mul_f64(jitter);
    Delay::new(base + extra).expect("66 s are within the bounds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(retries: u32, jitter: f64) -> u128 {
        retry_delay(retries, jitter).get().as_millis()
    }

    #[test]
    fn the_delay_doubles_up_to_a_minute() {
        let delays: Vec<u128> = (0..10).map(|retries| millis(retries, 0.0)).collect();
        assert_eq!(delays, [250, 500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
        assert_eq!(millis(u32::MAX, 0.0), 60_000);
    }

    #[test]
    fn the_jitter_adds_up_to_a_tenth() {
        assert_eq!(millis(0, 1.0), 275);
        assert_eq!(millis(9, 1.0), 66_000);
        assert_eq!(millis(9, 0.5), 63_000);
    }
}
