//! A schema of a test's own.

use std::thread;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::server::server_url;

/// The name of a schema that nobody else uses. It does not exist yet; it is dropped, with all that
/// is in it, when this is.
#[derive(Debug)]
pub struct TestSchema {
    url: String,
    name: String,
}

impl TestSchema {
    /// A schema on the server that the tests of this process share.
    ///
    /// # Panics
    /// As [`server_url`].
    pub fn new() -> Self {
        Self::at(server_url())
    }

    /// A schema on a server.
    pub fn at(url: impl Into<String>) -> Self {
        let name = format!("test_{}_{:016x}", std::process::id(), fastrand::u64(..));
        Self { url: url.into(), name }
    }

    /// Where to connect.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its name, which needs no quotes.
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn drop_schema(url: &str, name: &str) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(url).await?;
        // A transaction that a test left open must not hold up the others for ever.
        let drop_it = format!("SET lock_timeout = '10s'; DROP SCHEMA IF EXISTS {name} CASCADE");
        // The name is ours: letters, digits and underscores.
        sqlx::raw_sql(AssertSqlSafe(drop_it)).execute(&mut connection).await?;
        connection.close().await
    }
}

impl Default for TestSchema {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestSchema {
    #[expect(clippy::print_stderr, reason = "whoever runs the tests may have to clean up")]
    fn drop(&mut self) {
        let (url, name) = (&self.url, &self.name);
        // On a thread of its own, because this may be dropped inside a runtime.
        let dropped = thread::scope(|scope| {
            let dropping = scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime can be made").block_on(Self::drop_schema(url, name))
            });
            dropping.join()
        });
        match dropped {
            Ok(Ok(())) => {}
            Ok(Err(error)) => eprintln!("schema {name} was not dropped: {error}"),
            Err(_panic) => eprintln!("schema {name} was not dropped"),
        }
    }
}
