//! The section `gateway`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use ratelimiter_gateway::{
    Api, BaseUrl, Deployment, ListPrice, Model, Name, OnBackendError, Price, Provider, ProxyUrl,
    RateCounts, Secret, Settings, Tenant,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error};
use serde_json::Value;

use super::{Token, ValueError, number, token};

/// The lists of the section. Their errors have the path of the field.
const LISTS: [&str; 2] = ["gateway.providers", "gateway.tenants"];
/// The most bytes of one call.
const BODY_BYTES_MAX: u64 = 1 << 30;
/// The most bytes of all calls that wait.
const BUFFERED_BYTES_MAX: u64 = 1 << 40;

/// A reverse proxy for LLM providers; there is none without providers.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// How long a call may wait for room.
    #[serde(deserialize_with = "number::whole::<0, 60_000, _>")]
    pub wait_ms: u64,
    /// Callers with keys of the gateway.
    pub tenants: Vec<TenantConfig>,
    /// Let everybody who reaches this server use the providers' keys.
    pub allow_anonymous: bool,
    /// What happens to a call while the backend gives no answer.
    pub on_backend_error: BackendErrorChoice,
    /// Most bytes of one call.
    #[serde(deserialize_with = "number::whole::<1, BODY_BYTES_MAX, _>")]
    pub body_bytes_max: u64,
    /// Most bytes of all calls that are read or wait.
    #[serde(deserialize_with = "number::whole::<1, BUFFERED_BYTES_MAX, _>")]
    pub buffered_bytes_max: u64,
    /// The providers.
    pub providers: Vec<ProviderConfig>,
}

/// What happens to a call while the backend gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BackendErrorChoice {
    /// It is refused.
    #[default]
    Deny,
    /// It is sent.
    Allow,
}

/// A caller with a key of the gateway.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Stands in the keys of its limits.
    #[serde(deserialize_with = "name")]
    pub name: Name,
    /// Its key, given literally or as a file.
    #[serde(deserialize_with = "token::one")]
    pub key: Token,
    /// The models that it may call; all without it.
    pub models: Option<Vec<String>>,
}

/// A provider of models.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// The first segment of its paths, and a part of the keys of its limits.
    #[serde(deserialize_with = "name")]
    pub name: Name,
    /// The API that it speaks.
    pub api: ApiChoice,
    /// Where it is.
    #[serde(deserialize_with = "base_url")]
    pub base_url: BaseUrl,
    /// The key that calls are made with; the callers' own without it.
    #[serde(default, deserialize_with = "token::optional")]
    pub api_key: Option<Token>,
    /// Paths that pass without being counted.
    #[serde(default)]
    pub pass_through_paths: Vec<String>,
    /// The longest time without a byte from the provider.
    #[serde(default = "upstream_timeout", deserialize_with = "number::whole::<1, 3_600_000, _>")]
    pub upstream_timeout_ms: u64,
    /// What the provider's token rates count.
    #[serde(default)]
    pub rate_counts: RateCountsChoice,
    /// What is reserved for input that only the provider sees.
    #[serde(default = "hidden_input", deserialize_with = "number::whole::<0, 10_000_000, _>")]
    pub hidden_input_tokens: u64,
    /// The models that may be called; every model without it.
    pub models: Option<BTreeMap<String, Option<ModelConfig>>>,
    /// Authorities to trust, in PEM.
    pub ca_file: Option<PathBuf>,
    /// The URL of a proxy, given literally or as a file.
    #[serde(default, deserialize_with = "token::optional")]
    pub https_proxy: Option<Token>,
}

/// The API of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApiChoice {
    /// OpenAI's.
    OpenAi,
    /// Anthropic's.
    Anthropic,
}

/// What a provider's token rates count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RateCountsChoice {
    /// What a call used.
    #[default]
    Actual,
    /// What a call may use, up front.
    Reserved,
}

/// A model that may be called.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Other names that callers may use.
    pub aliases: Vec<String>,
    /// What is reserved for the output of calls that state no bound.
    pub default_output_tokens: Option<u64>,
    /// The longest output.
    pub max_output_tokens: Option<u64>,
    /// Dollars for a million tokens.
    #[serde(deserialize_with = "price")]
    pub price: Option<Price>,
    /// Where its calls are made, if that is several keys or regions.
    #[serde(deserialize_with = "deployments")]
    pub deployments: Vec<DeploymentConfig>,
}

/// One of several keys or regions for a model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a deployment such as { provider: east, model: gpt-4o }")]
pub struct DeploymentConfig {
    /// The name of the provider that gets the call.
    pub provider: String,
    /// The name of the model there.
    pub model: String,
    /// Its share of the calls, beside those of the others.
    #[serde(default = "weight")]
    pub weight: u32,
}

/// Dollars for a million tokens.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PriceConfig {
    input: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    output: f64,
    #[serde(default)]
    tiers: Vec<TierConfig>,
    /// Dollars a call.
    #[serde(default)]
    server_tool_call: f64,
}

/// The prices of calls with much input.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TierConfig {
    above_input_tokens: u64,
    input: f64,
    cached_input: Option<f64>,
    cache_write: Option<f64>,
    cache_write_1h: Option<f64>,
    output: f64,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            wait_ms: 30_000,
            tenants: Vec::new(),
            allow_anonymous: false,
            on_backend_error: BackendErrorChoice::default(),
            body_bytes_max: 32 << 20,
            buffered_bytes_max: 256 << 20,
            providers: Vec::new(),
        }
    }
}

impl GatewayConfig {
    /// The settings with all keys, which are read from their files; `None` if there is no gateway. `is_loopback` says that only
    /// programs on this machine reach the server.
    ///
    /// # Errors
    /// Every key that cannot be read, or else every rule that the settings break together.
    pub fn settings(&self, is_loopback: bool) -> Result<Option<Settings>, Vec<ValueError>> {
        if *self == Self::default() {
            return Ok(None);
        }
        let mut errors = Vec::new();
        let tenants = self.tenants.iter().enumerate().map(|(at, tenant)| {
            let key = read(&tenant.key, Secret::new);
            let key = noted(key, format!("gateway.tenants[{at}].key"), &mut errors)?;
            Some(Tenant { name: tenant.name.clone(), key, models: tenant.models.clone() })
        });
        let tenants: Vec<_> = tenants.collect();
        let providers = self.providers.iter().enumerate().map(|(at, provider)| {
            let path = |field| format!("gateway.providers[{at}].{field}");
            let api_key = provider.api_key.as_ref().map(|key| read(key, Secret::new));
            let api_key = noted(api_key.transpose(), path("api_key"), &mut errors);
            let https_proxy = provider.https_proxy.as_ref().map(|url| read(url, ProxyUrl::new));
            let https_proxy = noted(https_proxy.transpose(), path("https_proxy"), &mut errors);
            Some(provider.settings(api_key?, https_proxy?))
        });
        let providers: Vec<_> = providers.collect();
        if !errors.is_empty() {
            return Err(errors);
        }
        let settings = Settings {
            wait: Duration::from_millis(self.wait_ms),
            tenants: tenants.into_iter().flatten().collect(),
            allow_anonymous: self.allow_anonymous,
            on_backend_error: match self.on_backend_error {
                BackendErrorChoice::Deny => OnBackendError::Deny,
                BackendErrorChoice::Allow => OnBackendError::Allow,
            },
            body_bytes_max: crate::server::as_usize(self.body_bytes_max),
            buffered_bytes_max: crate::server::as_usize(self.buffered_bytes_max),
            providers: providers.into_iter().flatten().collect(),
        };
        let error_of = |error: &ratelimiter_gateway::SettingsError| ValueError {
            path: error.path(),
            message: error.to_string(),
        };
        match settings.check(is_loopback) {
            Ok(()) => Ok(Some(settings)),
            Err(errors) => Err(errors.iter().map(error_of).collect()),
        }
    }
}

impl GatewayConfig {
    /// Everything but what [`ratelimiter_gateway::Gateway::reload_keys`] replaces.
    #[must_use]
    pub fn without_keys(&self) -> Self {
        let mut rest = Self { tenants: Vec::new(), ..self.clone() };
        for provider in &mut rest.providers {
            provider.api_key = None;
        }
        rest
    }
}

impl ProviderConfig {
    fn settings(&self, api_key: Option<Secret>, https_proxy: Option<ProxyUrl>) -> Provider {
        let model = |(name, config): (&String, &Option<ModelConfig>)| {
            let config = config.clone().unwrap_or_default();
            let deployments = config.deployments.into_iter().map(|deployment| {
                let DeploymentConfig { provider, model, weight } = deployment;
                Deployment { provider, model, weight }
            });
            Model {
                name: name.clone(),
                aliases: config.aliases,
                default_output_tokens: config.default_output_tokens,
                max_output_tokens: config.max_output_tokens,
                price: config.price,
                deployments: deployments.collect(),
            }
        };
        Provider {
            name: self.name.clone(),
            api: match self.api {
                ApiChoice::OpenAi => Api::OpenAi,
                ApiChoice::Anthropic => Api::Anthropic,
            },
            base_url: self.base_url.clone(),
            api_key,
            pass_through_paths: self.pass_through_paths.clone(),
            upstream_timeout: Duration::from_millis(self.upstream_timeout_ms),
            rate_counts: match self.rate_counts {
                RateCountsChoice::Actual => RateCounts::Actual,
                RateCountsChoice::Reserved => RateCounts::Reserved,
            },
            hidden_input_tokens: self.hidden_input_tokens,
            models: self.models.as_ref().map(|models| models.iter().map(model).collect()),
            ca_file: self.ca_file.clone(),
            https_proxy,
        }
    }
}

/// What a secret stands for.
fn read<T, E: Display>(
    token: &Token,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, String> {
    let text = token.read_secret().map_err(|error| error.to_string())?;
    parse(&text).map_err(|error| error.to_string())
}

/// The value; `None` if there is only an error, which is noted.
fn noted<T>(value: Result<T, String>, path: String, errors: &mut Vec<ValueError>) -> Option<T> {
    value.map_err(|message| errors.push(ValueError { path, message })).ok()
}

/// The first error of each item of one of the lists, with the path of its field; `None` if the path is another one.
pub(super) fn list_errors(path: &str, value: &Value) -> Option<Vec<ValueError>> {
    let [providers, tenants] = LISTS;
    match path {
        _ if path == providers => Some(item_errors::<ProviderConfig>(path, value)),
        _ if path == tenants => Some(item_errors::<TenantConfig>(path, value)),
        _ => None,
    }
}

fn item_errors<T: DeserializeOwned>(path: &str, value: &Value) -> Vec<ValueError> {
    let Value::Array(items) = value else {
        return vec![ValueError { path: path.to_owned(), message: "must be a list".to_owned() }];
    };
    let error = |(at, item): (usize, &Value)| {
        let error = serde_path_to_error::deserialize::<_, T>(item).err()?;
        let field = error.path().to_string();
        let dot = if field == "." { "" } else { "." };
        let path = format!("{path}[{at}]{dot}{}", field.trim_start_matches('.'));
        Some(ValueError { path, message: error.into_inner().to_string() })
    };
    items.iter().enumerate().filter_map(error).collect()
}

fn weight() -> u32 {
    1
}

fn upstream_timeout() -> u64 {
    600_000
}

fn hidden_input() -> u64 {
    32_768
}

fn name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Name, D::Error> {
    parsed(deserializer, Name::new)
}

fn base_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BaseUrl, D::Error> {
    parsed(deserializer, BaseUrl::new)
}

fn parsed<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

fn deployments<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<DeploymentConfig>, D::Error> {
    let deployments = Vec::<DeploymentConfig>::deserialize(deserializer)?;
    match deployments.is_empty() {
        true => Err(D::Error::custom("must name a deployment; without any, leave it out")),
        false => Ok(deployments),
    }
}

fn price<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    let Some(price) = Option::<PriceConfig>::deserialize(deserializer)? else { return Ok(None) };
    let PriceConfig {
        input,
        cached_input,
        cache_write,
        cache_write_1h,
        output,
        tiers,
        server_tool_call,
    } = price;
    let base = ListPrice { input, cached_input, cache_write, cache_write_1h, output };
    let tiers = tiers.into_iter().map(|tier| {
        let TierConfig {
            above_input_tokens,
            input,
            cached_input,
            cache_write,
            cache_write_1h,
            output,
        } = tier;
        let price = ListPrice { input, cached_input, cache_write, cache_write_1h, output };
        (above_input_tokens, price)
    });
    Price::new(base, tiers, server_tool_call).map(Some).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests;
