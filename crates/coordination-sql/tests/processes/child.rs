//! Another process of this binary: what it does is its role, what it says are lines on its stdout.

use std::env;
use std::io::Write;
use std::process::{ExitStatus, Stdio};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::place::Place;

const ROLE_VARIABLE: &str = "COORDINATION_SQL_TEST_ROLE";
const PLACE_VARIABLE: &str = "COORDINATION_SQL_TEST_PLACE";

/// What a process of this binary does instead of running tests.
#[derive(Debug, Clone, Copy)]
pub enum Role {
    /// Opens each place that it is told, and says that it did.
    Migrate,
    /// Claims until nothing is left, and says what it got.
    Claim,
    /// Dispatches from the outbox to the inbox, and says each message that it did.
    Dispatch,
    /// The same, and works on the inbox.
    DispatchAndConsume,
}

const ROLES: [(Role, &str); 4] = [
    (Role::Migrate, "migrate"),
    (Role::Claim, "claim"),
    (Role::Dispatch, "dispatch"),
    (Role::DispatchAndConsume, "dispatch-and-consume"),
];

/// A process in a role; it is killed when this is dropped.
#[derive(Debug)]
pub struct Actor {
    process: Child,
    stdin: ChildStdin,
    /// Read all the time: a process whose stdout is not read stops when the pipe is full.
    lines: UnboundedReceiver<String>,
}

impl Role {
    /// None in the process that runs the tests.
    pub fn of_this_process() -> Option<Role> {
        let name = env::var(ROLE_VARIABLE).ok()?;
        ROLES.iter().find(|(_, known)| *known == name).map(|(role, _)| *role)
    }

    /// Starts a process in this role.
    pub fn start(self, place: Option<&Place>) -> Actor {
        let (_, name) = ROLES[self as usize];
        let mut command = Command::new(env::current_exe().unwrap());
        command.env(ROLE_VARIABLE, name);
        if let Some(place) = place {
            command.env(PLACE_VARIABLE, place.to_string());
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().unwrap();
        let stdin = process.stdin.take().unwrap();
        let (heard, lines) = mpsc::unbounded_channel();
        let mut stdout = BufReader::new(process.stdout.take().unwrap()).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = stdout.next_line().await {
                // Whoever does not listen any more does not want to know.
                let _heard = heard.send(line);
            }
        });
        Actor { process, stdin, lines }
    }
}

impl Actor {
    /// What it says next; none if it has ended.
    pub async fn next_line(&mut self) -> Option<String> {
        self.lines.recv().await
    }

    /// Tells it something.
    pub async fn tell(&mut self, line: &str) {
        self.stdin.write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// Ends its stdin, at which it stops, and returns what it still had to say.
    pub async fn stop(self) -> Vec<String> {
        let Actor { mut process, stdin, lines } = self;
        drop(stdin);
        let rest = all(lines).await;
        let status: ExitStatus = process.wait().await.unwrap();
        assert!(status.success(), "the process ended with {status}");
        rest
    }

    /// `kill -9`. Returns what it had said until then.
    pub async fn kill(self) -> Vec<String> {
        let Actor { mut process, stdin: _stdin, lines } = self;
        process.kill().await.unwrap();
        all(lines).await
    }
}

/// Where this process works.
pub fn own_place() -> Place {
    Place::parse(&env::var(PLACE_VARIABLE).unwrap())
}

async fn all(mut lines: UnboundedReceiver<String>) -> Vec<String> {
    let mut all = Vec::new();
    while let Some(line) = lines.recv().await {
        all.push(line);
    }
    all
}

/// Says a line to the process that started this one. It stays said, even if this process is killed
/// right after.
pub fn say(line: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").unwrap();
    stdout.flush().unwrap();
}

/// A runtime on which races are real.
pub fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap()
}
