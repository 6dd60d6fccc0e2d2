//! Configuration of providers, and errors of opening them.

use std::fmt;
#[cfg(feature = "sqlite")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "sqlite")]
use coordination::{Clock, WallClock};
use thiserror::Error;

use crate::error::DatabaseError;

/// The most bytes of a schema's name; PostgreSQL allows 63, and names derived from it are longer.
pub const SCHEMA_NAME_BYTES_MAX: usize = 48;

/// Settings of a SQLite provider.
#[cfg(feature = "sqlite")]
#[derive(Debug, Clone)]
pub struct SqliteConfig {
    /// How long a write waits for other tasks and processes: 10 s.
    pub busy_timeout: Duration,
    /// Whether answered calls survive a power failure: yes. Without it a commit does not wait for
    /// the disk, and a power failure may lose the last commits; a crash of the process never does.
    pub survives_power_loss: bool,
    /// The most connections for reading, and for the application's transactions: 8.
    pub other_connections_max: u32,
    /// How often the file is checked for work that other processes or the application's
    /// transactions added, while a worker waits: 20 ms. Work that this process adds through the
    /// provider wakes workers at once.
    pub watch_interval: Duration,
    /// The clock that decides what is due and expired: the wall clock.
    pub clock: Arc<dyn Clock>,
}

/// Settings of a PostgreSQL provider.
#[cfg(feature = "postgres")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresConfig {
    /// The schema with the tables, created if it is missing: `coordination`.
    pub schema: SchemaName,
    /// The most connections: 10. One more listens while a worker waits for work.
    pub connections_max: u32,
    /// How long a call waits for a connection: 5 s.
    pub connect_timeout: Duration,
    /// How long a call waits for its answer: 30 s. A statement of a migration may take longer.
    pub answer_timeout: Duration,
}

/// The name of a schema: lower-case letters, digits and underscores, beginning with a letter, and
/// not with `pg_`, which is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SchemaName(String);

/// Why a schema's name was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "invalid_schema_name: {text:?}; 1 to {SCHEMA_NAME_BYTES_MAX} lower-case letters, digits and \
     underscores are allowed, beginning with a letter and not with pg_"
)]
pub struct InvalidSchemaName {
    /// The name asked for.
    pub text: String,
}

/// Why a provider could not be opened. `database` is named without its password.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the fields are named for what they hold")]
pub enum OpenError {
    /// The URL is invalid. It is not shown, because it may contain a password.
    #[error("invalid_database_url: {reason}")]
    InvalidUrl { reason: String },
    /// A setting is out of its range.
    #[error("invalid_setting: {name} must be at least 1")]
    ZeroSetting { name: &'static str },
    /// The file or server is unreachable, or refused access.
    #[error("database_unavailable: {database}: {source}")]
    Unavailable { database: String, source: DatabaseError },
    /// A newer program migrated the tables to a version that this one does not know.
    #[error(
        "migration_too_new: {database} is at version {found}, this program knows up to {known}; run \
         the program that migrated it, or a newer one"
    )]
    TooNew { database: String, found: i64, known: i64 },
    /// The tables are missing or older than this program, and the provider was opened without
    /// migrating or the role may not migrate.
    #[error(
        "migration_needed: {database} is at version {found}, this program needs {known}; run \
         PostgresProvider::migrate, or the SQL of PostgresProvider::migration_sql(&schema, \
         {found}), as a role that may create tables there"
    )]
    MigrationNeeded {
        database: String,
        /// The newest version there; 0 without any tables.
        found: i64,
        known: i64,
    },
    /// A migration failed.
    #[error("migration_failed: {database}: version {version}: {source}")]
    Migration { database: String, version: i64, source: DatabaseError },
}

impl OpenError {
    /// Refuses the first of these settings that is zero.
    fn refuse_zeros(settings: &[(&'static str, bool)]) -> Result<(), OpenError> {
        match settings.iter().find(|(_, is_zero)| *is_zero) {
            Some((name, _)) => Err(OpenError::ZeroSetting { name }),
            None => Ok(()),
        }
    }
}

#[cfg(feature = "sqlite")]
impl Default for SqliteConfig {
    fn default() -> SqliteConfig {
        SqliteConfig {
            busy_timeout: Duration::from_secs(10),
            survives_power_loss: true,
            other_connections_max: 8,
            watch_interval: Duration::from_millis(20),
            clock: Arc::new(WallClock),
        }
    }
}

#[cfg(feature = "sqlite")]
impl SqliteConfig {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        OpenError::refuse_zeros(&[
            ("busy_timeout", self.busy_timeout.is_zero()),
            ("other_connections_max", self.other_connections_max == 0),
            ("watch_interval", self.watch_interval.is_zero()),
        ])
    }
}

#[cfg(feature = "postgres")]
impl Default for PostgresConfig {
    fn default() -> PostgresConfig {
        PostgresConfig {
            schema: SchemaName::default(),
            connections_max: 10,
            connect_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(30),
        }
    }
}

#[cfg(feature = "postgres")]
impl PostgresConfig {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        OpenError::refuse_zeros(&[
            ("connections_max", self.connections_max == 0),
            ("connect_timeout", self.connect_timeout.is_zero()),
            ("answer_timeout", self.answer_timeout.is_zero()),
        ])
    }
}

impl SchemaName {
    /// The schema with this name.
    ///
    /// # Errors
    /// [`InvalidSchemaName`], which says what is allowed.
    pub fn new(text: impl AsRef<str>) -> Result<SchemaName, InvalidSchemaName> {
        let text = text.as_ref();
        let fits = text.len() <= SCHEMA_NAME_BYTES_MAX
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && !text.starts_with("pg_")
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        if fits {
            Ok(SchemaName(text.to_owned()))
        } else {
            Err(InvalidSchemaName { text: text.to_owned() })
        }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SchemaName {
    fn default() -> SchemaName {
        SchemaName("coordination".to_owned())
    }
}

impl fmt::Display for SchemaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_name_needs_no_quotes() {
        for name in ["coordination", "a", "team_7", &"s".repeat(SCHEMA_NAME_BYTES_MAX)] {
            assert_eq!(SchemaName::new(name).unwrap().as_str(), name);
        }
        let too_long = "s".repeat(SCHEMA_NAME_BYTES_MAX + 1);
        for name in ["", "7up", "_x", "Orders", "a-b", "a b", "a\";drop", "pg_x", "ä", &too_long] {
            assert_eq!(SchemaName::new(name), Err(InvalidSchemaName { text: name.to_owned() }));
        }
    }

    #[cfg(feature = "sqlite")]
    #[test]
    fn a_setting_of_zero_is_refused_by_name() {
        let config = SqliteConfig { busy_timeout: Duration::ZERO, ..SqliteConfig::default() };
        let refused = config.check().unwrap_err().to_string();
        assert_eq!(refused, "invalid_setting: busy_timeout must be at least 1");
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn a_pool_without_connections_is_refused() {
        let config = PostgresConfig { connections_max: 0, ..PostgresConfig::default() };
        let refused = config.check().unwrap_err().to_string();
        assert_eq!(refused, "invalid_setting: connections_max must be at least 1");
    }
}
