//! Steps with expected and actual results.

use std::fmt;
use std::process::ExitCode;

/// An unexpected error, which ends the program.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The steps of one program. Each is printed as it happens; if one fails, so does the program.
#[derive(Debug)]
pub struct Steps {
    count: usize,
    failed: Vec<usize>,
}

impl Steps {
    /// Prints the goal of the program.
    pub fn start(goal: &str) -> Self {
        println!("{goal}\n");
        Self { count: 0, failed: Vec::new() }
    }

    /// A step whose result must equal the expected one.
    pub fn equal<T: fmt::Debug + PartialEq>(&mut self, what: &str, expected: &T, actual: &T) {
        let passed = expected == actual;
        self.check(what, &format!("{expected:?}"), &format!("{actual:?}"), passed);
    }

    /// A step of which the caller says whether it passed.
    pub fn check(&mut self, what: &str, expected: &str, actual: &str, passed: bool) {
        self.count += 1;
        let verdict = if passed { "passed" } else { "FAILED" };
        println!("{}. {what}", self.count);
        println!("   expected: {expected}");
        println!("   actual:   {actual}  ({verdict})");
        if !passed {
            self.failed.push(self.count);
        }
    }

    /// Prints the number of failed steps. Returns the program's exit code.
    pub fn end(self) -> ExitCode {
        let Self { count, failed } = self;
        if failed.is_empty() {
            println!("\nall {count} steps passed");
            return ExitCode::SUCCESS;
        }
        println!("\n{} of {count} steps failed: {failed:?}", failed.len());
        ExitCode::FAILURE
    }
}
