//! Deletes finished items whose retention has passed, in batches.

use std::time::Duration;

use coordination::{Retention, Topics};

use super::{BATCH, PerTopicFilter, Table, TopicFilter, in_batches, span, topic_list};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{DatabaseKind, Dialect, Statement};
use crate::value::{Columns, Value, topics_value};

/// Deletes finished items of a table with one retention.
#[derive(Debug, Clone)]
pub(crate) struct PurgeSql(Statement);

/// Finds and deletes finished items of a table with retentions by topic and outcome.
#[derive(Debug, Clone)]
pub(crate) struct ExpiredItemsSql {
    find: PerTopicFilter<Statement>,
    /// Deletes the items `$1`, if they are finished.
    pub(crate) delete: Statement,
}

impl PurgeSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table) -> PurgeSql {
        let Table { name, .. } = table;
        let expired = dialect.found(&format!(
            "SELECT id FROM {{{name}}} {{by:{name}_finished}}
             WHERE state IN ('done', 'dead') AND finished_at <= {{now}} - $1
             ORDER BY finished_at LIMIT {BATCH}"
        ));
        PurgeSql(dialect.statement(&format!("DELETE FROM {{{name}}} WHERE id {expired}")))
    }

    /// Deletes items that were finished at least `older_than` ago. Returns how many.
    pub(crate) async fn run<E: Engine>(
        &self,
        engine: &E,
        older_than: Duration,
    ) -> Result<usize, DatabaseError> {
        in_batches(|| engine.execute(&self.0, vec![span(older_than)])).await
    }
}

impl ExpiredItemsSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table) -> ExpiredItemsSql {
        let Table { name, .. } = table;
        let find = |filter| {
            let (done, dead) = (
                expired_items(dialect, name, "done", filter),
                expired_items(dialect, name, "dead", filter),
            );
            dialect.statement(&format!(
                "SELECT id FROM (
                     SELECT id FROM ({done}) AS done UNION ALL SELECT id FROM ({dead}) AS dead
                 ) AS expired LIMIT {BATCH}"
            ))
        };
        ExpiredItemsSql {
            find: PerTopicFilter::new(find),
            delete: dialect.statement(&format!(
                "DELETE FROM {{{name}}} WHERE id {{locked:1:{name}}} AND state IN ('done', 'dead')"
            )),
        }
    }

    /// Up to [`BATCH`] items of these topics whose retention has passed.
    pub(crate) async fn find<E: Engine>(
        &self,
        engine: &E,
        topics: &Topics,
        keep: Retention,
    ) -> Result<Vec<String>, DatabaseError> {
        let mut values = vec![span(keep.done), span(keep.dead)];
        values.extend(topics_value(topics));
        let rows = engine.read(self.find.of(topics), values).await?;
        rows.iter().map(|row| row.text("id").map(str::to_owned)).collect()
    }

    /// Deletes items of these topics whose retention has passed. Returns how many.
    pub(crate) async fn purge<E: Engine>(
        &self,
        engine: &E,
        topics: &Topics,
        keep: Retention,
    ) -> Result<usize, DatabaseError> {
        in_batches(|| async {
            let expired = self.find(engine, topics, keep).await?;
            if expired.is_empty() {
                return Ok(0);
            }
            engine.execute(&self.delete, vec![Value::Texts(expired)]).await
        })
        .await
    }
}

/// Selects the items of a state whose retention has passed: `$1` for done ones, `$2` for dead ones,
/// of the topics in `$3`. The index by topic is searched once per topic.
fn expired_items(dialect: &Dialect, table: &str, state: &str, filter: TopicFilter) -> String {
    let keep = if state == "done" { "$1" } else { "$2" };
    let (topics, fits) = topic_list("topics", (table, state), filter, 3);
    let first = |column: &str| {
        format!(
            "SELECT {column} FROM {{{table}}} {{by:{table}_{state}_of_topic}}
             WHERE state = '{state}' AND topic = topics.topic AND finished_at <= {{now}} - {keep}
             ORDER BY finished_at LIMIT {BATCH}"
        )
    };
    match dialect.kind() {
        DatabaseKind::Sqlite => format!(
            "WITH RECURSIVE {topics}
             SELECT item.id AS id FROM topics CROSS JOIN {{{table}}} AS item
             WHERE {fits} AND item.place IN ({}) LIMIT {BATCH}",
            first("place")
        ),
        DatabaseKind::Postgres => format!(
            "WITH RECURSIVE {topics}
             SELECT first.id FROM topics CROSS JOIN LATERAL ({}) AS first
             WHERE {fits} LIMIT {BATCH}",
            first("id")
        ),
    }
}
