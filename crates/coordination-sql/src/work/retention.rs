//! Forgets finished items once they were kept for long enough, in batches.

use std::time::Duration;

use coordination::{Retention, Topics};

use super::{Among, BATCH, ByTopic, Table, in_batches, span, topics_among};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Kind, Statement};
use crate::value::{Columns, Value, topics_value};

/// The statement that forgets finished items of a table that is kept as one.
#[derive(Debug, Clone)]
pub(crate) struct PurgeSql(Statement);

/// What finds old items of a table that is kept by topic: the first of them, dead ones apart.
#[derive(Debug, Clone)]
pub(crate) struct OldSql {
    find: ByTopic<Statement>,
    /// Forgets the items `$1`, if they are finished.
    pub(crate) forget: Statement,
}

impl PurgeSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table) -> PurgeSql {
        let Table { name, .. } = table;
        let old = dialect.found(&format!(
            "SELECT id FROM {{{name}}} {{by:{name}_finished}}
             WHERE state IN ('done', 'dead') AND finished_at <= {{now}} - $1
             ORDER BY finished_at LIMIT {BATCH}"
        ));
        PurgeSql(dialect.statement(&format!("DELETE FROM {{{name}}} WHERE id {old}")))
    }

    /// Forgets items that were finished so long ago. Says how many.
    pub(crate) async fn run<E: Engine>(
        &self,
        engine: &E,
        older_than: Duration,
    ) -> Result<usize, DatabaseError> {
        in_batches(|| engine.execute(&self.0, vec![span(older_than)])).await
    }
}

impl OldSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table) -> OldSql {
        let Table { name, .. } = table;
        let find = |among| {
            let (done, dead) =
                (old(dialect, name, "done", among), old(dialect, name, "dead", among));
            dialect.statement(&format!(
                "SELECT id FROM (
                     SELECT id FROM ({done}) AS done UNION ALL SELECT id FROM ({dead}) AS dead
                 ) AS old LIMIT {BATCH}"
            ))
        };
        OldSql {
            find: ByTopic::new(find),
            forget: dialect.statement(&format!(
                "DELETE FROM {{{name}}} WHERE id {{locked:1:{name}}} AND state IN ('done', 'dead')"
            )),
        }
    }

    /// Up to [`BATCH`] items of these topics that need not be kept any more.
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

    /// Forgets items of these topics that need not be kept any more. Says how many.
    pub(crate) async fn purge<E: Engine>(
        &self,
        engine: &E,
        topics: &Topics,
        keep: Retention,
    ) -> Result<usize, DatabaseError> {
        in_batches(|| async {
            let old = self.find(engine, topics, keep).await?;
            if old.is_empty() {
                return Ok(0);
            }
            engine.execute(&self.forget, vec![Value::Texts(old)]).await
        })
        .await
    }
}

/// What selects the items of a state that are older than it is kept: `$1` for done ones, `$2` for
/// dead ones, of topics in `$3`. Each topic is looked at by an index of its own.
fn old(dialect: &Dialect, table: &str, state: &str, among: Among) -> String {
    let keep = if state == "done" { "$1" } else { "$2" };
    let (topics, fits) = topics_among("topics", (table, state), among, 3);
    let first = |column: &str| {
        format!(
            "SELECT {column} FROM {{{table}}} {{by:{table}_{state}_of_topic}}
             WHERE state = '{state}' AND topic = topics.topic AND finished_at <= {{now}} - {keep}
             ORDER BY finished_at LIMIT {BATCH}"
        )
    };
    match dialect.kind() {
        Kind::Sqlite => format!(
            "WITH RECURSIVE {topics}
             SELECT item.id AS id FROM topics CROSS JOIN {{{table}}} AS item
             WHERE {fits} AND item.place IN ({}) LIMIT {BATCH}",
            first("place")
        ),
        Kind::Postgres => format!(
            "WITH RECURSIVE {topics}
             SELECT first.id FROM topics CROSS JOIN LATERAL ({}) AS first
             WHERE {fits} LIMIT {BATCH}",
            first("id")
        ),
    }
}
