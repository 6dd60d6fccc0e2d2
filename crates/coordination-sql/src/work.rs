//! The life of a work item, once for messages, timers and runs: `Ready → Claimed → Done / Dead`.
//!
//! The statements of one table, from what differs between the tables. A ready item is `waiting`
//! until a claim notices that it is due; what is due has an index in the order of creation. So a
//! claim costs what it hands out, however many items wait or are finished.

mod retention;

use std::time::Duration;

use coordination::{BatchSize, LeaseDuration, OwnerToken, Topics};

pub(crate) use self::retention::{OldSql, PurgeSql};
use crate::engine::{Engine, Values};
use crate::failure::Failure;
use crate::statement::{Dialect, Kind, Statement};
use crate::value::{Columns, Value, read};

/// How many items one statement of upkeep is about: notices to be due, reaps or forgets. However many
/// there are, no statement holds the others up (`CRD-14`). No claim takes more.
pub(crate) const BATCH: usize = 1000;
/// How many such statements one call runs. What is left is for the next call.
const BATCHES_MAX: usize = 100;

/// What differs between the tables of work items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// What a claim sets beside state and owner.
    pub(crate) on_claim: &'static str,
    /// The columns that a claimer sees.
    pub(crate) shown: &'static str,
    /// Without which an item that comes back is dead.
    pub(crate) comes_back: Option<&'static str>,
}

/// The statements of a table of work items, but for those that claim.
#[derive(Debug, Clone)]
pub(crate) struct WorkSql {
    finish: Statement,
    give_back: Statement,
    reap: Statement,
    oldest: Statement,
}

/// A claim: PostgreSQL does all in one statement. SQLite looks first whether there is anything, so
/// that an idle worker never takes the write lock, and notices what has become due.
#[derive(Debug, Clone)]
pub(crate) struct ClaimSql {
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "one statement does all"))]
    pub(crate) look: Statement,
    #[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "one statement does all"))]
    pub(crate) notice: Statement,
    pub(crate) claim: Statement,
}

/// Where a claim looks among what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Among {
    All,
    /// The topics of parameter 4.
    Only,
    /// All topics but those of parameter 4.
    Except,
}

impl WorkSql {
    pub(crate) fn new(dialect: &Dialect, table: &Table) -> WorkSql {
        let Table { name, .. } = table;
        let statement = |text: String| dialect.statement(&text);
        WorkSql {
            finish: statement(settle(name, "done", "")),
            give_back: statement(table.give_back("")),
            reap: statement(table.reap(dialect)),
            oldest: statement(format!(
                "SELECT {{now}} - MIN(due_at) AS age FROM (
                     SELECT ({}) AS due_at UNION ALL SELECT ({})) AS ready",
                first_due(name, "due"),
                first_due(name, "waiting"),
            )),
        }
    }

    /// The statement that finishes claimed items: of the owner `$1`, the identities `$2`.
    pub(crate) fn finish_statement(&self) -> &Statement {
        &self.finish
    }

    /// The statement that gives claimed items back after the delay `$3`.
    pub(crate) fn give_back_statement(&self) -> &Statement {
        &self.give_back
    }

    /// Makes items ready whose claim has run out. Says how many.
    pub(crate) async fn reap<E: Engine>(&self, engine: &E) -> Result<usize, Failure> {
        in_batches(|| engine.execute(&self.reap, Vec::new())).await
    }

    /// How long the oldest due item has been due.
    pub(crate) async fn oldest_ready_age<E: Engine>(
        &self,
        engine: &E,
    ) -> Result<Option<Duration>, Failure> {
        let rows = engine.read(&self.oldest, Vec::new()).await?;
        let age = rows.first().map(|row| row.maybe_int("age")).transpose()?.flatten();
        // A negative age is one that is not due.
        Ok(age.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros))
    }
}

/// Runs a call about up to [`BATCH`] items until there are no more, or for long enough. Says how
/// many items.
pub(crate) async fn in_batches<F: Future<Output = Result<usize, Failure>> + Send>(
    mut batch: impl FnMut() -> F + Send,
) -> Result<usize, Failure> {
    let mut count = 0;
    for _ in 0..BATCHES_MAX {
        let changed = batch().await?;
        count += changed;
        if changed < BATCH {
            break;
        }
    }
    Ok(count)
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
            #[cfg(feature = "sqlite")]
            Kind::Sqlite => sqlite_claim(table, among),
            #[cfg(feature = "postgres")]
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
        shown: impl Fn(&E::Row) -> Result<T, Failure>,
    ) -> Result<Vec<T>, Failure> {
        let mut values: Values<'_> =
            vec![owner.into(), lease.into(), Value::Int(i64::from(max.get()))];
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

/// The same about all topics, about some, and about all but some. What it costs does not grow with the
/// messages of other topics: each topic that has messages is looked at through an index of its own, and
/// the topics are found by jumping from one to the next.
#[derive(Debug, Clone)]
pub(crate) struct ByTopic<T> {
    all: T,
    only: T,
    except: T,
}

impl<T> ByTopic<T> {
    pub(crate) fn new(of: impl Fn(Among) -> T) -> ByTopic<T> {
        ByTopic { all: of(Among::All), only: of(Among::Only), except: of(Among::Except) }
    }

    /// The one about these topics, which are its last parameter unless they are all.
    pub(crate) fn of(&self, topics: &Topics) -> &T {
        match topics {
            Topics::All => &self.all,
            Topics::Only(_) => &self.only,
            Topics::Except(_) => &self.except,
        }
    }
}

impl Table {
    /// The statement that gives back items that `$1` has claimed, with what it sets beside.
    pub(crate) fn give_back(&self, also: &str) -> String {
        let (name, finished_at) = (self.name, self.finished_on_coming_back());
        let (due, waiting) = (self.coming_back("'due'"), self.coming_back("'waiting'"));
        format!(
            "UPDATE {{{name}}}
             SET state = CASE WHEN $3 = 0 THEN {due} ELSE {waiting} END, due_at = {{now}} + $3,
                 finished_at = {finished_at}, owner = NULL, claimed_until = NULL{also}
             WHERE id {{in:2}} AND state = 'claimed' AND owner = $1"
        )
    }

    /// The statement that makes items ready whose claim has run out.
    pub(crate) fn reap(&self, dialect: &Dialect) -> String {
        let (name, finished_at) = (self.name, self.finished_on_coming_back());
        let due = self.coming_back("'due'");
        let expired = dialect.found(&format!(
            "SELECT id FROM {{{name}}} {{by:{name}_claimed}}
             WHERE state = 'claimed' AND claimed_until <= {{now}}
             ORDER BY claimed_until LIMIT {BATCH}"
        ));
        format!(
            "UPDATE {{{name}}}
             SET state = {due}, finished_at = {finished_at}, owner = NULL, claimed_until = NULL
             WHERE state = 'claimed' AND id {expired}"
        )
    }

    /// The state of an item that comes back and would be in `state`.
    fn coming_back(&self, state: &str) -> String {
        match self.comes_back {
            None => state.to_owned(),
            Some(condition) => format!("CASE WHEN {condition} THEN {state} ELSE 'dead' END"),
        }
    }

    fn finished_on_coming_back(&self) -> String {
        match self.comes_back {
            None => "NULL".to_owned(),
            Some(condition) => format!("CASE WHEN {condition} THEN NULL ELSE {{now}} END"),
        }
    }
}

/// What an attempt that is not to be counted sets: nothing is left of one that began.
pub(crate) const UNTRIED: &str =
    ", attempts = attempts - CASE WHEN begun THEN 1 ELSE 0 END, begun = FALSE";
/// What an attempt that failed sets: it counts whether or not it was said to begin.
pub(crate) const TRIED: &str =
    ", attempts = attempts + CASE WHEN begun THEN 0 ELSE 1 END, begun = FALSE";

/// The statement that begins an attempt on the item `$2` that `$1` has claimed.
pub(crate) fn begin(table: &str) -> String {
    format!(
        "UPDATE {{{table}}}
         SET attempts = attempts + CASE WHEN begun THEN 0 ELSE 1 END, begun = TRUE,
             claimed_until = {{greatest}}(claimed_until, {{now}} + $3)
         WHERE id = $2 AND state = 'claimed' AND owner = $1 RETURNING attempts"
    )
}

/// Keeps the last error when the new one, this parameter, is empty.
pub(crate) fn note_error(parameter: usize) -> String {
    format!(", last_error = CASE WHEN ${parameter} = '' THEN last_error ELSE ${parameter} END")
}

/// The statement that ends items that `$1` has claimed, with what it sets beside.
pub(crate) fn settle(table: &str, state: &str, also: &str) -> String {
    format!(
        "UPDATE {{{table}}}
         SET state = '{state}', finished_at = {{now}}, owner = NULL, claimed_until = NULL{also}
         WHERE id {{in:2}} AND state = 'claimed' AND owner = $1"
    )
}

/// All topics that have items in a state, found by jumping from one to the next in the index.
pub(crate) fn topics_with(table: &str, state: &str) -> String {
    topics_as("topics", table, state)
}

fn topics_as(topics: &str, table: &str, state: &str) -> String {
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

/// A span as a parameter; the calendar is shorter than what does not fit.
pub(crate) fn span(span: Duration) -> Value<'static> {
    let calendar = coordination::Timestamp::MAX.unix_micros();
    Value::Int(i64::try_from(span.as_micros()).map_or(calendar, |micros| micros.min(calendar)))
}

/// When the first item in a state is due. An index gives it, whatever the server thinks of the table.
pub(crate) fn first_due(table: &str, state: &str) -> String {
    let index = if state == "due" { "due_since" } else { state };
    format!(
        "SELECT due_at FROM {{{table}}} {{by:{table}_{index}}} WHERE state = '{state}'
         ORDER BY due_at LIMIT 1"
    )
}

/// How many rows there are by a column that counts them.
pub(crate) fn counted(row: &impl Columns, column: &'static str) -> Result<usize, Failure> {
    read(column, usize::try_from(row.int(column)?))
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
    let (topics, fits) = match among {
        Among::All | Among::Only => {
            ("topics (topic) AS (SELECT id FROM {list:1} AS listed)".to_owned(), "TRUE")
        }
        Among::Except => (topics_with(name, "waiting"), "topics.topic {not_in:1}"),
    };
    format!(
        "WITH RECURSIVE {topics}
         UPDATE {{{name}}} SET state = 'due' WHERE place IN (
             SELECT item.place FROM topics CROSS JOIN {{{name}}} AS item
             WHERE topics.topic IS NOT NULL AND {fits} AND item.place IN (
                 SELECT place FROM {{{name}}} {{by:{name}_waiting_of_topic}}
                 WHERE {due} AND topic = topics.topic ORDER BY due_at, place LIMIT $2)
             ORDER BY item.due_at, item.place LIMIT {BATCH})"
    )
}

#[cfg(feature = "sqlite")]
fn sqlite_claim(table: &Table, among: Among) -> String {
    let Table { name, on_claim, shown, .. } = table;
    let (with, topics) = match among {
        Among::All => (String::new(), ""),
        Among::Only => (
            "WITH topics (topic) AS (SELECT id FROM {list:4})".to_owned(),
            "topics.topic IS NOT NULL",
        ),
        Among::Except => (
            format!("WITH RECURSIVE {}", topics_with(name, "due")),
            "topics.topic IS NOT NULL AND topics.topic {not_in:4}",
        ),
    };
    // The index is named, because a walk along the table itself would be in the right order too,
    // past all that is finished.
    let taken = if among == Among::All {
        format!(
            "SELECT place FROM {{{name}}} INDEXED BY {{index:{name}_due}}
             WHERE state = 'due' AND due_at <= {{now}} ORDER BY place LIMIT $3"
        )
    } else {
        format!(
            "SELECT item.place FROM topics CROSS JOIN {{{name}}} AS item
             WHERE {topics} AND item.place IN (
                 SELECT place FROM {{{name}}} INDEXED BY {{index:{name}_due_of_topic}}
                 WHERE state = 'due' AND topic = topics.topic AND due_at <= {{now}}
                 ORDER BY place LIMIT $3)
             ORDER BY item.place LIMIT $3"
        )
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
#[cfg(feature = "postgres")]
fn postgres_claim(table: &Table, among: Among) -> String {
    let Table { name, on_claim, shown, .. } = table;
    let listed =
        |topics: &str| format!("{topics} (topic) AS (SELECT id FROM {{list:4}} AS listed)");
    let recursive = match among {
        Among::All => String::new(),
        Among::Only => format!("{}, {},", listed("due_topics"), listed("waiting_topics")),
        Among::Except => format!(
            "{}, {},",
            topics_as("due_topics", name, "due"),
            topics_as("waiting_topics", name, "waiting")
        ),
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
        let named = if among == Among::Except { "AND topic {not_in:4}" } else { "" };
        // Some more than are asked for, because others may have the first ones in their hands.
        let first = |state: &str, order: &str, max: &str| {
            format!(
                "state = '{state}' AND id = ANY(ARRAY(
                     SELECT first.id FROM {state}_topics CROSS JOIN LATERAL (
                         SELECT id, place, due_at FROM {{{name}}}
                         WHERE state = '{state}' AND topic = {state}_topics.topic
                               AND due_at <= {{now}}
                         ORDER BY {order} LIMIT $3 * 4) AS first
                     WHERE topic IS NOT NULL {named} ORDER BY {order} LIMIT {max}))"
            )
        };
        (
            format!(
                "SELECT id, place FROM {{{name}}} WHERE {}
                 ORDER BY place LIMIT $3 FOR UPDATE SKIP LOCKED",
                first("due", "place", "$3 * 4")
            ),
            format!(
                "SELECT id, place FROM {{{name}}} WHERE {} FOR UPDATE SKIP LOCKED",
                first("waiting", "due_at, place", &BATCH.to_string())
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
