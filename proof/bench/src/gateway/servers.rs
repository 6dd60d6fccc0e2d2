//! The provider, and the processes through which it is asked.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use serde_json::json;
use testkit::{Process, Server};

use crate::child::{PROVIDER_VARIABLE, Role};

/// The model of all calls.
pub(super) const MODEL: &str = "gpt-4o";
/// A limit that is on and never reached.
pub(super) const NO_BOUND: u64 = 1_000_000_000_000;

/// Which tokens the provider counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RateCounts {
    Actual,
    Reserved,
}

impl RateCounts {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Actual => "actual",
            Self::Reserved => "reserved",
        }
    }
}

/// The limits of a provider.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rates {
    pub(super) rpm: u64,
    pub(super) tpm: u64,
    pub(super) counts: RateCounts,
}

impl Rates {
    /// They are counted, and never reached.
    pub(super) const fn unbounded() -> Self {
        Self { rpm: NO_BOUND, tpm: NO_BOUND, counts: RateCounts::Actual }
    }
}

/// A program that answers at an address, and the path of its chat completions.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) process: Process,
    pub(super) addr: SocketAddr,
    pub(super) path: &'static str,
}

/// `ratelimiterd mock-provider`, with further arguments.
pub(super) fn provider(rates: Rates, arguments: &[&str]) -> Endpoint {
    let mut command = Role::Ratelimiterd.command();
    command.args(["mock-provider", "--listen", "127.0.0.1:0"]).args(arguments);
    command.args(["--rpm", &rates.rpm.to_string(), "--tpm", &rates.tpm.to_string()]);
    command.args(["--rate-counts", rates.counts.name()]);
    let process = Process::start(command);
    let line = process.wait_for_line("OpenAI http://").expect("the provider starts");
    let url = line.split("http://").nth(1).expect("it says where it listens");
    let addr = url.split('/').next().and_then(|addr| addr.parse().ok());
    let addr = addr.expect("an address before the path");
    Endpoint { process, addr, path: "/v1/chat/completions" }
}

/// `ratelimiterd` as a gateway to the provider, with four limits on each call. One for a provider has a folder there.
pub(super) fn ratelimiterd(provider: &Endpoint, folder: &Path, rates: Rates) -> Endpoint {
    let folder = folder.join(provider.addr.port().to_string());
    let (config, limits) = (folder.join("gateway.yaml"), folder.join("limits.json"));
    fs::create_dir_all(&folder).expect("a temporary folder can be written to");
    fs::write(&config, configuration(provider, rates.counts)).expect("so can its files");
    fs::write(&limits, four_limits(rates)).expect("so can its files");
    let mut command = Role::Ratelimiterd.command();
    command.args(["--listen", "127.0.0.1:0", "--config"]).arg(config).arg("--limits").arg(limits);
    let Server { process, addr } = Server::start(command, folder);
    Endpoint { process, addr, path: "/openai/v1/chat/completions" }
}

fn configuration(provider: &Endpoint, counts: RateCounts) -> String {
    let price = json!({ "input": 2.50, "output": 10.00 });
    let models = json!({ MODEL: { "max_output_tokens": 16_384, "price": price } });
    let provider = json!({
        "name": "openai",
        "api": "openai",
        "base_url": format!("http://{}/v1", provider.addr),
        "api_key": "sk-bench",
        "rate_counts": counts.name(),
        "models": models,
    });
    // YAML contains JSON. Nobody waits for longer than a window.
    json!({ "gateway": { "wait_ms": 60_000, "providers": [provider] } }).to_string()
}

/// A limits file: requests, tokens, concurrency and money.
fn four_limits(rates: Rates) -> String {
    let limit = |dimension, kind, capacity, (field, seconds): (&str, u64)| {
        let key = format!("global:llm:openai:{MODEL}:{dimension}");
        json!({ "key": key, "kind": kind, "capacity": capacity, field: seconds })
    };
    let minute = ("window_seconds", 60);
    let limits = json!([
        limit("rpm", "rolling", rates.rpm, minute),
        limit("tpm", "rolling", rates.tpm, minute),
        limit("concurrency", "concurrency", NO_BOUND, ("timeout_seconds", 300)),
        limit("daily_cost", "rolling", NO_BOUND, ("window_seconds", 86_400)),
    ]);
    json!({ "version": 2, "limits": limits }).to_string()
}

/// A reverse proxy that does nothing else.
pub(super) fn bare_proxy(provider: &Endpoint, folder: &Path) -> Endpoint {
    let mut command = Role::BareProxy.command();
    command.env(PROVIDER_VARIABLE, provider.addr.to_string());
    let Server { process, addr } = Server::start(command, folder);
    Endpoint { process, addr, path: provider.path }
}
