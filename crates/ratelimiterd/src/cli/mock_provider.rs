//! `ratelimiterd mock-provider`: a fake LLM provider that runs until a signal.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use ratelimiter_mock_provider::{Fault, MockOptions, MockProvider, OUTPUT_TOKENS_MAX, RateCounts};
use tokio::signal::unix::{SignalKind, signal};

use super::CliError;

/// A fake LLM provider, for trying and testing: OpenAI's and Anthropic's APIs.
#[derive(Debug, Args)]
pub(super) struct Mock {
    /// The address to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9900")]
    listen: SocketAddr,
    /// The IDs and the calls that faults hit follow from it
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Limit of requests per minute; default: none
    #[arg(long, value_name = "COUNT")]
    rpm: Option<u64>,
    /// Limit of tokens per minute; default: none
    #[arg(long, value_name = "COUNT")]
    tpm: Option<u64>,
    /// Which tokens count
    #[arg(long, value_enum, default_value = "actual")]
    rate_counts: Counts,
    /// Time before the first byte of an answer
    #[arg(long, value_name = "MS", default_value_t = 0)]
    latency_ms: u64,
    /// Time between the chunks of a stream
    #[arg(long, value_name = "MS", default_value_t = 0)]
    chunk_ms: u64,
    /// Tokens of an answer, unless the request wants fewer
    #[arg(
        long,
        value_name = "COUNT",
        default_value_t = 16,
        value_parser = clap::value_parser!(u64).range(..=OUTPUT_TOKENS_MAX)
    )]
    output_tokens: u64,
    /// The only key that is let in; default: every key, and none
    #[arg(long, value_name = "KEY")]
    api_key: Option<String>,
    /// What goes wrong, separated by commas: 429, quota, 503, cut, cut-utf8, garbage, slow, stall, reset, no-usage, endless,
    /// long-line, wrong-length, gzip, content-type, reject-stream-options, error-event
    #[arg(long, value_name = "FAULTS", value_delimiter = ',')]
    fault: Vec<Fault>,
    /// The share of calls that go wrong, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 1.0, requires = "fault")]
    fault_rate: f64,
}

/// See [`RateCounts`].
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Counts {
    /// Those used, when a call ends
    Actual,
    /// The prompt and the most output, when a call starts
    Reserved,
}

/// Runs until a signal stops it.
pub(super) async fn run(mock: Mock) -> Result<ExitCode, CliError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(CliError::of)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CliError::of)?;
    let listen = mock.listen;
    let provider = MockProvider::start(mock.options()).await;
    let provider =
        provider.map_err(|error| CliError(format!("mock-provider at {listen}: {error}")))?;
    let (openai, anthropic) = (provider.base_url_openai(), provider.base_url_anthropic());
    writeln!(io::stdout(), "mock provider: OpenAI {openai}, Anthropic {anthropic}")
        .map_err(CliError::of)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    provider.stop().await;
    Ok(ExitCode::SUCCESS)
}

impl Mock {
    fn options(self) -> MockOptions {
        MockOptions {
            listen: self.listen,
            seed: self.seed,
            latency: Duration::from_millis(self.latency_ms),
            chunk_interval: Duration::from_millis(self.chunk_ms),
            output_tokens: self.output_tokens,
            requests_per_minute: self.rpm,
            tokens_per_minute: self.tpm,
            rate_counts: match self.rate_counts {
                Counts::Actual => RateCounts::Actual,
                Counts::Reserved => RateCounts::Reserved,
            },
            api_key: self.api_key,
            faults: self.fault,
            fault_rate: self.fault_rate,
            ..MockOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        mock: Mock,
    }

    fn options(arguments: &[&str]) -> Result<MockOptions, clap::Error> {
        let arguments = ["mock-provider"].iter().chain(arguments);
        <Program as clap::Parser>::try_parse_from(arguments).map(|program| program.mock.options())
    }

    /// GW-14, CMD-07
    #[test]
    fn the_defaults_are_those_of_the_library() {
        let options = options(&[]).expect("no argument is required");
        assert_eq!(format!("{options:?}"), format!("{:?}", MockOptions::default()));
    }

    /// GW-14
    #[test]
    fn faults_are_a_list_separated_by_commas() {
        let options = options(&["--fault", "429,cut-utf8", "--fault-rate", "0.5"]).expect("valid");
        assert_eq!(options.faults, [Fault::TooManyRequests, Fault::CutUtf8]);
        let error = self::options(&["--fault", "earthquake"]).expect_err("no such fault");
        assert!(error.to_string().contains("faults are 429, quota, "), "{error}");
    }

    #[test]
    fn the_help_names_every_fault() {
        let help = <Program as clap::CommandFactory>::command().render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let names = Fault::ALL.map(Fault::name).join(", ");
        assert!(help.contains(&names), "{help}");
    }
}
