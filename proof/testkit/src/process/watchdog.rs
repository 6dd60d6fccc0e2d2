//! The end of processes whose test program was killed.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{LazyLock, Mutex, PoisonError};

const SCRIPT: &str = include_str!("watchdog.sh");

/// The stdin of the one watchdog of this process.
static WATCHDOG: LazyLock<Mutex<ChildStdin>> = LazyLock::new(|| Mutex::new(start()));

#[expect(clippy::zombie_processes, reason = "it outlives this process")]
fn start() -> ChildStdin {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // A group of its own, so that an interrupt on the terminal does not end it too early.
    let watchdog = command.process_group(0).spawn().expect("there is a shell");
    watchdog.stdin.expect("it is piped")
}

/// A process that ends when this one does. Dropped when it has ended, since its ID may become another one's.
#[derive(Debug)]
pub(super) struct Watched(u32);

impl Watched {
    pub(super) fn new(id: u32) -> Self {
        tell('+', id);
        Self(id)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        tell('-', self.0);
    }
}

fn tell(change: char, id: u32) {
    let mut watchdog = WATCHDOG.lock().unwrap_or_else(PoisonError::into_inner);
    // Without a watchdog, only processes of a killed test stay behind.
    let _told = writeln!(watchdog, "{change} {id}");
}
