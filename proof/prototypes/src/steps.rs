//! Steps with what was expected and what happened.

use std::fmt;
use std::process::ExitCode;

/// What stops a program: something that no step foresaw.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The steps of one program. Each is printed as it happens; one that did not go as expected makes the program fail.
#[derive(Debug)]
pub struct Steps {
    count: usize,
    failed: Vec<usize>,
}

impl Steps {
    /// Prints what the program is to show.
    pub fn begin(goal: &str) -> Self {
        println!("{goal}\n");
        Self { count: 0, failed: Vec::new() }
    }

    /// Something that must happen exactly so.
    pub fn equal<T: fmt::Debug + PartialEq>(&mut self, what: &str, expected: &T, happened: &T) {
        let holds = expected == happened;
        self.judged(what, &format!("{expected:?}"), &format!("{happened:?}"), holds);
    }

    /// Something of which the caller says whether it holds.
    pub fn judged(&mut self, what: &str, expected: &str, happened: &str, holds: bool) {
        self.count += 1;
        let verdict = if holds { "as expected" } else { "NOT AS EXPECTED" };
        println!("{}. {what}", self.count);
        println!("   expected: {expected}");
        println!("   happened: {happened}  ({verdict})");
        if !holds {
            self.failed.push(self.count);
        }
    }

    /// Prints the verdict; the program's exit code.
    pub fn end(self) -> ExitCode {
        let Self { count, failed } = self;
        if failed.is_empty() {
            println!("\nall {count} steps went as expected");
            return ExitCode::SUCCESS;
        }
        println!("\n{} of {count} steps did not go as expected: {failed:?}", failed.len());
        ExitCode::FAILURE
    }
}
