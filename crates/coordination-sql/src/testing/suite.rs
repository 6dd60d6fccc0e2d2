//! Tests that need a server, and an honest count of those that ran.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Trial};

use super::binaries::find_binaries;
use super::server::{given_url, stop_private_cluster};

/// If set to anything but the empty text, a suite without a server fails.
pub const REQUIRED_VARIABLE: &str = "POSTGRESQL_REQUIRED";

/// The tests of one binary with `harness = false`.
///
/// The last line on stderr is `POSTGRESQL SUITE RAN: <count> tests (<name>)`, or, without a server,
/// `POSTGRESQL SUITE NOT RUN: <count> tests (<name>): <why>`.
#[derive(Debug)]
pub struct Suite {
    name: &'static str,
    trials: Vec<Trial>,
    /// How many of the trials need a server, and how many of these were begun.
    needing_count: usize,
    begun_count: Arc<AtomicUsize>,
    /// What is missing, so that tests which need a server cannot run.
    missing: Option<&'static str>,
}

impl Suite {
    /// A suite without tests, for tests on the server that [`server_url`](super::server_url) has.
    pub fn new(name: &'static str) -> Self {
        let missing = (given_url().is_none() && find_binaries().is_none())
            .then_some("neither DATABASE_URL nor an installed server");
        Self { name, trials: Vec::new(), needing_count: 0, begun_count: Arc::default(), missing }
    }

    /// A suite without tests, for tests that stop and start a [cluster](super::TestCluster) of
    /// their own. `DATABASE_URL` is no help to them.
    pub fn with_clusters_of_its_own(name: &'static str) -> Self {
        let missing = find_binaries().is_none().then_some("no installed server to stop and start");
        Self { missing, ..Self::new(name) }
    }

    /// Adds a test, which fails by panicking.
    #[must_use]
    pub fn test(mut self, name: impl Into<String>, run: impl FnOnce() + Send + 'static) -> Self {
        self.needing_count += 1;
        let begun_count = Arc::clone(&self.begun_count);
        let trial = Trial::test(name, move || {
            begun_count.fetch_add(1, Ordering::Relaxed);
            run();
            Ok(())
        });
        self.trials.push(trial.with_ignored_flag(self.missing.is_some()));
        self
    }

    /// Adds a test that needs no server: it always runs, and the count leaves it out.
    #[must_use]
    pub fn test_without_server(
        mut self,
        name: impl Into<String>,
        run: impl FnOnce() + Send + 'static,
    ) -> Self {
        let trial = Trial::test(name, move || {
            run();
            Ok(())
        });
        self.trials.push(trial);
        self
    }

    /// Runs what the command line asks for, as `cargo test` would.
    #[expect(clippy::print_stderr, reason = "how many tests ran is the suite's answer")]
    pub fn run(self) -> ExitCode {
        let Self { name, trials, needing_count, begun_count, missing } = self;
        let mut arguments = Arguments::from_args();
        if missing.is_some() {
            // Whoever asks for ignored tests too gets them ignored all the same.
            arguments.include_ignored = false;
            arguments.ignored = false;
        }
        let conclusion = libtest_mimic::run(&arguments, trials);
        stop_private_cluster();
        if arguments.list {
            return conclusion.exit_code();
        }
        let Some(missing) = missing else {
            let begun_count = begun_count.load(Ordering::Relaxed);
            eprintln!("POSTGRESQL SUITE RAN: {begun_count} tests ({name})");
            return conclusion.exit_code();
        };
        eprintln!("POSTGRESQL SUITE NOT RUN: {needing_count} tests ({name}): {missing}");
        let required = env::var_os(REQUIRED_VARIABLE).is_some_and(|value| !value.is_empty());
        if required { ExitCode::FAILURE } else { conclusion.exit_code() }
    }
}
