//! Servers on one Redis.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use testkit::redis::TestRedis;

use crate::processes::{PROGRAM, ServerProcess, TestKeys, new_lease, program_on};

/// How long a request waits for Redis: usually as long as it takes, since a busy machine is slow and few tests are about
/// that; briefly where it is to be seen what happens then.
const PATIENT_MS: u64 = 60_000;
const BRIEF_MS: u64 = 3_000;

/// An installation of its own: what the servers of one test share.
pub struct Deployment {
    url: String,
    prefix: String,
    folder: TempDir,
    keys: TestKeys,
    request_timeout_ms: u64,
    settings: Vec<(&'static str, String)>,
}

impl Deployment {
    pub fn on(redis: &TestRedis) -> Self {
        Self::at(redis.url())
    }

    pub fn at(url: String) -> Self {
        Self {
            url,
            prefix: format!("test:{}", new_lease()),
            folder: tempfile::tempdir().unwrap(),
            keys: TestKeys::new(),
            request_timeout_ms: PATIENT_MS,
            settings: Vec::new(),
        }
    }

    /// The same, with servers that soon give up on Redis.
    pub fn with_brief_timeouts(self) -> Self {
        self.with_request_timeout(BRIEF_MS)
    }

    /// The same, with servers that give up on Redis after this time.
    pub fn with_request_timeout(self, request_timeout_ms: u64) -> Self {
        Self { request_timeout_ms, ..self }
    }

    /// The same, with a variable in the environment of the servers.
    pub fn with(mut self, variable: &'static str, value: impl Into<String>) -> Self {
        self.settings.push((variable, value.into()));
        self
    }

    /// What all its keys in Redis begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A command of the program with the settings of these servers.
    pub fn program_as(&self, command: &str) -> Command {
        let mut program = Command::new(PROGRAM);
        program.arg(command);
        let mut command = program_on(program, "redis", self.request_timeout_ms);
        command.env("RATELIMITER_REDIS__URL", &self.url);
        command.env("RATELIMITER_REDIS__PREFIX", &self.prefix);
        command.env("RATELIMITER_REDIS__REQUEST_TIMEOUT_MS", self.request_timeout_ms.to_string());
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts a server on a free port and waits until it listens.
    pub fn listening(&self) -> ServerProcess {
        ServerProcess::start(self.program_as("serve"), &self.folder, self.request_timeout_ms)
    }

    /// Starts a server and waits until it is ready.
    pub async fn server(&self) -> ServerProcess {
        self.listening().ready().await
    }

    /// Starts two servers and waits until they are ready.
    pub async fn two_servers(&self) -> [ServerProcess; 2] {
        [self.server().await, self.server().await]
    }
}

impl Deref for Deployment {
    type Target = TestKeys;

    fn deref(&self) -> &TestKeys {
        &self.keys
    }
}
