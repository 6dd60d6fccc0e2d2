//! A server that can be killed and started again.

use tempfile::TempDir;
use testkit::{Server, this_program, without_settings};

/// How often a start is tried. The port of a killed server may be in use for a moment.
const STARTS_MAX: usize = 100;

/// A server that runs until it is killed.
pub(crate) struct ServerProcess {
    server: Server,
    folder: TempDir,
}

impl ServerProcess {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = start("127.0.0.1:0", &folder).unwrap();
        Self { server, folder }
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    /// Kills it as a machine without power would.
    pub(crate) fn kill(&mut self) {
        self.server.process.kill();
    }

    /// Starts another one in the place of one that was killed.
    pub(crate) fn restart(&mut self) {
        let addr = self.server.addr.to_string();
        let started = (0..STARTS_MAX).find_map(|_| {
            let started = start(&addr, &self.folder);
            started.inspect_err(|log| assert!(log.contains("is in use"), "{log}")).ok()
        });
        self.server = started.expect("the port is free again");
    }
}

/// Starts this program as a server.
///
/// # Errors
/// It ends instead of listening; the error is its log.
fn start(addr: &str, folder: &TempDir) -> Result<Server, String> {
    let mut command = without_settings(this_program());
    command.args(["serve", "--listen", addr, "--limits", "limits.json"]);
    Server::try_start(command, folder)
}
