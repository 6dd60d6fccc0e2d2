//! Claims: what is due is noticed, and handed out in the order of creation, by topic where a table
//! has topics.

use coordination::{BatchSize, LeaseDuration, OwnerToken, Topics};

use super::{BATCH, Table};
use crate::engine::{ClaimSql, Engine, Values};
use crate::error::DatabaseError;
use crate::statement::{Dialect, Kind};
use crate::value::{Columns, Value};

/// Which topics a statement is about. Unless they are all, they are its last parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    All,
    Only,
    /// All but those of the parameter.
    Except,
}

/// The same about all topics, about some, and about all but some. What it costs does not grow with the
/// messages of other topics: each topic that has messages is looked at through an index of its own, and
/// the topics are found by jumping from one to the next.
#[derive(Debug, Clone)]
pub(crate) struct ByTopic<T> {
    all: T,
    only: T,
    except: T,
}

impl ClaimSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table, among: Among) -> ClaimSql {
        let Table { name, .. } = table;
        let look = dialect.statement(&format!(
            "SELECT 1 FROM {{{name}}} {{by:{name}_due}} WHERE state = 'due'
             UNION ALL
             SELECT 1 FROM {{{name}}} {{by:{name}_waiting}}
             WHERE state = 'waiting' AND due_at <= {{now}} LIMIT 1"
        ));
        let notice = dialect.statement(&notice(name, among));
        let claim = match dialect.kind() {
            Kind::Sqlite => sqlite_claim(table, among),
            Kind::Postgres => postgres_claim(table, among),
        };
        ClaimSql { look, notice, claim: dialect.statement(&claim) }
    }

    /// Claims due items for `lease`, in the order of their creation, among those of some topics if
    /// there are any.
    pub(crate) async fn run<E: Engine, T>(
        &self,
        engine: &E,
        (owner, lease, max): (&OwnerToken, LeaseDuration, BatchSize),
        topics: Option<Value<'_>>,
        shown: impl Fn(&E::Row) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, DatabaseError> {
        let mut values: Values<'_> = vec![owner.into(), lease.into(), i64::from(max.get()).into()];
        values.extend(topics);
        let rows = engine.claim(self, values).await?;
        let mut claimed = Vec::with_capacity(rows.len());
        for row in &rows {
            claimed.push((row.int("place")?, shown(row)?));
        }
        // The order in which an update returns its rows is not promised.
        claimed.sort_by_key(|(place, _)| *place);
        Ok(claimed.into_iter().map(|(_, item)| item).collect())
    }
}

impl<T> ByTopic<T> {
    pub(crate) fn new(of: impl Fn(Among) -> T) -> ByTopic<T> {
        ByTopic { all: of(Among::All), only: of(Among::Only), except: of(Among::Except) }
    }

    /// The one about these topics.
    pub(crate) fn of(&self, topics: &Topics) -> &T {
        match topics {
            Topics::All => &self.all,
            Topics::Only(_) => &self.only,
            Topics::Except(_) => &self.except,
        }
    }
}

/// The topics that a statement looks at one by one, as a common table of this name, and which of its
/// rows fit. Unless they are all, the topics are the parameter with this number.
pub(crate) fn topics_among(
    topics: &str,
    (table, state): (&str, &str),
    among: Among,
    parameter: usize,
) -> (String, String) {
    let (with, fits) = match among {
        Among::All => (topics_with(topics, table, state), String::new()),
        Among::Only => {
            let listed = format!("(SELECT id FROM {{list:{parameter}}} AS listed)");
            (format!("{topics} (topic) AS {listed}"), String::new())
        }
        Among::Except => {
            let fits = format!(" AND {topics}.topic {{not_in:{parameter}}}");
            (topics_with(topics, table, state), fits)
        }
    };
    (with, format!("{topics}.topic IS NOT NULL{fits}"))
}

/// All topics that have items in a state, found by jumping from one to the next in the index.
fn topics_with(topics: &str, table: &str, state: &str) -> String {
    // Not MIN(topic): in a table that it thinks empty, the server would rather read all of them.
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

/// What SQLite notices to be due before a claim, in a batch: of the topics in `$1`, up to `$2` each.
fn notice(name: &str, among: Among) -> String {
    let due = "state = 'waiting' AND due_at <= {now}";
    if among == Among::All {
        return format!(
            "UPDATE {{{name}}} SET state = 'due' WHERE place IN (
                 SELECT place FROM {{{name}}} {{by:{name}_waiting}} WHERE {due}
                 ORDER BY due_at, place LIMIT {BATCH})"
        );
    }
    let (topics, fits) = topics_among("topics", (name, "waiting"), among, 1);
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

fn sqlite_claim(table: &Table, among: Among) -> String {
    let Table { name, on_claim, shown, .. } = table;
    // The index is named, because a walk along the table itself would be in the right order too,
    // past all that is finished.
    let (with, taken) = if among == Among::All {
        let taken = format!(
            "SELECT place FROM {{{name}}} INDEXED BY {{index:{name}_due}}
             WHERE state = 'due' AND due_at <= {{now}} ORDER BY place LIMIT $3"
        );
        (String::new(), taken)
    } else {
        let (topics, fits) = topics_among("topics", (name, "due"), among, 4);
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
         RETURNING place, {shown}"
    )
}

/// In one statement: `ready` is what was known to be due, `fresh` the first of what has become due
/// since; of both the first in the order of creation are taken, and the rest of the fresh is noticed.
///
/// Rows that another claim has in its hands are skipped. Rows are found again by their identity and
/// not joined, so that the plan cannot become another one when the table grows.
fn postgres_claim(table: &Table, among: Among) -> String {
    let Table { name, on_claim, shown, .. } = table;
    let (due_topics, due_fits) = topics_among("due_topics", (name, "due"), among, 4);
    let (waiting_topics, waiting_fits) =
        topics_among("waiting_topics", (name, "waiting"), among, 4);
    let recursive = match among {
        Among::All => String::new(),
        Among::Only | Among::Except => format!("{due_topics}, {waiting_topics},"),
    };
    let (ready, fresh) = if among == Among::All {
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
        // Some more than are asked for, because others may have the first ones in their hands. What is
        // found is looked at again once it is locked: it may have been claimed and put off since.
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
         noticed AS (
             UPDATE {{{name}}} SET state = 'due'
             WHERE id = ANY(ARRAY(SELECT id FROM fresh EXCEPT SELECT id FROM taken)))
         UPDATE {{{name}}}
         SET state = 'claimed', owner = $1, claimed_until = {{now}} + $2, {on_claim}
         WHERE id = ANY(ARRAY(SELECT id FROM taken))
         RETURNING place, {shown}"
    )
}
