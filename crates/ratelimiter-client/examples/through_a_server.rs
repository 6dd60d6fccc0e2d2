//! The same jobs as in `utilisation`, fewer of them, through a server on this machine and in real time.
//!
//! `cargo run --release -p ratelimiter-client --example through_a_server`
//!
//! The providers are ten times as fast here and their window is 2 s, and the limiter is told 80 % of what they allow: a request takes a while to arrive,
//! so that a provider's window ends later than the limiter's. Exits with 1 when a provider says 429.
//!
//! So the table's figure of the busy provider is not to be held against that of `utilisation`: 80 % is all there is. While a call runs, its
//! upper bound is reserved, which leaves 95 % of that if every call is made at the earliest moment. In process and on a paused clock the
//! same jobs use 72 % of the provider, 90 % of what the limiter is told, with round trips of 0 to 10 ms alike.

#![allow(clippy::print_stdout, reason = "the table is what the program is for")]

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
        told_percent: 80,
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
        servers.lock().expect("nobody panics with the lock held").push(server);
        Ok(Batcher::new(limiter))
    };
    let comparison = scenario.compare(through_a_server).await?;
    print!("{comparison}");
    let Some(busy_percent) = percent_of_told(comparison.busy.utilisation, scenario.told_percent)
    else {
        return Err("nothing was told".into());
    };
    println!("{busy_percent:.1} % of what the limiter was told was used");
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
fn percent_of_told(utilisation: f64, told_percent: u64) -> Option<f64> {
    (told_percent > 0).then(|| utilisation / told_percent as f64 * 10_000.0)
}
