//! The settings of a gateway. A value that exists is valid by itself; [`Settings::check`] checks them together.

mod base_url;
mod error;
mod secret;

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

pub use base_url::{BaseUrl, BaseUrlError};
pub use error::SettingsError;
pub use secret::{Secret, SecretError};

use crate::api::Api;
use crate::price::Price;
use crate::upstream::{Upstream, UpstreamError};

/// The most bytes of the name of a provider or a tenant.
pub const NAME_BYTES_MAX: usize = 64;
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
#[derive(Debug, Clone, PartialEq)]
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
            errors.extend(provider.check_models(at));
        }
        let (mut names, mut keys) = (HashSet::new(), HashSet::new());
        for (at, tenant) in self.tenants.iter().enumerate() {
            if !names.insert(tenant.name.as_str()) {
                errors.push(SettingsError::TenantTwice { at });
            }
            if !keys.insert(tenant.key.expose()) {
                errors.push(SettingsError::TenantKeyTwice { at });
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}

impl Provider {
    /// The certificates to trust can be read.
    fn check_upstream(&self) -> Result<(), UpstreamError> {
        match &self.ca_file {
            Some(path) => Upstream::new(self.base_url.is_encrypted(), Some(path)).map(drop),
            None => Ok(()),
        }
    }

    /// A name of a model means one model.
    fn check_models(&self, at: usize) -> Vec<SettingsError> {
        let mut names = HashSet::new();
        let models = self.models.iter().flatten();
        let all = models.flat_map(|model| {
            std::iter::once(&model.name).chain(&model.aliases).map(move |name| (model, name))
        });
        let twice = all.filter(|(_, name)| !names.insert(name.as_str()));
        twice
            .map(|(model, name)| SettingsError::ModelTwice {
                at,
                model: model.name.clone(),
                name: name.clone(),
            })
            .collect()
    }
}

#[cfg(test)]
mod tests;
