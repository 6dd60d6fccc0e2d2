//! The program with a gateway, limits, and the mock provider behind it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use ratelimiter::LeaseId;
use ratelimiter_mock_provider::{CallEnd, MockOptions, MockProvider};
use serde_json::{Value, json};
use testkit::{Process, Server, eventually, without_settings};

use crate::sdk::{Sdk, Used};

/// What the scripts call, besides their SDK's own models. The names of the others say what limits they have.
const MODELS: [&str; 5] = ["small", "one-a-day", "one-in-two-seconds", "one-at-a-time", "busy"];
/// The SDK repeats calls of these by itself, so the gateway refuses more of them than the script sees.
const REPEATED: [&str; 2] = ["one-in-two-seconds", "busy"];
const PROVIDER_KEY: &str = "key-of-the-provider";
const TENANT: &str = "acme";
/// Nothing lapses while a script runs, however slow the machine is.
const DAY_SECONDS: u64 = 86_400;
const ROOMY: u64 = 1_000_000_000;
/// Of each prompt, at the mock provider.
const PROMPT_TOKENS: u64 = 8;
/// The output that a stream would have if it was not broken off.
const CUT_OUTPUT_TOKENS: u64 = 1_000;
/// Another caller's.
const LEASE: LeaseId = LeaseId::from_u128(1);

pub(crate) struct Gateway {
    provider: &'static str,
    models: Vec<&'static str>,
    server: Server,
    mock: MockProvider,
}

impl Gateway {
    /// The key that a script calls with.
    pub(crate) const KEY: &str = "key-of-acme";

    /// Starts the program in a folder.
    pub(crate) async fn start(sdk: Sdk, folder: &Path) -> Self {
        let options = MockOptions {
            listen: ([127, 0, 0, 1], 0).into(),
            output_tokens: 7,
            api_key: Some(PROVIDER_KEY.to_owned()),
            ..MockOptions::default()
        };
        let mock = MockProvider::start(options).await.unwrap();
        let provider = sdk.name();
        let (base_url, own) = match sdk {
            Sdk::OpenAi => (mock.base_url_openai(), &["gpt-4o", "text-embedding-3-small"][..]),
            Sdk::Anthropic => (mock.base_url_anthropic(), &["claude-sonnet-4-5"][..]),
        };
        let models = [own, &MODELS].concat();
        // A micro-dollar for a token of input, and two for one of output.
        let model = json!({"default_output_tokens": 50, "price": {"input": 1.0, "output": 2.0}});
        let listed: Value = models.iter().map(|name| ((*name).to_owned(), model.clone())).collect();
        // JSON is YAML.
        let config = json!({"gateway": {
            "wait_ms": 60_000,
            "tenants": [{"name": TENANT, "key": Self::KEY}],
            "providers": [{
                "name": provider, "api": provider, "base_url": base_url,
                "api_key": PROVIDER_KEY, "models": listed,
            }],
        }});
        fs::write(folder.join("config.yaml"), config.to_string()).unwrap();
        let mut command = without_settings(Command::new(env!("CARGO_BIN_EXE_ratelimiterd")));
        command.args(["--config", "config.yaml", "--listen", "127.0.0.1:0"]);
        let gateway = Self { provider, models, server: Server::start(command, folder), mock };
        gateway.define_limits();
        gateway
    }

    pub(crate) fn url(&self) -> String {
        self.server.url()
    }

    fn define_limits(&self) {
        let mut limits = Vec::new();
        for model in &self.models {
            let key = |dimension| self.key(model, dimension);
            let tokens = if *model == "small" { 100 } else { ROOMY };
            let calls = if ["one-at-a-time", "busy"].contains(model) { 1 } else { 100 };
            limits.extend([
                rolling(&key("rpm"), ROOMY, DAY_SECONDS),
                rolling(&key("tpm"), tokens, DAY_SECONDS),
                rolling(&key("daily_cost"), ROOMY, DAY_SECONDS),
                concurrency(&key("concurrency"), calls),
            ]);
        }
        limits.push(rolling(&self.key("one-a-day", "rpd"), 1, DAY_SECONDS));
        limits.push(rolling(&self.key("one-in-two-seconds", "rps"), 1, 2));
        let template = |dimension| format!("tenant:*:llm:{dimension}");
        for dimension in ["rpm", "tpm", "daily_cost"] {
            limits.push(rolling(&template(dimension), ROOMY, DAY_SECONDS));
        }
        limits.push(concurrency(&template("concurrency"), 100));
        self.send("PUT", "/v1/admin/limits", &json!({"limits": limits}));
    }

    fn key(&self, model: &str, dimension: &str) -> String {
        format!("global:llm:{}:{model}:{dimension}", self.provider)
    }

    /// Takes the only place of the model `busy`.
    pub(crate) fn occupy(&self) {
        let needs = json!([{"key": self.key("busy", "concurrency"), "amount": 1}]);
        let request = json!({"lease_id": LEASE.to_string(), "requirements": needs});
        assert_eq!(self.send("POST", "/v1/reserve", &request)["allowed"], true);
    }

    /// Gives the place back once the script was refused.
    pub(crate) async fn give_way(&self, script: &mut Process) {
        eventually("the script is refused", async || {
            self.refused("busy") > 0 || !script.is_running()
        })
        .await;
        let request = json!({"lease_id": LEASE.to_string(), "actuals": []});
        self.send("POST", "/v1/complete", &request);
    }

    /// The limits have what the script says.
    pub(crate) async fn check(&self, said: &BTreeMap<String, Used>) {
        eventually("all leases have ended", async || {
            self.send("GET", "/v1/admin/leases", &Value::Null)["leases"] == json!([])
        })
        .await;
        let [mut requests, mut tokens, mut cost] = [0; 3];
        for model in &self.models {
            let used = said.get(*model).copied().unwrap_or_default();
            self.check_model(model, used);
            requests += used.requests + used.cut;
            tokens += self.used(&self.key(model, "tpm"));
            cost += self.used(&self.key(model, "daily_cost"));
        }
        assert!(requests > 0);
        assert!(said.keys().all(|model| self.models.contains(&model.as_str())), "{said:?}");
        for (dimension, expected) in
            [("rpm", requests), ("tpm", tokens), ("daily_cost", cost), ("concurrency", 0)]
        {
            assert_eq!(self.used(&format!("tenant:{TENANT}:llm:{dimension}")), expected);
        }
        eventually("the provider's calls are cancelled", async || {
            let calls = self.mock.calls();
            let mut stalled = calls.iter().filter(|call| {
                call.headers.get("x-mock-fault").is_some_and(|fault| fault == "stall")
            });
            stalled.all(|call| call.ended == CallEnd::ClientGone)
        })
        .await;
    }

    fn check_model(&self, model: &str, said: Used) {
        let Used { requests, input, output, cut, refused } = said;
        let used = |dimension| self.used(&self.key(model, dimension));
        assert_eq!(used("rpm"), requests + cut, "{model} {said:?}");
        assert_eq!(used("concurrency"), 0, "{model}");
        let tokens = input + output;
        let least = tokens + cut * PROMPT_TOKENS;
        let most = tokens + cut * (PROMPT_TOKENS + CUT_OUTPUT_TOKENS);
        assert!((least..=most).contains(&used("tpm")), "{model} {said:?}: {}", used("tpm"));
        if cut == 0 {
            assert_eq!(used("daily_cost"), input + 2 * output, "{model} {said:?}");
        }
        if !REPEATED.contains(&model) {
            assert_eq!(self.refused(model), refused, "{model} {said:?}");
        }
    }

    fn used(&self, key: &str) -> u64 {
        let state = self.send("GET", &format!("/v1/admin/limits/{key}"), &Value::Null);
        state["limit"]["used"].as_u64().unwrap()
    }

    /// How often the gateway refused a call of a model for lack of room.
    fn refused(&self, model: &str) -> u64 {
        let provider = self.provider;
        let series = format!(
            r#"ratelimiter_gateway_requests_total{{provider="{provider}",model="{model}",outcome="no_room"}} "#
        );
        let (_, metrics) = self.server.ask("GET", "/metrics", "").unwrap();
        let count = metrics.lines().find_map(|line| line.strip_prefix(&series));
        count.map_or(0, |count| count.parse().unwrap())
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = self.server.ask(method, path, &body).unwrap();
        assert_eq!(status, 200, "{method} {path}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }
}

fn rolling(key: &str, capacity: u64, window_seconds: u64) -> Value {
    json!({
        "key": key, "kind": "rolling", "capacity": capacity, "window_seconds": window_seconds,
    })
}

fn concurrency(key: &str, capacity: u64) -> Value {
    json!({
        "key": key, "kind": "concurrency", "capacity": capacity, "timeout_seconds": 3_600,
    })
}
