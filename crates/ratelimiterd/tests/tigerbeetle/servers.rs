//! Servers on one cluster and one limits file.

use std::fs::Permissions;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use ratelimiter::{Limit, RegisteredLimit};
use ratelimiter_wire::write_limits_file;
use tempfile::TempDir;
use testkit::tigerbeetle::TestCluster;

use crate::processes::{PROGRAM, ServerProcess, TestKeys, program_on};

/// How long a request waits for the cluster: usually as long as it takes, since a busy machine is slow and few tests are
/// about that; briefly where it is to be seen what happens then.
const PATIENT_MS: u64 = 60_000;
const BRIEF_MS: u64 = 1_000;
/// Longer than any test waits.
const ENDLESS_MS: u64 = 500_000;
/// Somebody who may not write where only the owner may.
const NOBODY: u32 = 65_534;

/// What the servers of one test share.
pub struct Deployment {
    cluster_id: u128,
    addresses: String,
    folder: TempDir,
    keys: TestKeys,
    request_timeout_ms: u64,
    sessions: u32,
    /// Nothing can be written where the limits file is.
    is_read_only: bool,
}

impl Deployment {
    pub fn on(cluster: &TestCluster) -> Self {
        Self::at(cluster.cluster_id(), cluster.addresses().join(","))
    }

    pub fn at(cluster_id: u128, addresses: String) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (request_timeout_ms, sessions, is_read_only) = (PATIENT_MS, 1, false);
        let keys = TestKeys::new();
        Self { cluster_id, addresses, folder, keys, request_timeout_ms, sessions, is_read_only }
    }

    /// The same, with a limits file that no server can write, beside which nothing can be written either. Root may write
    /// anywhere, so that a server of root becomes somebody else's.
    pub fn with_read_only_limits(self, limits: &[Limit]) -> Self {
        let registered: Vec<_> = limits.iter().cloned().map(RegisteredLimit::in_force).collect();
        std::fs::write(self.limits_path(), write_limits_file(&registered)).unwrap();
        let copy = self.folder.path().join("ratelimiterd");
        testkit::copy_program(PROGRAM, &copy);
        std::fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(self.folder.path(), Permissions::from_mode(0o555)).unwrap();
        Self { is_read_only: true, ..self }
    }

    /// So that the folder can be removed.
    pub fn make_writable(&self) {
        std::fs::set_permissions(self.folder.path(), Permissions::from_mode(0o755)).unwrap();
    }

    fn program(&self) -> Command {
        if !self.is_read_only {
            return Command::new(PROGRAM);
        }
        let mut command = Command::new(self.folder.path().join("ratelimiterd"));
        let probe = self.folder.path().join("probe");
        if std::fs::write(&probe, "").is_ok() {
            std::fs::remove_file(probe).unwrap();
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    /// The same, with servers that soon give up on the cluster.
    pub fn with_brief_timeouts(self) -> Self {
        Self { request_timeout_ms: BRIEF_MS, ..self }
    }

    /// The same, with servers that never give up on the cluster.
    pub fn with_endless_timeouts(self) -> Self {
        Self { request_timeout_ms: ENDLESS_MS, ..self }
    }

    /// The same, with servers that have so many sessions for writes.
    pub fn with_sessions(self, sessions: u32) -> Self {
        Self { sessions, ..self }
    }

    pub fn limits_path(&self) -> PathBuf {
        self.folder.path().join("limits.json")
    }

    /// Starts a server on a free port and waits until it listens.
    pub fn listening(&self) -> ServerProcess {
        let timeout_ms = self.request_timeout_ms;
        let mut command = program_on(self.program(), "tigerbeetle", timeout_ms);
        command.arg("--limits").arg(self.limits_path());
        command.env("RATELIMITER_TIGERBEETLE__CLUSTER_ID", self.cluster_id.to_string());
        command.env("RATELIMITER_TIGERBEETLE__ADDRESSES", &self.addresses);
        command.env("RATELIMITER_TIGERBEETLE__SESSIONS", self.sessions.to_string());
        command.env("RATELIMITER_TIGERBEETLE__REQUEST_TIMEOUT_MS", timeout_ms.to_string());
        ServerProcess::start(command, &self.folder, timeout_ms)
    }

    /// Starts a server and waits until it is ready.
    pub async fn server(&self) -> ServerProcess {
        self.listening().ready().await
    }
}

impl Deref for Deployment {
    type Target = TestKeys;

    fn deref(&self) -> &TestKeys {
        &self.keys
    }
}
