//! `ratelimiterd` as a child process.

use std::env;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use crate::{PATIENCE, Process};

/// What a server logs when it can be reached.
const LISTENING: &str = "listening addr=";

/// A server as a child process.
#[derive(Debug)]
pub struct Server {
    /// The process itself.
    pub process: Process,
    /// Its address.
    pub addr: SocketAddr,
}

impl Server {
    /// Starts a server in a folder and waits until it listens.
    ///
    /// # Panics
    /// It ends instead.
    pub fn start(command: Command, folder: impl AsRef<Path>) -> Self {
        Self::try_start(command, folder).unwrap_or_else(|output| panic!("it ended:\n{output}"))
    }

    /// Starts a server in a folder and waits until it listens.
    ///
    /// # Errors
    /// It ends instead; the error is what it wrote.
    ///
    /// # Panics
    /// It neither listens nor ends within [`PATIENCE`].
    pub fn try_start(mut command: Command, folder: impl AsRef<Path>) -> Result<Self, String> {
        command.current_dir(folder);
        let process = Process::start(command);
        let Some(line) = process.wait_for_line(LISTENING) else {
            return Err(process.wait().1);
        };
        let addr = line.split_once(LISTENING).and_then(|(_, rest)| rest.split(' ').next());
        let addr = addr.and_then(|addr| addr.parse().ok()).expect("a server logs its address");
        Ok(Self { process, addr })
    }

    /// Its URL without TLS.
    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// As [`ask`].
    pub fn ask(&self, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
        ask(self.addr, method, path, body)
    }
}

impl Deref for Server {
    type Target = Process;

    fn deref(&self) -> &Process {
        &self.process
    }
}

/// Sends one HTTP request; returns the status and the body, or `None` if the connection fails.
pub fn ask(addr: SocketAddr, method: &str, path: &str, body: &str) -> Option<(u16, String)> {
    let mut stream = TcpStream::connect(addr).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(format!("{head}{body}").as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

/// A command without the settings of this process's environment.
#[must_use]
pub fn without_settings(mut command: Command) -> Command {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("RATELIMITER_") {
            command.env_remove(name);
        }
    }
    command
}
