//! Programs that tests start.

use std::path::Path;
use std::process::Command;

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
