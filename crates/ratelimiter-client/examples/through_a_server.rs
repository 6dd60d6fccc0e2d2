//! The same jobs as in `utilisation`, fewer of them, through a server on this machine and in real time.
//!
//! `cargo run --release -p ratelimiter-client --example through_a_server`
//!
//! The providers are ten times as fast here, and their window is 2 s. The limiter's capacities are 80 % of theirs: a request takes a while to
//! arrive, so a provider's window ends later than the limiter's. Exits with 1 if a provider returns 429.
//!
//! The utilisation of the busy provider is therefore at most 80 %, unlike in `utilisation`. While a call runs, its upper bound is reserved, which
//! leaves 95 % of that if every call is made as early as possible. In process and on a paused clock the same jobs use 72 % of the provider, 90 %
//! of the limiter's capacity, with round trips of 0 to 10 ms.

#![allow(clippy::print_stdout, reason = "the program prints a table")]

use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use ratelimiter_client::{Batcher, HttpLimiter, JobError, MemoryLimiter};
use ratelimiterd::Server;
use ratelimiterd::config::{Config, ListenAddr};
use simulated_provider::{Latency, ProviderLimits, TwoProviders};

#[tokio::main]
async fn main() -> Result<ExitCode, JobError> {
    let window = Duration::from_secs(2);
    let scenario = TwoProviders {
        busy: ProviderLimits { requests: 1_000, tokens: 100_000, slots: 100, window },
        busy_jobs: 1_500,
        quiet: ProviderLimits { requests: 1_000, tokens: 20_000, slots: 100, window },
        quiet_jobs: 100,
        quiet_every: Duration::from_millis(150),
        latency: Latency { base: Duration::from_millis(10), per_token: Duration::from_micros(200) },
        limiter_percent: 80,
        warm_up: Duration::from_secs(4),
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
    let Some(busy_percent) =
        percent_of_limiter(comparison.busy.utilisation, scenario.limiter_percent)
    else {
        return Err("the limiter has no capacity".into());
    };
    println!("{busy_percent:.1} % of the limiter's capacity was used");
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn percent_of_limiter(utilisation: f64, limiter_percent: u64) -> Option<f64> {
    (limiter_percent > 0).then(|| utilisation / limiter_percent as f64 * 10_000.0)
}
