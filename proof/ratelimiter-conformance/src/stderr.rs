//! Output that the test harness does not capture.

use std::io::Write;

/// The test harness captures the output of `eprintln!` in passing tests, but not direct writes.
pub(crate) fn print_stderr(line: &str) {
    let written = std::io::stderr().write_all(format!("{line}\n").as_bytes());
    written.expect("standard error takes a line");
}
