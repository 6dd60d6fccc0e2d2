//! A throw-away cluster, started from the installed programs.

use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::binaries::find_binaries;
use crate::Process;

/// Starts and stops the server, and ends it when the test process ends.
const SUPERVISOR: &str = include_str!("supervisor.sh");
/// Who runs the server when the tests are run by root, whom PostgreSQL refuses: the first of these
/// that exists.
const USERS_INSTEAD_OF_ROOT: [&str; 2] = ["postgres", "nobody"];

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    /// No, which is faster. Everything still outlives a crash of the server.
    ServerCrash,
    /// Yes, as in production.
    PowerCut,
}

/// A throw-away cluster that listens on a socket in its own temporary folder. Server and files go
/// when this is dropped, and also when the process ends without dropping it.
#[derive(Debug)]
pub struct TestCluster {
    folder: PathBuf,
    supervisor: Process,
}

impl TestCluster {
    /// Makes a cluster and starts it.
    ///
    /// # Panics
    /// Without the server's programs, or when the server does not start.
    pub fn start(durability: Durability) -> Self {
        let programs = find_binaries().expect("a suite runs its tests only with a server");
        let folder = tempfile::Builder::new().prefix("coordination-sql-").tempdir();
        let folder = folder.expect("there is room for a cluster").keep();
        let fsync = match durability {
            Durability::ServerCrash => "off",
            Durability::PowerCut => "on",
        };
        let settings = format!(
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 200\n\
             fsync = {fsync}\n",
            folder.display()
        );
        fs::write(folder.join("settings"), settings).expect("the folder is ours");
        let supervisor = folder.join("supervisor.sh");
        fs::write(&supervisor, SUPERVISOR).expect("the folder is ours");
        let mut command = Command::new("sh");
        command.arg(supervisor).arg(programs).arg(&folder);
        // A group of its own, so that an interrupt on the terminal ends the tests and lets the
        // supervisor clean up behind them.
        command.current_dir(&folder).process_group(0);
        if let Some((user, group)) = user_instead_of_root(&folder) {
            chown(&folder, Some(user), Some(group)).expect("root may give its folder away");
            command.uid(user).gid(group);
        }
        let mut cluster = Self { folder, supervisor: Process::start(command) };
        cluster.expect_success("initdb");
        cluster.command("start");
        cluster
    }

    /// Where to connect.
    pub fn url(&self) -> String {
        format!("postgresql:///postgres?user=postgres&host={}", self.folder.display())
    }

    /// The folder with all its files, which goes with it.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Stops the server as an administrator does: sessions are ended, transactions undone.
    pub fn stop(&mut self) {
        self.command("stop");
    }

    /// Stops the server as a crash does.
    pub fn crash(&mut self) {
        self.command("crash");
    }

    /// Starts the server after it was stopped or crashed, with the data that it had.
    pub fn start_again(&mut self) {
        self.command("start");
    }

    fn command(&mut self, command: &'static str) {
        self.supervisor.write_line(command);
        self.expect_success(command);
    }

    /// Reads the answer to a command.
    fn expect_success(&mut self, command: &'static str) {
        let answer = self.supervisor.read_line();
        let log = || fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let is_done = answer.as_deref() == Some("0");
        assert!(is_done, "{command} of the PostgreSQL server failed:\n{}", log());
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        // It ends because its stdin has; what it could not remove is no concern of the test's.
        self.supervisor.finish();
    }
}

/// The user and group to run the server as, if `folder`, which this process made, is root's.
fn user_instead_of_root(folder: &Path) -> Option<(u32, u32)> {
    if fs::metadata(folder).expect("the folder is ours").uid() != 0 {
        return None;
    }
    let users = fs::read_to_string("/etc/passwd").expect("every user may read it");
    let find = |name: &&str| users.lines().find_map(|line| ids_of(line, name));
    let found = USERS_INSTEAD_OF_ROOT.iter().find_map(find);
    Some(found.expect("PostgreSQL does not run as root, and there is no user postgres or nobody"))
}

/// The user's and group's number, if the line of `/etc/passwd` is `name`'s.
fn ids_of(line: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields = line.split(':');
    let is_named = fields.next() == Some(name);
    let (user, group) = (fields.nth(1)?.parse().ok()?, fields.next()?.parse().ok()?);
    is_named.then_some((user, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_user_list_has_the_numbers() {
        let line = "postgres:x:101:104:PostgreSQL administrator,,,:/var/lib/postgresql:/bin/bash";
        assert_eq!(ids_of(line, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(line, "nobody"), None);
        assert_eq!(ids_of("postgres:x:", "postgres"), None);
    }
}
