//! When the next message of some topics is due.
//!
//! The cost does not grow with the messages of other topics: an index by topic is searched once per
//! topic, and the topics are found by a skip scan of that index.

use std::time::Duration;

use coordination::Topics;

use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, topics_value};
use crate::work::{PerTopicFilter, TopicFilter, first_due, topic_list};

#[derive(Debug)]
pub(super) struct TopicSql {
    next: PerTopicFilter<Statement>,
}

impl TopicSql {
    pub(super) fn new(dialect: &Dialect) -> TopicSql {
        let next = |filter| {
            let (due, waiting) = (next_in("due", filter), next_in("waiting", filter));
            dialect.statement(&format!(
                "SELECT {{now}} AS now, MIN(due_at) AS due_at
                 FROM ({due} UNION ALL {waiting}) AS ready"
            ))
        };
        TopicSql { next: PerTopicFilter::new(next) }
    }

    /// How long until the next ready message of these topics is due.
    pub(super) async fn next_due_after<E: Engine>(
        &self,
        engine: &E,
        topics: &Topics,
    ) -> Result<Option<Duration>, DatabaseError> {
        let values = topics_value(topics).into_iter().collect();
        let rows = engine.read(self.next.of(topics), values).await?;
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let (now, due_at) = (row.int("now")?, row.maybe_int("due_at")?);
        // A message that is already due has a negative difference.
        Ok(due_at.map(|due_at| Duration::from_micros(u64::try_from(due_at - now).unwrap_or(0))))
    }
}

/// When the next message in a state is due. For `due` messages any one of a topic will do: all of
/// them are due after zero time.
fn next_in(state: &str, filter: TopicFilter) -> String {
    if filter == TopicFilter::All {
        return format!("SELECT ({}) AS due_at", first_due("outbox", state));
    }
    let order = if state == "due" { "place" } else { "due_at" };
    let (topics, fits) = topic_list("topics", ("outbox", state), filter, 1);
    format!(
        "SELECT due_at FROM (
             WITH RECURSIVE {topics}
             SELECT (SELECT item.due_at FROM {{outbox}} AS item {{by:outbox_{state}_of_topic}}
                     WHERE item.state = '{state}' AND item.topic = topics.topic
                     ORDER BY item.{order} LIMIT 1) AS due_at
             FROM topics WHERE {fits}) AS next_{state}"
    )
}
