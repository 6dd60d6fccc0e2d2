//! Servers that follow another one.

use std::net::SocketAddr;

use super::server::{Persistence, TestRedis};
use crate::eventually;

/// Nobody listens there.
const NOWHERE: [&str; 3] = ["REPLICAOF", "127.0.0.1", "1"];

impl TestRedis {
    /// Starts a replica of this server and waits until it has its data.
    ///
    /// # Panics
    /// As [`TestRedis::start`], and as [`TestRedis::catch_up`].
    pub async fn start_replica(&self, persistence: Persistence) -> Self {
        let replica = Self::start(persistence);
        replica.follow(self).await;
        replica
    }

    /// Becomes a replica of another server, also again after [`TestRedis::cut_replication`]. Waits until it has its data.
    ///
    /// # Panics
    /// As [`TestRedis::catch_up`].
    pub async fn follow(&self, primary: &Self) {
        self.replicate(primary.addr());
        self.catch_up(primary).await;
    }

    /// Becomes a replica of the server at this address, or behind it, and does not wait for its data.
    ///
    /// # Panics
    /// The server refuses.
    pub fn replicate(&self, primary: SocketAddr) {
        let (host, port) = (primary.ip().to_string(), primary.port().to_string());
        self.expect_ok(&["REPLICAOF", &host, &port]);
    }

    /// Waits until this replica has everything that the other server had written when this was called, and gets what that writes from now on.
    /// For up to a second after a full copy both believe so, and nothing is sent before the replica's next acknowledgement.
    ///
    /// # Panics
    /// It does not within [`PATIENCE`](crate::PATIENCE), or one of them is not running.
    pub async fn catch_up(&self, primary: &Self) {
        let online = format!(",port={},state=online,", self.addr().port());
        eventually("the replica is online", async || {
            primary.command(&["INFO", "replication"]).contains(&online)
        })
        .await;
        // It is sent to replicas and changes nothing.
        primary.command(&["PUBLISH", "testkit:catch_up", ""]);
        let written: u64 = primary.replication("master_repl_offset").parse().expect("a number");
        eventually("the replica is in sync", async || {
            let has_read = self.replication("slave_repl_offset").parse::<u64>();
            self.replication("master_link_status") == "up"
                && has_read.is_ok_and(|offset| offset >= written)
        })
        .await;
    }

    /// Loses its primary: it stays a replica, with the data that it has. [`TestRedis::follow`] ends that.
    ///
    /// # Panics
    /// The server refuses.
    pub fn cut_replication(&self) {
        self.expect_ok(&NOWHERE);
    }

    /// A replica becomes a primary, with the data that it has.
    ///
    /// # Panics
    /// The server refuses.
    pub fn promote(&self) {
        self.expect_ok(&["REPLICAOF", "NO", "ONE"]);
    }

    /// A field of `INFO replication`; empty if there is none.
    pub fn replication(&self, field: &str) -> String {
        let reply = self.command(&["INFO", "replication"]);
        let value = |line: &str| line.strip_prefix(field)?.strip_prefix(':').map(str::to_owned);
        reply.lines().find_map(value).unwrap_or_default()
    }

    /// Sends a command that answers `OK`.
    ///
    /// # Panics
    /// It does not.
    pub(super) fn expect_ok(&self, words: &[&str]) {
        let reply = self.command(words);
        assert!(reply.starts_with("OK"), "{words:?} at {}: {reply}", self.addr());
    }
}
