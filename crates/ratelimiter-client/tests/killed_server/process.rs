//! The server as a process of its own.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// How often a start is tried. The port of a killed server may be in use for a moment.
const STARTS_MAX: usize = 100;

/// A server that runs until it is killed.
pub(crate) struct ServerProcess {
    child: Child,
    address: String,
    folder: TempDir,
}

impl ServerProcess {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (child, address) = start("127.0.0.1:0", &folder).unwrap();
        Self { child, address, folder }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Kills it as a machine without power would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts another one in the place of one that was killed.
    pub(crate) fn restart(&mut self) {
        let started = (0..STARTS_MAX).find_map(|_| start(&self.address, &self.folder));
        let (child, address) = started.unwrap();
        assert_eq!(address, self.address);
        self.child = child;
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Starts the server and waits until it says where it listens; `None` if it ends instead.
fn start(address: &str, folder: &TempDir) -> Option<(Child, String)> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RATELIMITER_") {
            command.env_remove(name);
        }
    }
    let mut child = command
        .args(["serve", "--listen", address, "--limits", "limits.json"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while log.read_line(&mut line).unwrap() > 0 {
        if let Some((_, rest)) = line.split_once("listening addr=") {
            let address = rest.split_whitespace().next().unwrap().to_owned();
            // The pipe must be read on, or the server would wait for it to have room.
            std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
            return Some((child, address));
        }
        line.clear();
    }
    child.wait().unwrap();
    None
}
