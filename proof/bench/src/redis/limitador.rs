//! limitador with its Redis storage, in a program of its own: its Redis client needs OpenSSL, which this workspace does not.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use testkit::redis::TestRedis;

use super::Sizes;

/// Names the program.
const PROGRAM_VARIABLE: &str = "LIMITADOR_REDIS_BIN";

/// The program, and how it is driven.
#[derive(Debug, Clone)]
pub(super) struct Peer {
    program: PathBuf,
    sizes: Sizes,
}

/// What limitador does for a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    /// Checks four counters, and then increments them; not atomic.
    Check,
    /// Holds an amount of four counters, all or none; then increments the counters one after another, and ends the hold.
    Reserve,
}

impl Mode {
    pub(super) const ALL: [Self; 2] = [Self::Check, Self::Reserve];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Check => "limitador, check and update 4 counters",
            Self::Reserve => "limitador, reserve and commit of 4 counters",
        }
    }

    const fn argument(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Reserve => "reserve",
        }
    }
}

impl Peer {
    /// The program, if the environment names it.
    pub(super) fn find(sizes: Sizes) -> Option<Self> {
        let program = PathBuf::from(std::env::var_os(PROGRAM_VARIABLE)?);
        Some(Self { program, sizes })
    }

    /// Calls per second.
    pub(super) fn rate(&self, mode: Mode, redis: &TestRedis) -> f64 {
        let Sizes { models, connections, duration, .. } = self.sizes;
        let numbers = [models, connections].map(|number| number.to_string());
        let mut command = Command::new(&self.program);
        command.arg(mode.argument()).arg(redis.url()).args(numbers);
        command.arg(duration.as_millis().to_string()).stderr(Stdio::inherit());
        let output = command.output();
        let output = output.expect("the program that the environment names runs");
        let said = String::from_utf8_lossy(&output.stdout);
        let rate = said.trim().parse();
        rate.expect("it prints a number; what is wrong is on stderr")
    }
}
