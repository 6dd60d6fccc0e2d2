//! Migrations: creating, updating and printing the tables (`CRD-16`).
//!
//! A migration runs once, in a transaction, under a lock: a second process waits and then finds it
//! done. New migrations are appended to the list.

use crate::config::OpenError;
use crate::engine::Engine;
use crate::error::DatabaseError;
use crate::statement::{Dialect, Statement};
use crate::value::Columns;

/// In their order; the first is version 1.
const MIGRATIONS: &[Migration] = &[
    Migration { name: "primitives", text: include_str!("migrations/0001_primitives.sql") },
    Migration { name: "attempts", text: include_str!("migrations/0002_attempts.sql") },
    Migration { name: "retention", text: include_str!("migrations/0003_retention.sql") },
];

/// The version that this program migrates a database to.
pub const NEWEST: i64 = 3;

#[derive(Debug)]
struct Migration {
    name: &'static str,
    /// Statements with a semicolon at the end of a line.
    text: &'static str,
}

/// The statements on the table of migrations.
#[derive(Debug)]
pub(crate) struct MigrationSql {
    create_table: Statement,
    newest: Statement,
    record: Statement,
}

impl MigrationSql {
    pub(crate) fn new(dialect: &Dialect) -> MigrationSql {
        MigrationSql {
            create_table: dialect.statement(
                "CREATE TABLE IF NOT EXISTS {migrations} (
                     version BIGINT NOT NULL PRIMARY KEY,
                     name TEXT NOT NULL,
                     applied_at BIGINT NOT NULL)",
            ),
            newest: dialect
                .statement("SELECT COALESCE(MAX(version), 0) AS version FROM {migrations}"),
            record: dialect.statement(
                "INSERT INTO {migrations} (version, name, applied_at) VALUES ($1, $2, {now})",
            ),
        }
    }

    /// Migrates the tables. The caller holds the lock, and commits.
    pub(crate) async fn run<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        database: &str,
    ) -> Result<(), OpenError> {
        let failed = |version: i64| {
            let database = database.to_owned();
            move |source: DatabaseError| OpenError::Migration { database, version, source }
        };
        let create_table = engine.execute_in(connection, &self.create_table, Vec::new()).await;
        create_table.map_err(failed(0))?;
        let rows = engine.fetch_in(connection, &self.newest, Vec::new()).await;
        let found = rows.and_then(|rows| {
            rows.first().ok_or(DatabaseError::Driver(sqlx::Error::RowNotFound))?.int("version")
        });
        let found = found.map_err(failed(0))?;
        if found > NEWEST {
            let database = database.to_owned();
            return Err(OpenError::TooNew { database, found, known: NEWEST });
        }
        for (migration, version) in after(found) {
            let applied = self.apply(engine, connection, migration, version).await;
            applied.map_err(failed(version))?;
        }
        Ok(())
    }

    /// The version of the tables.
    #[cfg(feature = "postgres")]
    pub(crate) async fn found<E: Engine>(&self, engine: &E) -> Result<i64, DatabaseError> {
        let rows = engine.read(&self.newest, Vec::new()).await?;
        rows.first().ok_or(DatabaseError::Driver(sqlx::Error::RowNotFound))?.int("version")
    }

    async fn apply<E: Engine>(
        &self,
        engine: &E,
        connection: &mut E::Connection,
        migration: &Migration,
        version: i64,
    ) -> Result<(), DatabaseError> {
        for text in statements(migration.text) {
            let statement = engine.dialect().statement(text);
            engine.execute_in(connection, &statement, Vec::new()).await?;
        }
        let values = vec![version.into(), migration.name.into()];
        engine.execute_in(connection, &self.record, values).await?;
        tracing::info!(version, name = migration.name, "migration applied");
        Ok(())
    }
}

/// The SQL of [`MigrationSql::run`] for tables at this version.
pub(crate) fn script(dialect: &Dialect, found: i64) -> String {
    let sql = MigrationSql::new(dialect);
    let mut script = format!("{};\n", sql.create_table.text);
    for (migration, version) in after(found) {
        script.push_str(&format!("\n-- Version {version}: {}\n", migration.name));
        for text in statements(migration.text) {
            script.push_str(dialect.statement(text).text.trim_start());
            script.push_str(";\n");
        }
        let now = dialect.now_expression();
        let record = dialect.statement(&format!(
            "INSERT INTO {{migrations}} (version, name, applied_at)
             VALUES ({version}, '{}', {now});\n",
            migration.name
        ));
        script.push_str(&record.text);
    }
    script
}

/// The migrations after this version.
fn after(found: i64) -> impl Iterator<Item = (&'static Migration, i64)> {
    MIGRATIONS.iter().zip(1..).filter(move |(_, version)| *version > found)
}

/// The statements of a migration, one by one.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.split(";\n").filter(|statement| {
        let mut lines = statement.lines().map(str::trim);
        lines.any(|line| !line.is_empty() && !line.starts_with("--"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_the_number_of_migrations() {
        assert_eq!(usize::try_from(NEWEST), Ok(MIGRATIONS.len()));
    }

    #[test]
    fn a_migration_is_split_at_its_semicolons() {
        let found: Vec<_> = statements("-- a\nSELECT 1;\n\nSELECT\n2;\n-- the end\n").collect();
        assert_eq!(found, ["-- a\nSELECT 1", "\nSELECT\n2"]);
    }
}
