//! `ratelimiterd` as a process of its own.

use tempfile::TempDir;
use testkit::tigerbeetle::TestCluster;
use testkit::{Server, this_program, without_settings};

use crate::Error;

/// A server on TigerBeetle that runs until this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    server: Server,
    _folder: TempDir,
}

impl ServerProcess {
    /// Starts this program again with the argument `serve`, which must then run the server's command line, and waits until
    /// it listens.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(cluster: &TestCluster) -> Result<Self, Error> {
        let folder = tempfile::tempdir()?;
        let config = format!(
            "server: {{ listen_addr: \"127.0.0.1:0\", backend: \"tigerbeetle\" }}\n\
             registry: {{ path: \"limits.json\" }}\n\
             tigerbeetle: {{ cluster_id: \"{}\", addresses: {:?} }}\n",
            cluster.cluster_id(),
            cluster.addresses(),
        );
        std::fs::write(folder.path().join("config.yaml"), config)?;
        let mut command = without_settings(this_program());
        command.args(["serve", "--config", "config.yaml"]);
        let server = Server::try_start(command, &folder)?;
        Ok(Self { server, _folder: folder })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        self.server.url()
    }

    /// True if it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.server.process.is_running()
    }
}
