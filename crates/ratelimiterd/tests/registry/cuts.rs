//! Connections that end, or stall, at any moment of a change.

use testkit::{eventually, run};

use super::database::{Database, Proxied};
use super::deployment::{Asked, MemoryServer, SharedServer, definition, expect_capacity};
use super::ledger::SharedLedger;

/// More answers than a change has; ticks have some too, so it is tried more than once.
const ANSWERS_MAX: usize = 12;
const ROUNDS_MAX: usize = 50;
/// More answers than a change of a memory server has.
const KILLED_ANSWERS_MAX: usize = 5;

struct Cut<D> {
    proxied: Proxied,
    database: D,
}

impl<D: Database> Cut<D> {
    async fn new() -> Self {
        let database = D::on_own_server().await;
        Self { proxied: database.behind_proxy(), database }
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
            self.proxied.proxy.cut_at_answer(number);
            let (status, body) = at.put("k", new).await;
            cuts += usize::from(self.proxied.proxy.take_lost());
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
pub fn reg_01_a_change_at_a_memory_server_ends_as_its_answer_says_wherever_the_connection_ends<
    D: Database,
>() {
    run(async {
        let cut = Cut::<D>::new().await;
        let folder = tempfile::tempdir().unwrap();
        let server = MemoryServer::start(&cut.proxied.url, folder.path());
        cut.try_all(&server, &[]).await;
    });
}

/// REG-01
pub fn reg_01_a_change_at_shared_servers_ends_as_its_answer_says_wherever_the_connection_ends<
    D: Database,
>() {
    run(async {
        let (cut, ledger) = (Cut::<D>::new().await, SharedLedger::new());
        let server = SharedServer::start(&cut.proxied.url, &ledger).await;
        let other = SharedServer::start(&cut.database.url("other"), &ledger).await;
        cut.try_all(&server, &[&other]).await;
    });
}

/// REG-01: `kill -9` while an answer is on its way, at each of the answers of a change.
pub fn reg_01_a_server_that_is_killed_in_a_change_leaves_the_old_or_the_new_document<
    D: Database,
>() {
    run(async {
        let folder = tempfile::tempdir().unwrap();
        let cut = Cut::<D>::new().await;
        let mut old = 1;
        for number in 1..=KILLED_ANSWERS_MAX {
            let server = MemoryServer::start(&cut.proxied.url, folder.path());
            server.define("k", old).await;
            cut.proxied.proxy.stall_at_answer(number);
            let (addr, new) = (server.addr(), old + 1);
            let change =
                move || testkit::ask(addr, "PUT", "/v1/admin/limits", &definition("k", new));
            let change = tokio::task::spawn_blocking(change);
            let is_reached = async || cut.proxied.proxy.was_lost() || change.is_finished();
            eventually("the answer is given", is_reached).await;
            server.kill();
            cut.database.end_ownership().await;
            let answer = change.await.unwrap();
            cut.proxied.proxy.take_lost();
            cut.proxied.proxy.stall(false);
            let next = MemoryServer::start(&cut.database.url("next"), folder.path());
            let holds = next.capacity("k").await.unwrap();
            assert_eq!(cut.stored_capacity().await, holds);
            assert!(!cut.database.is_staged().await, "{number}");
            eprintln!("killed at answer {number}: {answer:?}, and {holds} of {old} or {new} holds");
            match answer {
                Some((status, body)) => assert_eq!((status, holds), (200, new), "{body}"),
                None => assert!([old, new].contains(&holds), "{holds}"),
            }
            next.stop();
            old = holds;
        }
    });
}

/// REG-01: a database that neither answers nor refuses.
pub fn reg_01_a_database_that_hangs_does_not_stop_the_servers<D: Database>() {
    run(async {
        let (cut, ledger) = (Cut::<D>::new().await, SharedLedger::new());
        let server = SharedServer::start_impatient(&cut.proxied.url, &ledger).await;
        let other = SharedServer::start(&cut.database.url("other"), &ledger).await;
        server.insist_on_put("k", 7).await;
        expect_capacity(&other, "k", Some(7)).await;
        cut.proxied.proxy.stall(true);
        eventually("the loss is noticed", async || !server.is_connected().await).await;
        let (status, body) = server.put("k", 9).await;
        assert_eq!(status, 503, "{body}");
        assert!(body.contains("no answer "), "{body}");
        assert!(server.reserve(1, "k").await.1.contains("\"allowed\":true"));
        other.insist_on_put("k", 8).await;
        assert_eq!(server.capacity("k").await, Some(7));
        cut.proxied.proxy.stall(false);
        expect_capacity(&server, "k", Some(8)).await;
        server.insist_on_put("l", 1).await;
        expect_capacity(&other, "l", Some(1)).await;
    });
}
