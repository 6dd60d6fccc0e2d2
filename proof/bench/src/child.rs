//! The processes that a run starts of itself, so that a contestant has memory and threads of its own.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

pub(crate) use testkit::Server;
use testkit::{this_program, without_settings};

use crate::probe::Probe;

/// Tells a process of this program that it is not the one that the user started.
const ROLE_VARIABLE: &str = "BENCH_ROLE";
/// Names a `ratelimiterd` to measure instead of the one in this program.
const SERVER_VARIABLE: &str = "RATELIMITERD_BIN";
/// The address to which a bare proxy passes requests on.
pub(crate) const PROVIDER_VARIABLE: &str = "BENCH_PROVIDER";
/// What a server says when it can be reached.
const LISTENING: &str = "listening addr=";

/// What a process of this program is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Our server, whose arguments and environment are those of the program itself.
    Ratelimiterd,
    /// A server that decides nothing.
    Bare,
    /// A reverse proxy that looks at nothing.
    BareProxy,
    /// Does something and prints what it costs.
    Probe(Probe),
}

impl Role {
    const SERVERS: [Self; 3] = [Self::Ratelimiterd, Self::Bare, Self::BareProxy];

    /// What this process was started for, if a run started it.
    pub(crate) fn of_this_process() -> Option<Self> {
        let name = std::env::var(ROLE_VARIABLE).ok()?;
        let probes = Probe::ALL.into_iter().map(Self::Probe);
        let role = Self::SERVERS.into_iter().chain(probes).find(|role| role.name() == name);
        Some(role.expect("a run starts processes for roles that there are"))
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ratelimiterd => "ratelimiterd",
            Self::Bare => "bare",
            Self::BareProxy => "bare proxy",
            Self::Probe(probe) => probe.name(),
        }
    }

    /// A command that starts a process for this, with nothing of our environment that is meant for a server.
    pub(crate) fn command(self) -> Command {
        let server = std::env::var_os(SERVER_VARIABLE).filter(|_| self == Self::Ratelimiterd);
        let mut command = without_settings(server.map_or_else(this_program, Command::new));
        command.env(ROLE_VARIABLE, self.name()).stdin(Stdio::null());
        command
    }
}

/// What a server says on stderr when it can be reached.
pub(crate) fn announce(addr: SocketAddr) {
    crate::complain(&format!("{LISTENING}{addr}\n"));
}
