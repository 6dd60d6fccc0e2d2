//! The life of a work item, once for messages, timers and runs: `Ready → Claimed → Done / Dead`.
//!
//! The statements of one table, from what differs between the tables. A ready item is `waiting`
//! until a claim notices that it is due; what is due has an index in the order of creation. So a
//! claim costs what it hands out, however many items wait or are finished.

mod claims;
mod retention;

use std::time::Duration;

pub(crate) use self::claims::{Among, ByTopic, topics_among};
pub(crate) use self::retention::{OldSql, PurgeSql};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
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
    /// Finishes claimed items: of the owner `$1`, the identities `$2`.
    pub(crate) finish: Statement,
    /// Gives claimed items back after the delay `$3`.
    pub(crate) give_back: Statement,
    reap: Statement,
    oldest: Statement,
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

    /// Makes items ready whose claim has run out. Says how many.
    pub(crate) async fn reap<E: Engine>(&self, engine: &E) -> Result<usize, DatabaseError> {
        in_batches(|| engine.execute(&self.reap, Vec::new())).await
    }

    /// How long the oldest due item has been due.
    pub(crate) async fn oldest_ready_age<E: Engine>(
        &self,
        engine: &E,
    ) -> Result<Option<Duration>, DatabaseError> {
        let rows = engine.read(&self.oldest, Vec::new()).await?;
        let age = rows.first().map(|row| row.maybe_int("age")).transpose()?.flatten();
        // A negative age is one that is not due.
        Ok(age.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros))
    }
}

/// Runs a call about up to [`BATCH`] items until there are no more, or for long enough. Says how
/// many items.
pub(crate) async fn in_batches<F: Future<Output = Result<usize, DatabaseError>> + Send>(
    mut batch: impl FnMut() -> F + Send,
) -> Result<usize, DatabaseError> {
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

impl Table {
    /// The statement that gives back items that `$1` has claimed, with what it sets beside.
    pub(crate) fn give_back(&self, also: &str) -> String {
        let (name, finished_at) = (self.name, self.finished_on_coming_back());
        let (due, waiting) = (self.coming_back("'due'"), self.coming_back("'waiting'"));
        format!(
            "UPDATE {{{name}}}
             SET state = CASE WHEN $3 = 0 THEN {due} ELSE {waiting} END, due_at = {{now}} + $3,
                 finished_at = {finished_at}, owner = NULL, claimed_until = NULL{also}
             WHERE id {{locked:2:{name}}} AND state = 'claimed' AND owner = $1"
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

/// What giving back untried sets: nothing is left of an attempt that began. `$4` is the reason.
pub(crate) const UNTRIED: &str =
    ", attempts = attempts - CASE WHEN begun THEN 1 ELSE 0 END, begun = FALSE,
     last_error = CASE WHEN $4 = '' THEN last_error ELSE $4 END";
/// What giving back after an attempt sets: it counts whether or not it was said to begin. `$4` is the
/// error.
pub(crate) const TRIED: &str =
    ", attempts = attempts + CASE WHEN begun THEN 0 ELSE 1 END, begun = FALSE,
     last_error = CASE WHEN $4 = '' THEN last_error ELSE $4 END";

/// The statement that begins an attempt on the item `$2` that `$1` has claimed.
pub(crate) fn begin(table: &str) -> String {
    format!(
        "UPDATE {{{table}}}
         SET attempts = attempts + CASE WHEN begun THEN 0 ELSE 1 END, begun = TRUE,
             claimed_until = {{greatest}}(claimed_until, {{now}} + $3)
         WHERE id = $2 AND state = 'claimed' AND owner = $1 RETURNING attempts"
    )
}

/// Keeps the last error when the new one, `$3`, is empty.
pub(crate) const NOTE_ERROR: &str = ", last_error = CASE WHEN $3 = '' THEN last_error ELSE $3 END";

/// The statement that ends items that `$1` has claimed, with what it sets beside. A join that starts
/// locks its members in the same order, so that neither waits for the other.
pub(crate) fn settle(table: &str, state: &str, also: &str) -> String {
    format!(
        "UPDATE {{{table}}}
         SET state = '{state}', finished_at = {{now}}, owner = NULL, claimed_until = NULL{also}
         WHERE id {{locked:2:{table}}} AND state = 'claimed' AND owner = $1"
    )
}

/// A span as a parameter; the calendar is shorter than what does not fit.
pub(crate) fn span(span: Duration) -> Value<'static> {
    let calendar = coordination::Timestamp::MAX.unix_micros();
    i64::try_from(span.as_micros()).map_or(calendar, |micros| micros.min(calendar)).into()
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
pub(crate) fn counted(row: &impl Columns, column: &'static str) -> Result<usize, DatabaseError> {
    read(column, usize::try_from(row.int(column)?))
}
