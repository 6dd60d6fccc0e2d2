//! Servers that are one cluster.

use super::server::{Persistence, TestRedis};
use crate::eventually;

const SLOTS: usize = 16_384;
/// Longer than any test: a busy machine does not make a node fail for the others.
const NODE_TIMEOUT_MS: &str = "600000";

/// Some primaries, each with an equal part of the slots, and replicas.
#[derive(Debug)]
pub struct TestCluster {
    /// The primaries in the order of their slots, then the replicas.
    pub nodes: Vec<TestRedis>,
    primary_count: usize,
}

/// A slot on its way from one node to another.
#[derive(Debug)]
#[must_use]
pub struct SlotMove<'c> {
    slot: String,
    source: &'c TestRedis,
    target: &'c TestRedis,
}

impl TestCluster {
    /// Starts a cluster and waits until each node serves its slots.
    ///
    /// # Panics
    /// As [`TestRedis::start`].
    pub async fn start(node_count: usize) -> Self {
        let nodes: Vec<_> = std::iter::repeat_with(start_node).take(node_count).collect();
        for (index, node) in nodes.iter().enumerate() {
            let first = (index * SLOTS / node_count).to_string();
            let last = ((index + 1) * SLOTS / node_count - 1).to_string();
            node.expect_ok(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
            node.expect_ok(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            nodes[..index].iter().for_each(|other| node.meet(other));
        }
        let cluster = Self { nodes, primary_count: node_count };
        cluster.know_each_other().await;
        cluster
    }

    /// The node that has a key.
    ///
    /// # Panics
    /// It cannot be reached.
    pub fn owner_of(&self, key: &str) -> usize {
        let has_it =
            |node: &TestRedis| matches!(node.command(&["EXISTS", key]).as_str(), "0" | "1");
        self.nodes.iter().position(has_it).expect("all slots are served")
    }

    /// Adds a replica of a node, and waits until it has its data.
    ///
    /// # Panics
    /// As [`TestRedis::start`], and as [`TestRedis::catch_up`].
    pub async fn add_replica(&mut self, of: usize) -> &TestRedis {
        let replica = start_node();
        self.nodes.iter().for_each(|node| replica.meet(node));
        self.nodes.push(replica);
        self.know_each_other().await;
        let (replica, primary) = (&self.nodes[self.nodes.len() - 1], &self.nodes[of]);
        replica.expect_ok(&["CLUSTER", "REPLICATE", &primary.node_id()]);
        replica.catch_up(primary).await;
        replica
    }

    /// Begins to move the slot of a key to the primary after its owner.
    ///
    /// # Panics
    /// A node refuses.
    pub fn begin_move(&self, key: &str) -> SlotMove<'_> {
        let owner = self.owner_of(key);
        let (source, target) = (&self.nodes[owner], &self.nodes[(owner + 1) % self.primary_count]);
        let slot = source.command(&["CLUSTER", "KEYSLOT", key]);
        target.expect_ok(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source.node_id()]);
        source.expect_ok(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target.node_id()]);
        SlotMove { slot, source, target }
    }

    /// The URL that names some of its nodes.
    pub fn url<'n>(nodes: impl IntoIterator<Item = &'n TestRedis>) -> String {
        let addrs: Vec<_> = nodes.into_iter().map(|node| node.addr().to_string()).collect();
        format!("redis+cluster://{}", addrs.join(","))
    }

    /// Waits until all nodes know each other, and that all slots are served.
    async fn know_each_other(&self) {
        let known = format!("cluster_known_nodes:{}", self.nodes.len());
        for node in &self.nodes {
            eventually("the nodes know each other", async || {
                let state = node.command(&["CLUSTER", "INFO"]);
                let has = |line: &str| state.lines().any(|one| one == line);
                has("cluster_state:ok") && has("cluster_slots_ok:16384") && has(&known)
            })
            .await;
        }
    }
}

impl<'c> SlotMove<'c> {
    /// Moves some of the keys that are left; false if there are none.
    ///
    /// # Panics
    /// A node refuses.
    #[must_use]
    pub fn move_keys(&self, count_max: usize) -> bool {
        let look = ["CLUSTER", "GETKEYSINSLOT", &self.slot, &count_max.to_string()];
        let keys = self.source.command(&look);
        let port = self.target.addr().port().to_string();
        let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "60000", "KEYS"];
        let words: Vec<_> = migrate.into_iter().chain(keys.lines()).collect();
        if words.len() == migrate.len() {
            return false;
        }
        let reply = self.source.command(&words);
        // Some may have lapsed since.
        assert!(matches!(reply.as_str(), "OK" | "NOKEY"), "{reply}");
        true
    }

    /// From now on the other node serves the slot. Returns both: the one before, and the one now.
    ///
    /// # Panics
    /// A node refuses.
    pub fn finish(self) -> (&'c TestRedis, &'c TestRedis) {
        for node in [self.target, self.source] {
            let id = self.target.node_id();
            node.expect_ok(&["CLUSTER", "SETSLOT", &self.slot, "NODE", &id]);
        }
        (self.source, self.target)
    }
}

impl TestRedis {
    /// Its name in its cluster.
    ///
    /// # Panics
    /// It cannot be reached.
    pub fn node_id(&self) -> String {
        self.command(&["CLUSTER", "MYID"])
    }

    fn meet(&self, other: &Self) {
        let bus = other.second_addr().expect("it was started as a node").port().to_string();
        let (host, port) = (other.addr().ip().to_string(), other.addr().port().to_string());
        self.expect_ok(&["CLUSTER", "MEET", &host, &port, &bus]);
    }
}

fn start_node() -> TestRedis {
    let cluster = ["--cluster-enabled", "yes", "--cluster-node-timeout", NODE_TIMEOUT_MS];
    let bus = |port: u16| vec!["--cluster-port".to_owned(), port.to_string()];
    TestRedis::start_listening(Persistence::None, &cluster, Some(&bus))
}
