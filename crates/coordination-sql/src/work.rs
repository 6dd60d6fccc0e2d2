//! Statements for work items, shared by messages, timers and runs: `Ready → Claimed → Done / Dead`.
//!
//! A ready item is `waiting` until a claim marks it `due`; due items have an index in creation
//! order. So the cost of a claim is proportional to the items that it returns, however many wait or
//! are finished.

mod claims;
mod retention;

use std::time::Duration;

pub(crate) use self::claims::{PerTopicFilter, TopicFilter, topic_list};
pub(crate) use self::retention::{ExpiredItemsSql, PurgeSql};
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::{Columns, Value, read};

/// The most items that one maintenance statement marks due, reaps or deletes, so that none blocks
/// others for long (`CRD-14`). A claim takes at most as many.
pub(crate) const BATCH: usize = 1000;
/// How many such statements one call runs. The next call continues.
const BATCHES_MAX: usize = 100;

/// What differs between the tables of work items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// What a claim sets in addition to state and owner.
    pub(crate) on_claim: &'static str,
    /// The columns that a claim returns.
    pub(crate) columns: &'static str,
    /// A condition without which a returned item is dead.
    pub(crate) reopens_if: Option<&'static str>,
}

/// The statements of a table of work items, without the claims.
#[derive(Debug, Clone)]
pub(crate) struct WorkSql {
    /// Finishes the items `$2` that `$1` has claimed.
    pub(crate) finish: Statement,
    /// Makes claimed items ready again after the delay `$3`.
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

    /// Makes items ready whose claim has expired. Returns how many.
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
        // A negative age: not due.
        Ok(age.and_then(|micros| u64::try_from(micros).ok()).map(Duration::from_micros))
    }
}

/// Repeats a call that changes up to [`BATCH`] items until there are no more, at most
/// [`BATCHES_MAX`] times. Returns how many items it changed.
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
    /// The statement that makes items ready again that `$1` has claimed, and sets `also`.
    pub(crate) fn give_back(&self, also: &str) -> String {
        let (name, finished_at) = (self.name, self.reopened_finished_at());
        let (due, waiting) = (self.reopened_state("'due'"), self.reopened_state("'waiting'"));
        format!(
            "UPDATE {{{name}}}
             SET state = CASE WHEN $3 = 0 THEN {due} ELSE {waiting} END, due_at = {{now}} + $3,
                 finished_at = {finished_at}, owner = NULL, claimed_until = NULL{also}
             WHERE id {{locked:2:{name}}} AND state = 'claimed' AND owner = $1"
        )
    }

    /// The statement that makes items ready whose claim has expired.
    pub(crate) fn reap(&self, dialect: &Dialect) -> String {
        let (name, finished_at) = (self.name, self.reopened_finished_at());
        let due = self.reopened_state("'due'");
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

    /// `state`, or dead if the item must not return.
    fn reopened_state(&self, state: &str) -> String {
        match self.reopens_if {
            None => state.to_owned(),
            Some(condition) => format!("CASE WHEN {condition} THEN {state} ELSE 'dead' END"),
        }
    }

    fn reopened_finished_at(&self) -> String {
        match self.reopens_if {
            None => "NULL".to_owned(),
            Some(condition) => format!("CASE WHEN {condition} THEN NULL ELSE {{now}} END"),
        }
    }
}

/// Set when an item is postponed: an attempt that began is not counted. `$4` is the reason.
pub(crate) const POSTPONED: &str =
    ", attempts = attempts - CASE WHEN begun THEN 1 ELSE 0 END, begun = FALSE,
     last_error = CASE WHEN $4 = '' THEN last_error ELSE $4 END";
/// Set when an item is retried: the attempt counts whether or not `begin` was called. `$4` is the
/// error.
pub(crate) const RETRIED: &str =
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

/// Stores the error `$3`, unless it is empty.
pub(crate) const NOTE_ERROR: &str = ", last_error = CASE WHEN $3 = '' THEN last_error ELSE $3 END";

/// The statement that finishes items that `$1` has claimed, and sets `also`. A join that starts
/// locks its members in the same order, so that the two cannot deadlock.
pub(crate) fn settle(table: &str, state: &str, also: &str) -> String {
    format!(
        "UPDATE {{{table}}}
         SET state = '{state}', finished_at = {{now}}, owner = NULL, claimed_until = NULL{also}
         WHERE id {{locked:2:{table}}} AND state = 'claimed' AND owner = $1"
    )
}

/// A duration as a parameter, capped at [`Timestamp::MAX`](coordination::Timestamp::MAX).
pub(crate) fn span(span: Duration) -> Value<'static> {
    let max = coordination::Timestamp::MAX.unix_micros();
    i64::try_from(span.as_micros()).map_or(max, |micros| micros.min(max)).into()
}

/// When the first item in a state is due. Uses an index, whatever the planner's statistics.
pub(crate) fn first_due(table: &str, state: &str) -> String {
    let index = if state == "due" { "due_since" } else { state };
    format!(
        "SELECT due_at FROM {{{table}}} {{by:{table}_{index}}} WHERE state = '{state}'
         ORDER BY due_at LIMIT 1"
    )
}

/// A count of rows.
pub(crate) fn counted(row: &impl Columns, column: &'static str) -> Result<usize, DatabaseError> {
    read(column, usize::try_from(row.int(column)?))
}
