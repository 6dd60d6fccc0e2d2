//! PostgreSQL: a schema on the server that all tests share, or on a server of a test's own.

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection, Row};
use testkit::Proxy;
use testkit::postgres::{Durability, TestCluster, TestSchema};

use crate::registry::database::{Damage, Database, Proxied};

/// The name that clients expect in the folder of a server's socket.
const SOCKET: &str = ".s.PGSQL.5432";

/// A schema of a test's own, which exists. It goes first, since it is dropped on the cluster.
pub struct PostgresDatabase {
    schema: TestSchema,
    cluster: Option<TestCluster>,
}

impl PostgresDatabase {
    async fn in_schema(schema: TestSchema, cluster: Option<TestCluster>) -> Self {
        let database = Self { schema, cluster };
        let name = database.schema.name();
        database.execute(&format!("CREATE SCHEMA {name}")).await;
        database
    }

    /// The server of the test's own.
    pub fn cluster(&mut self) -> &mut TestCluster {
        self.cluster.as_mut().unwrap()
    }

    /// The URL of a registry as another role, which is created with these rights. Only on a server of a test's own: roles
    /// are the server's, not the schema's.
    pub async fn url_as(&self, user: &str, grants: &[&str]) -> String {
        let role = self.role(user);
        self.execute(&format!("CREATE ROLE {role} LOGIN")).await;
        for grant in grants {
            self.execute(&format!("GRANT {grant} TO {role}")).await;
        }
        self.url(user).replace("user=postgres", &format!("user={role}"))
    }

    /// The name of a role or a connection, which no other test uses.
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
    pub async fn terminate(&self, name: &str) {
        self.execute(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{}'",
            self.role(name)
        ))
        .await;
    }

    /// Starts a transaction, which ends with the connection.
    pub async fn begin(&self, statement: &str) -> PgConnection {
        let mut connection = PgConnection::connect(&self.url("test")).await.unwrap();
        let statement = AssertSqlSafe(format!("BEGIN; {statement}"));
        sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
        connection
    }

    pub async fn is_true(&self, query: &str) -> bool {
        is_true(&self.url("test"), query).await
    }

    pub async fn text(&self, column: &str) -> Option<String> {
        let mut connection = PgConnection::connect(&self.url("test")).await.unwrap();
        let query = format!("SELECT {column} FROM ratelimiter_registry");
        let row = sqlx::query(AssertSqlSafe(query)).fetch_one(&mut connection).await.unwrap();
        row.get(0)
    }
}

impl Database for PostgresDatabase {
    const SCHEME: &'static str = "postgresql://";

    async fn new() -> Self {
        Self::in_schema(TestSchema::new(), None).await
    }

    async fn on_own_server() -> Self {
        let cluster = TestCluster::start(Durability::ServerCrash);
        Self::in_schema(TestSchema::at(cluster.url()), Some(cluster)).await
    }

    fn url(&self, name: &str) -> String {
        let (url, schema, name) = (self.schema.url(), self.schema.name(), self.role(name));
        let separator = if url.contains('?') { '&' } else { '?' };
        format!("{url}{separator}application_name={name}&options[search_path]={schema}")
    }

    async fn url_of_user(&self, user: &str) -> String {
        let all = format!("ALL ON SCHEMA {}", self.schema());
        self.url_as(user, &[&all]).await
    }

    fn behind_proxy(&self) -> Proxied {
        let (server, folder) =
            (self.cluster.as_ref().unwrap().folder(), tempfile::tempdir().unwrap());
        let [from, to] = [server, folder.path()].map(|folder| format!("host={}", folder.display()));
        let proxy = Proxy::unix(&folder.path().join(SOCKET), server.join(SOCKET));
        Proxied { proxy, url: self.url("cut").replace(&from, &to), _folder: Some(folder) }
    }

    async fn lock_out(&self, user: &str) {
        self.execute(&format!("ALTER ROLE {} NOLOGIN", self.role(user))).await;
        self.terminate(user).await;
    }

    async fn let_in(&self, user: &str) {
        self.execute(&format!("ALTER ROLE {} LOGIN", self.role(user))).await;
    }

    /// It goes with the connection.
    async fn take_lock_from(&self, name: &str) {
        self.terminate(name).await;
    }

    fn crash(&mut self) {
        self.cluster().crash();
    }

    fn start_again(&mut self) {
        self.cluster().start_again();
    }

    async fn is_untouched(&self) -> bool {
        self.is_true("SELECT to_regclass('ratelimiter_registry') IS NULL").await
    }

    async fn document(&self) -> String {
        self.text("document").await.unwrap()
    }

    async fn version(&self) -> i64 {
        self.text("version::text").await.unwrap().parse().unwrap()
    }

    async fn is_staged(&self) -> bool {
        self.text("staged_as").await.is_some()
    }

    async fn write_by_hand(&self, document: &str) {
        self.execute(&format!(
            "INSERT INTO ratelimiter_registry AS old (id, version, document) VALUES (1, 1, '{document}') \
             ON CONFLICT (id) DO UPDATE SET document = excluded.document, version = old.version + 1"
        ))
        .await;
    }

    async fn damage(&self, damage: Damage) {
        self.execute(match damage {
            Damage::Unreadable => {
                "UPDATE ratelimiter_registry SET document = '[ {', version = version + 1"
            }
            Damage::NoText => {
                "UPDATE ratelimiter_registry SET document = NULL, version = version + 1"
            }
            Damage::Nothing => "DELETE FROM ratelimiter_registry",
        })
        .await;
    }

    async fn back_up(&self) {
        self.execute("CREATE TABLE backup AS SELECT * FROM ratelimiter_registry").await;
    }

    async fn restore(&self) {
        self.execute(
            "DELETE FROM ratelimiter_registry; INSERT INTO ratelimiter_registry SELECT * FROM backup",
        )
        .await;
    }
}

pub async fn execute(url: &str, statement: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let statement = AssertSqlSafe(statement.to_owned());
    sqlx::raw_sql(statement).execute(&mut connection).await.unwrap();
}

pub async fn is_true(url: &str, query: &str) -> bool {
    let mut connection = PgConnection::connect(url).await.unwrap();
    sqlx::query_scalar(AssertSqlSafe(query.to_owned())).fetch_one(&mut connection).await.unwrap()
}
