//! The settings of a gateway. A value that exists is valid by itself; [`Settings::check`] checks them together.

mod base_url;
mod error;
mod secret;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

pub use base_url::{BaseUrl, BaseUrlError};
pub use error::{DeploymentError, SettingsError};
pub use secret::{Secret, SecretError};

use crate::api::Api;
use crate::encoding::Encoding;
use crate::model_name::is_model_name;
use crate::price::Price;
use crate::proxy_url::ProxyUrl;
use crate::upstream::{Upstream, UpstreamError};

/// The most bytes of the name of a provider or a tenant.
pub const NAME_BYTES_MAX: usize = 64;
/// The largest weight of a deployment.
pub const DEPLOYMENT_WEIGHT_MAX: u32 = 1_000;
/// First segments of the server's own paths, which no provider may have as its name.
pub const RESERVED_NAMES: [&str; 8] =
    ["v1", "healthz", "readyz", "metrics", "openapi.json", "ui", "assets", "favicon.ico"];

/// The settings of a gateway.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How long a call may wait for room; at most a minute.
    pub wait: Duration,
    /// The callers and their keys. Without any, a header names the tenant.
    pub tenants: Vec<Tenant>,
    /// Whether others may use the provider's keys without a key of their own.
    pub allow_anonymous: bool,
    /// What happens to a call while the backend gives no answer.
    pub on_backend_error: OnBackendError,
    /// The most bytes of one call.
    pub body_bytes_max: usize,
    /// The most bytes of all calls that are being read or wait.
    pub buffered_bytes_max: usize,
    /// The providers, at least one.
    pub providers: Vec<Provider>,
}

/// A caller with a key of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    /// Stands in the keys of its limits.
    pub name: Name,
    /// Authenticates it.
    pub key: Secret,
    /// The models that it may call; `None` for all.
    pub models: Option<Vec<String>>,
}

/// What happens to a call while the backend gives no answer (`GW-15`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnBackendError {
    /// It is refused with 503.
    #[default]
    Deny,
    /// It is sent, and counted in a metric.
    Allow,
}

/// A provider of models.
#[derive(Debug, Clone, PartialEq)]
pub struct Provider {
    /// The first segment of its paths, and a part of the keys of its limits.
    pub name: Name,
    /// The API that it speaks.
    pub api: Api,
    /// Where it is.
    pub base_url: BaseUrl,
    /// The key that all calls are made with; without it, the caller's own credentials pass.
    pub api_key: Option<Secret>,
    /// Paths that pass without being counted, as `models` does.
    pub pass_through_paths: Vec<String>,
    /// The longest time without a byte from the provider.
    pub upstream_timeout: Duration,
    /// What the provider's token rates count.
    pub rate_counts: RateCounts,
    /// What is reserved for input that only the provider sees.
    pub hidden_input_tokens: u64,
    /// The models that may be called; `None` for every model.
    pub models: Option<Vec<Model>>,
    /// Authorities to trust, in PEM, instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// A proxy through which a provider with TLS is reached.
    pub https_proxy: Option<ProxyUrl>,
}

/// What a provider's token rates count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateCounts {
    /// What a call used.
    #[default]
    Actual,
    /// What a call may use, up front.
    Reserved,
}

/// A model that may be called.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Model {
    /// Stands in the keys of its limits.
    pub name: String,
    /// Other names that callers may use.
    pub aliases: Vec<String>,
    /// What is reserved for the output of calls that state no bound.
    pub default_output_tokens: Option<u64>,
    /// The longest output.
    pub max_output_tokens: Option<u64>,
    /// Needed for limits in dollars.
    pub price: Option<Price>,
    /// Where its calls are made; here, under its own name, if there are none.
    pub deployments: Vec<Deployment>,
}

/// One of several keys or regions for a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// The name of the provider that gets the call.
    pub provider: String,
    /// The name of the model there.
    pub model: String,
    /// Its share of the calls, beside those of the others.
    pub weight: u32,
}

/// The name of a provider or a tenant: 1 to 64 characters of `A-Z a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(Box<str>);

/// A text is not a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to {NAME_BYTES_MAX} characters of A-Z a-z 0-9 . _ - and not `.` or `..`")]
pub struct NameError;

impl Name {
    /// Checks a name.
    ///
    /// # Errors
    /// It is empty, too long, has another character, or is `.` or `..`.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
        if !fits || matches!(text, "." | "..") {
            return Err(NameError);
        }
        Ok(Self(text.into()))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Model {
    /// Whether callers may use this name for it.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.aliases.iter().any(|alias| alias == name)
    }
}

impl Settings {
    /// Checks the settings together. `is_loopback` says that only programs on this machine reach the server.
    ///
    /// # Errors
    /// Each broken rule.
    pub fn check(&self, is_loopback: bool) -> Result<(), Vec<SettingsError>> {
        let mut errors = Vec::new();
        if self.providers.is_empty() {
            errors.push(SettingsError::NoProvider);
        }
        let mut names = HashSet::new();
        for (at, provider) in self.providers.iter().enumerate() {
            let name = provider.name.as_str();
            if RESERVED_NAMES.contains(&name) {
                errors.push(SettingsError::ReservedName { at });
            }
            if !names.insert(name) {
                errors.push(SettingsError::ProviderTwice { at });
            }
            if provider.api_key.is_none() && !self.tenants.is_empty() {
                errors.push(SettingsError::TenantsWithoutApiKey { at });
            }
            let is_open = self.tenants.is_empty() && !is_loopback && !self.allow_anonymous;
            if provider.api_key.is_some() && is_open {
                errors.push(SettingsError::ApiKeyForEverybody { at });
            }
            if let Err(error) = provider.check_upstream() {
                errors.push(SettingsError::CaFile { at, error });
            }
            if provider.api == Api::Anthropic && provider.base_url.ends_with_version() {
                errors.push(SettingsError::AnthropicVersion { at });
            }
            if provider.https_proxy.is_some() && !provider.base_url.is_encrypted() {
                errors.push(SettingsError::ProxyWithoutTls { at });
            }
            errors.extend(provider.check_paths(at));
            errors.extend(provider.check_models(at));
            errors.extend(self.check_deployments(at, provider));
        }
        if self.buffered_bytes_max < self.body_bytes_max {
            errors.push(SettingsError::BufferedBelowBody);
        }
        let (mut names, mut keys) = (HashSet::new(), HashSet::new());
        for (at, tenant) in self.tenants.iter().enumerate() {
            if !names.insert(tenant.name.as_str()) {
                errors.push(SettingsError::TenantTwice { at });
            }
            if !keys.insert(tenant.key.expose()) {
                errors.push(SettingsError::TenantKeyTwice { at });
            }
            for model in tenant.models.iter().flatten() {
                if !self.providers.iter().any(|provider| provider.may_have(model)) {
                    errors.push(SettingsError::UnknownModel { at, model: model.clone() });
                }
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl Settings {
    /// Each deployment is a model that can be called at a provider of the same API.
    fn check_deployments(&self, at: usize, provider: &Provider) -> Vec<SettingsError> {
        let mut errors = Vec::new();
        for model in provider.models.iter().flatten() {
            let mut places = HashSet::new();
            for (deployment_at, deployment) in model.deployments.iter().enumerate() {
                let problem = self.check_deployment(provider.api, deployment);
                let is_new = places.insert((&deployment.provider, &deployment.model));
                let twice = (!is_new).then_some(DeploymentError::Twice);
                errors.extend(problem.or(twice).map(|error| {
                    let model = model.name.clone();
                    SettingsError::Deployment { at, model, deployment_at, error }
                }));
            }
        }
        errors
    }

    fn check_deployment(&self, api: Api, deployment: &Deployment) -> Option<DeploymentError> {
        let Deployment { provider, model, weight } = deployment;
        if !is_model_name(model) {
            return Some(DeploymentError::ModelName);
        }
        if !(1..=DEPLOYMENT_WEIGHT_MAX).contains(weight) {
            return Some(DeploymentError::Weight);
        }
        let mut providers = self.providers.iter();
        let Some(provider) = providers.find(|other| other.name.as_str() == provider) else {
            return Some(DeploymentError::UnknownProvider);
        };
        if provider.api != api {
            return Some(DeploymentError::OtherApi);
        }
        let Some(models) = &provider.models else { return None };
        match models.iter().find(|listed| listed.name == *model) {
            None => Some(DeploymentError::UnknownModel),
            Some(listed) if listed.deployments.is_empty() => None,
            // It would have to be deployed in turn.
            Some(_) => Some(DeploymentError::Chain),
        }
    }
}

impl Provider {
    /// The certificates to trust can be read.
    fn check_upstream(&self) -> Result<(), UpstreamError> {
        match &self.ca_file {
            Some(path) => Upstream::new(self.base_url.is_encrypted(), Some(path), None).map(drop),
            None => Ok(()),
        }
    }

    /// The models that may be called; none if every model may.
    pub(crate) fn listed(&self) -> &[Model] {
        self.models.as_deref().unwrap_or_default()
    }

    /// Whether it has a model of this name or alias, as far as that is known.
    fn may_have(&self, name: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.iter().any(|model| model.is_named(name)))
    }

    /// How a model turns text into tokens, if that is known.
    pub(crate) fn encoding(&self, name: &str) -> Option<Encoding> {
        if self.api != Api::OpenAi {
            return None;
        }
        let Some(models) = &self.models else { return Encoding::of_model(name) };
        let listed = models.iter().find(|model| model.is_named(name))?;
        Encoding::of_model(&listed.name).or_else(|| Encoding::of_model(name))
    }

    /// Paths that a call can have.
    fn check_paths(&self, at: usize) -> impl Iterator<Item = SettingsError> {
        let is_path = |pattern: &String| {
            let path = pattern.strip_suffix("/*").unwrap_or(pattern);
            let is_segment = |segment: &str| !matches!(segment, "" | "." | "..");
            path.split('/').all(is_segment) && !path.contains(['*', '?', '#', ' '])
        };
        let paths = self.pass_through_paths.iter().enumerate();
        paths
            .filter(move |(_, pattern)| !is_path(pattern))
            .map(move |(path_at, _)| SettingsError::PassThroughPath { at, path_at })
    }

    /// A name of a model means one model, and each can be called.
    fn check_models(&self, at: usize) -> Vec<SettingsError> {
        let mut names = HashSet::new();
        let models = self.models.iter().flatten();
        let all = models.flat_map(|model| {
            std::iter::once(&model.name).chain(&model.aliases).map(move |name| (model, name))
        });
        let mut errors = Vec::new();
        for (Model { name: model, .. }, name) in all {
            let (model, name) = (model.clone(), name.clone());
            if !is_model_name(&name) {
                errors.push(SettingsError::ModelName { at, model });
            } else if !names.insert(name.clone()) {
                errors.push(SettingsError::ModelTwice { at, model, name });
            }
        }
        for Model { name, default_output_tokens, max_output_tokens, .. } in
            self.models.iter().flatten()
        {
            let model = || name.clone();
            for (field, tokens) in [
                ("default_output_tokens", default_output_tokens),
                ("max_output_tokens", max_output_tokens),
            ] {
                if *tokens == Some(0) {
                    errors.push(SettingsError::NoOutput { at, model: model(), field });
                }
            }
            let both = default_output_tokens.zip(*max_output_tokens);
            if both.is_some_and(|(default, max)| default > max) {
                errors.push(SettingsError::DefaultAboveMax { at, model: model() });
            }
        }
        errors
    }
}

#[cfg(test)]
mod tests;
