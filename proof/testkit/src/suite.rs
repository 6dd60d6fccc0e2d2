//! Tests that need a server, and an honest count of those that ran.

use std::env;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Trial};

/// The tests of one binary with `harness = false`.
///
/// The last line on stderr is `SERVER SUITE RAN: <count> tests (<name>)`, or, if the server is missing,
/// `SERVER SUITE NOT RUN: <count> tests (<name>): <why>`. That is a failure if the variable `SERVER_REQUIRED` is set and not empty.
/// Tests that need several servers are counted with the first.
#[derive(Debug)]
pub struct Suite<S> {
    /// The server's name in capitals.
    server: &'static str,
    name: &'static str,
    /// The servers that are missing, and why tests that need them cannot run.
    missing: Vec<(&'static str, &'static str)>,
    shared: Arc<S>,
    trials: Vec<Trial>,
    /// How many of the trials need the server, and how many of these began.
    needing_count: usize,
    begun_count: Arc<AtomicUsize>,
    threads: Option<usize>,
}

impl<S: Send + Sync + 'static> Suite<S> {
    /// A suite without tests. `shared` is handed to each test, and dropped after the last one.
    pub fn new(
        server: &'static str,
        name: &'static str,
        missing: Option<&'static str>,
        shared: S,
    ) -> Self {
        Self {
            server,
            name,
            missing: missing.map(|why| (server, why)).into_iter().collect(),
            shared: Arc::new(shared),
            trials: Vec::new(),
            needing_count: 0,
            begun_count: Arc::default(),
            threads: None,
        }
    }

    /// The tests also need another server. To be called before tests are added.
    #[must_use]
    pub fn also_needs(mut self, server: &'static str, missing: Option<&'static str>) -> Self {
        assert!(self.trials.is_empty(), "the tests that were added may be ignored for nothing");
        self.missing.extend(missing.map(|why| (server, why)));
        self
    }

    /// Adds a test, which fails by panicking. Without the server it is ignored.
    #[must_use]
    pub fn test(mut self, name: impl Into<String>, run: impl FnOnce(&S) + Send + 'static) -> Self {
        self.needing_count += 1;
        let (shared, begun_count) = (Arc::clone(&self.shared), Arc::clone(&self.begun_count));
        let trial = Trial::test(name, move || {
            begun_count.fetch_add(1, Ordering::Relaxed);
            run(&shared);
            Ok(())
        });
        self.trials.push(trial.with_ignored_flag(!self.missing.is_empty()));
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

    /// Runs so many tests at a time, unless the command line says otherwise.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Runs what the command line asks for, as `cargo test` would.
    #[expect(clippy::print_stderr, reason = "how many tests ran is the suite's answer")]
    pub fn run(self) -> ExitCode {
        let Self { server, name, missing, shared, trials, needing_count, begun_count, threads } =
            self;
        let mut arguments = Arguments::from_args();
        arguments.test_threads = arguments.test_threads.or(threads);
        if !missing.is_empty() {
            // Whoever asks for ignored tests too gets them ignored all the same.
            arguments.include_ignored = false;
            arguments.ignored = false;
        }
        let conclusion = libtest_mimic::run(&arguments, trials);
        drop(shared);
        if arguments.list {
            return conclusion.exit_code();
        }
        if missing.is_empty() {
            let begun_count = begun_count.load(Ordering::Relaxed);
            eprintln!("{server} SUITE RAN: {begun_count} tests ({name})");
            return conclusion.exit_code();
        }
        let mut is_required = false;
        for (server, why) in missing {
            eprintln!("{server} SUITE NOT RUN: {needing_count} tests ({name}): {why}");
            let required = env::var_os(format!("{server}_REQUIRED"));
            is_required |= required.is_some_and(|value| !value.is_empty());
        }
        if is_required { ExitCode::FAILURE } else { conclusion.exit_code() }
    }
}
