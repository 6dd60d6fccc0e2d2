//! `ratelimiterd` as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;
use testkit::tigerbeetle::TestCluster;

use crate::Error;

/// A server on TigerBeetle that runs until this is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    address: String,
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
        let mut child = Command::new(std::env::current_exe()?)
            .args(["serve", "--config", "config.yaml"])
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut log = BufReader::new(child.stderr.take().ok_or("standard error is a pipe")?);
        let mut said = String::new();
        let address = loop {
            let begin = said.len();
            if log.read_line(&mut said)? == 0 {
                return Err(format!("the server ended instead of listening: {said}").into());
            }
            if let Some((_, rest)) = said[begin..].split_once("listening addr=") {
                break rest.split_whitespace().next().ok_or("it says where")?.to_owned();
            }
        };
        // The pipe must be read on, or the server would wait for it to have room.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Ok(Self { child, address, _folder: folder })
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// True if it has not ended.
    ///
    /// # Errors
    /// The system does not know the process.
    pub fn is_running(&mut self) -> Result<bool, Error> {
        Ok(self.child.try_wait()?.is_none())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
