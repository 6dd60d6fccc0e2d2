//! The same jobs as in `utilisation`, fewer of them, through a server on this machine and in real time.
//!
//! `cargo run --release -p ratelimiter-client --example through_a_server`
//!
//! The providers are ten times as fast here, and their window is 10 s. The limiter's capacities are 98 % of theirs: a request takes a while to
//! arrive, so a provider's window ends a little later than the limiter's. Takes about a minute. Exits with 1 if a provider returns 429, or if less
//! than 95 % of the busy one's tokens are used.

#![allow(clippy::print_stdout, reason = "the program prints a table")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use ratelimiter_client::{Batcher, HttpLimiter, JobError, MemoryLimiter};
use ratelimiterd::Server;
use ratelimiterd::config::{Config, ListenAddr};
use simulated_provider::{Latency, ProviderLimits, TwoProviders, UTILISATION_MIN};

#[tokio::main]
async fn main() -> Result<ExitCode, JobError> {
    let window = Duration::from_secs(10);
    let scenario = TwoProviders {
        busy: ProviderLimits { requests: 5_000, tokens: 500_000, slots: 20, window },
        busy_jobs: 5_000,
        quiet: ProviderLimits { requests: 5_000, tokens: 100_000, slots: 20, window },
        quiet_jobs: 100,
        quiet_every: Duration::from_millis(150),
        latency: Latency { base: Duration::from_millis(10), per_token: Duration::from_micros(200) },
        limiter_percent: 98,
        warm_up: Duration::from_secs(20),
        ..TwoProviders::default()
    };
    let folder = tempfile::tempdir()?;
    let servers = Mutex::new(Vec::new());
    let through_a_server = || async {
        let mut config = Config::default();
        config.server.listen_addr = ListenAddr::free_port();
        let limits_file = format!("limits-{}.json", fastrand::u64(..));
        config.registry.path = folder.path().join(limits_file);
        let server = Server::bind(&config, MemoryLimiter::new()).await?;
        let limiter = HttpLimiter::new(&format!("http://{}", server.local_addr()))?;
        limiter.check().await?;
        servers.lock().expect("no panic with the lock held").push(server);
        Ok(Batcher::new(limiter))
    };
    let comparison = scenario.compare(through_a_server).await?;
    print!("{comparison}");
    let is_reached = comparison.busy.utilisation >= UTILISATION_MIN;
    if !is_reached {
        println!("not reached: {:.0} % of the busy provider's tokens", UTILISATION_MIN * 100.0);
    }
    Ok(if is_reached { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
