//! Where a provider keeps its data, told from one process to the next.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use coordination::{Inbox, InboxKey, Joins, OwnerToken};
use coordination_sql::sqlx;
use coordination_sql::{
    PostgresConfig, PostgresProvider, SchemaName, SqliteConfig, SqliteProvider,
};
use tempfile::TempDir;
use testkit::postgres::TestSchema;

/// How long a call may wait for its turn among many on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
pub enum Place {
    Postgres { url: String, schema: String },
    Sqlite { file: PathBuf },
}

/// Keeps what is at a place until it is dropped.
#[derive(Debug)]
pub struct Keeper {
    pub place: Place,
    _until_dropped: Kept,
}

#[derive(Debug)]
enum Kept {
    Schema(#[expect(dead_code, reason = "it is dropped")] TestSchema),
    Folder(#[expect(dead_code, reason = "it is dropped")] TempDir),
}

/// What the tests use of a provider, and an application's table beside its own: a journal of what
/// was handled, without a unique index, so that what is handled twice is there twice.
pub trait Provider: Joins + Inbox + Clone {
    /// Makes the journal.
    fn make_journal(&self) -> impl Future<Output = ()> + Send;

    /// Writes a claimed message into the journal and acknowledges it, both or neither.
    fn journal(&self, owner: &OwnerToken, key: &InboxKey) -> impl Future<Output = ()> + Send;

    /// The source's IDs of the messages in the journal.
    fn journalled(&self) -> impl Future<Output = Vec<String>> + Send;
}

/// Runs an async function with the provider at a place as its first argument.
#[macro_export]
macro_rules! on_provider {
    ($place:expr, $run:path $(, $argument:expr)*) => {
        match $place {
            $crate::place::Place::Postgres { url, schema } => {
                $run($crate::place::open_postgres(url, schema).await $(, $argument)*).await
            }
            $crate::place::Place::Sqlite { file } => {
                $run($crate::place::open_sqlite(file).await $(, $argument)*).await
            }
        }
    };
}

pub async fn open_postgres(url: &str, schema: &str) -> PostgresProvider {
    // The application's own table is in the same schema, so that it goes with it.
    let separator = if url.contains('?') { '&' } else { '?' };
    let url = format!("{url}{separator}options[search_path]={schema}");
    let schema = SchemaName::new(schema).unwrap();
    let config = PostgresConfig {
        schema,
        connections_max: 4,
        connect_timeout: PATIENCE,
        answer_timeout: PATIENCE,
    };
    PostgresProvider::connect_with(&url, config).await.unwrap()
}

pub async fn open_sqlite(file: &PathBuf) -> SqliteProvider {
    // Processes are killed here, not machines.
    let config = SqliteConfig {
        survives_power_loss: false,
        busy_timeout: PATIENCE,
        ..SqliteConfig::default()
    };
    SqliteProvider::open_with(file, config).await.unwrap()
}

/// The same for both providers; only the types of the driver differ.
macro_rules! with_journal {
    ($provider:ty) => {
        impl Provider for $provider {
            async fn make_journal(&self) {
                let make = "CREATE TABLE journal (message_id TEXT NOT NULL)";
                sqlx::query(make).execute(self.pool()).await.unwrap();
            }

            async fn journal(&self, owner: &OwnerToken, key: &InboxKey) {
                let mut transaction = self.begin().await.unwrap();
                let insert = sqlx::query("INSERT INTO journal (message_id) VALUES ($1)");
                let insert = insert.bind(key.message_id.as_str());
                insert.execute(&mut *transaction).await.unwrap();
                let acknowledged =
                    self.ack_in(&mut transaction, owner, std::slice::from_ref(key)).await;
                match acknowledged.unwrap() {
                    0 => transaction.rollback().await.unwrap(),
                    _ => transaction.commit().await.unwrap(),
                }
            }

            async fn journalled(&self) -> Vec<String> {
                let query = sqlx::query_scalar("SELECT message_id FROM journal");
                query.fetch_all(self.pool()).await.unwrap()
            }
        }
    };
}

with_journal!(PostgresProvider);
with_journal!(SqliteProvider);

impl Place {
    /// A schema of its own.
    pub fn postgres() -> Keeper {
        let schema = TestSchema::new();
        let place =
            Place::Postgres { url: schema.url().to_owned(), schema: schema.name().to_owned() };
        Keeper { place, _until_dropped: Kept::Schema(schema) }
    }

    /// A file in a folder of its own.
    pub fn sqlite() -> Keeper {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Sqlite { file: folder.path().join("coordination.db") };
        Keeper { place, _until_dropped: Kept::Folder(folder) }
    }

    /// For people.
    pub fn kind(&self) -> &'static str {
        match self {
            Place::Postgres { .. } => "PostgreSQL",
            Place::Sqlite { .. } => "SQLite",
        }
    }

    /// Reads what `Display` wrote.
    pub fn parse(text: &str) -> Place {
        let (kind, rest) = text.split_once(' ').unwrap();
        match (kind, rest.split_once(' ')) {
            ("sqlite", _) => Place::Sqlite { file: rest.into() },
            ("postgres", Some((schema, url))) => {
                Place::Postgres { url: url.into(), schema: schema.into() }
            }
            _ => panic!("not a place: {text}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Postgres { url, schema } => write!(f, "postgres {schema} {url}"),
            Place::Sqlite { file } => write!(f, "sqlite {}", file.display()),
        }
    }
}
