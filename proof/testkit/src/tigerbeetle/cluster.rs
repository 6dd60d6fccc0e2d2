//! A throw-away cluster of one replica or more.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimiter_tigerbeetle::ledger::cluster::ClusterSettings;
use tempfile::TempDir;

use super::binary::find_binary;
use super::replica::{Mode, Replica};

/// How long a request of a test waits for its answer: a development server on a busy disk pauses
/// for seconds at a checkpoint, and few tests are about that.
const REQUEST_TIMEOUT_MS: u64 = 60_000;
/// How often ports are chosen for a cluster. Others may take one before its server does.
const CHOICES_MAX: usize = 20;

static CLUSTERS_STARTED: AtomicU64 = AtomicU64::new(0);

/// A throw-away cluster; its servers and files go when this is dropped.
#[derive(Debug)]
pub struct TestCluster {
    cluster_id: u128,
    // Fields are dropped in this order: first the servers, then their files.
    replicas: Vec<Replica>,
    ports: Vec<u16>,
    _directory: TempDir,
}

impl TestCluster {
    /// Starts one server on a port that it chooses.
    ///
    /// # Panics
    /// Without a server binary, or when the server does not start.
    pub fn start(mode: Mode) -> Self {
        let mut cluster = Self::format(mode, 1);
        let port = cluster.replicas[0].start("0").expect("a port that the server chooses is free");
        cluster.ports = vec![port.expect("the server chooses a port for the address 0")];
        cluster
    }

    /// Starts three servers, of which one may be lost.
    ///
    /// # Panics
    /// Without a server binary, or when a server does not start.
    pub fn start_three(mode: Mode) -> Self {
        let mut cluster = Self::format(mode, 3);
        let all_start = (0..CHOICES_MAX).any(|_| cluster.start_on(free_ports()));
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
        // A number of its own, so that a client of another cluster is never let in.
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

    /// The default settings for this cluster, but that requests wait a minute for their answers.
    pub fn settings(&self) -> ClusterSettings {
        let settings = ClusterSettings::new(self.cluster_id, self.addresses());
        ClusterSettings { request_timeout_ms: REQUEST_TIMEOUT_MS, ..settings }
    }

    /// `SIGSTOP`: the server neither answers nor goes away.
    pub fn pause(&self, replica: usize) {
        self.replicas[replica].pause();
    }

    /// `SIGCONT`.
    pub fn resume(&self, replica: usize) {
        self.replicas[replica].resume();
    }

    /// `kill -9`.
    pub fn kill(&mut self, replica: usize) {
        self.replicas[replica].kill();
    }

    /// Starts a replica that was killed, on the port that it had.
    ///
    /// # Panics
    /// When it does not start, or the port stays taken.
    pub fn restart(&mut self, replica: usize) {
        let addresses = self.addresses().join(",");
        let mut starts = 0..CHOICES_MAX;
        let started = starts.find_map(|_| self.replicas[replica].start(&addresses));
        assert!(started.is_some(), "the port is taken: {self:?}");
    }
}

/// Three ports that nobody has, for the moment.
fn free_ports() -> Vec<u16> {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").expect("ports are free"));
    let port = |listener: &TcpListener| listener.local_addr().expect("it is bound").port();
    listeners.iter().map(port).collect()
}
