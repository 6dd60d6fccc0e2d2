//! Statement templates and SQL dialects.
//!
//! | template | PostgreSQL | SQLite |
//! | --- | --- | --- |
//! | `{outbox}`, any table | `"schema".outbox` | `coordination_outbox` |
//! | `{index:name}` | `name` | `coordination_name` |
//! | `{now}` | the server's clock | one more parameter, from the provider's clock |
//! | `{in:2}`, `{not_in:2}` | `= ANY($2)`, `<> ALL($2)` | `[NOT] IN (SELECT value FROM json_each($2))` |
//! | `{locked:2:outbox}` | as `{in:2}`, with the rows of the table locked in the order of their IDs | as `{in:2}`: there is one writer |
//! | `{list:2}` | the texts of `$2` as rows `(id)` | the same |
//! | `{by:name}` | nothing | `INDEXED BY coordination_name` |
//! | `{for_update}`, `{for_share}` | the lock | nothing: there is one writer |
//! | `{greatest}` | `GREATEST` | `MAX` |
//! | `{swept_often}` | how often the table is vacuumed | nothing |
//! | `{id}`, `{place}`, `{name}`, `{bytes}`, `{flag}` | types of columns | types of columns |

use std::sync::Arc;

/// The server's time in microseconds. Stable within a statement, so that it can be used in an index
/// search.
const POSTGRES_NOW: &str = "(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000)::bigint";

/// A statement in the dialect of its database.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) text: Arc<str>,
    /// Whether the current time is an additional, last parameter.
    pub(crate) takes_now: bool,
    /// Whether it searches rows, so that the best plan depends on the current size of the tables.
    pub(crate) searches: bool,
}

/// The differences between the databases in a statement's text.
#[derive(Debug, Clone)]
pub(crate) struct Dialect {
    kind: DatabaseKind,
    table_prefix: String,
    index_prefix: &'static str,
    /// The NOTIFY channel for new work.
    channel: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

impl Dialect {
    pub(crate) fn sqlite() -> Dialect {
        Dialect {
            kind: DatabaseKind::Sqlite,
            table_prefix: "coordination_".to_owned(),
            index_prefix: "coordination_",
            channel: String::new(),
        }
    }

    pub(crate) fn postgres(schema: &crate::SchemaName) -> Dialect {
        Dialect {
            kind: DatabaseKind::Postgres,
            table_prefix: format!("\"{schema}\"."),
            index_prefix: "",
            channel: format!("{schema}.work"),
        }
    }

    pub(crate) fn kind(&self) -> DatabaseKind {
        self.kind
    }

    /// The NOTIFY channel for new work.
    pub(crate) fn channel(&self) -> &str {
        &self.channel
    }

    /// Expands a template.
    pub(crate) fn statement(&self, template: &str) -> Statement {
        let clock_parameter = format!("${}", parameters_in(template) + 1);
        let mut text = String::with_capacity(template.len() + 64);
        let mut takes_now = false;
        let mut rest = template;
        while let Some((before, tail)) = rest.split_once('{') {
            let (token, after) = tail.split_once('}').expect("a token of a template is closed");
            text.push_str(before);
            // SQLite takes the time from the provider's clock.
            if token == "now" && self.kind == DatabaseKind::Sqlite {
                takes_now = true;
                text.push_str(&clock_parameter);
            } else {
                text.push_str(&self.token(token));
            }
            rest = after;
        }
        text.push_str(rest);
        Statement { text: Arc::from(text), takes_now, searches: template.contains("WHERE") }
    }

    /// The current time, in a statement without parameters.
    pub(crate) fn now_expression(&self) -> &'static str {
        match self.kind {
            DatabaseKind::Sqlite => "CAST(strftime('%s', 'now') AS INTEGER) * 1000000",
            DatabaseKind::Postgres => POSTGRES_NOW,
        }
    }

    /// A change that notifies `queue` when it commits.
    pub(crate) fn notifying(&self, queue: WorkQueue, change: &str) -> Statement {
        match self.kind {
            // The process notifies its own workers.
            DatabaseKind::Sqlite => self.statement(change),
            DatabaseKind::Postgres => {
                let (channel, queue) = (&self.channel, queue.name());
                // PostgreSQL sends equal notifications of a transaction once.
                self.statement(&format!(
                    "WITH added AS ({change} RETURNING 1)
                     SELECT pg_notify('{channel}', '{queue}') FROM added"
                ))
            }
        }
    }

    /// A condition on the IDs that a selection finds, skipping locked rows.
    pub(crate) fn found(&self, selection: &str) -> String {
        match self.kind {
            DatabaseKind::Sqlite => format!("IN ({selection})"),
            // An array, so that no plan can evaluate the selection last.
            DatabaseKind::Postgres => format!("= ANY(ARRAY({selection} FOR UPDATE SKIP LOCKED))"),
        }
    }

    fn token(&self, token: &str) -> String {
        match self.kind {
            DatabaseKind::Sqlite => self.sqlite_token(token),
            DatabaseKind::Postgres => self.postgres_token(token),
        }
    }

    fn sqlite_token(&self, token: &str) -> String {
        match token.split_once(':') {
            Some(("in", number)) => format!("IN (SELECT value FROM json_each(${number}))"),
            Some(("locked", rest)) => {
                let (number, _) = rest.split_once(':').expect("a parameter and a table");
                format!("IN (SELECT value FROM json_each(${number}))")
            }
            Some(("not_in", number)) => format!("NOT IN (SELECT value FROM json_each(${number}))"),
            Some(("list", number)) => format!("(SELECT value AS id FROM json_each(${number}))"),
            Some(("by", name)) => format!("INDEXED BY {}{name}", self.index_prefix),
            Some(("index", name)) => format!("{}{name}", self.index_prefix),
            Some((other, _)) => unreachable!("no token {other} in a template"),
            None => match token {
                "for_update" | "for_share" => String::new(),
                "greatest" => "MAX".to_owned(),
                "id" => "TEXT NOT NULL UNIQUE".to_owned(),
                "place" => "INTEGER PRIMARY KEY AUTOINCREMENT".to_owned(),
                "name" => "TEXT".to_owned(),
                "bytes" => "BLOB".to_owned(),
                "flag" => "INTEGER NOT NULL DEFAULT 0".to_owned(),
                "swept_often" => String::new(),
                table => format!("{}{table}", self.table_prefix),
            },
        }
    }

    fn postgres_token(&self, token: &str) -> String {
        match token.split_once(':') {
            Some(("in", number)) => format!("= ANY(${number})"),
            Some(("locked", rest)) => {
                let (number, table) = rest.split_once(':').expect("a parameter and a table");
                let table = format!("{}{table}", self.table_prefix);
                format!(
                    "= ANY(ARRAY(SELECT id FROM {table} WHERE id = ANY(${number}) ORDER BY id FOR UPDATE))"
                )
            }
            Some(("not_in", number)) => format!("<> ALL(${number})"),
            Some(("list", number)) => {
                format!("(SELECT unnest(${number}::text[]) COLLATE \"C\" AS id)")
            }
            Some(("by", _)) => String::new(),
            Some(("index", name)) => format!("{}{name}", self.index_prefix),
            Some((other, _)) => unreachable!("no token {other} in a template"),
            None => match token {
                "now" => POSTGRES_NOW.to_owned(),
                "for_update" => "FOR UPDATE".to_owned(),
                "for_share" => "FOR SHARE".to_owned(),
                "greatest" => "GREATEST".to_owned(),
                "id" => "TEXT COLLATE \"C\" PRIMARY KEY".to_owned(),
                // No index: the planner might scan an index over all places past a million finished
                // items.
                "place" => "BIGINT GENERATED ALWAYS AS IDENTITY".to_owned(),
                "name" => "TEXT COLLATE \"C\"".to_owned(),
                "bytes" => "BYTEA".to_owned(),
                "flag" => "BOOLEAN NOT NULL DEFAULT FALSE".to_owned(),
                // Each item leaves three or more dead row versions.
                "swept_often" => "WITH (autovacuum_vacuum_scale_factor = 0.02, \
                                  autovacuum_vacuum_threshold = 1000, \
                                  autovacuum_analyze_scale_factor = 0.05)"
                    .to_owned(),
                table => format!("{}{table}", self.table_prefix),
            },
        }
    }
}

/// The queues that workers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkQueue {
    Outbox,
    Inbox,
    Scheduler,
}

impl WorkQueue {
    pub(crate) const ALL: [WorkQueue; 3] =
        [WorkQueue::Outbox, WorkQueue::Inbox, WorkQueue::Scheduler];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            WorkQueue::Outbox => "outbox",
            WorkQueue::Inbox => "inbox",
            WorkQueue::Scheduler => "scheduler",
        }
    }
}

/// The largest parameter number in the template, including `{in:4}`.
fn parameters_in(template: &str) -> usize {
    let named = |mark: &str| {
        template
            .split(mark)
            .skip(1)
            .filter_map(|rest| {
                let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
                rest[..digits].parse().ok()
            })
            .max()
            .unwrap_or(0)
    };
    named("$").max(named("in:")).max(named("list:")).max(named("locked:"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchemaName;

    const TEMPLATE: &str = "UPDATE {outbox} SET due_at = {now} + $3 WHERE owner = $1 AND id {in:2}";

    #[test]
    fn sqlite_takes_the_time_as_its_last_parameter() {
        let statement = Dialect::sqlite().statement(TEMPLATE);
        assert_eq!(
            &*statement.text,
            "UPDATE coordination_outbox SET due_at = $4 + $3 WHERE owner = $1 AND id IN (SELECT \
             value FROM json_each($2))"
        );
        assert!(statement.takes_now);
    }

    #[test]
    fn postgresql_uses_its_own_clock_and_schema() {
        let schema = SchemaName::new("billing").unwrap();
        let statement = Dialect::postgres(&schema).statement(TEMPLATE);
        assert!(statement.text.starts_with("UPDATE \"billing\".outbox SET due_at = (EXTRACT("));
        assert!(statement.text.ends_with("+ $3 WHERE owner = $1 AND id = ANY($2)"));
        assert!(!statement.takes_now);
    }

    #[test]
    fn a_statement_without_the_time_takes_none() {
        assert!(!Dialect::sqlite().statement("SELECT id FROM {inbox} WHERE id = $1").takes_now);
    }
}
