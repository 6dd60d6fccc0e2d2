//! Connections that end, or stall, at any moment of a change.

use tempfile::TempDir;
use testkit::postgres::TestCluster;
use testkit::{Proxy, eventually, run};

use crate::database::TestDatabase;
use crate::deployment::{Asked, MemoryServer, SharedServer, expect_capacity};
use crate::ledger::SharedLedger;

/// The name that clients expect in the folder of a server's socket.
const SOCKET: &str = ".s.PGSQL.5432";
/// More answers than a change has; ticks have some too, so it is tried more than once.
const ANSWERS_MAX: usize = 12;
const ROUNDS_MAX: usize = 50;

/// The database goes first, since its schema is dropped on the cluster.
struct Cut {
    database: TestDatabase,
    proxy: Proxy,
    /// The folder of the proxy's socket.
    folder: TempDir,
    cluster: TestCluster,
}

impl Cut {
    async fn new() -> Self {
        let (cluster, database) = TestDatabase::on_own_server().await;
        let folder = tempfile::tempdir().unwrap();
        let proxy = Proxy::unix(&folder.path().join(SOCKET), cluster.folder().join(SOCKET));
        Self { database, proxy, folder, cluster }
    }

    /// The URL of a registry behind the proxy.
    fn url(&self) -> String {
        let [from, to] = [self.cluster.folder(), self.folder.path()]
            .map(|folder| format!("host={}", folder.display()));
        self.database.url("cut").replace(&from, &to)
    }

    async fn stored_capacity(&self) -> u64 {
        let document: serde_json::Value =
            serde_json::from_str(&self.database.document().await).unwrap();
        document["limits"][0]["capacity"].as_u64().unwrap()
    }

    /// Changes a limit while the connection ends at each of its answers, and compares what holds then with the answer.
    async fn try_all(&self, at: &impl Asked, others: &[&SharedServer]) {
        let (mut old, mut cuts, mut unknown) = (1, 0, 0);
        at.insist_on_put("k", old).await;
        for number in (0..ROUNDS_MAX).flat_map(|_| 1..=ANSWERS_MAX) {
            if number == 1 && unknown > 0 {
                break;
            }
            let new = old + 1;
            self.proxy.cut_at_answer(number);
            let (status, body) = at.put("k", new).await;
            cuts += usize::from(self.proxy.take_cut());
            let is_unknown = body.contains("not known yet");
            unknown += usize::from(is_unknown);
            let allowed = match (status, is_unknown) {
                (200, _) => vec![new],
                (503, false) => vec![old],
                (503, true) => vec![old, new],
                other => panic!("{other:?}: {body}"),
            };
            // A change of another limit goes through when everything before it is settled.
            at.insist_on_put("settled", new).await;
            let holds = self.stored_capacity().await;
            assert!(allowed.contains(&holds), "{number}: {body}: {holds} of {allowed:?}");
            expect_capacity(at, "k", Some(holds)).await;
            for other in others {
                expect_capacity(*other, "k", Some(holds)).await;
            }
            old = holds;
        }
        eprintln!("{cuts} connections were cut, {unknown} changes were unknown");
        assert!(cuts > 0 && unknown > 0, "a change has a moment whose outcome is unknown");
    }
}

/// REG-01
pub fn reg_01_a_change_at_a_memory_server_ends_as_its_answer_says_wherever_the_connection_ends() {
    run(async {
        let cut = Cut::new().await;
        let folder = tempfile::tempdir().unwrap();
        let server = MemoryServer::start(&cut.url(), folder.path());
        cut.try_all(&server, &[]).await;
    });
}

/// REG-01
pub fn reg_01_a_change_at_shared_servers_ends_as_its_answer_says_wherever_the_connection_ends() {
    run(async {
        let (cut, ledger) = (Cut::new().await, SharedLedger::new());
        let server = SharedServer::start(&cut.url(), &ledger).await;
        let other = SharedServer::start(&cut.database.url("other"), &ledger).await;
        cut.try_all(&server, &[&other]).await;
    });
}

/// REG-01: a database that neither answers nor refuses.
pub fn reg_01_a_database_that_hangs_does_not_stop_the_servers() {
    run(async {
        let (cut, ledger) = (Cut::new().await, SharedLedger::new());
        let server = SharedServer::start(&cut.url(), &ledger).await;
        let other = SharedServer::start(&cut.database.url("other"), &ledger).await;
        server.insist_on_put("k", 7).await;
        expect_capacity(&other, "k", Some(7)).await;
        cut.proxy.stall(true);
        eventually("the loss is noticed", async || !server.is_connected().await).await;
        let (status, body) = server.put("k", 9).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("no answer within"), "{body}");
        assert!(server.reserve(1, "k").await.1.contains("\"allowed\":true"));
        other.insist_on_put("k", 8).await;
        assert_eq!(server.capacity("k").await, Some(7));
        cut.proxy.stall(false);
        expect_capacity(&server, "k", Some(8)).await;
        server.insist_on_put("l", 1).await;
        expect_capacity(&other, "l", Some(1)).await;
    });
}
