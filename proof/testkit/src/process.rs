//! Processes that tests start.

mod output;
mod watchdog;

use std::fmt;
use std::fs;
use std::future::poll_fn;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;

use self::output::Output;
use self::watchdog::Watched;

/// The kernel's unit of processor time, per second.
const TICKS_PER_SECOND: f64 = 100.0;

/// A child process. It is killed on drop, and ended if this process ends without dropping it.
///
/// All its output is read, so that it never blocks on a full pipe. A test that fails shows it.
pub struct Process {
    child: Child,
    watched: Option<Watched>,
    stdin: Option<ChildStdin>,
    output: Arc<Output>,
    /// The position of the next line for [`Process::next_line`].
    position: usize,
}

impl Process {
    /// Starts a process with pipes for its input and output.
    ///
    /// # Panics
    /// The program cannot be started.
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child =
            child.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}"));
        let watched = Some(Watched::new(child.id()));
        let output = Output::read(&mut child);
        Self { watched, stdin: child.stdin.take(), child, output, position: 0 }
    }

    /// The process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that contains `what` on its stdout or stderr; `None` if it ends without one.
    ///
    /// # Panics
    /// Neither happens within [`PATIENCE`](crate::PATIENCE).
    #[must_use]
    pub fn wait_for_line(&self, what: &str) -> Option<String> {
        self.output.wait(&format!("a line with {what:?}"), |lines| {
            lines.find(|line| line.text.contains(what))
        })
    }

    /// The next line on its stdout, or `None` if it has ended. Blocks until there is one.
    ///
    /// # Panics
    /// Neither happens within [`PATIENCE`](crate::PATIENCE).
    pub fn read_line(&mut self) -> Option<String> {
        self.output.wait("a line on stdout", |lines| lines.next_of_stdout(&mut self.position))
    }

    /// The same for async code, which sets its own deadline. It is cancel safe.
    pub async fn next_line(&mut self) -> Option<String> {
        poll_fn(|context| {
            self.output.poll(context, |lines| lines.next_of_stdout(&mut self.position))
        })
        .await
    }

    /// Writes a line to its stdin.
    ///
    /// # Panics
    /// It does not read its stdin any more.
    pub fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its stdin was not closed");
        writeln!(stdin, "{line}").expect("it reads its stdin");
    }

    /// Closes its stdin and waits until it ends by itself; returns the lines of its stdout that were not read.
    ///
    /// # Panics
    /// It does not end within [`PATIENCE`](crate::PATIENCE).
    pub fn finish(&mut self) -> Vec<String> {
        drop(self.stdin.take());
        self.unread()
    }

    /// `kill -9`; returns the lines of its stdout that were not read.
    pub fn kill(&mut self) -> Vec<String> {
        self.end();
        self.unread()
    }

    fn unread(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.read_line()).collect()
    }

    /// Sends a signal: `TERM`, `STOP`.
    ///
    /// # Panics
    /// It has ended.
    pub fn signal(&self, name: &str) {
        let kill = ["-c", "kill -s \"$0\" \"$1\"", name, &self.id().to_string()];
        let sent = Command::new("sh").args(kill).status();
        assert!(sent.is_ok_and(|status| status.success()), "SIG{name} was not sent");
    }

    /// Waits for its end; returns the exit status and everything it wrote.
    ///
    /// # Panics
    /// It does not end within [`PATIENCE`](crate::PATIENCE).
    pub fn wait(mut self) -> (ExitStatus, String) {
        self.output.wait("its end", |_| None::<()>);
        let status = self.child.wait().expect("it is our child");
        (status, self.output.to_string())
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_none()
    }

    /// The processor time that it has used, in seconds.
    ///
    /// # Panics
    /// It has ended, or the system is not Linux.
    pub fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("it is running, on Linux");
        // The name in the second field may contain blanks; the third field follows it.
        let (_, fields) = stat.rsplit_once(") ").expect("a name in parentheses");
        let ticks = |at: usize| {
            let field = fields.split(' ').nth(at - 3).expect("a stat has 52 fields");
            field.parse::<f64>().expect("a number of ticks")
        };
        (ticks(14) + ticks(15)) / TICKS_PER_SECOND
    }

    fn end(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        drop(self.watched.take());
    }
}

impl Drop for Process {
    #[expect(clippy::print_stderr, reason = "a failed test shows what the process wrote")]
    fn drop(&mut self) {
        self.end();
        if thread::panicking() {
            eprintln!("{self:?}");
        }
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "process {} wrote:\n{}", self.id(), self.output)
    }
}

/// A command that starts this program again.
///
/// # Panics
/// The system does not know this program's file.
pub fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("the system knows this program"))
}

/// Copies a program that is to be started from the copy.
///
/// In a process of its own: a program that is open for writing cannot be started ("text file busy"), and whatever another thread of
/// this process starts meanwhile would keep the copy open for a moment.
///
/// # Panics
/// If it cannot be copied.
pub fn copy_program(from: impl AsRef<Path>, to: impl AsRef<Path>) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to.as_ref()).status();
    assert!(copied.expect("there is a cp").success(), "{} was not copied", from.as_ref().display());
}
