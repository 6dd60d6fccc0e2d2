//! When the next message of some topics is due.
//!
//! It costs no more for the messages of other topics: each topic that has messages is looked at
//! through an index of its own, and the topics are found by jumping from one to the next.

use std::time::Duration;

use coordination::Topics;

use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, topics_value};
use crate::work::{Among, ByTopic, first_due, topics_among};

#[derive(Debug)]
pub(super) struct TopicSql {
    next: ByTopic<Statement>,
}

impl TopicSql {
    pub(super) fn new(dialect: &Dialect) -> TopicSql {
        let next = |among| {
            let (due, waiting) = (next_in("due", among), next_in("waiting", among));
            dialect.statement(&format!(
                "SELECT {{now}} AS now, MIN(due_at) AS due_at
                 FROM ({due} UNION ALL {waiting}) AS ready"
            ))
        };
        TopicSql { next: ByTopic::new(next) }
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
        // What is due already is due after no time.
        Ok(due_at.map(|due_at| Duration::from_micros(u64::try_from(due_at - now).unwrap_or(0))))
    }
}

/// When the next message in a state is due. Of what is known to be due in a topic the first in
/// creation stands for all: it is due after no time either.
fn next_in(state: &str, among: Among) -> String {
    if among == Among::All {
        return format!("SELECT ({}) AS due_at", first_due("outbox", state));
    }
    let order = if state == "due" { "place" } else { "due_at" };
    let (topics, fits) = topics_among("topics", ("outbox", state), among, 1);
    format!(
        "SELECT due_at FROM (
             WITH RECURSIVE {topics}
             SELECT (SELECT item.due_at FROM {{outbox}} AS item {{by:outbox_{state}_of_topic}}
                     WHERE item.state = '{state}' AND item.topic = topics.topic
                     ORDER BY item.{order} LIMIT 1) AS due_at
             FROM topics WHERE {fits}) AS next_{state}"
    )
}
