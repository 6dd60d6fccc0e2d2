//! Claims: marks items due and returns them in creation order, optionally by topic.

use coordination::{BatchSize, LeaseDuration, OwnerToken, Topics};

use super::{BATCH, Table};
use crate::engine::{ClaimSql, Engine, Values};
use crate::error::DatabaseError;
use crate::statement::{DatabaseKind, Dialect};
use crate::value::{Columns, Value};

/// The topics of a statement. Unless it is `All`, they are its last parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TopicFilter {
    All,
    Only,
    /// All but the parameter's.
    Except,
}

/// One value for each [`TopicFilter`]. The cost of its statements does not grow with the messages
/// of other topics: an index by topic is searched once per topic, and the topics are found by a
/// skip scan of that index.
#[derive(Debug, Clone)]
pub(crate) struct PerTopicFilter<T> {
    all: T,
    only: T,
    except: T,
}

impl ClaimSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table, filter: TopicFilter) -> ClaimSql {
        let Table { name, .. } = table;
        let look = dialect.statement(&format!(
            "SELECT 1 FROM {{{name}}} {{by:{name}_due}} WHERE state = 'due'
             UNION ALL
             SELECT 1 FROM {{{name}}} {{by:{name}_waiting}}
             WHERE state = 'waiting' AND due_at <= {{now}} LIMIT 1"
        ));
        let mark_due = dialect.statement(&mark_due(name, filter));
        let claim = match dialect.kind() {
            DatabaseKind::Sqlite => sqlite_claim(table, filter),
            DatabaseKind::Postgres => postgres_claim(table, filter),
        };
        ClaimSql { look, mark_due, claim: dialect.statement(&claim) }
    }

    /// Claims due items for `lease`, in creation order; of these topics, if there are any.
    pub(crate) async fn run<E: Engine, T>(
        &self,
        engine: &E,
        (owner, lease, max): (&OwnerToken, LeaseDuration, BatchSize),
        topics: Option<Value<'_>>,
        from_row: impl Fn(&E::Row) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, DatabaseError> {
        let mut values: Values<'_> = vec![owner.into(), lease.into(), i64::from(max.get()).into()];
        values.extend(topics);
        let rows = engine.claim(self, values).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in &rows {
            claimed.push((row.int("place")?, from_row(row)?));
        }
        // `UPDATE … RETURNING` returns rows in no defined order.
        claimed.sort_by_key(|(place, _)| *place);
        Ok(claimed.into_iter().map(|(_, item)| item).collect())
    }
}

impl<T> PerTopicFilter<T> {
    pub(crate) fn new(of: impl Fn(TopicFilter) -> T) -> PerTopicFilter<T> {
        PerTopicFilter {
            all: of(TopicFilter::All),
            only: of(TopicFilter::Only),
            except: of(TopicFilter::Except),
        }
    }

    /// The value for these topics.
    pub(crate) fn of(&self, topics: &Topics) -> &T {
        match topics {
            Topics::All => &self.all,
            Topics::Only(_) => &self.only,
            Topics::Except(_) => &self.except,
        }
    }
}

/// A common table expression named `topics` with the topics of a statement, and the condition that
/// its rows must meet. Unless the filter is `All`, the topics are the parameter with this number.
pub(crate) fn topic_list(
    topics: &str,
    (table, state): (&str, &str),
    filter: TopicFilter,
    parameter: usize,
) -> (String, String) {
    let (with, fits) = match filter {
        TopicFilter::All => (topics_with(topics, table, state), String::new()),
        TopicFilter::Only => {
            let listed = format!("(SELECT id FROM {{list:{parameter}}} AS listed)");
            (format!("{topics} (topic) AS {listed}"), String::new())
        }
        TopicFilter::Except => {
            let fits = format!(" AND {topics}.topic {{not_in:{parameter}}}");
            (topics_with(topics, table, state), fits)
        }
    };
    (with, format!("{topics}.topic IS NOT NULL{fits}"))
}

/// All topics with items in a state, found by a skip scan of the index.
fn topics_with(topics: &str, table: &str, state: &str) -> String {
    // Not MIN(topic): with statistics of an empty table, PostgreSQL would scan the whole table.
    let first = |condition: &str| {
        format!(
            "SELECT topic FROM {{{table}}} {{by:{table}_{state}_of_topic}}
             WHERE state = '{state}' AND {condition} ORDER BY topic LIMIT 1"
        )
    };
    format!(
        "{topics} (topic) AS (
             SELECT ({})
             UNION ALL
             SELECT ({}) FROM {topics} WHERE topic IS NOT NULL)",
        first("TRUE"),
        first(&format!("topic > {topics}.topic")),
    )
}

/// Marks a batch of items due before a claim in SQLite: of the topics in `$1`, up to `$2` each.
fn mark_due(name: &str, filter: TopicFilter) -> String {
    let due = "state = 'waiting' AND due_at <= {now}";
    if filter == TopicFilter::All {
        return format!(
            "UPDATE {{{name}}} SET state = 'due' WHERE place IN (
                 SELECT place FROM {{{name}}} {{by:{name}_waiting}} WHERE {due}
                 ORDER BY due_at, place LIMIT {BATCH})"
        );
    }
    let (topics, fits) = topic_list("topics", (name, "waiting"), filter, 1);
    format!(
        "WITH RECURSIVE {topics}
         UPDATE {{{name}}} SET state = 'due' WHERE place IN (
             SELECT item.place FROM topics CROSS JOIN {{{name}}} AS item
             WHERE {fits} AND item.place IN (
                 SELECT place FROM {{{name}}} {{by:{name}_waiting_of_topic}}
                 WHERE {due} AND topic = topics.topic ORDER BY due_at, place LIMIT $2)
             ORDER BY item.due_at, item.place LIMIT {BATCH})"
    )
}

fn sqlite_claim(table: &Table, filter: TopicFilter) -> String {
    let Table { name, on_claim, columns, .. } = table;
    // The index is named, because a scan of the table would return the right order too, but read
    // all finished items.
    let (with, taken) = if filter == TopicFilter::All {
        let taken = format!(
            "SELECT place FROM {{{name}}} INDEXED BY {{index:{name}_due}}
             WHERE state = 'due' AND due_at <= {{now}} ORDER BY place LIMIT $3"
        );
        (String::new(), taken)
    } else {
        let (topics, fits) = topic_list("topics", (name, "due"), filter, 4);
        let taken = format!(
            "SELECT item.place FROM topics CROSS JOIN {{{name}}} AS item
             WHERE {fits} AND item.place IN (
                 SELECT place FROM {{{name}}} INDEXED BY {{index:{name}_due_of_topic}}
                 WHERE state = 'due' AND topic = topics.topic AND due_at <= {{now}}
                 ORDER BY place LIMIT $3)
             ORDER BY item.place LIMIT $3"
        );
        (format!("WITH RECURSIVE {topics}"), taken)
    };
    format!(
        "{with} UPDATE {{{name}}}
         SET state = 'claimed', owner = $1, claimed_until = {{now}} + $2, {on_claim}
         WHERE place IN ({taken})
         RETURNING place, {columns}"
    )
}

/// One statement: `ready` are items marked due before, `fresh` the first of those that have become
/// due since. The first of both in creation order are claimed, and the rest of `fresh` is marked
/// due.
///
/// Rows locked by other claims are skipped. Rows are looked up by ID and not joined, so that the
/// plan stays the same when the table grows.
fn postgres_claim(table: &Table, filter: TopicFilter) -> String {
    let Table { name, on_claim, columns, .. } = table;
    let (due_topics, due_fits) = topic_list("due_topics", (name, "due"), filter, 4);
    let (waiting_topics, waiting_fits) = topic_list("waiting_topics", (name, "waiting"), filter, 4);
    let recursive = match filter {
        TopicFilter::All => String::new(),
        TopicFilter::Only | TopicFilter::Except => format!("{due_topics}, {waiting_topics},"),
    };
    let (ready, fresh) = if filter == TopicFilter::All {
        (
            format!(
                "SELECT id, place FROM {{{name}}} WHERE state = 'due' AND due_at <= {{now}}
                 ORDER BY place LIMIT $3 FOR UPDATE SKIP LOCKED"
            ),
            format!(
                "SELECT id, place FROM {{{name}}} WHERE state = 'waiting' AND due_at <= {{now}}
                 ORDER BY due_at, place LIMIT {BATCH} FOR UPDATE SKIP LOCKED"
            ),
        )
    } else {
        // More than requested, because other claims may have locked the first ones. The conditions
        // are checked again on the locked rows: a row may have been claimed and postponed since.
        let first = |state: &str, fits: &str, order: &str, max: &str| {
            format!(
                "state = '{state}' AND due_at <= {{now}} AND id = ANY(ARRAY(
                     SELECT first.id FROM {state}_topics CROSS JOIN LATERAL (
                         SELECT id, place, due_at FROM {{{name}}}
                         WHERE state = '{state}' AND topic = {state}_topics.topic
                               AND due_at <= {{now}}
                         ORDER BY {order} LIMIT $3 * 4) AS first
                     WHERE {fits} ORDER BY {order} LIMIT {max}))"
            )
        };
        (
            format!(
                "SELECT id, place FROM {{{name}}} WHERE {}
                 ORDER BY place LIMIT $3 FOR UPDATE SKIP LOCKED",
                first("due", &due_fits, "place", "$3 * 4")
            ),
            format!(
                "SELECT id, place FROM {{{name}}} WHERE {} FOR UPDATE SKIP LOCKED",
                first("waiting", &waiting_fits, "due_at, place", &BATCH.to_string())
            ),
        )
    };
    format!(
        "WITH RECURSIVE {recursive}
         fresh AS MATERIALIZED ({fresh}),
         ready AS MATERIALIZED ({ready}),
         taken AS MATERIALIZED (
             SELECT id FROM (
                 SELECT id, place FROM ready
                 UNION ALL SELECT id, place FROM fresh) AS candidates
             ORDER BY place LIMIT $3),
         marked AS (
             UPDATE {{{name}}} SET state = 'due'
             WHERE id = ANY(ARRAY(SELECT id FROM fresh EXCEPT SELECT id FROM taken)))
         UPDATE {{{name}}}
         SET state = 'claimed', owner = $1, claimed_until = {{now}} + $2, {on_claim}
         WHERE id = ANY(ARRAY(SELECT id FROM taken))
         RETURNING place, {columns}"
    )
}
