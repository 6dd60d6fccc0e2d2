//! A temporary cluster of one or three replicas.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter_tigerbeetle::ledger::cluster::ClusterSettings;
use tempfile::TempDir;

use super::binary::find_binary;
use super::replica::{Mode, Replica};

/// Request timeout of tests: a development server on a busy disk pauses for seconds at a
/// checkpoint, and few tests are about that.
const REQUEST_TIMEOUT_MS: u64 = 60_000;
/// The most attempts to find free ports. Another program may take one before its server does.
const PORT_ATTEMPTS_MAX: usize = 20;

static CLUSTERS_STARTED: AtomicU64 = AtomicU64::new(0);

/// A temporary cluster; its servers and files are removed on drop.
#[derive(Debug)]
pub struct TestCluster {
    cluster_id: u128,
    // Drop order: first the servers, then their files.
    replicas: Vec<Replica>,
    ports: Vec<u16>,
    _directory: TempDir,
}

impl TestCluster {
    /// Starts one server on a port that it chooses.
    ///
    /// # Panics
    /// There is no server binary, or the server does not start.
    pub fn start(mode: Mode) -> Self {
        let mut cluster = Self::format(mode, 1);
        let port = cluster.replicas[0].start("0").expect("a port that the server chooses is free");
        cluster.ports = vec![port.expect("the server chooses a port for the address 0")];
        cluster
    }

    /// Starts three servers, of which one may be lost.
    ///
    /// # Panics
    /// There is no server binary, or a server does not start.
    pub fn start_three(mode: Mode) -> Self {
        let mut cluster = Self::format(mode, 3);
        let all_start = (0..PORT_ATTEMPTS_MAX).any(|_| cluster.start_on(free_ports()));
        assert!(all_start, "ports are taken: {cluster:?}");
        cluster
    }

    /// Starts all servers; none if a port is taken.
    fn start_on(&mut self, ports: Vec<u16>) -> bool {
        self.ports = ports;
        let addresses = self.addresses().join(",");
        let all_start = self.replicas.iter_mut().all(|one| one.start(&addresses).is_some());
        if !all_start {
            self.replicas.iter_mut().for_each(Replica::kill);
        }
        all_start
    }

    fn format(mode: Mode, count: usize) -> Self {
        let binary = find_binary().expect("a suite runs its tests only with a server binary");
        let directory = tempfile::tempdir().expect("there is room for a data file");
        // A unique number, so that a client of another cluster is never accepted.
        let cluster_id = u128::from(CLUSTERS_STARTED.fetch_add(1, Ordering::Relaxed)) << 32
            | u128::from(std::process::id());
        let replica =
            |index| Replica::format(&binary, directory.path(), mode, cluster_id, index, count);
        let replicas = (0..count).map(replica).collect();
        Self { cluster_id, replicas, ports: Vec::new(), _directory: directory }
    }

    /// The number that the cluster was formatted with.
    pub fn cluster_id(&self) -> u128 {
        self.cluster_id
    }

    /// The address of each replica.
    pub fn addresses(&self) -> Vec<String> {
        self.ports.iter().map(|port| format!("127.0.0.1:{port}")).collect()
    }

    /// The default settings for this cluster, with a request timeout of a minute.
    pub fn settings(&self) -> ClusterSettings {
        let settings = ClusterSettings::new(self.cluster_id, self.addresses());
        ClusterSettings { request_timeout_ms: REQUEST_TIMEOUT_MS, ..settings }
    }

    /// `SIGSTOP`: the server neither answers nor closes connections.
    pub fn pause(&self, replica: usize) {
        self.replicas[replica].process().signal("STOP");
    }

    /// `SIGCONT`.
    pub fn resume(&self, replica: usize) {
        self.replicas[replica].process().signal("CONT");
    }

    /// `kill -9`.
    pub fn kill(&mut self, replica: usize) {
        self.replicas[replica].kill();
    }

    /// Starts a killed replica on its previous port.
    ///
    /// # Panics
    /// It does not start, or the port stays taken.
    pub fn restart(&mut self, replica: usize) {
        let addresses = self.addresses().join(",");
        let mut starts = 0..PORT_ATTEMPTS_MAX;
        let started = starts.find_map(|_| self.replicas[replica].start(&addresses));
        assert!(started.is_some(), "the port is taken: {self:?}");
    }
}

/// Three ports that are free at the moment.
fn free_ports() -> Vec<u16> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("ports are free"));
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    listeners.iter().map(port).collect()
}
