//! Another process of this binary: what it does is its role, what it says are lines on its stdout.

use std::env;
use std::io::Write;

use testkit::{Process, this_program};

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

impl Role {
    /// None in the process that runs the tests.
    pub fn of_this_process() -> Option<Role> {
        let name = env::var(ROLE_VARIABLE).ok()?;
        ROLES.iter().find(|(_, known)| *known == name).map(|(role, _)| *role)
    }

    /// Starts a process in this role.
    pub fn start(self, place: Option<&Place>) -> Process {
        let (_, name) = ROLES[self as usize];
        let mut command = this_program();
        command.env(ROLE_VARIABLE, name);
        if let Some(place) = place {
            command.env(PLACE_VARIABLE, place.to_string());
        }
        Process::start(command)
    }
}

/// Ends its stdin, at which it stops, and returns what it still had to say.
pub fn stop(mut process: Process) -> Vec<String> {
    let rest = process.finish();
    let (status, output) = process.wait();
    assert!(status.success(), "the process ended with {status}:\n{output}");
    rest
}

/// Where this process works.
pub fn own_place() -> Place {
    Place::parse(&env::var(PLACE_VARIABLE).unwrap())
}

/// Says a line to the process that started this one. It stays said, even if this process is killed
/// right after.
pub fn say(line: impl std::fmt::Display) {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").unwrap();
    stdout.flush().unwrap();
}
