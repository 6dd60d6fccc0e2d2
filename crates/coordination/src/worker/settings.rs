//! Worker settings.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::{
    BatchSize, LeaseDuration, Retention, TOPICS_MAX, TooManyTopics, Topic, TopicSet, Topics,
};

/// The most claimed items of one worker.
pub const IN_FLIGHT_MAX: usize = 1000;

/// The settings of a dispatcher. The defaults suit messages that take well under a second.
///
/// ```
/// use std::time::Duration;
/// use coordination::WorkerSettings;
///
/// let settings = WorkerSettings { handler_timeout: Duration::from_secs(5), ..Default::default() };
/// assert_eq!(settings.attempts_max, 5);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerSettings {
    /// The most items in one claim: 50.
    pub batch: BatchSize,
    /// The duration of a claim: 60 s. It must exceed the handler's timeout by the provider's
    /// latency: a message whose handler could outlive its claim is not started.
    pub claim_for: LeaseDuration,
    /// The timeout of a handler for one message: 30 s. Then its future is dropped and the message
    /// is retried.
    pub handler_timeout: Duration,
    /// Failed attempts until the message is failed: 5.
    pub attempts_max: u32,
    /// Attempts that begin and never end until the message is failed: 10. Limits messages that
    /// crash their worker (poison messages).
    pub lost_attempts_max: u32,
    /// Concurrent messages of one topic: 8.
    pub topic_concurrency_max: usize,
    /// Claimed messages in flight: 64, at most [`IN_FLIGHT_MAX`]. With fewer than there are topics,
    /// a slow topic can delay another.
    pub in_flight_max: usize,
    /// How often the worker polls for work: 500 ms. Providers with notifications wake it earlier.
    pub poll_interval: Duration,
    /// How often the worker reaps, purges and measures: every 5 s.
    pub upkeep_interval: Duration,
    /// How long finished items of the worker's topics are kept: 7 days, and dead ones 30. Topics
    /// without a handler are left to other workers.
    pub keep: Retention,
    /// Topics with a different retention. Workers that share a topic should agree on it.
    pub keep_topics: BTreeMap<Topic, Retention>,
    /// How long a worker that is stopped waits for its handlers: 30 s. Then their futures are
    /// dropped and their messages returned without an attempt.
    pub drain_timeout: Duration,
}

/// Why settings were refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum InvalidSettings {
    /// A number or an interval that must not be zero.
    #[error("zero_setting: {name} must not be 0")]
    Zero { name: &'static str },
    /// `in_flight_max` above [`IN_FLIGHT_MAX`].
    #[error("in_flight_too_large: {asked}, at most {IN_FLIGHT_MAX}")]
    InFlightTooLarge { asked: usize },
    /// Handlers of more topics than one claim can name.
    #[error(transparent)]
    TooManyTopics(#[from] TooManyTopics),
    /// A handler could outlive the claim on its message, so that two workers handle it at once.
    #[error("handler_outlives_claim: the timeout {timeout:?} must be below the claim's {claim:?}")]
    HandlerOutlivesClaim { timeout: Duration, claim: Duration },
}

impl InvalidSettings {
    /// Refuses the first of these settings that is zero.
    pub(super) fn refuse_zeros(settings: &[(&'static str, bool)]) -> Result<(), InvalidSettings> {
        match settings.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(InvalidSettings::Zero { name }),
            None => Ok(()),
        }
    }
}

impl Default for WorkerSettings {
    fn default() -> WorkerSettings {
        WorkerSettings {
            batch: BatchSize::new(50).expect("50 is within the bounds"),
            claim_for: LeaseDuration::new(Duration::from_secs(60)).expect("60 s are"),
            handler_timeout: Duration::from_secs(30),
            attempts_max: 5,
            lost_attempts_max: 10,
            topic_concurrency_max: 8,
            in_flight_max: 64,
            poll_interval: Duration::from_millis(500),
            upkeep_interval: Duration::from_secs(5),
            keep: Retention::default(),
            keep_topics: BTreeMap::new(),
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl WorkerSettings {
    /// The retention of these topics, grouped by equal retention.
    pub(super) fn retentions<'a>(
        &self,
        topics: impl Iterator<Item = &'a Topic>,
    ) -> Vec<(Topics, Retention)> {
        let mut alike: BTreeMap<Retention, Vec<Topic>> = BTreeMap::new();
        for topic in topics {
            let keep = self.keep_topics.get(topic).copied().unwrap_or(self.keep);
            alike.entry(keep).or_default().push(topic.clone());
        }
        let mut retentions = Vec::new();
        for (keep, topics) in alike {
            for some in topics.chunks(TOPICS_MAX) {
                let some = TopicSet::of(some.iter().cloned()).expect("a chunk is within the bound");
                retentions.push((Topics::Only(some), keep));
            }
        }
        retentions
    }

    pub(super) fn check(&self) -> Result<(), InvalidSettings> {
        InvalidSettings::refuse_zeros(&[
            ("handler_timeout", self.handler_timeout.is_zero()),
            ("attempts_max", self.attempts_max == 0),
            ("lost_attempts_max", self.lost_attempts_max == 0),
            ("topic_concurrency_max", self.topic_concurrency_max == 0),
            ("in_flight_max", self.in_flight_max == 0),
            ("poll_interval", self.poll_interval.is_zero()),
            ("upkeep_interval", self.upkeep_interval.is_zero()),
        ])?;
        if self.in_flight_max > IN_FLIGHT_MAX {
            return Err(InvalidSettings::InFlightTooLarge { asked: self.in_flight_max });
        }
        let (timeout, claim) = (self.handler_timeout, self.claim_for.get());
        if timeout >= claim {
            return Err(InvalidSettings::HandlerOutlivesClaim { timeout, claim });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(WorkerSettings::default().check(), Ok(()));
    }

    #[test]
    fn a_handler_may_not_outlive_its_claim() {
        let settings =
            WorkerSettings { handler_timeout: Duration::from_secs(60), ..Default::default() };
        assert!(matches!(settings.check(), Err(InvalidSettings::HandlerOutlivesClaim { .. })));
    }

    #[test]
    fn zeros_are_refused_by_name() {
        let settings = WorkerSettings { attempts_max: 0, ..Default::default() };
        assert_eq!(settings.check(), Err(InvalidSettings::Zero { name: "attempts_max" }));
        let settings = WorkerSettings { poll_interval: Duration::ZERO, ..Default::default() };
        assert_eq!(settings.check(), Err(InvalidSettings::Zero { name: "poll_interval" }));
    }

    /// CRD-07
    #[test]
    fn crd_07_topics_that_are_kept_alike_are_purged_together() {
        let topic = |text: &str| Topic::new(text).unwrap();
        let hour = Retention::of_all(Duration::from_secs(3600));
        let settings = WorkerSettings {
            keep_topics: BTreeMap::from([(topic("log"), hour), (topic("unhandled"), hour)]),
            ..Default::default()
        };
        let only = |topics: &[&str]| {
            Topics::Only(TopicSet::of(topics.iter().map(|text| topic(text))).unwrap())
        };
        let handled = ["a", "log", "b"].map(topic);
        assert_eq!(
            settings.retentions(handled.iter()),
            [(only(&["log"]), hour), (only(&["a", "b"]), Retention::default())]
        );
        let many: Vec<_> = (0..=TOPICS_MAX).map(|number| topic(&number.to_string())).collect();
        assert_eq!(settings.retentions(many.iter()).len(), 2, "no call names too many");
    }

    #[test]
    fn what_is_in_flight_is_bounded() {
        let settings = |in_flight_max| WorkerSettings { in_flight_max, ..Default::default() };
        assert_eq!(settings(IN_FLIGHT_MAX).check(), Ok(()));
        assert_eq!(
            settings(IN_FLIGHT_MAX + 1).check(),
            Err(InvalidSettings::InFlightTooLarge { asked: 1001 })
        );
    }
}
