//! The database of a test: a schema on the server that all tests share, or a server of its own.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use testkit::postgres::{Durability, TestCluster, TestSchema};

/// A schema of a test's own, which exists.
pub struct TestDatabase {
    schema: TestSchema,
}

impl TestDatabase {
    pub async fn new() -> Self {
        Self::in_schema(TestSchema::new()).await
    }

    /// On a server of the test's own, which must outlive it.
    pub async fn on_own_server() -> (TestCluster, Self) {
        let cluster = TestCluster::start(Durability::ServerCrash);
        let database = Self::in_schema(TestSchema::at(cluster.url())).await;
        (cluster, database)
    }

    async fn in_schema(schema: TestSchema) -> Self {
        let database = Self { schema };
        let name = database.schema.name();
        database.execute(&format!("CREATE SCHEMA {name}")).await;
        database
    }

    /// The URL of a registry, for a connection that this test can name.
    pub fn url(&self, application_name: &str) -> String {
        let (url, schema) = (self.schema.url(), self.schema.name());
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}application_name={application_name}&options[search_path]={schema}")
    }

    /// The same as another role, which is created with these rights. Only on a server of a test's own: roles are the
    /// server's, not the schema's.
    pub async fn url_as(&self, role: &str, grants: &[&str]) -> String {
        let role = self.role(role);
        self.execute(&format!("CREATE ROLE {role} LOGIN")).await;
        for grant in grants {
            self.execute(&format!("GRANT {grant} TO {role}")).await;
        }
        self.url(&role).replace("user=postgres", &format!("user={role}"))
    }

    /// A role that may create and change a registry here: its URL and its name.
    pub async fn create_writer(&self, name: &str) -> (String, String) {
        let all = format!("ALL ON SCHEMA {}", self.schema());
        (self.url_as(name, &[&all]).await, self.role(name))
    }

    /// A name that no other test uses.
    pub fn role(&self, name: &str) -> String {
        format!("{}_{name}", self.schema.name())
    }

    pub fn schema(&self) -> &str {
        self.schema.name()
    }

    pub async fn execute(&self, statement: &str) {
        execute(&self.url("test"), statement).await;
    }

    /// Ends the connections of a server.
    pub async fn terminate(&self, application_name: &str) {
        self.execute(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{application_name}'"
        ))
        .await;
    }

    pub async fn document(&self) -> String {
        self.text("document").await.unwrap()
    }

    pub async fn is_staged(&self) -> bool {
        self.text("staged_as").await.is_some()
    }

    pub async fn version(&self) -> i64 {
        self.text("version::text").await.unwrap().parse().unwrap()
    }

    /// Starts a transaction, which ends with the connection.
    pub async fn begin(&self, statement: &str) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url("test")).await.unwrap();
        let statement = AssertSqlSafe(format!("BEGIN; {statement}"));
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
        connection
    }

    pub async fn is_true(&self, query: &'static str) -> bool {
        is_true(&self.url("test"), query).await
    }

    pub async fn has_table(&self) -> bool {
        let exists = "SELECT to_regclass('ratelimiter_registry') IS NOT NULL";
        is_true(&self.url("test"), exists).await
    }

    pub async fn text(&self, column: &str) -> Option<String> {
        let mut connection = PgConnection::connect(&self.url("test")).await.unwrap();
        let query = format!("SELECT {column} FROM ratelimiter_registry");
        let row = sqlx::query(AssertSqlSafe(query)).fetch_one(&mut connection).await.unwrap();
        row.get(0)
    }
}

pub async fn execute(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
}

pub async fn is_true(url: &str, query: &'static str) -> bool {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap()
}
