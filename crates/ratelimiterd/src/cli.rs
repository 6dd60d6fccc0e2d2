//! The command-line interface.

mod bench;
mod check;
mod denials;
mod diff;
mod leases;
mod limits;
mod mock_provider;
mod remote;
mod serve;
mod table;
mod top;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::config::Layers;

/// Capacity control for LLM calls: the server and its tools.
#[derive(Debug, Parser)]
#[command(name = "ratelimiterd", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    settings: Settings,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server (also without a command)
    Serve(Settings),
    /// Validate config and limits, print every error with its location, exit 1 if there is any
    Check(Settings),
    /// Define, delete and show the limits of a running server, and its open leases
    Limits(limits::Limits),
    /// Load test: throughput, latencies, allowed and denied
    Bench(bench::Bench),
    /// Live view of a running server's limits
    Top(top::Top),
    /// A fake LLM provider, for trying and testing: OpenAI's and Anthropic's APIs
    MockProvider(mock_provider::Mock),
    /// Print a completion script for a shell
    Completions {
        /// bash, zsh, fish, elvish or powershell
        shell: clap_complete::Shell,
    },
}

/// Config sources.
#[derive(Debug, clap::Args)]
struct Settings {
    /// A YAML file; every value has a default
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The address to listen on, instead of the config's `server.listen_addr`
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// memory, tigerbeetle or redis, instead of the config's `server.backend`
    #[arg(long, value_name = "BACKEND")]
    backend: Option<String>,
    /// The limits file, instead of the config's `registry.path`
    #[arg(long, value_name = "FILE")]
    limits: Option<String>,
}

/// The message of a failed command; each line is printed with the program's name.
#[derive(Debug)]
struct CliError(String);

/// Runs a command with the program's arguments and environment.
pub fn run() -> ExitCode {
    let variables = std::env::vars_os();
    let text = |(name, value): (OsString, OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let variables = variables.filter_map(text).collect::<Vec<_>>();
    let cli = Cli::parse();
    match dispatch(cli, variables) {
        Ok(code) => code,
        Err(CliError(reason)) => {
            // A failed write is ignored: there is no other place to report it.
            drop(writeln!(
                io::stderr(),
                "ratelimiterd: {}",
                reason.replace('\n', "\nratelimiterd: ")
            ));
            ExitCode::FAILURE
        }
    }
}

fn dispatch(cli: Cli, variables: Vec<(String, String)>) -> Result<ExitCode, CliError> {
    let Cli { command, settings } = cli;
    match command.unwrap_or(Command::Serve(settings)) {
        Command::Serve(settings) => {
            let read_config = || settings.layers(variables.clone()).config();
            in_runtime(serve::run(read_config().map_err(CliError::of)?, read_config))
        }
        Command::Check(settings) => {
            in_runtime(check::run(&settings, variables, &mut io::stdout().lock()))
        }
        Command::Limits(limits) => in_runtime(limits::run(limits)),
        Command::Bench(bench) => in_runtime(bench::run(bench)),
        Command::Top(top) => in_runtime(top::run(top)),
        Command::MockProvider(mock) => in_runtime(mock_provider::run(mock)),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "ratelimiterd", &mut io::stdout());
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn in_runtime(
    work: impl Future<Output = Result<ExitCode, CliError>>,
) -> Result<ExitCode, CliError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(CliError::of)?.block_on(work)
}

impl Settings {
    fn layers(&self, variables: Vec<(String, String)>) -> Layers {
        let mut layers = Layers::new();
        if let Some(path) = &self.config {
            layers.add_file(path);
        }
        layers.add_environment(variables);
        for (flag, path, value) in [
            ("--listen", "server.listen_addr", &self.listen),
            ("--backend", "server.backend", &self.backend),
            ("--limits", "registry.path", &self.limits),
        ] {
            if let Some(value) = value {
                layers.add_text(flag, path, value);
            }
        }
        layers
    }
}

impl CliError {
    fn of(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}
