//! A runner in its own process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use coordination_sql::SqliteProvider;
use ratelimiter_client::jobs::{
    CancellationToken, JobCall, JobRunner, LeaseDuration, RunnerSettings,
};
use ratelimiter_client::{Done, HttpLimiter, JobError};

/// The argument that starts the program as a runner.
pub(crate) const RUNNER: &str = "--runner";

/// A runner's process.
#[derive(Debug)]
pub(crate) struct RunnerProcess {
    child: Child,
}

impl RunnerProcess {
    pub(crate) fn start(
        queue: &Path,
        limiter: &str,
        provider: SocketAddr,
    ) -> std::io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .arg(RUNNER)
            .arg(queue)
            .args([limiter, &provider.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self { child })
    }

    /// Kills it, like `kill -9`.
    pub(crate) fn kill(&mut self) -> std::io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Stops it. Returns its output.
    pub(crate) fn stop(mut self) -> std::io::Result<String> {
        drop(self.child.stdin.take());
        let mut output = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            std::io::Read::read_to_string(&mut stdout, &mut output)?;
        }
        self.child.wait()?;
        Ok(output.trim().to_owned())
    }
}

impl Drop for RunnerProcess {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs jobs until the standard input ends.
#[tokio::main]
pub(crate) async fn run(arguments: &[String]) -> Result<(), JobError> {
    let [queue, limiter, provider] = arguments else {
        return Err("a runner needs a queue, a limiter and a provider".into());
    };
    let outbox = SqliteProvider::open(queue).await?;
    let limiter = HttpLimiter::new(limiter)?;
    let provider: SocketAddr = provider.parse()?;
    let settings = RunnerSettings {
        workers: 32,
        claim_for: LeaseDuration::new(Duration::from_secs(5))?,
        poll_interval: Duration::from_millis(200),
        upkeep_interval: Duration::from_secs(1),
        // A busy machine may be slow, and failed calls are not the subject here.
        attempts_max: 20,
        ..RunnerSettings::default()
    };
    let runner = JobRunner::new(outbox, limiter, settings, move |call: JobCall| async move {
        let tokens = crate::provider::call(provider, &call).await?;
        Ok(Done::using(tokens, format!("answer to {}", call.id)))
    })?;
    let (counters, shutdown) = (runner.counters(), CancellationToken::new());
    let stop = shutdown.clone();
    std::thread::spawn(move || {
        drop(std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
        stop.cancel();
    });
    runner.run(shutdown).await;
    let counters = counters.snapshot();
    println!(
        "claimed {}, asked {}, denied {}, succeeded {}, retried {}, claims lost {}, reaped {}",
        counters.claimed,
        counters.asked,
        counters.denied,
        counters.succeeded,
        counters.retried,
        counters.claims_lost,
        counters.reaped
    );
    Ok(())
}
