//! Settings that do not fit together.

use crate::model_name::MODEL_BYTES_MAX;
use crate::upstream::UpstreamError;

/// A rule that settings break. `at` is the position of the provider or tenant in its list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each variant is")]
pub enum SettingsError {
    #[error("must list at least one provider")]
    NoProvider,
    #[error("is a path of the server itself; take another name")]
    ReservedName { at: usize },
    #[error("is the name of another provider too; each has its own")]
    ProviderTwice { at: usize },
    #[error("is missing: with gateway.tenants, the keys of tenants must not be sent to a provider")]
    TenantsWithoutApiKey { at: usize },
    #[error(
        "could be used by everybody who reaches this server; set gateway.tenants, listen on a loopback address, or set \
         gateway.allow_anonymous: true if this is intended"
    )]
    ApiKeyForEverybody { at: usize },
    #[error("{error}")]
    Deployment { at: usize, model: String, deployment_at: usize, error: DeploymentError },
    #[error("has the name {name} of another model or alias; a name means one model")]
    ModelTwice { at: usize, model: String, name: String },
    #[error(
        "is not the name of a model, which has 1 to {MODEL_BYTES_MAX} characters without white space and without `*`"
    )]
    ModelName { at: usize, model: String },
    #[error("must be 1 or more")]
    NoOutput { at: usize, model: String, field: &'static str },
    #[error("must be at most max_output_tokens")]
    DefaultAboveMax { at: usize, model: String },
    #[error(
        "is no path below base_url, such as `moderations`, or `files/*` for all below `files/`"
    )]
    PassThroughPath { at: usize, path_at: usize },
    #[error("is for a base_url with https://")]
    ProxyWithoutTls { at: usize },
    #[error("must not end with /v1: callers' paths begin with it")]
    AnthropicVersion { at: usize },
    #[error("lists {model}, which no provider has")]
    UnknownModel { at: usize, model: String },
    #[error("must be at least gateway.body_bytes_max, or a call that large never has room")]
    BufferedBelowBody,
    #[error("{error}")]
    CaFile { at: usize, error: UpstreamError },
    #[error("is the name of another tenant too; each has its own")]
    TenantTwice { at: usize },
    #[error("is the key of another tenant too; each has its own")]
    TenantKeyTwice { at: usize },
}

/// A deployment to which no call can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what each variant is")]
pub enum DeploymentError {
    #[error(
        "model is not the name of a model, which has 1 to {MODEL_BYTES_MAX} characters without white space and without `*`"
    )]
    ModelName,
    #[error("weight must be 1 to {}", super::DEPLOYMENT_WEIGHT_MAX)]
    Weight,
    #[error("provider is not the name of one of gateway.providers")]
    UnknownProvider,
    #[error("provider speaks another API; calls are not translated")]
    OtherApi,
    #[error("model is not in the provider's models; list it there by this name, or list none")]
    UnknownModel,
    #[error("model has deployments itself; name them here")]
    Chain,
    #[error("is there twice; give it a larger weight instead")]
    Twice,
}

impl SettingsError {
    /// The path of the value in a config.
    pub fn path(&self) -> String {
        match self {
            Self::NoProvider => "gateway.providers".to_owned(),
            Self::ReservedName { at } | Self::ProviderTwice { at } => {
                format!("gateway.providers[{at}].name")
            }
            Self::TenantsWithoutApiKey { at } | Self::ApiKeyForEverybody { at } => {
                format!("gateway.providers[{at}].api_key")
            }
            Self::ModelTwice { at, model, .. } => {
                format!("gateway.providers[{at}].models.{model}")
            }
            Self::Deployment { at, model, deployment_at, .. } => {
                format!("gateway.providers[{at}].models.{model}.deployments[{deployment_at}]")
            }
            Self::ModelName { at, model } => format!("gateway.providers[{at}].models.{model}"),
            Self::NoOutput { at, model, field } => {
                format!("gateway.providers[{at}].models.{model}.{field}")
            }
            Self::DefaultAboveMax { at, model } => {
                format!("gateway.providers[{at}].models.{model}.default_output_tokens")
            }
            Self::PassThroughPath { at, path_at } => {
                format!("gateway.providers[{at}].pass_through_paths[{path_at}]")
            }
            Self::AnthropicVersion { at } => format!("gateway.providers[{at}].base_url"),
            Self::ProxyWithoutTls { at } => format!("gateway.providers[{at}].https_proxy"),
            Self::UnknownModel { at, .. } => format!("gateway.tenants[{at}].models"),
            Self::BufferedBelowBody => "gateway.buffered_bytes_max".to_owned(),
            Self::CaFile { at, .. } => format!("gateway.providers[{at}].ca_file"),
            Self::TenantTwice { at } => format!("gateway.tenants[{at}].name"),
            Self::TenantKeyTwice { at } => format!("gateway.tenants[{at}].key"),
        }
    }
}
