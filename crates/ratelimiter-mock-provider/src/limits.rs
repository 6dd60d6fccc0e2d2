//! The rate limits: token buckets that refill continuously over a minute. Plain arithmetic over a given time.

use std::time::Duration;

use ratelimiter::clock::Timestamp;

use crate::options::RateCounts;

const MINUTE_NANOS: i128 = 60_000_000_000;

/// What is left of one limit.
#[derive(Debug, Clone)]
struct Bucket {
    per_minute: u64,
    /// In units of 1/`MINUTE_NANOS`, so that each nanosecond adds `per_minute` of them and nothing is rounded. At most a
    /// full minute; below zero if calls used more than was left.
    level: i128,
    refilled_at: Timestamp,
}

/// The limits of one provider.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    requests: Option<Bucket>,
    tokens: Option<Bucket>,
    counts: RateCounts,
}

/// One limit as headers tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Level {
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) full_after: Duration,
}

/// All limits at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Levels {
    pub(crate) at: Timestamp,
    pub(crate) requests: Option<Level>,
    pub(crate) tokens: Option<Level>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dimension {
    Requests,
    Tokens,
}

/// A call that a limit has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) dimension: Dimension,
    pub(crate) limit: u64,
    pub(crate) remaining: u64,
    pub(crate) requested: u64,
    /// `None`: more than the limit, so it never fits.
    pub(crate) fits_after: Option<Duration>,
}

impl Bucket {
    fn full(per_minute: u64, now: Timestamp) -> Self {
        let level = i128::from(per_minute) * MINUTE_NANOS;
        Self { per_minute, level, refilled_at: now }
    }

    fn level_max(&self) -> i128 {
        i128::from(self.per_minute) * MINUTE_NANOS
    }

    fn refill(&mut self, now: Timestamp) {
        let nanos = i128::from(now.unix_nanos()) - i128::from(self.refilled_at.unix_nanos());
        assert!(nanos >= 0, "the clock does not go back");
        // A product beyond all bounds is more than full as well.
        let refill = nanos.saturating_mul(i128::from(self.per_minute));
        self.level = self.level.saturating_add(refill).min(self.level_max());
        self.refilled_at = now;
    }

    fn remaining(&self) -> u64 {
        u64::try_from(self.level.max(0) / MINUTE_NANOS).expect("the level is at most the limit")
    }

    /// Zero if the level is reached; `None` if it never will be.
    fn reaches_after(&self, level: i128) -> Option<Duration> {
        if level > self.level_max() {
            return None;
        }
        let missing = (level - self.level).max(0);
        // A limit of 0 is always full.
        let per_nano = i128::from(self.per_minute).max(1);
        let nanos = (missing + per_nano - 1) / per_nano;
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn check(&self, amount: u64, dimension: Dimension) -> Result<(), Refused> {
        let fits_after = self.reaches_after(i128::from(amount) * MINUTE_NANOS);
        if fits_after == Some(Duration::ZERO) {
            return Ok(());
        }
        let (limit, remaining) = (self.per_minute, self.remaining());
        Err(Refused { dimension, limit, remaining, requested: amount, fits_after })
    }

    fn take(&mut self, amount: u64) {
        self.level -= i128::from(amount) * MINUTE_NANOS;
    }

    fn level(&self) -> Level {
        let full_after = self.reaches_after(self.level_max()).unwrap_or_default();
        Level { limit: self.per_minute, remaining: self.remaining(), full_after }
    }
}

impl Limits {
    /// Limits that nobody has used yet.
    pub(crate) fn new(
        requests_per_minute: Option<u64>,
        tokens_per_minute: Option<u64>,
        counts: RateCounts,
        now: Timestamp,
    ) -> Self {
        let full = |per_minute| Bucket::full(per_minute, now);
        Self {
            requests: requests_per_minute.map(full),
            tokens: tokens_per_minute.map(full),
            counts,
        }
    }

    pub(crate) fn set(&mut self, requests: Option<u64>, tokens: Option<u64>, now: Timestamp) {
        *self = Self::new(requests, tokens, self.counts, now);
    }

    /// Takes what a call needs when it starts; takes nothing if any limit has no room.
    pub(crate) fn admit(
        &mut self,
        prompt_tokens: u64,
        output_tokens_max: u64,
        now: Timestamp,
    ) -> Result<(), Refused> {
        self.refill(now);
        let tokens = match self.counts {
            RateCounts::Actual => prompt_tokens,
            RateCounts::Reserved => prompt_tokens.saturating_add(output_tokens_max),
        };
        if let Some(bucket) = &self.requests {
            bucket.check(1, Dimension::Requests)?;
        }
        if let Some(bucket) = &self.tokens {
            bucket.check(tokens, Dimension::Tokens)?;
        }
        if let Some(bucket) = &mut self.requests {
            bucket.take(1);
        }
        match (&mut self.tokens, self.counts) {
            (Some(bucket), RateCounts::Reserved) => bucket.take(tokens),
            (Some(_), RateCounts::Actual) | (None, _) => {}
        }
        Ok(())
    }

    /// An admitted call has ended.
    pub(crate) fn end(&mut self, tokens_used: u64, now: Timestamp) {
        self.refill(now);
        match (&mut self.tokens, self.counts) {
            (Some(bucket), RateCounts::Actual) => bucket.take(tokens_used),
            (Some(_), RateCounts::Reserved) | (None, _) => {}
        }
    }

    pub(crate) fn levels(&mut self, now: Timestamp) -> Levels {
        self.refill(now);
        let level = |bucket: &Option<Bucket>| bucket.as_ref().map(Bucket::level);
        Levels { at: now, requests: level(&self.requests), tokens: level(&self.tokens) }
    }

    fn refill(&mut self, now: Timestamp) {
        for bucket in self.requests.iter_mut().chain(&mut self.tokens) {
            bucket.refill(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_unix_ms(1_736_660_000_000);

    fn after_ms(ms: u64) -> Timestamp {
        START.after(Duration::from_millis(ms))
    }

    fn limits(rpm: Option<u64>, tpm: Option<u64>, counts: RateCounts) -> Limits {
        Limits::new(rpm, tpm, counts, START)
    }

    fn fits_after_ms(answer: Result<(), Refused>) -> Option<u128> {
        answer.expect_err("no room").fits_after.map(|after| after.as_millis())
    }

    fn tokens_left(limits: &mut Limits, now: Timestamp) -> u64 {
        limits.levels(now).tokens.expect("a limit of tokens").remaining
    }

    /// GW-14
    #[test]
    fn a_limit_refills_continuously_over_a_minute() {
        let mut limits = limits(Some(60), None, RateCounts::Actual);
        for _ in 0..60 {
            assert_eq!(limits.admit(1, 1, START), Ok(()));
        }
        assert_eq!(fits_after_ms(limits.admit(1, 1, START)), Some(1_000));
        assert_eq!(fits_after_ms(limits.admit(1, 1, after_ms(600))), Some(400));
        assert_eq!(limits.admit(1, 1, after_ms(1_000)), Ok(()));
        let level = limits.levels(after_ms(1_000)).requests.expect("a limit");
        assert_eq!(level, Level { limit: 60, remaining: 0, full_after: Duration::from_secs(60) });
        let level = limits.levels(after_ms(1_000_000)).requests.expect("a limit");
        assert_eq!((level.remaining, level.full_after), (60, Duration::ZERO));
    }

    /// GW-14
    #[test]
    fn reserved_tokens_count_up_front_and_never_come_back() {
        let mut limits = limits(None, Some(600), RateCounts::Reserved);
        assert_eq!(limits.admit(100, 400, START), Ok(()));
        assert_eq!(tokens_left(&mut limits, START), 100);
        limits.end(101, START);
        assert_eq!(tokens_left(&mut limits, START), 100);
        assert_eq!(fits_after_ms(limits.admit(100, 10, START)), Some(1_000));
    }

    /// GW-14
    #[test]
    fn used_tokens_count_at_the_end_and_may_exceed_the_limit() {
        let mut limits = limits(None, Some(600), RateCounts::Actual);
        assert_eq!(limits.admit(600, 5_000, START), Ok(()));
        assert_eq!(tokens_left(&mut limits, START), 600);
        limits.end(900, START);
        assert_eq!(tokens_left(&mut limits, START), 0);
        // 300 too many and 10 that are needed, at 10 a second.
        assert_eq!(fits_after_ms(limits.admit(10, 10, START)), Some(31_000));
    }

    #[test]
    fn a_refused_call_takes_nothing() {
        let mut limits = limits(Some(1), Some(10), RateCounts::Reserved);
        assert_eq!(fits_after_ms(limits.admit(9, 2, START)), None);
        assert_eq!(limits.admit(9, 1, START), Ok(()));
        let refused = limits.admit(1, 1, START).expect_err("no room");
        assert_eq!((refused.dimension, refused.limit), (Dimension::Requests, 1));
    }

    #[test]
    fn the_largest_limit_does_not_overflow() {
        let mut limits = limits(Some(u64::MAX), Some(u64::MAX), RateCounts::Reserved);
        assert_eq!(limits.admit(u64::MAX, u64::MAX, START), Ok(()));
        let much_later = Timestamp::from_unix_nanos(u64::MAX);
        assert_eq!(tokens_left(&mut limits, much_later), u64::MAX);
    }

    #[test]
    fn a_limit_of_zero_admits_nothing() {
        let mut limits = limits(Some(0), None, RateCounts::Actual);
        assert_eq!(fits_after_ms(limits.admit(1, 1, START)), None);
    }
}
