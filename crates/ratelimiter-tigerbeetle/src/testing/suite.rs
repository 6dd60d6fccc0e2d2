//! Tests that need a server, and an honest count of those that ran.

use std::env;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};

use libtest_mimic::{Arguments, Trial};

use super::binary::{BINARY_VARIABLE, find_binary};
use super::cluster::{Mode, TestCluster};

/// If set to anything but the empty text, a suite without a server binary fails.
pub const REQUIRED_VARIABLE: &str = "TIGERBEETLE_REQUIRED";

/// The tests of one binary with `harness = false`, run one after another by default: a server takes
/// 1.5 GB and a core.
///
/// The last line on stderr is `TIGERBEETLE SUITE RAN: <count> tests (<name>)`, or, without a server
/// binary, `TIGERBEETLE SUITE NOT RUN: <count> tests (<name>): <why>`.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    fixture: Arc<Fixture>,
    trials: Vec<Trial>,
    threads: usize,
}

/// What the tests of a suite share.
#[derive(Debug, Default)]
pub struct Fixture {
    development: OnceLock<TestCluster>,
}

impl Fixture {
    /// The one development server that tests share which do not harm it. Started when it is first
    /// asked for.
    pub fn development(&self) -> &TestCluster {
        self.development.get_or_init(|| TestCluster::start(Mode::Development))
    }
}

impl Suite {
    /// A suite without tests.
    pub fn new(name: &'static str) -> Self {
        Self { name, fixture: Arc::default(), trials: Vec::new(), threads: 1 }
    }

    /// Adds a test, which fails by panicking.
    #[must_use]
    pub fn test(mut self, name: &'static str, run: impl FnOnce(&Fixture) + Send + 'static) -> Self {
        let fixture = Arc::clone(&self.fixture);
        let trial = Trial::test(name, move || {
            run(&fixture);
            Ok(())
        });
        self.trials.push(trial.with_ignored_flag(find_binary().is_none()));
        self
    }

    /// Runs so many tests at a time, where they mostly wait for time to pass.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Runs what the command line asks for, as `cargo test` would.
    #[expect(clippy::print_stderr, reason = "how many tests ran is the suite's answer")]
    pub fn run(self) -> ExitCode {
        let Self { name, fixture, trials, threads } = self;
        let mut arguments = Arguments::from_args();
        arguments.test_threads.get_or_insert(threads);
        let test_count = trials.len();
        let binary = find_binary();
        if binary.is_none() {
            // Whoever asks for ignored tests too gets them ignored all the same.
            arguments.include_ignored = false;
            arguments.ignored = false;
        }
        let conclusion = libtest_mimic::run(&arguments, trials);
        drop(fixture);
        if arguments.list {
            return conclusion.exit_code();
        }
        if binary.is_none() {
            eprintln!(
                "TIGERBEETLE SUITE NOT RUN: {test_count} tests ({name}): no server binary; set \
                 {BINARY_VARIABLE} or put `tigerbeetle` on the PATH"
            );
            let required = env::var_os(REQUIRED_VARIABLE).is_some_and(|value| !value.is_empty());
            return if required { ExitCode::FAILURE } else { conclusion.exit_code() };
        }
        let ran_count = conclusion.num_passed + conclusion.num_failed;
        eprintln!("TIGERBEETLE SUITE RAN: {ran_count} tests ({name})");
        conclusion.exit_code()
    }
}
