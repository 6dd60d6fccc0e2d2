//! The topics of a claim.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::Topic;

/// The most topics that one claim names.
pub const TOPICS_MAX: usize = 1000;

/// The topics of a claim, so that workers with different tasks can share one outbox and a blocked
/// topic does not block others.
///
/// ```
/// use coordination::{Topic, TopicSet, Topics};
///
/// let orders = Topic::new("order.placed").unwrap();
/// let topics = Topics::Only(TopicSet::of([orders.clone()]).unwrap());
/// assert!(topics.contains(&orders));
/// assert!(!topics.contains(&Topic::new("order.paid").unwrap()));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Topics {
    /// Every topic.
    #[default]
    All,
    /// These topics; an empty set is no topic.
    Only(TopicSet),
    /// Every topic but these.
    Except(TopicSet),
}

/// Up to [`TOPICS_MAX`] topics, each once, in text order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TopicSet(BTreeSet<Topic>);

/// More than [`TOPICS_MAX`] topics.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("too_many_topics: {count} topics in one set, at most {TOPICS_MAX}")]
pub struct TooManyTopics {
    /// How many.
    pub count: usize,
}

impl Topics {
    /// Whether this topic is among them.
    pub fn contains(&self, topic: &Topic) -> bool {
        match self {
            Topics::All => true,
            Topics::Only(set) => set.contains(topic),
            Topics::Except(set) => !set.contains(topic),
        }
    }
}

impl TopicSet {
    /// A set of these topics; duplicates count once.
    ///
    /// # Errors
    /// [`TooManyTopics`] above [`TOPICS_MAX`].
    pub fn of(topics: impl IntoIterator<Item = Topic>) -> Result<TopicSet, TooManyTopics> {
        let topics: BTreeSet<Topic> = topics.into_iter().collect();
        if topics.len() > TOPICS_MAX {
            return Err(TooManyTopics { count: topics.len() });
        }
        Ok(TopicSet(topics))
    }

    /// Whether this topic is in it.
    pub fn contains(&self, topic: &Topic) -> bool {
        self.0.contains(topic)
    }

    /// The topics, in text order.
    pub fn iter(&self) -> impl Iterator<Item = &Topic> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn as_set(&self) -> &BTreeSet<Topic> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_up_to_a_thousand_topics() {
        let topics =
            |count: usize| (0..count).map(|number| Topic::new(number.to_string()).unwrap());
        assert_eq!(TopicSet::of(topics(TOPICS_MAX)).unwrap().len(), TOPICS_MAX);
        assert_eq!(TopicSet::of(topics(TOPICS_MAX + 1)), Err(TooManyTopics { count: 1001 }));
        assert_eq!(TopicSet::of(topics(2).chain(topics(2))).unwrap().len(), 2, "each once");
    }
}
